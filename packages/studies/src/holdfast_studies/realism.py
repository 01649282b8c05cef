"""``holdfast study realism``: how real and how varied are the images of a pool, and what do they show unasked?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import parse_name
from holdfast.core.numbers import estimate, number, percent, span
from holdfast.core.types import Image, Sample
from holdfast.models.clip import Clip, image_embeddings, load_clip, text_embeddings
from holdfast.pipeline.samples import DataSpec, read
from holdfast.reports.page.tables import Column, plain
from holdfast.reports.page.words import plural
from holdfast.reports.page.writer import about_world
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.core.cells import share_of
from holdfast_studies.prompt_measures import (
    coverage,
    diversity,
    frechet_distance,
    kernel_distance,
    nearest,
    precision_recall,
)
from holdfast_studies.study import Setting, Study, StudyOptions

Features = NDArray[np.float32]

POOL = "diorama:test?n=96&context=0"
REFERENCE = "diorama:test?n=96&context=0.95"
LOOKS = (
    "people=a picture without any person|a picture of one person|a picture of several people",
    "writing=a picture without any writing|a picture with writing on it",
)
SURE = 0.75  # probability from which on a look counts as sure
NEIGHBOURS = 5  # the k of precision and recall, as published with them (k = 3 for 50,000 images, 5 for fewer)
LEAST = 12  # images of either side
SHOWN = 6  # pairs of nearest neighbours on the page


@dataclass(frozen=True)
class Pictures:
    """The images of one side that could be read, with unit features."""

    name: str
    samples: list[Sample]
    images: list[Image]
    features: Features

    @property
    def labels(self) -> list[str]:
        """Return the class of each image."""
        return [sample.label for sample in self.samples]


def run(options: StudyOptions) -> StudyResult:
    """Read both sides, measure them in one feature space, and look at what the pool shows."""
    settings = options.settings
    options.require(limit=0)
    name = parse_name(settings["features"])
    if name.scheme != "clip":
        raise UserError("features are those of an image tower that reads texts, too: clip:NAME, such as clip:embedded")
    looks = read_looks(settings["looks"])
    clip = load_clip(name, device=options.device)
    pool = _pictures("pool", settings["data"], settings, clip)
    reference = _pictures("reference", settings["reference"], settings, clip)
    table = measures(pool, reference)
    row = table.iloc[0]
    findings = [_realism(table), _diversity(pool, reference), _neighbours(pool, reference)]
    if looks:
        findings.append(_shown(pool, reference, looks, clip))
    return StudyResult(
        title="Realism and diversity of a pool",
        question=(
            f"How far are the images of {settings['data']} from those of {settings['reference']}, how much do they "
            f"differ from one another, and what do they show that was not asked for? Features: the image tower of "
            f"{settings['features']}, unit vectors scaled to a root mean square of 1; not those of the Inception "
            "network, so the numbers compare pools measured with these features and nothing else."
        ),
        findings=findings,
        facts={
            "images": len(pool.samples),
            "reference images": len(reference.samples),
            "classes": len(set(pool.labels)),
            "FID": number(float(row["fid"]), 1),
        },
        note=about_world(settings["data"]),
    )


STUDY = Study(
    run,
    (
        Setting("data", POOL, "the pool: any data source, such as what generate wrote", "diorama:test?n=24&context=0"),
        Setting("reference", REFERENCE, "images that it is held against", "diorama:test?n=24&context=0.95"),
        Setting("features", "clip:embedded", "whose image tower makes the features: a clip: of any kind"),
        Setting("looks", LOOKS, "what to look for, each NAME=TEXT|TEXT…: the first text is the plain case; - for none"),
        Setting("limit", 2000, "at most so many images of either side, evenly over classes; 0 takes all"),
    ),
)  # fmt: skip


def read_looks(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return name → texts to distinguish; ``-`` alone means none."""
    if tuple(texts) == ("-",):
        return {}
    looks = {}
    for text in texts:
        name, _, choices = text.partition("=")
        parts = [part.strip() for part in choices.split("|") if part.strip()]
        if not name.strip() or len(parts) < 2:
            raise UserError(
                f"looks read NAME=TEXT|TEXT, which {text!r} does not: give at least two texts to distinguish"
            )
        looks[name.strip()] = parts
    return looks


def _pictures(name: str, data: str, settings: Mapping[str, Any], clip: Clip) -> Pictures:
    samples, images = [], []
    for sample in read(DataSpec(data, limit=settings["limit"])).samples:
        try:
            image = sample.image.load()
        except SampleError:
            continue
        samples.append(sample)
        images.append(image if image.shape[2] == 3 else image[..., :3])
    if len(images) < LEAST:
        raise UserError(f"{data} has {plural(len(images), 'image')} that can be read; the {name} needs {LEAST}")
    return Pictures(name, samples, images, image_embeddings(clip, images))


def measures(pool: Pictures, reference: Pictures) -> pd.DataFrame:
    """Return FID, KID, precision, recall, density, coverage and diversity: the pool, and the reference's own halves."""
    even = np.arange(len(reference.samples)) % 2 == 0
    rows = [
        {"pictures": "pool", "n": len(pool.samples)}
        | _distances(reference.features, pool.features)
        | {"diversity": diversity(pool.features, pool.labels)},
        {"pictures": "half of the reference against the other half", "n": int(even.sum())}
        | _distances(reference.features[even], reference.features[~even])
        | {"diversity": diversity(reference.features, reference.labels)},
    ]
    return pd.DataFrame(rows)


def _distances(real: Features, generated: Features) -> dict[str, float]:
    scale = np.float32(np.sqrt(real.shape[1]))
    precision, recall = precision_recall(real, generated, NEIGHBOURS)
    return {
        "fid": frechet_distance(scale * real, scale * generated),
        "kid": kernel_distance(scale * real, scale * generated),
        "precision": precision,
        "recall": recall,
        "coverage": coverage(real, generated, NEIGHBOURS),
    }


def _realism(table: pd.DataFrame) -> Finding:
    pool, own = table.iloc[0], table.iloc[1]
    sentences = [
        f"FID {number(pool['fid'], 1)} and KID {number(pool['kid'], 3)} from the reference; halves of the reference "
        f"are {number(own['fid'], 1)} and {number(own['kid'], 3)} apart, which so few images give without a cause.",
        f"Precision {percent(pool['precision'])}: so many images are among the reference (within the distance to the "
        f"{NEIGHBOURS}th neighbour of one of its images). Recall {percent(pool['recall'])}: so much of the reference "
        f"is among the pool. Coverage {percent(pool['coverage'])}: so many reference images have one of the pool "
        "nearby.",
    ]
    columns = [
        Column("pictures", "Images"),
        Column("n", "Number", "integer"),
        Column("fid", "FID", "number", digits=1, hint="less is nearer; too large with few images"),
        Column("kid", "KID", "number", digits=3, hint="the same without that bias"),
        *plain("percent", precision="Precision", recall="Recall", coverage="Coverage"),
        Column("diversity", "Diversity within classes", "number", digits=3, hint="mean cosine distance"),
    ]
    return Finding("How real the images are", sentences, table, columns, caption="Distances from the reference")


def _diversity(pool: Pictures, reference: Pictures) -> Finding:
    rows = []
    for label in sorted(set(pool.labels)):
        row: dict[str, Any] = {"label": label}
        for side in (pool, reference):
            at = np.asarray(side.labels) == label
            row |= {side.name: diversity(side.features[at], [label] * int(at.sum())), f"n_{side.name}": int(at.sum())}
        rows.append(row)
    table = pd.DataFrame(rows).sort_values("pool", na_position="last")
    known = table.dropna(subset=["pool"])
    if known.empty:
        sentence = "No class has two images, so nothing can be said about diversity within classes."
    else:
        sentence = (
            f"Images of {known.iloc[0]['label']} are most alike (mean cosine distance "
            f"{number(known.iloc[0]['pool'], 3)}), those of {known.iloc[-1]['label']} least "
            f"({number(known.iloc[-1]['pool'], 3)})."
        )
    columns = [
        Column("label", "Class"),
        Column("pool", "Pool", "number", digits=3),
        Column("n_pool", "Images", "integer"),
        Column("reference", "Reference", "number", digits=3),
        Column("n_reference", "Reference images", "integer"),
    ]
    return Finding("Diversity within classes", [sentence], table, columns, caption="Mean cosine distance of two images")


def _neighbours(pool: Pictures, reference: Pictures) -> Finding:
    place, similar = nearest(pool.features, reference.features)
    _, twins = nearest(pool.features, pool.features, itself=True)
    usual = nearest(reference.features, reference.features, itself=True)[1]
    limit = float(np.quantile(usual, 0.99))
    copies, repeated = float((similar > limit).mean()), float((twins > limit).mean())
    order = np.argsort(-similar)[:SHOWN]
    table = pd.DataFrame(
        {
            "picture": [pool.samples[at].sample_id for at in order],
            "neighbour": [reference.samples[place[at]].sample_id for at in order],
            "cosine": similar[order],
        }
    )
    sentences = [
        f"The nearest reference image has a cosine of {number(float(np.median(similar)), 3)} in the middle; "
        f"{percent(copies)} of the pool are nearer to one than 99 % of the reference images are to each other "
        f"({number(limit, 3)}), which may be copies. {percent(repeated)} are as near to another image of the pool."
    ]
    images = {
        f"{pool.samples[at].label}, {number(float(similar[at]), 3)}": _side_by_side(
            pool.images[at], reference.images[place[at]]
        )
        for at in order
    }
    columns = [
        *plain("text", picture="Image", neighbour="Nearest of the reference"),
        Column("cosine", "Cosine", "number", digits=3),
    ]
    caption = "The nearest pairs: an image of the pool, and its neighbour of the reference"
    return Finding("Nearest neighbours", sentences, table, columns, caption=caption, images=images)


def _side_by_side(first: Image, second: Image, side: int = 128) -> Image:
    parts = [
        np.asarray(cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA), np.uint8) for image in (first, second)
    ]
    return np.concatenate([parts[0], np.full((side, 4, 3), 255, np.uint8), parts[1]], axis=1)


def _shown(pool: Pictures, reference: Pictures, looks: Mapping[str, list[str]], clip: Clip) -> Finding:
    rows = [
        {"look": name, "side": side.name, "text": text} | counted
        for name, texts in looks.items()
        for side in (pool, reference)
        for text, counted in look_at(side.features, texts, clip).items()
    ]
    table = pd.DataFrame(rows)
    own = table[(table["side"] == "pool") & ~table["is_plain"]]
    sentences = [
        f"{row['text'].capitalize()}: {estimate(row['share'], row['low'], row['high'])} of the pool "
        f"({span(row['surely'], row['perhaps'])} between the sure and all that are possible)."
        for row in own.to_dict("records")
    ]
    sentences.append(
        "That is what a zero-shot model says, not what people see: it errs, and its errors differ between groups. The "
        "first range counts images, the second what the model is sure or unsure of; look at some of them."
    )
    columns = [
        *plain("text", look="Look", side="Images", text="Text"),
        Column("share", "Share", "percent", "low", "high"),
        *plain("percent", surely=f"Surely (p ≥ {SURE:g})", perhaps=f"Perhaps (p ≥ {1 - SURE:g})"),
        Column("n", "Images", "integer"),
    ]
    return Finding("What the images show unasked", sentences, table, columns, caption="Shares by a zero-shot look")


def look_at(features: Features, texts: Sequence[str], clip: Clip) -> dict[str, dict[str, Any]]:
    """Return text → share of images that it fits best, with Wilson's interval, and what is sure and possible."""
    from scipy.special import softmax

    words = text_embeddings(clip, list(texts))
    chance = softmax(clip.scale * features.astype(np.float64) @ words.astype(np.float64).T, axis=1)
    best, n = chance.argmax(axis=1), len(features)
    shares: dict[str, dict[str, Any]] = {}
    for at, text in enumerate(texts):
        surely, perhaps = (float((chance[:, at] >= least).mean()) for least in (SURE, 1 - SURE))
        counted = share_of(int((best == at).sum()), n).row("share", "")
        shares[text] = counted | {"surely": surely, "perhaps": perhaps, "n": n, "is_plain": at == 0}
    return shares
