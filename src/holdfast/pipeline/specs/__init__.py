"""What every verb can be asked: each option declared once, importable without anything heavy."""

from holdfast.pipeline.specs.rows import (
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
    DetectSpec,
    GenerateSpec,
    MineSpec,
    ModesSpec,
    RemedySpec,
    SegmentSpec,
    TrainSpec,
)

__all__ = [
    "AskSpec",
    "ChooseSpec",
    "DataSpec",
    "DetectSpec",
    "EvaluateSpec",
    "ExplainSpec",
    "GenerateSpec",
    "InventorySpec",
    "MaskSpec",
    "MineSpec",
    "ModesSpec",
    "PaintSpec",
    "PerturbSpec",
    "RemedySpec",
    "SegmentSpec",
    "SynthSpec",
    "TrainSpec",
    "WalkOptions",
    "parse_matte",
]
