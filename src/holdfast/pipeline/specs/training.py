"""Specs of the verbs that train networks: train, segment, detect."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.options import option
from holdfast.pipeline.specs.data import (
    DataSpec,
    batch_size,
    device,
    feather,
    labels,
    matte,
    retry_errors,
    scenarios,
    workers,
)
from holdfast.pipeline.specs.recipes import Recipe, find_recipe

EACH = "each"
ALL_BUT_ONE = "all-but-one"
SEGMENT_SIZE = 256
"""Pixels of the square pictures, as published with XIMAGENET-12."""


@dataclass(frozen=True)
class TrainSpec(DataSpec):
    """What ``holdfast train`` does."""

    PANEL = "Training"

    architectures: tuple[str, ...] = option(
        (), help="Networks, separated by commas: timm:resnet50,torchvision:alexnet,embedded:vit_rho95.", is_needed=True
    )  # fmt: skip
    labels: str | None = labels("nine: train and test in the nine super-classes of ImageNet.")
    scenarios: str = scenarios("static")
    folds: int = option(12, help="Folds of cross-validation, by photo; 1 is one split.", least=1)
    train_split: float = option(0.8, help="Share of the photos of each class that one split trains on.")
    validation: float = option(
        0.1, help="Share of the training photos that choose the best epoch; 0 takes the last epoch."
    )  # fmt: skip
    train_on: str = option(
        EACH, choices=(EACH, "original", ALL_BUT_ONE),
        help="Train on each scenario by itself (and test originals on all), on originals only, or on all scenarios but "
        "one, which is tested.",
    )  # fmt: skip
    recipe: str = option("fast", choices=("fast", "paper"),
                         help="AdamW, one cycle and augmentation (fast), or the paper's Adam at 1e-4.")  # fmt: skip
    epochs: int = option(0, help="Number of epochs; 0 takes the recipe's.", least=0)
    batch_size: int = batch_size(0, "Images per step, halved when memory runs out; 0 takes the recipe's.", least=0)
    size: int = option(0, help="Width and height of the pictures; 0 takes the recipe's 224.", least=0, unit="pixels")
    crop: bool = option(
        False, help="Crop pictures (at random in training, from the middle in the test) instead of squeezing them."
    )  # fmt: skip
    rate: float = option(0.0, help="Learning rate; 0 takes the recipe's.", least=0)
    early_stopping: int = option(
        0, help="End after this many epochs without a better validation accuracy; 0 never does.", least=0
    )  # fmt: skip
    balance: str = option("none", choices=("none", "weights", "sampling"),
                          help="Balance classes by weights in the loss, or by sampling.")  # fmt: skip
    pretrained: bool = option(False, help="Start with trained weights, not from scratch.")
    feather: float = feather()
    matte: tuple[int, int, int] = matte(python_only=True)
    device: str = device()
    workers: int = workers(1)
    memory: float = option(
        0.0, help="GiB of pictures that a process holds; others are rendered again. 0 takes a share of the machine's.",
        least=0, unit="GiB",
    )  # fmt: skip
    renderers: int = option(1, help="Processes that make pictures; 0 starts one per core, 1 uses threads.", least=0,
                            typed=0)  # fmt: skip
    compile: bool = option(False, help="Compile the training step: for long trainings on a GPU.")
    retry_errors: bool = retry_errors("Try failed jobs and images once more.")

    @property
    def task(self) -> str:
        """The task's name in the one table."""
        return "classify"

    @property
    def protocol(self) -> str:
        """The protocol's name in the one table."""
        return "argmax"

    def settled(self) -> Recipe:
        """Return the recipe with the values that replace its own."""
        return find_recipe(
            self.recipe, epochs=self.epochs, batch_size=self.batch_size, size=self.size, rate=self.rate, crop=self.crop
        )


@dataclass(frozen=True)
class SegmentSpec(TrainSpec):
    """What ``holdfast segment`` does: train ``architectures``, or test ``models``; never both in one run."""

    architectures: tuple[str, ...] = option(
        (), help="Train these networks, separated by commas: smp:FPN@resnet50,smp:DPT@tu-vit_base_patch16_224,"
        "torchvision:fcn_resnet50,hf:upernet@vit.",
    )  # fmt: skip
    models: tuple[str, ...] = option(
        (), help="Or test these models as they are: embedded:unet,smp:FPN@FOLDER,hf:FOLDER (holdfast ls segmenters)."
    )  # fmt: skip
    train_on: str = option(EACH, choices=(EACH, "original"), help="Train on each scenario by itself, or on originals.")
    size: int = option(0, help=f"Width and height of the pictures, also in the test; 0 is {SEGMENT_SIZE}.", least=0,
                       unit="pixels")  # fmt: skip
    labels: str | None = labels("CSV that maps classes to the outputs of --models.")

    @property
    def task(self) -> str:
        """The task's name in the one table."""
        return "segment"

    @property
    def protocol(self) -> str:
        """The protocol's name in the one table: the best class of every pixel, in pictures of this size."""
        return f"argmax@{self.settled().size}" + ("-crop" if self.crop else "")

    def settled(self) -> Recipe:
        """Return the recipe with the values that replace its own."""
        size = self.size or SEGMENT_SIZE
        return find_recipe(
            self.recipe, epochs=self.epochs, batch_size=self.batch_size, size=size, rate=self.rate, crop=self.crop
        )


@dataclass(frozen=True)
class DetectSpec(TrainSpec):
    """What ``holdfast detect`` does."""

    architectures: tuple[str, ...] = option(("timm:resnet50",), help="Networks, separated by commas.")
    # JPEG at this quality is what a picture goes through when it is shared.
    scenarios: str = option(
        "original,jpeg_compression?quality=75,same_class_background", help="What the networks are tested on.",
        python_only=True,
    )  # fmt: skip
    folds: int = option(5, help="Folds of cross-validation, by photo; 1 is one split.", least=1)
    train_on: str = option("original", help="What the networks are trained on.", python_only=True)
    generator: str = option("", help="Image maker that paints generated backgrounds (holdfast ls image-makers).")
    prompts: str | None = option(None, help="TOML with a prompt per class, or ximagenet12.", is_path=True)
    oracle: str = option("", help="Oracle that must still recognise a painted picture (holdfast ls oracles).")
    labels: str | None = labels("CSV with other names of classes, for prompts and oracle.")
    generated: str | None = option(
        None, help="Instead: what holdfast synth wrote of generated_background and DATA.", is_path=True
    )  # fmt: skip
