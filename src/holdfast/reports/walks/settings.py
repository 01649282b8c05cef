"""How walks were made: their options, what differs between settings, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import number, percent
from holdfast.reports.page.parts import Heading, Notice, Part, Text
from holdfast.reports.page.tables import Column, Table, plain
from holdfast.reports.page.words import listing
from holdfast.reports.walks.evidence import FAMILY, ReportWalks, first_columns
from holdfast.stats.models.between import kendall

MOST_EXPLAINED = 6  # Settings that are explained before the figures; more would be in the way


def setting_sentences(walks: ReportWalks) -> list[str]:
    """Return what the numbers of the walks stand for: the options in which they differ."""
    if not walks.several:
        return []
    moved = _moved(walks, [key for key in walks.settings[0] if not key.endswith("_fingerprint")])
    if not moved or len(walks.settings) > MOST_EXPLAINED:
        return [f"{len(walks.settings)} walks: what they stand for is said under “How the walks were made”."]
    said = [
        f"Walk {number_}: " + ", ".join(f"{key.replace('_', ' ')} {_value(setting.get(key))}" for key in moved)
        for number_, setting in enumerate(walks.settings, 1)
    ]
    return [f"Every image was walked in {len(walks.settings)} ways. {'; '.join(said)}."]


def settings_compared(walks: ReportWalks, frame: pd.DataFrame) -> list[Part]:
    """Return FMR per generator and oracle, if there are several walks."""
    if not walks.several:
        return []
    named = ("generator", "oracle", "generator_fingerprint", "oracle_fingerprint")
    rows = []
    for number_, setting in enumerate(walks.settings, 1):
        moved = [key for key in _moved(walks, list(setting)) if key not in named]
        other = ", ".join(f"{key.replace('_', ' ')} {_value(setting.get(key))}" for key in moved)
        rows.append((str(setting.get("generator", "")), str(setting.get("oracle", "")), other, number_))
    options = pd.DataFrame(rows, columns=["generator", "oracle", "other", "walk"])
    table = options.merge(frame, on="walk").sort_values(["generator", "oracle", "walk"], kind="stable")
    table["model"] = table["model"].map(walks.short)
    columns = [Column("walk", "Walk", "integer"), *plain("text", generator="Generator", oracle="Oracle")]
    if options["other"].any():
        columns.append(Column("other", "Else"))
    columns += [Column("model", "Model"), Column("n", "Images", "integer"), *FAMILY[1:]]
    caption = "FMR by generator and oracle"
    return [
        Heading("Other generators, other oracles"),
        Text(_agreement(walks, frame)),
        Table("fmr_by_generator_and_oracle", caption, table, columns),
    ]


def _moved(walks: ReportWalks, keys: Sequence[str]) -> list[str]:
    """Return the options in which the walks differ."""
    return [key for key in keys if len({str(other.get(key)) for other in walks.settings}) > 1]


def _agreement(walks: ReportWalks, frame: pd.DataFrame) -> list[str]:
    """Return whether walks rank the models in the same order."""
    known = frame[frame["reason"] == ""]
    scores: dict[int, dict[str, float]] = {}
    for row in known.to_dict("records"):
        scores.setdefault(int(row["walk"]), {})[str(row["model"])] = float(row["fmr"])
    said = []
    for first, second in combinations(sorted(scores), 2):
        agreement = kendall(scores[first], scores[second])
        if not agreement["reason"] and int(agreement["n"]) > 2:
            said.append(f"walks {first} and {second} τ = {number(float(agreement['tau']))} ({agreement['n']} models)")
    start = "FMR depends on who makes the images and who judges them."
    return [f"{start} Agreement of the models' order (Kendall): {listing(said, 10)}." if said else start]


def time(walks: ReportWalks) -> list[Part]:
    """Return how long the walks took, and what a sparse latent saved; nothing if no time was recorded."""
    timed = walks.images[walks.images["seconds"].notna()]
    records = []
    for model, walk in walks.order:
        group = timed[(timed["model"] == model) & (timed["walk"] == walk)]
        if len(group):
            total = float(group["seconds"].sum())
            mask = walks.settings[walk - 1].get("sparse")
            records.append({"model": model, "walk": walk, "latent": "sparse" if mask else "dense", "n": len(group),
                            "total": total, "each": total / len(group)})  # fmt: skip
    if not records:
        return []
    frame = pd.DataFrame(records)
    sentence = f"A walk took {number(float(timed['seconds'].mean()), 2)} s an image on average."
    pairs = _dense_and_sparse(walks, timed)
    if len(pairs):
        said = [
            f"{row['row']} {number(row['dense'], 2)} s in the dense latent and "
            f"{number(row['sparse'], 2)} s in the sparse one, {_saved(row['sparse'] / row['dense'])}"
            for row in pairs.to_dict("records")
        ]
        sentence = f"Time of a walk, on images walked both ways with the same other options: {'; '.join(said)}."
    columns = [
        *first_columns(walks), Column("latent", "Latent"), Column("n", "Images", "integer"),
        Column("total", "Seconds", "number", digits=1), Column("each", "an image", "number", digits=3),
    ]  # fmt: skip
    note = (
        "Of the steps alone: encoding, decoding, model and oracle; images of one batch share its time. By the clock, "
        "so compare only runs that had the machine to themselves."
    )
    return [Heading("Time"), Text([sentence]), Table("walk_time", "Time of the walks", frame, columns, note)]


def _saved(ratio: float) -> str:
    return f"{percent(1 - ratio)} saved" if ratio <= 1 else f"{percent(ratio - 1)} more"


def _dense_and_sparse(walks: ReportWalks, timed: pd.DataFrame) -> pd.DataFrame:
    """Return ``dense`` and ``sparse`` seconds an image per ``row``, a model's sparse walk, and ``n`` images.

    Of the images that have both times, and only if a dense walk has the same other options.
    """
    like = [{key: value for key, value in setting.items() if key != "sparse"} for setting in walks.settings]
    mean = timed.groupby(["model", "walk", "sample_id"])["seconds"].mean()
    rows = []
    for model, walk in walks.order:
        if not walks.settings[walk - 1].get("sparse"):
            continue
        for other, setting in enumerate(walks.settings, 1):
            if not setting.get("sparse") and like[other - 1] == like[walk - 1] and (model, other) in walks.order:
                times = [mean[mean.index.isin([model], 0) & mean.index.isin([at], 1)] for at in (other, walk)]
                both = pd.concat([part.droplevel([0, 1]) for part in times], axis=1).dropna()
                if len(both):
                    rows.append((walks.row(model, walk), *both.mean().tolist(), len(both)))
    return pd.DataFrame(rows, columns=["row", "dense", "sparse", "n"])


def how(walks: ReportWalks) -> list[Part]:
    """Return every option of the walks, and the oracles' cards."""
    lines = []
    for number_, setting in enumerate(walks.settings, 1):
        order: list[str] = [key for key in ("generator", "oracle", "steps", "step_size") if key in setting]
        order += [key for key in setting if key not in order]
        options = ", ".join(f"{key.replace('_', ' ')} = {_value(setting[key])}" for key in order)
        lines.append(f"{f'Walk {number_}: ' if walks.several else ''}{options}.")
    parts: list[Part] = [Heading("How the walks were made"), Text(lines)]
    cards: list[Sequence[Sequence[str]]] = []
    for run in walks.runs:
        given = run.spec().get("oracle_cards")
        for card in given if isinstance(given, list) else []:
            fine = isinstance(card, list) and all(isinstance(row, list) and len(row) == 2 for row in card)
            if fine and card and card not in cards:
                cards.append(card)
    for place, card in enumerate(cards, 1):
        frame = pd.DataFrame([(str(row[0]), str(row[1])) for row in card], columns=["what", "value"])
        name = "oracle_card" if len(cards) == 1 else f"oracle_card_{place}"
        columns = [*plain("text", what="What", value="Value")]
        parts.append(Table(name, "The oracle's card", frame, columns))
    if not cards:
        parts.append(Notice("The oracle's card: the run did not record one."))
    return parts


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value in ("", None) else str(value)
