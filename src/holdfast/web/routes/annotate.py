"""The annotate page: the list of images, the mask of one, rough masks from boxes and clicks, and saving."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.types import Mask
from holdfast.data.masks import decode_coco
from holdfast.data.writers import mask_rle
from holdfast.people import mask_exchange, mask_lists, masks
from holdfast.people.masks import Drawing, Version
from holdfast.web.dependencies import Admin, Identity, Line, Member, TheHouse
from holdfast.web.errors import Refusal, missing
from holdfast.web.pages import page
from holdfast.web.workshop import Workshop, guide_name

router = APIRouter(tags=["annotate"])


async def _workshop(request: Request) -> Workshop:
    workshop: Workshop = request.app.state.workshop
    return workshop


TheWorkshop = Annotated[Workshop, Depends(_workshop)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Coordinate = Annotated[float, Field(ge=-1, le=1e6, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate]
_FILES: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}, "application/zip": {}}}}
Show = Literal["all", "unfinished", "doubtful", "mine", "done"]


class Wanted(BaseModel):
    """What a list is narrowed to."""

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
    """A line of the list; ``/media/images/{image_id}/small`` is its picture."""

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
    """Everything that the editor needs of an image; ``mask`` is nothing where there is none that fits."""

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
    """A mask to save, and what it was drawn upon."""

    model_config = ConfigDict(extra="forbid")
    base: Number
    height: Annotated[int, Field(ge=1, le=65_535)]
    width: Annotated[int, Field(ge=1, le=65_535)]
    counts: Annotated[str, Field(max_length=16 << 20, pattern=r"^[0-o]*$")]
    done: bool = False
    guided: bool = Field(False, description="Whether a rough mask was part of it.")
    editor: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")] = ""
    name: Annotated[str, Field(max_length=4096)] = Field("", description="Of the image, to be sure that it is the one.")


class Guidance(BaseModel):
    """A box (x0, y0, x1, y1) and points, in pixels; the middle of the first pixel is 0, 0."""

    model_config = ConfigDict(extra="forbid")
    box: tuple[Coordinate, Coordinate, Coordinate, Coordinate] | None = None
    inside: Annotated[list[Point], Field(max_length=200)] = []
    outside: Annotated[list[Point], Field(max_length=200)] = []


class Rough(MaskShown):
    """A rough mask, and how far to trust it, 0..1."""

    confidence: float


class Overtaken(BaseModel):
    """Somebody else saved first: nothing was overwritten, and here is theirs."""

    detail: str
    newest: VersionMask


@router.get("/annotate")
def annotate_page(request: Request, house: TheHouse, person: Member) -> HTMLResponse:
    """The sets of masks that there are to draw."""
    with house.database.reading() as connection:
        sets = mask_lists.list_sets(connection)
    return page(request, "annotate_sets.html", sets=sets)


@router.get("/annotate/{set_id}")
def editor_page(request: Request, set_id: Identity, house: TheHouse, person: Member) -> HTMLResponse:
    """The editor; which image it shows stands behind the # of its address."""
    return page(request, "annotate.html", set=_set(house, set_id), shown=mask_lists.SHOWN)


@router.get("/api/annotate/sets/{set_id}")
def show_set(set_id: Identity, house: TheHouse, person: Member) -> SetShown:
    """A set of masks, and how far it is."""
    return _set(house, set_id)


@router.get("/api/annotate/sets/{set_id}/images")
def list_images(
    set_id: Identity,
    house: TheHouse,
    person: Member,
    wanted: Annotated[Wanted, Depends()],
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ImagePage:
    """Images of a set, the most doubtful first."""
    with house.database.reading() as connection:
        total, found = mask_lists.list_images(
            connection, set_id, person_id=person.id, offset=offset, limit=limit, **wanted.model_dump()
        )
        counts = mask_lists.count_statuses(connection, set_id)
    return ImagePage(total=total, images=[ImageShown(**_line(one)) for one in found], counts=counts)


@router.get("/api/annotate/sets/{set_id}/next")
def next_image(
    set_id: Identity,
    house: TheHouse,
    workshop: TheWorkshop,
    person: Member,
    wanted: Annotated[Wanted, Depends()],
    after: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    backwards: bool = False,
) -> Neighbour:
    """The next image of a kind after another one; images that others have open come last."""
    with house.database.reading() as connection:
        for skip in (workshop.taken(person.id), []):
            found = mask_lists.neighbour(
                connection, set_id, after, person_id=person.id, backwards=backwards, skip=skip, **wanted.model_dump()
            )
            if found is not None:
                break
    return Neighbour(id=found)


@router.get("/api/annotate/sets/{set_id}/export", response_class=Response, responses=_FILES)
def export_set(
    set_id: Identity, house: TheHouse, person: Admin, format: Literal["coco", "darwin"] = "coco"
) -> Response:
    """All masks of a set: a COCO file, or V7 Darwin files in an archive."""
    name = f"{_set(house, set_id).name}-{format}"
    with house.database.reading() as connection:
        if format == "coco":
            content, kind, name = mask_exchange.coco_bytes(connection, set_id)[1], "application/json", f"{name}.json"
        else:
            content, kind, name = mask_exchange.darwin_zip(connection, set_id), "application/zip", f"{name}.zip"
    return Response(
        content, media_type=kind, headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    )


@router.get("/api/annotate/masks/{drawing_id}")
def show_mask(drawing_id: Identity, house: TheHouse, workshop: TheWorkshop, person: Member) -> DrawingShown:
    """An image with its newest mask."""
    drawing = _drawing(house, drawing_id)
    if _sha256(drawing) != drawing.sha256:
        with house.database.writing() as connection:
            found = masks.get_drawing(connection, drawing_id, lock=True)
            drawing = masks.notice(connection, found, now=house.now())
    height, width = workshop.size(drawing.image_id)
    newest, problem = None, ""
    if drawing.version:
        with house.database.reading() as connection:
            newest = masks.get_version(connection, drawing.id, drawing.version)
        if (newest.height, newest.width) != (height, width):
            problem = (
                f"the mask that is there has {newest.width} × {newest.height} pixels, the image {width} × {height}; "
                "what you draw takes its place"
            )
    workshop.enter(drawing.id, person)
    return DrawingShown(
        **_line(drawing),
        height=height,
        width=width,
        mask=None if newest is None or problem else _mask(newest),
        newest=None if newest is None else VersionShown(**masks.version_facts(newest)),
        problem=problem,
        others=workshop.others(drawing.id, person.id),
    )


@router.get("/api/annotate/masks/{drawing_id}/versions")
def list_versions(drawing_id: Identity, house: TheHouse, person: Member) -> list[VersionShown]:
    """What a mask can be compared with, newest first."""
    _drawing(house, drawing_id)
    with house.database.reading() as connection:
        return [VersionShown(**facts) for facts in masks.list_versions(connection, drawing_id)]


@router.get("/api/annotate/masks/{drawing_id}/versions/{version}")
def show_version(
    drawing_id: Identity, version: Annotated[int, Field(ge=1, le=2**31 - 1)], house: TheHouse, person: Member
) -> VersionMask:
    """One version of a mask."""
    with house.database.reading() as connection:
        try:
            return _version(masks.get_version(connection, drawing_id, version))
        except UserError as error:
            raise Refusal(404, str(error)) from None


@router.put("/api/annotate/masks/{drawing_id}", responses={409: {"model": Overtaken}})
def save_mask(drawing_id: Identity, work: Work, house: TheHouse, workshop: TheWorkshop, person: Member) -> Any:
    """Save a mask, unless somebody else saved one since ``base``: then nothing changes and theirs is answered."""
    drawing = _drawing(house, drawing_id)
    if work.name not in ("", drawing.sample_id):  # a browser may keep work for a server that was here before
        raise Refusal(404, "this is a mask of an image that is not here")
    mask = _decoded(work, workshop.size(drawing.image_id))
    guide = _guide(house, drawing)
    with house.database.writing() as connection:
        saved = masks.save(
            connection, drawing_id, base=work.base, mask=mask, person_id=person.id, done=work.done,
            how=f"drawn with {guide_name(guide)}" if work.guided else "drawn", editor=work.editor, now=house.now(),
        )  # fmt: skip
    workshop.enter(drawing.id, person)
    if isinstance(saved, masks.Conflict):
        who = saved.newest.person or "Somebody"
        answer = Overtaken(detail=f"{who} saved this mask since you opened it", newest=_version(saved.newest))
        return JSONResponse(answer.model_dump(), 409)
    workshop.changed(drawing)
    return VersionShown(**masks.version_facts(saved))


@router.post("/api/annotate/masks/{drawing_id}/prepare", status_code=204)
def prepare_image(drawing_id: Identity, house: TheHouse, workshop: TheWorkshop, person: Member) -> Response:
    """Let the mask maker look at an image before the first click comes."""
    drawing = _drawing(house, drawing_id)
    workshop.prepare(_guide(house, drawing), drawing, person.id)
    return Response(status_code=204)


@router.post("/api/annotate/masks/{drawing_id}/rough")
def rough_mask(
    drawing_id: Identity, guidance: Guidance, house: TheHouse, workshop: TheWorkshop, person: Member
) -> Rough:
    """A rough mask from a box and points; nothing is saved."""
    drawing = _drawing(house, drawing_id)
    try:
        proposal = workshop.rough(
            _guide(house, drawing), drawing.image_id, box=guidance.box, inside=guidance.inside, outside=guidance.outside
        )
    except SampleError as error:
        raise Refusal(400, str(error)) from error
    height, width = proposal.mask.shape
    return Rough(height=height, width=width, counts=mask_rle(proposal.mask), confidence=proposal.confidence)


def _set(house: TheHouse, set_id: int) -> SetShown:
    with house.database.reading() as connection:
        found = mask_lists.get_set(connection, set_id)
        if found is None:
            raise missing("set of masks")
        return SetShown(
            id=set_id, name=found["name"], guide=guide_name(found["guide"]),
            counts=mask_lists.count_statuses(connection, set_id),
            classes=list(mask_lists.list_classes(connection, set_id)),
        )  # fmt: skip


def _drawing(house: TheHouse, drawing_id: int) -> Drawing:
    with house.database.reading() as connection:
        try:
            return masks.get_drawing(connection, drawing_id)
        except UserError:
            raise missing("image") from None


def _guide(house: TheHouse, drawing: Drawing) -> str:
    with house.database.reading() as connection:
        found = mask_lists.get_set(connection, drawing.set_id)
    return found["guide"] if found else ""


def _sha256(drawing: Drawing) -> str:
    try:
        return bytes_sha256(drawing.file.read_bytes())
    except FileNotFoundError:
        return ""


def _decoded(work: Work, size: tuple[int, int]) -> Mask:
    """The mask, if it has the image's size; run lengths are never longer than the image has pixels."""
    if (work.height, work.width) != size:
        sizes = f"{work.width} × {work.height} pixels, its image {size[1]} × {size[0]}"
        raise Refusal(400, f"the mask has {sizes}; load the page again")
    if len(work.counts) > 2 * work.height * work.width + 16:
        raise Refusal(413, "the mask's run lengths are longer than its image has pixels")
    try:
        return decode_coco({"size": list(size), "counts": work.counts}, *size)
    except SampleError as error:
        raise Refusal(400, str(error)) from error


def _line(drawing: Drawing) -> dict[str, Any]:
    sure = drawing.confidence if drawing.confidence is not None and drawing.confidence >= 0 else None
    return {
        "id": drawing.id, "image_id": drawing.image_id, "name": drawing.sample_id, "label": drawing.label,
        "status": drawing.status, "confidence": sure, "version": drawing.version,
    }  # fmt: skip


def _mask(version: Version) -> MaskShown:
    return MaskShown(height=version.height, width=version.width, counts=version.counts)


def _version(version: Version) -> VersionMask:
    return VersionMask(**masks.version_facts(version), mask=_mask(version))
