"""What people's votes say: which images are accepted, how far people agree, and how natural images look to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.votes import Votes
from holdfast.stats.core.bootstrap import RESAMPLES, codes, deviations, interval
from holdfast.stats.hard.mining import share
from holdfast.stats.people.agreement import agreement

FACTS = ["source_id", "label", "condition", "nuisance", "generator", "model", "sha256", "pixels_sha256"]
"""What a vote's row says of its image."""

VERDICT = "verdict"  # The rule's yes or no of one person, where there is more than one question

_GROUPS = {"category": "label", "kind": "condition", "nuisance": "nuisance", "generator": "generator", "model": "model"}


def accept(votes: Votes, rule: str = "", at_least: int = 0) -> pd.DataFrame:
    """Return which images people accept: a row per image and class that was shown to be judged.

    Columns: ``sample_id``, ``asked``, those of ``FACTS``; ``votes`` that count and ``yes`` among them, ``share``;
    ``decision``: accepted, rejected, or undecided while the missing votes could still decide; and for each question
    ``share_ID`` of its answers that are yes, or of a rating ``mean_ID``. An image may have no vote that counts.

    ``rule``: which answers of one person are a yes (see ``core.votes.VoteRule``); '' for the campaign's. ``at_least``:
    how many people must say yes; 0 for the campaign's.
    """
    votes = votes.with_rule(rule, at_least)
    key = ["sample_id", "asked"]
    shown = votes.table.filter(pc.equal(votes.table["role"], "judge")).select([*key, *FACTS]).to_pandas()
    shown = shown.drop_duplicates(key, ignore_index=True)
    counted = {
        (tally.sample_id, tally.asked): (tally.votes, tally.yes, tally.share if tally.votes else np.nan, tally.decision)
        for tally in votes.tallies()
    }
    rows = [
        counted.get(name, (0, 0, np.nan, "undecided")) for name in zip(shown["sample_id"], shown["asked"], strict=True)
    ]
    decisions = pd.DataFrame(rows, columns=["votes", "yes", "share", "decision"])
    accepted: pd.DataFrame = pd.concat([shown, decisions], axis=1)
    cast = ballots(votes)
    for question in votes.questions:
        name, values = f"share_{question.id}", cast[question.id] == "yes"
        if question.is_rating:
            name, values = f"mean_{question.id}", cast[question.id]
        means = cast.assign(value=values.astype(float)).groupby(key)["value"].mean().rename(name)
        accepted = accepted.merge(means.reset_index(), on=key, how="left")
    return accepted


def ballots(votes: Votes) -> pd.DataFrame:
    """Return a row per vote that counts: image, person, ``yes`` by the rule, and a column per question."""
    rows = [{**row.pop("answers"), **row} for row in votes.ballots()]
    asked = [question.id for question in votes.questions]
    frame = pd.DataFrame(rows, columns=["sample_id", "asked", "person", "vote", "yes", *asked])
    for question in votes.questions:
        if question.is_rating:
            frame[question.id] = pd.to_numeric(frame[question.id])
    return frame


def acceptance(images: pd.DataFrame) -> pd.DataFrame:
    """Return the share of accepted images: overall, by category, kind and nuisance, and by who made them.

    ``estimate`` = accepted / (accepted + rejected) with its 95 % interval (``hard.mining.share``: the images of one
    prompt or photo count for as many as they are worth). What has one value only is left out but for the first row.
    """
    rows = [{"by": "", "value": "", **_accepted(images)}]
    for by, column in _GROUPS.items():
        values = images[column].fillna("").astype(str)
        if by == "nuisance":
            values = (images["condition"] + ": " + values).where(values != "", "")
        if values.nunique() > 1:
            rows += [{"by": by, "value": value, **_accepted(part)} for value, part in images.groupby(values)]
    return pd.DataFrame(rows)


def _accepted(images: pd.DataFrame) -> dict[str, Any]:
    decided = images[images["decision"] != "undecided"]
    counts = {name: int((images["decision"] == name).sum()) for name in ("accepted", "rejected", "undecided")}
    return {"images": len(images), **counts} | share(decided["decision"] == "accepted", decided["source_id"])


def agreement_of(votes: Votes, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return how far people agree on each question, and on the rule's verdict.

    Ratings also have the alphas of ordered scales. People differ from image to image, so Cohen's kappa is left out, and
    Fleiss' is there only where every image has as many votes.
    """
    cast = ballots(votes)
    ratings = {question.id: question.is_rating for question in votes.questions}
    if len(ratings) > 1:
        ratings[VERDICT] = False
        cast[VERDICT] = cast["yes"].map({True: "yes", False: "no"})
    place = cast.groupby(["sample_id", "asked"]).cumcount()
    tables = []
    for question, ordered in ratings.items():
        wide = cast.assign(place=place).pivot(index=["sample_id", "asked"], columns="place", values=question)
        measures = agreement(wide, ordered=ordered, resamples=resamples, seed=seed)
        measures = measures[measures["measure"] != "cohen_kappa"].assign(raters=cast["person"].nunique())
        measures.insert(0, "question", question)
        tables.append(measures)
    return pd.concat(tables, ignore_index=True)


def rule_effects(votes: Votes) -> pd.DataFrame:
    """Return what each question does to the set: accepted images by it alone, by the campaign's rule, by all together.

    Columns: ``rule``, ``accepted``, ``rejected``, ``undecided``; ``estimate`` with ``low`` and ``high`` as in
    ``acceptance``; ``lost`` and ``won``: images accepted by the campaign's rule only, and by this one only.
    """
    names = [question.id for question in votes.questions]
    rules = dict.fromkeys([votes.rule, *names, "|".join(names), "&".join(names)])
    frames = {rule: accept(votes.with_rule(rule)) for rule in rules}
    taken = {rule: _taken(frame) for rule, frame in frames.items()}
    rows = []
    for rule, frame in frames.items():
        counts = _accepted(frame)
        moved = {"lost": len(taken[votes.rule] - taken[rule]), "won": len(taken[rule] - taken[votes.rule])}
        rows.append({"rule": rule} | {key: value for key, value in counts.items() if key != "images"} | moved)
    return pd.DataFrame(rows)


def _taken(images: pd.DataFrame) -> set[tuple[str, str]]:
    own = images[images["decision"] == "accepted"]
    return set(zip(own["sample_id"], own["asked"], strict=True))


def answers(votes: Votes) -> pd.DataFrame:
    """Return how often each answer was given in votes that count: ``question``, ``answer``, ``votes``, ``share``."""
    cast = votes.table.filter(votes.table["counts"]).select(["question", "answer"]).to_pandas()
    rows = []
    for question in votes.questions:
        given = cast.loc[cast["question"] == question.id, "answer"]
        for answer in question.answers:
            count = int((given == answer).sum())
            rows.append((question.id, answer, count, count / len(given) if len(given) else np.nan))
    return pd.DataFrame(rows, columns=["question", "answer", "votes", "share"])


def naturalness(votes: Votes, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return mean ratings: overall, by the model that images were made against, by generator, and by condition.

    Columns: ``question``, ``by`` ('' for all), ``value``, ``votes``, ``images``, ``people``, ``estimate``, ``low``,
    ``high``. Intervals resample photos and people, both: another crowd would rate otherwise, too.
    """
    rated = [question for question in votes.questions if question.is_rating]
    if not rated:
        raise UserError(f"no question of campaign {votes.campaign!r} is answered by a number")
    images = accept(votes)
    cast = ballots(votes).merge(images[["sample_id", "asked", *FACTS]], on=["sample_id", "asked"])
    rows = []
    for question in rated:
        for by, column in {"": "", "model": "model", "generator": "generator", "condition": "condition"}.items():
            values = cast[column].fillna("").astype(str) if column else pd.Series("", cast.index)
            if column and values.nunique() < 2:
                continue
            rows += [
                {"question": question.id, "by": by, "value": value, **_mean(part, question.id, resamples, seed)}
                for value, part in cast.groupby(values)
            ]
    columns = ["question", "by", "value", "votes", "images", "people", "estimate", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _mean(part: pd.DataFrame, question: str, resamples: int, seed: int) -> dict[str, Any]:
    value = part[question].to_numpy(float)
    sources, people = part["source_id"].astype(str), part["person"].to_numpy()
    low = high = float("nan")
    if min(codes(sources)[1], codes(people)[1]) > 1:
        strayed = deviations((value - value.mean()) / len(value), sources, people, resamples=resamples, seed=seed)
        low, high = (float(end) for end in interval(value.mean() + strayed))
    return {
        "votes": len(value),
        "images": part["sample_id"].nunique(),
        "people": part["person"].nunique(),
        "estimate": float(value.mean()),
        "low": low,
        "high": high,
    }
