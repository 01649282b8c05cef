"""``holdfast review``: people judge images in the browser."""

from __future__ import annotations

import math
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.progress import TerminalProgress
from holdfast.cli.serve import DatabaseUrl, Host, Port, PublicUrl, State
from holdfast.core.errors import UserError
from holdfast.registry import unknown

if TYPE_CHECKING:
    from holdfast.web.server_state import ServeOptions

Option = typer.Option


class Kind(StrEnum):
    """What people are asked."""

    quality = "quality"
    naturalness = "naturalness"
    oracle = "oracle"


class Only(StrEnum):
    """Which images of a dynamic evaluation."""

    accepted = "accepted"
    rejected = "rejected"
    all = "all"


PoolArgument = Annotated[
    str,
    typer.Argument(
        metavar="POOL", help="What generate, mine or perturb --keep-images made, or any dataset.", show_default=False
    ),
]
Sentinels = Annotated[
    str,
    Option(
        help="A dataset of the same classes whose labels are certain, for control pictures; a perturb run has its "
        "originals.",
        show_default=False,
    ),
]
ChosenKind = Annotated[
    Kind | None,
    Option(
        help="quality (recognisable? usable?), naturalness (1 to 5) or oracle (does it show the class?); quality "
        "where nothing is said, for a perturb run oracle.",
        show_default=False,
    ),
]
People = Annotated[int, Option(min=1, help="How many people judge each image.")]
PerTask = Annotated[int, Option(min=1, help="Pictures a task, control pictures among them.")]
AtLeast = Annotated[
    int, Option(min=0, help="An image is accepted if so many of them say so; 0: six in ten.", show_default=False)
]
Rule = Annotated[
    str,
    Option(help='Which answers count: "recognisable|usable" (either), "recognisable&usable" …', show_default=False),
]
Minutes = Annotated[float, Option(help="An unfinished task goes to others after so long.")]
Limit = Annotated[int, Option(min=0, help="At most so many images, evenly over classes; 0 takes all.")]
Name = Annotated[str, Option(help="The campaign's; one that is there is continued.", show_default=False)]
ChosenOnly = Annotated[Only, Option(help="Of a perturb run: images that its oracle accepted, rejected, or all.")]
Export = Annotated[
    Path | None,
    Option(help="Write the accepted set and every vote there, and serve nothing.", show_default=False),
]
Campaign = Annotated[str, Option(help="Which one --export writes; not needed where there is one.", show_default=False)]


def review(
    pool: PoolArgument = "",
    sentinels: Sentinels = "",
    kind: ChosenKind = None,
    people: People = 10,
    per_task: PerTask = 20,
    at_least: AtLeast = 0,
    rule: Rule = "",
    minutes: Minutes = 30.0,
    limit: Limit = 0,
    name: Name = "",
    only: ChosenOnly = Only.accepted,
    export: Export = None,
    campaign: Campaign = "",
    state: State = Path("holdfast-people"),
    database: DatabaseUrl = "",
    host: Host = "127.0.0.1",
    port: Port = 8420,
    public_url: PublicUrl = "",
    seed: Annotated[int, Option(help="Everything random follows from it.")] = 0,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Let people judge images in the browser; control pictures show who answers with care."""
    from holdfast.people.campaigns import Settings
    from holdfast.people.making import CampaignSpec, make_campaign
    from holdfast.web.serve import run
    from holdfast.web.server_state import ServeOptions, open_server

    options = ServeOptions(state, database, host, port, public_url)
    if export is not None:
        if pool:
            raise UserError("--export writes a campaign that is there; --campaign names it, no POOL is needed")
        _export(options, campaign, export)
        return
    if not pool:
        raise UserError("name the images to judge: holdfast review POOL --sentinels DATA")
    settings = Settings(
        people_per_image=people, images_per_task=per_task, minutes=minutes, rule=rule, seed=seed,
        at_least=at_least or math.ceil(0.6 * people),
    )  # fmt: skip
    spec = CampaignSpec(
        pool, sentinels=sentinels, kind=kind or "", name=name, only=only, limit=limit, settings=settings
    )
    server = open_server(options)
    with TerminalProgress(quiet=quiet) as progress:
        made = make_campaign(server.database, spec, state, now=server.now(), progress=progress)
    typer.echo(f"campaign {made.name!r}")
    for sentence in made.sentences:
        typer.echo(f"  {sentence}")
    run(server, page=f"/review/{made.campaign_id}", say=typer.echo)


def _export(options: ServeOptions, name: str, out: Path) -> None:
    from holdfast.people.campaigns import list_campaigns
    from holdfast.people.export import export_campaign
    from holdfast.report.people.votes import build
    from holdfast.web.server_state import open_server

    nothing = f"{options.database or options.state} has no campaign yet; holdfast review POOL opens one"
    if not options.database and not options.state.is_dir():
        raise UserError(nothing)
    with closing(open_server(options)) as server:
        with server.database.reading() as connection:
            found = {one.name: one for one in list_campaigns(connection)}
        if not found:
            raise UserError(nothing)
        if not name and len(found) > 1:
            raise UserError(f"there are several campaigns; name one: --campaign NAME ({', '.join(found)})")
        if name and name not in found:
            raise unknown("campaign", name, found)
        campaign = found[name or next(iter(found))]
        done = export_campaign(server.database, server.shelf, campaign.id, out, now=server.now(), page=build)
    typer.echo(f"{done.accepted} accepted, {done.rejected} rejected, {done.undecided} undecided; {done.path}")
    for problem in done.problems[:20]:
        typer.echo(f"  {problem}")
