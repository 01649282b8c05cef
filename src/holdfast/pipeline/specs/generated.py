"""Specs of the verbs about generated images: generate, mine, modes, remedy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core.options import Spec, option
from holdfast.pipeline.specs.data import batch_size, device, labels, limit, max_pixels, outcome, retry_errors, seed
from holdfast.pipeline.specs.rows import EvaluateSpec
from holdfast.pipeline.specs.training import REMEDIES, RemedyRecipe

NUISANCES = ("background", "texture", "material")


@dataclass(frozen=True)
class GenerateSpec(Spec):
    """What ``holdfast generate`` makes a pool from."""

    generator: str = option(
        help="Image maker that draws the prompts (holdfast ls image-makers): embedded:, diffusers:NAME-OR-FOLDER."
    )  # fmt: skip
    categories: str = option(
        "", help="What images show: diorama, a text file, a label CSV, or ObjectNet's folder of mappings."
    )  # fmt: skip
    nuisances: str = option("", help="What images vary: diorama, a TOML, CSV or text file, or Broden's folder.")
    templates: str = option(
        "", help="TOML with a template per kind of nuisance, with {category} and {nuisance}.", is_path=True
    )  # fmt: skip
    per_pair: int = option(1, help="Images per prompt, each with its own seed.", least=1)
    kinds: tuple[str, ...] = option(NUISANCES, help="Kinds of nuisance, separated by commas.", choices=NUISANCES)
    limit: int = limit("images, evenly over categories and kinds")
    seed: int = seed("Seed; everything random follows from it and from the prompt.")
    negative: str = option("", help="Prompt to keep away from.")
    scheduler: str = option("", help="Scheduler of diffusers; by default the pipeline's own.")
    labels: str | None = labels("CSV that maps every category to model outputs.")
    licence: str = option("", help="Licence of the images, for the manifest.")
    batch_size: int = batch_size(16, "Images that are made at a time.")
    device: str = device()


@dataclass(frozen=True)
class MineSpec(Spec):
    """What ``holdfast mine`` does."""

    pool: str = option(help="What holdfast generate made, or any dataset.", argument="POOL")
    surrogates: tuple[str, ...] = option(
        (), help="Models whose shared failures are kept, in the order in which they are added; separated by commas."
    )  # fmt: skip
    targets: tuple[str, ...] = option(
        (), help="Models that the set is tested on and that take no part in making it; separated by commas."
    )  # fmt: skip
    oracle: str = option("", help="Oracle that says whether an image shows its category; no surrogate and no target.")
    labels: str | None = labels("CSV that maps categories to model outputs.")
    outcome: str = outcome()
    at_least: int = option(0, help="Number of surrogates that must fail (m); 0 chooses it.", least=0)
    use: int = option(0, help="Number of surrogates to use, the first ones (k); 0 chooses it.", least=0)
    least_images: int = option(
        25, help="Valid images that m should leave in the choosing half of the prompts.", least=1
    )
    least_fall: float = option(
        0.01, help="Fall in accuracy that one more surrogate should bring; with less, k is enough.", least=0, most=1
    )  # fmt: skip
    cap_per_category: int = option(0, help="Keep at most this many images per category; 0 keeps all.", least=0)
    cap_per_pair: int = option(0, help="Keep at most this many images per category and nuisance; 0 keeps all.", least=0)
    balance: bool = option(False, help="Keep as many images of every category as of the scarcest one.")
    keep_rejected: bool = option(False, help="Publish images that the oracle rejects, too.")
    again: int = option(5, help="New images per hard prompt, to tell prompt from luck; 0 makes none.", least=0)
    generator: str = option("", help="Image maker of the new images; by default the pool's own.")
    batch_size: int = batch_size(32)
    device: str = device()
    limit: int = limit("prompts, evenly over categories")
    seed: int = seed()
    max_pixels: int = max_pixels()
    retry_errors: bool = retry_errors()

    def evaluation(self, data: str, *, limit: int = 0) -> EvaluateSpec:
        """Return how the images of ``data`` are classified."""
        return EvaluateSpec(
            data, models=(*self.surrogates, *self.targets), scenarios="original", labels=self.labels, limit=limit,
            batch_size=self.batch_size, device=self.device, max_pixels=self.max_pixels, retry_errors=self.retry_errors,
        )  # fmt: skip


@dataclass(frozen=True)
class ModesSpec(Spec):
    """What ``holdfast modes`` reads."""

    words: str = option(
        "", help="Backgrounds to look for: prompts (of a generated dataset), diorama, or a text file with a phrase per "
        "line (in the snow).",
    )  # fmt: skip
    oracle: str = option("", help="clip: model that reads the backgrounds; none of the models tested.")
    outcome: str = outcome()
    labels: str | None = labels("CSV with names of classes.")
    device: str = device()


@dataclass(frozen=True)
class RemedySpec(Spec):
    """What ``holdfast remedy`` does."""

    hard: str = option(help="What holdfast mine made; its pool must be at hand.", argument="HARD")
    model: str = option(help="Model to fine-tune: an embedded:, local-dir: or timm: model.")
    originals: tuple[str, ...] = option(
        (), help="Datasets that the model should not forget, separated by commas; drawn scenes if the pool is drawn."
    )  # fmt: skip
    recipe: str = option("default", choices=("default", "paper"),
                         help="AdamW for 8 epochs (default), or the paper's SGD at 1e-4 for 10 epochs.")  # fmt: skip
    epochs: int = option(0, help="Number of epochs; 0 takes the recipe's.", least=0)
    rate: float = option(0.0, help="Learning rate; 0 takes the recipe's.", least=0)
    train_batch: int = option(0, help="Images per training step; 0 takes the recipe's.", least=0)
    limit: int = limit("images for training")
    pool: str = option("", help="Where the pool is now, if it has moved.")
    labels: str | None = labels("CSV that maps categories to model outputs.")
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
