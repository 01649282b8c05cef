"""How networks are trained, as data; specs of verbs that train, generate images or verify."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.options import Spec, as_in, option
from holdfast.pipeline.specs.images import (
    SPEED,
    DataSpec,
    EvaluateSpec,
    PaintSpec,
    batch_size,
    device,
    feather,
    labels,
    limit,
    matte,
    max_pixels,
    outcome,
    retry_errors,
    scenarios,
    seed,
    workers,
)

CROP_SHARE = 0.875  # share of the shorter side that a crop keeps: 224 of 256 pixels


@dataclass(frozen=True)
class Recipe:
    """A way of training."""

    optimiser: str  # ``adam`` or ``adamw``
    rate: float  # the full learning rate, from scratch
    rate_pretrained: float  # the same for weights that know something already
    decay: float  # of the weights; norms and biases are not decayed
    epochs: int  # passes over the training images
    batch_size: int  # images a step
    size: int = 224  # pixels of the square that images are resized to
    cycle: bool = False  # the rate goes up and down along a cosine, or stays
    augment: bool = False  # images are mirrored, turned, zoomed and shifted a little, again in every epoch
    smoothing: float = 0.0  # of the labels, 0..1
    average: float = 0.0  # share of all steps over which weights are averaged for use; 0 takes them as they are
    clip: float = 0.0  # largest norm of the gradients; 0 leaves them
    mixed: bool = False  # bfloat16 on a GPU for the layers that bear it
    # images keep their proportions and are cropped, at random in training and from the middle in the test, instead of
    # being squeezed
    crop: bool = False
    robust: str = ""  # a way of ``training.robust``, or a union of several; empty: none

    @property
    def scaled(self) -> int:
        """Return the pixels of the shorter side before the crop, as timm's ``crop_pct`` has it; 0 without crops."""
        return int(self.size / CROP_SHARE) if self.crop else 0

    @property
    def schedule(self) -> Callable[[float], float]:
        """Return a function from the share of training done to a factor of the learning rate."""
        from holdfast.training.loop import constant, one_cycle

        return one_cycle if self.cycle else constant

    def keep(self, steps: int) -> float | None:
        """Return how much of the averaged weights each of so many steps keeps; None without averaging."""
        return 1 - 1 / max(2.0, self.average * steps) if self.average else None


RECIPES = {
    "paper": Recipe("adam", 1e-4, 1e-4, 0.0, 200, 16),
    "fast": Recipe(
        "adamw", 2e-3, 3e-4, 0.05, 40, 64, cycle=True, augment=True, smoothing=0.1, average=0.02, clip=1.0, mixed=True
    ),
}
"""``paper``: Adam at 1e-4 for 200 epochs, batches of 16, 224², as published with XIMAGENET-12; nothing else is stated
there, so nothing else is done."""


@dataclass(frozen=True)
class RemedyRecipe:
    """How a model is fine-tuned."""

    optimiser: str  # ``adamw`` or ``sgd`` (momentum 0.9)
    rate: float  # the full learning rate
    epochs: int  # passes over the images
    batch_size: int  # images a step
    cycle: bool  # up and down along a cosine, or one rate throughout
    moves: bool  # small turns, zooms and shifts apart from mirroring


REMEDIES = {
    "default": RemedyRecipe("adamw", 3e-4, 8, 32, cycle=True, moves=True),
    "paper": RemedyRecipe("sgd", 1e-4, 10, 32, cycle=False, moves=False),
}
"""``paper``: SGD at 1e-4 for 10 epochs, as published with ImageNet-D; momentum, batch and mirroring are ours."""


EACH = "each"
ALL_BUT_ONE = "all-but-one"
SEGMENT_SIZE = 256  # pixels of the square images, as published with XIMAGENET-12


@dataclass(frozen=True)
class TrainSpec(DataSpec):
    """What ``holdfast train`` does."""

    PANEL = "Training"
    USUAL_SIZE = 0  # width and height of the images; 0: the recipe's

    architectures: tuple[str, ...] = option(
        (), help="Networks, separated by commas: timm:resnet50,torchvision:alexnet,embedded:vit_rho95.", is_needed=True
    )
    labels: str | None = labels(help="nine: train and test in the nine super-classes of ImageNet.")
    scenarios: str = scenarios("static")
    folds: int = option(12, help="Folds of cross-validation, by image; 1 is one split.", least=1)
    train_split: float = option(0.8, help="Share of the images of each class that one split trains on.")
    validation: float = option(
        0.1, help="Share of the training images that choose the best epoch; 0 takes the last epoch."
    )
    train_on: str = option(
        EACH, choices=(EACH, "original", ALL_BUT_ONE),
        help="Train on each scenario by itself (and test originals on all), on originals only, or on all scenarios but "
        "one, which is tested.",
    )  # fmt: skip
    recipe: str = option("fast", choices=("fast", "paper"),
                         help="AdamW, one cycle and augmentation (fast), or the paper's Adam at 1e-4.",
                         panel="Recipe")  # fmt: skip
    epochs: int = option(0, help="Number of epochs; 0 takes the recipe's.", least=0, panel="Recipe")
    batch_size: int = batch_size(
        0, help="Images per step, halved when memory runs out; 0 takes the recipe's.", least=0, panel="Recipe"
    )
    size: int = option(
        0, help="Width and height of the images; 0 takes the recipe's 224.", least=0, unit="pixels", panel="Recipe"
    )
    crop: bool = option(
        False,
        help="Crop images (at random in training, from the middle in the test) instead of squeezing them.",
        panel="Recipe",
    )
    rate: float = option(0.0, help="Learning rate; 0 takes the recipe's.", least=0, panel="Recipe")
    robust: str = option(
        "", help="Train robustly: augmix, ant, stylised, deepaugment, adversarial, dat, or a union such as "
        "deepaugment+augmix.", panel="Recipe",
    )  # fmt: skip
    early_stopping: int = option(
        0,
        help="End after this many epochs without a better validation accuracy; 0 never does.",
        least=0,
        panel="Recipe",
    )
    balance: str = option("none", choices=("none", "weights", "sampling"),
                          help="Balance classes by weights in the loss, or by sampling.", panel="Recipe")  # fmt: skip
    pretrained: bool = option(False, help="Start with trained weights, not from scratch.", panel="Recipe")
    generator: str = option(
        "", help="Image maker that paints generated_background (holdfast ls image-makers).", panel=PaintSpec.PANEL
    )
    prompts: str | None = option(
        None, help="TOML with a prompt per class, or ximagenet12.", is_path=True, panel=PaintSpec.PANEL
    )
    oracle: str = option(
        "", help="Oracle that must still recognise a painted image (holdfast ls oracles).", panel=PaintSpec.PANEL
    )
    feather: float = feather()
    matte: tuple[int, int, int] = matte(python_only=True)
    device: str = device(panel=SPEED)
    workers: int = workers(1, panel=SPEED)
    memory: float = option(
        0.0, help="GiB of images that a process holds; others are rendered again. 0 takes a share of the machine's.",
        least=0, unit="GiB", panel=SPEED,
    )  # fmt: skip
    renderers: int = option(1, help="Processes that make images; 0 starts one per core, 1 uses threads.", least=0,
                            typed=0, panel=SPEED)  # fmt: skip
    compile: bool = option(False, help="Compile the training step: for long trainings on a GPU.", panel=SPEED)
    retry_errors: bool = retry_errors(help="Try failed jobs and images once more.")

    @property
    def task(self) -> str:
        """Return the task's name in the one table."""
        return "classify"

    @property
    def protocol(self) -> str:
        """Return the protocol's name in the one table."""
        return "argmax"

    def settled(self) -> Recipe:
        """Return the recipe with the values that replace its own; 0 replaces nothing."""
        if self.batch_size == 1:
            raise UserError("a batch needs at least 2 images")
        if math.isinf(self.rate):
            raise UserError(f"the learning rate must be above 0, not {self.rate}")
        asked: dict[str, float] = {"epochs": self.epochs, "batch_size": self.batch_size, "rate": self.rate}
        asked |= {"rate_pretrained": self.rate, "size": self.size or self.USUAL_SIZE}
        given: dict[str, Any] = {name: value for name, value in asked.items() if value}
        return replace(RECIPES[self.recipe], crop=self.crop, robust=self.robust, **given)


@dataclass(frozen=True)
class SegmentSpec(TrainSpec):
    """What ``holdfast segment`` does: train ``architectures``, or test ``models``; never both in one run."""

    USUAL_SIZE = SEGMENT_SIZE

    architectures: tuple[str, ...] = option(
        (), help="Train these networks, separated by commas: smp:FPN@resnet50,smp:DPT@tu-vit_base_patch16_224,"
        "torchvision:fcn_resnet50,hf:upernet@vit.",
    )  # fmt: skip
    models: tuple[str, ...] = option(
        (), help="Or test these models as they are: embedded:unet,smp:FPN@FOLDER,hf:FOLDER (holdfast ls segmenters)."
    )
    train_on: str = option(EACH, choices=(EACH, "original"), help="Train on each scenario by itself, or on originals.")
    size: int = option(0, help=f"Width and height of the images, also in the test; 0 is {SEGMENT_SIZE}.", least=0,
                       unit="pixels", panel="Recipe")  # fmt: skip
    labels: str | None = labels(help="CSV that maps classes to the outputs of --models.")
    robust: str = option("", help="Only classifiers are trained robustly.", python_only=True)

    @property
    def task(self) -> str:
        """Return the task's name in the one table."""
        return "segment"

    @property
    def protocol(self) -> str:
        """Return the protocol's name in the one table: the best class of every pixel, in images of this size."""
        return f"argmax@{self.settled().size}" + ("-crop" if self.crop else "")


@dataclass(frozen=True)
class TelltaleSpec(TrainSpec):
    """What ``holdfast study telltale`` does."""

    architectures: tuple[str, ...] = option(("timm:resnet50",), help="Networks, separated by commas.")
    # JPEG at this quality is what an image goes through when it is shared.
    scenarios: str = option(
        "original,jpeg_compression?quality=75,same_class_background", help="What the networks are tested on.",
        python_only=True,
    )  # fmt: skip
    folds: int = option(5, help="Folds of cross-validation, by image; 1 is one split.", least=1)
    train_on: str = option("original", help="What the networks are trained on.", python_only=True)
    labels: str | None = labels(help="CSV with other names of classes, for prompts and oracle.")
    generated: str | None = option(
        None, help="Instead: what holdfast synth wrote of generated_background and DATA.", is_path=True
    )


NUISANCES = ("background", "texture", "material")


@dataclass(frozen=True)
class GenerateSpec(Spec):
    """What ``holdfast generate`` makes a pool from."""

    generator: str = option(
        help="Image maker that draws the prompts (holdfast ls image-makers): embedded:, diffusers:NAME-OR-FOLDER."
    )
    categories: str = option(
        "", help="What images show: diorama, a text file, a label CSV, or ObjectNet's folder of mappings."
    )
    nuisances: str = option("", help="What images vary: diorama, a TOML, CSV or text file, or Broden's folder.")
    templates: str = option(
        "", help="TOML with a template per kind of nuisance, with {category} and {nuisance}.", is_path=True
    )
    per_pair: int = option(1, help="Images per prompt, each with its own seed.", least=1)
    kinds: tuple[str, ...] = option(NUISANCES, help="Kinds of nuisance, separated by commas.", choices=NUISANCES)
    limit: int = limit("images, evenly over categories and kinds")
    seed: int = seed(help="Seed; everything random follows from it and from the prompt.")
    negative: str = option("", help="Prompt to keep away from.")
    scheduler: str = option("", help="Scheduler of diffusers; by default the pipeline's own.")
    labels: str | None = labels(help="CSV that maps every category to model outputs.")
    licence: str = option("", help="Licence of the images, for the manifest.")
    batch_size: int = batch_size(16, help="Images that are made at a time.")
    device: str = device()


@dataclass(frozen=True)
class MineSpec(Spec):
    """What ``holdfast mine`` does."""

    pool: str = option(help="What holdfast generate made, or any dataset.", argument="POOL")
    surrogates: tuple[str, ...] = option(
        (), help="Models whose shared failures are kept, in the order in which they are added; separated by commas."
    )
    targets: tuple[str, ...] = option(
        (), help="Models that the set is tested on and that take no part in making it; separated by commas."
    )
    oracle: str = option("", help="Oracle that says whether an image shows its category; no surrogate and no target.")
    labels: str | None = labels(help="CSV that maps categories to model outputs.")
    outcome: str = outcome()
    at_least: int = option(0, help="Number of surrogates that must fail (m); 0 chooses it.", least=0, panel="Selection")
    use: int = option(
        0, help="Number of surrogates to use, the first ones (k); 0 chooses it.", least=0, panel="Selection"
    )
    least_images: int = option(
        25, help="Valid images that m should leave in the choosing half of the prompts.", least=1, panel="Selection"
    )
    least_fall: float = option(
        0.01,
        help="Fall in accuracy that one more surrogate should bring; with less, k is enough.",
        least=0,
        most=1,
        panel="Selection",
    )
    cap_per_category: int = option(
        0, help="Keep at most this many images per category; 0 keeps all.", least=0, panel="Published images"
    )
    cap_per_pair: int = option(
        0,
        help="Keep at most this many images per category and nuisance; 0 keeps all.",
        least=0,
        panel="Published images",
    )
    balance: bool = option(
        False, help="Keep as many images of every category as of the scarcest one.", panel="Published images"
    )
    keep_rejected: bool = option(False, help="Publish images that the oracle rejects, too.", panel="Published images")
    again: int = option(
        5, help="New images per hard prompt, to separate prompt from luck; 0 makes none.", least=0, panel="New images"
    )
    generator: str = option("", help="Image maker of the new images; by default the pool's own.", panel="New images")
    batch_size: int = batch_size(32, panel=SPEED)
    device: str = device(panel=SPEED)
    limit: int = limit("prompts, evenly over categories")
    seed: int = seed()
    max_pixels: int = max_pixels()
    retry_errors: bool = retry_errors()

    fast: bool = option(
        False, help="Let models answer in one pass on the device, as eval --fast does; answers differ in the last "
        "digits.", panel=SPEED,
    )  # fmt: skip

    def evaluation(self, data: str, *, limit: int = 0) -> EvaluateSpec:
        """Return how the images of ``data`` are classified."""
        return EvaluateSpec(
            data, models=(*self.surrogates, *self.targets), scenarios="original", labels=self.labels, limit=limit,
            batch_size=self.batch_size, device=self.device, max_pixels=self.max_pixels, retry_errors=self.retry_errors,
            fast=self.fast,
        )  # fmt: skip


@dataclass(frozen=True)
class ModesSpec(Spec):
    """What ``holdfast mine modes`` reads."""

    words: str = option(
        "", help="Backgrounds to look for: prompts (of a generated dataset), diorama, or a text file with a phrase per "
        "line (in the snow).",
    )  # fmt: skip
    oracle: str = option("", help="clip: model that reads the backgrounds; none of the models tested.")
    outcome: str = outcome()
    labels: str | None = labels(help="CSV with names of classes.")
    device: str = device()


@dataclass(frozen=True)
class RemedySpec(Spec):
    """What ``holdfast mine remedy`` does."""

    hard: str = option(help="What holdfast mine made; its pool must be at hand.", argument="HARD")
    model: str = option(help="Model to fine-tune: an embedded:, local-dir: or timm: model.")
    originals: tuple[str, ...] = option(
        (), help="Datasets that the model should not forget, separated by commas; drawn scenes if the pool is drawn."
    )
    recipe: str = option("default", choices=("default", "paper"),
                         help="AdamW for 8 epochs (default), or the paper's SGD at 1e-4 for 10 epochs.")  # fmt: skip
    epochs: int = option(0, help="Number of epochs; 0 takes the recipe's.", least=0)
    rate: float = option(0.0, help="Learning rate; 0 takes the recipe's.", least=0)
    train_batch: int = option(0, help="Images per training step; 0 takes the recipe's.", least=0)
    limit: int = limit("images for training")
    pool: str = option("", help="Where the pool is now, if it has moved.")
    labels: str | None = labels(help="CSV that maps categories to model outputs.")
    outcome: str = outcome()
    batch_size: int = batch_size(32)
    device: str = device()
    seed: int = seed()
    max_pixels: int = max_pixels()

    def how(self) -> RemedyRecipe:
        """Return the recipe with the values that replace its own."""
        asked = {"epochs": self.epochs, "rate": self.rate, "batch_size": self.train_batch}
        given = {key: value for key, value in asked.items() if value}
        return replace(REMEDIES[self.recipe], **given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class RerunOptions(Spec):
    """What an entry does not say, or is not trusted with: where things are on this machine."""

    data: str = option("", help="The dataset of an entry; its hash has to be the same.")
    masks: str | None = as_in(EvaluateSpec, "masks")
    labels: str | None = as_in(EvaluateSpec, "labels")
    backgrounds: str | None = as_in(EvaluateSpec, "backgrounds")
    split: str = as_in(EvaluateSpec, "split")
    limit: int = as_in(EvaluateSpec, "limit")
    max_pixels: int = as_in(EvaluateSpec, "max_pixels")
    model: str = option("", help="Name that loads the model here, if not the entry's.")
    generator: str = option("", help="The same for its generator.")
    oracle: str = option("", help="The same for its oracle.")
    prompts: str | None = as_in(EvaluateSpec, "prompts")
    sparse: str | None = option(None, help="Mask of the latent, for sparse walks.", is_path=True)
    boxes: str | None = as_in(EvaluateSpec, "boxes")
    images: str | None = as_in(EvaluateSpec, "images")
    box_masks: str = as_in(EvaluateSpec, "box_masks")
    device: str = as_in(EvaluateSpec, "device")
    batch_size: int = as_in(EvaluateSpec, "batch_size")
