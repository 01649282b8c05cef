"""Options that several verbs share, and specs of verbs that show images to models or make files of them.

What the published protocol of latent walks leaves open is named in ``WalkOptions``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.options import Option, Spec, option, part
from holdfast.core.types import DEFAULT_MAX_PIXELS, RESAMPLES

OUTCOMES = ("full", "restricted")
OUTCOME_COLUMNS = {"full": ("correct", "prediction"), "restricted": ("correct_restricted", "prediction_restricted")}
AVERAGES = ("macro", "micro")


# Options of several verbs: a call makes the field of a spec, and may give it another help text or default.
device = partial(option, "auto", help="Device of the models: auto, cpu, cuda, cuda:1 or mps.")
batch_size = partial(option, help="Images per forward pass; halved when memory runs out.", least=1)
labels = partial(
    option, None, help="CSV that maps classes to model outputs, or nine: ImageNet in nine super-classes.", is_path=True
)
seed = partial(option, 0, help="Seed of everything random.")
max_pixels = partial(
    option, DEFAULT_MAX_PIXELS, help="Refuse larger images before decoding them.", least=1, unit="pixels"
)
retry_errors = partial(option, False, help="Try rows with an error once more.")
outcome = partial(
    option, "full", choices=OUTCOMES,
    help="Count an answer as right over all outputs of the model (full), or among the dataset's classes only "
    "(restricted).",
)  # fmt: skip
average = partial(
    option, "macro", choices=AVERAGES, help="Give every class the same weight (macro), or every image (micro)."
)
workers = partial(  # the command line has its own option for it
    option, help="Number of processes on this machine; 0 starts one per core.", least=0, python_only=True
)
scenarios = partial(
    option, is_list=True,
    help="Groups, ids, id@variant or id?parameter=value, separated by commas (holdfast ls scenarios).",
)  # fmt: skip
feather = partial(
    option, 0.0, help="Width of soft edges; 0 keeps the promised pixels bit-identical.", least=0, unit="pixels"
)

attributes = partial(
    option, None, is_path=True,
    help="CSV with further attributes of the images: a column path or id, and one for each attribute.",
)  # fmt: skip


def limit(what: str = "source images, evenly over classes", default: int = 0) -> Any:
    """Return the field of the largest number of images."""
    return option(default, help=f"Use at most this many {what}; 0 uses all.", least=0)


def models(help: str, **details: Any) -> Any:
    """Return the field of the models' names."""
    return option((), help=f"{help}, separated by commas (holdfast ls models).", **details)


def parse_matte(text: str) -> tuple[int, int, int]:
    """Return a colour given by name or as R,G,B."""
    named = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (128, 128, 128)}
    if text in named:
        return named[text]
    try:
        red, green, blue = (int(number) for number in text.split(","))
    except ValueError:
        red = green = blue = -1
    if not all(0 <= value <= 255 for value in (red, green, blue)):
        raise UserError(f"--matte must be white, black, grey or R,G,B with values 0 to 255, not {text!r}")
    return red, green, blue


def matte(**details: Any) -> Any:
    """Return the field of the colour behind transparent images."""
    return option((255, 255, 255), help="Colour behind transparent images: white, black, grey or R,G,B.", typed="white",
                  read=parse_matte, **details)  # fmt: skip


@dataclass(frozen=True)
class DataSpec(Spec):
    """Which images, with which masks."""

    PANEL = "Images"

    data: str = option(help="A folder, manifest, COCO file or scheme:name (holdfast ls data).", argument="DATA")
    masks: str | None = option(None, help="Folder of masks, with the same tree as the images.", is_path=True)
    backgrounds: str | None = option(None, help="Take donor backgrounds from this folder.", is_path=True)
    split: str = option("", help="Use only samples of this split.")
    limit: int = limit()
    seed: int = seed(help="Seed; everything random follows from it and from the sample's name.")
    max_pixels: int = max_pixels()


@dataclass(frozen=True)
class InventorySpec(Spec):
    """Which images are looked through."""

    PANEL = "Images"

    data: str = option(help="A folder, manifest, COCO file or scheme:name (holdfast ls data).", argument="DATA")
    masks: str | None = option(None, help="Folder of masks, with the same tree as the images.", is_path=True)
    labels: str | None = labels(help="CSV that maps classes to model outputs: its rows are compared with the classes.")
    attributes: str | None = attributes()
    ties: bool = option(
        False, help="Look for attributes and backgrounds that go with the label so closely that a model could read "
        "them instead.",
    )  # fmt: skip
    split: str = option("", help="Use only samples of this split.")
    limit: int = limit()
    max_pixels: int = max_pixels()


@dataclass(frozen=True)
class PaintSpec(DataSpec):
    """What conditions with painted backgrounds need other than; such conditions run only when they are named."""

    PANEL = "Painted backgrounds"

    generator: str = option("", help="Image maker that paints generated_background (holdfast ls image-makers).")
    prompts: str | None = option(None, help="TOML with a prompt per class, or ximagenet12.", is_path=True)
    oracle: str = option("", help="Oracle that must still recognise a painted image (holdfast ls oracles).")
    labels: str | None = labels(help="CSV with other names of classes, for prompts and oracle.")
    device: str = device()
    stylist: str | None = option(
        None, help="Folder with the two ONNX files of arbitrary style transfer, for stylised conditions.", is_path=True
    )
    styles: str | None = option(
        None, help="Take the texture of stylised conditions from the images of this folder, not from images of other "
        "classes; its folders may be named after classes.", is_path=True,
    )  # fmt: skip
    fill: str = option("", help="Paint over objects with a network, in only_background and in donors: migan:FILE.")


TWO_WAY, FULL_LIST = "two_way", "full_list"
QUESTIONS = (TWO_WAY, FULL_LIST)
TEMPLATE = "What is the main object in this image? Choose from the following list: {options}."
LETTER_TEMPLATE = (
    "What is the main object in this image? Choose from the following list and answer with the letter: {options}."
)


depth = partial(
    option, "8", choices=("8", "native"),
    help="Make conditions at 8 bits a channel, or at the images' own depth and with all their bands (native); models "
    "get 8-bit RGB in both cases, unless they ask for native.",
)  # fmt: skip


CONDITIONS, SPEED, DETECTORS = "Conditions", "Device and speed", "Detectors and labels"
"""Headings of options of ``eval``."""


@dataclass(frozen=True)
class EvaluateSpec(PaintSpec):
    """What ``holdfast eval`` does."""

    models: tuple[str, ...] = models("Names of models", is_needed=True)
    scenarios: str = scenarios("all")
    labels: str | None = labels(panel="Images")
    attributes: str | None = attributes(panel="Images")
    feather: float = feather(panel=CONDITIONS)
    matte: tuple[int, int, int] = matte(panel=CONDITIONS)
    depth: str = depth(panel=CONDITIONS)
    device: str = device(panel=SPEED)
    batch_size: int = batch_size(32, panel=SPEED)
    workers: int = workers(1)
    expect_accuracy: float | None = option(
        None, help="Stop before the scenarios if clean accuracy is not this.", least=0, most=1
    )
    retry_errors: bool = retry_errors()
    search: bool = option(
        False,
        help="Of scenarios at three severities or more, ask only what it takes to find where each image first fails.",
        panel=CONDITIONS,
    )
    fast: bool = option(
        False, help="Decode each image once and run all conditions in batches on the device; answers differ in the "
        "last digits.", panel=SPEED,
    )  # fmt: skip
    compile: bool | None = option(
        None, help="Compile the networks of --fast; by default only for long runs on a GPU.", panel=SPEED
    )
    boxes: str | None = option(
        None, help="Boxes in DATA, a folder of images: a COCO file, a CSV, or a folder of YOLO or VOC files.",
        is_path=True, panel=DETECTORS,
    )  # fmt: skip
    images: str | None = option(
        None, help="Folder of the images that a COCO file or a CSV of boxes names.", is_path=True, panel=DETECTORS
    )
    threshold: float | None = option(
        None, help="Score from which a detector's box counts (by default the best F1 on the originals, then frozen); "
        "0.5 for labels of images that have several.", least=0, most=1, panel=DETECTORS,
    )  # fmt: skip
    box_masks: str = option(
        "grabcut",
        help="Makes masks of boxes that have none: grabcut, sam:mobile, sam:NAME (holdfast ls masks).",
        panel=DETECTORS,
    )
    protocol: str | None = option(
        None, help="Declaration (holdfast audit declare) that this run follows; deviations are recorded.", is_path=True
    )


@dataclass(frozen=True)
class SynthSpec(PaintSpec):
    """What ``holdfast synth`` does."""

    scenarios: str = scenarios("static", panel=CONDITIONS)
    feather: float = feather(panel=CONDITIONS)
    depth: str = depth(
        help="Write 8 bits a channel, or the images' own depth and all their bands (native).", panel=CONDITIONS
    )
    format: str = option(
        "png", help="Format of the files.", choices=("png", "jpeg", "webdataset", "parquet"), panel="Files"
    )
    quality: int = option(95, help="JPEG quality, 1 to 100.", panel="Files")
    layout: str = option("plain", help="A folder per condition (plain), or XIMAGENET-12's folders.",
                         choices=("plain", "ximagenet12"), panel="Files")  # fmt: skip
    workers: int = workers(0)
    verify: bool = option(False, help="Hash the existing files first, and make changed ones again.", panel="Files")
    review: bool = option(
        False, help="Put painted images that the oracle doubts into OUT/review, for people.", panel="Review"
    )
    review_margin: float = option(
        0.2,
        help="The oracle doubts images that it rejects, or accepts by less than this.",
        least=-1,
        most=1,
        panel="Review",
    )
    review_votes: str | None = option(
        None, help="What people said about them (holdfast people review --export).", is_path=True, panel="Review"
    )


@dataclass(frozen=True)
class MaskSpec(DataSpec):
    """What ``holdfast mask`` does."""

    annotator: str = option("u2netp", help="Mask maker (holdfast ls masks).", flag="--with")
    keep: bool = option(False, help="Copy masks that the dataset has, and make only the others.")
    workers: int = workers(0)


@dataclass(frozen=True)
class AskSpec(DataSpec):
    """What ``holdfast ask`` does."""

    models: tuple[str, ...] = models("Names of vlm: and vlm+http: models and classifiers", is_needed=True)
    questions: tuple[str, ...] = option(QUESTIONS, help="Kinds of question: two_way, full_list or both.",
                                        choices=QUESTIONS)  # fmt: skip
    scenarios: str = scenarios("original")
    distractor: str = option(
        "", help="Model whose best wrong class is next to the truth; or: questions, as an ImageNet-D folder says."
    )
    synonyms: str | None = option(None, help='TOML with other words for classes: dog = ["puppy"].', is_path=True)
    template: str = option("", help="Text of a question, with {options} in it.")
    letters: bool = option(False, help="Give the options letters, and accept a letter as an answer.")
    both_orders: bool = option(False, help="Ask every two-way question in both orders, not in a random one.")
    labels: str | None = labels(help="CSV that maps classes to outputs of classifiers.")
    stop: str = option(
        "never", help="when-decided: ask in random order, and stop once every model is known to be better than "
        "guessing or not; never: ask everything.", choices=("never", "when-decided"),
    )  # fmt: skip
    batch_size: int = batch_size(8, help="Questions or images per forward pass; halved if it fails.")
    device: str = device()
    retry_errors: bool = retry_errors(help="Ask again if there was an error.")

    @property
    def words(self) -> str:
        """Return the template that is used."""
        return self.template or (LETTER_TEMPLATE if self.letters else TEMPLATE)

    def parameters(self, protocol: str, scenario: Mapping[str, Any] | None = None) -> str:
        """Return the ``parameters`` of a question in the one table, as JSON, with the settings of a scenario."""
        from holdfast.core.fingerprint import canonical_json

        stated: dict[str, Any] = {"template": self.words, "letters": self.letters}
        stated |= {} if scenario is None else {"scenario": dict(scenario)}
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
    )
    pictures: int = option(6, help="Number of source images whose maps are kept as files.", least=0)
    batch_size: int = batch_size(16)
    device: str = device()
    seed: int = seed(help="Seed of the shuffled weights and the resampling.")


@dataclass(frozen=True)
class ChooseSpec(Spec):
    """What ``holdfast report --choose`` does; ``weights`` may be a mapping, too."""

    weights: Mapping[str, float] | str = field(
        default_factory=dict,
        metadata={"option": Option(
            "Weights of conditions, families or groups, such as blur=2,random_background=3; a family shares "
            "its weight. By default every condition has the same weight.", is_list=True,
        )},
    )  # fmt: skip
    accuracy_weight: float | None = option(None, help="Weight of the originals; 1 if it is not given.", least=0)
    slice: str = option(
        "", flag="--for", help="Only images with these attributes, such as camera=B or camera=B,line=2."
    )
    attributes: str | None = attributes()
    limit_size: float | None = option(
        None, help="Only models whose weights take at most this many megabytes.", least=0, unit="MB"
    )
    limit_time: float | None = option(
        None, help="Only models that take at most this many milliseconds per image.", least=0, unit="ms"
    )
    speed: str = option("measure", help="measure (here and now), none, or a CSV with the columns model,milliseconds.")
    batch_size: int = batch_size(8, help="Images per forward pass when speed is measured.")
    device: str = device(help="Device on which speed is measured: auto, cpu, cuda, cuda:1 or mps.")
    outcome: Any = outcome()  # noqa: RUF009
    average: Any = average()  # noqa: RUF009
    resamples: int = option(RESAMPLES, help="Number of bootstrap resamples.", least=100)
    seed: int = seed(help="Seed of the bootstrap.")


SPACES = ("dataset", "all")
LOSSES = ("cross_entropy", "margin")


AUTO = 0.0
"""The step size that stands for ``auto``."""


def _step_size(text: str) -> float:
    if text.strip() == "auto":
        return AUTO
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise UserError(f"--step-size {text}: expected a number above 0, or auto")
    return value


@dataclass(frozen=True)
class WalkOptions(Spec):
    """How far, which way and how fast images walk."""

    PANEL = "Walks"

    steps: int = option(50, help="Largest number of steps of a walk.", least=1)
    step_size: float = option(
        0.001, help="How far a step moves every dimension of the latent (sign) or their root mean square (normalised); "
        "raw gradients and Adam's steps are multiplied by it. auto: short trials choose it.",
        read=_step_size, typed="0.001", unit="NUMBER|auto",
    )  # fmt: skip
    gradient: str = option("sign", help="Form of a step.", choices=("sign", "normalised", "raw", "adam"))
    loss: str = option("cross_entropy", help="Loss that the walk climbs.", choices=LOSSES)
    first: str = option("step", help="First image that the oracle judges: after a step, or the plain reconstruction.",
                        choices=("step", "reconstruction"))  # fmt: skip
    start: str = option("clean", help="Start at the image, or at an image that one FGSM step has changed.",
                        choices=("clean", "fgsm"))  # fmt: skip
    fgsm_epsilon: float = option(0.003, help="Length of that FGSM step, 0 to 1.")
    direction: str = option("loss", help="Climb the loss, or walk in one random direction per image.",
                            choices=("loss", "random"))  # fmt: skip
    view: str = option("model", help="What the model sees: the part that eval shows it, or the whole image.",
                       choices=("model", "whole"))  # fmt: skip
    stop_when_fooled: bool = option(False, help="End at the first accepted image with a wrong answer.")
    black_box: int = option(0, help="Probes per step, for models without gradients; 0 uses gradients.", least=0)
    probe_size: float = option(
        0.05, help="Spread of these probes in the latent; a small one drowns in the rounding of images."
    )
    precision: str = option("float32", help="Precision of generator, model and oracle; latents are always float32.",
                            choices=("float32", "bfloat16"))  # fmt: skip
    batch_size: int = batch_size(16, help="Number of images that walk at a time.")
    deterministic: bool = option(False, help="Walk one image at a time, so that results are exact to the last bit.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("step_size", "probe_size", "fgsm_epsilon"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0) and (name, value) != ("step_size", AUTO):
                raise UserError(f"{name.replace('_', ' ')} is a number above 0, not {value}")


@dataclass(frozen=True)
class PerturbSpec(DataSpec):
    """What ``holdfast perturb`` does."""

    models: tuple[str, ...] = models("Names of the models under test")
    generator: str = option("", help="Generator that makes images from latents (holdfast ls generators).")
    oracle: str = option("", help="Oracle that says how far a walk may go (holdfast ls oracles).")
    labels: str | None = labels()
    space: str = option("dataset", choices=SPACES,
                        help="Loss, oracle and accuracy among the dataset's classes, or over all outputs.",
                        panel="Classes that count")  # fmt: skip
    loss_space: str = option("", help="Another space for the loss.", choices=SPACES, panel="Classes that count")
    oracle_space: str = option("", help="Another space for the oracle.", choices=SPACES, panel="Classes that count")
    size: int = option(
        0, help="Width and height of images; 0: the generator's own, or the first image's short side, 256 at most.",
        least=0, unit="pixels",
    )  # fmt: skip
    sparse: str | None = option(
        None, help="Move only what this mask allows (--find-sparse).", is_path=True, panel="Sparse walks"
    )
    random_walk: bool = option(True, help="Walk as far in a random direction, too.")
    keep_images: bool = option(False, help="Keep perturbed images, with a manifest.", panel="Kept images")
    keep_latents: bool = option(False, help="Keep both ends of walks, for --find-sparse.", panel="Kept images")
    pictures: int = option(
        4, help="Keep first and last image of so many images, for the report.", least=0, panel="Kept images"
    )
    frames: int = option(0, help="Keep every image of the first so many walks per model.", least=0, panel="Kept images")
    device: str = device()
    retry_errors: bool = retry_errors()
    walk: WalkOptions = part(WalkOptions)  # noqa: RUF009
