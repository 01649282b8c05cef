"""What every verb can be asked: each option declared once, importable without anything heavy."""

from holdfast.pipeline.specs.data import DataSpec, InventorySpec, PaintSpec, parse_matte
from holdfast.pipeline.specs.generated import GenerateSpec, MineSpec, ModesSpec, RemedySpec
from holdfast.pipeline.specs.rows import AskSpec, ChooseSpec, EvaluateSpec, ExplainSpec, MaskSpec, SynthSpec
from holdfast.pipeline.specs.training import DetectSpec, SegmentSpec, TrainSpec
from holdfast.pipeline.specs.walks import PerturbSpec, WalkOptions

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
