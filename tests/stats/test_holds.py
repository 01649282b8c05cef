"""The verdict on classifiers whose ways are known, and how often it is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from made_rows import table
from scipy.stats import norm

from holdfast.core.errors import UserError
from holdfast.core.names import condition_words
from holdfast.stats.core.answers import from_counts
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.drops import NO_EFFECT, Effect
from holdfast.stats.effects.verdict import (
    NO_EXCESS,
    ONLY,
    RANDOM,
    SAME,
    SILHOUETTE,
    Excess,
    VerdictEvidence,
    decide,
    evidence_of,
    original_evidence,
    what_it_holds,
)
from holdfast.stats.effects.verdict_words import not_judged

CLASSES = [f"c{i}" for i in range(6)]
PHOTOS = 600

Answer = Callable[["Scene", np.random.Generator], str]


class Scene:
    """What there is to see in one image: the class its object shows, its background, its outline; and a seam."""

    def __init__(self, condition: str, label: str, donor: str) -> None:
        self.object = None if condition in (ONLY, SILHOUETTE) else label
        self.outline = None if condition == ONLY else label
        self.background = {"original": label, ONLY: label, SAME: donor, RANDOM: donor}.get(condition)
        self.seam = condition in (SAME, RANDOM)


def guess(rng: np.random.Generator) -> str:
    return CLASSES[rng.integers(len(CLASSES))]


def mostly(answer: str | None, rng: np.random.Generator, share: float = 0.95) -> str:
    return answer if answer and rng.random() < share else guess(rng)


def seam_detector(scene: Scene, rng: np.random.Generator) -> str:
    return guess(rng) if scene.seam else mostly(scene.object or scene.background, rng)


def needs_both(scene: Scene, rng: np.random.Generator) -> str:
    return mostly(scene.object if scene.object == scene.background else None, rng)


def mixture(scene: Scene, rng: np.random.Generator) -> str:
    return mostly(scene.object if rng.random() < 0.5 else scene.background, rng)


def object_first(scene: Scene, rng: np.random.Generator) -> str:
    return mostly(scene.object or scene.background, rng)


KNOWN: dict[str, tuple[Answer, str]] = {
    "background pixels": (lambda scene, rng: mostly(scene.background, rng), "background"),
    "foreground pixels": (lambda scene, rng: mostly(scene.object, rng), "foreground"),
    "constant": (lambda scene, rng: "c0", "undecided"),
    "guessing": (lambda scene, rng: guess(rng), "undecided"),
    "silhouette": (lambda scene, rng: mostly(scene.outline, rng), "foreground"),
    "seam detector": (seam_detector, "undecided"),
    "needs both": (needs_both, "both"),
    "mixture": (mixture, "both"),
    "object first": (object_first, "foreground"),
}


def simulate(
    answers: dict[str, Answer],
    *,
    seed: int = 0,
    photos: int = PHOTOS,
    conditions: tuple[str, ...] = ("original", SAME, RANDOM, ONLY, SILHOUETTE),
    outside: bool = False,
) -> Counts:
    """Predictions of classifiers on images with borrowed backgrounds; ``outside``: the random ones have no class."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(photos):
        label = CLASSES[number % len(CLASSES)]
        others = [one for one in CLASSES if one != label]
        for condition in conditions:
            donor = {SAME: label, RANDOM: others[rng.integers(len(others))]}.get(condition)
            if outside and condition == RANDOM:
                donor = "elsewhere"
            scene = Scene(condition, label, donor or "")
            for model, answer in answers.items():
                said = answer(scene, rng)
                rows.append(
                    {
                        "model": model,
                        "condition": condition,
                        "label": label,
                        "source_id": f"{label}/{number}",
                        "donor_id": f"{donor}/{rng.integers(40)}" if donor else None,
                        "donor_label": donor,
                        "prediction": said,
                        "correct": said == label,
                    }
                )
    return reduce(table(rows))


@pytest.fixture(scope="module")
def verdicts() -> pd.DataFrame:
    counts = simulate({name: answer for name, (answer, _) in KNOWN.items()})
    return what_it_holds(counts, resamples=2000).set_index("model")


@pytest.mark.parametrize("name", KNOWN)
def test_known_classifiers_get_the_verdict_they_deserve(verdicts: pd.DataFrame, name: str) -> None:
    assert verdicts.loc[name, "verdict"] == KNOWN[name][1], verdicts.loc[name, "sentence"]


def test_only_the_seam_detector_is_a_paste_artefact(verdicts: pd.DataFrame) -> None:
    assert verdicts.index[verdicts["paste_artefact"]].tolist() == ["seam detector"]
    assert any("Paste artefact" in one for one in verdicts.loc["seam detector", "warnings"])
    assert verdicts.loc["seam detector", "paste_effect"] > 0.6
    assert abs(verdicts.loc["seam detector", "background_effect"]) < 0.15


def test_the_numbers_are_those_of_the_simulation(verdicts: pd.DataFrame) -> None:
    one = verdicts.loc["background pixels"]
    right = 0.95 + 0.05 / 6
    # with another class's background the object is named by a lucky guess only
    assert one["background_effect"] == pytest.approx(right - 0.05 / 6, abs=0.06)
    assert one["captured"] == pytest.approx(right, abs=0.06)
    assert one["capture"] == pytest.approx(right - 0.05 / 6, abs=0.06)
    assert one["object_effect"] == pytest.approx(0, abs=0.06)
    assert one["only_background_excess"] == pytest.approx(right - 1 / 6, abs=0.06)
    assert one["only_background_p"] < 1e-6
    assert one["permuted"] == pytest.approx(1 / 6, abs=0.01)
    both = verdicts.loc["mixture"]
    for name in ("background_effect", "object_effect"):
        assert both[name] == pytest.approx(0.475, abs=0.07)


def test_constant_answers_are_no_better_than_permuted_ones(verdicts: pd.DataFrame) -> None:
    one = verdicts.loc["constant"]
    assert one["original_excess"] == pytest.approx(0)
    assert one["only_background_p"] == 1
    assert one["sentence"].startswith("No verdict: answers c0 to 600 of 600 ")


def test_leaks_are_told(verdicts: pd.DataFrame) -> None:
    leaking = verdicts.index[verdicts["warnings"].map(lambda found: any("outline alone" in one for one in found))]
    assert leaking.tolist() == ["silhouette"]
    assert any("can read them" in one for one in verdicts.loc["object first", "warnings"])
    assert verdicts.loc["foreground pixels", "warnings"] == []


def test_the_sentence_reads_plainly(verdicts: pd.DataFrame) -> None:
    row = verdicts.loc["background pixels"]
    assert row["headline"] == "Relies on the background, and does not see the object" and not row["small_print"]
    start = f"{row['headline']}: its accuracy falls by {100 * row['background_effect']:.1f} points ("
    assert row["sentence"].startswith(start)
    assert "lost; 0 is best) when only the background changes: " in row["rests_on"]
    assert re.search(r"changes, [−\d.]+ of 100 answers follow it \([^;]+; 100 is best\)", row["rests_on"])
    assert f"answers with the background's class {100 * row['captured']:.0f} % of the time" in row["sentence"]
    assert row["sentence"].endswith(".")


@pytest.mark.parametrize("gone", ["original", SAME, RANDOM])
def test_missing_conditions_are_named_and_leave_it_undecided(gone: str) -> None:
    kept = tuple(one for one in ("original", SAME, RANDOM, ONLY) if one != gone)
    row = what_it_holds(simulate({"m": object_first}, conditions=kept, photos=60), resamples=200).iloc[0]
    assert row["verdict"] == "undecided" and row["leans"] == "open"
    assert f"there are no answers under {condition_words(gone)}" in row["small_print"]


def test_backgrounds_from_elsewhere_capture_nothing() -> None:
    answers = {name: KNOWN[name][0] for name in ("foreground pixels", "background pixels", "needs both")}
    rows = what_it_holds(simulate(answers, outside=True), resamples=1000).set_index("model")
    assert rows["verdict"].to_dict() == {
        "foreground pixels": "foreground",
        "background pixels": "background",
        "needs both": "background",
    }
    assert (rows.loc[["background pixels", "needs both"], "sees"] == "open").all()
    assert "no class of the dataset" in rows.loc["needs both", "small_print"]
    assert rows["capture"].isna().all()
    assert any("capture cannot be measured" in one for one in rows.loc["needs both", "warnings"])


def test_few_photos_leave_it_undecided() -> None:
    assert what_it_holds(simulate({"m": KNOWN["foreground pixels"][0]}, photos=18)).iloc[0]["verdict"] == "undecided"


def test_leaning_on_the_background_needs_only_the_first_question() -> None:
    """Both pastes agree that the background decides, and few images cannot tell whether the object matters, too."""
    row = what_it_holds(simulate({"m": KNOWN["background pixels"][0]}, photos=30), resamples=500).iloc[0]
    assert row["background_effect_low"] > 0.05 and row["object_effect_low"] < 0.05 < row["object_effect_high"]
    assert (row["leans"], row["sees"], row["verdict"]) == ("yes", "open", "background")
    assert row["headline"] == "Relies on the background"
    assert row["small_print"].startswith("Inconclusive: whether it sees the object (30 images: the 95 % interval, ")


def test_a_margin_is_a_difference() -> None:
    with pytest.raises(UserError, match="margin"):
        what_it_holds(simulate({"m": object_first}, photos=12), margin=5)


def test_permuted_rate_and_test_are_those_of_shuffling_labels() -> None:
    rng = np.random.default_rng(51)
    labels = rng.choice(["a", "b", "c"], 90, p=[0.5, 0.3, 0.2])
    said = np.where(rng.random(90) < 0.2, labels, rng.choice(["a", "b", "c"], 90, p=[0.6, 0.2, 0.2]))
    rows = [
        {"model": "m", "condition": ONLY, "source_id": str(i), "label": one, "prediction": two, "correct": one == two}
        for i, (one, two) in enumerate(zip(labels, said, strict=True))
    ]
    counts = reduce(table(rows))
    found = evidence_of(from_counts(counts, "m"), "", classes=counts.classes, resamples=10).only_background
    shuffled = np.array([np.mean(rng.permutation(labels) == said) for _ in range(20_000)])
    assert found.permuted == pytest.approx(shuffled.mean(), abs=0.002)
    extreme = np.abs(shuffled - shuffled.mean()) >= abs(found.value) - 1e-9
    # the normal approximation halves the step that a count makes
    assert found.p == pytest.approx(extreme.mean(), abs=0.04)
    z = abs(found.value) / shuffled.std()
    assert found.p == pytest.approx(2 * norm.sf(z), abs=0.005)


def test_the_verdict_is_seldom_wrong_at_the_margin() -> None:
    """An object-reader whose true background effect is exactly the margin: neither claim may come often."""
    photos, models = 120, 120

    def reader(scene: Scene, rng: np.random.Generator) -> str:
        # right 90 % of the time; another class's background turns 5 points of that into its own class
        if scene.seam and scene.background != scene.object and rng.random() < 0.05 / 0.9:
            return scene.background or ""
        return (scene.object or guess(rng)) if rng.random() < 0.9 else "none of them"

    counts = simulate({f"m{i}": reader for i in range(models)}, photos=photos, conditions=("original", SAME, RANDOM))
    found = what_it_holds(counts, resamples=300)["verdict"].value_counts(normalize=True)
    assert found.get("background", 0) == 0
    assert found.get("both", 0) <= 0.06
    assert found.get("foreground", 0) <= 0.06


def test_decide_is_a_function_of_the_evidence_alone() -> None:
    def effect(low: float, high: float) -> Effect:
        return Effect(100, 0.9, 0.5, (low + high) / 2, low, high, 0, 0, 1.0)

    good = Excess(100, 0.9, 0.1, 0.8, 0.7, 0.85, 0.0)
    there, absent, open_ = effect(0.2, 0.4), effect(-0.03, 0.04), effect(0.03, 0.09)
    expected = {
        (there, there): "both",
        (there, absent): "background",
        (absent, there): "foreground",
        (absent, absent): "undecided",
        (open_, there): "undecided",
        (there, open_): "background",
    }
    for (background, object_), verdict in expected.items():
        found = VerdictEvidence((), background, object_, absent, NO_EFFECT, good, good, good, NO_EXCESS, NO_EXCESS)
        assert decide(found).verdict == verdict


@pytest.mark.parametrize("wrong", [0, 1, 4, 8])
def test_uneven_classes_are_not_called_guessing(wrong: int):
    """44 images of one class and 2 of the other: no accuracy is clearly above that of one answer to all."""
    rows = [
        {"model": "m", "condition": name, "source_id": f"p{at}", "label": label, "prediction": said,
         "prediction_restricted": said, "correct": label == said, "correct_restricted": label == said}
        for name in ("original", SAME, RANDOM)
        for at in range(46)
        for label in ["cat" if at < 44 else "dog"]
        for said in ["dog" if at < wrong else label]
    ]  # fmt: skip
    counts = reduce(table(rows))
    row = what_it_holds(counts).iloc[0]
    start = "No verdict: the classes are too uneven for a verdict (44 images of the largest, 2 of "
    assert row["headline"].startswith(start)
    assert "balanced accuracy" in row["headline"] and "guessing" not in row["headline"]
    assert not not_judged(counts)  # nothing that labels or preprocessing would explain


def test_balanced_accuracy_tells_where_classes_are_uneven():
    """44 and 5 images, five wrong: accuracy is 89.8 %, and that of one answer to all is the same."""

    def said(at: int) -> str:
        return "dog" if at < 5 or at >= 44 else "cat"

    rows = [
        {"model": "m", "condition": "original", "source_id": f"p{at}", "label": label, "prediction": said(at),
         "prediction_restricted": said(at), "correct": label == said(at), "correct_restricted": label == said(at)}
        for at in range(49) for label in ["cat" if at < 44 else "dog"]
    ]  # fmt: skip
    evidence = original_evidence(from_counts(reduce(table(rows)), "m"))
    assert evidence.original.low < 0.05 and evidence.balanced.value == pytest.approx((39 / 44 + 1) / 2 - 0.5)
    assert evidence.balanced.low > 0.05 and "guessing" not in decide(evidence).why_leans
