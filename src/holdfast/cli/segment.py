"""``holdfast segment``: train segmenters within scenarios, or test those there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import engine_options as engines
from holdfast.cli import training_options as options
from holdfast.cli.progress import TerminalProgress, echo_trouble
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list
from holdfast.core.places import shown

if TYPE_CHECKING:
    from holdfast.store import Run

Option = typer.Option


def segment(
    data: options.Data,
    out: options.Out,
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
    masks: options.Masks = None,
    scenarios: options.Scenarios = "static",
    train_on: options.OnWhat = options.TrainOn.each,
    folds: options.Folds = 12,
    train_split: options.TrainSplit = 0.8,
    validation: options.Validation = 0.1,
    recipe: options.Recipe = options.How.fast,
    epochs: options.Epochs = 0,
    batch_size: options.BatchSize = 0,
    size: Annotated[int, Option(min=0, help="Pixels of the square pictures, also in the test; 0 is 256.")] = 0,
    rate: options.Rate = 0.0,
    pretrained: options.Pretrained = False,
    early_stopping: options.EarlyStopping = 0,
    balance: options.Balanced = options.Balance.none,
    labels: Annotated[
        Path | None, Option(help="CSV that maps classes to the outputs of --models.", show_default=False)
    ] = None,
    backgrounds: options.Backgrounds = None,
    feather: options.Feather = 0.0,
    device: options.Device = "auto",
    workers: engines.Workers = "1",
    engine: engines.Engine = "local",
    address: engines.Address = "",
    gpus: engines.Gpus = 0.0,
    cpus: engines.Cpus = 1.0,
    memory: options.Memory = 0.0,
    renderers: options.Renderers = 0,
    compile: options.Compile = False,
    split: options.Split = "",
    limit: options.Limit = 0,
    seed: options.Seed = 0,
    max_pixels: options.MaxPixels = DEFAULT_MAX_PIXELS,
    retry_errors: options.RetryErrors = False,
    quiet: options.Quiet = False,
) -> None:
    """Segment objects under every scenario, by models of yours or trained here: mean IoU, right pixels, boundaries."""
    from holdfast.pipeline.segment.segment import SegmentSpec
    from holdfast.pipeline.segment.segment import segment as run_segment

    spec = SegmentSpec(
        data=data, masks=options.text(masks), backgrounds=options.text(backgrounds), split=split, limit=limit,
        seed=seed, max_pixels=max_pixels, architectures=tuple(split_list(architectures)),
        models=tuple(split_list(models)), scenarios=scenarios, folds=folds, train_split=train_split,
        validation=validation, train_on=train_on.value,
        recipe=recipe.value, epochs=epochs, batch_size=batch_size, size=size, rate=rate, pretrained=pretrained,
        early_stopping=early_stopping, balance=balance.value, labels=options.text(labels), feather=feather,
        device=device, workers=engines.count(workers), memory=memory, renderers=renderers, compile=compile,
        retry_errors=retry_errors,
    )  # fmt: skip
    where = engines.opened(out, engine=engine, address=address, workers=workers, gpus=gpus, cpus=cpus)
    with where as (folder, executor), TerminalProgress(quiet=quiet) as progress:
        run, summary = run_segment(spec, folder, progress=progress, executor=executor)
    if not quiet:
        _print_segments(run)
    typer.echo(f"{summary.line('rows made')}; {shown(out)}")
    echo_trouble(summary)
    typer.echo(f"holdfast report {shown(out)} makes the page")


def _print_segments(run: Run) -> None:
    """Mean IoU by condition and model."""
    from rich.table import Table

    from holdfast.cli.listing import console_for_tables
    from holdfast.pipeline.segment.testing import details
    from holdfast.stats.effects.segments import COLUMNS, experiments, measured, segments

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
