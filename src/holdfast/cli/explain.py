"""``holdfast explain``: where the models of a run look."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.progress import TerminalProgress, echo_trouble


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of eval, train or segment, with masks.")],
    method: Annotated[
        str,
        typer.Option(
            help="gradcam, integrated_gradients, occlusion, several by comma; with options: gradcam?layer=layer3, "
            "integrated_gradients?steps=64, occlusion?window=32&stride=16."
        ),
    ] = "gradcam",
    limit: Annotated[
        int, typer.Option(min=0, help="At most so many source images, evenly over classes; 0 takes all.")
    ] = 48,
    conditions: Annotated[
        str, typer.Option(help="Of the run's; by default all that keep the object.", show_default=False)
    ] = "",
    target: Annotated[str, typer.Option(help="Explain the true label's score, or the model's prediction.")] = "label",
    randomise: Annotated[
        bool, typer.Option("--randomise", help="Also with shuffled weights: maps must change (sanity check).")
    ] = False,
    cascade: Annotated[
        bool,
        typer.Option(
            "--cascade", help="Also layer by layer from the last one down, on originals; five times the work."
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The folder of the page; RUN/explain by default.")] = None,
    pictures: Annotated[int, typer.Option(min=0, help="Source images whose maps are kept as pictures.")] = 6,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures a pass.")] = 16,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the shuffled weights and the resampling.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Where models look: the share of attribution on the object, and what it has to do with lost accuracy."""
    from holdfast import api

    with TerminalProgress(quiet=quiet) as progress:
        found = api.explain(
            run, out=out, methods=method, limit=limit, conditions=conditions, target=target, randomise=randomise,
            cascade=cascade, pictures=pictures, batch_size=batch_size, device=device, seed=seed, progress=progress,
        )  # fmt: skip
    for row in found.shares.to_dict("records"):
        if row["n"] and row["condition"] == "original":
            trained = f" trained on {row['trained_on']}" if row["trained_on"] else ""
            typer.echo(
                f"{row['model']}{trained}, {row['method']}: {row['share']:.0%} of the map on the foreground, which is "
                f"{row['area']:.0%} of the picture ({row['n']} originals)"
            )
    typer.echo(f"{found.summary.line()}; {run}/details/attributions")
    echo_trouble(found.summary)
    typer.echo(str((out or run / "explain") / "index.html"))
