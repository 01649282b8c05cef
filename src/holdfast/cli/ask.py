"""``holdfast ask``: questions about images, for models that answer in words and for classifiers beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.progress import TerminalProgress, echo_trouble
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list

if TYPE_CHECKING:
    from holdfast.store import Run

Option = typer.Option


def ask(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A folder, manifest, COCO file or scheme:name (holdfast ls data).")
    ],
    models: Annotated[str, Option(help="vlm:, vlm+http: and classifiers, separated by commas (holdfast ls models).")],
    out: Annotated[Path, Option(help="Where to write; a run that is there is continued.")],
    questions: Annotated[str, Option(help="two_way, full_list or both.")] = "two_way,full_list",
    distractor: Annotated[
        str,
        Option(
            help="The model whose best wrong class stands beside the truth, or: questions, as an ImageNet-D folder "
            "says.",
            show_default=False,
        ),
    ] = "",
    both_orders: Annotated[
        bool, Option("--both-orders", help="Ask every two-way question both ways round, not as a coin falls.")
    ] = False,
    letters: Annotated[bool, Option("--letters", help="Options have letters, and a letter is an answer.")] = False,
    template: Annotated[str, Option(help="The words of a question, with {options} in them.", show_default=False)] = "",
    synonyms: Annotated[
        Path | None, Option(help='TOML of other words for classes: dog = ["puppy"].', show_default=False)
    ] = None,
    labels: Annotated[
        Path | None, Option(help="CSV that maps classes to outputs of classifiers.", show_default=False)
    ] = None,
    batch_size: Annotated[int, Option(min=1, help="Questions a forward pass; halved where it fails.")] = 8,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    split: Annotated[str, Option(help="Only samples of this split.", show_default=False)] = "",
    limit: Annotated[int, Option(min=0, help="At most so many source images, evenly over classes; 0: all.")] = 0,
    seed: Annotated[int, Option(help="The order of options follows from it and from the sample's name.")] = 0,
    max_pixels: Annotated[int, Option(min=1, help="Refuse larger images before decoding them.")] = DEFAULT_MAX_PIXELS,
    retry_errors: Annotated[bool, Option("--retry-errors", help="Ask again where there was an error.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Ask models what images show: two-way and full-list questions, every answer counted."""
    from holdfast.pipeline.ask.ask import AskSpec
    from holdfast.pipeline.ask.ask import ask as run_ask

    spec = AskSpec(
        data=data, models=tuple(split_list(models)), questions=tuple(split_list(questions)), distractor=distractor,
        both_orders=both_orders, letters=letters, template=template, synonyms=str(synonyms) if synonyms else None,
        labels=str(labels) if labels else None, batch_size=batch_size, device=device, split=split, limit=limit,
        seed=seed, max_pixels=max_pixels, retry_errors=retry_errors,
    )  # fmt: skip
    with TerminalProgress(quiet=quiet) as progress:
        run, summary = run_ask(spec, out, progress=progress)
    if not quiet:
        _print_questions(run)
    typer.echo(f"{summary.line('asked')}; {out}")
    echo_trouble(summary)


def _print_questions(run: Run) -> None:
    from rich.markup import escape
    from rich.table import Table

    from holdfast.api import Results
    from holdfast.cli.listing import console_for_tables

    found = Results(run).questions()
    titles = ("model", "question", "n", "strict", "lenient", "beyond chance", "position bias", "refused", "unmatched")
    table = Table(*titles, box=None, pad_edge=False)
    for row in found.to_dict("records"):
        table.add_row(
            escape(str(row["model"])), str(row["kind"]), str(row["n"]),
            *(_figure(row, name) for name in ("strict", "lenient", "strict_corrected", "position_bias")),
            f"{row['refusal']:.1%}", f"{row['unmatched']:.1%}",
        )  # fmt: skip
    console_for_tables().print(table)


def _figure(row: dict[Any, Any], name: str) -> str:
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]".replace("[", r"\[")
