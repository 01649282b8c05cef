"""Commands of dynamic evaluation: perturb, sparse."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.listing import print_table
from holdfast.cli.progress import echo_summary
from holdfast.cli.verb import OUT, Argument, CommandCall, Option, Seed, choice, verb
from holdfast.core.errors import UserError
from holdfast.pipeline.specs import PerturbSpec

if TYPE_CHECKING:
    from typing import TypeAlias

    from holdfast.pipeline.jobs.summary import Summary
    from holdfast.store import Run

    Latents: TypeAlias = str
else:
    Latents = choice(
        "paper", "matched", flag="--labels",
        help="Compare the encoder's latents (paper), or quantised ones (matched), with the ends of walks.",
    )  # fmt: skip

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
    out: Annotated[Path | None, Option(help=OUT, show_default=False)] = None,
    publish: Annotated[
        Path | None,
        Option(help="Write the validated images as a benchmark folder with hashes; alone, DATA is a finished run.",
               show_default=False),
    ] = None,
) -> None:  # fmt: skip
    """Push images against each model as far as an oracle still sees their class: SA, PA, VR and FMR."""
    spec = job.spec
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


def sparse(
    run: Annotated[Path | None, Argument(metavar="RUN", help="A dense run made with --keep-latents.")] = None,
    out: Annotated[Path | None, Option(help="The mask to write (.safetensors).", show_default=False)] = None,
    labels: Latents = "paper",
    strength: Annotated[
        float, Option(help="Strength of the L1 penalty: 1/C of scikit-learn's logistic regression.")
    ] = 36.36,
    model: Annotated[str | None, Option(help="Use only walks against this model.", show_default=False)] = None,
    seed: Seed = 0,
    compare: Annotated[
        tuple[Path, Path] | None, Option(metavar="A B", help="Print the overlap of two masks.", show_default=False)
    ] = None,
) -> None:
    """Find the part of the latent that walks move, for perturb --sparse."""
    from holdfast.pipeline.walk.sparse import fit_sparse, overlap, read_mask, write_mask
    from holdfast.store import Run

    if compare is not None:
        shared = overlap(*(read_mask(path) for path in compare))
        typer.echo(
            f"{shared['kept_by_both']:.0f} dimensions of {shared['dimensions']:.0f} are kept by both, "
            f"{shared['kept_first']:.0f} by the first, {shared['kept_second']:.0f} by the second: "
            f"Jaccard {shared['jaccard']:.3f}, by chance {shared['by_chance']:.3f}"
        )
        return
    if run is None or out is None:
        raise UserError("name a run and where the mask goes: holdfast sparse RUN --out mask.safetensors")
    mask = fit_sparse(Run.open(run), labels=labels, strength=strength, model=model, seed=seed)
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
