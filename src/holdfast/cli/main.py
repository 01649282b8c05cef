"""``holdfast``: one verb a function; heavy modules are imported inside them."""

from __future__ import annotations

import multiprocessing.util
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from holdfast.cli import annotate as annotating
from holdfast.cli import ask as questions
from holdfast.cli import board as leaderboard
from holdfast.cli import bundle as bundling
from holdfast.cli import check, judge
from holdfast.cli import choose as choosing
from holdfast.cli import detect as detecting
from holdfast.cli import engine_options as engines
from holdfast.cli import explain as explaining
from holdfast.cli import export as exporting
from holdfast.cli import generate as generation
from holdfast.cli import mine as mining
from holdfast.cli import modes as failures
from holdfast.cli import perturb as dynamic
from holdfast.cli import plan as planning
from holdfast.cli import remedy as mending
from holdfast.cli import review as reviewing
from holdfast.cli import segment as segmenting
from holdfast.cli import serve as serving
from holdfast.cli import study as studies
from holdfast.cli import train as training
from holdfast.cli import verify as verifying
from holdfast.cli.progress import TerminalProgress, echo_trouble
from holdfast.core.errors import DamageWarning, HoldfastError, UserError, machine_trouble, no_exit
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list
from holdfast.core.places import shown

if TYPE_CHECKING:
    from holdfast.pipeline.jobs.summary import Summary


class _Commands(TyperGroup):
    """The commands, in which nothing but typer itself ends the process."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a model that calls ``sys.exit`` fails it."""
        with no_exit():
            return super().invoke(ctx)


app = typer.Typer(
    name="holdfast",
    cls=_Commands,
    help="Does my vision model see the object, or lean on everything around it?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A folder, manifest, COCO file or scheme:name (holdfast ls data).")
]
Masks = Annotated[Path | None, typer.Option(help="Masks in a tree parallel to the images.", show_default=False)]
Out = Annotated[Path, typer.Option(help="Where to write; a run that is there is continued.")]
Scenarios = Annotated[str, typer.Option(help="Groups, ids, id@variant, id?parameter=value (holdfast ls scenarios).")]
Generator = Annotated[
    str, typer.Option(help="What paints generated_background (holdfast ls image-makers).", show_default=False)
]
Prompts = Annotated[Path | None, typer.Option(help="TOML with a prompt a class for --generator.", show_default=False)]
Oracle = Annotated[
    str, typer.Option(help="Who must still recognise a painted picture (holdfast ls oracles).", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]
Backgrounds = Annotated[Path | None, typer.Option(help="Take donor backgrounds from this folder.", show_default=False)]
Feather = Annotated[float, typer.Option(min=0, help="Soft edges, in pixels; 0 keeps promised pixels bit-identical.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it and from the sample's name.")]
Split = Annotated[str, typer.Option(help="Only samples of this split.", show_default=False)]
Limit = Annotated[int, typer.Option(min=0, help="At most so many source images, evenly over classes; 0 takes all.")]
MaxPixels = Annotated[int, typer.Option(min=1, help="Refuse larger images before decoding them.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit()


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and stop.")
    ] = False,
) -> None:
    pass


@app.command("ls")
def list_things(
    what: Annotated[
        str,
        typer.Argument(
            help="scenarios, models, data, masks, generators, image-makers, oracles, segmenters or studies."
        ),
    ] = "",
) -> None:
    """What there is, one line each."""
    from holdfast.cli.listing import print_listing

    print_listing(what)


@app.command()
def mask(
    data: Data,
    out: Out,
    with_: Annotated[str, typer.Option("--with", help="Mask maker (holdfast ls masks).")] = "u2netp",
    doubtful: Annotated[float, typer.Option(min=0, max=1, help="List masks less sure than this.")] = 0.5,
    limit: Limit = 0,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    workers: engines.Workers = "0",
    engine: engines.Engine = "local",
    address: engines.Address = "",
    gpus: engines.Gpus = 0.0,
    cpus: engines.Cpus = 1.0,
    quiet: Quiet = False,
) -> None:
    """Make masks for photos that have none."""
    from holdfast.pipeline.mask import MaskSpec, make_masks

    spec = MaskSpec(data, limit=limit, max_pixels=max_pixels, annotator=with_, workers=engines.count(workers))
    where = engines.opened(out, engine=engine, address=address, workers=workers, gpus=gpus, cpus=cpus, whole=False)
    with where as (folder, executor), TerminalProgress(quiet=quiet) as progress:
        summary, rows = make_masks(spec, folder, progress=progress, executor=executor)
    _print_summary(summary, f"{shown(out)}/masks.csv")
    unsure = [row for row in rows if row["status"] == "ok" and row["confidence"] < doubtful]
    if unsure:
        typer.echo(f"{len(unsure)} masks to look at (confidence below {doubtful}), worst first:")
        for row in unsure[:20]:
            typer.echo(f"  {row['confidence']:.2f}  {row['path']}")
        if len(unsure) > 20:
            typer.echo(f"  … and {len(unsure) - 20} more in {shown(out)}/masks.csv")


@app.command()
def synth(
    data: Data,
    out: Out,
    masks: Masks = None,
    scenarios: Scenarios = "static",
    backgrounds: Backgrounds = None,
    generator: Generator = "",
    prompts: Prompts = None,
    oracle: Oracle = "",
    labels: Annotated[
        Path | None, typer.Option(help="CSV with other names of classes, for prompts and oracle.", show_default=False)
    ] = None,
    review: Annotated[
        bool, typer.Option("--review", help="Painted pictures that the oracle doubts wait for people, in OUT/review.")
    ] = False,
    review_margin: Annotated[
        float, typer.Option(min=-1, max=1, help="Doubted are those it rejects, or accepts by less than this.")
    ] = 0.2,
    review_votes: Annotated[
        Path | None, typer.Option(help="What people said of them (holdfast review --export).", show_default=False)
    ] = None,
    device: Device = "auto",
    format: Annotated[str, typer.Option(help="png, jpeg, webdataset or parquet.")] = "png",
    quality: Annotated[int, typer.Option(help="JPEG quality.")] = 95,
    layout: Annotated[str, typer.Option(help="plain (a folder a condition) or ximagenet12.")] = "plain",
    verify: Annotated[
        bool, typer.Option("--verify", help="Hash what is there first, and remake what changed.")
    ] = False,
    feather: Feather = 0.0,
    split: Split = "",
    limit: Limit = 0,
    seed: Seed = 0,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    workers: engines.Workers = "0",
    engine: engines.Engine = "local",
    address: engines.Address = "",
    gpus: engines.Gpus = 0.0,
    cpus: engines.Cpus = 1.0,
    quiet: Quiet = False,
) -> None:
    """Write scenario images, their masks and a manifest."""
    from holdfast.pipeline.synth.synth import make_spec
    from holdfast.pipeline.synth.synth import synth as run_synth

    spec = make_spec(
        data=data, masks=_text(masks), backgrounds=_text(backgrounds), split=split, limit=limit, seed=seed,
        max_pixels=max_pixels, scenarios=scenarios, feather=feather, format=format, quality=quality, layout=layout,
        workers=engines.count(workers), verify=verify, generator=generator, prompts=_text(prompts), oracle=oracle,
        labels=_text(labels), device=device, review=review, review_margin=review_margin,
        review_votes=_text(review_votes),
    )  # fmt: skip
    where = engines.opened(
        out, engine=engine, address=address, workers=workers, gpus=gpus, cpus=cpus, whole=verify or spec.review
    )
    with where as (folder, executor), TerminalProgress(quiet=quiet) as progress:
        summary = run_synth(spec, folder, progress=progress, executor=executor)
    _print_summary(summary, f"{shown(out)}/manifest.csv")


@app.command("eval")
def evaluate(
    data: Data,
    models: Annotated[str, typer.Option(help="Models by name, separated by commas (holdfast ls models).")],
    out: Out,
    masks: Masks = None,
    scenarios: Scenarios = "all",
    labels: Annotated[
        Path | None, typer.Option(help="CSV that maps classes to model outputs.", show_default=False)
    ] = None,
    backgrounds: Backgrounds = None,
    generator: Generator = "",
    prompts: Prompts = None,
    oracle: Oracle = "",
    matte: Annotated[
        str, typer.Option(help="Colour behind transparent images: white, black, grey or R,G,B.")
    ] = "white",
    expect_accuracy: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Stop before the scenarios if clean accuracy is off.", show_default=False),
    ] = None,
    feather: Feather = 0.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Images a forward pass; halved when memory runs out.")] = 32,
    device: Device = "auto",
    split: Split = "",
    limit: Limit = 0,
    seed: Seed = 0,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    workers: engines.Workers = "1",
    engine: engines.Engine = "local",
    address: engines.Address = "",
    gpus: engines.Gpus = 0.0,
    cpus: engines.Cpus = 1.0,
    retry_errors: Annotated[bool, typer.Option("--retry-errors", help="Try rows with an error once more.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="One pass in batches on the device; answers differ in the last digits.")
    ] = False,
    compile: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Networks of --fast; else long runs on a GPU.", show_default=False),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run models on images under every condition; writes the table and nothing else."""
    from holdfast.cli.listing import print_accuracy
    from holdfast.pipeline.evaluate.evaluate import EvaluateSpec
    from holdfast.pipeline.evaluate.evaluate import evaluate as run_evaluate
    from holdfast.pipeline.specs import parse_matte

    spec = EvaluateSpec(
        data=data, masks=_text(masks), backgrounds=_text(backgrounds), split=split, limit=limit, seed=seed,
        max_pixels=max_pixels, models=tuple(split_list(models)), scenarios=scenarios, labels=_text(labels),
        feather=feather, matte=parse_matte(matte), batch_size=batch_size, device=device,
        workers=engines.count(workers), expect_accuracy=expect_accuracy, retry_errors=retry_errors,
        generator=generator, prompts=_text(prompts), oracle=oracle, fast=fast, compile=compile,
    )  # fmt: skip
    where = engines.opened(out, engine=engine, address=address, workers=workers, gpus=gpus, cpus=cpus, whole=False)
    with where as (folder, executor), TerminalProgress(quiet=quiet) as progress:
        run, summary = run_evaluate(spec, folder, progress=progress, executor=executor)
    if not quiet:
        print_accuracy(run)
    _print_summary(summary, shown(out))


@app.command()
def leaks(
    first: Annotated[str, typer.Argument(help="A collection, the training images say.")],
    second: Annotated[str, typer.Argument(help="Another, the test images say.")],
    distance: Annotated[
        int, typer.Option(min=0, max=256, help="Bits of 256 that may differ in the same picture.")
    ] = 48,
    flips: Annotated[bool, typer.Option("--flips", help="Find mirrored copies too.")] = False,
    quiet: Quiet = False,
) -> None:
    """Find near-duplicates between two collections."""
    from holdfast.pipeline.leaks import find_leaks

    with TerminalProgress(quiet=quiet) as progress:
        pairs, unread = find_leaks(first, second, distance=distance, flips=flips, progress=progress)
    for one, other, apart in pairs:
        typer.echo(f"{one}\t{other}\t{apart}")
    typer.echo(
        f"{len(pairs)} near-duplicate pairs" + (f"; {unread} images could not be read" if unread else ""), err=True
    )


@app.command()
def split(
    data: Data,
    out: Annotated[Path, typer.Option(help="The manifest to write (.csv or .parquet).")],
    masks: Masks = None,
    test: Annotated[
        float, typer.Option(min=0, max=1, help="Share of sources in the test split, class by class.")
    ] = 0.2,
    folds: Annotated[int, typer.Option(min=0, help="Number of folds; 0 makes none.")] = 0,
    seed: Seed = 0,
) -> None:
    """Write a manifest with a stratified split and folds."""
    from holdfast.pipeline.split import write_split

    counts = write_split(data, out, masks=_text(masks), test_fraction=test, folds=folds, seed=seed)
    typer.echo(", ".join(f"{name}: {count}" for name, count in counts.items()) + f"; {out}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer scenes, no photographs.")] = False,
    quiet: Quiet = False,
) -> None:
    """The embedded world and twenty photographs, measured and reported: no hub, data or GPU needed."""
    from holdfast.demo import demo as run_demo

    with TerminalProgress(quiet=quiet) as progress:
        page = run_demo(out, quick=quick, progress=progress)
    typer.echo(str(page))


@app.command()
def doctor() -> None:
    """What is installed, and how to get what is missing."""
    from holdfast.cli.doctor import print_report

    print_report()


for _verb in (
    check.check, dynamic.perturb, dynamic.sparse, generation.generate, mining.mine, failures.modes, mending.remedy,
    questions.ask, judge.report, judge.compare, judge.audit, studies.study, reviewing.review, serving.serve,
    annotating.annotate, training.train, segmenting.segment, explaining.explain, choosing.choose, detecting.detect,
):  # fmt: skip
    app.command()(_verb)

app.add_typer(leaderboard.app)
app.add_typer(planning.app_of({
    "eval": evaluate, "synth": synth, "perturb": dynamic.perturb, "generate": generation.generate, "mine": mining.mine,
    "mask": mask, "ask": questions.ask, "train": training.train, "segment": segmenting.segment,
    "detect": detecting.detect,
}))  # fmt: skip
app.command()(bundling.bundle)
app.command()(exporting.export)
app.command("open")(bundling.open_)
app.command()(verifying.verify)


def _text(path: Path | None) -> str | None:
    return None if path is None else shown(path)


def _print_summary(summary: Summary, where: str) -> None:
    typer.echo(f"{summary.line()}; {where}")
    for note in summary.notes:
        typer.echo(note)
    echo_trouble(summary)


_INTERRUPTED = 130
_python_shows_warning = warnings.showwarning


def main() -> None:
    """Entry point: user mistakes are one sentence and exit code 2; tracebacks only with --debug."""
    debug = "--debug" in sys.argv[1:]
    if debug:
        sys.argv = [sys.argv[0], *(word for word in sys.argv[1:] if word != "--debug")]
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", DamageWarning)
    try:
        app()
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:  # typer's way of saying Ctrl-C
            _fail("stopped; run the same command again to go on", _INTERRUPTED)
        raise
    except (HoldfastError, OSError) as error:
        if debug:
            raise
        if isinstance(error, BrokenPipeError):
            os._exit(0)
        trouble = None if isinstance(error, (HoldfastError, PermissionError)) else machine_trouble(error)
        if trouble is not None:
            _fail(str(trouble), 1)
        _fail(str(error), 2 if isinstance(error, (UserError, FileNotFoundError, PermissionError)) else 1)
    except Exception as error:
        if debug:
            raise
        trouble = machine_trouble(error)
        if trouble is not None:
            _fail(str(trouble), 1)
        _fail(f"this should not have happened ({type(error).__name__}: {error}); --debug shows where", 1)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **stream: Any) -> None:
    """Print Holdfast's own warnings as sentences, and those of libraries as Python does."""
    if issubclass(category, DamageWarning):
        print(f"holdfast: {message}", file=sys.stderr)
    else:
        _python_shows_warning(message, category, *place, **stream)


def _fail(sentence: str, code: int) -> None:
    print(f"holdfast: {sentence}", file=sys.stderr)
    # Worker processes and prefetching threads must not keep a failed command alive.
    for worker in multiprocessing.active_children():
        worker.terminate()
    # Else the tracker of semaphores complains of what os._exit leaves.
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
