"""Why a model is wrong: the class it names goes with the background, the texture or the material, or looks alike.

Nothing is guessed from names. An answer c to an image of category a with value v of a factor is laid to

- the factor, if images *of other categories* (neither a nor c) with v are answered c more often than images of those
  categories with other values;
- a look-alike, if images of a *with other values* are answered c more often than images of other categories are.

So neither the image nor any other of its prompt is evidence about itself. "More often" means: Newcombe's interval of
the difference, at a level that is divided by the number of values looked at, lies above 0, and the rate is at least
twice the other, so that half or more of such answers would not have been given without the factor. If several
explain an answer, the one with the largest excess does; the others are in ``also``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import codes
from holdfast.stats.hard.mining import difference, share

FACTORS = ("background", "texture", "material")
LOOK_ALIKE, UNEXPLAINED = "look-alike", "unexplained"
LEAST_LIFT = 2.0
LEVEL = 0.05
MOST_TRIED = 1_000  # Images that chance is tried on: a share of them is known well enough

Rows = NDArray[np.bool_]
COLUMNS = [
    "sample_id", "model", "category", "said", "mode", "value", "rate", "base", "odds_ratio", "excess", "excess_low",
    "excess_high", "n", "also",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Association:
    """How much more often an answer is given with something than without: rates, excess with interval, odds ratio."""

    rate: float
    base: float
    odds_ratio: float
    excess: float
    low: float
    high: float
    n: int

    @property
    def explains(self) -> bool:
        """Return whether the answer goes with it."""
        return bool(self.low > 0 and self.rate >= LEAST_LIFT * self.base)


def association(answered: Rows, inside: Rows, outside: Rows, prompts: NDArray[Any], *, level: float) -> Association:
    """Return an answer's rate inside a group of images against its rate outside."""
    first, second = (share(answered[part], prompts[part], level=level) for part in (inside, outside))
    excess, low, high = difference(first, second)
    hits, others = (int(answered[part].sum()) for part in (inside, outside))
    # Half an image in each cell (Haldane, Anscombe), so that an answer never given without it has an odds ratio, too.
    ratio = (hits + 0.5) * (second["n"] - others + 0.5) / ((first["n"] - hits + 0.5) * (others + 0.5))
    return Association(first["estimate"], second["estimate"], ratio, excess, low, high, first["n"])


def explain(
    images: pd.DataFrame,
    said: pd.DataFrame,
    factors: pd.DataFrame,
    models: Sequence[str],
    *,
    wanted: pd.Series | None = None,
) -> pd.DataFrame:
    """Return a row per wrong answer of each model, with its mode and the evidence for it.

    ``images``: a row per image by sample_id: ``prompt_id``, ``category``. All of them are evidence, right answers too.
    ``factors``: same index, a column per factor, '' if an image's value is not known. ``wanted``: which images to
    explain; None for all. Returned: COLUMNS: ``mode`` is a factor, LOOK_ALIKE or UNEXPLAINED, ``value`` that of the
    factor; ``rate`` and ``base`` with the excess and its interval are of the mode, and missing if there is none.
    """
    chosen = np.ones(len(images), bool) if wanted is None else wanted.to_numpy(bool)
    world = _World(images, factors)
    rows = []
    for model in models:
        answers = said[model].to_numpy(object)
        numbers = world.classes_of(answers)
        known: dict[tuple[Any, ...], list[tuple[str, str, Association]]] = {}
        for place in np.flatnonzero(chosen & (numbers != world.category)).tolist():
            key = (numbers[place], *world.key(place))
            if key not in known:
                known[key] = world.explanations(place, numbers)
            label = str(images["category"].iat[place])
            rows.append(_row(str(images.index[place]), model, label, str(answers[place]), known[key]))
    return pd.DataFrame(rows, columns=COLUMNS)


class _World:
    """The images as arrays of numbers, and what may explain an answer to one of them; 0 is an unknown value."""

    def __init__(self, images: pd.DataFrame, factors: pd.DataFrame) -> None:
        self.numbers: dict[str, int] = {}
        self.category = self.classes_of(images["category"].to_numpy(object))
        self.class_level = 1 - LEVEL / max(len(self.numbers), 1)
        self.prompts = codes(images["prompt_id"].astype(str))[0]
        self.names = {
            str(name): ["", *sorted({str(value) for value in factors[name]} - {""})] for name in factors.columns
        }
        self.factors = {}
        for name, values in self.names.items():
            numbers = {value: number for number, value in enumerate(values)}
            self.factors[name] = np.array([numbers[str(value)] for value in factors[name]], np.intp)

    def classes_of(self, names: NDArray[Any]) -> NDArray[np.intp]:
        """Return classes as numbers; a new name gets the next number."""
        return np.array([self.numbers.setdefault(str(name), len(self.numbers)) for name in names], np.intp)

    def key(self, place: int) -> tuple[int, ...]:
        """Return a key per image; images with one key have the same explanations of an answer."""
        return (int(self.prompts[place]), *(int(values[place]) for values in self.factors.values()))

    def explanations(self, place: int, answers: NDArray[np.intp]) -> list[tuple[str, str, Association]]:
        """Return (mode, value, evidence) of whatever explains the answer to an image, the largest excess first."""
        answered = answers == answers[place]
        own = self.category == self.category[place]
        strangers = ~own & (self.category != answers[place])
        elsewhere = self.prompts != self.prompts[place]
        tried: list[tuple[str, str, Rows, Rows, float]] = []
        for name, values in self.factors.items():
            if values[place]:
                with_it = values == values[place]
                elsewhere &= ~with_it
                value, level = self.names[name][values[place]], 1 - LEVEL / (len(self.names[name]) - 1)
                tried.append((name, value, strangers & with_it, strangers & ~with_it & (values > 0), level))
        tried.append((LOOK_ALIKE, "", own & elsewhere, strangers & elsewhere, self.class_level))
        reasons = []
        for mode, value, inside, outside, level in tried:
            hits, others = int((answered & inside).sum()), int((answered & outside).sum())
            size, rest = int(inside.sum()), int(outside.sum())
            # What never happened elsewhere explains nothing; and most pairs need no interval to be distinguished.
            if hits and rest and hits * rest >= LEAST_LIFT * others * size:
                evidence = association(answered, inside, outside, self.prompts, level=level)
                reasons += [(mode, value, evidence)] if evidence.explains else []
        return sorted(reasons, key=lambda reason: -reason[2].excess)


def _row(
    sample_id: str, model: str, category: str, answer: str, reasons: Sequence[tuple[str, str, Association]]
) -> dict[str, Any]:
    row = (sample_id, model, category, answer)
    if not reasons:
        return dict(zip(COLUMNS, (*row, UNEXPLAINED, ""), strict=False)) | {"also": ""}
    mode, value, evidence = reasons[0]
    also = ", ".join(name for name, _, _ in reasons[1:])
    return dict(zip(COLUMNS, (*row, mode, value, *astuple(evidence), also), strict=True))


def modes_of(factors: pd.DataFrame) -> list[str]:
    """Return every mode an answer can have, in the order of tables."""
    return [*(str(name) for name in factors.columns if (factors[name] != "").any()), LOOK_ALIKE, UNEXPLAINED]


def table(
    explained: pd.DataFrame, prompts: pd.Series, modes: Sequence[str], by: Sequence[str] = ("model",)
) -> pd.DataFrame:
    """Return how many wrong answers each mode has; intervals treat prompts, not images, as independent.

    ``explained``: what ``explain`` returned, with any further columns. ``modes``: which to count, also if there is
    none. Returned: ``by``, ``mode``, ``answers`` (with that mode), ``n`` (all wrong ones), ``prompts``, ``estimate``,
    ``low``, ``high``.
    """
    rows = []
    for key, part in explained.groupby(list(by), sort=False):
        clusters = prompts.loc[part["sample_id"]].to_numpy(object)
        for mode in modes:
            hits = (part["mode"] == mode).to_numpy()
            rows.append(
                dict(zip(by, key, strict=True)) | {"mode": mode, "answers": int(hits.sum())} | share(hits, clusters)
            )
    return pd.DataFrame(rows, columns=[*by, "mode", "answers", "n", "prompts", "estimate", "low", "high"])


def by_chance(
    images: pd.DataFrame,
    said: pd.DataFrame,
    factors: pd.DataFrame,
    models: Sequence[str],
    *,
    wanted: pd.Series | None = None,
    shuffles: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the share of wrong answers each factor would get if it had nothing to do with them.

    The prompts of a category exchange their values, so that answers, look-alikes and counts stay as they are.
    """
    rng = np.random.default_rng(seed)
    inside = np.ones(len(images), bool) if wanted is None else wanted.to_numpy(bool)
    tried = np.zeros(len(images), bool)
    tried[rng.permutation(np.flatnonzero(inside))[:MOST_TRIED]] = True
    own = factors.assign(category=images["category"], prompt_id=images["prompt_id"]).groupby("prompt_id").first()
    counted = []
    for _ in range(shuffles):
        dealt = own.copy()
        for _, part in own.groupby("category"):
            values = part[list(factors.columns)].to_numpy()
            dealt.loc[part.index, list(factors.columns)] = values[rng.permutation(len(part))]
        shuffled = dealt.loc[images["prompt_id"], list(factors.columns)].set_axis(images.index)
        counted.append(explain(images, said, shuffled, models, wanted=pd.Series(tried, images.index)))
    rows = []
    for model in models:
        modes = [part.loc[part["model"] == model, "mode"] for part in counted]
        for mode in modes_of(factors)[:-2]:
            shares = [float((part == mode).mean()) if len(part) else float("nan") for part in modes]
            rows.append((model, mode, float(np.mean(shares))))
    return pd.DataFrame(rows, columns=["model", "mode", "by_chance"])


def tied(explained: pd.DataFrame, factors: pd.DataFrame, homes: Mapping[tuple[str, str], str]) -> list[str]:
    """Return for every wrong answer the factor by which training tied the answered class to the image, or ''."""
    values = factors.loc[explained["sample_id"]]
    return [
        next((name for name in factors.columns if own[name] and homes.get((str(name), answer)) == own[name]), "")
        for answer, own in zip(explained["said"], values.to_dict("records"), strict=True)
    ]


@dataclass(frozen=True)
class ExplainedAnswers:
    """What models said about the images of one dataset, and what is known of the images.

    ``homes``: model → (factor, class) → value that its training tied together, if that is known.
    """

    name: str  # of the dataset
    images: pd.DataFrame  # by sample_id: ``prompt_id`` (the cluster), ``category``, and whatever else there is
    said: pd.DataFrame  # same index, each model's answer
    factors: pd.DataFrame  # same index, a column per factor, '' if the value is not known
    models: tuple[str, ...]  # whose answers, in order
    wanted: pd.Series  # which images to explain
    homes: Mapping[str, Mapping[tuple[str, str], str]]
    reading: Mapping[str, Any]  # how values that no one asked for were found; {} if none were
    held_out: tuple[str, ...] = ()  # models that took no part in choosing the images, if others did


@dataclass(frozen=True)
class Modes:
    """Every wrong answer with its mode, and the tables.

    ``by_model``: ``table`` per model, with ``by_chance`` and ``tied`` (answers of the mode that training tied so).
    """

    answers: ExplainedAnswers  # what it is about
    modes: list[str]  # that occur here, in order
    explained: pd.DataFrame  # ``explain``, with ``group`` (the kind of image) and ``tied``
    by_model: pd.DataFrame
    by_group: pd.DataFrame  # ``table`` per model and group; empty if all images are of one kind


def measure(answers: ExplainedAnswers, *, shuffles: int = 5, seed: int = 0) -> Modes:
    """Explain the wrong answers of every model and count the modes."""
    images, factors, models = answers.images, answers.factors, answers.models
    explained = explain(images, answers.said, factors, models, wanted=answers.wanted)
    kinds = images["kind"] if "kind" in images else pd.Series("", images.index)
    explained["group"] = kinds.loc[explained["sample_id"]].to_numpy(object)
    explained["tied"] = ""
    for model, homes in answers.homes.items():
        own = explained["model"] == model
        explained.loc[own, "tied"] = tied(explained[own], factors, homes)
    modes = modes_of(factors)
    by_model = table(explained, images["prompt_id"], modes)
    if len(modes) > 2 and len(explained):
        chance = by_chance(images, answers.said, factors, models, wanted=answers.wanted, shuffles=shuffles, seed=seed)
        by_model = by_model.merge(chance, on=["model", "mode"], how="left")
    else:
        by_model["by_chance"] = np.nan
    known = explained[explained["model"].isin(list(answers.homes)) & (explained["tied"] == explained["mode"])]
    counted = known.groupby(["model", "mode"]).size()
    by_model["tied"] = [
        counted.get((row["model"], row["mode"]), 0)
        if row["model"] in answers.homes and row["mode"] in factors.columns
        else np.nan
        for row in by_model.to_dict("records")
    ]
    several = explained["group"].nunique() > 1
    by_group = table(explained if several else explained.head(0), images["prompt_id"], modes, ("model", "group"))
    return Modes(answers, modes, explained, by_model, by_group)


def asked_factors(kinds: Sequence[str], values: Sequence[str], index: pd.Index) -> pd.DataFrame:
    """Return the factors of generated images: of each only the kind that was asked for is known."""
    asked, known = np.asarray(kinds, object), np.asarray(values, object)
    columns = {factor: np.where(asked == factor, known, "") for factor in FACTORS}
    return pd.DataFrame(columns, index=index, dtype=object)
