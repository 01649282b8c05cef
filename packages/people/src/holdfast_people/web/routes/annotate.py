"""The annotate page: the list of images, their masks, rough masks from boxes and clicks, and saving."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import Mask
from holdfast.data.masks import decode_coco
from holdfast.data.writers import mask_rle
from holdfast_people import mask_exchange, masks
from holdfast_people.mask_sets import file_sha256
from holdfast_people.masks import Drawing, Version
from holdfast_people.web.services.dependencies import Admin, Identity, Line, Member, Server
from holdfast_people.web.services.mask_editing import MaskEditing, guide_name
from holdfast_people.web.services.pages import RefusedRequest, missing, page

router = APIRouter(tags=["annotate"])


async def _editing(request: Request) -> MaskEditing:
    editing: MaskEditing = request.app.state.editing
    return editing


def _drawing(drawing_id: Identity, server: Server) -> Drawing:
    with server.database.reading() as connection:
        try:
            return masks.get_drawing(connection, drawing_id)
        except UserError:
            raise missing("image") from None


Editing = Annotated[MaskEditing, Depends(_editing)]
NamedDrawing = Annotated[Drawing, Depends(_drawing)]
"""The image of the path; is behind ``Member``, which refuses others first."""
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Coordinate = Annotated[float, Field(ge=-1, le=1e6, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate]
_FILES: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}, "application/zip": {}}}}
Show = Literal["all", "unfinished", "doubtful", "mine", "done"]


class ImageFilter(BaseModel):
    """Which images a list shows."""

    show: Show = "all"
    label: Line = ""
    text: Line = ""


class SetShown(BaseModel):
    """A set of masks: one dataset, one folder."""

    id: int
    name: str
    guide: str
    classes: list[str]
    counts: dict[str, int] = Field(description="Images by status (new, automatic, draft, done), all, and doubtful.")


class ImageShown(BaseModel):
    """A line of the list; ``/media/images/{image_id}/small`` is its image."""

    id: int
    image_id: int
    name: str
    label: str
    status: str
    confidence: float | None
    version: int


class ImagePage(BaseModel):
    """A page of the list, the most doubtful first."""

    total: int
    images: list[ImageShown]
    counts: dict[str, int]


class Neighbour(BaseModel):
    """The image to go to, if there is one."""

    id: int | None


class VersionShown(BaseModel):
    """Who made a version, when and how."""

    version: int
    base: int
    person: str
    person_id: int | None
    done: bool
    how: str
    created_at: float


class MaskShown(BaseModel):
    """A mask as COCO's compressed run lengths: runs down the columns, background first."""

    height: int
    width: int
    counts: str


class DrawingShown(ImageShown):
    """Everything that the editor needs of an image; ``mask`` is null if none fits."""

    height: int
    width: int
    mask: MaskShown | None
    newest: VersionShown | None
    problem: str
    others: list[str] = Field(description="Other people who have the image open.")


class VersionMask(VersionShown):
    """A version with its mask."""

    mask: MaskShown


class Work(BaseModel):
    """A mask to save, and the version that it is based on."""

    model_config = ConfigDict(extra="forbid")
    base: Number
    height: Annotated[int, Field(ge=1, le=65_535)]
    width: Annotated[int, Field(ge=1, le=65_535)]
    counts: Annotated[str, Field(max_length=16 << 20, pattern=r"^[0-o]*$")]
    done: bool = False
    guided: bool = Field(False, description="Whether a rough mask was part of it.")
    editor: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")] = ""
    name: Annotated[str, Field(max_length=4096)] = Field(
        "", description="The image's name, to check that it is the right one."
    )


class BoxAndPoints(BaseModel):
    """A box (x0, y0, x1, y1) and points, in pixels; the middle of the first pixel is 0, 0."""

    model_config = ConfigDict(extra="forbid")
    box: tuple[Coordinate, Coordinate, Coordinate, Coordinate] | None = None
    inside: Annotated[list[Point], Field(max_length=200)] = []
    outside: Annotated[list[Point], Field(max_length=200)] = []


class Rough(MaskShown):
    """A rough mask, and how far to trust it, 0..1."""

    confidence: float


class Overtaken(BaseModel):
    """Someone else saved first: nothing was overwritten, and ``newest`` is their mask."""

    detail: str
    newest: VersionMask


@router.get("/annotate")
def annotate_page(request: Request, server: Server, person: Member) -> HTMLResponse:
    """Show the sets of masks to draw."""
    with server.database.reading() as connection:
        sets = mask_exchange.list_sets(connection)
    return page(request, "annotate_sets.html", sets=sets)


@router.get("/annotate/{set_id}")
def editor_page(request: Request, set_id: Identity, server: Server, person: Member) -> HTMLResponse:
    """Show the editor; the image is named after the # of its address."""
    return page(request, "annotate.html", set=_set(server, set_id), shown=mask_exchange.SHOWN)


@router.get("/api/annotate/sets/{set_id}")
def show_set(set_id: Identity, server: Server, person: Member) -> SetShown:
    """Return a set of masks, and how far it is."""
    return _set(server, set_id)


@router.get("/api/annotate/sets/{set_id}/images")
def list_images(
    set_id: Identity,
    server: Server,
    person: Member,
    wanted: Annotated[ImageFilter, Depends()],
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ImagePage:
    """Return images of a set, the most doubtful first."""
    with server.database.reading() as connection:
        total, drawings = mask_exchange.list_images(
            connection, set_id, person_id=person.id, offset=offset, limit=limit, **wanted.model_dump()
        )
        counts = mask_exchange.count_statuses(connection, set_id)
    return ImagePage(total=total, images=[ImageShown(**_line(drawing)) for drawing in drawings], counts=counts)


@router.get("/api/annotate/sets/{set_id}/next")
def next_image(
    set_id: Identity,
    server: Server,
    editing: Editing,
    person: Member,
    wanted: Annotated[ImageFilter, Depends()],
    after: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    backwards: bool = False,
) -> Neighbour:
    """Return the next image after another one; images that others have open come last."""
    with server.database.reading() as connection:
        for skip in (editing.taken(person.id), []):
            neighbour = mask_exchange.neighbour(
                connection, set_id, after, person_id=person.id, backwards=backwards, skip=skip, **wanted.model_dump()
            )
            if neighbour is not None:
                break
    return Neighbour(id=neighbour)


@router.get("/api/annotate/sets/{set_id}/export", response_class=Response, responses=_FILES)
def export_set(set_id: Identity, server: Server, person: Admin) -> Response:
    """Return all masks of a set as a COCO file."""
    name = quote(f"{_set(server, set_id).name}-coco.json")
    with server.database.reading() as connection:
        content = mask_exchange.coco_bytes(connection, set_id)[1]
    return Response(
        content,
        media_type="application/json",
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"},
    )


@router.get("/api/annotate/masks/{drawing_id}")
def show_mask(server: Server, editing: Editing, person: Member, drawing: NamedDrawing) -> DrawingShown:
    """Return an image with its newest mask."""
    if file_sha256(drawing) != drawing.sha256:
        with server.database.writing() as connection:
            locked = masks.get_drawing(connection, drawing.id, lock=True)
            drawing = masks.notice(connection, locked, now=server.now())
    height, width = editing.size(drawing.image_id)
    newest, problem = None, ""
    if drawing.version:
        with server.database.reading() as connection:
            newest = masks.get_version(connection, drawing.id, drawing.version)
        if (newest.height, newest.width) != (height, width):
            problem = (
                f"the stored mask has {newest.width} × {newest.height} pixels, the image {width} × {height}; what you "
                "draw replaces it"
            )
    editing.enter(drawing.id, person)
    return DrawingShown(
        **_line(drawing), height=height, width=width, problem=problem, others=editing.others(drawing.id, person.id),
        mask=None if newest is None or problem else MaskShown(**asdict(newest)),
        newest=None if newest is None else VersionShown(**asdict(newest)),
    )  # fmt: skip


@router.get("/api/annotate/masks/{drawing_id}/versions")
def list_versions(server: Server, person: Member, drawing: NamedDrawing) -> list[VersionShown]:
    """Return the versions of a mask, newest first."""
    with server.database.reading() as connection:
        return [VersionShown(**asdict(version)) for version in masks.list_versions(connection, drawing.id)]


@router.get("/api/annotate/masks/{drawing_id}/versions/{version}")
def show_version(
    drawing_id: Identity, version: Annotated[int, Field(ge=1, le=2**31 - 1)], server: Server, person: Member
) -> VersionMask:
    """Return one version of a mask."""
    with server.database.reading() as connection:
        try:
            return _version(masks.get_version(connection, drawing_id, version))
        except UserError as error:
            raise RefusedRequest(404, str(error)) from None


@router.put("/api/annotate/masks/{drawing_id}", responses={409: {"model": Overtaken}})
def save_mask(work: Work, server: Server, editing: Editing, person: Member, drawing: NamedDrawing) -> Any:
    """Save a mask; if someone else saved one since ``base``, nothing changes and the answer has theirs."""
    if work.name not in ("", drawing.sample_id):  # a browser may have kept work for another server at this address
        raise RefusedRequest(404, "this mask belongs to another server's image; reload the page")
    mask = _decoded(work, editing.size(drawing.image_id))
    guide = _guide(server, drawing)
    with server.database.writing() as connection:
        saved = masks.save(
            connection, drawing.id, base=work.base, mask=mask, person_id=person.id, done=work.done,
            how=f"drawn with {guide_name(guide)}" if work.guided else "drawn", editor=work.editor, now=server.now(),
        )  # fmt: skip
    editing.enter(drawing.id, person)
    if isinstance(saved, masks.Conflict):
        who = saved.newest.person or "Somebody"
        answer = Overtaken(detail=f"{who} saved this mask since you opened it", newest=_version(saved.newest))
        return JSONResponse(answer.model_dump(), 409)
    editing.changed(drawing.set_id)
    return VersionShown(**asdict(saved))


@router.post("/api/annotate/masks/{drawing_id}/prepare", status_code=204)
def prepare_image(server: Server, editing: Editing, person: Member, drawing: NamedDrawing) -> Response:
    """Let the mask maker prepare an image before the first click."""
    editing.prepare(_guide(server, drawing), drawing, person.id)
    return Response(status_code=204)


@router.post("/api/annotate/masks/{drawing_id}/rough")
def rough_mask(
    guidance: BoxAndPoints, server: Server, editing: Editing, person: Member, drawing: NamedDrawing
) -> Rough:
    """Return a rough mask from a box and points; nothing is saved."""
    try:
        proposal = editing.rough(_guide(server, drawing), drawing.image_id, **guidance.model_dump())
    except SampleError as error:
        raise RefusedRequest(400, str(error)) from error
    height, width = proposal.mask.shape
    return Rough(height=height, width=width, counts=mask_rle(proposal.mask), confidence=proposal.confidence)


def _set(server: Server, set_id: int) -> SetShown:
    with server.database.reading() as connection:
        try:
            mask_set = mask_exchange.get_set(connection, set_id)
        except UserError:
            raise missing("set of masks") from None
        return SetShown(
            id=set_id, name=mask_set["name"], guide=guide_name(mask_set["guide"]),
            counts=mask_exchange.count_statuses(connection, set_id),
            classes=list(mask_exchange.list_classes(connection, set_id)),
        )  # fmt: skip


def _guide(server: Server, drawing: Drawing) -> str:
    with server.database.reading() as connection:
        return str(mask_exchange.get_set(connection, drawing.set_id)["guide"])


def _decoded(work: Work, size: tuple[int, int]) -> Mask:
    """Return the mask if it has the image's size; run lengths are never longer than the image has pixels."""
    if (work.height, work.width) != size:
        sizes = f"{work.width} × {work.height} pixels, its image {size[1]} × {size[0]}"
        raise RefusedRequest(400, f"the mask has {sizes}; load the page again")
    if len(work.counts) > 2 * work.height * work.width + 16:
        raise RefusedRequest(413, "the mask's run lengths are longer than its image has pixels")
    try:
        return decode_coco({"size": list(size), "counts": work.counts}, *size)
    except SampleError as error:
        raise RefusedRequest(400, str(error)) from error


def _line(drawing: Drawing) -> dict[str, Any]:
    sure = drawing.confidence if drawing.confidence is not None and drawing.confidence >= 0 else None
    return {
        "id": drawing.id, "image_id": drawing.image_id, "name": drawing.sample_id, "label": drawing.label,
        "status": drawing.status, "confidence": sure, "version": drawing.version,
    }  # fmt: skip


def _version(version: Version) -> VersionMask:
    return VersionMask(**asdict(version), mask=MaskShown(**asdict(version)))
