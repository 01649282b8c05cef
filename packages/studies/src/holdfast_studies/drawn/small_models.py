"""Small networks that studies train: alike in scenes and steps, and different in one thing each.

A study trains the models that are missing. On a machine with a GPU but without all of Holdfast's dependencies they can
be trained beforehand, by ``recipes/small_models.py``. Complete models are kept, others resume from their last epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.diorama import CLASSES
from holdfast.diorama.vocabulary import KEYS
from holdfast.store import read_json
from holdfast.training import augment, checkpoint, robust
from holdfast.training.loop import Epoch
from holdfast_studies.drawn import classifiers
from holdfast_studies.drawn.classifiers import FAMILIES, DrawnPictures, NetworkFamily, OwnPictures, Size

RHO = 0.8
"""How strongly class and background go together in the training scenes, and in the test scenes of these studies."""
SEEDS = 2
SIZE = Size(train=48_000, test=2_400, epochs=10, batch=512, seconds=None)
HEADS = (1, 2, 4, 8)
WIDTH = 48  # width of a Swin's first stage, twice as much in each later one
DEPTHS = {3: [1, 2, 2], 4: [1, 2, 2, 1]}  # of its stages, by their number
ROBUST = (
    *("plain", "adversarial", "augmix", "deepaugment", "deepaugment+augmix", "ant", "stylised", "ant+stylised", "dat"),
)
STUDIES: Mapping[str, tuple[str, ...]] = {
    "adversarial-training": ("plain", "adversarial"),
    "augmentation": ("plain",),
    "robust-training": ROBUST,
    "greyscale": ("plain", "grey"),
    "heads": tuple(f"heads{count}" for count in HEADS),
}
"""Study → the ways of training that it compares."""
DOSE = "dose"
DOSES = (0.0, 0.5, 0.8, 0.95, 1.0)
DOSE_SEEDS = 3
DOSE_SIZE = Size(train=48_000, test=2_400, epochs=18, batch=512, seconds=None)
_SLOWEST = ("dat", "adversarial", "augmix", "ant")
_LAST_FILE = "README.md"  # the file of a model that is written last
Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class SmallModel:
    """A model to train: a ResNet in a way of ``training.robust``, or a Swin (``heads4`` has four heads)."""

    way: str
    seed: int
    rho: float = RHO

    @property
    def name(self) -> str:
        """Return the name of its folder, which results use too."""
        return f"{self.way}-seed{self.seed}"

    @property
    def heads(self) -> tuple[int, ...]:
        """Return the number of heads in each stage of a Swin; () for a ResNet."""
        return heads_of(self.way.removeprefix("heads").replace("-", "/")) if self.way.startswith("heads") else ()

    @property
    def method(self) -> str:
        """Return the name in ``robust.METHODS``, or several joined by ``+``."""
        return self.way if set(self.way.split("+")) <= set(robust.METHODS) else "plain"

    @property
    def family(self) -> NetworkFamily:
        """Return the network."""
        return swin(self.heads) if self.heads else FAMILIES["resnet"]


def heads_of(text: str) -> tuple[int, ...]:
    """Return the heads in each stage: ``4`` for all three stages, or ``1/2/4`` and ``1/2/4/8`` stage by stage."""
    parts = text.split("/")
    if not all(part.isdecimal() for part in parts) or len(parts) not in (1, *DEPTHS):
        raise UserError(f"heads={text}: expected a number for all stages, or three or four numbers such as 1/2/4/8")
    heads = tuple(map(int, parts))
    return heads * 3 if len(heads) == 1 else heads


def swin(heads: Sequence[int]) -> NetworkFamily:
    """Return a small Swin with so many heads in each stage; width and size do not depend on them."""
    for stage, count in enumerate(heads):
        if count < 1 or (WIDTH << stage) % count:
            raise UserError(
                f"heads must divide the width of their stage of the Swin: {count} does not divide {WIDTH << stage}"
            )
    arguments = {
        "img_size": classifiers.SIDE, "patch_size": 4, "window_size": 4, "embed_dim": WIDTH,
        "depths": DEPTHS[len(heads)], "num_heads": list(heads), "drop_path_rate": 0.05,
    }  # fmt: skip
    return NetworkFamily("swin_tiny_patch4_window7_224", arguments, rate=1.5e-3)


def small_models(ways: Sequence[str], seeds: int, *, first: int = 0) -> list[SmallModel]:
    """Return a model for every way of training and every seed."""
    return [SmallModel(way, seed) for way in ways for seed in range(first, first + seeds)]


def dose_models(rhos: Sequence[float], seeds: int, *, first: int = 0) -> list[SmallModel]:
    """Return a plainly trained model for every ρ and every seed."""
    return [SmallModel(f"rho{round(100 * rho):03d}", seed, rho) for rho in rhos for seed in range(first, first + seeds)]


def train_all(
    models: Sequence[SmallModel],  # the wanted ones
    size: Size,  # number of scenes and epochs
    *,
    out: Path,
    work: Path,  # folder of scenes and checkpoints
    device: str,  # ``cpu`` or ``cuda``
    pictures: OwnPictures | None = None,  # what is trained on; None: drawn scenes
    generator: str = robust.GENERATOR,  # whose latent ``dat`` moves in
    jobs: int = 1,  # models trained at the same time, since small networks leave most of a GPU idle
    say: Say | None = None,  # is called with a line per epoch and model, in other processes too
    progress: Progress | None = None,
) -> None:
    """Train the models that are missing."""
    source = pictures or DrawnPictures(work / "scenes")
    missing = [model for model in models if not is_complete(out / model.name, _facts(model, size, generator, source))]
    done = len(models) - len(missing)
    if progress:
        progress("train", done, len(models))
    if not missing:
        return
    for rho in sorted({model.rho for model in missing}):
        source.scenes("train", rho, size.train)
    for rho in sorted({rho for model in missing for rho in _tested(model)}):
        source.scenes("test", rho, size.test)
    if say:
        say("scenes are drawn")
    train = functools.partial(
        train_one, size=size, out=out, work=work, device=device, pictures=pictures, generator=generator, say=say
    )  # fmt: skip
    # The slowest trainings come first, so that none is left over at the end.
    missing.sort(key=lambda model: _SLOWEST.index(model.way) if model.way in _SLOWEST else len(_SLOWEST))
    lines = map(train, missing) if jobs == 1 else _in_processes(train, missing, jobs)
    for count, line in enumerate(lines, start=done + 1):
        if progress:
            progress("train", count, len(models))
        if say:
            say(line)


def _in_processes(train: Callable[[SmallModel], str], models: Sequence[SmallModel], jobs: int) -> Iterator[str]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(train, model) for model in models]):
            yield future.result()


def is_complete(folder: Path, facts: Mapping[str, Any]) -> bool:
    """Return whether a folder holds a complete model; raise UserError if it was trained in another way."""
    if not (folder / _LAST_FILE).is_file():
        return False
    stored = facts_of(folder)
    differing = {key: stored[key] for key in facts if stored.get(key, facts[key]) != facts[key]}
    if differing:
        was = ", ".join(f"{key}: {value}" for key, value in differing.items())
        raise UserError(f"{folder} was trained otherwise ({was}); choose another folder or delete it")
    return True


def facts_of(folder: Path) -> dict[str, Any]:
    """Read what a model's configuration says about its training."""
    return dict(read_json(folder / "config.json").get("holdfast", {}))


def _facts(model: SmallModel, size: Size, generator: str, pictures: DrawnPictures | OwnPictures) -> dict[str, Any]:
    return {
        "method": robust.described(model.method),
        "seed": model.seed,
        **pictures.about(size.train, classifiers.SIDE, model.rho),
        "epochs": size.epochs,
        "batch": size.batch,
        **({"heads": model.heads[0] if len(set(model.heads)) == 1 else list(model.heads)} if model.heads else {}),
        **({"trained_with": generator} if "dat" in model.way.split("+") else {}),
    }


def _tested(model: SmallModel) -> list[float]:
    """Return the ρ of the scenes on which the model's card gives an accuracy."""
    return list(dict.fromkeys([model.rho, 0.0] if model.way.startswith("rho") else [model.rho]))


def train_one(
    wanted: SmallModel,
    size: Size,
    *,
    out: Path,
    work: Path,
    device: str,
    pictures: OwnPictures | None = None,
    generator: str = robust.GENERATOR,
    say: Say | None = None,
) -> str:
    """Train and write one model, and return a line about its accuracy."""
    torch.backends.cudnn.benchmark = device == "cuda"
    source = pictures or DrawnPictures(work / "scenes")
    images, labels = classifiers.on_device(source.scenes("train", wanted.rho, size.train), device)
    method = robust.method(wanted.method, device=device, generator=generator, classes=len(source.classes))
    module = classifiers.seeded(wanted.family, wanted.seed, len(source.classes))
    if method.companion is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(wanted.seed)
            module = robust.with_companion(module, method.companion())
    fitted = classifiers.fit_scenes(
        module, images, labels, size, method.prepared, method.loss, rate=wanted.family.rate, seed=wanted.seed,
        device=device, checkpoints=work / "checkpoints" / wanted.name,
        on_epoch=functools.partial(_say_epoch, wanted.name, say) if say else None,
    )  # fmt: skip
    model: Any = robust.without_companion(fitted.model)
    if "grey" in wanted.way.split("+"):
        remove_colour(model)
    facts = _facts(wanted, size, generator, source)
    return write_model(wanted, model, facts, size.test, fitted.seconds, out=out, pictures=source)


def _say_epoch(name: str, say: Say, epoch: Epoch) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    say(f"{name} epoch {epoch.number}: {numbers}")


def write_model(
    wanted: SmallModel,
    model: Any,
    facts: Mapping[str, Any],
    count: int,
    seconds: float,
    *,
    out: Path,
    pictures: DrawnPictures | OwnPictures,
) -> str:
    """Save a trained model with its card and its accuracy on ``count`` test images; return a line about it."""
    device = next(model.parameters()).device.type
    weights = checkpoint.halve(model)
    drawn = isinstance(pictures, DrawnPictures)
    accuracies = {
        f"accuracy_test_rho{round(100 * rho)}" if drawn else "accuracy_test": round(
            classifiers.accuracy(model, pictures.scenes("test", rho, count)), 4
        )
        for rho in _tested(wanted)
    }
    facts = {
        **({"wnids": [KEYS[label].wnids[0] for label in CLASSES]} if drawn else {}),
        **facts,
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else device.upper(),
        "metrics": accuracies,
    }
    text = f"# {wanted.name}\n\nA model of the studies that train ({', '.join((DOSE, *STUDIES))})."
    config = classifiers.family_config(wanted.family, model, rho=wanted.rho, classes=pictures.classes)
    note = checkpoint.DRAWN_WORLD if drawn else ""
    checkpoint.write_model(out / wanted.name, weights, config, facts, text, note=note)
    return f"{wanted.name}: {accuracies}, {seconds:.0f} s"


def remove_colour(model: Any) -> None:
    """Fold the step to grey into the first layer, which is exact because all channels are normalised alike."""
    first = next(layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d))
    with torch.no_grad():
        luma = torch.tensor(augment.LUMA, device=first.weight.device).view(1, 3, 1, 1)
        first.weight.copy_(first.weight.sum(1, keepdim=True) * luma)
