"""The studies that train: the ways of training one by one, then every study rehearsed from end to end."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.files import hearing
from holdfast.generators import load_generator
from holdfast.generators.embedded import ASSETS
from holdfast.models import load_classifier
from holdfast.training import augment, robust
from holdfast_studies.drawn import classifiers, small_models
from holdfast_studies.drawn.classifiers import drawn_once, rendered
from holdfast_studies.drawn.small_models import SmallModel
from holdfast_studies.study import run_study
from holdfast_studies.trained import augmentation, trainings

UNIONS = ("deepaugment+augmix", "ant+stylised")
TINY = classifiers.Size(train=24, test=12, epochs=1, batch=12, seconds=None)
FACTS = {"metrics": {"accuracy_test_rho80": 0.9}, "sha256": "0" * 64}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture
def batch(cache: Path) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    scenes = rendered("train", 0.8, 24, cache=cache / "scenes")
    images, labels = classifiers.on_device(scenes, "cpu")
    return robust.moved(images[:12], labels[:12])


@pytest.fixture(scope="module")
def network() -> Any:
    from safetensors.torch import load_file

    model = classifiers.untrained(classifiers.FAMILIES["resnet"])
    model.load_state_dict(load_file(ASSETS / "classifiers" / "resnet_rho80" / "model.safetensors"))
    return model.eval()


def test_drawn_arrays_are_never_seen_half_written(tmp_path: Path) -> None:
    heard: list[str] = []
    with hearing(heard.append):
        first, second = drawn_once(tmp_path, ("a", "b"), lambda count: (np.arange(count), np.zeros(count)), [3])
    assert first.tolist() == [0, 1, 2] and len(second) == 3
    assert heard == [str(path) for path in sorted(tmp_path.iterdir())] and len(heard) == 2


def loss_of(network: Any, images: torch.Tensor, targets: torch.Tensor) -> float:
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(network(robust.normalised(images)), targets))


# The ways of training


@pytest.fixture(scope="module")
def made(cache: Path) -> Path:
    """One model of every way."""
    out = cache / "models"
    wanted = small_models.small_models([*robust.METHODS, *UNIONS, "heads1", "heads4"], 1)
    small_models.train_all(wanted, TINY, out=out, work=cache, device="cpu", generator="pixel:")
    return out


def weights_of(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["holdfast"]["sha256"])


def test_every_way_makes_another_model_that_loads(made: Path) -> None:
    names = [f"{way}-seed0" for way in [*robust.METHODS, *UNIONS, "heads1", "heads4"]]
    assert len({weights_of(made / name) for name in names}) == len(names)
    image = np.zeros((64, 64, 3), np.uint8)
    for name in names:
        answer = load_classifier(f"local-dir:{made / name}", device="cpu").predict([image])
        assert answer.shape == (1, 12)
    assert small_models.facts_of(made / "dat-seed0")["trained_with"] == "pixel:"


def test_a_training_follows_from_its_seed_and_is_not_repeated(made: Path, cache: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        small_models.train_one(SmallModel("ant", seed), TINY, out=tmp_path, work=tmp_path / "w", device="cpu")
    assert weights_of(tmp_path / "ant-seed0") == weights_of(made / "ant-seed0")
    assert weights_of(tmp_path / "ant-seed1") != weights_of(made / "ant-seed0")
    nowhere = tmp_path / "nowhere"
    small_models.train_all([SmallModel("ant", 0)], TINY, out=made, work=nowhere, device="cpu")
    assert not nowhere.exists()
    longer = classifiers.Size(train=24, test=12, epochs=2, batch=12, seconds=None)
    with pytest.raises(UserError, match="trained otherwise"):
        small_models.train_all([SmallModel("ant", 0)], longer, out=made, work=nowhere, device="cpu")


def test_the_grey_model_sees_no_colour(made: Path, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    images = batch[0] * 0.5 + 0.25
    # A change of hue that keeps the brightness: 0.299 × 0.1 = 0.114 × 0.262.
    changed = images + torch.tensor([0.1, 0.0, -0.1 * 0.299 / 0.114]).view(1, 3, 1, 1)
    apart = {}
    for way in ("grey", "plain"):
        model = load_classifier(f"local-dir:{made / way}-seed0", device="cpu")
        with torch.no_grad():
            apart[way] = float((model.logits(images) - model.logits(changed)).abs().max())  # type: ignore[attr-defined]
    assert apart["grey"] < 2e-3
    assert apart["plain"] > 10 * apart["grey"]


def test_the_grey_model_answers_as_it_did_in_training(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = classifiers.seeded(classifiers.FAMILIES["resnet"], 0).eval()
    with torch.no_grad():
        before = model(robust.normalised(augment.grey(batch[0])))
        small_models.remove_colour(model)
        after = model(robust.normalised(batch[0]))
    torch.testing.assert_close(before, after, atol=1e-4, rtol=1e-4)


def test_adversarial_examples_raise_the_loss_and_leave_the_network_alone(
    network: Any, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    state = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(0)
    found = robust.adversarial_examples(network.train(), *batch)
    assert network.training
    network.eval()
    assert float((found - batch[0]).abs().max()) <= robust.RADIUS + 1e-6
    assert 0 <= float(found.min()) <= float(found.max()) <= 1
    noise = (batch[0] + robust.RADIUS * torch.randn_like(batch[0]).sign()).clamp(0, 1)
    assert loss_of(network, found, batch[1]) > loss_of(network, noise, batch[1]) + 0.5
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_latent_examples_are_decoded_and_raise_the_loss(network: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    generator = load_generator("embedded:vqgan", device="cpu")
    images, targets = batch[0][:8], batch[1][:8]
    found = robust._latent_examples(network, (images, targets), generator)
    torch.testing.assert_close(found[4:], images[4:])
    with torch.no_grad():
        plain = generator.decode(generator.encode(images[:4]))
    assert loss_of(network, found[:4], targets[:4]) > loss_of(network, plain, targets[:4])


def test_noise_learns_against_the_classifier(network: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.manual_seed(0)
    together = torch.nn.ModuleDict({"classifier": network, "companion": robust.noise_maker()})
    optimiser = torch.optim.SGD(together["companion"].parameters(), lr=0.1)

    def noisy_loss() -> torch.Tensor:
        torch.manual_seed(1)
        return robust._against_noise(together, batch)["loss"]

    before = float(noisy_loss().detach())
    for _ in range(6):
        optimiser.zero_grad()
        noisy_loss().backward()
        optimiser.step()  # the optimiser goes down; the noise must have gone up
    for parameter in network.parameters():
        parameter.grad = None
    assert float(noisy_loss().detach()) > before


def test_the_consistency_of_augmix_is_jensen_and_shannons() -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(12, 5), torch.nn.functional.one_hot(torch.arange(4), 5).float()
    found = robust._same_answers(lambda batch: batch, (logits, targets))["apart"]
    answers = logits.softmax(1).view(3, 4, 5).numpy().astype(np.float64)
    apart = scipy.stats.entropy(answers.mean(0), axis=1) - scipy.stats.entropy(answers, axis=2).mean(0)
    assert float(found) == pytest.approx(apart.mean(), rel=1e-4)


@pytest.mark.parametrize("change", [augment.mixed_chains, augment.through_perturbed_network, augment.stylised])
def test_changed_images_stay_images(
    change: Callable[[torch.Tensor], torch.Tensor], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    found = change(batch[0])
    assert found.shape == batch[0].shape
    assert 0 <= float(found.min()) <= float(found.max()) <= 1
    assert float((found - batch[0]).abs().mean()) > 0.01


def test_an_undisturbed_network_copies_and_a_style_of_ones_own_changes_nothing(
    batch: tuple[torch.Tensor, torch.Tensor],
) -> None:
    images = batch[0]
    torch.testing.assert_close(augment.through_perturbed_network(images, strongest=0), images, atol=1e-5, rtol=0)
    torch.testing.assert_close(augment.stylised(images[:1]), images[:1], atol=1e-4, rtol=0)


def test_a_style_moves_the_spectrum_to_the_others(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    images = batch[0]
    found, partner = augment.stylised(images), torch.roll(images, 1, 0)
    sizes = [torch.fft.rfft2(one)[..., 1:, 1:].abs().add(1e-3).log().flatten(1) for one in (found, partner, images)]
    to_partner, to_own = ((sizes[0] - one).square().mean(1) for one in sizes[1:])
    assert float(to_partner.mean()) < float(to_own.mean())


def test_heads_change_nothing_but_the_tables_of_positions() -> None:
    sizes = {}
    for text in ("1", "4", "1/2/4", "1/2/4/8", "2/4/8/16"):
        heads = small_models.heads_of(text)
        model = classifiers.untrained(small_models.swin(heads))
        assert [stage.blocks[0].attn.num_heads for stage in model.layers] == list(heads)
        sizes[text] = sum(p.numel() for name, p in model.named_parameters() if "position_bias" not in name)
        assert small_models.SmallModel(f"heads{text.replace('/', '-')}", 0).heads == heads
    assert sizes["1"] == sizes["4"] == sizes["1/2/4"] and sizes["1/2/4/8"] == sizes["2/4/8/16"]
    with pytest.raises(UserError, match="5 does not divide 48"):
        small_models.swin((5, 5, 5))
    for wrong in ("1/2", "1/x/4", "", "1/2/4/8/16"):
        with pytest.raises(UserError, match="expected a number for all stages, or three or four"):
            small_models.heads_of(wrong)


def test_the_consistency_of_copies_is_the_squared_distance() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 12), torch.tensor([0, 1, 2])
    found = augmentation.consistency_loss(lambda batch: batch, (logits, labels), 0.5)
    apart = float(((logits[:3] - logits[3:]) ** 2).sum() / 3)
    assert float(found["apart"]) == pytest.approx(apart, rel=1e-5)
    alone = augmentation.consistency_loss(lambda batch: batch, (logits, labels), 0.0)["loss"]
    assert float(found["loss"] - alone) == pytest.approx(apart / 2, rel=1e-4)


# Several trainings at once


def walks_of(right: list[int], validated: list[int], survived: list[int]) -> pd.DataFrame:
    scenes = [f"scene{place:02d}" for place in range(len(right))]
    return pd.DataFrame(
        {
            "model": "one", "label": "dog", "sample_id": scenes, "source_id": scenes,
            "right_original": np.array(right, bool), "validated": np.array(validated, bool),
            "right_perturbed": pd.array(np.array(survived, bool), dtype="boolean"),
            "right_reconstruction": pd.array(np.array(right, bool), dtype="boolean"),
            "right_random_walk": pd.array([None] * len(right), dtype="boolean"),
        }
    )  # fmt: skip


def test_pseudo_values_are_the_jackknifes() -> None:
    rng = np.random.default_rng(0)
    right, validated, survived = (rng.random((3, 20)) < np.array([[0.9], [0.8], [0.5]])).astype(int).tolist()
    walks = walks_of(right, validated, survived)

    def plain(rows: pd.DataFrame) -> float:
        kept = rows[rows["validated"]]
        return float(kept["right_perturbed"].astype(float).mean() / rows["right_original"].mean())

    expected = [20 * plain(walks) - 19 * plain(walks.drop(index=place)) for place in range(20)]
    np.testing.assert_allclose(trainings.pseudo_values([walks], "fmr")[0], expected)
    found = trainings.training_estimate([walks], "fmr")
    assert found.value == pytest.approx(plain(walks))
    assert found.low < found.value < found.high
    assert trainings.training_difference([walks], [walks], "fmr") == (0, 0, 0)


def test_where_all_agree_few_images_still_leave_doubt() -> None:
    walks = walks_of([1] * 12, [1] * 12, [0] * 12)
    found = trainings.training_estimate([walks, walks], "perturbed_accuracy")
    assert found.value == 0
    assert found.high > 0.1
    assert np.isnan(trainings.training_estimate([walks_of([0] * 12, [1] * 12, [0] * 12)], "fmr").value)


# The studies


def lend(folder: Path, **names: str) -> str:
    """A folder of embedded classifiers under the names of trainings, so that a rehearsal has models that see."""
    for way, asset in names.items():
        copy = folder / f"{way}-seed0"
        shutil.copytree(ASSETS / "classifiers" / asset, copy)
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, "holdfast": FACTS}))
    return f"trained={folder}"


def result(out: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(out / "results" / f"{name}.parquet")


def right_by_hand(model: str, files: list[Path], labels: list[str]) -> float:
    classifier = load_classifier(model, device="cpu")
    images = [cv2.cvtColor(np.asarray(cv2.imread(str(file))), cv2.COLOR_BGR2RGB) for file in files]
    answers = [classifier.labels.names[answer] for answer in classifier.predict(images).argmax(1)]
    return float(np.mean([answer == label for answer, label in zip(answers, labels, strict=True)]))


@pytest.mark.slow
def test_adversarial_training_swaps_the_images_both_ways(tmp_path: Path) -> None:
    said = lend(tmp_path / "lent", plain="resnet_rho80", adversarial="resnet_rho95_strong")
    out = tmp_path / "study"
    page = run_study("adversarial-training", out, assignments=[said], quick=True, device="cpu")
    swapped = result(out, "images-swapped").set_index(["made_against", "tested_on"])
    assert set(swapped.index) == {
        ("plain", "itself"), ("plain", "PGD-trained"), ("PGD-trained", "itself"), ("PGD-trained", "plain"),
    }  # fmt: skip
    own = result(out, "walked-against-themselves").set_index("training")
    for way in ("plain", "PGD-trained"):
        for measure in ("standard_accuracy", "validation_rate", "perturbed_accuracy", "fmr"):
            assert swapped.loc[(way, "itself"), measure] == pytest.approx(own.loc[way, measure])
    made = pd.read_parquet(out / "runs" / "walks" / "images" / "manifest.parquet")
    for maker, tester, key in (
        ("plain", "adversarial", ("plain", "PGD-trained")),
        ("adversarial", "plain", ("PGD-trained", "plain")),
    ):
        mine = made[made["made_against"] == f"{maker}-seed0"]
        files = [out / "runs" / "walks" / "images" / path for path in mine["path"]]
        expected = right_by_hand(f"local-dir:{tmp_path / 'lent' / tester}-seed0", files, list(mine["label"]))
        assert swapped.loc[key, "perturbed_accuracy"] == pytest.approx(expected)
        assert swapped.loc[key, "validated"] == len(mine)
    assert "Drawn scenes: the truth is known there, and photographs may differ." in page.read_text(encoding="utf8")


@pytest.mark.slow
def test_augmentation_trains_on_and_tests_again(tmp_path: Path) -> None:
    said = [lend(tmp_path / "lent", plain="resnet_rho80"), "step_size=0.02"]
    out = tmp_path / "study"
    run_study("augmentation", out, assignments=said, quick=True, device="cpu")
    again = result(out, "walked-again")
    assert list(again["training"]) == ["before", "after, images alone", "after, with perturbed copies"]
    assert list(again["n"]) == [12, 12, 12]
    static = result(out, "under-static-conditions").set_index("condition")
    assert static.loc["original", "plain"] == pytest.approx(again["standard_accuracy"][0])
    every = static.drop(index="all conditions")["augmented"]
    assert static.loc["all conditions", "augmented"] == pytest.approx(every.mean())
    ways = ("continued", "augmented", "scratch", "scratch_copies")
    assert len({weights_of(out / "models" / f"{name}-seed0") for name in ways}) == 4
    scratch = result(out, "trained-from-scratch").set_index("training")
    exchanged = result(out, "images-swapped").set_index(["made_against", "tested_on"])
    for way, other in itertools.permutations(scratch.index, 2):
        own = exchanged.loc[(way, "itself")]
        assert own["perturbed_accuracy"] == pytest.approx(scratch.loc[way, "perturbed_accuracy"], nan_ok=True)
        assert exchanged.loc[(way, other), "validated"] == own["validated"]
    files = {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.suffix in (".safetensors", ".parquet")}
    run_study("augmentation", out, assignments=said, quick=True, device="cpu")
    kept = [file for file in files if "models" in file.parts or file.name.startswith("part-")]
    assert kept
    assert all(file.stat().st_mtime_ns == files[file] for file in kept)


@pytest.mark.slow
def test_robust_training_compares_the_orders(tmp_path: Path) -> None:
    said = [
        lend(tmp_path / "lent", plain="resnet_rho0", augmix="resnet_rho80", dat="resnet_rho95"),
        "ways=plain,augmix,dat",
        "models=trained,embedded:mobilenet_rho95",
        "context=0",
        "step_size=0.02",
    ]  # fmt: skip
    out = tmp_path / "study"
    page = run_study("robust-training", out, assignments=said, quick=True, device="cpu")
    assert "trained with images of pixel:, the generator" in page.read_text(encoding="utf8")
    frame = result(out, "static-and-dynamic").set_index("training")
    assert list(frame.index) == ["plain", "AugMix-like", "DAT-like", "embedded:mobilenet_rho95"]
    orders = result(out, "do-the-orders-agree").set_index(["first", "second"])
    found = orders.loc[("SA*, static accuracy", "FMR")]
    expected = scipy.stats.kendalltau(frame["static"], frame["fmr"]).statistic
    assert found["tau"] == pytest.approx(expected)
    assert found["low"] <= found["high"]
    # The score of the report, from the same rows, by another road: less its debiasing they are one number.
    accuracy = api.open_run(out / "runs" / "static").accuracy(average="micro")
    by_hand = accuracy[accuracy["condition"] != "original"].groupby("model", observed=True)["accuracy"].mean()
    assert frame.loc["plain", "static"] == pytest.approx(by_hand["plain-seed0"], abs=1e-6)


def test_greyscale_compares_colour_and_grey(tmp_path: Path) -> None:
    said = lend(tmp_path / "lent", plain="resnet_rho80", grey="resnet_rho0")
    out = tmp_path / "study"
    page = run_study("greyscale", out, assignments=[said], quick=True, device="cpu")
    frame = result(out, "with-and-without-colour").set_index("training")
    assert list(frame.index) == ["in colour", "in grey"]
    rows = api.open_run(out / "runs" / "walks").fmr(measures=True)
    for way, name in (("in colour", "plain-seed0"), ("in grey", "grey-seed0")):
        own = rows[(rows["model"] == name) & (rows["label"] == "")].set_index("measure")["estimate"]
        for measure in ("standard_accuracy", "perturbed_accuracy", "validation_rate", "fmr"):
            assert frame.loc[way, measure] == pytest.approx(own[measure])
    assert (frame["colour_shift"] > 0).all()
    exchanged = result(out, "images-swapped").set_index(["made_against", "tested_on"])
    made = pd.read_parquet(out / "runs" / "walks" / "images" / "manifest.parquet")
    mine = made[made["made_against"] == "plain-seed0"]
    files = [out / "runs" / "walks" / "images" / path for path in mine["path"]]
    expected = right_by_hand(f"local-dir:{tmp_path / 'lent' / 'grey'}-seed0", files, list(mine["label"]))
    assert exchanged.loc[("in colour", "in grey"), "perturbed_accuracy"] == pytest.approx(expected)
    text = page.read_text(encoding="utf8")
    assert "Side by side" in text and "made against: in grey, predicted " in text


@pytest.mark.slow
def test_heads_are_trained_and_swept(tmp_path: Path) -> None:
    out = tmp_path / "study"
    run_study("heads", out, quick=True, device="cpu")
    frame = result(out, "fmr-against-heads")
    assert list(frame["heads"]) == [1, 4]
    assert list(frame["n"]) == [12, 12]
    assert {folder.name for folder in (out / "models").iterdir()} == {"heads1-seed0", "heads4-seed0"}


@pytest.mark.parametrize(
    ("study", "said", "answer"),
    [
        ("heads", "heads=4", "two or more"),
        ("heads", "heads=1,5", "must divide"),
        ("robust-training", "ways=plain", "two ways"),
        ("robust-training", "ways=plain,augmx", "augmix"),
        ("robust-training", "ways=plain,augmix+ant", "one of"),
        ("greyscale", "train=2", "at least one batch"),
        ("greyscale", "scenes=3", "scenes must be"),
        ("augmentation", "pairs=1", "pairs must be"),
    ],
)
def test_settings_that_make_no_study(study: str, said: str, answer: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=answer):
        run_study(study, tmp_path, assignments=[said], quick=True, device="cpu")
