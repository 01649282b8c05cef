"""What may be wrong with data, gravest first: one list of checks, each with its sentence and what to do."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.data.labels import normalised
from holdfast.data.masks import EncodedMask
from holdfast.data.near import copies, is_copy

EXAMPLES = 5
"""Names that a finding shows."""

_ONE = {"s": "", "es": "", "s1": "s", "have": "has"}
_SEVERAL = {"s": "s", "es": "es", "s1": "", "have": "have"}


@dataclass(frozen=True, slots=True)
class PhotoFacts:
    """What one look at an image and its mask shows."""

    format: str = ""  # JPEG, PNG and so on; '' for images that are not files
    size: tuple[int, int] = (0, 0)  # (height, width), upright
    turned: bool = False  # whether EXIF turns it
    deep: bool = False  # whether the file has 16 bits a channel
    brightest: int = 255  # the largest value of the decoded image, 0 to 255
    digest: bytes = b""  # a hash of the bytes, 16 bytes long; empty if they cannot be read
    look: bytes = b""  # a perceptual hash of the image, 32 bytes long; empty if it cannot be decoded
    bytes: int = 0  # size of the file, 0 for images that are not files
    problem: str = ""  # why the image cannot be read
    mask_problem: str = ""  # why the mask cannot be read
    covered: float = float("nan")  # share of the image that the mask covers; NaN without a mask
    turned_mask: bool = False  # whether the mask fits the image as it is stored, before EXIF turns it
    void_ring: bool = False  # whether the mask has few small values and 255, and is read so that only 255 is the object


@dataclass(frozen=True)
class DataFinding:
    """Something that is wrong with a dataset: how often, what, what to do, and the first examples."""

    kind: str
    count: int
    sentence: str
    advice: str
    examples: tuple[str, ...]


def short_digest(data: bytes) -> bytes:
    """Return a hash of 16 bytes: a million of them fit into memory with ease."""
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass
class Survey:
    """What the checks look at: the collection, rows of a label file that match nothing, and what images showed."""

    collection: Collection
    label_rows: Sequence[str] = ()
    seen: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    digests: bytearray = field(default_factory=bytearray)
    looks: bytearray = field(default_factory=bytearray)

    def add(self, sample: Sample, facts: PhotoFacts) -> None:
        """Ask every check of single images."""
        self.digests += facts.digest or bytes(16)
        self.looks += facts.look or bytes(32)
        for check in CHECKS:
            if check.photo is not None and (name := check.photo(sample, facts)):
                self.seen[check.kind] += 1
                if len(self.examples[check.kind]) < EXAMPLES:
                    self.examples[check.kind].append(name)

    def same_bytes(self) -> Iterator[list[Sample]]:
        """Yield the samples of each image that is there several times; renderings of one image count once."""
        words = np.frombuffer(bytes(self.digests), np.uint64).reshape(-1, 2)
        _, place, counts = np.unique(words[:, 0], return_inverse=True, return_counts=True)  # nearly unique
        groups: dict[bytes, list[Sample]] = defaultdict(list)
        for index in np.flatnonzero((counts[place] > 1) & words.any(axis=1)).tolist():
            groups[words[index].tobytes()].append(self.collection.samples[index])
        for group in groups.values():
            first_of_source = {sample.source_id: sample for sample in reversed(group)}
            if len(first_of_source) > 1:
                yield sorted(first_of_source.values(), key=lambda sample: sample.sample_id)


@dataclass(frozen=True)
class DataCheck:
    """One check: ``photo`` names an image that shows it (else ''), or ``whole`` lists examples, or ``each`` findings.

    The sentence may hold {count}, the plural's {s} or {es}, {have}, and {s1}, the s of a verb after one.
    """

    kind: str
    sentence: str = ""
    advice: str = ""
    photo: Callable[[Sample, PhotoFacts], str] | None = None
    whole: Callable[[Survey], Iterable[str]] | None = None
    each: Callable[[Survey], Iterator[DataFinding]] | None = None

    def findings(self, survey: Survey) -> Iterator[DataFinding]:
        """Yield the finding, if there is one."""
        if self.each is not None:
            yield from self.each(survey)
            return
        if self.whole is None:
            count, examples = survey.seen[self.kind], survey.examples[self.kind]
        else:
            examples = list(self.whole(survey))
            count = len(examples)
        if count:
            sentence = self.sentence.format(count=f"{count:,}", **(_ONE if count == 1 else _SEVERAL))
            yield DataFinding(self.kind, count, sentence, self.advice, tuple(examples[:EXAMPLES]))


def find(survey: Survey) -> list[DataFinding]:
    """Return all findings, gravest first."""
    return [finding for check in CHECKS for finding in check.findings(survey)]


def two_classes(groups: Iterable[Sequence[Sample]]) -> Iterator[str]:
    """Yield the names of images that are the same, byte for byte, and have different labels."""
    for group in groups:
        if len({sample.label for sample in group}) > 1:
            yield " = ".join(f"{sample.sample_id} ({sample.label})" for sample in group[:3])


def _twice(survey: Survey) -> Iterator[str]:
    for group in survey.same_bytes():
        same = [sample for sample in group if (sample.label, sample.split) == (group[0].label, group[0].split)]
        if len(same) > 1:
            links = [sample for sample in same if os.path.islink(str(getattr(sample.image, "path", "")))]  # noqa: PTH114
            names = " = ".join(sample.sample_id for sample in same[:3])
            yield f"{names} (a link)" if links else names


def _copies(survey: Survey) -> Iterator[str]:
    """Yield the names of images that look like an earlier one, but have other bytes and another source."""
    samples, digests = survey.collection.samples, np.frombuffer(bytes(survey.digests), "V16")
    original: dict[int, int] = {}
    for first, second in copies(np.frombuffer(bytes(survey.looks), np.uint64).reshape(-1, 4)):
        differ = digests[first] != digests[second] and samples[first].source_id != samples[second].source_id
        if differ and second not in original and is_copy(samples[first].image.load(), samples[second].image.load()):
            original[second] = first
    for second, first in original.items():
        yield " = ".join(_with_place(samples[number], samples[first], samples[second]) for number in (first, second))


def _with_place(sample: Sample, *pair: Sample) -> str:
    """Return the name of a sample, with its class or split if those of a pair differ."""
    differing = [name for name in ("label", "split") if len({getattr(each, name) for each in pair}) > 1]
    places = ", ".join(str(getattr(sample, name)) for name in differing)
    return f"{sample.sample_id} ({places})" if places else sample.sample_id


def _two_splits(survey: Survey) -> Iterator[str]:
    for group in survey.same_bytes():
        if len({sample.split for sample in group if sample.split}) > 1:
            yield " = ".join(f"{sample.sample_id} ({sample.split})" for sample in group[:3])


def _alike_classes(survey: Survey) -> Iterator[str]:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in survey.collection.classes:
        alike[normalised(name)].append(name)
    yield from (" and ".join(map(repr, names)) for names in alike.values() if len(names) > 1)


def _shared_masks(survey: Survey) -> Iterator[str]:
    owners: dict[EncodedMask, dict[str, str]] = defaultdict(dict)
    for sample in survey.collection.samples:
        if isinstance(sample.mask, EncodedMask):
            owners[sample.mask].setdefault(sample.source_id, sample.sample_id)
    yield from (" and ".join(several.values()) for several in owners.values() if len(several) > 1)


def _without_mask(survey: Survey) -> list[str]:
    samples = [sample for sample in survey.collection.samples if sample.condition == ORIGINAL]
    bare = [sample.sample_id for sample in samples if sample.mask is None]
    return bare if len(bare) < len(samples) else []


def _single_photos(survey: Survey) -> list[str]:
    sources: dict[str, set[str]] = defaultdict(set)
    for sample in survey.collection.samples:
        sources[sample.label].add(sample.source_id)
    return [label for label in survey.collection.classes if len(sources[label]) == 1]


def _passed_over(survey: Survey) -> Iterator[DataFinding]:
    counts: Counter[str] = Counter()
    names: dict[str, list[str]] = defaultdict(list)
    for problem in survey.collection.problems:
        counts[problem.message] += 1
        names[problem.message].append(problem.sample_id)
    for message, count in counts.most_common():
        what, _, advice = message.partition("; ")
        sentence = f"The reader passed over {names[message][0] if count == 1 else f'{count:,} entries'}: {what}."
        advice = f"{advice[:1].upper()}{advice[1:]}." if advice else "Fix or remove it."
        yield DataFinding("passed-over", count, sentence, advice, tuple(names[message][:EXAMPLES]))


def _named(condition: Callable[[PhotoFacts], bool]) -> Callable[[Sample, PhotoFacts], str]:
    return lambda sample, facts: sample.sample_id if condition(facts) else ""


CHECKS: tuple[DataCheck, ...] = (
    DataCheck(
        "label-rows", "{count} row{s} of the label file {have} no class in this dataset, and would stop a run.",
        "Fix the name or remove the row.", whole=lambda survey: survey.label_rows,
    ),
    DataCheck(
        "two-classes", "{count} image{s} {have} two labels: the same bytes are under several classes.",
        "Keep each image under its right class only: a model cannot be right on both.",
        whole=lambda survey: two_classes(survey.same_bytes()),
    ),
    DataCheck(
        "alike-classes", "{count} class{es} {have} the name of another but for case, spaces or hyphens.",
        "Join the folders if they mean the same, else rename one.", whole=_alike_classes,
    ),
    DataCheck(
        "turned-masks", "{count} image{s} {have} an EXIF turn, and a mask that fits the pixels as they are stored.",
        "Turn the masks as EXIF turns the images, or store the images upright (exiftran -ai, or mogrify -auto-orient).",
        photo=_named(lambda facts: facts.turned_mask),
    ),
    DataCheck(
        "void-ring", "{count} mask{s} {have} the values 0, a few small ones and 255, and only the ring of 255 is taken "
        "as the object.", "Read 255 as void: write DATA?void=255.", photo=_named(lambda facts: facts.void_ring),
    ),
    DataCheck(
        "bad-masks", "{count} mask{s} cannot be used.", "Make them again in the size of their images, or remove them.",
        photo=lambda sample, facts: f"{sample.sample_id}: {facts.mask_problem}" if facts.mask_problem else "",
    ),
    DataCheck(
        "empty-masks", "{count} mask{s} {have} no object in it.",
        "Draw them again (holdfast people annotate) or remove them.",
        photo=_named(lambda facts: facts.covered == 0),
    ),
    DataCheck(
        "whole-masks", "{count} mask{s} cover{s1} the whole image: no background is left to change.",
        "Look whether object and background are swapped; else draw them again or remove them.",
        photo=_named(lambda facts: facts.covered == 1),
    ),
    DataCheck(
        "shared-masks", "{count} mask{s} {have} several images.",
        "Give each image its own: for a.jpg and a.png, name the masks a.jpg.png and a.png.png.", whole=_shared_masks,
    ),
    DataCheck(
        "dark", "{count} image{s} of 16 bits use{s1} 14 of them or fewer, and come{s1} out dark (with 12 nearly "
        "black).",
        "Store them with 8 bits, or multiply their values so that white is 65,535.",
        photo=_named(lambda facts: facts.deep and facts.brightest < 64),
    ),
    DataCheck(
        "unreadable", "{count} image{s} cannot be read.", "Replace or remove them; each would be an error in a run.",
        photo=lambda sample, facts: f"{sample.sample_id}: {facts.problem}" if facts.problem else "",
    ),
    DataCheck(
        "two-splits", "{count} image{s} are{s1} in two splits.",
        "Keep each in one; holdfast data duplicates finds near copies, too.",
        whole=_two_splits,
    ),
    DataCheck(
        "twice", "{count} image{s} count{s1} more than once: the same bytes under several names of a class.",
        "Remove the copies or links: intervals come out too narrow.", whole=_twice,
    ),
    DataCheck(
        "copies", "{count} image{s} look{s1} like another one: re-encoded or resized copies.",
        "Keep one of each: intervals come out too narrow, and one of two classes or splits is wrong.", whole=_copies,
    ),
    DataCheck("passed-over", each=_passed_over),
    DataCheck(
        "no-mask", "{count} image{s} {have} no mask: conditions that need one are skipped for them.",
        "Let holdfast mask make the missing ones (--keep keeps those that are there).", whole=_without_mask,
    ),
    DataCheck(
        "single-photos", "{count} class{es} {have} one image: no other of its class can lend it a background.",
        "Add images, or leave such classes out.", whole=_single_photos,
    ),
)  # fmt: skip
"""All checks, gravest first. A new one is one more line here, and a planted case in ``tests/data/test_findings.py``."""
