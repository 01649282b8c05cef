"""For administrators: the results of a campaign, and every vote as a file."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.core.errors import UserError
from holdfast.people.campaigns import Campaign, get_campaign
from holdfast.people.export import as_csv
from holdfast.people.results import campaign_votes
from holdfast.report.people.votes import MEASURES, WORDS
from holdfast.web.services.dependencies import Admin, Identity, Server
from holdfast.web.services.errors import missing
from holdfast.web.services.pages import page
from holdfast.web.services.server_state import ServerState

router = APIRouter(tags=["admin"])

_CSV: dict[int | str, dict[str, Any]] = {
    200: {"description": "One row per vote and question.", "content": {"text/csv": {"schema": {"type": "string"}}}}
}


@router.get("/admin/campaigns/{campaign_id}/results", include_in_schema=False)
def results_page(request: Request, campaign_id: Identity, server: Server, admin: Admin) -> Response:
    """Show the numbers of ``holdfast review --export`` as they are now."""
    _campaign(server, campaign_id)
    results = server.results.of(campaign_id, now=server.now())
    acceptance = results.tables.get("acceptance", ())
    groups = [(words, [row for row in acceptance if row["by"] == by]) for by, words in WORDS.items()]
    return page(
        request, "admin/results.html", campaign=results.campaign, votes=results.votes, tables=results.tables,
        names=results.names, measures=MEASURES, groups=[(words, rows) for words, rows in groups if rows], by=WORDS,
        percent=_percent, span=_span,
    )  # fmt: skip


@router.get("/api/campaigns/{campaign_id}/votes.csv", response_class=Response, responses=_CSV)
def api_votes(campaign_id: Identity, server: Server, admin: Admin) -> Response:
    """Return every vote with its time, also discarded ones; people are numbers."""
    campaign = _campaign(server, campaign_id)
    votes = campaign_votes(server.database, server.shelf, campaign_id, now=server.now(), hashes=False)
    name = re.sub(r"[^A-Za-z0-9]+", "-", campaign.name).strip("-") or "campaign"
    headers = {"content-disposition": f'attachment; filename="{name}-votes.csv"', "cache-control": "no-store"}
    return Response(as_csv(votes.table, for_spreadsheets=True), media_type="text/csv; charset=utf-8", headers=headers)


def _campaign(server: ServerState, campaign_id: int) -> Campaign:
    try:
        with server.database.reading() as connection:
            return get_campaign(connection, campaign_id)
    except UserError:
        raise missing("campaign") from None


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def _span(low: float | None, high: float | None, scale: float = 100.0, digits: int = 1) -> str:
    return "" if low is None or high is None else f"{scale * low:.{digits}f} to {scale * high:.{digits}f}"
