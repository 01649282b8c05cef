"""The models of ``holdfast study dose``: one small ResNet for each ρ and seed, alike in everything else.

The study trains those that are missing. On a machine that has a GPU but not all of Holdfast's dependencies the models
can be made beforehand, from the sources, and the study then finds them in ``DIR/models``:

    PYTHONPATH=src python -m holdfast.studies.dose_training --out DIR/models --jobs 5

Run again after an interruption it goes on: finished models are left alone, the others resume from their last epoch.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.diorama import CLASSES
from holdfast.diorama.vocabulary import KEYS
from holdfast.pipeline.progress import Progress, silent
from holdfast.training import classifiers, saving
from holdfast.training.classifiers import Recipe, Size
from holdfast.training.loop import Epoch
from holdfast.training.scenes import rendered

FAMILY = "resnet"
RHOS = (0.0, 0.5, 0.8, 0.95, 1.0)
SEEDS = 3
SIZE = Size(train=48_000, test=2_400, epochs=18, batch=512, seconds=None)
COMPLETE = "README.md"
"""The file of a model that is written last."""


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
    missing = [dose for dose in wanted if not _is_there(out / dose.name, dose, size)]
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
    if jobs == 1:
        _report(map(task, missing), len(wanted) - len(missing), len(wanted), say, progress)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        _report(pool.map(task, missing), len(wanted) - len(missing), len(wanted), say, progress)


def _report(lines: Iterable[str], done: int, total: int, say: Callable[[str], None] | None, progress: Progress) -> None:
    for line in lines:
        done += 1
        progress("train", done, total)
        if say:
            say(line)


def _is_there(folder: Path, dose: Dose, size: Size) -> bool:
    """Whether a model is complete. Raises UserError where it is one of another training."""
    if not (folder / COMPLETE).is_file():
        return False
    facts = facts_of(folder)
    asked = _asked(dose, size)
    other = {key: facts[key] for key in asked if facts.get(key, asked[key]) != asked[key]}
    if other:
        was = ", ".join(f"{key}: {value}" for key, value in other.items())
        raise UserError(f"{folder} was trained otherwise ({was}); choose another folder or delete it")
    return True


def facts_of(folder: Path) -> dict[str, Any]:
    """What a model's configuration says of its training."""
    facts: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("holdfast", {})
    return facts


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
        on_epoch=functools.partial(_say_epoch, dose, say) if say else None,
    )
    model = fitted.model
    weights = saving.halve(model)
    metrics = {
        f"accuracy_test_rho{round(100 * rho)}": round(
            classifiers.accuracy(model, rendered("test", rho, size.test, cache=work / "scenes")), 4
        )
        for rho in dict.fromkeys([dose.rho, 0.0])
    }
    facts = {
        "wnids": [KEYS[label].wnids[0] for label in CLASSES],
        **_asked(dose, size),
        "seconds": round(fitted.seconds, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else device.upper(),
        "metrics": metrics,
    }
    text = f"# {dose.name}\n\nOne model of `holdfast study dose`: ρ = {dose.rho}, seed {dose.seed}."
    saving.write_model(out / dose.name, weights, classifiers.config_of(recipe, model), facts, text)
    return f"{dose.name}: {metrics}, {fitted.seconds:.0f} s"


def _say_epoch(dose: Dose, say: Callable[[str], None], epoch: Epoch) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    say(f"{dose.name} epoch {epoch.number}: {numbers}")


def _print(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    """Command line."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, help="folder for scenes and checkpoints (OUT-work)")
    parser.add_argument("--rho", type=float, nargs="+", default=list(RHOS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--train", type=int, default=SIZE.train, help="training scenes")
    parser.add_argument("--test", type=int, default=SIZE.test, help="held-out scenes for the cards")
    parser.add_argument("--epochs", type=int, default=SIZE.epochs)
    parser.add_argument("--batch", type=int, default=SIZE.batch)
    parser.add_argument("--jobs", type=int, default=1, help="models trained at a time")
    asked = parser.parse_args()
    began = time.monotonic()
    train_all(
        doses(asked.rho, asked.seeds),
        Size(train=asked.train, test=asked.test, epochs=asked.epochs, batch=asked.batch, seconds=None),
        out=asked.out,
        work=asked.work or asked.out.with_name(f"{asked.out.name}-work"),
        device="cuda" if torch.cuda.is_available() else "cpu",
        jobs=asked.jobs,
        say=_print,
    )
    print(f"all: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
