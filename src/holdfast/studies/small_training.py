"""The models of the studies that train: small networks, alike in scenes and steps, unlike in one thing each.

A study trains those that are missing. On a machine that has a GPU but not all of Holdfast's dependencies (torch, timm,
accelerate, NumPy and OpenCV do; ``dat`` needs diffusers as well) the models can be made beforehand, from the sources:

    PYTHONPATH=src python -m holdfast.studies.small_training --out DIR --jobs 8 --only robust-training heads

and the studies find them with ``--set trained=DIR``. Run again after an interruption it goes on: finished models are
left alone, the others resume from their last epoch.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.diorama import CLASSES
from holdfast.diorama.vocabulary import KEYS
from holdfast.pipeline.progress import Progress, silent
from holdfast.training import augment, classifiers, robust, saving
from holdfast.training.classifiers import FAMILIES, Family, Size
from holdfast.training.loop import Epoch
from holdfast.training.scenes import rendered

RHO = 0.8
"""How strongly class and background go together in the training scenes, and in the test scenes of these studies."""
SEEDS = 2
SIZE = Size(train=48_000, test=2_400, epochs=10, batch=512, seconds=None)
HEADS = (1, 2, 4, 8)
WIDTH = 48
"""Of a Swin's first stage; heads must divide it."""
COMPLETE = "README.md"
"""The file of a model that is written last."""

ROBUST = ("plain", "adversarial", "augmix", "deepaugment", "ant", "stylised", "dat")
STUDIES: Mapping[str, tuple[str, ...]] = {
    "adversarial-training": ("plain", "adversarial"),
    "augmentation": ("plain",),
    "robust-training": ROBUST,
    "greyscale": ("plain", "grey"),
    "heads": tuple(f"heads{count}" for count in HEADS),
}
"""Which ways of training each study compares."""
_COSTLY = ("dat", "adversarial", "augmix", "ant")


@dataclass(frozen=True)
class Training:
    """One model: a way of ``training.robust`` for a small ResNet, or ``heads4`` for a Swin with four heads."""

    way: str
    seed: int

    @property
    def name(self) -> str:
        """Its folder, and what results call it."""
        return f"{self.way}-seed{self.seed}"

    @property
    def heads(self) -> int:
        """Of a Swin; 0 for a ResNet."""
        count = self.way.removeprefix("heads")
        return int(count) if self.way != count and count.isdecimal() else 0

    @property
    def method(self) -> str:
        """A name of ``robust.METHODS``."""
        return "plain" if self.heads else self.way

    @property
    def family(self) -> Family:
        """The network."""
        return swin(self.heads) if self.heads else FAMILIES["resnet"]


def swin(heads: int) -> Family:
    """A small Swin with so many heads in every stage; its width, and so its size, stay what they are."""
    if heads < 1 or WIDTH % heads:
        raise UserError(f"a Swin of width {WIDTH} has a number of heads that divides it, not {heads}")
    arguments = {
        "img_size": classifiers.SIDE, "patch_size": 4, "window_size": 4, "embed_dim": WIDTH, "depths": [1, 2, 2],
        "num_heads": [heads] * 3, "drop_path_rate": 0.05,
    }  # fmt: skip
    return Family("swin_tiny_patch4_window7_224", arguments, rate=1.5e-3)


def trainings(ways: Sequence[str], seeds: int, *, first: int = 0) -> list[Training]:
    """Every way with every seed."""
    return [Training(way, seed) for way in ways for seed in range(first, first + seeds)]


def train_all(
    wanted: Sequence[Training],
    size: Size,
    *,
    out: Path,
    work: Path,
    device: str,
    generator: str = robust.GENERATOR,
    jobs: int = 1,
    say: Callable[[str], None] | None = None,
    progress: Progress = silent,
) -> None:
    """Train what is not there yet.

    Args:
        wanted: which models.
        size: how much of everything.
        out: folder of the models; one that was trained otherwise is a UserError.
        work: folder of scenes and checkpoints.
        device: ``cpu`` or ``cuda``.
        generator: whose latent ``dat`` moves in.
        jobs: models trained at a time: small networks leave most of a GPU idle.
        say: told in words how far it is, here and in other processes.
        progress: told how many models are done.
    """
    missing = [one for one in wanted if not is_there(out / one.name, _asked(one, size, generator))]
    done = len(wanted) - len(missing)
    progress("train", done, len(wanted))
    if not missing:
        return
    rendered("train", RHO, size.train, cache=work / "scenes")
    rendered("test", RHO, size.test, cache=work / "scenes")
    if say:
        say("scenes are drawn")
    task = functools.partial(
        train_one, size=size, out=out, work=work, device=device, generator=generator, say=say
    )  # fmt: skip
    # The longest first, so that none is left over at the end.
    missing.sort(key=lambda one: _COSTLY.index(one.way) if one.way in _COSTLY else len(_COSTLY))

    def told(line: str) -> None:
        nonlocal done
        done += 1
        progress("train", done, len(wanted))
        if say:
            say(line)

    if jobs == 1:
        for one in missing:
            told(task(one))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(task, one) for one in missing]):
            told(future.result())


def is_there(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Whether a model is complete. Raises UserError where it is one of another training."""
    if not (folder / COMPLETE).is_file():
        return False
    facts = facts_of(folder)
    other = {key: facts[key] for key in asked if facts.get(key, asked[key]) != asked[key]}
    if other:
        was = ", ".join(f"{key}: {value}" for key, value in other.items())
        raise UserError(f"{folder} was trained otherwise ({was}); choose another folder or delete it")
    return True


def facts_of(folder: Path) -> dict[str, Any]:
    """What a model's configuration says of its training."""
    facts: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("holdfast", {})
    return facts


def _asked(one: Training, size: Size, generator: str) -> dict[str, Any]:
    return {
        "method": robust.METHODS[one.method],
        "seed": one.seed,
        "data": f"{size.train} training scenes of diorama at {classifiers.SIDE} px, context {RHO}",
        "epochs": size.epochs,
        "batch": size.batch,
        **({"heads": one.heads} if one.heads else {}),
        **({"trained_with": generator} if one.way == "dat" else {}),
    }


def train_one(
    one: Training,
    size: Size,
    *,
    out: Path,
    work: Path,
    device: str,
    generator: str = robust.GENERATOR,
    say: Callable[[str], None] | None = None,
) -> str:
    """Train and write one model; says how good it is."""
    import torch

    torch.backends.cudnn.benchmark = device == "cuda"
    images, labels = classifiers.on_device(rendered("train", RHO, size.train, cache=work / "scenes"), device)
    method = robust.method(one.method, device=device, generator=generator)
    module = classifiers.seeded(one.family, one.seed)
    if method.companion is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(one.seed)
            module = torch.nn.ModuleDict({"classifier": module, "companion": method.companion()})
    fitted = classifiers.fit_scenes(
        module, images, labels, size, method.prepared, method.loss, rate=one.family.rate, seed=one.seed,
        device=device, checkpoints=work / "checkpoints" / one.name,
        on_epoch=functools.partial(_say_epoch, one, say) if say else None,
    )  # fmt: skip
    model: Any = fitted.model
    if method.companion is not None:
        model = model["classifier"]
    if one.way == "grey":
        without_colour(model)
    return write(one.name, model, one.family, _asked(one, size, generator), size, fitted.seconds, out=out, work=work)


def write(
    name: str,
    model: Any,
    family: Family,
    facts: Mapping[str, Any],
    size: Size,
    seconds: float,
    *,
    out: Path,
    work: Path,
) -> str:
    """Save a trained model with its card; says how good it is."""
    import torch

    device = next(model.parameters()).device.type
    weights = saving.halve(model)
    held_out = rendered("test", RHO, size.test, cache=work / "scenes")
    metrics = {f"accuracy_test_rho{round(100 * RHO)}": round(classifiers.accuracy(model, held_out), 4)}
    facts = {
        "wnids": [KEYS[label].wnids[0] for label in CLASSES],
        **facts,
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else device.upper(),
        "metrics": metrics,
    }
    text = f"# {name}\n\nOne model of the studies that train ({', '.join(STUDIES)})."
    saving.write_model(out / name, weights, classifiers.family_config(family, model, rho=RHO), facts, text)
    return f"{name}: {metrics}, {seconds:.0f} s"


def without_colour(model: Any) -> None:
    """Fold the step to grey into the first layer, so that the model takes colour images and sees none of it.

    Exact, because all three channels are normalised alike.
    """
    import torch

    first = next(layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d))
    with torch.no_grad():
        luma = torch.tensor(augment.LUMA, device=first.weight.device).view(1, 3, 1, 1)
        first.weight.copy_(first.weight.sum(1, keepdim=True) * luma)


def _say_epoch(one: Training, say: Callable[[str], None], epoch: Epoch) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    say(f"{one.name} epoch {epoch.number}: {numbers}")


def _print(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    """Command line."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, help="folder for scenes and checkpoints (OUT-work)")
    known = [*STUDIES, *dict.fromkeys(way for ways in STUDIES.values() for way in ways)]
    parser.add_argument("--only", nargs="+", default=list(STUDIES), choices=known, help="studies or ways of training")
    parser.add_argument("--generator", default=robust.GENERATOR, help="whose latent dat moves in")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--train", type=int, default=SIZE.train, help="training scenes")
    parser.add_argument("--test", type=int, default=SIZE.test, help="held-out scenes for the cards")
    parser.add_argument("--epochs", type=int, default=SIZE.epochs)
    parser.add_argument("--batch", type=int, default=SIZE.batch)
    parser.add_argument("--jobs", type=int, default=1, help="models trained at a time")
    asked = parser.parse_args()
    ways = dict.fromkeys(way for name in asked.only for way in STUDIES.get(name, (name,)))
    began = time.monotonic()
    train_all(
        trainings(list(ways), asked.seeds),
        Size(train=asked.train, test=asked.test, epochs=asked.epochs, batch=asked.batch, seconds=None),
        out=asked.out,
        work=asked.work or asked.out.with_name(f"{asked.out.name}-work"),
        device="cuda" if torch.cuda.is_available() else "cpu",
        generator=asked.generator,
        jobs=asked.jobs,
        say=_print,
    )
    print(f"all: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
