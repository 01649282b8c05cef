"""``holdfast perturb`` and ``holdfast sparse``: dynamic evaluation."""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import engine_options as engines
from holdfast.cli.progress import TerminalProgress, echo_trouble
from holdfast.core.errors import UserError
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list

if TYPE_CHECKING:
    from holdfast.pipeline.jobs.summary import Summary
    from holdfast.store import Run


class Space(StrEnum):
    """Who competes."""

    dataset = "dataset"
    all = "all"


class Gradient(StrEnum):
    """The form of a step."""

    sign = "sign"
    normalised = "normalised"
    raw = "raw"
    adam = "adam"


class Loss(StrEnum):
    """What a walk climbs."""

    cross_entropy = "cross_entropy"
    margin = "margin"


class First(StrEnum):
    """The first image that the oracle decides on."""

    step = "step"
    reconstruction = "reconstruction"


class Start(StrEnum):
    """Where a walk begins."""

    clean = "clean"
    fgsm = "fgsm"


class Direction(StrEnum):
    """Which way."""

    loss = "loss"
    random = "random"


class Precision(StrEnum):
    """Of generator, model and oracle."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class Labels(StrEnum):
    """Whether the originals' latents are quantised like the walks' ends."""

    paper = "paper"
    matched = "matched"


Option = typer.Option
Data = Annotated[str, typer.Argument(metavar="DATA", help="A dataset; with --publish alone, a finished run.")]
Models = Annotated[str, Option(help="Models under test, separated by commas (holdfast ls models).", show_default=False)]
Generator = Annotated[str, Option(help="What makes images of latents (holdfast ls generators).", show_default=False)]
Oracle = Annotated[str, Option(help="Who says how far (holdfast ls oracles).", show_default=False)]
Out = Annotated[Path | None, Option(help="The run directory; one that is there is continued.", show_default=False)]
Steps = Annotated[int, Option(min=1, help="The budget of a walk.")]
StepSize = Annotated[float, Option(help="How far a step moves the latent.")]
ChosenSpace = Annotated[
    Space, Option(help="Loss, oracle and reported accuracy among the dataset's classes, or over all outputs.")
]
LossSpace = Annotated[Space | None, Option(help="Another space for the loss.", show_default=False)]
OracleSpace = Annotated[Space | None, Option(help="Another space for the oracle.", show_default=False)]
Size = Annotated[
    int, Option(min=0, help="Pixels a side; 0: the generator's own, or the first image's short side, 256 at most.")
]
LabelFile = Annotated[Path | None, Option(help="CSV that maps classes to model outputs.", show_default=False)]
GradientForm = Annotated[Gradient, Option(help="The form of a step.")]
LossKind = Annotated[Loss, Option(help="What the walk climbs.")]
FirstImage = Annotated[First, Option(help="The first image the oracle decides on.")]
StartFrom = Annotated[Start, Option(help="Begin at the image, or at one that an FGSM step has changed.")]
Epsilon = Annotated[float, Option(help="Length of that FGSM step, 0 to 1.")]
Way = Annotated[Direction, Option(help="Up the loss, or one random direction an image.")]
StopWhenFooled = Annotated[bool, Option("--stop-when-fooled", help="End at the first accepted wrong answer.")]
BlackBox = Annotated[int, Option(min=0, help="Probes a step, for models without gradients; 0 follows gradients.")]
ProbeSize = Annotated[float, Option(help="Spread of these probes in the latent.")]
ChosenPrecision = Annotated[Precision, Option(help="Of generator, model and oracle.")]
Compile = Annotated[bool, Option("--compile", help="Compile the step: for many images on a GPU.")]
BatchSize = Annotated[int, Option(min=1, help="Images that walk at a time.")]
Deterministic = Annotated[bool, Option("--deterministic", help="One image at a time: exact to the last bit.")]
RandomWalk = Annotated[bool, Option("--random-walk/--no-random-walk", help="Walk as far in a random direction, too.")]
KeepImages = Annotated[bool, Option("--keep-images", help="Keep perturbed images, with a manifest.")]
KeepLatents = Annotated[bool, Option("--keep-latents", help="Keep both ends of walks, for holdfast sparse.")]
Frames = Annotated[int, Option(min=0, help="Keep the first so many walks a model image by image.")]
Sparse = Annotated[Path | None, Option(help="Move only what this mask allows (holdfast sparse).", show_default=False)]
Publish = Annotated[
    Path | None, Option(help="Write the validated images as a benchmark folder with hashes.", show_default=False)
]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")]
Split = Annotated[str, Option(help="Only samples of this split.", show_default=False)]
Limit = Annotated[int, Option(min=0, help="At most so many source images, evenly over classes; 0 takes all.")]
Seed = Annotated[int, Option(help="Everything random follows from it and from the sample's name.")]
MaxPixels = Annotated[int, Option(min=1, help="Refuse larger images before decoding them.")]
RetryErrors = Annotated[bool, Option("--retry-errors", help="Try rows with an error once more.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")]


def perturb(
    data: Data,
    models: Models = "",
    generator: Generator = "",
    oracle: Oracle = "",
    out: Out = None,
    steps: Steps = 50,
    step_size: StepSize = 0.001,
    space: ChosenSpace = Space.dataset,
    loss_space: LossSpace = None,
    oracle_space: OracleSpace = None,
    size: Size = 0,
    labels: LabelFile = None,
    gradient: GradientForm = Gradient.sign,
    loss: LossKind = Loss.cross_entropy,
    first: FirstImage = First.step,
    start: StartFrom = Start.clean,
    fgsm_epsilon: Epsilon = 0.003,
    direction: Way = Direction.loss,
    stop_when_fooled: StopWhenFooled = False,
    black_box: BlackBox = 0,
    probe_size: ProbeSize = 0.05,
    precision: ChosenPrecision = Precision.float32,
    compile: Compile = False,
    batch_size: BatchSize = 16,
    deterministic: Deterministic = False,
    random_walk: RandomWalk = True,
    sparse: Sparse = None,
    keep_images: KeepImages = False,
    keep_latents: KeepLatents = False,
    frames: Frames = 0,
    publish: Publish = None,
    device: Device = "auto",
    workers: engines.Workers = "1",
    engine: engines.Engine = "local",
    address: engines.Address = "",
    gpus: engines.Gpus = 0.0,
    cpus: engines.Cpus = 1.0,
    split: Split = "",
    limit: Limit = 0,
    seed: Seed = 0,
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    retry_errors: RetryErrors = False,
    quiet: Quiet = False,
) -> None:
    """Push images against each model as far as an oracle still sees their class: SA, PA, VR and FMR."""
    if publish is not None and not (models or generator or oracle):
        _publish(Path(data), publish)
        return
    if out is None:
        raise UserError("say where the run goes: --out RUN")
    from holdfast.pipeline.walk.perturb import PerturbSpec, WalkOptions
    from holdfast.pipeline.walk.perturb import perturb as run_perturb
    from holdfast.pipeline.walk.resources import kin_warnings

    walk = WalkOptions(
        steps=steps, step_size=step_size, gradient=gradient.value, loss=loss.value, first=first.value,
        start=start.value, fgsm_epsilon=fgsm_epsilon, direction=direction.value, stop_when_fooled=stop_when_fooled,
        black_box=black_box, probe_size=probe_size, precision=precision.value, compile=compile,
        batch_size=batch_size, deterministic=deterministic,
    )  # fmt: skip
    spec = PerturbSpec(
        data=data, split=split, limit=limit, seed=seed, max_pixels=max_pixels, models=tuple(split_list(models)),
        generator=generator, oracle=oracle, labels=_text(labels), space=space.value,
        loss_space=loss_space.value if loss_space else "", oracle_space=oracle_space.value if oracle_space else "",
        size=size, sparse=_text(sparse), random_walk=random_walk, keep_images=keep_images or publish is not None,
        keep_latents=keep_latents, frames=frames, device=device, retry_errors=retry_errors, walk=walk,
    )  # fmt: skip
    where = engines.opened(out, engine=engine, address=address, workers=workers, gpus=gpus, cpus=cpus)
    with where as (folder, executor), TerminalProgress(quiet=quiet) as progress:
        run, summary = run_perturb(spec, folder, progress=progress, executor=executor)
    _print_run(run, summary, kin_warnings(spec))
    if publish is not None:
        _publish(folder, publish)


def sparse(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A dense run made with --keep-latents.")] = None,
    out: Annotated[Path | None, Option(help="The mask to write (.safetensors).", show_default=False)] = None,
    labels: Annotated[
        Labels, Option(help="Compare the encoder's latents, or quantised ones, with walks' ends.")
    ] = Labels.paper,
    strength: Annotated[float, Option(help="Of the L1 penalty: 1/C of scikit-learn's logistic regression.")] = 36.36,
    model: Annotated[str | None, Option(help="Only walks against this model.", show_default=False)] = None,
    seed: Seed = 0,
    compare: Annotated[
        tuple[Path, Path] | None, Option(metavar="A B", help="The overlap of two masks.", show_default=False)
    ] = None,
) -> None:
    """Find the part of the latent that walks move, for perturb --sparse."""
    from holdfast.pipeline.walk.sparse import fit_sparse, overlap, read_mask, write_mask
    from holdfast.store import Run

    if compare is not None:
        found = overlap(*(read_mask(path) for path in compare))
        typer.echo(
            f"{found['kept_by_both']:.0f} dimensions of {found['dimensions']:.0f} are kept by both, "
            f"{found['kept_first']:.0f} by the first, {found['kept_second']:.0f} by the second: "
            f"Jaccard {found['jaccard']:.3f}, by chance {found['by_chance']:.3f}"
        )
        return
    if run is None or out is None:
        raise UserError("name a run and where the mask goes: holdfast sparse RUN --out mask.safetensors")
    mask = fit_sparse(Run.open(run), labels=labels.value, strength=strength, model=model, seed=seed)
    write_mask(mask, out)
    facts = mask.facts
    typer.echo(
        f"{facts['kept']} of {facts['dimensions']} dimensions kept (sparsity {facts['sparsity']:.2%}) from "
        f"{facts['images']} walks, {facts['labels']} labels, C = 1/{facts['strength']:g}; "
        f"test score {facts['test_score']:.1%}; {out}"
    )


def _publish(run: Path, out: Path) -> None:
    from holdfast.pipeline.walk.publish import publish
    from holdfast.store import Run

    count = publish(Run.open(run), out)
    typer.echo(f"{count} images published; holdfast eval {out} reads them and checks their hashes")


def _print_run(run: Run, summary: Summary, warnings: list[str]) -> None:
    told = run.spec()["parameters"]
    typer.echo(
        f"label spaces: loss {told['loss_space']}, oracle {told['oracle_space']}, reported accuracy {told['space']}; "
        f"images of {told['size']} × {told['size']} pixels"
    )
    for sentence in warnings:
        typer.echo(f"warning: {sentence}")
    _print_fmr(run)
    typer.echo(f"{summary.line()}; {run.path}")
    echo_trouble(summary)


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


def _print_fmr(run: Run) -> None:
    """The FMR family of the setting that the run was last asked for, a column a model, with 95 % intervals."""
    from rich.markup import escape
    from rich.table import Table

    from holdfast.cli.listing import console_for_tables
    from holdfast.core.fingerprint import canonical_json
    from holdfast.stats.walks.walk_rows import COLUMNS, fmr_of_walks, paired

    walks = paired(run.rows(COLUMNS))
    walks = walks[walks["parameters"] == canonical_json(run.spec()["parameters"])]
    if walks.empty:
        typer.echo("no image could be walked, so there is no SA, PA, VR or FMR")
        return
    found = fmr_of_walks(walks)
    models = sorted(set(found["model"]))
    cells = {(row["model"], row["measure"]): row for row in found[found["label"] == ""].to_dict("records")}
    table = Table("", *map(escape, models), box=None, pad_edge=False)
    for measure, words in MEASURES.items():
        if any((model, measure) in cells for model in models):
            table.add_row(words, *(escape(_cell(cells.get((model, measure)))) for model in models))
    console_for_tables().print(table)
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


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
