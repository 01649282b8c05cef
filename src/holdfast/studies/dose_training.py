"""The models of ``holdfast study dose``: one small ResNet for each ρ and seed, alike in everything else.

The study trains those that are missing. On a machine that has a GPU but not all of Holdfast's dependencies the models
can be made beforehand, from the sources, and the study then finds them in ``DIR/models``:

    PYTHONPATH=src python -m holdfast.studies.dose_training --out DIR/models --jobs 5

Run again after an interruption it goes on: finished models are left alone, the others resume from their last epoch.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.studies import several
from holdfast.training import classifiers
from holdfast.training.classifiers import Recipe, Size
from holdfast.training.scenes import rendered

FAMILY = "resnet"
RHOS = (0.0, 0.5, 0.8, 0.95, 1.0)
SEEDS = 3
SIZE = Size(train=48_000, test=2_400, epochs=18, batch=512, seconds=None)


@dataclass(frozen=True)
class Dose:
    """One model of the study: trained where class and background go together with ρ."""

    rho: float
    seed: int

    @property
    def name(self) -> str:
        """Its folder, and what results call it."""
        return f"rho{round(100 * self.rho):03d}-seed{self.seed}"


def doses(rhos: Sequence[float], seeds: int, *, first: int = 0) -> list[Dose]:
    """Every ρ with every seed."""
    return [Dose(rho, seed) for rho in rhos for seed in range(first, first + seeds)]


def train_all(
    wanted: Sequence[Dose],
    size: Size,
    *,
    out: Path,
    work: Path,
    device: str,
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
        jobs: models trained at a time: small networks leave most of a GPU idle.
        say: told in words how far it is, here and in other processes.
        progress: told how many models are done.
    """
    missing = [dose for dose in wanted if not several.is_there(out / dose.name, _asked(dose, size))]
    progress("train", len(wanted) - len(missing), len(wanted))
    if not missing:
        return
    cache = work / "scenes"
    for rho in sorted({dose.rho for dose in missing}):
        rendered("train", rho, size.train, cache=cache)
        if say:
            say(f"scenes: ρ = {rho}")
    for rho in sorted({0.0, *(dose.rho for dose in missing)}):
        rendered("test", rho, size.test, cache=cache)
    task = functools.partial(train_one, size=size, out=out, work=work, device=device, say=say)
    several.train_missing(missing, len(wanted), task, jobs=jobs, say=say, progress=progress)


def _asked(dose: Dose, size: Size) -> dict[str, Any]:
    return {
        "rho": dose.rho,
        "seed": dose.seed,
        "data": f"{size.train} training scenes of diorama at {classifiers.SIDE} px, context {dose.rho}",
        "epochs": size.epochs,
        "batch": size.batch,
    }


def train_one(
    dose: Dose, size: Size, *, out: Path, work: Path, device: str, say: Callable[[str], None] | None = None
) -> str:
    """Train and write one model; says how good it is."""
    import torch

    torch.backends.cudnn.benchmark = device == "cuda"
    recipe = Recipe(FAMILY, dose.rho, seed=dose.seed)
    fitted = classifiers.train(
        recipe,
        size,
        cache=work / "scenes",
        device=device,
        checkpoints=work / "checkpoints" / dose.name,
        on_epoch=functools.partial(several.say_epoch, dose.name, say) if say else None,
    )
    return several.write(
        out / dose.name,
        fitted.model,
        functools.partial(classifiers.config_of, recipe),
        _asked(dose, size),
        f"One model of `holdfast study dose`: ρ = {dose.rho}, seed {dose.seed}.",
        rhos=list(dict.fromkeys([dose.rho, 0.0])),
        scenes=size.test,
        cache=work / "scenes",
        seconds=fitted.seconds,
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rho", type=float, nargs="+", default=list(RHOS))
    several.from_command_line(parser, SIZE, SEEDS, train_all, lambda asked: (doses(asked.rho, asked.seeds), {}))


if __name__ == "__main__":
    main()
