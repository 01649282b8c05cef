"""Why models are wrong: the section on failure modes, its gallery, and the page that compares datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import estimate, percent
from holdfast.reports.page.charts import dot_figure
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import (
    TILES,
    Front,
    Heading,
    Notice,
    Part,
    Section,
    Thumbnails,
    Tile,
    answer,
    first_figure,
    grouped,
    judged,
    proof,
    tile,
)
from holdfast.reports.page.tables import Column, Table, plain
from holdfast.reports.page.words import listing, plural, sentence, short_names
from holdfast.reports.page.writer import DRAWN_WORLD, write_page
from holdfast.stats.hard.failure_modes import LEAST_LIFT, LOOK_ALIKE, UNEXPLAINED, Modes

_MEANING = {
    LOOK_ALIKE: "the class is confused with it in other surroundings, too",
    UNEXPLAINED: "nothing measured here goes with the answer",
}
_LOOK: dict[str, Any] = {"axis": "share of wrong answers", "domain": (0, 1)}


def failure_section(modes: Modes, pictures: Thumbnails | None = None, *, name: str = "modes") -> Section:
    """Return what explains the wrong answers of every model, with images of every mode."""
    short = short_names(modes.answers.models)
    section = Section(name, "Why models are wrong")
    if modes.explained.empty:
        section.parts = [Notice("No model is wrong on any of these images.")]
        return section
    wrong = modes.explained["model"]
    own = wrong[wrong.isin(modes.answers.held_out)]  # the others chose the images they fail
    most = (own if len(own) else wrong).value_counts(sort=True).index[:3]
    section.lead = [*(_sentence(modes, str(model), short[str(model)]) for model in most), _rule(modes)]
    if modes.answers.reading:
        section.lead.append(_reading(modes))
    section.parts = [_figure(modes, short, name), *_tables(modes, short, name), *_gallery(modes, short, pictures)]
    return section


def _sentence(modes: Modes, model: str, short: str) -> str:
    rows = modes.by_model[modes.by_model["model"] == model]
    words = {LOOK_ALIKE: "are look-alikes", UNEXPLAINED: "stay unexplained"}
    shares = [
        f"{estimate(row['estimate'], row['low'], row['high'])} " + words.get(row["mode"], f"go with the {row['mode']}")
        for row in rows[rows["answers"] > 0].to_dict("records")
    ]
    text = f"Of the {plural(int(rows['n'].iloc[0]), 'wrong answer')} of {short}, {listing(shares, 6)}."
    tied = rows.dropna(subset=["tied"])
    explained = int(tied["answers"].sum())
    if explained:
        text += (
            f" In {int(tied['tied'].sum())} of the {explained} that go with a factor, the answered class is the one "
            "that training tied to that value."
        )
    return text


def _rule(modes: Modes) -> str:
    known = [mode for mode in modes.modes if mode not in (LOOK_ALIKE, UNEXPLAINED)]
    if not known:
        return (
            "Nothing is known of what surrounds the objects, so only look-alikes can be found: classes that other "
            f"images of the same class are taken for more often, at least {LEAST_LIFT:g} times, than images of other "
            "classes are."
        )
    return (
        f"A wrong answer goes with the {' or the '.join(known)} if images of other classes with that value get the "
        f"same answer at least {LEAST_LIFT:g} times as often as such images with other values, and more than by "
        "chance. It is a look-alike if that holds for images of the same class with other values. No image is evidence "
        "about itself."
    )


def _reading(modes: Modes) -> str:
    reading = modes.answers.reading
    text = (
        f"Backgrounds outside the prompts were read by {reading['oracle']} among "
        f"{plural(len(reading['backgrounds']), 'background')}: "
        f"it was more sure than not in {reading['read']:,} of {plural(reading['images'], 'image')}."
    )
    if reading["asked"]:
        text += (
            f" If one had been asked for, it read the same in {percent(reading['agree'] / reading['asked'])} of "
            f"{reading['asked']:,}."
        )
    return text


def _figure(modes: Modes, short: dict[str, str], name: str) -> Figure:
    frame = modes.by_model.assign(
        model=modes.by_model["model"].map(short), row=[sentence(mode) for mode in modes.by_model["mode"]]
    )
    models = [short[model] for model in modes.answers.models if short[model] in set(frame["model"])]
    first = frame[frame["model"] == models[0]]
    shares = "; ".join(f"{row['row']} {percent(row['estimate'])}" for row in first.to_dict("records"))
    look = _LOOK | {"models": models, "rows": [sentence(mode) for mode in modes.modes]}
    title = "Share of each model's wrong answers, by what explains them"
    return dot_figure(name, title, f"{models[0]}: {shares}", frame, **look)


def columns(*first: Column) -> list[Column]:
    """Return the columns of a table of modes."""
    return [
        *first,
        Column("mode", "Explained by", show=sentence),
        *plain("integer", answers="Wrong answers", n="of", prompts="Prompts"),
        Column("estimate", "Share", "percent", "low", "high"),
    ]


def _tables(modes: Modes, short: dict[str, str], name: str) -> list[Part]:
    frame = modes.by_model.assign(model=modes.by_model["model"].map(short))
    shown = columns(Column("model", "Model"))
    note = ""
    if frame["by_chance"].notna().any():
        hint = "The share this factor would get if the prompts of a class exchanged their values."
        shown.append(Column("by_chance", "By chance", "percent", hint=hint))
        note = "By chance: what the factor would get if the prompts of a class exchanged their values."
    if frame["tied"].notna().any():
        shown.append(
            Column("tied", "Tied by training", "integer", hint="Answers whose class had this value in training.")
        )
        note += " Tied by training: answers whose class had that very value in the training of an embedded model."
    parts: list[Part] = [Table(name, "Modes by model", frame, shown, note.strip(), shown=80, folded=True)]
    if len(modes.by_group):
        group = modes.by_group.assign(model=modes.by_group["model"].map(short))
        group = group[group["answers"] > 0]
        shown = columns(Column("model", "Model"), Column("group", "Images", show=sentence))
        parts.append(Table(f"{name}_by_kind", "By kind of image", group, shown, shown=120, folded=True))
    parts.append(_associations(modes, short, name))
    return parts


def _associations(modes: Modes, short: dict[str, str], name: str) -> Table:
    """Return which value goes with which answer: a row per model and pair, the most frequent first."""
    known = modes.explained[modes.explained["mode"] != UNEXPLAINED]
    # Look-alikes are pairs of classes, factors are pairs of a value and a class.
    source = known["value"].where(known["mode"] != LOOK_ALIKE, known["category"])
    pairs = known.assign(model=known["model"].map(short), source=source, other=known["mode"] != LOOK_ALIKE)
    keys = ["model", "mode", "source", "said"]
    means = {key: (key, "median") for key in ("rate", "base", "odds_ratio")}
    counted = pairs.groupby(keys).agg(answers=("sample_id", "size"), **means).reset_index()
    counted = counted.sort_values(["answers", *keys], ascending=[False, True, True, True, True])
    shown = [
        Column("model", "Model"),
        Column("mode", "Explained by", show=sentence),
        *plain("text", source="Seen", said="Answered"),
        Column("answers", "Wrong answers", "integer"),
        *plain("percent", rate="Rate with it", base="Rate without"),
        Column("odds_ratio", "Odds ratio", "number", digits=1),
    ]
    note = (
        "Rates are over other images, and a median if they differ with the class; half an image is added to each "
        "cell of the odds ratio."
    )
    return Table(f"{name}_pairs", "What goes with which answer", counted, shown, note, shown=25, folded=True)


def _gallery(modes: Modes, short: dict[str, str], thumbnails: Thumbnails | None) -> list[Part]:
    counts = modes.explained.groupby(["mode", "sample_id"]).size()
    groups, mode_of = [], {}
    for mode in modes.modes:
        if mode in counts.index.get_level_values(0):
            own = counts.xs(mode).rename("models").to_frame().join(modes.answers.images["category"])
            own["turn"] = own.sort_values("models", ascending=False, kind="stable").groupby("category").cumcount()
            own = own.sort_values(["turn", "models"], ascending=[True, False], kind="stable")
            meaning = _MEANING.get(mode, f"the answer goes with the {mode}")
            groups.append((sentence(mode), f"{plural(len(own), 'image')}: {meaning}", [*map(str, own.index[:TILES])]))
            mode_of[sentence(mode)] = mode
    tiles = grouped(
        groups,
        thumbnails,
        lambda title, name, jpeg: _tile(modes, short, mode_of[title], name, jpeg),
        missing="images are",
    )
    return [Heading("What they look like"), *tiles]


def _tile(modes: Modes, short: dict[str, str], mode: str, sample_id: str, jpeg: bytes) -> Tile:
    image = modes.answers.images.loc[sample_id]
    own = modes.explained[modes.explained["sample_id"] == sample_id].set_index("model")
    answers = []
    for model in modes.answers.models:
        said = str(modes.answers.said.at[sample_id, model])
        if model in own.index:
            said += f" ({' '.join(filter(None, (str(own.at[model, 'mode']), str(own.at[model, 'value']))))})"
        answers.append(judged(short[model], said, model not in own.index))
    hits = own[own["mode"] == mode]
    prompt = str(image.get("prompt", "")) or str(image["category"])
    said = listing(list(dict.fromkeys(hits["said"].astype(str))), 2)
    return tile(f"“{prompt}”", jpeg, answers, count=f"✗ {said}: {plural(len(hits), 'model')}")


def build(results: Sequence[tuple[Modes, Thumbnails | None]], out: Path) -> Path:
    """Write the page of one dataset, or of several to compare; return its path."""
    names = [modes.answers.name for modes, _ in results]
    names = [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]
    several = len(results) > 1
    sections = [_side_by_side(results, names)] if several else []
    for place, ((modes, pictures), name) in enumerate(zip(results, names, strict=True)):
        section = failure_section(modes, pictures, name=f"modes_{place}" if several else "modes")
        section.title = f"{section.title}: {name}" if several else section.title
        sections.append(section)
    answers = [modes.answers for modes, _ in results]
    models = {model for answer in answers for model in answer.models}
    front = Front(
        "What explains the wrong predictions?",
        answer(_most(results[0][0])),
        [
            (f"{sum(int(answer.wanted.sum()) for answer in answers):,}", "images looked at"),
            (f"{sum(len(modes.explained) for modes, _ in results):,}", "wrong predictions"),
            (f"{len(models)}", "models"),
            (f"{sum(len(answer.images) for answer in answers):,}", "images as evidence"),
        ],
        "Shares are of wrong predictions, with intervals at the 95 % level that treat prompts (or source images) "
        "as independent. An explanation is an association across images, not an experiment on this one.",
        proof([part for section in sections for part in section.parts], tiles=2, rows=2),
        first_figure([part for section in sections for part in section.parts]),
    )
    note = DRAWN_WORLD if all(model.startswith("embedded:") for model in models) else ""
    return write_page(front, sections, out, subject=listing(names), note=note, run_names=listing(names))


def _most(modes: Modes) -> str:
    """Return what explains most wrong predictions."""
    if modes.explained.empty:
        return "No prediction is wrong, so there is nothing to explain"
    share = modes.explained.groupby("mode")["sample_id"].size() / len(modes.explained)
    explained = share.drop(UNEXPLAINED, errors="ignore").sort_values(ascending=False, kind="stable")
    rest = percent(float(share.get(UNEXPLAINED, 0.0)), 0)
    if explained.empty:
        return "Nothing that is known of the images explains their wrong predictions"
    first = f"{percent(float(explained.iloc[0]), 0)} of the wrong predictions go with the {explained.index[0]}"
    return f"{first}; {rest} are not explained"


def _side_by_side(results: Sequence[tuple[Modes, Thumbnails | None]], names: Sequence[str]) -> Section:
    parts = [modes.by_model.assign(dataset=name) for (modes, _), name in zip(results, names, strict=True)]
    frame = pd.concat(parts, ignore_index=True)
    section = Section("compared", "Side by side")
    section.lead = [
        "The same models, the same rules; what is not known of one dataset's images cannot explain an error there, so "
        "compare look-alikes and what is known of both."
    ]
    shared = [
        model for model in results[0][0].answers.models if frame[frame["model"] == model]["dataset"].nunique() > 1
    ]
    order = [name for modes, _ in results for name in modes.modes]
    modes_here = sorted(dict.fromkeys(order), key=lambda mode: (mode == UNEXPLAINED, mode == LOOK_ALIKE))
    shown = frame[frame["model"].isin(shared)]
    rows = [sentence(mode) for mode in modes_here]
    for place, model in enumerate(shared[:6]):
        own = shown[shown["model"] == model]
        tidy = own.assign(model=own["dataset"], row=own["mode"].map(sentence))
        records = own.to_dict("records")
        shares = "; ".join(f"{row['dataset']}: {row['mode']} {percent(row['estimate'])}" for row in records)
        title = f"Wrong answers of {model}, by what explains them"
        section.parts.append(
            dot_figure(f"compared_{place}", title, shares, tidy, models=list(names), rows=rows, **_LOOK)
        )
    first = [*plain("text", model="Model", dataset="Dataset")]
    section.parts.append(Table("compared", "Modes by model and dataset", frame, columns(*first), shown=80))
    return section
