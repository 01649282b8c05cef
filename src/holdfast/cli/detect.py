"""``holdfast detect``: can a network tell original, generated and random backgrounds apart?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import training_options as options
from holdfast.cli.progress import TerminalProgress
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list

Option = typer.Option


def detect(
    data: options.Data,
    out: options.Out,
    masks: options.Masks = None,
    generator: Annotated[
        str, Option(help="What paints generated backgrounds (holdfast ls image-makers).", show_default=False)
    ] = "",
    generated: Annotated[
        Path | None,
        Option(help="Instead: what holdfast synth wrote of generated_background and DATA.", show_default=False),
    ] = None,
    prompts: Annotated[
        Path | None, Option(help="TOML with a prompt a class for --generator.", show_default=False)
    ] = None,
    oracle: Annotated[
        str, Option(help="Who must still recognise a painted picture (holdfast ls oracles).", show_default=False)
    ] = "",
    labels: Annotated[
        Path | None, Option(help="CSV with other names of classes, for prompts and oracle.", show_default=False)
    ] = None,
    architectures: Annotated[str, Option(help="Networks by name, separated by commas.")] = "timm:resnet50",
    folds: options.Folds = 5,
    recipe: options.Recipe = options.How.fast,
    epochs: options.Epochs = 0,
    batch_size: options.BatchSize = 0,
    size: Annotated[int, Option(min=0, help="Pixels of the square pictures; 0 keeps the recipe's 224.")] = 0,
    rate: options.Rate = 0.0,
    pretrained: options.Pretrained = False,
    early_stopping: options.EarlyStopping = 0,
    feather: options.Feather = 0.0,
    device: options.Device = "auto",
    split: options.Split = "",
    limit: options.Limit = 0,
    seed: options.Seed = 0,
    max_pixels: options.MaxPixels = DEFAULT_MAX_PIXELS,
    quiet: options.Quiet = False,
) -> None:
    """Train a network to tell original, generated and random backgrounds apart, and see by what it does."""
    from holdfast import api
    from holdfast.pipeline.telltale.detect import LEFT_OUT
    from holdfast.stats.effects.detection import accuracies

    with TerminalProgress(quiet=quiet) as progress:
        found = api.detect(
            data, out=out, masks=masks, generator=generator, generated=generated, prompts=prompts, oracle=oracle,
            labels=labels, architectures=split_list(architectures), folds=folds, recipe=recipe.value, epochs=epochs,
            batch_size=batch_size, size=size, rate=rate, pretrained=pretrained, early_stopping=early_stopping,
            feather=feather, device=device, split=split, limit=limit, seed=seed, max_pixels=max_pixels,
            progress=progress,
        )  # fmt: skip
    for row in accuracies(found.counts).to_dict("records"):
        typer.echo(
            f"{row['model']}: {row['accuracy']:.1%} ({row['low']:.1%} to {row['high']:.1%}) of {row['n']} pictures; "
            "chance is 33.3%"
        )
    left_out = sum(LEFT_OUT in str(one) for one in found.run.samples()["problem"].to_pylist())
    if left_out:
        typer.echo(f"  {left_out} photos are left out, because not all three kinds could be made of them")
    for row in found.counts.trouble.head(10).to_dict("records"):
        typer.echo(f"  {row['n']} × {row['status']}: {row['error']} (first: {row['example']})")
    typer.echo(str(out / "report" / "index.html"))
