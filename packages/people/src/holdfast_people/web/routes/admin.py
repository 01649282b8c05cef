"""For administrators: invitations, campaigns, their progress and results, every vote as a file, and the audit log."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import func, select
from starlette.requests import Request
from starlette.responses import Response

from holdfast.core.errors import UserError
from holdfast.core.numbers import percent, span
from holdfast.store.run import table_csv
from holdfast_people import campaigns, identity, making
from holdfast_people.report.votes import MEASURES, WORDS
from holdfast_people.results import campaign_votes
from holdfast_people.sources import list_sources
from holdfast_people.tables import images
from holdfast_people.web.services.dependencies import (
    Audit,
    Before,
    Identity,
    Line,
    NamedCampaign,
    Server,
    administrator,
)
from holdfast_people.web.services.pages import RefusedRequest, missing, page

router = APIRouter(tags=["admin"], dependencies=[Depends(administrator)])
AUDIT_LINES = 100


class Strict(BaseModel):
    """A body without unknown fields, whose values have exactly the stated types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class InvitationShown(BaseModel):
    """An invitation; times are UTC seconds since 1970."""

    id: int
    name: str
    note: str
    role: str
    status: str
    created_at: float
    expires_at: float
    opened_at: float | None


class NewInvitation(Strict):
    """A new invitation."""

    note: Annotated[Line, Field(min_length=1, description="Whom it is for; only administrators see it.")]
    role: Literal["member", "admin"] = "member"
    days: Annotated[float, Field(gt=0, le=3650, description="How long the link lets people in.")] = 30.0


class InvitationMade(BaseModel):
    """The link of a new invitation, which is shown only once."""

    id: int
    link: str
    expires_at: float


class SourceShown(BaseModel):
    """A dataset that the server may show."""

    id: int
    name: str
    images: int


class CampaignShown(BaseModel):
    """A campaign in a list."""

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
    """A new campaign: its images and rules."""

    name: Annotated[Line, Field(min_length=1)]
    kind: Literal["quality", "naturalness", "oracle", "single"] = "quality"
    source: Annotated[int, Field(ge=1, le=2**63 - 1, description="The images to judge.")]
    controls: Annotated[int, Field(ge=1, le=2**63 - 1, description="Images whose labels are certain.")]
    people_per_image: Annotated[int, Field(ge=1, le=1000)] = 10
    at_least: Annotated[int, Field(ge=1, le=1000)] = 6
    images_per_task: Annotated[int, Field(ge=1, le=200)] = 20
    minutes: Annotated[float, Field(ge=0.1, le=10_080)] = 30.0
    stop: Literal["never", "when-decided"] = "never"
    limit: Annotated[int, Field(ge=0, le=10_000_000, description="The most images to take; 0 takes all.")] = 0


class CampaignMade(BaseModel):
    """A new campaign, and what to know about it."""

    id: int
    sentences: list[str]


class NewStatus(Strict):
    """The new status of a campaign."""

    status: Literal["open", "paused", "closed"]


class PersonAtWork(BaseModel):
    """One person's tasks in a campaign by status, and the votes that count."""

    person_id: int
    name: str
    open: int
    finished: int
    discarded: int
    expired: int
    counted: int


class CampaignProgress(BaseModel):
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
    """One line of the audit log."""

    id: int
    at: float
    name: str | None
    action: str
    subject: str
    detail: dict[str, Any]
    address: str


@router.get("/admin")
def campaigns_page(request: Request, server: Server) -> Response:
    """Show all campaigns, and a form for a new one."""
    known = api_sources(server)
    # Copies of control images; no one judges them.
    controls = [source for source in known if source.name.startswith("controls of ")]
    return page(
        request, "admin/campaigns.html", campaigns=api_campaigns(server), controls=controls,
        sources=[source for source in known if source not in controls],
    )  # fmt: skip


@router.get("/admin/people")
def people_page(request: Request, server: Server) -> Response:
    """Show all invitations, and a form for a new one."""
    return page(request, "admin/people.html", invitations=api_invitations(server))


@router.get("/admin/campaigns/{campaign_id}")
def progress_page(request: Request, server: Server, campaign: NamedCampaign) -> Response:
    """Show how far a campaign is; ``static/admin.js`` keeps it up to date."""
    progress = api_progress(server, campaign)
    return page(request, "admin/progress.html", campaign=campaign, progress=progress)


@router.get("/admin/audit")
def audit_page(request: Request, server: Server, before: Before = None) -> Response:
    """Show the audit log."""
    lines = api_audit(server, limit=AUDIT_LINES, before=before)
    return page(request, "admin/audit.html", lines=lines, more=len(lines) == AUDIT_LINES, before=before)


@router.get("/api/invitations")
def api_invitations(server: Server) -> list[InvitationShown]:
    """Return all invitations, newest first, without their links."""
    with server.database.reading() as connection:
        rows = identity.list_invitations(connection, now=server.now())
    return [InvitationShown(**row) for row in rows]


@router.post("/api/invitations", status_code=201)
def api_invite(request: Request, new: NewInvitation, server: Server, record: Audit) -> InvitationMade:
    """Invite someone; the answer has the link, which is not shown again."""
    now, note = server.now(), _words(new.note, "say whom the invitation is for")
    with server.database.writing() as connection:
        id, token = identity.invite(connection, note=note, role=new.role, days=new.days, now=now)
        record(connection, action="invite", subject=f"invitation {id}", detail={"note": note, "role": new.role})
    base = server.options.public_url.rstrip("/") or f"{request.url.scheme}://{request.headers['host']}"
    return InvitationMade(id=id, link=f"{base}/join/{token}", expires_at=now + new.days * identity.DAY)


@router.delete("/api/invitations/{invitation_id}", status_code=204, response_class=Response)
def api_revoke(invitation_id: Identity, server: Server, record: Audit) -> Response:
    """Withdraw an invitation: its link and all its sessions end at once."""
    with server.database.writing() as connection:
        try:
            identity.revoke(connection, invitation_id, now=server.now())
        except UserError:
            raise missing("invitation") from None
        record(connection, action="revoke", subject=f"invitation {invitation_id}")
    return Response(status_code=204)


@router.get("/api/sources")
def api_sources(server: Server) -> list[SourceShown]:
    """Return the datasets that ``holdfast people annotate`` and ``holdfast people review`` have added."""
    with server.database.reading() as connection:
        counted = select(images.c.source_id, func.count()).group_by(images.c.source_id)
        counts = {row[0]: row[1] for row in connection.execute(counted)}
        rows = list_sources(connection)
    return [SourceShown(id=row["id"], name=row["name"], images=counts.get(row["id"], 0)) for row in rows]


@router.get("/api/campaigns")
def api_campaigns(server: Server) -> list[CampaignShown]:
    """Return all campaigns, newest first."""
    with server.database.reading() as connection:
        return [
            CampaignShown(**asdict(campaign), **campaigns.progress(connection, campaign.id, now=server.now()))
            for campaign in campaigns.list_campaigns(connection)
        ]


@router.post("/api/campaigns", status_code=201)
def api_new_campaign(new: NewCampaign, server: Server, record: Audit) -> CampaignMade:
    """Open a campaign on datasets that the server knows; it reads all images first, which may take a while."""
    name = _words(new.name, "a campaign needs a name")
    with server.database.reading() as connection:
        references = {row["id"]: row["reference"] for row in list_sources(connection)}
        names = {campaign.name for campaign in campaigns.list_campaigns(connection)}
    if new.source not in references or new.controls not in references:
        raise missing("dataset")
    if name in names:
        raise RefusedRequest(409, f"there is a campaign {name!r} already; choose another name")
    settings = campaigns.Settings(
        people_per_image=new.people_per_image, at_least=new.at_least, images_per_task=new.images_per_task,
        minutes=new.minutes, stop=new.stop, rule=campaigns.default_rule(campaigns.KINDS[new.kind]),
    )  # fmt: skip
    spec = making.CampaignSpec(
        references[new.source], sentinels=references[new.controls], kind=new.kind, name=name, limit=new.limit,
        settings=settings, max_pixels=server.options.max_pixels,
    )  # fmt: skip
    created = making.make_campaign(server.database, spec, server.folder, now=server.now())
    with server.database.writing() as connection:
        record(connection, action="campaign", subject=f"campaign {created.campaign_id}", detail={"name": created.name})
    return CampaignMade(id=created.campaign_id, sentences=list(created.sentences))


@router.put("/api/campaigns/{campaign_id}/status", status_code=204, response_class=Response)
def api_status(new: NewStatus, server: Server, campaign: NamedCampaign, record: Audit) -> Response:
    """Open, pause or close a campaign: a paused one gives out no new tasks, a closed one also ends open ones."""
    with server.database.writing() as connection:
        campaigns.set_status(connection, campaign.id, new.status)
        record(connection, action=new.status, subject=f"campaign {campaign.id}")
    return Response(status_code=204)


@router.get("/api/campaigns/{campaign_id}/progress")
def api_progress(server: Server, campaign: NamedCampaign) -> CampaignProgress:
    """Return how far a campaign is."""
    with server.database.reading() as connection:
        progress = campaigns.progress(connection, campaign.id, now=server.now())
    return CampaignProgress(status=campaign.status, **progress)


@router.get("/api/audit")
def api_audit(
    server: Server, limit: Annotated[int, Query(ge=1, le=1000)] = AUDIT_LINES, before: Before = None
) -> list[AuditLine]:
    """Return the audit log, newest first; ``before`` is the smallest id of the previous page."""
    with server.database.reading() as connection:
        rows = identity.audit_log(connection, limit=limit, before=before)
    return [AuditLine(**row) for row in rows]


def _words(text: str, otherwise: str) -> str:
    """Return the text as one line; refuse an empty one."""
    if not (line := identity.one_line(text)):
        raise RefusedRequest(400, otherwise)
    return line


_CSV: dict[int | str, dict[str, Any]] = {
    200: {"description": "One row per vote and question.", "content": {"text/csv": {"schema": {"type": "string"}}}}
}


@router.get("/admin/campaigns/{campaign_id}/results", include_in_schema=False)
def results_page(request: Request, server: Server, campaign: NamedCampaign) -> Response:
    """Show the numbers of ``holdfast people review --export`` as they are now."""
    results = server.results.of(campaign.id, now=server.now())
    acceptance = results.tables.get("acceptance", ())
    groups = [(words, [row for row in acceptance if row["by"] == by]) for by, words in WORDS.items()]
    return page(
        request, "admin/results.html", campaign=results.campaign, votes=results.votes, tables=results.tables,
        names=results.names, measures=MEASURES, groups=[(words, rows) for words, rows in groups if rows], by=WORDS,
        percent=percent, span=span,
    )  # fmt: skip


@router.get("/api/campaigns/{campaign_id}/votes.csv", response_class=Response, responses=_CSV)
def api_votes(server: Server, campaign: NamedCampaign) -> Response:
    """Return every vote with its time, also discarded ones; people are numbers."""
    votes = campaign_votes(server.database, server.shelf, campaign.id, now=server.now(), hashes=False)
    name = re.sub(r"[^A-Za-z0-9]+", "-", campaign.name).strip("-") or "campaign"
    headers = {"content-disposition": f'attachment; filename="{name}-votes.csv"', "cache-control": "no-store"}
    return Response(table_csv(votes.table), media_type="text/csv; charset=utf-8", headers=headers)
