"""``holdfast people``: annotate, review, serve."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, echo_lines
from holdfast.cli.verb import Data, Quiet, Seed, choice
from holdfast.core.errors import UserError
from holdfast.core.names import unknown
from holdfast.core.verbs import Verb

if TYPE_CHECKING:
    from holdfast_people.web.services.server_state import ServeOptions

_WHAT = (
    "Ask whether an image is recognisable and usable (quality), how natural it is from 1 to 5, whether it shows the "
    "class (oracle), or whether it shows the class and none of the others (single); by default quality, for a perturb "
    "run oracle."
)
Kind = Annotated[
    str | None, choice("quality", "naturalness", "oracle", "single", flag="--kind", help=_WHAT, optional=True)
]
_WHICH = "Which images of a perturb run, by its oracle."
Only = Annotated[str, choice("accepted", "rejected", "all", flag="--only", help=_WHICH)]
_ENDS = (
    "when-decided: stop showing an image once further votes cannot change its verdict; never: show it to all --people."
)
Stop = Annotated[str, choice("never", "when-decided", flag="--stop", help=_ENDS)]
State = Annotated[Path, Option(help="Folder where votes and accounts are kept.")]
DatabaseUrl = Annotated[
    str, Option("--database", help="postgresql://USER@HOST/NAME instead of SQLite in --state.", show_default=False)
]
Host = Annotated[str, Option(help="Address to listen on; other machines reach all but 127.0.0.1.")]
Port = Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")]
PublicUrl = Annotated[
    str, Option(help="Address that people type, if a proxy (for https) is in front.", show_default=False)
]


def serve(
    state: State = Path("holdfast-people"),
    database: DatabaseUrl = "",
    host: Host = "127.0.0.1",
    port: Port = 8420,
    public_url: PublicUrl = "",
    data: Annotated[
        list[str] | None, Option(help="A dataset that administrators may open campaigns on; may be repeated.")
    ] = None,
) -> None:
    """Serve the pages where people draw masks and judge images; prints an administrator's link."""
    from holdfast.data import load_collection
    from holdfast_people.sources import add_source
    from holdfast_people.web.serve import run
    from holdfast_people.web.services.server_state import ServeOptions, open_server

    server = open_server(ServeOptions(state, database, host, port, public_url))
    for reference in data or ():
        collection = load_collection(reference)
        with server.database.writing() as connection:
            add_source(connection, name=collection.name, reference=reference, collection=collection, now=server.now())
    run(server, say=typer.echo)


def annotate(
    data: Data,
    masks: Annotated[
        Path | None,
        Option(
            help="Folder of the masks: masks of holdfast mask (doubtful ones come first), other masks, or a new "
            "folder; drawn masks go there. By default STATE/masks/NAME."
        ),
    ] = None,
    with_: Annotated[
        str, Option("--with", help="Turns boxes and clicks into rough masks: grabcut, sam:mobile, sam:NAME-OR-FOLDER.")
    ] = "grabcut",
    import_: Annotated[
        Path | None,
        Option("--import", help="Import the masks of a COCO file; serves nothing."),
    ] = None,
    export: Annotated[Path | None, Option(help="Write all masks to this COCO file; serves nothing.")] = None,
    state: State = Path("holdfast-people"),
    database: DatabaseUrl = "",
    host: Host = "127.0.0.1",
    port: Port = 8420,
    public_url: PublicUrl = "",
    quiet: Quiet = False,
) -> None:
    """Let people draw masks in the browser; holdfast eval DATA --masks reads them."""
    from holdfast_people import mask_exchange
    from holdfast_people.web.serve import run
    from holdfast_people.web.services.mask_editing import MaskEditing, take_in
    from holdfast_people.web.services.server_state import ServeOptions, open_server

    with closing(open_server(ServeOptions(state, database, host, port, public_url))) as server:
        with TerminalProgress(quiet=quiet) as progress:
            set_id = take_in(server, data, masks=masks, guide=with_, progress=progress)
        with server.database.reading() as connection:
            folder = mask_exchange.get_set(connection, set_id)["folder"]
        if import_ is None and export is None:
            typer.echo(f"masks go to {folder}")
            run(server, page=f"/annotate/{set_id}", say=typer.echo)
            return
        if import_ is not None:
            size = MaskEditing(server).size
            taken = mask_exchange.import_masks(server.database, set_id, import_, size=size, now=server.now())
            typer.echo(f"{taken.changed} masks taken in, {taken.same} were there already; {folder}")
            echo_lines(
                [f"no image of the dataset is called {name}" for name in taken.unknown]
                + [f"{name}: {problem}" for name, problem in taken.problems]
            )
        with server.database.reading() as connection:
            mask_exchange.write_coco(connection, set_id)
            if export is not None:
                count = mask_exchange.export_masks(connection, set_id, export)
                typer.echo(f"{count} masks; {export}")


def review(
    pool: Annotated[
        str,
        Argument(
            metavar="POOL",
            help="What generate, mine or perturb --keep-images made, or any dataset.",
            show_default=False,
        ),
    ] = "",
    sentinels: Annotated[
        str,
        Option(
            help="A dataset of the same classes with certain labels, for control images; a perturb run has its "
            "originals.",
            show_default=False,
        ),
    ] = "",
    kind: Kind = None,
    questions: Annotated[Path | None, Option(help="TOML with questions of your own instead of --kind.")] = None,
    people: Annotated[int, Option(min=1, help="Number of people who judge each image.")] = 10,
    per_task: Annotated[int, Option(min=1, help="Images per task, control images among them.")] = 20,
    at_least: Annotated[
        int, Option(min=0, help="Accept an image if this many people do; 0: six in ten.", show_default=False)
    ] = 0,
    rule: Annotated[
        str,
        Option(help='Which answers count: "recognisable|usable" (either), "recognisable&usable" …', show_default=False),
    ] = "",
    stop: Stop = "never",
    minutes: Annotated[float, Option(help="Give an unfinished task to others after this many minutes.")] = 30.0,
    limit: Annotated[int, Option(min=0, help="Use at most this many images, evenly over classes; 0 uses all.")] = 0,
    name: Annotated[str, Option(help="Name of the campaign; an existing one is continued.", show_default=False)] = "",
    only: Only = "accepted",
    export: Annotated[
        Path | None, Option(help="Write the accepted set and every vote there, and serve nothing.")
    ] = None,
    campaign: Annotated[
        str, Option(help="Which campaign --export writes; needed if there are several.", show_default=False)
    ] = "",
    state: State = Path("holdfast-people"),
    database: DatabaseUrl = "",
    host: Host = "127.0.0.1",
    port: Port = 8420,
    public_url: PublicUrl = "",
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Let people judge images in the browser; control images show who answers with care."""
    from holdfast_people.campaigns import Settings
    from holdfast_people.making import CampaignSpec, make_campaign
    from holdfast_people.web.serve import run
    from holdfast_people.web.services.server_state import ServeOptions, open_server

    options = ServeOptions(state, database, host, port, public_url)
    if export is not None:
        _export(options, campaign, export, pool)
        return
    if not pool:
        raise UserError("name the images to judge: holdfast people review POOL --sentinels DATA")
    settings = Settings(
        people_per_image=people, images_per_task=per_task, minutes=minutes, rule=rule, seed=seed, stop=stop,
        at_least=at_least or math.ceil(0.6 * people),
    )  # fmt: skip
    spec = CampaignSpec(
        pool, sentinels=sentinels, kind=kind or "", name=name, only=only, limit=limit, settings=settings,
        questions="" if questions is None else str(questions),
    )  # fmt: skip
    server = open_server(options)
    with TerminalProgress(quiet=quiet) as progress:
        campaign_made = make_campaign(server.database, spec, state, now=server.now(), progress=progress)
    typer.echo(f"campaign {campaign_made.name!r}")
    for sentence in campaign_made.sentences:
        typer.echo(f"  {sentence}")
    run(server, page=f"/review/{campaign_made.campaign_id}", say=typer.echo)


def _export(options: ServeOptions, name: str, out: Path, pool: str) -> None:
    from holdfast_people.campaigns import list_campaigns
    from holdfast_people.export import export_campaign
    from holdfast_people.report.votes import build
    from holdfast_people.web.services.server_state import open_server

    if pool:
        raise UserError("--export writes an existing campaign; --campaign names it, no POOL is needed")
    nothing = f"{options.database or options.state} has no campaign yet; holdfast people review POOL opens one"
    if not options.database and not options.state.is_dir():
        raise UserError(nothing)
    with closing(open_server(options)) as server:
        with server.database.reading() as connection:
            campaigns = {each.name: each for each in list_campaigns(connection)}
        if not campaigns:
            raise UserError(nothing)
        if not name and len(campaigns) > 1:
            raise UserError(f"there are several campaigns; name one: --campaign NAME ({', '.join(campaigns)})")
        if name and name not in campaigns:
            raise unknown("campaign", name, campaigns)
        chosen = campaigns[name or next(iter(campaigns))]
        done = export_campaign(server.database, server.shelf, chosen.id, out, now=server.now(), page=build)
    typer.echo(f"{done.accepted} accepted, {done.rejected} rejected, {done.undecided} undecided; {done.path}")
    echo_lines(done.problems)


PEOPLE = Verb("people", "Companions", help="Let people draw masks and judge images in the browser.")
ANNOTATE = Verb("people annotate", "Companions", command=annotate)
REVIEW = Verb("people review", "Companions", command=review)
SERVE = Verb("people serve", "Companions", command=serve)
VERBS = (PEOPLE, ANNOTATE, REVIEW, SERVE)
