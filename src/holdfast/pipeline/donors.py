"""Which images lend their backgrounds."""

from __future__ import annotations

import hashlib
import pickle
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from operator import attrgetter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import RejectedError, SampleError, UserError
from holdfast.core.fingerprint import canonical_json, fingerprint, generator
from holdfast.core.places import address, listing, place
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Donor, Image, ImageSource, Mask, Rendered, Sample
from holdfast.data.images import IMAGE_SUFFIXES, FileImage
from holdfast.data.native import NativeImage
from holdfast.scenarios.base.definition import DRAW

if TYPE_CHECKING:
    from holdfast.pipeline.generate.tools import Tools

CACHE_BYTES = 256 * 2**20
MOST_SHARED = int(DRAW.maximum or 0)

PACKED_ABOVE = 1000  # samples of a pool that travels to other processes as it is; a larger one is packed for them
Decoded = tuple[Image, Mask | None, str]  # A sample's image, its mask, and why there is no mask where one was promised


def load_sample(sample: Sample, max_pixels: int) -> Decoded:
    """Decode a sample. Raises SampleError without an image."""
    image = sample.image.load(max_pixels=max_pixels)
    if sample.mask is None:
        return image, None, ""
    try:
        return image, sample.mask.load(*image.shape[:2]), ""
    except SampleError as error:
        return image, None, str(error)


_TOGETHER, _LIGHT = 8, 4096


class _Packed:
    """Samples as other processes hold a large pool: some at a time compressed, 50 bytes each instead of 600."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._count = len(samples)
        starts = range(0, len(samples), _TOGETHER)
        self._packs = [zlib.compress(pickle.dumps(samples[start : start + _TOGETHER]), 1) for start in starts]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        return self._unpacked(self._packs[index // _TOGETHER])[index % _TOGETHER]

    def __iter__(self) -> Iterator[Sample]:
        for pack in self._packs:
            yield from self._unpacked(pack)

    def _unpacked(self, pack: bytes) -> list[Sample]:
        samples: list[Sample] = pickle.loads(zlib.decompress(pack))  # noqa: S301  (came with the work, pickled as well)
        return samples


class DonorPool:
    """Images to borrow backgrounds from, decoded when asked for and kept while memory allows."""

    # A borrowed image is drawn with the caller's generator, so the choice depends on the key and on the pool, never on
    # the order of work. One that cannot be read is passed over for the next draw. An image that both lends its
    # background and is worked on is decoded once for both, as long as it is kept. If the images are of no known
    # class (``--backgrounds``), ``kin`` lends those of the same class.

    def __init__(
        self, samples: Sequence[Sample], *, max_pixels: int = DEFAULT_MAX_PIXELS, kin: DonorPool | None = None
    ) -> None:
        self.samples: list[Sample] | _Packed = list(samples)
        self._kin = kin
        self._max_pixels = max_pixels
        code_of = {label: code for code, label in enumerate(sorted({sample.label for sample in self.samples}))}
        self._code_of = code_of
        self._codes = np.array([code_of[sample.label] for sample in self.samples], dtype=np.int32)
        self._by_class = np.argsort(self._codes, kind="stable")
        self._first_of = np.searchsorted(self._codes[self._by_class], np.arange(len(code_of) + 1))
        # Eight bytes each, not a set: by chance an image is remembered once in 10^13 that no one lends.
        self._ids = np.sort(np.array([_eight_bytes(sample.sample_id) for sample in self.samples], np.uint64))
        self._packed: _Packed | None = None
        self.tools: Tools | None = None
        self._begin()

    def _begin(self) -> None:
        self._cache: OrderedDict[str, Decoded] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()
        self._turns: dict[int, dict[str | None, list[Sample]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        samples = self.samples
        if isinstance(samples, list) and len(samples) > PACKED_ABOVE and len(pickle.dumps(samples[0])) <= _LIGHT:
            samples = self._packed = self._packed or _Packed(samples)  # once for all workers
        mine = {
            key: value
            for key, value in self.__dict__.items()
            if key not in ("_cache", "_cached_bytes", "_lock", "_turns")
        }
        return mine | {"samples": samples, "_packed": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def fingerprint(self, images: Mapping[str, str], masks: Mapping[str, str]) -> str:
        """Hash of who is in the pool and what their images and masks are: a lent scene is cleared with its mask."""
        own = list(self.samples)
        for name in ("label", "source_id", "sample_id"):
            own.sort(key=attrgetter(name))
        # What ``fingerprint`` would hash, piece by piece: the text of a million samples takes more memory than they do.
        digest, between = hashlib.sha256(b"[["), b""
        for s in own:
            entry = (s.sample_id, s.source_id, s.label, images.get(s.sample_id, ""), masks.get(s.sample_id, ""))
            digest.update(between + canonical_json(entry).encode())
            between = b","
        kin = self._kin.fingerprint(images, masks) if self._kin else ""
        digest.update(f"],{canonical_json(kin)}]".encode())
        return digest.hexdigest()

    def draw(self, borrower: Sample, rng: np.random.Generator, *, same_class: bool) -> Donor:
        """Draw a donor for one sample: never the same image."""
        if same_class and self._kin is not None:
            return self._kin.draw(borrower, rng, same_class=True)
        for sample in self.candidates(borrower, rng, same_class=same_class):
            try:
                image, mask, no_mask = self.load(sample)
                fits = not no_mask and _same_meaning(borrower.image, sample.image)
            except SampleError:
                continue
            if fits:
                return Donor(sample.sample_id, sample.label, image, mask)
        kind = "other image of this" if same_class else "image of another"
        raise SampleError(f"no {kind} class to borrow a background from, or none that can be read")

    def candidates(self, borrower: Sample, rng: np.random.Generator, *, same_class: bool) -> Iterator[Sample]:
        """Yield donors in turn: the first that can be read lends its background."""
        if same_class and self._kin is not None:
            yield from self._kin.candidates(borrower, rng, same_class=True)
            return
        for index in self._candidates(self._code_of.get(borrower.label, -1), rng, same_class=same_class):
            sample = self.samples[index]
            if sample.source_id != borrower.source_id:
                yield sample

    def _candidates(self, code: int, rng: np.random.Generator, *, same_class: bool) -> NDArray[np.int64]:
        # Some draws from everything are enough in a large pool, and cost the same whatever its size.
        if not same_class and len(self._codes) > 1000:
            drawn = rng.integers(len(self._codes), size=64)
            others = np.asarray(drawn[self._codes[drawn] != code])
            if len(others):
                return others
        if same_class:  # found once for all draws: looking through the pool at each of them would be quadratic
            own = self._by_class[self._first_of[code] : self._first_of[code + 1]] if code >= 0 else self._by_class[:0]
            return np.asarray(rng.permutation(own))
        return np.asarray(rng.permutation(np.flatnonzero(self._codes != code)))

    def in_turns(self, borrower: Sample, seed: int, *, same_class: bool) -> list[Sample]:
        """Return the first donors of an order that all samples share, without those that are not for this one."""
        if same_class and self._kin is not None:
            return self._kin.in_turns(borrower, seed, same_class=True)
        lenders = self._in_turns(seed, borrower.label if same_class else None)
        fitting = (each for each in lenders if same_class or each.label != borrower.label)
        return list(islice((each for each in fitting if each.source_id != borrower.source_id), MOST_SHARED))

    def _in_turns(self, seed: int, label: str | None) -> list[Sample]:
        """Return samples of one class in a random order, or of all classes in turn; of an original only one."""
        # All samples are lent nearly the same donors, because the first that they are lent are of as many classes.
        with self._lock:
            if seed not in self._turns:
                of_class: dict[str | None, list[Sample]] = {}
                for name, code in self._code_of.items():
                    own = self._by_class[self._first_of[code] : self._first_of[code + 1]]
                    order = generator(seed, "shared backgrounds", name).permutation(len(own))[: 2 * MOST_SHARED]
                    each = {sample.source_id: sample for sample in (self.samples[int(own[at])] for at in order)}
                    of_class[name] = list(each.values())
                names = list(self._code_of)
                groups = [of_class[names[at]] for at in generator(seed, "shared classes").permutation(len(names))]
                of_class[None] = [each for turn in zip_longest(*groups) for each in turn if each is not None]
                self._turns[seed] = of_class
            return self._turns[seed].get(label, [])

    def load(self, sample: Sample) -> Decoded:
        """Decode as ``load_sample`` does, and remember samples of the pool; no one may write into what it returns."""
        with self._lock:
            if sample.sample_id in self._cache:
                self._cache.move_to_end(sample.sample_id)
                return self._cache[sample.sample_id]
        decoded = load_sample(sample, self._max_pixels)
        wanted = np.uint64(_eight_bytes(sample.sample_id))
        place = np.searchsorted(self._ids, wanted)
        if place == len(self._ids) or self._ids[place] != wanted:
            return decoded
        with self._lock:
            if sample.sample_id not in self._cache:
                self._cache[sample.sample_id] = decoded
                self._cached_bytes += _size(decoded)
            while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
                _, dropped = self._cache.popitem(last=False)
                self._cached_bytes -= _size(dropped)
        return decoded


class AssignedDonors(DonorPool):
    """A pool in which some images have a donor of their own, named beforehand; the others draw as from any pool."""

    def __init__(
        self,
        samples: Sequence[Sample],
        lenders: Mapping[tuple[str, bool], Sample],  # (sample_id, whether the donor is of the same class) → the donor
        *,
        max_pixels: int = DEFAULT_MAX_PIXELS,  # refuse larger images
    ) -> None:
        super().__init__(samples, max_pixels=max_pixels)
        self._lenders = dict(lenders)

    def fingerprint(self, images: Mapping[str, str], masks: Mapping[str, str]) -> str:
        """Return the hash of the pool and of who lends to whom."""
        lent = sorted((name, same, lender.sample_id) for (name, same), lender in self._lenders.items())
        return fingerprint([super().fingerprint(images, masks), lent])

    def candidates(self, borrower: Sample, rng: np.random.Generator, *, same_class: bool) -> Iterator[Sample]:
        """Yield the donor that was named for this image, then others as from any pool."""
        lender = self._lenders.get((borrower.sample_id, same_class))
        if lender is not None:
            yield lender
        yield from super().candidates(borrower, rng, same_class=same_class)


def _same_meaning(borrower: ImageSource, donor: ImageSource) -> bool:
    """Return whether native values of two images stand for the same: CT of another intercept is not lent."""
    if not (isinstance(borrower, NativeImage) and isinstance(donor, NativeImage)):
        return True
    return borrower.meaning() == donor.meaning()


def _eight_bytes(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


def _size(decoded: Decoded) -> int:
    image, mask, _ = decoded
    return image.nbytes + (0 if mask is None else mask.nbytes)


def donor_draws(seed: int, sample: Sample, same_class: bool) -> np.random.Generator:
    """Return the generator that a sample draws its donor with."""
    return generator(seed, sample.sample_id, "donor", same_class)


@dataclass
class SampleContext:
    """What the scenarios of one source image share."""

    sample: Sample
    pool: DonorPool
    seed: int = 0
    painting: Callable[[Sample, Image, Mask], Rendered] | None = None

    def __post_init__(self) -> None:
        self.label = self.sample.label
        self._memory: dict[object, Any] = {}

    def donor(self, *, same_class: bool, draw: int = 0) -> Donor:
        """Return a donor, drawn from the sample's key alone, whatever the variant or the feather; see Context."""
        if draw:
            return self._shared(draw, same_class)
        return self.pool.draw(self.sample, donor_draws(self.seed, self.sample, same_class), same_class=same_class)

    def shared(self, number: int) -> Donor:
        """See core.protocols.Context. Drawn from the seed alone."""
        count = len(self.pool.samples)
        if number > count:
            raise SampleError(f"shared_background: there is no background {number}, the data has {count} images")
        place = int(generator(self.seed, "shared background").permutation(count)[number - 1])
        lender = self.pool.samples[place]
        image, mask, no_mask = self.pool.load(lender)
        if no_mask:
            raise SampleError(f"{lender.sample_id} cannot lend its background: {no_mask}")
        return Donor(lender.sample_id, lender.label, image, mask)

    def _shared(self, draw: int, same_class: bool) -> Donor:
        pool, sample = self.pool, self.sample
        donors = self.memo(("shared", same_class), lambda: pool.in_turns(sample, self.seed, same_class=same_class))
        if draw > len(donors):
            whose = f"{sample.label} has" if same_class else "other classes have"
            raise RejectedError(
                f"{whose} {len(donors)} other images that lend a background, so there is no draw {draw}"
            )
        image, mask, no_mask = pool.load(donors[draw - 1])
        if no_mask or not _same_meaning(sample.image, donors[draw - 1].image):
            raise SampleError(no_mask or f"{donors[draw - 1].sample_id} has other units and cannot lend its background")
        return Donor(donors[draw - 1].sample_id, donors[draw - 1].label, image, mask)

    def paint(self, image: Image, mask: Mask) -> Rendered:
        """Return new surroundings, painted once per sample."""
        if self.painting is None:
            raise SampleError("there is no generator to paint with")
        painting = self.painting
        painted: Rendered = self.memo("painted", lambda: painting(self.sample, image, mask))
        return painted

    def style(self) -> Donor:
        """Return an image of ``--styles``, drawn from the sample's key, or the donor of another class."""
        tools = self.pool.tools
        if tools is None or tools.styles is None:
            return self.donor(same_class=False)
        return tools.styles.draw(self.sample, generator(self.seed, self.sample.sample_id, "style"), same_class=False)

    def stylise(self, image: Image, style: Image, strength: float) -> Image:
        """See core.protocols.Context."""
        if self.pool.tools is None or self.pool.tools.stylist is None:
            raise SampleError("there is no network to stylise with: name its folder (--stylist)")
        return self.pool.tools.stylist(image, style, strength)

    def fill(self, image: Image, mask: Mask) -> Image | None:
        """See core.protocols.Context."""
        tools = self.pool.tools
        return None if tools is None or tools.filler is None else tools.filler(image, mask)

    def target(self, mask: Mask) -> tuple[str, Mask]:
        """See core.protocols.Context. Drawn from the sample's key, among the objects that count."""
        chosen: tuple[str, Mask] = self.memo("target object", lambda: self._target(mask))
        return chosen

    def _target(self, mask: Mask) -> tuple[str, Mask]:
        if self.sample.objects is None:
            return "", mask
        objects = [each for each in self.sample.objects.load(*mask.shape) if not each.problem and not each.crowd]
        if not objects:
            raise SampleError("the image has no object that counts, only crowds")
        rng = generator(self.seed, self.sample.sample_id, "target object")
        each = objects[int(rng.integers(len(objects)))]
        return each.object_id, each.pixels(*mask.shape) & mask

    def memo(self, key: object, make: Callable[[], Any]) -> Any:
        """Return what ``make`` makes, once per key."""
        if key not in self._memory:
            self._memory[key] = make()
        return self._memory[key]


def make_pool(samples: Sequence[Sample], backgrounds: str | None, *, max_pixels: int) -> DonorPool:
    """Return the donors: every original of the collection, or the images below ``--backgrounds``."""
    originals = DonorPool([s for s in samples if s.condition == ORIGINAL], max_pixels=max_pixels)
    if backgrounds is None:
        return originals
    # Their class is unknown, so they serve as other-class donors only; the same class is the collection's.
    native = any(isinstance(sample.image, NativeImage) for sample in samples[:1])
    lenders = [
        Sample(f"backgrounds/{name}", "", NativeImage(image) if native else image)
        for name, image in images_below("backgrounds", backgrounds).items()
    ]
    return DonorPool(lenders, max_pixels=max_pixels, kin=originals)


def images_below(option: str, folder_name: str) -> dict[PurePosixPath, FileImage]:
    """Return the images below the folder that an option names, by their path in it; UserError if there are none."""
    folder = place(folder_name)
    if not folder.is_dir():
        raise UserError(f"--{option} {folder_name} is not a folder")
    below = (
        listing(url)
        if (url := address(folder))
        else [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    )
    names = sorted(path for path in map(PurePosixPath, below) if path.suffix.lower() in IMAGE_SUFFIXES)
    if not names:
        raise UserError(f"--{option} {folder_name} has no images: give a folder with PNG or JPEG files")
    return {name: FileImage(f"{url or folder}/{name}") for name in names}
