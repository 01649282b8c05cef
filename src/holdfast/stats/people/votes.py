"""Statistics of votes: which images people accept, how natural they look, how far people agree and are reliable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_stats
from holdfast.core.votes import VoteQuestion, Votes, parse_rule
from holdfast.stats.core.bootstrap import RESAMPLES, Estimate, codes, deviations, estimated
from holdfast.stats.core.cells import share_of
from holdfast.stats.hard.mining import share
from holdfast.stats.people.agreement import agreement

FACTS = ["source_id", "label", "condition", "nuisance", "generator", "model", "sha256", "pixels_sha256"]
"""What a vote's row says of its image."""

VERDICT = "verdict"  # The rule's yes or no of one person, if there is more than one question

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
    prompt or image count for as many as they are worth). What has one value only is left out but for the first row.
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


def agreement_of(votes: Votes) -> pd.DataFrame:
    """Return how far people agree on each question, and on the rule's verdict.

    Ratings also have the alphas of ordered scales. People differ from image to image, so Cohen's kappa is left out, and
    Fleiss' is there only if every image has as many votes.
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
        measures = agreement(wide, ordered=ordered)
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
    ``high``. Intervals resample images and people, both: another crowd would rate otherwise, too.
    """
    rated = [question for question in votes.questions if question.is_rating]
    if not rated:
        raise UserError(f"campaign {votes.campaign!r} needs a question that is answered by a number, and has none")
    images = accept(votes)
    cast = ballots(votes).merge(images[["sample_id", "asked", *FACTS]], on=["sample_id", "asked"])
    rows = []
    for question in rated:
        for by in ("", "model", "generator", "condition"):
            values = cast[by].fillna("").astype(str) if by else pd.Series("", cast.index)
            if by and values.nunique() < 2:
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
    mean = Estimate(float(value.mean()), float("nan"), float("nan"))
    if min(codes(sources)[1], codes(people)[1]) > 1:
        strayed = deviations((value - value.mean()) / len(value), sources, people, resamples=resamples, seed=seed)
        mean = estimated(value.mean(), value.mean() + strayed)
    counts = {"votes": len(value), "images": part["sample_id"].nunique(), "people": part["person"].nunique()}
    return counts | mean.row("estimate", "")


FEWEST = 20  # Images with other people's answers that a person needs before "by chance" is said of them
RARER = 5  # How often the others' rarer answer must be among these: with fewer even a perfect judge looks like chance

LEVEL = 0.05

_CLOSED = ("finished", "discarded")


def reliability(votes: Votes) -> pd.DataFrame:
    """Return a row per person, the least reliable first.

    Discarded tasks count, too: who answers at random is discarded, and would otherwise be missing here.
    ``sentinel_rate`` and ``repeat_rate``: shares of control images passed and of repeated ones answered alike;
    ``agreement`` with what most others said of the same image (this person left out; a rating agrees within the
    tolerance of their median);
    ``seconds``: the median time an image; ``chance_p``: how likely answers unrelated to the others' would agree as well
    (Fisher's exact test, of ratings Kendall's τ, one-sided); ``by_chance``: true if that is over 0.05 although 20
    images or more were compared, 5 of them at least with the others' rarer answer.
    """
    frame = votes.table.to_pandas()
    frame = frame[~frame["superseded"]]
    closed = frame[frame["task_status"].isin(_CLOSED)]
    tasks = frame.drop_duplicates("task").groupby(["person", "task_status"]).size()
    seconds = closed.drop_duplicates("vote").groupby("person")["seconds"].median()
    sentinels, repeats = _held(_sentinels(closed)), _held(_repeats(votes, closed))
    judged = dict(list(_with_others(votes, _judged(votes, closed)).groupby("person")))
    rows = []
    for person in sorted(set(frame["person"])):
        row: dict[str, Any] = {"person": person}
        row |= {status: int(tasks.get((person, status), 0)) for status in (*_CLOSED, "expired")}
        row |= _rate("sentinel", sentinels.get(person, []), ("sentinels", "passed"))
        row |= _rate("repeat", repeats.get(person, []), ("repeats", "consistent"))
        mine = judged.get(person)
        row |= _compared(votes, mine)
        row["seconds"] = float(seconds.get(person, np.nan))
        row["yes"] = np.nan if mine is None else float(mine["yes"].mean())
        rows.append(row)
    table = pd.DataFrame(rows)
    return table.sort_values(["by_chance", "sentinel_rate"], ascending=[False, True], kind="stable", ignore_index=True)


def _held(frame: pd.DataFrame) -> dict[Any, list[bool]]:
    """Return person → whether each of their votes holds: all its questions do."""
    votes = frame.groupby(["person", "vote"])["holds"].all()
    return {person: own.tolist() for person, own in votes.groupby(level="person")}


def _rate(name: str, held: list[bool], columns: tuple[str, str]) -> dict[str, Any]:
    share = share_of(sum(held), len(held))
    return {columns[0]: len(held), columns[1]: sum(held)} | share.row(f"{name}_rate", f"{name}_")


def _sentinels(closed: pd.DataFrame) -> pd.DataFrame:
    """Return whether positives and negatives passed, answer by answer."""
    asked = closed[closed["role"].isin(["positive", "negative"]) & (closed["expected"] != "")]
    right = [answer in allowed.split("|") for answer, allowed in zip(asked["answer"], asked["expected"], strict=True)]
    return asked.assign(holds=right)


def _repeats(votes: Votes, closed: pd.DataFrame) -> pd.DataFrame:
    """Return whether images shown twice in a task were answered alike, answer by answer."""
    questions = {question.id: question for question in votes.questions}
    key = ["task", "sample_id", "asked", "question"]
    again = closed[closed["role"] == "repeat"]
    first = closed[closed["role"] == "judge"].drop_duplicates(key)
    pairs = again.merge(first[[*key, "answer"]], on=key, suffixes=("", "_first"))
    same = [
        _near(questions[question], answer, first_answer)
        for question, answer, first_answer in zip(
            pairs["question"], pairs["answer"], pairs["answer_first"], strict=True
        )
    ]
    return pairs.assign(holds=same)


def _near(question: VoteQuestion, said: str, other_answer: str) -> bool:
    if said == other_answer:
        return True
    places = [question.answers.index(answer) for answer in (said, other_answer) if answer in question.answers]
    return len(places) == 2 and abs(places[0] - places[1]) <= question.tolerance


def _judged(votes: Votes, closed: pd.DataFrame) -> pd.DataFrame:
    """Return a row per person and image: ``yes`` by the rule, their first answer, and whether it counts."""
    rule, first = parse_rule(votes.rule, votes.questions), votes.questions[0].id
    heads: dict[int, Any] = {}
    said: dict[int, dict[str, str]] = {}
    columns = ("vote", "person", "sample_id", "asked", "counts", "question", "answer")
    judging = closed[closed["role"] == "judge"]
    # by columns: of a campaign's hundred thousand rows, records of them all would take most of the time
    for vote, person, sample, asked, counts, question, answer in zip(
        *(judging[column].tolist() for column in columns), strict=True
    ):
        heads.setdefault(vote, (person, f"{sample}\n{asked}", counts))
        said.setdefault(vote, {})[question] = answer
    rows = [
        (person, image, rule.says_yes(said[vote]), said[vote].get(first), counts)
        for vote, (person, image, counts) in heads.items()
    ]
    return pd.DataFrame(rows, columns=["person", "image", "yes", "answer", "counts"])


def _with_others(votes: Votes, judged: pd.DataFrame) -> pd.DataFrame:
    """Add ``theirs``: what others whose votes count say of the same image; missing if none do or they split.

    Of a rating their median; else 1 if most say yes, 0 if most say no.
    """
    rating = votes.questions[0].is_rating
    judged = judged.drop_duplicates(["person", "image"])
    mine = pd.to_numeric(judged["answer"]) if rating else judged["yes"].astype(float)
    counted: dict[str, dict[Any, float]] = {}
    for person, image, value, counts in zip(judged["person"], judged["image"], mine, judged["counts"], strict=True):
        if counts:
            counted.setdefault(image, {})[person] = value
    theirs = []
    for person, image in zip(judged["person"], judged["image"], strict=True):
        others = [value for other, value in counted.get(image, {}).items() if other != person]
        if not others or (not rating and 2 * sum(others) == len(others)):
            theirs.append(np.nan)
        else:
            theirs.append(float(np.median(others)) if rating else float(2 * sum(others) > len(others)))
    return judged.assign(mine=mine, theirs=theirs)


def _compared(votes: Votes, mine: pd.DataFrame | None) -> dict[str, Any]:
    """Return the agreement of one person with the others, and whether it could be chance."""
    agrees: list[bool] = []
    p, telling = float("nan"), False
    if mine is not None:
        met = mine[mine["theirs"].notna()]
        if votes.questions[0].is_rating:
            agrees = ((met["mine"] - met["theirs"]).abs() <= votes.questions[0].tolerance).tolist()
            p, telling = _kendall(met["mine"], met["theirs"]), True
        else:
            agrees = (met["mine"] == met["theirs"]).tolist()
            yes = int(met["theirs"].sum())
            p, telling = _fisher(met["mine"] == 1, met["theirs"] == 1), min(yes, len(met) - yes) >= RARER
    row = {"compared": len(agrees), **share_of(sum(agrees), len(agrees)).row("agreement"), "chance_p": p}
    return row | {"by_chance": bool(len(agrees) >= FEWEST and telling and p > LEVEL)}


def _fisher(mine: pd.Series, theirs: pd.Series) -> float:
    """Return Fisher's p; NaN if the others said the same of every image, which shows nothing."""
    if theirs.nunique() < 2:
        return float("nan")
    table = [[int(((mine == ours) & (theirs == others)).sum()) for others in (True, False)] for ours in (True, False)]
    return float(scipy_stats.fisher_exact(np.array(table), alternative="greater").pvalue)


def _kendall(mine: pd.Series, theirs: pd.Series) -> float:
    if theirs.nunique() < 2:
        return float("nan")
    if mine.nunique() < 2:
        return 1.0  # the same number for everything follows no one
    return float(scipy_stats.kendalltau(mine, theirs, alternative="greater").pvalue)
