"""``holdfast segment``: train segmenters within scenarios, or test those there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.progress import TerminalProgress
from holdfast.cli.train import Balance, How, TrainOn
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list

if TYPE_CHECKING:
    from holdfast.store import Run

Option = typer.Option


def segment(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A folder, manifest, COCO file or scheme:name (holdfast ls data).")
    ],
    out: Annotated[Path, Option(help="The run; one that is there is continued.")],
    architectures: Annotated[
        str,
        Option(
            help="Train these, separated by commas: smp:FPN@resnet50,smp:DPT@tu-vit_base_patch16_224,"
            "torchvision:fcn_resnet50,hf:upernet@vit.",
            show_default=False,
        ),
    ] = "",
    models: Annotated[
        str,
        Option(
            help="Or test these as they are: embedded:unet,smp:FPN@FOLDER,hf:FOLDER (holdfast ls segmenters).",
            show_default=False,
        ),
    ] = "",
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
    size: Annotated[int, Option(min=0, help="Pixels of the square pictures, also in the test; 0 is 256.")] = 0,
    rate: Annotated[float, Option(min=0, help="Learning rate instead of the recipe's; 0 keeps it.")] = 0.0,
    pretrained: Annotated[bool, Option("--pretrained", help="Begin with trained weights, not from scratch.")] = False,
    early_stopping: Annotated[
        int, Option(min=0, help="End after so many epochs without a better validation mIoU; 0 never.")
    ] = 0,
    balance: Annotated[Balance, Option(help="Of classes: weights in the loss, or sampling.")] = Balance.none,
    labels: Annotated[
        Path | None, Option(help="CSV that maps classes to the outputs of --models.", show_default=False)
    ] = None,
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
    """Segment objects under every scenario, by models of yours or trained here: mean IoU, right pixels, boundaries."""
    from holdfast.pipeline.segmented.segment import SegmentSpec
    from holdfast.pipeline.segmented.segment import segment as run_segment

    spec = SegmentSpec(
        data=data, masks=_text(masks), backgrounds=_text(backgrounds), split=split, limit=limit, seed=seed,
        max_pixels=max_pixels, architectures=tuple(split_list(architectures)), models=tuple(split_list(models)),
        scenarios=scenarios, folds=folds, train_split=train_split, validation=validation, train_on=train_on.value,
        recipe=recipe.value, epochs=epochs, batch_size=batch_size, size=size, rate=rate, pretrained=pretrained,
        early_stopping=early_stopping, balance=balance.value, labels=_text(labels), feather=feather, device=device,
        workers=workers, memory=memory, retry_errors=retry_errors,
    )  # fmt: skip
    with TerminalProgress(quiet=quiet) as progress:
        run, summary = run_segment(spec, out, progress=progress)
    if not quiet:
        _print_segments(run)
    typer.echo(f"{summary.rows} rows made, {summary.already} there already; {out}")
    for message, count in summary.trouble.most_common(20):
        typer.echo(f"  {count} × {message} (first: {summary.examples[message]})")
    typer.echo(f"holdfast report {out} makes the page")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _print_segments(run: Run) -> None:
    """Mean IoU by condition and model."""
    from rich.table import Table

    from holdfast.cli.listing import console_for_tables
    from holdfast.pipeline.segmented.testing import details
    from holdfast.stats.segments import COLUMNS, experiments, measured, segments

    frame = measured(run.rows(COLUMNS), details(run.path).rows())
    if frame.empty:
        return
    found = segments(experiments(frame), resamples=2).set_index(["condition", "model"])["miou"]
    models = list(dict.fromkeys(found.index.get_level_values("model")))
    table = Table("condition", *models, box=None, pad_edge=False, title="mean IoU")
    conditions = dict.fromkeys(found.index.get_level_values("condition"))
    for condition in sorted(conditions, key=lambda name: name != "original"):
        cells = [f"{found[condition, one]:.1%}" if (condition, one) in found.index else "–" for one in models]
        table.add_row(condition, *cells)
    console_for_tables().print(table)
