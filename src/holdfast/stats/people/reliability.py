"""How far each person's answers can be relied on, from sentinels, repeats and the other people's answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.core.lazy import pd, scipy_stats
from holdfast.core.votes import VoteQuestion, Votes, parse_rule
from holdfast.stats.core.cells import wilson

FEWEST = 20  # Images with other people's answers that a person needs before "by chance" is said of them
RARER = 5  # How often the others' rarer answer must be among these: with fewer even a perfect judge looks like chance

LEVEL = 0.05

_CLOSED = ("finished", "discarded")


def reliability(votes: Votes) -> pd.DataFrame:
    """Return a row per person, the least reliable first.

    Discarded tasks count, too: who answers at random is discarded, and would else seem to be missing. ``sentinel_rate``
    and ``repeat_rate``: shares of control pictures passed and of repeated ones answered alike; ``agreement`` with what
    most others said of the same image (this person left out; a rating agrees within the tolerance of their median);
    ``seconds``: the median time an image; ``chance_p``: how likely answers unrelated to the others' would agree as well
    (Fisher's exact test, of ratings Kendall's τ, one-sided); ``by_chance``: true where that is over 0.05 although 20
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
    held: dict[Any, list[bool]] = {}
    votes = frame.groupby(["person", "vote"])["holds"].all().reset_index()
    for row in votes.to_dict("records"):
        held.setdefault(row["person"], []).append(bool(row["holds"]))
    return held


def _rate(name: str, held: list[bool], columns: tuple[str, str]) -> dict[str, Any]:
    low, high = wilson(sum(held), len(held))
    share = sum(held) / len(held) if held else np.nan
    limits = {f"{name}_rate": share, f"{name}_low": float(low), f"{name}_high": float(high)}
    return {columns[0]: len(held), columns[1]: sum(held)} | limits


def _sentinels(closed: pd.DataFrame) -> pd.DataFrame:
    """Return whether positives and negatives passed, answer by answer."""
    asked = closed[closed["role"].isin(["positive", "negative"]) & (closed["expected"] != "")]
    right = [answer in allowed.split("|") for answer, allowed in zip(asked["answer"], asked["expected"], strict=True)]
    return asked.assign(holds=right)


def _repeats(votes: Votes, closed: pd.DataFrame) -> pd.DataFrame:
    """Return whether pictures shown twice in a task were answered alike, answer by answer."""
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
    """Add ``theirs``: what others whose votes count say of the same image; missing where none do or they split.

    Of a rating their median; else 1 where most say yes, 0 where most say no.
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
    low, high = wilson(sum(agrees), len(agrees))
    return {
        "compared": len(agrees),
        "agreement": sum(agrees) / len(agrees) if agrees else np.nan,
        "agreement_low": float(low),
        "agreement_high": float(high),
        "chance_p": p,
        "by_chance": bool(len(agrees) >= FEWEST and telling and p > LEVEL),
    }


def _fisher(mine: pd.Series, theirs: pd.Series) -> float:
    """Return Fisher's p; NaN where the others said the same of every image, which tells nothing."""
    if theirs.nunique() < 2:
        return float("nan")
    table = [[int(((mine == ours) & (theirs == others)).sum()) for others in (True, False)] for ours in (True, False)]
    return float(scipy_stats.fisher_exact(np.array(table), alternative="greater").pvalue)


def _kendall(mine: pd.Series, theirs: pd.Series) -> float:
    if theirs.nunique() < 2:
        return float("nan")
    if mine.nunique() < 2:
        return 1.0  # the same number for everything follows nobody
    return float(scipy_stats.kendalltau(mine, theirs, alternative="greater").pvalue)
