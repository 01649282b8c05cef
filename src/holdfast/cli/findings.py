"""Commands that say what a model does: check, report, explain, demo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from holdfast.cli.compare import Baseline, named, refuse_baseline
from holdfast.cli.listing import TerminalProgress, echo_summary, print_frame
from holdfast.cli.share import tell
from holdfast.cli.verb import (
    Average,
    CommandCall,
    Device,
    Labels,
    Limit,
    Masks,
    Outcome,
    Quiet,
    Track,
    choice,
    needs,
    refuse,
    typed,
    verb,
)
from holdfast.core.errors import UserError
from holdfast.core.names import condition_words, split_list
from holdfast.core.numbers import percent
from holdfast.core.types import RESAMPLES
from holdfast.pipeline.specs import ChooseSpec, ExplainSpec

_ROUNDS = "Ask everything (never), or in rounds until the verdict is sure (when-decided)."
Stop = Annotated[str, choice("never", "when-decided", flag="--stop", help=_ROUNDS)]
Runs = Annotated[list[Path], Argument(metavar="RUN...", help="Run directories of one dataset.")]
_CHOICE = "Choosing a model"
Resamples = Annotated[int, Option(min=100, help="Number of bootstrap resamples.")]
BootstrapSeed = Annotated[int, Option(help="Seed of the bootstrap.")]


def check(
    model: Annotated[str, Argument(metavar="MODEL", help="A model by name (holdfast ls models).")],
    photos: Annotated[str, Argument(metavar="PHOTOS", help="A folder with a folder per class, or any data source.")],
    out: Annotated[
        Path | None, Option(help="Where to write; checks/PHOTOS by default. An existing check is continued.")
    ] = None,
    masks: Masks = None,
    labels: Labels = None,
    limit: Limit = 0,
    outcome: Outcome = "full",
    device: Device = "auto",
    boxes: Annotated[
        Path | None,
        Option(help="For a detector: boxes of the images, a COCO file, a CSV, a folder of YOLO or VOC files."),
    ] = None,
    images: Annotated[
        Path | None, Option(help="For a detector: folder of the images that a list of boxes names.")
    ] = None,
    also: Annotated[
        str, Option(metavar="SCENARIOS", show_default=False, help="Further conditions, such as worst_background.")
    ] = "",
    stop: Stop = "never",
    budget: Annotated[
        str,
        Option(
            metavar="AMOUNT",
            show_default=False,
            help="Stop at the latest after 300 (answers), 10min, 90s, or 5@0.002 (money @ price of an answer).",
        ),
    ] = "",
    track: Track = None,
    quiet: Quiet = False,
) -> None:
    """Say whether this model sees the object in these images: masks, every condition, a report and a verdict."""
    from holdfast.checking import check as run_check

    early = stop != "never" or budget  # whose looks are results; others are progress
    with TerminalProgress(quiet=quiet) as progress:
        answer = run_check(
            model, photos, out=out, masks=None if masks is None else str(masks), limit=limit, device=device,
            labels=None if labels is None else str(labels), outcome=outcome, workers=0,
            boxes=None if boxes is None else str(boxes), images=None if images is None else str(images),
            also=also, stop=stop, budget=budget, on_look=typer.echo if early or not quiet else str,
            progress=progress,
        )  # fmt: skip
    for line in answer.lines:
        typer.echo(line)
    typer.echo(str(answer.page))
    if track:
        from holdfast.exchange.tracking import record_run

        tell(track, lambda: record_run(answer.results, answer.page, verdict=str(answer.verdict["headline"])))


def report(
    context: typer.Context,
    runs: Runs,
    out: Annotated[
        Path | None, Option(help="Folder of the page; RUN/report by default (with --choose, RUN/choice).")
    ] = None,
    outcome: Outcome = "full",
    average: Average = "macro",
    resamples: Resamples = RESAMPLES,
    seed: BootstrapSeed = 0,
    votes: Annotated[
        Path | None, Option(help="People's votes on a perturb run's images (review --export): they correct FMR.")
    ] = None,
    between: Annotated[
        bool, Option("--between", help="What models lose from the first run's dataset to those of the others.")
    ] = False,
    baseline: Baseline = None,
    reference: Annotated[
        list[str] | None,
        Option(
            metavar="FACTOR=LEVEL",
            help="Reference level of the regressions: model=NAME, condition=NAME or label=CLASS; may be repeated.",
        ),
    ] = None,
    regression: Annotated[str, Option(help="ols, or poisson for ratios of accuracies.")] = "ols",
    confidence: Annotated[
        float, Option(help="Level of the regressions' intervals, such as 0.9; other intervals stay at 0.95.")
    ] = 0.95,
    digits: Annotated[
        int | None,
        Option(min=0, max=6, help="Digits after the decimal point in the regressions' tables.", show_default=False),
    ] = None,
    families: Annotated[
        str,
        choice("holdfast", "ximagenet12", flag="--families", help="Families of scenarios whose drops are shown."),
    ] = "holdfast",
    score: Annotated[
        str,
        Option(
            help="Parts of the robustness score: cross,inner as published, or the earlier scenario,class with standard "
            "deviations, or scenario,class,variance."
        ),
    ] = "cross,inner",
    score_over: Annotated[
        str,
        Option(
            metavar="A,B,…",
            help="Conditions of the robustness score: static (with generated backgrounds), background (those that "
            "leave the object unchanged), or names of conditions, families and groups.",
        ),
    ] = "static",
    ddof: Annotated[
        int, Option(min=0, max=1, help="Divide the score's sums of squares by n (0) or by n − 1 (1, as printed).")
    ] = 0,
    losses_only: Annotated[
        bool, Option("--losses-only", help="A gain over the originals does not lower the score; as published, it does.")
    ] = False,
    model_groups: Annotated[
        list[str] | None,
        Option(
            metavar="GROUP=PATTERN",
            help="Groups of models for the drop per family, such as CNN=*resnet*; by default known from the names.",
        ),
    ] = None,
    speed: Annotated[
        str | None,
        Option(help="none, measure (loads the models; the default of --choose), or a CSV with the columns "
               "model,milliseconds.", show_default=False),
    ] = None,
    device: Device = "auto",
    by: Annotated[
        list[str] | None, Option(help="Show all numbers by this attribute of the samples; may be repeated.")
    ] = None,
    attributes: Annotated[
        Path | None, Option(help="CSV with attributes for --by: a column path or id, and one for each.")
    ] = None,
    concepts: Annotated[
        bool,
        Option("--concepts", help="Show on which backgrounds models fail: colour, light, grass, sky, attributes …"),
    ] = False,
    choose: Annotated[
        bool,
        Option("--choose", rich_help_panel=_CHOICE,
               help="Say which model to take for your conditions: weighted accuracy with interval, size, speed."),
    ] = False,
    weights: Annotated[list[str] | None, typed(ChooseSpec, "weights", _CHOICE)] = None,
    accuracy_weight: Annotated[float | None, typed(ChooseSpec, "accuracy_weight", _CHOICE)] = None,
    slice_: Annotated[str, typed(ChooseSpec, "slice", _CHOICE)] = "",
    limit_size: Annotated[float | None, typed(ChooseSpec, "limit_size", _CHOICE)] = None,
    limit_time: Annotated[float | None, typed(ChooseSpec, "limit_time", _CHOICE)] = None,
    batch_size: Annotated[int, typed(ChooseSpec, "batch_size", _CHOICE)] = 8,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Write what the numbers mean, as one page that opens from disk."""
    from holdfast import api
    from holdfast.core.votes import read_votes
    from holdfast.reports.page.words import plural
    from holdfast.results import conditions_of_score

    common = {"outcome": outcome, "average": average, "resamples": resamples, "seed": seed, "device": device}
    own = {"weights", "accuracy_weight", "slice_", "limit_size", "limit_time", "batch_size"}
    refuse(context, "--choose", {*common, *own, "runs", "out", "choose", "speed", "attributes"})
    needs(context, "--choose", own)
    if choose:
        options = {
            "weights": ",".join(weights) if weights else None, "accuracy_weight": accuracy_weight, "slice": slice_,
            "limit_size": limit_size, "limit_time": limit_time, "batch_size": batch_size, "speed": speed,
            "attributes": attributes, **common,
        }  # fmt: skip
        _choose(runs, out, {name: value for name, value in options.items() if value is not None}, quiet=quiet)
        return
    if between:
        if votes is not None:
            raise UserError("--votes corrects FMR, which --between does not show: make two reports")
        page = api.report(
            list(runs), out or runs[0] / "between", between=True, outcome=outcome, average=average,
            resamples=resamples, seed=seed, baseline=named(baseline),
        )  # fmt: skip
        typer.echo(str(page))
        return
    refuse_baseline(baseline)
    if score_over != "static":
        names = [condition_words(name) for name in conditions_of_score(list(runs), score_over)]
        typer.echo(f"robustness score over {plural(len(names), 'condition')}: {', '.join(names)}")
    page = api.report(
        list(runs), out or runs[0] / "report", outcome=outcome, average=average, resamples=resamples, seed=seed,
        votes=None if votes is None else read_votes(votes),
        **_analysis(reference, regression, score, families, model_groups), speed=speed or "none", device=device,
        confidence=confidence, digits=digits, score_over=score_over, ddof=ddof,
        losses_only=losses_only,
        by=split_list(",".join(by or ())), attributes=attributes, concepts=concepts,
    )  # fmt: skip
    typer.echo(str(page))


REGRESSIONS = ("ols", "poisson")
SCORES = {
    "cross,inner": "cross_inner", "scenario,class": "scenario_class",
    "scenario,class,variance": "scenario_class_variance",
}  # fmt: skip


def _analysis(
    reference: list[str] | None, regression: str, score: str, families: str, model_groups: list[str] | None
) -> dict[str, Any]:
    """Return the options of a report's regressions, score and groups, as ``api.report`` takes them."""
    if regression not in REGRESSIONS:
        raise UserError(f"--regression must be {' or '.join(REGRESSIONS)}, not {regression!r}")
    if score not in SCORES:
        raise UserError(f"--score must be {' or '.join(SCORES)}, not {score!r}")
    groups: dict[str, list[str]] = {}
    for group, pattern in _pairs("--model-groups", "GROUP=PATTERN", split_list(",".join(model_groups or ()))):
        groups.setdefault(group, []).append(pattern)
    return {
        "references": dict(_pairs("--reference", "FACTOR=LEVEL", reference or [])),
        "regression": regression,
        "score": SCORES[score],
        "families": families,
        "model_groups": groups or None,
    }


def _pairs(option: str, form: str, texts: list[str]) -> list[tuple[str, str]]:
    pairs = [(name.strip(), value.strip()) for name, _, value in (text.partition("=") for text in texts)]
    if not all(name and value for name, value in pairs):
        raise UserError(f"{option} must have the form {form}, not {', '.join(texts)!r}")
    return pairs


def _choose(runs: list[Path], out: Path | None, options: dict[str, Any], *, quiet: bool) -> None:
    """Print which model to take for given conditions."""
    from holdfast import api

    with TerminalProgress(quiet=quiet) as progress:
        chosen = api.choose(list(runs), out=out, progress=progress, **options)
    columns = ["model", "accuracy", "low", "high", "best", "milliseconds", "parameters", "bytes", "front_time"]
    print_frame(chosen.choice.models[columns].rename(columns={"best": "best in", "front_time": "on front"}))
    for sentence in chosen.recommendation.sentences:
        typer.echo(sentence)
    typer.echo(str(chosen.page))


@verb(ExplainSpec, out="")
def explain(
    job: CommandCall[ExplainSpec],
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory of eval, train or segment, with masks.")],
    out: Annotated[Path | None, Option(help="Folder of the page; RUN/explain by default.")] = None,
) -> None:
    """Show where models look: the share of attribution on the object, and how it goes with lost accuracy."""
    from holdfast import api

    with TerminalProgress(quiet=job.quiet) as progress:
        explained = api.explain(run, spec=job.spec, out=out, progress=progress)
    for row in explained.shares.to_dict("records"):
        if row["n"] and row["condition"] == "original":
            trained = f" trained on {row['trained_on']}" if row["trained_on"] else ""
            typer.echo(
                f"{row['model']}{trained}, {row['method']}: {percent(row['share'], 0)} of the map on the foreground, "
                f"which is {percent(row['area'], 0)} of the image ({row['n']} originals)"
            )
    echo_summary(explained.summary, f"{run}/details/attributions")
    typer.echo(str((out or run / "explain") / "index.html"))


def demo(
    out: Annotated[Path, Option(help="Where to write.")] = Path("demo"),
    quick: Annotated[bool, Option("--quick", help="Fewer scenes, no photographs.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure and report drawn scenes and twenty photographs: needs no hub, data or GPU."""
    from holdfast.demo import demo as run_demo

    with TerminalProgress(quiet=quiet) as progress:
        say: Callable[[str], object] = str if quiet else typer.echo
        page = run_demo(out, quick=quick, progress=progress, say=say)
    if not quiet:
        typer.echo("Next, with your own images: holdfast check MODEL photos/ (docs/my-model.md)")
    typer.echo(str(page))
