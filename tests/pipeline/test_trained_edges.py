"""``holdfast train`` where something is wrong: classes, masks, memory, learning rates, checkpoints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import holdfast
from holdfast.core.errors import UserError
from holdfast.models import load_classifier
from holdfast.pipeline.donors import make_pool
from holdfast.pipeline.samples import read
from holdfast.pipeline.specs import training
from holdfast.pipeline.train import architectures
from holdfast.pipeline.train.fitting import Fit, Places, best_epoch
from holdfast.pipeline.train.pictures import InMemory, Renderer, showing, tensors_of
from holdfast.pipeline.train.plan import TrainingJob, TrainSpec
from holdfast.pipeline.train.train import train
from holdfast.scenarios import Condition, parse_conditions
from holdfast.training.checkpoint import write_model
from shapes import CLASSES, make_photos

RESNET, VIT = "timm:test_resnet", "timm:test_vit"
SMALL = {"size": 32, "batch_size": 8, "device": "cpu", "folds": 2, "epochs": 1}


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "photos", 6)


def jobs_of(path: Path) -> pd.DataFrame:
    frame = pq.read_table(path / "jobs.parquet").to_pandas()
    return frame.astype({"trained_on": str, "status": str, "model": str})


def test_a_class_missing_in_a_fold_fails_that_job_only(shapes: Path, tmp_path: Path) -> None:
    for index in range(6):
        (shapes / "masks" / "disc" / f"{index}.png").unlink()
    spec = TrainSpec(str(shapes), architectures=(RESNET,), scenarios="original,grey", **SMALL)
    run, summary = train(spec, tmp_path / "run")
    jobs = jobs_of(run.path).set_index(["trained_on", "fold"])
    assert (jobs.loc["original", "status"] == "ok").all() and (jobs.loc["grey", "status"] == "error").all()
    assert "missing from the training images of grey, fold 0: disc is" in jobs.loc[("grey", 0), "error"]
    rows = run.rows().to_pandas().astype({"trained_on": str, "condition": str, "status": str, "label": str})
    own = rows[rows["trained_on"] == "original"]
    assert set(own[own["condition"] == "original"]["status"]) == {"ok"}
    crossed = own[own["condition"] == "grey"].set_index("label")["status"]
    assert (crossed.loc["disc"] == "skipped").all() and (crossed.drop("disc") == "ok").all()
    failed = rows[rows["trained_on"] == "grey"]
    assert len(failed) == 18 and (failed["status"] == "error").all()
    assert any("disc is" in message for message in summary.trouble)
    assert train(spec, tmp_path / "run")[1].already == 54, "a failed job is not tried again unless asked"


def test_too_few_photos_are_one_sentence(tmp_path: Path) -> None:
    lone = make_photos(tmp_path / "photos", 3)
    for index in (1, 2):
        (lone / "images" / "disc" / f"{index}.png").unlink()
    with pytest.raises(UserError, match=r"2 folds need at least 2 images of each class; too few of disc \(1\)"):
        holdfast.train(lone, architectures=RESNET, out=tmp_path / "run", **SMALL)
    with pytest.raises(UserError, match="disc has a single image"):
        holdfast.train(lone, architectures=RESNET, out=tmp_path / "run", **SMALL | {"folds": 1})
    shutil.rmtree(lone / "images" / "disc")
    shutil.rmtree(lone / "images" / "cross")
    with pytest.raises(UserError, match="images of 1 class"):
        holdfast.train(lone, architectures=RESNET, out=tmp_path / "run", **SMALL)


def test_masks_absent_where_needed(shapes: Path, tmp_path: Path) -> None:
    alone = shutil.copytree(shapes / "images", tmp_path / "alone")
    with pytest.raises(UserError, match=r"grey, blur_object need masks and none of the 18 images has one; masks="):
        holdfast.train(
            alone,
            architectures=RESNET,
            scenarios="original,grey,blur_object",
            out=tmp_path / "run",
            **SMALL,
        )
    assert not (tmp_path / "run" / "models").exists()
    again = holdfast.train(
        alone, masks=shapes / "masks", architectures=RESNET, scenarios="grey", out=tmp_path / "run", **SMALL
    )
    assert set(again.run.rows(["status"])["status"].to_pylist()) == {"ok"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"architectures": ""}, "no architecture was named"),
        ({"architectures": "timm:resnet5000"}, "no timm architecture is called 'resnet5000'"),
        ({"architectures": "onnx:some.onnx"}, "an architecture to train must be named timm:, .* not 'onnx:some.onnx'"),
        ({"architectures": "timm:test_resnet?checkpoint_path=x"}, "takes no checkpoint_path here"),
        ({"architectures": "timm:test_resnet,timm:test_resnet"}, "two of the architectures have one name"),
        ({"architectures": "torch:resnet18@best.pth"}, "names weights; begin with them by pretrained="),
        ({"architectures": "timm:inception_v3"}, "does not take images of 32 pixels"),
        ({"recipe": "slow"}, "no choice of recipe= is called 'slow'"),
        ({"balance": "both"}, "no choice of balance= is called 'both'"),
        ({"folds": 0}, "folds= is 1 or more, not 0"),
        ({"validation": 1.0}, "validation= is a share"),
        ({"validation": 0.0, "early_stopping": 2}, "needs validation images"),
        ({"batch_size": 1}, "at least 2 images"),
        ({"rate": float("nan")}, "rate= is 0 or more, not nan"),
        ({"scenarios": "fgsm"}, "is made against a finished model"),
        ({"scenarios": "generated_background"}, "is painted by another network"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(change, sentence: str, shapes: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        holdfast.train(
            shapes, out=tmp_path / "run", **{"architectures": RESNET, "scenarios": "grey", **SMALL, **change}
        )


def test_a_rate_that_diverges_stops_that_job_and_says_so(shapes: Path, tmp_path: Path) -> None:
    """The ResNet's running statistics overflow, which the transformer does not have."""
    settings = {**SMALL, "folds": 1, "epochs": 3, "rate": 80.0, "recipe": "paper"}
    spec = TrainSpec(str(shapes), architectures=(RESNET, VIT), scenarios="original", **settings)
    with pytest.raises(UserError, match=rf"^{RESNET} gave no answer at all: .* loss became nan in epoch"):
        train(spec, tmp_path / "run")
    run = holdfast.open_run(tmp_path / "run")
    jobs = jobs_of(run.path).set_index("model")
    assert jobs.loc[RESNET, "status"] == "error" and "lower the learning rate" in jobs.loc[RESNET, "error"]
    assert jobs.loc[VIT, "status"] == "ok"
    rows = run.rows().to_pandas().astype({"model": str, "status": str})
    assert set(rows[rows["model"] == RESNET]["status"]) == {"error"}
    assert set(rows[rows["model"] == VIT]["status"]) == {"ok"}
    page = holdfast.report([run.path], tmp_path / "page", resamples=50).read_text()
    assert "Trainings that failed (1)" in page


def test_a_checkpoint_of_another_architecture_is_not_trained_on(shapes: Path, tmp_path: Path) -> None:
    settings = {"scenarios": "original", "out": tmp_path / "run", **SMALL, "folds": 1}
    holdfast.train(shapes, architectures=RESNET, **settings)
    file = tmp_path / "run" / "models" / "timm-test_resnet" / "original" / "fold-0" / "model.safetensors"
    with pytest.raises(UserError, match="is not a checkpoint of timm/test_vit"):
        holdfast.train(shapes, architectures=f"torch:test_vit@{file}", pretrained=True, **settings)
    # What an interrupted job left is not taken over by another network either.
    from holdfast.training import checkpoint

    weights = {"weight": torch.zeros(3)}
    asked = {"epochs": 1, "steps_per_epoch": 1, "seed": 0, "precision": "float32", "average": 0.5, "clip": 1.0}
    progress = {"asked": asked, "epochs_done": 1, "history": [], "seconds": 0.0, "ended_early": False}
    stale = tmp_path / "run" / "jobs" / "timm-test_vit" / "original" / "fold-0" / "checkpoints"
    checkpoint.save(stale, checkpoint.Checkpoint(weights, {}, {}, progress))
    with pytest.raises(UserError, match="the checkpoint is of another training"):
        holdfast.train(shapes, architectures=VIT, **settings)
    error = jobs_of(tmp_path / "run").set_index("model").loc[VIT, "error"]
    assert error.startswith("the checkpoint is of another")
    shutil.rmtree(stale)
    holdfast.train(shapes, architectures=VIT, retry_errors=True, **settings)
    assert (jobs_of(tmp_path / "run")["status"] == "ok").all()


MEMORY_LIMIT = """
import resource, sys, torch
from holdfast.training import TooLargeError, TrainingOptions, fit

def train(images):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 24_000), torch.nn.ReLU(), torch.nn.Linear(24_000, 2))
    batch = torch.randn(images, 4, generator=torch.Generator().manual_seed(1)), torch.arange(images) % 2
    def loss(module, batch):
        return {"loss": torch.nn.functional.cross_entropy(module(batch[0]), batch[1])}
    rate = torch.optim.SGD(net.parameters(), lr=0.1)
    fitted = fit(net, lambda epoch: [batch], loss, rate, TrainingOptions(1, 1, on_cpu=True))
    return net[2].weight.detach().clone(), fitted.history[0]

def limited(megabytes):
    pages = int(open("/proc/self/statm").read().split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + megabytes * 2**20, hard))

free, whole = train(2_000)
assert "pieces" not in whole, whole
limited(300)
halved, row = train(2_000)
assert row["pieces"] >= 2, row
torch.testing.assert_close(halved, free)
assert abs(row["loss"] - whole["loss"]) < 1e-5
limited(1)
try:
    train(2_000)
except TooLargeError as error:
    print(error)
"""


def test_without_memory_batches_are_halved_and_gradients_add_up() -> None:
    """A process that may allocate 300 MB more, where a batch of 2,000 takes 192 MB a layer; then 1 MB."""
    done = subprocess.run([sys.executable, "-c", MEMORY_LIMIT], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("memory runs out on cpu with"), done.stdout + done.stderr


def test_early_stopping_ends_a_training_that_learns_nothing(shapes: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "folds": 1, "epochs": 30, "rate": 1e-30, "early_stopping": 3}
    run = holdfast.train(shapes, architectures=VIT, scenarios="original", out=tmp_path / "run", **settings)
    (job,) = jobs_of(run.path).to_dict("records")
    assert job["best_epoch"] == 1 and job["epochs"] == 4


def test_the_best_epoch() -> None:
    rows = [
        {"validation_accuracy": accuracy, "validation_loss": loss}
        for accuracy, loss in ((0.5, 1.0), (0.75, 0.9), (0.75, 0.8), (0.75, 0.8), (0.5, 0.1))
    ]
    assert best_epoch(rows) == 3 and best_epoch(rows[:2]) == 2
    assert best_epoch([{"loss": 1.0}, {"loss": 2.0}]) == 2 and best_epoch([]) == 0


def fit_of(spec: TrainSpec, labels: torch.Tensor, folder: Path) -> Fit:
    architecture = architectures.resolve(RESNET, size=32)
    job = TrainingJob(architecture, Condition("original"), "original", 0, "identity", ())
    source = InMemory(torch.zeros((len(labels), 3, 32, 32), dtype=torch.uint8), labels)
    return Fit(spec, job, ("common", "rare"), source, Places(list(range(len(labels))), []), folder, "cpu")


def test_balance_of_classes(tmp_path: Path) -> None:
    labels = torch.tensor([0] * 90 + [1] * 10)
    torch.manual_seed(0)
    counts = {}
    for balance in ("none", "sampling"):
        spec = TrainSpec("somewhere", balance=balance, batch_size=10, recipe="paper")
        batches = list(fit_of(spec, labels, tmp_path).batches(0))
        assert len(batches) == 10 and all(len(images) == 10 for images, _ in batches)
        counts[balance] = int(torch.cat([own for _, own in batches]).sum())
    assert counts["none"] == 10 and 30 < counts["sampling"] < 70
    one = fit_of(TrainSpec("somewhere", balance="weights", recipe="paper"), labels, tmp_path)
    logits = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.cross_entropy(logits, labels, weight=torch.tensor([100 / 180, 100 / 20]))
    torch.testing.assert_close(one.loss(lambda images: logits, (None, labels))["loss"], expected)


def test_pictures_as_tensors_with_their_masks(shapes: Path) -> None:
    spec = TrainSpec(str(shapes))
    samples = read(spec).samples
    pool = make_pool(samples, None, max_pixels=10**6)
    (moved,) = parse_conditions("random_background@moved")
    made = tensors_of(Renderer(pool, 32), showing(samples, moved), CLASSES, masks=True)
    assert made.images.shape == (18, 3, 32, 32) and made.images.dtype == torch.uint8
    assert made.masks is not None and made.masks.shape == (18, 32, 32) and made.masks.dtype == torch.bool
    assert [CLASSES[place] for place in made.labels.tolist()] == [sample.label for sample in samples]
    # Where the object moved, its mask did: the shape's strong colour is where the mask is.
    colour = {"cross": 2, "disc": 0, "square": 1}
    for image, mask, sample in zip(made.images, made.masks, made.samples, strict=True):
        strong = image[colour[sample.label]].float()
        assert strong[mask].mean() > strong[~mask].mean() + 40


def test_starting_from_weights() -> None:
    given = load_classifier("embedded:resnet_rho95", device="cpu").module.state_dict()
    found = architectures.resolve("embedded:resnet_rho95?pretrained=true", size=64)
    assert found.name == "embedded:resnet_rho95?pretrained=true" and found.start_sha256
    for classes in (12, 3):
        own = architectures.build(found, classes, 64, seed=0).state_dict()
        same = {name: bool(own[name].shape == given[name].shape and (own[name] == given[name]).all()) for name in own}
        heads = {name for name, equal in same.items() if not equal}
        assert heads == (set() if classes == 12 else {"fc.weight", "fc.bias"})
    scratch = architectures.resolve("embedded:resnet_rho95", size=64)
    assert scratch.fingerprint != found.fingerprint
    first, second = (architectures.build(scratch, 3, 64, seed=seed).state_dict() for seed in (0, 1))
    assert not torch.equal(first["conv1.0.weight"], second["conv1.0.weight"])


def test_networks_of_torchvision_and_transformers_of_another_size_load_again(tmp_path: Path) -> None:
    photo = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    for name in ("torchvision:mobilenet_v3_small", "timm:test_vit", "embedded:vit_rho95"):
        network = architectures.resolve(name, size=48)
        module = architectures.build(network, 3, 48, seed=0).eval()
        folder = tmp_path / name.replace(":", "-")
        config = architectures.config_of(network, module, CLASSES, 48)
        write_model(folder, module.state_dict(), config, {}, "text", classes=CLASSES)
        for shown in (f"{network.loaded_as}@{folder / 'model.safetensors'}", f"local-dir:{folder}"):
            loaded = load_classifier(shown, device="cpu")
            assert loaded.labels.names == CLASSES and loaded.preprocessing.size == (48, 48)  # type: ignore[attr-defined]
            with torch.inference_mode():
                expected = module(loaded.prepare(photo)[None]).softmax(1).numpy()  # type: ignore[attr-defined]
            np.testing.assert_allclose(loaded.predict([photo]), expected, atol=1e-5)


def test_recipes_are_what_they_say() -> None:
    paper = training.RECIPES["paper"]
    assert (paper.optimiser, paper.rate, paper.epochs, paper.batch_size, paper.size) == ("adam", 1e-4, 200, 16, 224)
    assert not (paper.augment or paper.cycle or paper.smoothing or paper.average or paper.clip or paper.decay)
    assert paper.keep(1000) is None and paper.schedule(0.9) == 1
    changed = TrainSpec("d", epochs=3, rate=0.5).settled()
    assert (changed.epochs, changed.rate, changed.rate_pretrained) == (3, 0.5, 0.5) and changed.schedule(1.0) == 0
