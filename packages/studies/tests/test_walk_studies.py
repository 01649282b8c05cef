"""The studies of latent walks that train nothing: what their tables say, against other ways to the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.stats import kendalltau

import holdfast
from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.schema import FRAMES
from holdfast.generators import load_generator
from holdfast.models import load_classifier
from holdfast.stats.people.agreement import agreement
from holdfast.store import Parts
from holdfast_studies.study import run_study
from holdfast_studies.walking import walks as walk_measures
from holdfast_studies.walking.oracles import led_astray, same_verdicts, targets_of
from holdfast_studies.walking.transfer import UNMOVED

FIRST, SECOND = "embedded:resnet_rho95", "embedded:vit_rho95"
SAID = [f"models={FIRST},{SECOND}", "scenes=12"]


def study(name: str, out: Path, *said: str) -> str:
    return run_study(name, out, assignments=[*SAID, *said], quick=True, device="cpu").read_text(encoding="utf8")


def table(out: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(out / "results" / f"{name}.parquet")


def test_start_agrees_with_the_run_and_goes_on_where_it_was(tmp_path: Path) -> None:
    page = study("start", tmp_path, "step_size=0.02")
    found = table(tmp_path, "each-start-by-itself").set_index(["model", "way"])
    run = api.open_run(tmp_path / "runs" / "walks")
    family = run.fmr(measures=True)
    family = family[family["label"] == ""]
    family = family.assign(attacked=family["parameters"].str.contains('"start":"fgsm"'))
    assert "Drawn scenes: the truth is known" in page
    assert len(found) == 4
    for (model, way), row in found.iterrows():
        mine = family[(family["model"] == model) & (family["attacked"] == (way == "FGSM image"))]
        mine = mine.set_index("measure")["estimate"]
        for measure in walk_measures.MEASURES:
            assert row[measure] == pytest.approx(mine[measure], nan_ok=True), (model, way, measure)
    apart = table(tmp_path, "fgsm-start-less-clean-start").set_index("model")
    for model in (FIRST, SECOND):
        change = found.loc[(model, "FGSM image"), "fmr"] - found.loc[(model, "clean image"), "fmr"]
        assert apart.loc[model, "fmr"] == pytest.approx(change)
        assert apart.loc[model, "fmr_low"] <= change <= apart.loc[model, "fmr_high"]
    parts = sorted((tmp_path / "runs" / "walks" / "predictions").iterdir())
    study("start", tmp_path, "step_size=0.02")
    assert sorted((tmp_path / "runs" / "walks" / "predictions").iterdir()) == parts


@pytest.mark.slow
def test_step_size_counts_every_size(tmp_path: Path) -> None:
    study("step-size", tmp_path, "step_sizes=0.1,0.002")
    found = table(tmp_path, "what-the-step-size-does")
    assert list(zip(found["model"], found["step_size"], strict=True)) == [
        (FIRST, 0.002), (SECOND, 0.002), (FIRST, 0.1), (SECOND, 0.1),
    ]  # fmt: skip
    rows = api.open_run(tmp_path / "runs" / "walks").run.rows().to_pandas()
    for row in found.to_dict("records"):
        mine = rows[(rows["condition"] == "perturbed") & (rows["model"] == row["model"])]
        mine = mine[mine["parameters"].astype(str).str.contains(f'"step_size":{row["step_size"]:g},')]
        assert len(mine) == 12
        assert row["validated"] == (mine["status"] == "ok").sum()
        assert row["validation_rate"] == pytest.approx((mine["status"] == "ok").mean())
    # The oracle sees a step of a tenth of the pixels' range, so the study shows something.
    assert found["validation_rate"].min() < found["validation_rate"].max()


@pytest.mark.slow
def test_transfer_shows_every_image_to_every_model(tmp_path: Path) -> None:
    walked = tmp_path / "runs" / "walks"
    # What a run holds apart from the study's walks must not count.
    api.perturb(
        "diorama:test?n=12&context=0.95&seed=0", models=[FIRST, SECOND], generator="pixel:", oracle="clip:embedded",
        out=walked, steps=1, step_size=0.05, keep_images=True, random_walk=False, device="cpu",
    )  # fmt: skip
    page = study("transfer", tmp_path, "step_size=0.02")
    assert "second=FOLDER" in page
    assert UNMOVED in page
    found = table(tmp_path, "made-against-one-shown-to-all").set_index(["made_against", "tested"])
    family = api.open_run(walked).fmr(measures=True)
    family = family[family["parameters"].str.contains('"step_size":0.02')]
    family = family[family["label"] == ""].set_index(["model", "measure"])["estimate"]
    manifest = pd.read_parquet(walked / "images" / "manifest.parquet")
    manifest = manifest[manifest["parameters"].str.contains('"step_size":0.02')]
    for against in (FIRST, SECOND):
        made = manifest[manifest["made_against"] == against]
        images = [np.asarray(Image.open(walked / "images" / path)) for path in made["path"]]
        for tested in (FIRST, SECOND):
            classifier = load_classifier(tested, device="cpu")
            answers = [classifier.labels.names[place] for place in classifier.predict(images).argmax(1)]
            right = np.mean([answer == label for answer, label in zip(answers, made["label"], strict=True)])
            cell = found.loc[(against, tested)]
            assert cell["perturbed_accuracy"] == pytest.approx(right)
            assert cell["fmr"] == pytest.approx(right / family[tested, "standard_accuracy"])
        assert found.loc[(against, against), "fmr"] == pytest.approx(family[against, "fmr"])
    means = table(tmp_path, "own-images-and-those-of-others").set_index("images")
    assert means.loc["own", "fmr"] == pytest.approx(np.mean([found.loc[(m, m), "fmr"] for m in (FIRST, SECOND)]))
    assert means.loc["other", "more"] == pytest.approx(means.loc["other", "fmr"] - means.loc["own", "fmr"])


def test_transfer_takes_a_second_training(tmp_path: Path) -> None:
    folder = Path(holdfast.__file__).parent / "assets" / "classifiers" / "resnet_rho80"
    page = study("transfer", tmp_path, "step_size=0.02", f"second={folder}")
    assert "was not given" not in page
    means = table(tmp_path, "own-images-and-those-of-others").set_index("images")
    assert dict(means["cells"]) == {"own": 3, "second training": 2, "other": 4}
    cells = table(tmp_path, "made-against-one-shown-to-all").set_index(["made_against", "tested"])["fmr"]
    twins = [cells[FIRST, "local-dir:resnet_rho80"], cells["local-dir:resnet_rho80", FIRST]]
    assert means.loc["second training", "fmr"] == pytest.approx(np.mean(twins))


@pytest.mark.slow
def test_generator_swap_compares_orders(tmp_path: Path) -> None:
    generators = ["rotate:", "pixel:", "noise:", "embedded:vqgan"]
    said = [
        f"models={FIRST},{SECOND},embedded:convnext_rho95",
        f"generators={','.join(generators)}",
        "step_size=0.05",
        "steps=1",
    ]
    study("generator-swap", tmp_path, *said)
    found = table(tmp_path, "fmr-and-rank-under-each-generator")
    assert list(dict.fromkeys(found["generator"])) == generators
    scores = found.pivot(index="model", columns="generator", values="fmr")
    pairs = table(tmp_path, "do-they-agree-on-the-order")
    assert len(pairs) == 6
    measured = 0
    for row in pairs.to_dict("records"):
        tau = kendalltau(scores[row["first"]], scores[row["second"]]).statistic
        assert row["tau"] == pytest.approx(tau, nan_ok=True)
        measured += np.isfinite(tau)
    assert measured >= 1


@pytest.mark.slow
def test_oracle_swap_judges_the_same_images(tmp_path: Path) -> None:
    study("oracle-swap", tmp_path, "step_size=0.1", "steps=3")
    oracles = list(dict.fromkeys(table(tmp_path, "fmr-under-each-oracle")["oracle"]))
    assert oracles[:2] == ["clip:embedded", "classifier:embedded:resnet_rho0"]
    pairs = table(tmp_path, "do-they-agree-on-the-same-images")
    frames = Parts(tmp_path / "runs" / "walks" / "details" / "frames", FRAMES).rows().to_pandas()
    rows = api.open_run(tmp_path / "runs" / "walks").run.rows().to_pandas().set_index("row_id")
    frames = frames.join(rows[["model", "sample_id", "oracle"]].astype(str), on="row_id")
    images = frames.drop_duplicates(["model", "sample_id", "step"])
    assert set(pairs["images"]) == {len(images)}
    # What the two saw in their walks, if both were shown the image, must be what the study let them say again.
    said = frames.pivot_table(
        index=["model", "sample_id", "step"], columns="oracle", values="accepted", aggfunc="first", observed=True
    )
    clip, classifier = (
        said[next(name for name in said.columns if name.startswith(scheme))].dropna()
        for scheme in ("clip", "classifier")
    )
    both = clip.index.intersection(classifier.index)
    first = pairs.iloc[0]
    differ = int((clip[both] != classifier[both]).sum())
    assert differ <= first["only_first"] + first["only_second"] <= differ + len(images) - len(both)
    assert first["same"] == pytest.approx(1 - (first["only_first"] + first["only_second"]) / len(images))
    unanimous = pairs.iloc[1]
    assert unanimous["only_second"] == 0  # what all members accept, the first of them accepts
    moved = table(tmp_path, "how-far-fmr-moves")
    assert len(moved) == 4


def test_oracle_attack_begins_at_the_photo_and_comes_nearer_to_the_target(tmp_path: Path) -> None:
    study("oracle-attack", tmp_path, "steps=4")
    found = table(tmp_path, "step-by-step")
    assert list(dict.fromkeys(found["network"])) == ["clip:embedded (oracle)", FIRST, SECOND]
    collection = api.load_collection("diorama:test?n=12&context=0.95&seed=0")
    targets = targets_of(collection, 0)
    truth = [collection.classes.index(sample.label) for sample in collection.samples]
    assert not np.equal(targets, truth).any()
    classifier = load_classifier(FIRST, device="cpu")
    probabilities = classifier.predict([sample.image.load() for sample in collection.samples])
    places = [classifier.labels.names.index(name) for name in collection.classes]
    start = found[(found["network"] == FIRST) & (found["step"] == 0)].iloc[0]
    mine = probabilities[:, places]
    assert start["true"] == pytest.approx(mine[range(12), truth].mean(), abs=1e-4)
    assert start["target"] == pytest.approx(mine[range(12), targets].mean(), abs=1e-4)
    assert start["target_loss"] == pytest.approx(-np.log(mine[range(12), targets]).mean(), rel=1e-3)
    for _, curve in found.groupby("network"):
        assert curve["target_loss"].is_monotonic_decreasing
        assert (curve["target_low"] <= curve["target"]).all()


def test_agreement_is_cohens_and_knows_that_images_of_a_scene_are_alike() -> None:
    rng = np.random.default_rng(5)
    one, other = rng.random(60) < 0.7, rng.random(60) < 0.6
    judged = pd.DataFrame({"one": one, "other": other | one, "sample_id": [f"{place}" for place in range(60)]})
    expected = agreement(judged[["one", "other"]].astype(str)).set_index("measure")
    same, kappa = same_verdicts(judged, "one", "other", seed=1)
    for found, measure in ((same, "percent_agreement"), (kappa, "cohen_kappa")):
        assert found.value == pytest.approx(expected.loc[measure, "estimate"])
        assert found == pytest.approx(expected.loc[measure, ["estimate", "low", "high"]].to_list(), abs=0.06)
    # The same images five times over are no more evidence, as long as they are known to be of one scene.
    again, _ = same_verdicts(pd.concat([judged] * 5), "one", "other", seed=1)
    assert again == pytest.approx(list(same), abs=0.02)


class Linear:
    """Scores that are linear in the mean of each channel, so that every step is known."""

    def scores(self, batch: torch.Tensor) -> torch.Tensor:
        return 40 * batch.mean((2, 3))


def test_a_linear_network_is_led_astray_as_computed_by_hand() -> None:
    pixels = torch.full((1, 3, 4, 4), 0.5)
    truth, target = torch.tensor([0]), torch.tensor([2])
    found = led_astray(pixels, truth, target, load_generator("pixel:"), Linear(), steps=3, step_size=0.01)  # type: ignore[arg-type]
    assert found.shape == (1, 4, 3)
    for step in range(4):
        # Towards the third channel: it rises by a hundredth a step, the others fall by as much.
        scores = 40 * np.array([0.5 - 0.01 * step, 0.5 - 0.01 * step, 0.5 + 0.01 * step])
        shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        assert found[0, step] == pytest.approx([-np.log(shares[2]), shares[0], shares[2]], rel=1e-4)


def walks(right: np.ndarray, validated: np.ndarray, survived: np.ndarray) -> pd.DataFrame:
    names = [f"{place:04d}" for place in range(len(right))]
    return pd.DataFrame(
        {"model": "m", "label": "c", "sample_id": names, "source_id": names, "right_original": right}
        | {
            "validated": validated,
            "right_perturbed": survived,
            "right_reconstruction": right,
            "right_random_walk": None,
        }
    )


@pytest.mark.parametrize("measure", ["validation_rate", "perturbed_accuracy", "fmr"])
def test_a_paired_difference_has_the_interval_of_a_bootstrap(measure: str) -> None:
    rng = np.random.default_rng(3)
    right, validated = rng.random(600) < 0.9, rng.random(600) < 0.8
    survived = rng.random(600) < 0.5
    groups = [
        walks(right, validated, survived),
        walks(right, validated & (rng.random(600) < 0.9), survived & (rng.random(600) < 0.8)),
    ]
    found = walk_measures.difference(*groups, measure)
    _, drawn = walk_measures.resampled(groups, measure, seed=0)
    low, high = np.quantile(drawn[:, 1] - drawn[:, 0], [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.2 * (high - low))
    assert found.high == pytest.approx(high, abs=0.2 * (high - low))


def test_a_difference_of_nothing_is_not_certain() -> None:
    everything = np.ones(20, bool)
    found = walk_measures.difference(*[walks(everything, everything, everything)] * 2, "validation_rate")
    assert found.value == 0
    assert found.low < -0.05
    assert found.high > 0.05


@pytest.mark.parametrize(
    ("name", "said", "answer"),
    [
        ("start", "scenes=3", "12 or more"),
        ("start", "epsilon=2", "epsilon"),
        ("step-size", "step_sizes=0.1", "two or more"),
        ("step-size", "step_sizes=0.1,-1", "above 0"),
        ("transfer", "models=embedded:resnet_rho95", "2 or more"),
        ("transfer", "oracle=clip:embedded?min_score=0.99999999", "accepted no image"),
        ("generator-swap", "generators=pixel:", "two or more"),
        ("oracle-swap", "oracles=clip:embedded", "two or more"),
        ("oracle-swap", "compared=1", "2 or more"),
        ("oracle-attack", "step_size=0", "step_size"),
        ("oracle-attack", "oracle=ensemble:clip:embedded+classifier:embedded:resnet_rho0", "no gradients"),
    ],
)
def test_mistakes(tmp_path: Path, name: str, said: str, answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        run_study(name, tmp_path / "out", assignments=[said], quick=True, device="cpu")
