"""Campaigns from a user's command: its images, the controls among them, and the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from sqlalchemy import Connection, select

from holdfast.core import votes
from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import read_toml
from holdfast.core.fingerprint import fingerprint, generator
from holdfast.core.types import DEFAULT_MAX_PIXELS, Collection, Sample
from holdfast.data import load_collection
from holdfast_people import campaigns, sentinels, tables
from holdfast_people.database import Database
from holdfast_people.sources import ReviewPool, add_source, open_pool

Progress = Callable[[str, int, int], None]

_THREADS = 4
NO_SENTINELS = (
    "every task holds control images that show who answers with care; name a dataset of the same classes whose "
    "labels are certain: --sentinels DATA (for the embedded categories: --sentinels 'diorama:test?n=48')"
)


@dataclass(frozen=True)
class CampaignSpec:
    """The options with which ``holdfast people review`` opens a campaign."""

    pool: str  # a dataset, or a run directory of ``holdfast perturb``
    sentinels: str = ""  # a dataset whose labels are certain; '' takes the originals of a run
    kind: str = ""  # a key of ``campaigns.KINDS``; '' means quality, of a run's images oracle
    name: str = ""  # of the campaign; '' makes one of pool and kind
    only: str = "accepted"  # which images of a run: accepted, rejected or all
    limit: int = 0  # at most so many images, evenly over classes and by chance within one; 0 takes all
    # the campaign's rules; an empty ``rule`` means that a yes to any of the questions is enough
    settings: campaigns.Settings = field(default_factory=lambda: campaigns.Settings(rule=""))
    max_pixels: int = DEFAULT_MAX_PIXELS  # larger images are left out
    questions: str = ""  # a TOML file with questions of your own; the kind is then custom


@dataclass(frozen=True)
class OpenedCampaign:
    """An open campaign, and sentences that its user should know."""

    campaign_id: int
    name: str
    sentences: tuple[str, ...]


def make_campaign(
    database: Database, spec: CampaignSpec, folder: Path, *, now: float, progress: Progress = lambda *_: None
) -> OpenedCampaign:
    """Open a campaign, or return the one of that name."""
    if spec.kind and (spec.kind not in campaigns.KINDS or (spec.kind == "custom") != bool(spec.questions)):
        ready = [kind for kind in campaigns.KINDS if kind != "custom"]
        raise UserError(f"--kind must be {', '.join(ready)}, not {spec.kind!r}; questions of your own have no kind")
    own: tuple[votes.VoteQuestion, ...] = ()
    rule = ""
    if spec.questions:
        own, rule = campaigns.read_questions(read_toml(Path(spec.questions), "--questions"), Path(spec.questions).name)
    pool = open_pool(spec.pool, only=spec.only, folder=folder / "pools")
    kind = "custom" if own else spec.kind or ("oracle" if pool.walked else "quality")
    which = f", {spec.only}" if pool.walked and spec.only != "accepted" else ""
    name = spec.name.strip() or f"{pool.collection.name}, {kind}{which}"
    with database.reading() as connection:
        if existing := _find(connection, name):
            return _continued(connection, existing, spec.kind, pool.reference)
    asked = campaigns.with_list(
        own or campaigns.KINDS[kind], sorted({sample.label for sample in pool.collection.samples})
    )
    wanted_rule = spec.settings.rule or rule or campaigns.default_rule(asked)
    stored = [asdict(question) for question in asked] if asked != campaigns.KINDS[kind] else ()
    if spec.settings.stop != "never" and any(question.is_rating for question in asked):
        raise UserError("means of ratings need all votes: leave --stop out if the answers are numbers")
    settings = replace(spec.settings, rule=votes.parse_rule(wanted_rule, asked).text, questions=stored)
    if spec.sentinels:
        known = load_collection(spec.sentinels)
    elif pool.originals is not None:
        known = pool.originals
    else:
        missing = f"the originals of {spec.pool} are not where they were; name them: --sentinels DATA"
        raise UserError(missing if pool.walked else NO_SENTINELS)
    wanted = _evenly(pool.collection.samples, spec.limit, settings.seed)
    samples, shapes, troubles = _readable(wanted, spec.max_pixels, progress)
    known = _without(known, samples)
    if not samples:
        raise UserError(f"none of the images of {spec.pool} can be read ({troubles[0]})")
    most = math.ceil(len(samples) / settings.judged_per_task) + settings.most_failures  # tasks that one person may meet
    classes = sorted({sample.label for sample in samples})
    each = most * max(settings.positives, settings.negatives)
    chosen = sentinels.choose(known, classes, kind=kind, each=each, seed=settings.seed)
    copies = folder / "sentinels" / fingerprint([name, now])[:16]
    reference, copied, unread = sentinels.write_copies(chosen, shapes, copies, kind=kind, seed=settings.seed)
    troubles += unread
    with database.writing() as connection:
        if _find(connection, name) is not None:
            raise UserError(f"another process has just opened the campaign {name!r}; run the same command again")
        campaign_id = _create(
            connection, pool, reference, copied, samples, name=name, kind=kind, settings=settings, now=now
        )
    return OpenedCampaign(campaign_id, name, tuple(_told(samples, copied, troubles, most, kind)))


def _create(
    connection: Connection,
    pool: ReviewPool,
    reference: str,
    copied: dict[str, sentinels.ChosenSentinel],
    samples: Sequence[Sample],
    *,
    name: str,
    kind: str,
    settings: campaigns.Settings,
    now: float,
) -> int:
    source = add_source(
        connection, name=pool.collection.name, reference=pool.reference, collection=pool.collection, now=now
    )
    controls = add_source(
        connection, name=f"controls of {name}", reference=reference, collection=load_collection(reference), now=now
    )
    ids, control_ids = _image_ids(connection, source), _image_ids(connection, controls)
    questions = campaigns.asked_questions(kind, settings)
    return campaigns.create_campaign(
        connection,
        name=name,
        kind=kind,
        source_id=source,
        image_ids=[ids[sample.sample_id] for sample in samples],
        sentinels=[
            campaigns.Sentinel(
                control_ids[copy], chosen.role, chosen.asked, sentinels.expected(questions, right=chosen.right)
            )
            for copy, chosen in copied.items()
        ],
        settings=settings,
        now=now,
    )


def _find(connection: Connection, name: str) -> campaigns.Campaign | None:
    return next((campaign for campaign in campaigns.list_campaigns(connection) if campaign.name == name), None)


def _continued(connection: Connection, existing: campaigns.Campaign, kind: str, wanted: str) -> OpenedCampaign:
    """Return the campaign of that name if it has the same images; two pools may have one name."""
    sources = tables.sources
    about = connection.scalar(select(sources.c.reference).where(sources.c.id == existing.source_id))
    if about != wanted:
        raise UserError(f"the campaign {existing.name!r} is about other images ({about}); give another --name")
    if kind and existing.kind != kind:
        raise UserError(
            f"the campaign {existing.name!r} is of the kind {existing.kind}, not {kind}; give another --name"
        )
    said = f"the campaign {existing.name!r} is there and continues as it was opened"
    said += "" if existing.status == "open" else f"; it is {existing.status}: the administration page opens it again"
    return OpenedCampaign(existing.id, existing.name, (said,))


def _without(known: Collection, judged: Sequence[Sample]) -> Collection:
    """Return the images without those that are judged, so that no one sees one twice."""

    def content(sample: Sample) -> str:
        try:
            return sample.image.fingerprint()
        except SampleError:
            return ""

    shown = {content(sample) for sample in judged}
    return replace(known, samples=tuple(sample for sample in known.samples if content(sample) not in shown))


def _evenly(samples: Sequence[Sample], limit: int, seed: int) -> list[Sample]:
    """Return at most ``limit`` samples in their order, drawn at random (not of one model) and evenly over classes."""
    if not limit:
        return list(samples)
    turns: dict[str, int] = {}
    order: list[tuple[int, int, int]] = []
    for place in generator(seed, "limit").permutation(len(samples)).tolist():
        label = samples[place].label
        turns[label] = turns.get(label, 0) + 1
        order.append((turns[label], len(order), place))
    return [samples[place] for place in sorted(place for *_, place in sorted(order)[:limit])]


def _readable(
    samples: Sequence[Sample], max_pixels: int, progress: Progress
) -> tuple[list[Sample], list[tuple[int, int]], list[str]]:
    """Return the samples that can be decoded, their heights and widths, and why the others cannot."""

    def shape(sample: Sample) -> tuple[int, int] | str:
        try:
            image = sample.image.load(max_pixels=max_pixels)
        except SampleError as error:
            return f"{sample.sample_id}: {error}"
        return image.shape[0], image.shape[1]

    readable, shapes, troubles = [], [], []
    progress("look through", 0, len(samples))
    with ThreadPoolExecutor(_THREADS) as threads:
        for done, (sample, outcome) in enumerate(zip(samples, threads.map(shape, samples), strict=True), start=1):
            if isinstance(outcome, str):
                troubles.append(outcome)
            else:
                readable.append(sample)
                shapes.append(outcome)
            progress("look through", done, len(samples))
    return readable, shapes, troubles


def _told(
    samples: Sequence[Sample],
    copied: dict[str, sentinels.ChosenSentinel],
    troubles: Sequence[str],
    most: int,
    kind: str,
) -> list[str]:
    """Return what a user should know."""
    right = sum(sentinel.role == sentinels.POSITIVE for sentinel in copied.values())
    wrong = sum(sentinel.role == sentinels.NEGATIVE for sentinel in copied.values())
    how = "copies that are plainly destroyed" if kind == "naturalness" else "asked with another class"
    images = "1 image" if len(samples) == 1 else f"{len(samples)} images"
    said = [f"{images} to judge; controls: {right} with their own answer, {wrong} {how}"]
    if min(right, wrong) < most:
        said.append(
            f"one person may meet {most} tasks with a control of each kind: after {min(right, wrong)} of them controls "
            "come again, and a person who remembers them knows what they are; more control images (--sentinels) help"
        )
    said += [f"left out: {trouble}" for trouble in troubles[:5]]
    said += [f"… and {len(troubles) - 5} more that cannot be read"] if len(troubles) > 5 else []
    return said


def _image_ids(connection: Connection, source_id: int) -> dict[str, int]:
    images = tables.images
    rows = connection.execute(select(images.c.sample_id, images.c.id).where(images.c.source_id == source_id))
    return {row.sample_id: row.id for row in rows}
