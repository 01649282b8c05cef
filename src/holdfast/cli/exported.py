"""Commands about exported models: parity with their original, and the sidecar that says how images reach them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, print_frame, print_table
from holdfast.cli.verb import Device, Labels, Limit, Masks, Outcome, Quiet, Seed

EXIT = {"equivalent": 0, "different": 1, "undecided": 3}


def parity(
    old: Annotated[str, Argument(metavar="A", help="The original model by name (holdfast ls models).")],
    new: Annotated[str, Argument(metavar="B", help="The exported model, such as onnx:model.onnx.")],
    data: Annotated[str, Argument(metavar="DATA", help="Photos: a folder, manifest, COCO file or scheme:name.")],
    out: Annotated[Path, Option(help="The run directory, with the page in parity/; an existing run is continued.")],
    margin: Annotated[
        float, Option(min=0, max=1, help="Difference of accuracies that still counts as equal, 0 to 1.")
    ] = 0.02,
    scenarios: Annotated[
        list[str] | None,
        Option(metavar="A,B,…", help="Conditions (holdfast ls scenarios); static by default.", show_default=False),
    ] = None,
    accuracy: Outcome = "full",
    masks: Masks = None,
    labels: Labels = None,
    limit: Limit = 0,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Say whether an exported model still answers as its original: exit code 0 equivalent, 1 different, 3 undecided."""
    from holdfast import api

    with TerminalProgress(quiet=quiet) as progress:
        answer = api.parity(
            old, new, data, out=out, margin=margin, scenarios=",".join(scenarios or ['static']), outcome=accuracy,  # type: ignore[arg-type]
            masks=None if masks is None else str(masks), labels=None if labels is None else str(labels), limit=limit,
            seed=seed, device=device, progress=progress,
        )  # fmt: skip
    columns = ["condition", "n", "flipped", "flips_low", "flips_high", "old", "new", "low", "high", "verdict"]
    shown = answer.result.conditions[columns]
    print_frame(
        shown.rename(
            columns={"flips_low": "flips from", "flips_high": "flips to", "low": "new − old from", "high": "to"}
        )
    )
    costs = answer.costs.assign(MB=answer.costs["bytes"] / 1e6, ms=answer.costs["milliseconds"])
    print_table(("model", "ms per picture", "MB of weights"), (
        (row["model"], f"{row['ms']:.2f}", f"{row['MB']:.2f}") for row in costs.to_dict("records")
    ))  # fmt: skip
    for note in answer.notes:
        typer.echo(f"Note: {note}")
    typer.echo(answer.result.sentence)
    typer.echo(str(answer.page))
    raise typer.Exit(EXIT[answer.result.verdict])


def sidecar(
    model: Annotated[
        str, Argument(metavar="MODEL", help="A file by name, such as 'onnx:model.onnx?size=224&labels=names.txt'.")
    ],
    like: Annotated[
        str, Option(metavar="MODEL", help="The model that it was exported from; what the name leaves open is its.")
    ] = "",
    device: Device = "auto",
) -> None:
    """Write how images reach an exported model into MODEL.holdfast.toml beside it, where every command reads it."""
    from holdfast import api

    typer.echo(str(api.sidecar(model, like, device=device)))
