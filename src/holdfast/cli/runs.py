"""Commands that make a run, a table of rows: eval, ask, train, segment, perturb."""

from __future__ import annotations

import shlex
from collections.abc import Hashable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from holdfast.cli.listing import echo_summary, print_table
from holdfast.cli.share import tell
from holdfast.cli.verb import OUT, CommandCall, Track, choice, needs, refuse, verb
from holdfast.core.errors import UserError
from holdfast.core.numbers import estimate, number, percent, span
from holdfast.core.places import address
from holdfast.core.schema import CLASSIFY, DETECT, EMBED, MULTILABEL
from holdfast.pipeline.specs import AskSpec, EvaluateSpec, PerturbSpec, SegmentSpec, TrainSpec

if TYPE_CHECKING:
    from holdfast.cli.live_page import LivePage
    from holdfast.pipeline.jobs.progress import Summary
    from holdfast.store import Run

_SPARSE = "Sparse walks"
_LATENTS = "--find-sparse compares the encoder's latents (paper), or quantised ones (matched), with the ends of walks."
Latents = Annotated[str, choice("paper", "matched", flag="--latents", help=_LATENTS, panel=_SPARSE)]


@verb(EvaluateSpec, engine=True, otherwise="runs")
def evaluate(
    job: CommandCall[EvaluateSpec],
    track: Track = None,
    open_: Annotated[
        bool, Option("--open", help="Open the report's page in a browser, and update it while rows arrive.")
    ] = False,
) -> None:
    """Run models on images under every condition; writes the table, and with --open the report."""
    from holdfast.cli.listing import print_accuracy, print_outcomes, print_recall
    from holdfast.pipeline.evaluate.evaluate import evaluate as run_evaluate

    if open_ and address(job.out):
        raise UserError(f"--open serves a page of this disk, and {job.where} is in a store; leave --open out")
    with (
        job.running(whole=False) as (folder, executor, progress),
        _shown(folder, quiet=job.quiet) if open_ else nullcontext(),
    ):
        run, summary = run_evaluate(job.spec, folder, progress=progress, executor=executor)
    if not job.quiet:
        printing = {CLASSIFY: print_accuracy, DETECT: print_recall, MULTILABEL: _print_labels, EMBED: _print_embedding}
        printing.get(run.spec().get("task", CLASSIFY), print_outcomes)(run)
        asked, stored = summary.rows + summary.already, run.predictions.dataset().count_rows()
        if stored > asked:
            typer.echo(f"This table is of the whole run, {stored:,} rows; this command asked for {asked:,} of them.")
    echo_summary(summary, job.where)
    if track:
        from holdfast.exchange.tracking import record_run
        from holdfast.results import Results

        tell(track, lambda: record_run(Results(run), Results(run).report()))
    if not job.quiet:
        typer.echo(folder / "report" / "index.html" if open_ else f"Next: holdfast report {shlex.quote(job.where)}")


def _shown(folder: Path, *, quiet: bool) -> LivePage:
    """Return the page of a run, which is made again while rows arrive."""
    from holdfast.cli.live_page import LivePage
    from holdfast.results import Results
    from holdfast.store import Run

    page = LivePage(folder / "report", lambda: Results(Run.open(folder)).report())
    if not quiet:
        typer.echo(f"The page is at {page.url} until the command ends.")
    return page


def _print_labels(run: Run) -> None:
    """Print what every condition costs each label."""
    from holdfast.results import Results

    rows = Results(run).labels().to_dict("records")
    print_table(("label", "condition", "model", "right before", "after", "lost"), (
        (row["label"], row["condition"], row["model"], percent(row['original']), percent(row['accuracy']),
         f"{number(100 * row['drop'], 1)} ({span(row['low'], row['high'])})") for row in rows
    ), title="labels: mean of yes if they are there and no if not")  # fmt: skip


def _print_embedding(run: Run) -> None:
    """Print what the variance of the embeddings is due to."""
    from holdfast.results import Results

    rows = Results(run).embedding().to_dict("records")
    shares = ("object", "background", "residual", "nearest_background")
    print_table(("model", "object", "background", "neither alone", "nearest shares the background"), (
        (row["model"], *(estimate(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in shares))
        if not row["reason"] else (row["model"], row["reason"], *[""] * 3) for row in rows
    ), title="Shares of the variance of embeddings, with 95 % intervals")  # fmt: skip


@verb(AskSpec, without=("masks", "backgrounds"))
def ask(job: CommandCall[AskSpec]) -> None:
    """Ask models what images show, in two-way and full-list questions; every answer counts."""
    from holdfast.cli.listing import TerminalProgress
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
            percent(row['refusal']), percent(row['unmatched']),
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
    from holdfast.results import Results

    rows = Results(run).accuracy().to_dict("records")
    cells = {
        (row["condition"], row["model"], str(row["trained_on"]) != "original"): percent(row["accuracy"]) for row in rows
    }
    conditions, models = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
    if cells:
        print_table(("condition", *models), (
            (name, *(" / ".join(cells.get((name, model, within), "–") for within in (False, True)) for model in models))
            for name in conditions
        ), title="accuracy, mean over the classes: trained on originals / within the condition")  # fmt: skip


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
    from holdfast.stats.effects.segments import COLUMNS, experiments, measured, segments

    frame = measured(run.rows(COLUMNS), run.details("segments").rows())
    if frame.empty:
        return
    shares = segments(experiments(frame), resamples=2).set_index(["condition", "model"])["miou"]
    models = list(dict.fromkeys(shares.index.get_level_values("model")))
    conditions = dict.fromkeys(shares.index.get_level_values("condition"))
    print_table(("condition", *models), (
        (name, *(percent(shares[name, model]) if (name, model) in shares.index else "–" for model in models))
        for name in sorted(conditions, key=lambda name: name != "original")
    ), title="mean IoU")  # fmt: skip


MEASURES = {
    "standard_accuracy": "SA, accuracy on the originals",
    "validation_rate": "VR, share the oracle accepts",
    "perturbed_accuracy": "PA, accuracy on accepted images",
    "fmr": "FMR = PA / SA",
    "fmr_low": "  if all rejected were wrong",
    "fmr_high": "  if all rejected were right",
    "fmr_algorithm1": "  rejected as before the walk",
    "fmr_matched": "  over SA of the accepted",
    "reconstruction": "accuracy without a step",
    "reconstruction_ratio": "  over SA",
    "random_walk": "accuracy after random walks",
    "random_walk_ratio": "  over SA",
}


@verb(PerturbSpec, out="", engine=True, without=("masks", "backgrounds"))
def perturb(
    job: CommandCall[PerturbSpec],
    context: typer.Context,
    out: Annotated[Path | None, Option(help=OUT)] = None,
    publish: Annotated[
        Path | None,
        Option(help="Write the validated images as a benchmark folder with hashes; alone, DATA is a finished run."),
    ] = None,
    find_sparse: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            rich_help_panel=_SPARSE,
            help="Write the part of the latent that walks move (.safetensors); DATA is a run made with --keep-latents.",
        ),
    ] = None,
    latents: Latents = "paper",
    strength: Annotated[
        float,
        Option(
            rich_help_panel=_SPARSE,
            help="Strength of the L1 penalty of --find-sparse: 1/C of scikit-learn's logistic regression.",
        ),
    ] = 36.36,
    compare_sparse: Annotated[
        Path | None,
        Option(metavar="FILE", rich_help_panel=_SPARSE, help="Print how far this mask and DATA, another one, overlap."),
    ] = None,
) -> None:
    """Push images against each model as far as an oracle still sees their class: SA, PA, VR and FMR."""
    spec = job.spec
    refuse(context, "--find-sparse", {"data", "find_sparse", "latents", "strength", "models", "seed"})
    refuse(context, "--compare-sparse", {"data", "compare_sparse"})
    needs(context, "--find-sparse", {"latents", "strength"})
    if compare_sparse is not None:
        _compare_sparse(Path(spec.data), compare_sparse)
        return
    if find_sparse is not None:
        _find_sparse(spec, find_sparse, latents, strength)
        return
    if publish is not None and not (spec.models or spec.generator or spec.oracle):
        _publish(Path(spec.data), publish)
        return
    if out is None:
        raise UserError("say where the run goes: --out RUN")
    from holdfast.pipeline.walk.perturb import perturb as run_perturb
    from holdfast.pipeline.walk.resources import kin_warnings

    spec = replace(spec, keep_images=spec.keep_images or publish is not None)
    with replace(job, out=out).running() as (folder, executor, progress):
        run, summary = run_perturb(spec, folder, progress=progress, executor=executor)
    _print_run(run, summary, kin_warnings(spec))
    if publish is not None:
        _publish(folder, publish)


def _find_sparse(spec: PerturbSpec, out: Path, latents: str, strength: float) -> None:
    """Write the part of the latent that the walks of a run move."""
    from holdfast.pipeline.walk.sparse import fit_sparse, write_mask
    from holdfast.store import Run

    if len(spec.models) > 1:
        raise UserError("--find-sparse reads the walks of all models of the run, or of one: give one with --models")
    mask = fit_sparse(
        Run.open(spec.data), labels=latents, strength=strength, model=next(iter(spec.models), None), seed=spec.seed
    )
    write_mask(mask, out)
    facts = mask.facts
    typer.echo(
        f"{facts['kept']} of {facts['dimensions']} dimensions kept (sparsity {percent(facts['sparsity'], 2)}) from "
        f"{facts['images']} walks, {facts['labels']} labels, C = 1/{facts['strength']:g}; "
        f"test score {percent(facts['test_score'])}; {out}"
    )


def _compare_sparse(first: Path, second: Path) -> None:
    """Print how far two masks overlap."""
    from holdfast.pipeline.walk.sparse import overlap, read_mask

    shared = overlap(read_mask(first), read_mask(second))
    typer.echo(
        f"{shared['kept_by_both']:.0f} dimensions of {shared['dimensions']:.0f} are kept by both, "
        f"{shared['kept_first']:.0f} by the first, {shared['kept_second']:.0f} by the second: "
        f"Jaccard {shared['jaccard']:.3f}, by chance {shared['by_chance']:.3f}"
    )


def _publish(run: Path, out: Path) -> None:
    from holdfast.pipeline.walk.publish import publish
    from holdfast.store import Run

    count = publish(Run.open(run), out)
    typer.echo(f"{count} images published; holdfast eval {out} reads them and checks their hashes")


def _print_run(run: Run, summary: Summary, warnings: list[str]) -> None:
    setting = run.spec()["parameters"]
    typer.echo(
        f"label spaces: loss {setting['loss_space']}, oracle {setting['oracle_space']}, reported accuracy "
        f"{setting['space']}; images of {setting['size']} × {setting['size']} pixels"
    )
    for sentence in warnings:
        typer.echo(f"warning: {sentence}")
    _print_fmr(run)
    echo_summary(summary, str(run.path))


def _print_fmr(run: Run) -> None:
    """Print the FMR family of the run's last setting: a column per model, with 95 % intervals."""
    from holdfast.core.fingerprint import canonical_json
    from holdfast.stats.walks.walk_rows import COLUMNS, fmr_of_walks, paired

    walks = paired(run.rows(COLUMNS))
    walks = walks[walks["parameters"] == canonical_json(run.spec()["parameters"])]
    if walks.empty:
        typer.echo("no image could be walked, so there is no SA, PA, VR or FMR")
        return
    table = fmr_of_walks(walks)
    models = sorted(set(table["model"]))
    cells = {(row["model"], row["measure"]): row for row in table[table["label"] == ""].to_dict("records")}
    print_table(("", *models), (
        (words, *(_cell(cells.get((model, measure))) for model in models))
        for measure, words in MEASURES.items()
        if any((model, measure) in cells for model in models)
    ))  # fmt: skip
    for model in models:
        if cells[model, "fmr"]["reason"]:
            typer.echo(f"{model} has no FMR: {cells[model, 'fmr']['reason']}")


def _cell(row: dict[Hashable, Any] | None) -> str:
    if row is None:
        return ""
    if row["reason"]:
        return f"none: {row['reason']}"
    interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
    return f"{row['estimate']:.3f} {interval}, {row['numerator']} of {row['denominator']}"
