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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.studies import several
from holdfast.training import augment, classifiers, robust
from holdfast.training.classifiers import FAMILIES, Family, Size
from holdfast.training.scenes import rendered

RHO = 0.8
"""How strongly class and background go together in the training scenes, and in the test scenes of these studies."""
SEEDS = 2
SIZE = Size(train=48_000, test=2_400, epochs=10, batch=512, seconds=None)
HEADS = (1, 2, 4, 8)
WIDTH = 48
"""Of a Swin's first stage; heads must divide it."""
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
    missing = [one for one in wanted if not several.is_there(out / one.name, _asked(one, size, generator))]
    progress("train", len(wanted) - len(missing), len(wanted))
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

    several.train_missing(missing, len(wanted), task, jobs=jobs, say=say, progress=progress)


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
        on_epoch=functools.partial(several.say_epoch, one.name, say) if say else None,
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
    return several.write(
        out / name,
        model,
        functools.partial(classifiers.family_config, family, rho=RHO),
        facts,
        f"One model of the studies that train ({', '.join(STUDIES)}).",
        rhos=[RHO],
        scenes=size.test,
        cache=work / "scenes",
        seconds=seconds,
    )


def without_colour(model: Any) -> None:
    """Fold the step to grey into the first layer, so that the model takes colour images and sees none of it.

    Exact, because all three channels are normalised alike.
    """
    import torch

    first = next(layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d))
    with torch.no_grad():
        luma = torch.tensor(augment.LUMA, device=first.weight.device).view(1, 3, 1, 1)
        first.weight.copy_(first.weight.sum(1, keepdim=True) * luma)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*STUDIES, *dict.fromkeys(way for ways in STUDIES.values() for way in ways)]
    parser.add_argument("--only", nargs="+", default=list(STUDIES), choices=known, help="studies or ways of training")
    parser.add_argument("--generator", default=robust.GENERATOR, help="whose latent dat moves in")

    def chosen(asked: argparse.Namespace) -> tuple[list[Training], dict[str, Any]]:
        ways = dict.fromkeys(way for name in asked.only for way in STUDIES.get(name, (name,)))
        return trainings(list(ways), asked.seeds), {"generator": asked.generator}

    several.from_command_line(parser, SIZE, SEEDS, train_all, chosen)


if __name__ == "__main__":
    main()
