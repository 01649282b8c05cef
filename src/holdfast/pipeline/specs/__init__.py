"""What every verb can be asked: each option declared once, importable without anything heavy."""

from holdfast.pipeline.specs.images import (
    AskSpec,
    ChooseSpec,
    DataSpec,
    EvaluateSpec,
    ExplainSpec,
    InventorySpec,
    MaskSpec,
    PaintSpec,
    PerturbSpec,
    SynthSpec,
    WalkOptions,
    parse_matte,
)
from holdfast.pipeline.specs.training import (
    GenerateSpec,
    MineSpec,
    ModesSpec,
    RemedySpec,
    RerunOptions,
    SegmentSpec,
    TelltaleSpec,
    TrainSpec,
)

__all__ = [
    "AskSpec", "ChooseSpec", "DataSpec", "EvaluateSpec", "ExplainSpec", "GenerateSpec", "InventorySpec", "MaskSpec",
    "MineSpec", "ModesSpec", "PaintSpec", "PerturbSpec", "RemedySpec", "RerunOptions", "SegmentSpec", "SynthSpec",
    "TelltaleSpec", "TrainSpec", "WalkOptions", "parse_matte",
]  # fmt: skip
