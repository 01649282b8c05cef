"""Specs of verbs that show images to models, or make files of them: eval, synth, mask, ask, explain, choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.options import Option, Spec, option
from holdfast.core.types import RESAMPLES
from holdfast.pipeline.specs.data import (
    DataSpec,
    PaintSpec,
    average,
    batch_size,
    device,
    feather,
    labels,
    limit,
    matte,
    models,
    outcome,
    retry_errors,
    scenarios,
    seed,
    workers,
)

TWO_WAY, FULL_LIST = "two_way", "full_list"
QUESTIONS = (TWO_WAY, FULL_LIST)
TEMPLATE = "What is the main object in this image? Choose from the following list: {options}."
LETTER_TEMPLATE = (
    "What is the main object in this image? Choose from the following list and answer with the letter: {options}."
)


@dataclass(frozen=True)
class EvaluateSpec(PaintSpec):
    """What ``holdfast eval`` does."""

    models: tuple[str, ...] = models("Names of models", is_needed=True)
    scenarios: str = scenarios("all")
    labels: str | None = labels()
    feather: float = feather()
    matte: tuple[int, int, int] = matte()
    batch_size: int = batch_size(32)
    workers: int = workers(1)
    expect_accuracy: float | None = option(
        None, help="Stop before the scenarios if clean accuracy is not this.", least=0, most=1
    )  # fmt: skip
    retry_errors: bool = retry_errors()
    fast: bool = option(
        False, help="Decode each image once and run all conditions in batches on the device; answers differ in the "
        "last digits.",
    )  # fmt: skip
    compile: bool | None = option(
        None, help="Compile the networks of --fast; by default only for long runs on a GPU."
    )  # fmt: skip


@dataclass(frozen=True)
class SynthSpec(PaintSpec):
    """What ``holdfast synth`` does."""

    scenarios: str = scenarios("static")
    feather: float = feather()
    format: str = option("png", help="Format of the files.", choices=("png", "jpeg", "webdataset", "parquet"))
    quality: int = option(95, help="JPEG quality, 1 to 100.")
    layout: str = option("plain", help="A folder per condition (plain), or XIMAGENET-12's folders.",
                         choices=("plain", "ximagenet12"))  # fmt: skip
    workers: int = workers(0)
    verify: bool = option(False, help="Hash the existing files first, and make changed ones again.")
    review: bool = option(False, help="Put painted pictures that the oracle doubts into OUT/review, for people.")
    review_margin: float = option(
        0.2, help="The oracle doubts pictures that it rejects, or accepts by less than this.", least=-1, most=1
    )  # fmt: skip
    review_votes: str | None = option(
        None, help="What people said about them (holdfast review --export).", is_path=True
    )  # fmt: skip


@dataclass(frozen=True)
class MaskSpec(DataSpec):
    """What ``holdfast mask`` does."""

    annotator: str = option("u2netp", help="Mask maker (holdfast ls masks).", flag="--with")
    keep: bool = option(False, help="Copy masks that the dataset has, and make only the others.", python_only=True)
    workers: int = workers(0)


@dataclass(frozen=True)
class AskSpec(DataSpec):
    """What ``holdfast ask`` does."""

    models: tuple[str, ...] = models("Names of vlm: and vlm+http: models and classifiers", is_needed=True)
    questions: tuple[str, ...] = option(QUESTIONS, help="Kinds of question: two_way, full_list or both.",
                                        choices=QUESTIONS)  # fmt: skip
    distractor: str = option(
        "", help="Model whose best wrong class stands beside the truth; or: questions, as an ImageNet-D folder says."
    )  # fmt: skip
    synonyms: str | None = option(None, help='TOML with other words for classes: dog = ["puppy"].', is_path=True)
    template: str = option("", help="Text of a question, with {options} in it.")
    letters: bool = option(False, help="Give the options letters, and accept a letter as an answer.")
    both_orders: bool = option(False, help="Ask every two-way question in both orders, not in a random one.")
    labels: str | None = labels("CSV that maps classes to outputs of classifiers.")
    batch_size: int = batch_size(8, "Questions or images per forward pass; halved where it fails.")
    device: str = device()
    retry_errors: bool = retry_errors("Ask again where there was an error.")

    @property
    def words(self) -> str:
        """The template that is used."""
        return self.template or (LETTER_TEMPLATE if self.letters else TEMPLATE)

    def parameters(self, protocol: str) -> str:
        """Return what the one table says about a question besides its protocol, as JSON."""
        from holdfast.core.fingerprint import canonical_json

        stated: dict[str, Any] = {"template": self.words, "letters": self.letters}
        return canonical_json(stated | ({"distractor": self.distractor} if protocol != FULL_LIST else {}))


@dataclass(frozen=True)
class ExplainSpec(Spec):
    """What ``holdfast explain`` does."""

    methods: str = option(
        "gradcam", flag="--method", is_list=True,
        help="gradcam, integrated_gradients or occlusion, several separated by commas; with options: "
        "gradcam?layer=layer3, integrated_gradients?steps=64, occlusion?window=32&stride=16.",
    )  # fmt: skip
    limit: int = limit(default=48)
    conditions: str = option("", help="Conditions of the run; by default all that keep the object.", is_list=True)
    target: str = option("label", help="Explain the score of the true label, or of the model's prediction.",
                         choices=("label", "prediction"))  # fmt: skip
    randomise: bool = option(False, help="Explain shuffled weights, too: maps must change (sanity check).")
    cascade: bool = option(
        False, help="Shuffle layer by layer from the last one down, too, on originals; five times the work."
    )  # fmt: skip
    pictures: int = option(6, help="Number of source images whose maps are kept as pictures.", least=0)
    batch_size: int = batch_size(16)
    device: str = device()
    seed: int = seed("Seed of the shuffled weights and the resampling.")


@dataclass(frozen=True)
class ChooseSpec(Spec):
    """What ``holdfast choose`` does; ``weights`` may be a mapping, too."""

    weights: Mapping[str, float] | str = field(
        default_factory=dict,
        metadata={"option": Option(
            "Weights of conditions, families or groups, such as blur=2,random_background=3; a family shares "
            "its weight. By default every condition has the same weight.", is_list=True,
        )},
    )  # fmt: skip
    accuracy_weight: float | None = option(None, help="Weight of the originals; 1 where it is not given.", least=0)
    limit_size: float | None = option(
        None, help="Only models whose weights take at most this many megabytes.", least=0, unit="MB"
    )  # fmt: skip
    limit_time: float | None = option(
        None, help="Only models that take at most this many milliseconds per image.", least=0, unit="ms"
    )  # fmt: skip
    speed: str = option("measure", help="measure (here and now), none, or a CSV with the columns model,milliseconds.")
    batch_size: int = batch_size(8, "Images per forward pass where speed is measured.")
    device: str = device("Device on which speed is measured: auto, cpu, cuda, cuda:1 or mps.")
    outcome: Any = outcome("--accuracy")  # noqa: RUF009
    average: Any = average()  # noqa: RUF009
    resamples: int = option(RESAMPLES, help="Number of bootstrap resamples.", least=100)
    seed: int = seed("Seed of the bootstrap.")
