"""The verbs of the core, in the order of ``holdfast --help``. Other packages add theirs by entry points."""

from __future__ import annotations

from dataclasses import replace

from holdfast import registry
from holdfast.core.options import Spec
from holdfast.core.verbs import Verb
from holdfast.pipeline import specs

SIDE_BY_SIDE = """The commands of one answer, side by side:

holdfast check MODEL PHOTOS: masks, eval and report in one go

holdfast eval DATA --models A,B --out RUN: the table of any number of models

holdfast report RUN; explain RUN; compare RUN NEW_RUN: what reads it"""
"""Is below the help of each of them, since they take their arguments in different orders."""
TOGETHER = ("check", "eval", "report", "explain", "compare")


def _verb(name: str, command: str, function: str = "", spec: type[Spec] | None = None, workload: str = "") -> Verb:
    """Return a verb without its group; a function is in ``holdfast.api``, if no other module is named."""
    home = "" if not function or ":" in function else "api:"
    return Verb(
        name, "", function=f"holdfast.{home}{function}" if function else None, spec=spec,
        command=f"holdfast.cli.{command}", workload=f"holdfast.forecast.workload:{workload}" if workload else None,
        epilog=SIDE_BY_SIDE if name in TOGETHER else None,
    )  # fmt: skip


_GROUPS = {
    "Start here": (
        _verb("demo", "findings:demo"),
        _verb("check", "findings:check", "verbs:check"),
        _verb("eval", "runs:evaluate", "evaluate", specs.EvaluateSpec, "evaluated"),
        _verb("report", "findings:report", "report"),
        _verb("compare", "compare:compare", "compare"),
    ),
    "Images and masks": (
        Verb("data", "", help="List, check and split datasets, and find duplicates between them."),
        _verb("data list", "datasets:data_list", spec=specs.InventorySpec),
        _verb("data check", "datasets:data_check", "data_check", specs.InventorySpec),
        _verb("data split", "datasets:data_split"),
        _verb("data duplicates", "datasets:data_duplicates"),
        _verb("mask", "generated:mask", "mask", specs.MaskSpec, "masked"),
        _verb("synth", "generated:synth", "synth", specs.SynthSpec, "synthesised"),
    ),
    "Measure": (
        _verb("perturb", "runs:perturb", "perturb", specs.PerturbSpec, "perturbed"),
        _verb("ask", "runs:ask", "ask", specs.AskSpec, "asked"),
        _verb("explain", "findings:explain", "explain", specs.ExplainSpec),
        _verb("train", "runs:train", "train", specs.TrainSpec, "trained"),
        _verb("segment", "runs:segment", "segment", specs.SegmentSpec, "trained"),
    ),
    "Generate": (
        _verb("generate", "generated:generate", "generate", specs.GenerateSpec, "generated"),
        _verb("mine", "generated:mine", "mine", specs.MineSpec, "mined"),
        _verb("mine modes", "generated:mine_modes", "mine_modes", specs.ModesSpec),
        _verb("mine remedy", "generated:mine_remedy", "mine_remedy", specs.RemedySpec),
    ),
    "Maintain": (
        _verb("ls", "listing:ls"),
        _verb("doctor", "listing:doctor"),
    ),
}
VERBS = tuple(replace(verb, group=group) for group, verbs in _GROUPS.items() for verb in verbs)
for _each in VERBS:
    registry.verbs.register(_each.name, _each, summary=_each.group)
