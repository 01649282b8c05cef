"""Everything that a verdict says is true of its numbers, whatever the table."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_rows import table

from holdfast.reports.static.front import step_list
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.drops import NO_EFFECT, Effect
from holdfast.stats.effects.verdict import NO_EXCESS, Excess, VerdictEvidence, what_it_holds
from holdfast.stats.effects.verdict_words import HEADLINES, VerdictWords, in_words, more_photos, photo_advice
from holdfast.stats.models.power import photo_range

MARGIN = 0.05
CONDITIONS = ["original", "same_class_background", "random_background", "only_background", "silhouette"]


@st.composite
def random_tables(draw: st.DrawFn) -> Any:
    """Draw answers of a model with random habits on a few images under a random choice of conditions."""
    photos, classes = draw(st.integers(4, 40)), draw(st.integers(2, 4))
    habits = {name: [draw(st.floats(0, 1)) for _ in range(3)] for name in CONDITIONS}
    kept = [name for name in CONDITIONS if draw(st.booleans()) or draw(st.booleans())]
    outside = draw(st.booleans()) and draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    rows = []
    for photo in range(photos):
        label = photo % classes
        for condition in kept:
            lender = {CONDITIONS[1]: label, CONDITIONS[2]: (label + 1 + rng.integers(classes - 1)) % classes}
            donor = f"c{lender[condition]}" if condition in lender else None
            if outside and condition == CONDITIONS[2]:
                donor = "elsewhere"
            sees, leans, _ = habits[condition]
            said = f"c{rng.integers(classes)}"
            if rng.random() < sees:
                said = f"c{label}"
            elif donor and rng.random() < leans:
                said = donor if donor != "elsewhere" else said
            rows.append(
                {"model": "m", "condition": condition, "label": f"c{label}", "source_id": f"p{photo}",
                 "donor_id": f"{donor}/{rng.integers(6)}" if donor else None, "donor_label": donor,
                 "prediction": said, "correct": said == f"c{label}"}
            )  # fmt: skip
    return rows


@given(random_tables())
@settings(max_examples=60, deadline=None)
def test_every_word_is_true_of_its_table(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    row = what_it_holds(reduce(table(rows)), resamples=60).iloc[0].to_dict()
    check_words(row, missing=[name for name in CONDITIONS[:3] if name not in {line["condition"] for line in rows}])


def interval(kind: type[Effect] | type[Excess]) -> st.SearchStrategy[Any]:
    def made(ends: tuple[float, float, int]) -> Any:
        low, high, n = min(ends[:2]), max(ends[:2]), ends[2]
        value = (low + high) / 2
        if kind is Effect:
            return Effect(n, (1 + value) / 2, (1 - value) / 2, value, low, high, 0, 0, 1.0)
        return Excess(n, value + 0.2, 0.2, value, low, high, 0.5)

    bound = st.one_of(st.floats(-0.2, 1), st.just(MARGIN), st.floats(0.045, 0.055))
    nothing = st.just(NO_EFFECT if kind is Effect else NO_EXCESS)
    return st.one_of(st.tuples(bound, bound, st.integers(1, 500)).map(made), nothing)


def with_missing(evidence: VerdictEvidence) -> VerdictEvidence:
    """Name the conditions without an answer, as ``evidence_of`` does."""
    answered = (evidence.original.n, evidence.pasted.n, evidence.replaced.n)
    return replace(evidence, missing=tuple(name for name, n in zip(CONDITIONS, answered, strict=False) if not n))


@given(
    st.builds(
        VerdictEvidence,
        st.just(()),
        *[interval(Effect) for _ in range(4)],
        *[interval(Excess) for _ in range(5)],
    ).map(with_missing)
)
@settings(max_examples=400, deadline=None)
def test_every_word_is_true_of_any_evidence(evidence: VerdictEvidence) -> None:
    words = in_words(evidence)
    numbers = {
        "background_effect": evidence.background, "object_effect": evidence.object, "paste_effect": evidence.paste,
        "original_excess": evidence.original, "same_class_excess": evidence.pasted,
        "foreground_evidence": evidence.replaced,
    }  # fmt: skip
    row: dict[str, Any] = {"n": evidence.background.n, "captured": evidence.capture.first}
    row |= {"same_class_background": evidence.background.first, "random_background": evidence.background.second}
    for name, effect in numbers.items():
        row |= {name: effect.value, f"{name}_low": effect.low, f"{name}_high": effect.high}
    check_words(row | words.columns(), missing=list(evidence.missing))


def check_words(row: dict[str, Any], missing: list[str]) -> None:
    """Compare every claim of a verdict with the numbers next to it."""

    def below(name: str) -> bool:
        return row[f"{name}_high"] <= MARGIN

    def above(name: str) -> bool:
        return row[f"{name}_low"] > MARGIN

    if row["why_leans"] == row["why_sees"] == "wrong":
        assert re.fullmatch(r"No verdict: right on none of \d\d+ unchanged images", row["headline"])
        assert "labels or its preprocessing" in row["small_print"] and not row["rests_on"]
        return
    if row["why_leans"] == row["why_sees"] == "constant":
        shown = re.fullmatch(r"No verdict: answers \w+ to (\d+) of (\d+) unchanged images", row["headline"])
        assert shown
        count, of = shown.groups()
        assert int(count) >= 0.9 * int(of) >= 0.9 * 12 or (count == of and int(of) >= 6)
        assert not above("original_excess") and not row["rests_on"]
        return
    if unclear := re.fullmatch(
        r"No verdict: (no|not clearly) better than guessing on \d\d+ unchanged.*", row["headline"]
    ):
        assert row["original_excess"] <= MARGIN and below("original_excess") == (unclear[1] == "no")
        assert row["leans"] == row["sees"] == "open" and "guessing" in row["small_print"] and not row["rests_on"]
        return
    assert row["headline"] == HEADLINES[row["leans"], row["sees"]]
    if row["leans"] == "yes":
        assert above("background_effect")
    sees_by = "foreground_evidence" if math.isnan(row["object_effect"]) else "object_effect"
    if row["sees"] == "yes":
        assert above(sees_by)
    for step, name in (("leans", "background_effect"), ("sees", sees_by)):
        assert (row[step] == "open") == bool(row[f"why_{step}"])
        if row[step] == "no":
            assert below(name) and not missing and above("original_excess") and above("same_class_excess")
        if row[f"why_{step}"] == "interval":
            assert row[f"{name}_low"] <= MARGIN <= row[f"{name}_high"]
            assert "includes the 5-point margin" in row["small_print"]
    small = row["small_print"]
    assert bool(small) == ("open" in (row["leans"], row["sees"]))
    for words, name in (("on the originals it is no", "original_excess"), ("scenes it is no", "same_class_excess")):
        assert words not in small or below(name)
    if "pasting alone costs" in (small + row["rests_on"]).lower():
        assert above("paste_effect")
    if "leaves it no better than guessing" in small:
        assert above("paste_effect") and below("same_class_excess")
    if "on them it is no better" in small:
        assert math.isnan(row["object_effect"]) and row["foreground_evidence_high"] < MARGIN
    assert ("no answers under" in small) <= bool(missing)
    for low, high in re.findall(
        r"([−\d.]+) to ([−\d.]+) points(?:,| above guessing\)) includes the 5-point margin", small
    ):
        assert float(low.replace("−", "-")) <= 5 <= float(high.replace("−", "-"))
    fall = re.search(
        r"accuracy (falls|rises) by ([\d.]+) points \(([−\d.]+) to ([−\d.]+) lost; 0 is best\) .*: ([\d.]+) % .* "
        r"background, ([\d.]+) % on a random",
        row["rests_on"],
    )
    still = re.search(
        r"accuracy does not change \(([−\d.]+) to ([−\d.]+) points lost; 0 is best\) .*: ([\d.]+) % .* background and "
        r"(?:([\d.]+) % )?on a random",
        row["rests_on"],
    )
    assert bool(fall or still) == bool(row["n"]) and not (fall and still), row["rests_on"]
    if still:
        assert abs(row["background_effect"]) <= 0.0005 + 1e-9
        shown = [float(text.replace("−", "-")) for text in (*still.groups()[:3], still[4] or still[3])]
        names = ("background_effect_low", "background_effect_high", "same_class_background", "random_background")
        assert shown == pytest.approx([100 * row[name] for name in names], abs=0.05 + 1e-9)
    if fall:
        assert (fall[1] == "rises") == (row["background_effect"] < 0)
        names = ("background_effect_low", "background_effect_high", "same_class_background", "random_background")
        shown = [float(text.replace("−", "-")) for text in fall.groups()[1:]]
        wanted = [abs(100 * row["background_effect"]), *(100 * row[name] for name in names)]
        assert shown == pytest.approx(wanted, abs=0.05 + 1e-9)
    check_advice(row)


def check_advice(row: dict[str, Any]) -> None:
    """Advice has a range or no number; it is given only if an interval includes the margin."""
    needed, text = more_photos(row), photo_advice(row)
    answered = "open" not in (row["leans"], row["sees"])
    assert text.startswith("None needed") == answered
    assert (needed is not None) == (" to " in text and "more like these" in text)
    if needed is not None:
        assert not answered and 0 < needed[0] <= needed[1]
    if "would not help" in text:
        assert (
            not {row["why_leans"], row["why_sees"]} & {"interval", "perhaps guessing", "perhaps pasting"}
            or not row["n"]
        )


def test_a_reason_is_not_given_to_pasting_where_photos_are_few() -> None:
    """With a paste effect of exactly 0 the number of images is what is missing."""
    there, none = Excess(24, 0.7, 0.5, 0.2, 0.06, 0.4, 0.01), Effect(24, 0.7, 0.7, 0.0, -0.1, 0.1, 0, 0, 1.0)
    few = Excess(24, 0.7, 0.5, 0.2, 0.02, 0.4, 0.01)
    words = in_words(VerdictEvidence((), none, none, none, NO_EFFECT, there, few, few, NO_EXCESS, NO_EXCESS))
    assert "pasting alone" not in words.sentence and "guessing on pasted scenes: 24 images" in words.small_print


def test_a_model_that_is_never_right_is_not_judged() -> None:
    """The commonest mistake of a new user: other labels, or another preprocessing, than the model was trained with."""
    photos = [(source, name) for source in range(24) for name in CONDITIONS[:3]]
    rows = [
        {"model": "m", "source_id": f"p{source}", "condition": name, "label": "ab"[source % 2], "prediction": "z",
         "correct": False}
        for source, name in photos
    ]  # fmt: skip
    row = what_it_holds(reduce(table(rows)), resamples=60).iloc[0]
    assert row["headline"] == "No verdict: right on none of 24 unchanged images" and row["why_leans"] == "wrong"
    few = what_it_holds(reduce(table(rows[: 3 * 11])), resamples=60).iloc[0]
    assert few["why_leans"] != "wrong", "eleven wrong answers may be chance"


def test_a_model_with_one_answer_is_not_told_to_get_more_photos() -> None:
    """Untrained, or with its outputs in another order: right by chance, the same under every condition."""
    rows = [
        {"model": "m", "source_id": f"p{source}", "condition": name, "label": f"c{source % 12}", "prediction": said,
         "donor_id": f"d{source}" if place else None, "donor_label": f"c{(source + place - 1) % 12}" if place else None,
         "correct": said == f"c{source % 12}"}
        for source in range(48)
        for place, name in enumerate(CONDITIONS[:3])
        for said in ["c3" if source else "c0"]
    ]  # fmt: skip
    row = what_it_holds(reduce(table(rows)), resamples=60).iloc[0].to_dict()
    assert row["headline"] == "No verdict: answers c3 to 47 of 48 unchanged images"
    steps = step_list([row], None, lost="Look at c3")
    assert len(steps) == 1 and steps[0][0].startswith("Answers c3 to 47 of 48 unchanged images: check the names of")
    fewer = [line for line in rows[3:] if line["condition"] != "same_class_background"]
    for part in (rows[3:27], fewer, [line for line in fewer if line["condition"] == "original"]):
        said = what_it_holds(reduce(table(part)), resamples=60).iloc[0]["headline"]
        photos = len({line["source_id"] for line in part})
        assert said == f"No verdict: answers c3 to {photos} of {photos} unchanged images", "originals alone decide"
    few = [line | {"label": "c3", "correct": line["prediction"] == "c3"} for line in rows[3:]]
    mostly = what_it_holds(reduce(table([*rows[:3], *few])), resamples=60).iloc[0]
    assert mostly["why_leans"] != "constant", "all right, where nearly all images are of one class"


def test_the_good_direction_is_said() -> None:
    good, none = Effect(120, 0.97, 0.0, 0.97, 0.92, 1.0, 0, 0, 1.0), Effect(120, 0.9, 0.9, 0.0, -0.02, 0.02, 0, 0, 1.0)
    clear = Excess(120, 0.9, 0.1, 0.8, 0.7, 0.9, 0.0)
    words: VerdictWords = in_words(
        VerdictEvidence((), none, good, none, NO_EFFECT, clear, clear, clear, NO_EXCESS, NO_EXCESS)
    )
    assert words.headline == "Sees the object, and does not rely on the background"
    assert "When only the object changes, 97.0 of 100 answers follow it (92.0 to 100.0; 100 is best)." in words.rests_on
    assert "loses" not in words.sentence


def test_the_range_of_photos_covers_what_estimates_of_other_samples_would_advise() -> None:
    """Half of the estimates of the same truth would advise a number inside a range like this one."""
    rng = np.random.default_rng(3)
    true, error = 0.0, 0.03
    needed = photo_range(100, value=true, low=true - 1.96 * error, high=true + 1.96 * error, margin=MARGIN)
    assert needed is not None
    inside = 0
    for _ in range(2000):
        distance = abs(rng.normal(true, error) - MARGIN)
        inside += needed[0] <= 100 * (error * (1.959964 + 0.841621) / distance) ** 2 <= needed[1]
    assert inside / 2000 == pytest.approx(0.5, abs=0.04)
    assert photo_range(100, value=0.04, low=-0.02, high=0.10, margin=MARGIN) is None
