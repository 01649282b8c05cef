"""The options that several verbs share: which images, how they are painted, and single options used by many specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.options import Spec, option
from holdfast.core.types import DEFAULT_MAX_PIXELS

OUTCOMES = ("full", "restricted")
AVERAGES = ("macro", "micro")


def device(help: str = "Device of the models: auto, cpu, cuda, cuda:1 or mps.") -> Any:
    """Return the field of the device that models run on."""
    return option("auto", help=help)


def batch_size(
    default: int, help: str = "Images per forward pass; halved when memory runs out.", least: int = 1
) -> Any:
    """Return the field of the batch size."""
    return option(default, help=help, least=least)


def labels(help: str = "CSV that maps classes to model outputs, or nine: ImageNet in nine super-classes.") -> Any:
    """Return the field of the label file."""
    return option(None, help=help, is_path=True)


def limit(what: str = "source images, evenly over classes", default: int = 0) -> Any:
    """Return the field of the largest number of images."""
    return option(default, help=f"Use at most this many {what}; 0 uses all.", least=0)


def seed(help: str = "Seed of everything random.") -> Any:
    """Return the field of the seed."""
    return option(0, help=help)


def max_pixels() -> Any:
    """Return the field of the largest image."""
    return option(DEFAULT_MAX_PIXELS, help="Refuse larger images before decoding them.", least=1, unit="pixels")


def retry_errors(help: str = "Try rows with an error once more.") -> Any:
    """Return the field that says whether errors are tried again."""
    return option(False, help=help)


def outcome(flag: str = "") -> Any:
    """Return the field that says which right answers count."""
    return option(
        "full", choices=OUTCOMES, flag=flag,
        help="Count an answer as right over all outputs of the model (full), or among the dataset's classes only "
        "(restricted).",
    )  # fmt: skip


def average() -> Any:
    """Return the field that says how classes are weighted."""
    return option("macro", choices=AVERAGES, help="Give every class the same weight (macro), or every photo (micro).")


def workers(default: int) -> Any:
    """Return the field of the number of processes; the command line has its own option for it."""
    return option(
        default, help="Number of processes on this machine; 0 starts one per core.", least=0, python_only=True
    )


def scenarios(default: str) -> Any:
    """Return the field of the conditions."""
    text = "Groups, ids, id@variant or id?parameter=value, separated by commas (holdfast ls scenarios)."
    return option(default, help=text, is_list=True)


def feather() -> Any:
    """Return the field of the width of soft edges."""
    return option(0.0, help="Width of soft edges; 0 keeps the promised pixels bit-identical.", least=0, unit="pixels")


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
        raise UserError(f"--matte {text!r} is neither white, black, grey nor R,G,B with values 0 to 255")
    return red, green, blue


def matte(**details: Any) -> Any:
    """Return the field of the colour behind transparent images."""
    return option((255, 255, 255), help="Colour behind transparent images: white, black, grey or R,G,B.", typed="white",
                  read=parse_matte, **details)  # fmt: skip


@dataclass(frozen=True)
class DataSpec(Spec):
    """Which images, with which masks."""

    PANEL = "Images"

    data: str = option(
        help="A folder, manifest, COCO file or scheme:name (holdfast ls data).", argument="DATA"
    )  # fmt: skip
    masks: str | None = option(None, help="Folder of masks, with the same tree as the images.", is_path=True)
    backgrounds: str | None = option(None, help="Take donor backgrounds from this folder.", is_path=True)
    split: str = option("", help="Use only samples of this split.")
    limit: int = limit()
    seed: int = seed("Seed; everything random follows from it and from the sample's name.")
    max_pixels: int = max_pixels()


@dataclass(frozen=True)
class InventorySpec(Spec):
    """Which images are looked through."""

    PANEL = "Images"

    data: str = option(help="A folder, manifest, COCO file or scheme:name (holdfast ls data).", argument="DATA")
    masks: str | None = option(None, help="Folder of masks, with the same tree as the images.", is_path=True)
    labels: str | None = labels("CSV that maps classes to model outputs: its rows are compared with the classes.")
    split: str = option("", help="Use only samples of this split.")
    limit: int = limit()
    max_pixels: int = max_pixels()


@dataclass(frozen=True)
class PaintSpec(DataSpec):
    """What conditions with painted backgrounds need besides; such conditions run only when they are named."""

    PANEL = "Painted backgrounds"

    generator: str = option("", help="Image maker that paints generated_background (holdfast ls image-makers).")
    prompts: str | None = option(None, help="TOML with a prompt per class, or ximagenet12.", is_path=True)
    oracle: str = option("", help="Oracle that must still recognise a painted picture (holdfast ls oracles).")
    labels: str | None = labels("CSV with other names of classes, for prompts and oracle.")
    device: str = device()
