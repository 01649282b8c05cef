"""What a command asks for beyond models and conditions: features that a task has to support, and that go together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.names import SWEEPS, parse_name
from holdfast.core.types import ORIGINAL
from holdfast.pipeline.samples import Prepared
from holdfast.pipeline.specs import EvaluateSpec
from holdfast.scenarios import Condition
from holdfast.scenarios.base.definition import DRAW
from holdfast.store import Run

_OPTIONS = {"fast": "fast", "search": "search", "protocol": "protocol", "expect_accuracy": "expect-accuracy",
            "threshold": "threshold"}  # fmt: skip


def asked_features(spec: EvaluateSpec, conditions: Sequence[Condition]) -> dict[str, str]:
    """Return a name of ``core.tasks.FEATURES`` → the option or name that asks for it."""
    asked = {
        feature: f"--{name.replace('_', '-')}" for name, feature in _OPTIONS.items()
        if getattr(spec, name) not in (None, False)
    }  # fmt: skip
    if spec.depth == "native":
        asked["native-depth"] = "--depth native"
    for condition in conditions:
        if condition.definition.attack:
            asked["attacks"] = condition.name
        if condition.definition.paints:
            asked["painting"] = condition.name
    for name in spec.models:
        if any(option.startswith("adapt") for option in parse_name(name, tagged=False).options):
            asked["adaptation"] = name
    return asked


def fewer_draws(conditions: Sequence[Condition], prepared: Prepared, seed: int) -> tuple[list[Condition], str]:
    """Return the conditions without draws that a tenth of the images lack donors for, and a note about these."""
    swept = [condition for condition in conditions if condition.scenario in SWEEPS]
    if not swept:
        return list(conditions), ""
    of_class = {sample.label: sample for sample in prepared.collection.samples if sample.condition == ORIGINAL}
    sides = {condition.definition.donor == "same_class" for condition in swept}
    lent = {
        label: min(len(prepared.pool.in_turns(sample, seed, same_class=side)) for side in sides)
        for label, sample in of_class.items()
    }
    least = sorted(lent[each.label] for each in prepared.collection.samples if each.label in lent)
    wanted, most = max(int(condition.parameters[DRAW.name]) for condition in swept), least[len(least) // 10]
    why = f"a tenth of the images have only {most} others to lend backgrounds (of their own class, and of others)"
    if most < 2:
        raise UserError(f"the worst of several backgrounds needs 3 or more images of each class, and {why}")
    kept = [each for each in conditions if each not in swept or int(each.parameters[DRAW.name]) <= most]
    return kept, f"{most} backgrounds for each object instead of {wanted}, because {why}" if most < wanted else ""


def check_together(spec: EvaluateSpec, out: Path) -> None:
    """Raise a UserError for options that contradict each other, whatever the task."""
    if not spec.models:
        raise UserError("no model was named; --models a,b lists them (holdfast ls models)")
    if spec.depth == "native" and spec.fast:
        raise UserError("--fast works with 8 bits; leave it out, or --depth native")
    if spec.search and spec.fast:
        raise UserError(
            "--search chooses severities from earlier answers, and --fast runs all at once: use only one of them"
        )
    folder, root = Path(spec.data).expanduser().resolve(), Path(out).resolve()
    if folder.is_dir() and (root == folder or root.is_relative_to(folder / "images")):
        raise UserError(f"{out} holds the images; choose another --out for the run")


def check_not_mixed(run: Run, spec: EvaluateSpec) -> None:
    """Raise a UserError if exact and fast answers would be stored in one table."""
    if (run.path / "spec.json").exists() and bool(run.spec().get("fast")) != spec.fast:
        before, now = ("exact", "--fast") if spec.fast else ("--fast", "exact")
        raise UserError(
            f"{run.path} holds a run of {before} answers, which do not mix with {now} ones; choose another --out"
        )
