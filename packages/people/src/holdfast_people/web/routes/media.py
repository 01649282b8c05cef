"""Images. Browsers name them by tokens and numbers, never by paths, and get re-encoded copies."""

from __future__ import annotations

import hashlib
import hmac

from fastapi import APIRouter
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import Response

from holdfast.core.errors import SampleError, UserError
from holdfast_people import assignment
from holdfast_people.identity import Person
from holdfast_people.tables import mask_images
from holdfast_people.web.services.dependencies import Identity, Member, Server, Token
from holdfast_people.web.services.pages import missing
from holdfast_people.web.services.server_state import ServerState, padded

router = APIRouter(tags=["media"])
_JPEG = {200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}, 304: {}}


@router.get("/media/places/{token}", response_class=Response, responses=_JPEG)  # type: ignore[arg-type]
def place(request: Request, token: Token, server: Server, person: Member) -> Response:
    """Return the image at a place of the person's own task; all have the same longer side."""
    with server.database.reading() as connection:
        image_id = assignment.image_of_place(connection, token, person.id)
    return _picture(request, server, image_id, "place", token)


@router.get("/media/training/{token}", response_class=Response, responses=_JPEG)  # type: ignore[arg-type]
def training(request: Request, token: Token, server: Server, person: Member) -> Response:
    """Return an image to learn from."""
    with server.database.reading() as connection:
        image_id = assignment.image_of_training(connection, token)
    return _picture(request, server, image_id, "place", token)


@router.get("/media/images/{image_id}", response_class=Response, responses=_JPEG)  # type: ignore[arg-type]
def whole(request: Request, image_id: Identity, server: Server, person: Member) -> Response:
    """Return an image to annotate, in full size."""
    return _picture(request, server, _visible(server, person, image_id), "full", str(image_id))


@router.get("/media/images/{image_id}/small", response_class=Response, responses=_JPEG)  # type: ignore[arg-type]
def small(request: Request, image_id: Identity, server: Server, person: Member) -> Response:
    """Return an image to annotate, small, for lists."""
    return _picture(request, server, _visible(server, person, image_id), "small", str(image_id))


def _visible(server: ServerState, person: Person, image_id: int) -> int | None:
    """Return the image if people annotate it: reviewers must not look up the images of their tasks."""
    if person.is_admin:
        return image_id
    with server.database.reading() as connection:
        query = select(mask_images.c.image_id).where(mask_images.c.image_id == image_id).limit(1)
        return connection.scalar(query)


def _picture(request: Request, server: ServerState, image_id: int | None, size: str, name: str) -> Response:
    """Return the image, or a 304 if the browser has it; its ETag depends on the name in the request."""
    if image_id is None:
        raise missing("picture")
    etag = f'"{hmac.new(server.secret, f"{size}/{name}".encode(), hashlib.sha256).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    try:
        data = server.pictures.get(image_id, size)
    except (SampleError, UserError):  # their messages contain file names
        raise missing("image, or it cannot be read any more") from None
    if size == "place":
        data = padded(data, etag)
    return Response(data, media_type="image/jpeg", headers=headers)
