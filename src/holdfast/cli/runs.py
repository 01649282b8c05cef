"""Commands that make a run, a table of rows: eval, ask, train, segment, detect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.listing import print_table
from holdfast.cli.progress import echo_summary
from holdfast.cli.verb import CommandCall, verb
from holdfast.pipeline.specs import AskSpec, DetectSpec, EvaluateSpec, SegmentSpec, TrainSpec

if TYPE_CHECKING:
    from holdfast.store import Run


@verb(EvaluateSpec, engine=True)
def evaluate(job: CommandCall[EvaluateSpec]) -> None:
    """Run models on images under every condition; writes the table and nothing else."""
    from holdfast.cli.listing import print_accuracy
    from holdfast.pipeline.evaluate.evaluate import evaluate as run_evaluate

    with job.running(whole=False) as (folder, executor, progress):
        run, summary = run_evaluate(job.spec, folder, progress=progress, executor=executor)
    if not job.quiet:
        print_accuracy(run)
    echo_summary(summary, job.where)


@verb(AskSpec, without=("masks", "backgrounds"))
def ask(job: CommandCall[AskSpec]) -> None:
    """Ask models what images show, in two-way and full-list questions; every answer counts."""
    from holdfast.cli.progress import TerminalProgress
    from holdfast.pipeline.ask.ask import ask as run_ask

    with TerminalProgress(quiet=job.quiet) as progress:
        run, summary = run_ask(job.spec, job.out, progress=progress)
    if not job.quiet:
        _print_questions(run)
    echo_summary(summary, str(job.out), "asked")


def _print_questions(run: Run) -> None:
    from holdfast.api import Results

    def figure(row: dict[Any, Any], name: str) -> str:
        return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"

    titles = ("model", "question", "n", "strict", "lenient", "beyond chance", "position bias", "refused", "unmatched")
    print_table(titles, (
        (
            row["model"], row["kind"], row["n"],
            *(figure(row, name) for name in ("strict", "lenient", "strict_corrected", "position_bias")),
            f"{row['refusal']:.1%}", f"{row['unmatched']:.1%}",
        )
        for row in Results(run).questions().to_dict("records")
    ))  # fmt: skip


@verb(TrainSpec, engine=True)
def train(job: CommandCall[TrainSpec]) -> None:
    """Train classifiers on your own classes, within each scenario, fold by fold; holdfast report has the full score."""
    from holdfast.pipeline.train.train import train as run_train

    with job.running() as (folder, executor, progress):
        run, summary = run_train(job.spec, folder, progress=progress, executor=executor)
    if not job.quiet:
        _print_trained(run)
    echo_summary(summary, job.where, "rows made")
    typer.echo(f"{job.where}/models holds a folder per job; holdfast report {job.where} makes the page")


def _print_trained(run: Run) -> None:
    """Print accuracy by condition: trained on originals, and trained within the condition."""
    from holdfast.core.conditions import condition_name

    rows = run.rows(["condition", "variant", "model", "trained_on", "status", "correct"]).to_pandas()
    good = rows[rows["status"] == "ok"].astype({"condition": str, "variant": str, "model": str, "trained_on": str})
    if good.empty:
        return
    good["within"] = good["trained_on"] != "original"
    means = good.groupby(["condition", "variant", "model", "within"])["correct"].mean()
    models = list(dict.fromkeys(good["model"]))
    conditions = dict.fromkeys(zip(good["condition"], good["variant"], strict=True))

    def cell(*key: object) -> str:
        return f"{means[key]:.1%}" if key in means.index else "–"

    print_table(("condition", *models), (
        (condition_name(name, variant), *(f"{cell(name, variant, model, False)} / {cell(name, variant, model, True)}"
                                          for model in models))
        for name, variant in sorted(conditions, key=lambda pair: pair[0] != "original")
    ), title="accuracy: trained on originals / within the condition")  # fmt: skip


@verb(SegmentSpec, engine=True)
def segment(job: CommandCall[SegmentSpec]) -> None:
    """Segment objects under every scenario, by models of yours or trained here: mean IoU, right pixels, boundaries."""
    from holdfast.pipeline.segment.segment import segment as run_segment

    with job.running() as (folder, executor, progress):
        run, summary = run_segment(job.spec, folder, progress=progress, executor=executor)
    if not job.quiet:
        _print_segments(run)
    echo_summary(summary, job.where, "rows made")
    typer.echo(f"holdfast report {job.where} makes the page")


def _print_segments(run: Run) -> None:
    """Print mean IoU by condition and model."""
    from holdfast.pipeline.segment.testing import details
    from holdfast.stats.effects.segments import COLUMNS, experiments, measured, segments

    frame = measured(run.rows(COLUMNS), details(run.path).rows())
    if frame.empty:
        return
    shares = segments(experiments(frame), resamples=2).set_index(["condition", "model"])["miou"]
    models = list(dict.fromkeys(shares.index.get_level_values("model")))
    conditions = dict.fromkeys(shares.index.get_level_values("condition"))
    print_table(("condition", *models), (
        (name, *(f"{shares[name, model]:.1%}" if (name, model) in shares.index else "–" for model in models))
        for name in sorted(conditions, key=lambda name: name != "original")
    ), title="mean IoU")  # fmt: skip


@verb(DetectSpec, without=("backgrounds", "train_split", "validation", "balance", "memory", "renderers", "compile",
                           "retry_errors"))  # fmt: skip
def detect(job: CommandCall[DetectSpec]) -> None:
    """Train a network to tell original, generated and random backgrounds apart, and see how it does so."""
    from holdfast import api
    from holdfast.cli.progress import TerminalProgress
    from holdfast.pipeline.telltale.detect import LEFT_OUT
    from holdfast.stats.effects.detection import accuracies

    with TerminalProgress(quiet=job.quiet) as progress:
        results = api.detect(spec=job.spec, out=job.out, progress=progress)
    for row in accuracies(results.counts).to_dict("records"):
        typer.echo(
            f"{row['model']}: {row['accuracy']:.1%} ({row['low']:.1%} to {row['high']:.1%}) of {row['n']} pictures; "
            "chance is 33.3%"
        )
    left_out = sum(LEFT_OUT in str(problem) for problem in results.run.samples()["problem"].to_pylist())
    if left_out:
        typer.echo(f"  {left_out} photos are left out, because not all three kinds could be made of them")
    for row in results.counts.trouble.head(10).to_dict("records"):
        typer.echo(f"  {row['n']} × {row['status']}: {row['error']} (first: {row['example']})")
    typer.echo(str(job.out / "report" / "index.html"))
