"""Trials of what is said about walks, people, prompts, questions and segments."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import beta, norm

from holdfast.core.votes import VOTES, VoteQuestion, Votes
from holdfast.stats.core.bootstrap import paired_change
from holdfast.stats.effects.segments import COUNTS, segments
from holdfast.stats.hard.mining import share as clustered_share
from holdfast.stats.hard.questions import FIRST, SECOND, questions
from holdfast.stats.people.agreement import agreement
from holdfast.stats.people.votes import naturalness
from holdfast.stats.walks.fmr import fmr, fmr_ranking
from holdfast.stats.walks.fmr_people import fmr_corrected
from promises.promise import Counted, tally

STANDARD, VALID, RIGHT = 0.9, 0.8, {"easy": 0.6, "hard": 0.3}
CONFIRMED = {("easy", True): 0.98, ("easy", False): 0.9, ("hard", True): 0.9, ("hard", False): 0.5}


def walks(
    rng: np.random.Generator, draws: int, *, photos: int, standard: float, validated: float, kept: float
) -> Counted:
    """Walks with known SA, VR and survival; survivors come from those right before, so the two accuracies correlate."""
    shape = (draws, photos)
    right = rng.random(shape) < standard
    valid = rng.random(shape) < np.where(right, validated, validated / 2)
    survived = right & (rng.random(shape) < kept)
    share = standard * validated + (1 - standard) * validated / 2
    accuracy = standard * validated * kept / share
    frame = pd.DataFrame(
        {
            "model": np.repeat([f"{number:05}" for number in range(draws)], photos), "label": "cat",
            "source_id": np.tile([str(number) for number in range(photos)], draws),
            "right_original": right.reshape(-1), "validated": valid.reshape(-1),
            "right_perturbed": survived.reshape(-1),
        }
    )  # fmt: skip
    found = fmr(frame)
    found = found[(found["label"] == "") & (found["measure"] == "fmr")]
    held = (found["low"] <= accuracy / standard) & (accuracy / standard <= found["high"])
    return {"covers": [int(held.sum()), draws]}


def judged_walks(rng: np.random.Generator, draws: int, *, images: int, easy: int, hard: int) -> Counted:
    """Images of two classes, of whose accepted ones people judge ``easy`` and ``hard``, drawn within the class."""
    both = sum(RIGHT[k] * CONFIRMED[k, True] + (1 - RIGHT[k]) * CONFIRMED[k, False] for k in RIGHT) / 2
    ratio = sum(RIGHT[k] * CONFIRMED[k, True] for k in RIGHT) / 2 / both / STANDARD
    label, rows = np.where(np.arange(images) % 2 == 0, "easy", "hard"), []
    for _ in range(draws):
        valid = rng.random(images) < VALID
        right = rng.random(images) < np.where(label == "easy", RIGHT["easy"], RIGHT["hard"])
        agreed = np.array([CONFIRMED[name, bool(hit)] for name, hit in zip(label, right, strict=True)])
        verdict = rng.random(images) < agreed
        confirmed = np.full(images, np.nan)
        for name, count in (("easy", easy), ("hard", hard)):
            chosen = rng.permutation(np.flatnonzero(valid & (label == name)))[:count]
            confirmed[chosen] = verdict[chosen]
        frame = pd.DataFrame(
            {
                "model": "m", "label": label, "source_id": [f"s{number}" for number in range(images)],
                "right_original": rng.random(images) < STANDARD, "validated": valid,
                "right_perturbed": np.where(valid, right.astype(float), np.nan), "confirmed": confirmed,
            }
        )  # fmt: skip
        table = fmr_corrected(frame, resamples=1000, seed=int(rng.integers(1 << 30)))
        table = table[table["label"] == ""].set_index("measure")
        held = {
            name: table.loc[name, "low"] <= truth <= table.loc[name, "high"]
            for name, truth in (("fmr", ratio), ("false_accepts", 1 - both))
        }
        rows.append(held)
    return tally(rows)


def walked_models(rng: np.random.Generator, draws: int, *, photos: int) -> Counted:
    """Three models whose walks survive alike, ranked by FMR."""
    rows = []
    for _ in range(draws):
        hard = rng.normal(0, 0.1, photos)
        frames = []
        for name in "abc":
            right = rng.random(photos) < 0.9
            survived = right & (rng.random(photos) < np.clip(0.5 + hard, 0, 1))
            frames.append(
                pd.DataFrame(
                    {
                        "model": name, "label": "fox", "source_id": [f"p{number}" for number in range(photos)],
                        "sample_id": [f"s{number}" for number in range(photos)], "right_original": right,
                        "validated": rng.random(photos) < 0.8, "right_perturbed": survived,
                    }
                )
            )  # fmt: skip
        found = fmr_ranking(pd.concat(frames, ignore_index=True), resamples=400, seed=int(rng.integers(1 << 30)))
        rows.append({"told_apart": bool((found.table["rank"] != "1–3").any())})
    return tally(rows)


def raters(
    rng: np.random.Generator, draws: int, *, items: int, people: int = 3, alpha: float = 0.36, share: float = 0.5
) -> Counted:
    """People who name the class of an item, or one of two classes by its share: Krippendorff's α is known.

    Sets in which one class only was named have no α.
    """
    rows: list[dict[str, bool]] = []
    while len(rows) < draws:
        shown, own = rng.random((items, 1)) < share, rng.random((items, people)) < share
        said = pd.DataFrame(np.where(rng.random((items, people)) < np.sqrt(alpha), shown, own))
        row = agreement(said).set_index("measure").loc["krippendorff_alpha"]
        if not row["reason"]:
            wide = bool(row["high"] - row["low"] > 0.01)
            rows.append({"covers": bool(row["low"] <= alpha <= row["high"]), "wide": wide})
    return tally(rows)


def prompts(rng: np.random.Generator, draws: int, *, count: int = 40, images: int = 5) -> Counted:
    """Prompts that fail with unlike chances, several images of each: the share of failures."""
    rows, owner = [], np.repeat(np.arange(count), images)
    for _ in range(draws):
        hits = rng.random(count * images) < np.repeat(rng.beta(0.5, 1.0, count), images)
        found = clustered_share(hits, owner)
        rows.append({"covers": found["low"] <= 1 / 3 <= found["high"]})
    return tally(rows)


def changed_prompts(rng: np.random.Generator, draws: int, *, count: int = 40, images: int = 4) -> Counted:
    """Prompts of which some gain in all their images: the paired change."""
    rows, owner = [], np.repeat(np.arange(count), images)
    for _ in range(draws):
        before = rng.random(count * images) < 0.5
        after = before | np.repeat(rng.random(count) < 0.3, images)
        found = paired_change(before, after, owner, resamples=1000, seed=int(rng.integers(1 << 30)))
        rows.append({"covers": found["low"] <= 0.15 <= found["high"]})
    return tally(rows)


def ratings(rng: np.random.Generator, draws: int, *, images: int, people: int) -> Counted:
    """Grades 1 to 5 around 3: images differ, and so do the habits of the people who all rate all of them."""
    rows, question = [], VoteQuestion("natural", "?", tuple("12345"), 1)
    image, person = (index.reshape(-1) for index in np.indices((images, people)))
    names = np.array([f"i{number}" for number in range(images)], object)[image]
    common: dict[str, Any] = dict.fromkeys(VOTES.names, "") | {
        "campaign": "made", "kind": "made", "label": "cup", "asked": "cup", "condition": "background", "role": "judge",
        "task_status": "finished", "seconds": 2.0, "voted_at": datetime(2026, 1, 1, tzinfo=UTC), "counts": True,
        "superseded": False, "question": "natural",
    }  # fmt: skip
    table = pa.table(
        [
            pa.array({"sample_id": names, "source_id": names, "sha256": names, "pixels_sha256": names, "person": person,
                      "task": person, "vote": np.arange(len(names))}.get(field.name, [common[field.name]] * len(names)),
                     field.type)
            for field in VOTES
        ],
        schema=VOTES,
    )  # fmt: skip
    place = VOTES.get_field_index("answer")
    for _ in range(draws):
        grade = 3 + rng.normal(0, 0.5, images)[image] + rng.normal(0, 0.4, people)[person]
        grade = np.clip(np.rint(grade + rng.normal(0, 0.5, len(image))), 1, 5).astype(int)
        cast = table.set_column(place, VOTES.field(place), pa.array(grade.astype(str), VOTES.field(place).type))
        votes = Votes(cast, "made", "made", (question,), "natural", 3, 5)
        found = naturalness(votes, resamples=1000, seed=int(rng.integers(1 << 30))).iloc[0]
        rows.append({"covers": found["low"] <= 3 <= found["high"]})
    return tally(rows)


def asked(rng: np.random.Generator, draws: int, *, photos: int, each: int = 2, accuracy: float = 0.8) -> Counted:
    """Two-way questions about several images of an image, which are right or wrong together half of the time."""
    photo = np.repeat(np.arange(photos), each)
    frame = pd.DataFrame(
        {
            "model": "m", "kind": "two_way", "status": "ok", "choices": 2.0, "refusal": False, "unmatched": False,
            "rendered": False, "donor_id": None, "label": "a class",
            "source_id": np.array([f"s{number}" for number in range(photos)], object)[photo],
        }
    )  # fmt: skip
    rows = []
    for _ in range(draws):
        both = rng.random(len(photo)) < 0.5
        right = np.where(both, (rng.random(photos) < accuracy)[photo], rng.random(len(photo)) < accuracy)
        first = rng.random(len(photo)) < 0.5
        table = frame.assign(
            strict=right, lenient=right, place=np.where(first, FIRST, SECOND), says_first=first == right
        )
        found = questions(table).iloc[0]
        held = {"covers": found["strict_low"] <= accuracy <= found["strict_high"]}
        rows.append(held | {"bias": found["position_bias_low"] <= 0 <= found["position_bias_high"]})
    return tally(rows)


def outlined(rng: np.random.Generator, draws: int, *, classes: int, each: int, donors: int | None = None) -> Counted:
    """Objects of unlike size of which a model finds a part, with some pixels next to them; less under a scenario.

    ``donors``: backgrounds that images share under the scenario, 0: the images lend theirs to each other; they have
    half of the latent variance of what is found.
    """
    label = np.repeat(np.arange(classes), each)
    pixels, found, beside = 10_000.0, (0.85, 0.6), 100.0
    size = 1_000 * np.exp(0.5**2 / 2)

    def mean_iou(share: float) -> float:
        behind = pixels - size - beside
        own, background = share * size / (size + beside), behind / (behind + (1 - share) * size + beside)
        return (classes * own + background) / (classes + 1)

    truth, rows = [mean_iou(share) for share in found], []
    names = np.array([f"class{number}" for number in range(classes)], object)[label]
    for _ in range(draws):
        true = np.rint(1_000 * np.exp(rng.normal(0, 0.5, len(label))))
        luck = rng.normal(0, 1, len(label))
        frames = []
        for condition, share in zip(("original", "c1"), found, strict=True):
            donor, behind = np.full(len(label), -1), rng.normal(0, 1, len(label))
            if donors is not None and condition != "original":
                donor = rng.integers(0, donors or len(label), len(label))
                behind = rng.normal(0, 1, donors or len(label))[donor]
            quantile = norm.cdf((luck + np.sqrt(2) * behind + rng.normal(0, 1, len(label))) / 2)
            both = true * beta.ppf(quantile, 6 * share, 6 * (1 - share))
            false = rng.exponential(beside, len(label))
            for own, (meet, ours, theirs) in (
                (names, (both, true, both + false)),
                ("background", (pixels - true - false, pixels - true, pixels - both - false)),
            ):
                counts = dict(
                    zip(COUNTS, (meet, ours + theirs - meet, ours, theirs, ours, meet, theirs, meet), strict=True)
                )
                about = {"model": "m", "trained_on": "", "condition": condition, "label": names, "class": own}
                ids = {"row_id": [f"{condition} {at}" for at in range(len(label))],
                       "source_id": [f"s{at}" for at in range(len(label))],
                       "donor_id": [f"d{at}" if at >= 0 else None for at in donor]}  # fmt: skip
                frames.append(pd.DataFrame(about | ids | counts))
        table = segments(pd.concat(frames, ignore_index=True), resamples=1000, seed=int(rng.integers(1 << 30)))
        row = table.set_index("condition").loc["c1"]
        held = {"covers": row["miou_low"] <= truth[1] <= row["miou_high"]}
        rows.append(held | {"drop": row["drop_low"] <= truth[0] - truth[1] <= row["drop_high"]})
    return tally(rows)
