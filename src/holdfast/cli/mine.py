"""``holdfast mine``: the images that many models fail together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import engine_options as engines
from holdfast.cli.judge import Accuracy
from holdfast.cli.progress import TerminalProgress
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list
from holdfast.core.places import shown

if TYPE_CHECKING:
    from holdfast.pipeline.hard.mine import Mined


Option = typer.Option


def mine(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="What holdfast generate made, or any dataset.")],
    out: Annotated[Path, Option(help="The hard set; one that is there is continued, or mined anew.")],
    surrogates: Annotated[
        str, Option(help="Models whose shared failures are kept, in the order in which they are added.")
    ] = "",
    targets: Annotated[str, Option(help="Models that the set is tried on and that take no part in it.")] = "",
    oracle: Annotated[
        str, Option(help="Who says whether an image shows its category: no surrogate and no target.")
    ] = "",
    at_least: Annotated[int, Option(min=0, help="Surrogates that must fail (m); 0 chooses.")] = 0,
    use: Annotated[int, Option(min=0, help="Surrogates to use, the first ones (k); 0 chooses.")] = 0,
    least_images: Annotated[int, Option(min=1, help="Valid images that m should leave in the choosing half.")] = 25,
    least_fall: Annotated[
        float, Option(min=0, max=1, help="What one more surrogate should take from accuracy, or k is enough.")
    ] = 0.01,
    cap_per_category: Annotated[int, Option(min=0, help="At most so many images of a category; 0 keeps all.")] = 0,
    cap_per_pair: Annotated[
        int, Option(min=0, help="At most so many images of a category with one nuisance; 0 keeps all.")
    ] = 0,
    balance: Annotated[bool, Option("--balance", help="As many images of every category as of the scarcest.")] = False,
    keep_rejected: Annotated[
        bool, Option("--keep-rejected", help="Publish images that the oracle rejects as well.")
    ] = False,
    again: Annotated[int, Option(min=0, help="New images of each hard prompt: prompt or luck? 0 paints none.")] = 5,
    generator: Annotated[str, Option(help="What paints them; the pool's own where it is not named.")] = "",
    labels: Annotated[
        Path | None, Option(help="CSV that maps categories to model outputs.", show_default=False)
    ] = None,
    outcome: Annotated[
        Accuracy, Option(help="Wrong over all outputs of a model, or among the categories.")
    ] = Accuracy.full,
    batch_size: Annotated[int, Option(min=1, help="Images a forward pass; halved when memory runs out.")] = 32,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    workers: engines.Workers = "1",
    engine: engines.Engine = "local",
    address: engines.Address = "",
    gpus: engines.Gpus = 0.0,
    cpus: engines.Cpus = 1.0,
    limit: Annotated[int, Option(min=0, help="At most so many prompts, evenly over categories; 0 takes all.")] = 0,
    seed: Annotated[int, Option(help="Everything random follows from it.")] = 0,
    max_pixels: Annotated[int, Option(min=1, help="Refuse larger images before decoding them.")] = DEFAULT_MAX_PIXELS,
    retry_errors: Annotated[bool, Option("--retry-errors", help="Try rows with an error once more.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Keep the images that several models fail together, and say honestly how hard they are for others."""
    from holdfast import api

    where = engines.opened(out, engine=engine, address=address, workers=workers, gpus=gpus, cpus=cpus)
    with where as (folder, executor), TerminalProgress(quiet=quiet) as progress:
        mined = api.mine(
            pool, surrogates=split_list(surrogates), targets=split_list(targets), oracle=oracle, out=folder,
            progress=progress, executor=executor, at_least=at_least, use=use, least_images=least_images,
            least_fall=least_fall, cap_per_category=cap_per_category, cap_per_pair=cap_per_pair, balance=balance,
            keep_rejected=keep_rejected, again=again, generator=generator, labels=labels, outcome=outcome.value,
            batch_size=batch_size, device=device, limit=limit, seed=seed, max_pixels=max_pixels,
            retry_errors=retry_errors,
        )  # fmt: skip
    _print(mined, shown(out))


def _print(mined: Mined, out: str) -> None:
    facts = mined.facts
    for sentence in mined.warnings:
        typer.echo(f"warning: {sentence}")
    typer.echo(
        f"{facts['shared']} of {facts['images']} images are failed by {facts['choice']['words']} "
        f"surrogates ({', '.join(facts['used'])}); the oracle accepts {facts['hard_valid']} of the "
        f"{facts['hard']} that are kept"
    )
    accuracy, drops = mined.tables["accuracy"], mined.tables["drops"]
    report = (accuracy["half"] == "report") & (accuracy["subset"] == "valid") & (accuracy["role"] == "target")
    lost = drops[(drops["half"] == "report") & (drops["subset"] == "valid")]
    typer.echo("on valid images of the reporting half of the prompts, with 95 % intervals:")
    for model in facts["targets"]:
        cells = {row["set"]: row for row in accuracy[report & (accuracy["model"] == model)].to_dict("records")}
        shown = ", ".join(
            f"{name} {one['estimate']:.1%} [{one['low']:.1%}, {one['high']:.1%}] of {one['n']}"
            for name, one in cells.items()
            if one["n"]
        )
        typer.echo(f"  {model}: {shown}")
        for row in lost[(lost["model"] == model) & lost["estimate"].notna()].to_dict("records"):
            typer.echo(
                f"    {100 * row['estimate']:+.1f} points lost against the {row['against']} "
                f"[{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
            )
    typer.echo(f"{mined.images} images published; {out}/mining/report/index.html")
