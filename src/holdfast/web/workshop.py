"""What drawing masks needs besides the database: mask makers that are loaded, who is where, and the COCO file."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from holdfast.annotate import load_guided
from holdfast.core.errors import SampleError, UserError
from holdfast.core.protocols import GuidedAnnotator, MaskProposal
from holdfast.core.types import Image
from holdfast.data import load_collection
from holdfast.people.database import DatabaseUnavailable
from holdfast.people.identity import Person
from holdfast.people.mask_exchange import write_coco
from holdfast.people.mask_lists import list_sets
from holdfast.people.mask_sets import Progress, open_set, reconcile
from holdfast.people.masks import Drawing
from holdfast.people.sources import absolute_reference, add_source
from holdfast.pipeline.files import check_apart, file_name, safe_part
from holdfast.web.house import House

log = logging.getLogger("holdfast.web")

COCO_PAUSE_S = 5.0
"""How long the COCO file may lag behind the PNGs while people draw."""

PRESENT_S = 300.0
"""Whoever opened an image, or saved it, this long ago is still taken to be at it."""

_LOOK_S = 0.2  # how often somebody who waits for a mask maker looks whether they still need it
_EMBEDDINGS = 8  # images; SAM's are 4 MB each, and its reduced photo is what GrabCut keeps

Point = tuple[float, float]


class Workshop:
    """Shared by all requests; ``app.state.workshop``."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._guides: dict[str, GuidedAnnotator] = {}
        self._embeddings: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._sizes: dict[int, tuple[int, int]] = {}
        # One at a time: OpenCV's random numbers and torch's modules are not for sharing.
        self._guiding = threading.Lock()
        self._lock = threading.Lock()
        self._present: dict[int, dict[int, tuple[str, float]]] = {}
        self._changed: set[int] = set()
        self._timer: threading.Timer | None = None
        self._closed = False

    def open(self) -> None:
        """Make folders and database agree, in case somebody changed files or the last server was killed."""
        try:
            with self._house.database.reading() as connection:
                sets = [one["id"] for one in list_sets(connection)]
            for set_id in sets:
                reconcile(self._house.database, set_id, now=self._house.now())
                self._owe(set_id)
        except (DatabaseUnavailable, OSError) as error:
            log.warning("the masks in folders could not be checked: %s", error)

    def size(self, image_id: int) -> tuple[int, int]:
        """Height and width of an image, upright; UserError where it cannot be read."""
        if image_id not in self._sizes:
            self._image(image_id)
        return self._sizes[image_id]

    def _image(self, image_id: int) -> Image:
        try:
            image = self._house.shelf.sample(image_id).image.load(max_pixels=self._house.options.max_pixels)
        except SampleError as error:
            raise UserError(f"the image cannot be drawn on: {error}") from error
        self._sizes[image_id] = (image.shape[0], image.shape[1])
        return image

    def prepare(self, guide: str, drawing: Drawing, person_id: int) -> None:
        """Compute what all guidance on an image shares, before the first click comes.

        Whoever leafs through images need not wait until all that they passed are computed: those are left out.
        """
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
        """A mask from a box and points; what the image itself asks for is computed once."""
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
        """Remember that a person has an image open; they can be at one place only."""
        now = self._house.now()
        with self._lock:
            for people in self._present.values():
                people.pop(person.id, None)
            self._present = {one: people for one, people in self._present.items() if people}
            self._present.setdefault(drawing_id, {})[person.id] = (person.name, now)

    def others(self, drawing_id: int, person_id: int) -> list[str]:
        """The names of other people who have the image open."""
        return [name for one, name in self._at(drawing_id) if one != person_id]

    def taken(self, person_id: int) -> list[int]:
        """Images that other people have open."""
        with self._lock:
            places = list(self._present)
        return [place for place in places if any(one != person_id for one, _ in self._at(place))]

    def _at(self, drawing_id: int) -> list[tuple[int, str]]:
        since = self._house.now() - PRESENT_S
        with self._lock:
            present = dict(self._present.get(drawing_id, {}))
        return [(one, name) for one, (name, at) in present.items() if at >= since]

    def changed(self, drawing: Drawing) -> None:
        """The COCO file is out of date: it is written soon, once for all that happens until then."""
        self._owe(drawing.set_id)

    def _owe(self, set_id: int) -> None:
        with self._lock:
            self._changed.add(set_id)
            if self._timer is None and not self._closed:
                self._timer = threading.Timer(COCO_PAUSE_S, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Write the COCO files that are out of date; what cannot be written now is tried again later."""
        with self._lock:
            owed, self._changed, self._timer = self._changed, set(), None
        for set_id in owed:
            try:
                with self._house.database.reading() as connection:
                    write_coco(connection, set_id)
            except (DatabaseUnavailable, OSError) as error:
                log.warning("the COCO file could not be written yet: %s", error)
                self._owe(set_id)

    def close(self) -> None:
        """Write what is owed, and start nothing any more."""
        with self._lock:
            self._closed = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
        self.flush()


def guide_name(guide: str) -> str:
    """A mask maker as people see it: its folder's name, not where on the server it lies."""
    scheme, colon, where = guide.partition(":")
    return f"{scheme}:{PurePath(where).name}" if colon and PurePath(where).is_absolute() else guide


def take_in(house: House, data: str, *, masks: Path | None, guide: str, progress: Progress) -> int:
    """Let people draw the masks of a dataset; returns the number of the set.

    Args:
        house: where people's work is kept.
        data: as ``holdfast eval`` takes it.
        masks: the folder of the masks, there already or not; one in the state folder where none is named.
        guide: the mask maker for boxes and clicks.
        progress: told step, done and total.
    """
    load_guided(guide)  # a mistyped name shows now, not at the first click
    if ":" in guide:  # a folder of weights, for a server that is started elsewhere
        guide = absolute_reference(guide)
    collection = load_collection(data)
    folder = masks or house.state / "masks" / safe_part(collection.name)
    check_apart(collection.samples, folder, option="--masks")
    now = house.now()
    with house.database.writing() as connection:
        source_id = add_source(connection, name=collection.name, reference=data, collection=collection, now=now)
    return open_set(
        house.database, source_id=source_id, samples=collection.samples, folder=folder, guide=guide,
        name_file=file_name, now=now, progress=progress,
    )  # fmt: skip
