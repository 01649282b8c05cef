"""``holdfast train``: train and test classifiers of one's own within scenarios."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.progress import TerminalProgress
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list

if TYPE_CHECKING:
    from holdfast.store import Run

Option = typer.Option


class How(StrEnum):
    """A recipe of training."""

    fast = "fast"
    paper = "paper"


class TrainOn(StrEnum):
    """What models are trained on."""

    each = "each"
    original = "original"


class Balance(StrEnum):
    """What is done about classes of unlike size."""

    none = "none"
    weights = "weights"
    sampling = "sampling"


def train(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A folder, manifest, COCO file or scheme:name (holdfast ls data).")
    ],
    architectures: Annotated[
        str, Option(help="Networks by name, separated by commas: timm:resnet50,torchvision:alexnet,embedded:vit_rho95.")
    ],
    out: Annotated[Path, Option(help="The run; one that is there is continued.")],
    masks: Annotated[Path | None, Option(help="Masks in a tree parallel to the images.", show_default=False)] = None,
    scenarios: Annotated[str, Option(help="Groups, ids, id@variant (holdfast ls scenarios).")] = "static",
    train_on: Annotated[
        TrainOn, Option(help="Each scenario by itself (originals are tested on all), or originals only.")
    ] = TrainOn.each,
    folds: Annotated[int, Option(min=1, help="Of cross-validation; 1 is one split.")] = 12,
    train_split: Annotated[float, Option(help="Share of the photos that one split trains on.")] = 0.8,
    validation: Annotated[
        float, Option(help="Share of the training photos that choose the best epoch; 0 takes the last.")
    ] = 0.1,
    recipe: Annotated[How, Option(help="AdamW, one cycle, augmentation; or the paper's Adam at 1e-4.")] = How.fast,
    epochs: Annotated[int, Option(min=0, help="Instead of the recipe's; 0 keeps them.")] = 0,
    batch_size: Annotated[int, Option(min=0, help="Images a step; 0 keeps the recipe's. Halved without memory.")] = 0,
    size: Annotated[int, Option(min=0, help="Pixels of the square images; 0 keeps the recipe's 224.")] = 0,
    rate: Annotated[float, Option(min=0, help="Learning rate instead of the recipe's; 0 keeps it.")] = 0.0,
    pretrained: Annotated[bool, Option("--pretrained", help="Begin with trained weights, not from scratch.")] = False,
    early_stopping: Annotated[
        int, Option(min=0, help="End after so many epochs without a better validation accuracy; 0 never.")
    ] = 0,
    balance: Annotated[Balance, Option(help="Of classes: weights in the loss, or sampling.")] = Balance.none,
    backgrounds: Annotated[
        Path | None, Option(help="Take donor backgrounds from this folder.", show_default=False)
    ] = None,
    feather: Annotated[float, Option(min=0, help="Soft edges, in pixels.")] = 0.0,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    workers: Annotated[int, Option(min=0, help="Jobs side by side, each in its own process; 0: one a core.")] = 1,
    memory: Annotated[
        float, Option(min=0, help="GiB of pictures a process holds; more are rendered anew. 0: a share of the machine.")
    ] = 0.0,
    split: Annotated[str, Option(help="Only samples of this split.", show_default=False)] = "",
    limit: Annotated[int, Option(min=0, help="At most so many photos, evenly over classes; 0 takes all.")] = 0,
    seed: Annotated[int, Option(help="Everything random follows from it.")] = 0,
    max_pixels: Annotated[int, Option(min=1, help="Refuse larger images before decoding them.")] = DEFAULT_MAX_PIXELS,
    retry_errors: Annotated[bool, Option("--retry-errors", help="Try failed jobs and images once more.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Train classifiers on your own classes, within each scenario, fold by fold; holdfast report has the full score."""
    from holdfast.pipeline.trained.train import TrainSpec
    from holdfast.pipeline.trained.train import train as run_train

    spec = TrainSpec(
        data=data, architectures=tuple(split_list(architectures)), masks=_text(masks), scenarios=scenarios,
        train_on=train_on.value, folds=folds, train_split=train_split, validation=validation, recipe=recipe.value,
        epochs=epochs, batch_size=batch_size, size=size, rate=rate, pretrained=pretrained,
        early_stopping=early_stopping, balance=balance.value, backgrounds=_text(backgrounds), feather=feather,
        device=device, workers=workers, memory=memory, split=split, limit=limit, seed=seed, max_pixels=max_pixels,
        retry_errors=retry_errors,
    )  # fmt: skip
    with TerminalProgress(quiet=quiet) as progress:
        run, summary = run_train(spec, out, progress=progress)
    if not quiet:
        _print_accuracy(run)
    typer.echo(f"{summary.rows} rows made, {summary.already} there already; {out}")
    for message, count in summary.trouble.most_common(20):
        typer.echo(f"  {count} × {message} (first: {summary.examples[message]})")
    typer.echo(f"{out}/models holds a folder a job; holdfast report {out} makes the page")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _print_accuracy(run: Run) -> None:
    """Accuracy by condition: trained on originals, and trained within the condition."""
    from rich.table import Table

    from holdfast.cli.listing import console_for_tables

    rows = run.rows(["condition", "variant", "model", "trained_on", "status", "correct"]).to_pandas()
    good = rows[rows["status"] == "ok"].astype({"condition": str, "variant": str, "model": str, "trained_on": str})
    if good.empty:
        return
    good["within"] = good["trained_on"] != "original"
    means = good.groupby(["condition", "variant", "model", "within"])["correct"].mean()
    models = list(dict.fromkeys(good["model"]))
    table = Table(
        "condition", *models, box=None, pad_edge=False, title="accuracy: trained on originals / within the condition"
    )
    for condition, variant in dict.fromkeys(zip(good["condition"], good["variant"], strict=True)):
        cells = [
            " / ".join(
                f"{means[key]:.1%}" if (key := (condition, variant, model, within)) in means.index else "–"
                for within in (False, True)
            )
            for model in models
        ]
        table.add_row(condition if variant in ("paper", "as_stored") else f"{condition}@{variant}", *cells)
    console_for_tables().print(table)
