"""Services of the page that draws masks: loaded mask makers, who has which image open, and the COCO files."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from holdfast.annotate import load_guided
from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import safe_part
from holdfast.core.protocols import GuidedAnnotator, MaskProposal
from holdfast.core.types import Image
from holdfast.data import load_collection
from holdfast.pipeline.files import check_apart, file_name
from holdfast_people.database import DatabaseUnavailable
from holdfast_people.identity import Person
from holdfast_people.mask_exchange import list_sets, write_coco
from holdfast_people.mask_sets import Progress, open_set, reconcile
from holdfast_people.masks import Drawing
from holdfast_people.sources import absolute_reference, add_source
from holdfast_people.web.services.server_state import ServerState

log = logging.getLogger("holdfast.web")

COCO_PAUSE_S = 5.0  # seconds by which the COCO file may lag behind the PNGs while people draw
PRESENT_S = 300.0  # seconds after opening or saving an image in which a person counts as still working on it
_LOOK_S = 0.2  # how often a waiting request checks whether its person still has the image open
_EMBEDDINGS = 8  # images that are kept; SAM's embeddings take 4 MB each

Point = tuple[float, float]


class MaskEditing:
    """Shared by all requests; the application keeps it as ``app.state.editing``."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._guides: dict[str, GuidedAnnotator] = {}
        self._embeddings: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._sizes: dict[int, tuple[int, int]] = {}
        # One request at a time: OpenCV's random numbers and torch's modules are not safe to share.
        self._guiding = threading.Lock()
        self._lock = threading.Lock()
        self._present: dict[int, dict[int, tuple[str, float]]] = {}
        self._changed: set[int] = set()
        self._timer: threading.Timer | None = None
        self._closed = False

    def open(self) -> None:
        """Make folders and database agree: files may have changed, or the last server was killed."""
        try:
            with self._server.database.reading() as connection:
                sets = [mask_set["id"] for mask_set in list_sets(connection)]
            for set_id in sets:
                reconcile(self._server.database, set_id, now=self._server.now())
                self.changed(set_id)
        except (DatabaseUnavailable, OSError) as error:
            log.warning("the masks in folders could not be checked: %s", error)

    def size(self, image_id: int) -> tuple[int, int]:
        """Return height and width of an image, upright; UserError if it cannot be read."""
        if image_id not in self._sizes:
            self._image(image_id)
        return self._sizes[image_id]

    def _image(self, image_id: int) -> Image:
        try:
            image = self._server.shelf.sample(image_id).image.load(max_pixels=self._server.options.max_pixels)
        except SampleError as error:
            raise UserError(f"the image cannot be drawn on: {error}") from error
        self._sizes[image_id] = (image.shape[0], image.shape[1])
        return image

    def prepare(self, guide: str, drawing: Drawing, person_id: int) -> None:
        """Compute an image's embedding before the first click; images that the person has left are skipped."""
        while not self._guiding.acquire(timeout=_LOOK_S):
            if self._has_left(drawing.id, person_id):
                return
        try:
            if not self._has_left(drawing.id, person_id):
                self._embedding(guide, drawing.image_id)
        except SampleError:
            log.debug("image %s cannot be prepared; the first click says why", drawing.image_id)
        finally:
            self._guiding.release()

    def _has_left(self, drawing_id: int, person_id: int) -> bool:
        with self._lock:
            return any(person_id in people for place, people in self._present.items() if place != drawing_id)

    def rough(
        self, guide: str, image_id: int, *, box: tuple[float, float, float, float] | None, inside: Sequence[Point],
        outside: Sequence[Point],
    ) -> MaskProposal:  # fmt: skip
        """Return a mask from a box and points; the image's embedding is computed once."""
        with self._guiding:
            embedding = self._embedding(guide, image_id)
            return self._guides[guide].guided(embedding, box=box, inside=inside, outside=outside)

    def _embedding(self, guide: str, image_id: int) -> Any:
        if guide not in self._guides:
            self._guides[guide] = load_guided(guide)
        key = (guide, image_id)
        if key not in self._embeddings:
            self._embeddings[key] = self._guides[guide].embed(self._image(image_id))
            if len(self._embeddings) > _EMBEDDINGS:
                self._embeddings.popitem(last=False)
        self._embeddings.move_to_end(key)
        return self._embeddings[key]

    def enter(self, drawing_id: int, person: Person) -> None:
        """Remember that a person has an image open, and has left all others."""
        now = self._server.now()
        with self._lock:
            for people in self._present.values():
                people.pop(person.id, None)
            self._present = {drawing: people for drawing, people in self._present.items() if people}
            self._present.setdefault(drawing_id, {})[person.id] = (person.name, now)

    def others(self, drawing_id: int, person_id: int) -> list[str]:
        """Return the names of other people who have the image open."""
        return [name for other, name in self._at(drawing_id) if other != person_id]

    def taken(self, person_id: int) -> list[int]:
        """Return the images that other people have open."""
        with self._lock:
            places = list(self._present)
        return [place for place in places if any(other != person_id for other, _ in self._at(place))]

    def _at(self, drawing_id: int) -> list[tuple[int, str]]:
        since = self._server.now() - PRESENT_S
        with self._lock:
            present = dict(self._present.get(drawing_id, {}))
        return [(person, name) for person, (name, at) in present.items() if at >= since]

    def changed(self, set_id: int) -> None:
        """Write the set's COCO file soon, once for all changes until then."""
        with self._lock:
            self._changed.add(set_id)
            if self._timer is None and not self._closed:
                self._timer = threading.Timer(COCO_PAUSE_S, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Write the COCO files that are out of date; those that cannot be written are tried again later."""
        with self._lock:
            owed, self._changed, self._timer = self._changed, set(), None
        for set_id in owed:
            try:
                with self._server.database.reading() as connection:
                    write_coco(connection, set_id)
            except (DatabaseUnavailable, OSError) as error:
                log.warning("the COCO file could not be written yet: %s", error)
                self.changed(set_id)

    def close(self) -> None:
        """Write the COCO files that are out of date, and start no timer again."""
        with self._lock:
            self._closed = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
        self.flush()


def guide_name(guide: str) -> str:
    """Return a mask maker's name as people see it: without the path on the server."""
    scheme, colon, where = guide.partition(":")
    return f"{scheme}:{PurePath(where).name}" if colon and PurePath(where).is_absolute() else guide


def take_in(server: ServerState, data: str, *, masks: Path | None, guide: str, progress: Progress) -> int:
    """Let people draw the masks of a dataset; return the number of the set."""
    load_guided(guide)  # so that a wrong name fails now, not at the first click
    if ":" in guide:  # a folder of weights; the next server may start in another folder
        guide = absolute_reference(guide)
    collection = load_collection(data)
    folder = masks or server.folder / "masks" / safe_part(collection.name)
    check_apart(collection.samples, folder, option="--masks")
    now = server.now()
    with server.database.writing() as connection:
        source_id = add_source(connection, name=collection.name, reference=data, collection=collection, now=now)
    return open_set(
        server.database, source_id=source_id, samples=collection.samples, folder=folder, guide=guide,
        name_file=file_name, now=now, progress=progress,
    )  # fmt: skip
