"""For administrators: people and their invitations, campaigns and how far they are, and who did what."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import func, select
from starlette.requests import Request
from starlette.responses import Response

from holdfast.people import campaigns, identity, making
from holdfast.people.sources import list_sources
from holdfast.people.tables import images
from holdfast.web.dependencies import Admin, Before, Identity, Line, TheHouse, address_of
from holdfast.web.errors import Refusal, missing
from holdfast.web.house import House
from holdfast.web.pages import page

router = APIRouter(tags=["admin"])
AUDIT_LINES = 100


class Strict(BaseModel):
    """Unknown fields are mistakes, and ``true`` or ``"1"`` is no number: what the description forbids is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class InvitationShown(BaseModel):
    """An invitation as it stands; times are UTC seconds since 1970."""

    id: int
    name: str
    note: str
    role: str
    status: str
    created_at: float
    expires_at: float
    opened_at: float | None


class NewInvitation(Strict):
    """Whom to invite."""

    note: Annotated[Line, Field(min_length=1, description="Whom it is for; only administrators see it.")]
    role: Literal["member", "admin"] = "member"
    days: Annotated[float, Field(gt=0, le=3650, description="How long the link lets people in.")] = 30.0


class InvitationMade(BaseModel):
    """The link, which is shown this once."""

    id: int
    link: str
    expires_at: float


class SourceShown(BaseModel):
    """A dataset that the server may show."""

    id: int
    name: str
    images: int


class CampaignShown(BaseModel):
    """A campaign in short."""

    id: int
    name: str
    kind: str
    status: str
    created_at: float
    images: int
    finished_images: int
    wanted: int
    counted: int


class NewCampaign(Strict):
    """What people are to judge, and by which rules."""

    name: Annotated[Line, Field(min_length=1)]
    kind: Literal["quality", "naturalness", "oracle"] = "quality"
    source: Annotated[int, Field(ge=1, le=2**63 - 1, description="The pictures to judge.")]
    controls: Annotated[int, Field(ge=1, le=2**63 - 1, description="Pictures whose labels are certain.")]
    people_per_image: Annotated[int, Field(ge=1, le=1000)] = 10
    at_least: Annotated[int, Field(ge=1, le=1000)] = 6
    images_per_task: Annotated[int, Field(ge=1, le=200)] = 20
    minutes: Annotated[float, Field(ge=0.1, le=10_080)] = 30.0
    limit: Annotated[int, Field(ge=0, le=10_000_000, description="At most so many pictures; 0 takes all.")] = 0


class CampaignMade(BaseModel):
    """The campaign, and what to know of it."""

    id: int
    sentences: list[str]


class NewStatus(Strict):
    """What a campaign is to be."""

    status: Literal["open", "paused", "closed"]


class PersonAtWork(BaseModel):
    """What one person did in a campaign: tasks by how they ended, and votes that stand."""

    person_id: int
    name: str
    open: int
    finished: int
    discarded: int
    expired: int
    counted: int


class Progress(BaseModel):
    """How far a campaign is."""

    status: str
    images: int
    finished_images: int
    wanted: int
    counted: int
    held: int
    open_tasks: int
    finished_tasks: int
    discarded_tasks: int
    expired_tasks: int
    people_at_work: int
    people: list[PersonAtWork]


class AuditLine(BaseModel):
    """Who did what, when and from where."""

    id: int
    at: float
    name: str | None
    action: str
    subject: str
    detail: dict[str, Any]
    address: str


@router.get("/admin")
def campaigns_page(request: Request, house: TheHouse, admin: Admin) -> Response:
    """All campaigns, and a form for a new one."""
    known = api_sources(house, admin)
    controls = [source for source in known if source.name.startswith("controls of ")]  # copies; nobody judges them
    return page(
        request, "admin/campaigns.html", campaigns=api_campaigns(house, admin), controls=controls,
        sources=[source for source in known if source not in controls],
    )  # fmt: skip


@router.get("/admin/people")
def people_page(request: Request, house: TheHouse, admin: Admin) -> Response:
    """All invitations, and a form for a new one."""
    return page(request, "admin/people.html", invitations=api_invitations(house, admin))


@router.get("/admin/campaigns/{campaign_id}")
def progress_page(request: Request, campaign_id: Identity, house: TheHouse, admin: Admin) -> Response:
    """How far a campaign is, kept up to date by ``static/admin.js``."""
    campaign = _campaign(house, campaign_id)
    progress = api_progress(campaign_id, house, admin)
    return page(request, "admin/progress.html", campaign=campaign, progress=progress)


@router.get("/admin/audit")
def audit_page(request: Request, house: TheHouse, admin: Admin, before: Before = None) -> Response:
    """Who did what."""
    lines = api_audit(house, admin, limit=AUDIT_LINES, before=before)
    return page(request, "admin/audit.html", lines=lines, more=len(lines) == AUDIT_LINES, before=before)


@router.get("/api/invitations")
def api_invitations(house: TheHouse, admin: Admin) -> list[InvitationShown]:
    """All invitations, newest first. Their links are known only to those who got them."""
    with house.database.reading() as connection:
        rows = identity.list_invitations(connection, now=house.now())
    return [InvitationShown(**{key: row[key] for key in InvitationShown.model_fields}) for row in rows]


@router.post("/api/invitations", status_code=201)
def api_invite(request: Request, new: NewInvitation, house: TheHouse, admin: Admin) -> InvitationMade:
    """Invite somebody; the answer has the link, which cannot be seen again."""
    now, note = house.now(), _words(new.note, "say whom the invitation is for")
    with house.database.writing() as connection:
        id, token = identity.invite(connection, note=note, role=new.role, days=new.days, now=now)
        _record(connection, request, house, admin, "invite", f"invitation {id}", {"note": note, "role": new.role})
    base = house.options.public_url.rstrip("/") or f"{request.url.scheme}://{request.headers['host']}"
    return InvitationMade(id=id, link=f"{base}/join/{token}", expires_at=now + new.days * identity.DAY)


@router.delete("/api/invitations/{invitation_id}", status_code=204, response_class=Response)
def api_revoke(request: Request, invitation_id: Identity, house: TheHouse, admin: Admin) -> Response:
    """Withdraw an invitation: its link and all sessions that it opened end at once."""
    with house.database.writing() as connection:
        known = {row["id"] for row in identity.list_invitations(connection, now=house.now())}
        if invitation_id not in known:
            raise missing("invitation")
        identity.revoke(connection, invitation_id, now=house.now())
        _record(connection, request, house, admin, "revoke", f"invitation {invitation_id}")
    return Response(status_code=204)


@router.get("/api/sources")
def api_sources(house: TheHouse, admin: Admin) -> list[SourceShown]:
    """The datasets that ``holdfast annotate`` and ``holdfast review`` have let this server read."""
    with house.database.reading() as connection:
        counted = select(images.c.source_id, func.count()).group_by(images.c.source_id)
        counts = {row[0]: row[1] for row in connection.execute(counted)}
        rows = list_sources(connection)
    return [SourceShown(id=row["id"], name=row["name"], images=counts.get(row["id"], 0)) for row in rows]


@router.get("/api/campaigns")
def api_campaigns(house: TheHouse, admin: Admin) -> list[CampaignShown]:
    """All campaigns, newest first."""
    with house.database.reading() as connection:
        found = campaigns.list_campaigns(connection)
        return [
            CampaignShown(
                id=one.id, name=one.name, kind=one.kind, status=one.status, created_at=one.created_at,
                **{key: how_far[key] for key in ("images", "finished_images", "wanted", "counted")},
            )
            for one in found
            for how_far in [campaigns.progress(connection, one.id, now=house.now())]
        ]  # fmt: skip


@router.post("/api/campaigns", status_code=201)
def api_new_campaign(request: Request, new: NewCampaign, house: TheHouse, admin: Admin) -> CampaignMade:
    """Open a campaign on datasets that the server knows; looks through all pictures first, which may take a while."""
    name = _words(new.name, "a campaign needs a name")
    with house.database.reading() as connection:
        references = {row["id"]: row["reference"] for row in list_sources(connection)}
        names = {one.name for one in campaigns.list_campaigns(connection)}
    if new.source not in references or new.controls not in references:
        raise missing("dataset")
    if name in names:
        raise Refusal(409, f"there is a campaign {name!r} already; choose another name")
    settings = campaigns.Settings(
        people_per_image=new.people_per_image, at_least=new.at_least, images_per_task=new.images_per_task,
        minutes=new.minutes, rule="|".join(question.id for question in campaigns.KINDS[new.kind]),
    )  # fmt: skip
    spec = making.CampaignSpec(
        references[new.source], sentinels=references[new.controls], kind=new.kind, name=name, limit=new.limit,
        settings=settings, max_pixels=house.options.max_pixels,
    )  # fmt: skip
    made = making.make_campaign(house.database, spec, house.state, now=house.now())
    with house.database.writing() as connection:
        _record(connection, request, house, admin, "campaign", f"campaign {made.campaign_id}", {"name": made.name})
    return CampaignMade(id=made.campaign_id, sentences=list(made.sentences))


@router.put("/api/campaigns/{campaign_id}/status", status_code=204, response_class=Response)
def api_status(request: Request, campaign_id: Identity, new: NewStatus, house: TheHouse, admin: Admin) -> Response:
    """Open, pause or close: a paused campaign gives out no new tasks, a closed one takes open ones back."""
    _campaign(house, campaign_id)
    with house.database.writing() as connection:
        campaigns.set_status(connection, campaign_id, new.status, house.now())
        _record(connection, request, house, admin, new.status, f"campaign {campaign_id}")
    return Response(status_code=204)


@router.get("/api/campaigns/{campaign_id}/progress")
def api_progress(campaign_id: Identity, house: TheHouse, admin: Admin) -> Progress:
    """How far a campaign is."""
    campaign = _campaign(house, campaign_id)
    with house.database.reading() as connection:
        how_far = campaigns.progress(connection, campaign_id, now=house.now())
    return Progress(status=campaign.status, **how_far)


@router.get("/api/audit")
def api_audit(
    house: TheHouse, admin: Admin, limit: Annotated[int, Query(ge=1, le=1000)] = AUDIT_LINES, before: Before = None
) -> list[AuditLine]:
    """Who did what, newest first; ``before`` is the smallest id of the page before."""
    with house.database.reading() as connection:
        rows = identity.audit_log(connection, limit=limit, before=before)
    return [AuditLine(**{key: row[key] for key in AuditLine.model_fields}) for row in rows]


def _words(text: str, otherwise: str) -> str:
    """One line that can be seen."""
    if not (line := identity.one_line(text)):
        raise Refusal(400, otherwise)
    return line


def _campaign(house: House, campaign_id: int) -> campaigns.Campaign:
    with house.database.reading() as connection:
        found = {one.id: one for one in campaigns.list_campaigns(connection)}.get(campaign_id)
    if found is None:
        raise missing("campaign")
    return found


def _record(
    connection: Any, request: Request, house: House, admin: identity.Person, action: str, subject: str,
    detail: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    identity.record(
        connection, now=house.now(), person_id=admin.id, action=action, subject=subject, detail=detail,
        address=address_of(request),
    )  # fmt: skip
