"""``holdfast train``: train and test classifiers of one's own within scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import engine_options as engines
from holdfast.cli import training_options as options
from holdfast.cli.progress import TerminalProgress, echo_trouble
from holdfast.core.conditions import condition_name
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list
from holdfast.core.places import shown

if TYPE_CHECKING:
    from holdfast.store import Run

Option = typer.Option


def train(
    data: options.Data,
    architectures: Annotated[
        str, Option(help="Networks by name, separated by commas: timm:resnet50,torchvision:alexnet,embedded:vit_rho95.")
    ],
    out: options.Out,
    masks: options.Masks = None,
    scenarios: options.Scenarios = "static",
    train_on: options.OnWhat = options.TrainOn.each,
    folds: options.Folds = 12,
    train_split: options.TrainSplit = 0.8,
    validation: options.Validation = 0.1,
    recipe: options.Recipe = options.How.fast,
    epochs: options.Epochs = 0,
    batch_size: options.BatchSize = 0,
    size: Annotated[int, Option(min=0, help="Pixels of the square images; 0 keeps the recipe's 224.")] = 0,
    rate: options.Rate = 0.0,
    pretrained: options.Pretrained = False,
    early_stopping: options.EarlyStopping = 0,
    balance: options.Balanced = options.Balance.none,
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
    """Train classifiers on your own classes, within each scenario, fold by fold; holdfast report has the full score."""
    from holdfast.pipeline.train.train import TrainSpec
    from holdfast.pipeline.train.train import train as run_train

    spec = TrainSpec(
        data=data, architectures=tuple(split_list(architectures)), masks=options.text(masks), scenarios=scenarios,
        train_on=train_on.value, folds=folds, train_split=train_split, validation=validation, recipe=recipe.value,
        epochs=epochs, batch_size=batch_size, size=size, rate=rate, pretrained=pretrained,
        early_stopping=early_stopping, balance=balance.value, backgrounds=options.text(backgrounds), feather=feather,
        device=device, workers=engines.count(workers), memory=memory, renderers=renderers, compile=compile, split=split,
        limit=limit, seed=seed, max_pixels=max_pixels, retry_errors=retry_errors,
    )  # fmt: skip
    where = engines.opened(out, engine=engine, address=address, workers=workers, gpus=gpus, cpus=cpus)
    with where as (folder, executor), TerminalProgress(quiet=quiet) as progress:
        run, summary = run_train(spec, folder, progress=progress, executor=executor)
    if not quiet:
        _print_accuracy(run)
    typer.echo(f"{summary.line('rows made')}; {shown(out)}")
    echo_trouble(summary)
    typer.echo(f"{shown(out)}/models holds a folder a job; holdfast report {shown(out)} makes the page")


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
    shown = dict.fromkeys(zip(good["condition"], good["variant"], strict=True))
    for condition, variant in sorted(shown, key=lambda one: one[0] != "original"):
        cells = [
            " / ".join(
                f"{means[key]:.1%}" if (key := (condition, variant, model, within)) in means.index else "–"
                for within in (False, True)
            )
            for model in models
        ]
        table.add_row(condition_name(condition, variant), *cells)
    console_for_tables().print(table)
