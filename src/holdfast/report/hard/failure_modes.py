"""Why models are wrong: the section of failure modes, its gallery, and the page that compares datasets."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.report.page import writer as page
from holdfast.report.page.charts import dots
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import (
    Answer,
    Gallery,
    Heading,
    Notice,
    Part,
    Photo,
    Section,
    ShownFigure,
    ShownTable,
    Tile,
)
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import estimate, listing, percent, plural, sentence, short_names
from holdfast.report.study import DRAWN_WORLD
from holdfast.stats.hard.failure_modes import LEAST_LIFT, LOOK_ALIKE, UNEXPLAINED, Modes

if TYPE_CHECKING:
    import pandas as pd

Pictures = Callable[[Container[str]], dict[str, bytes]]

TILES = 8
"""Pictures of one mode."""

_MEANING = {
    LOOK_ALIKE: "the class is confused with it in other surroundings, too",
    UNEXPLAINED: "nothing measured here goes with the answer",
}


def section(modes: Modes, pictures: Pictures | None = None, *, name: str = "modes") -> Section:
    """What explains the wrong answers of every model, with pictures of every mode.

    Args:
        modes: what was measured.
        pictures: makes JPEGs by sample_id.
        name: of the section's files, unique on a page.
    """
    short = short_names(modes.answers.models)
    made = Section(name, "Why models are wrong")
    if modes.explained.empty:
        made.parts = [Notice("No model is wrong on any of these images.")]
        return made
    made.lead = [_sentence(modes, model, short[model]) for model in _most_wrong(modes)]
    made.lead.append(_rule(modes))
    if modes.answers.reading:
        made.lead.append(_reading(modes))
    made.parts = [_figure(modes, short, name), *_tables(modes, short, name), *_gallery(modes, short, pictures)]
    return made


def _most_wrong(modes: Modes, most: int = 3) -> list[str]:
    """Models to speak of: held-out ones where there are such, as the others are wrong because they chose the images."""
    told = modes.explained["model"]
    own = told[told.isin(modes.answers.held_out)]
    return [str(model) for model in (own if len(own) else told).value_counts(sort=True).index[:most]]


def _sentence(modes: Modes, model: str, short: str) -> str:
    rows = modes.by_model[modes.by_model["model"] == model]
    told = [
        f"{estimate(row['estimate'], row['low'], row['high'])} {_words(row['mode'])}"
        for row in rows.to_dict("records")
        if row["answers"]
    ]
    text = f"Of the {plural(int(rows['n'].iloc[0]), 'wrong answer')} of {short}, {listing(told, 6)}."
    tied = rows.dropna(subset=["tied"])
    explained = int(tied["answers"].sum())
    if explained:
        text += (
            f" In {int(tied['tied'].sum())} of the {explained} that go with a factor, the answered class is the one "
            "that training tied to that value."
        )
    return text


def _words(mode: str) -> str:
    return {LOOK_ALIKE: "are look-alikes", UNEXPLAINED: "stay unexplained"}.get(mode, f"go with the {mode}")


def _rule(modes: Modes) -> str:
    known = [mode for mode in modes.modes if mode not in (LOOK_ALIKE, UNEXPLAINED)]
    if not known:
        return (
            "Nothing is known of what surrounds the objects, so only look-alikes can be told: classes that other "
            f"images of the same class are taken for more often, at least {LEAST_LIFT:g} times, than images of other "
            "classes are."
        )
    return (
        f"An answer goes with the {' or the '.join(known)} where images of other classes with the same value get it "
        f"more often, at least {LEAST_LIFT:g} times and by more than chance, than such images with other values; it "
        "is a look-alike where images of the same class with other values get it so. No image is evidence about itself."
    )


def _reading(modes: Modes) -> str:
    told = modes.answers.reading
    text = (
        f"Backgrounds that nobody asked for were read by {told['oracle']} among "
        f"{plural(len(told['backgrounds']), 'background')}: "
        f"it was more sure than not in {told['read']:,} of {plural(told['images'], 'image')}."
    )
    if told["asked"]:
        text += (
            f" Where one had been asked for, it read the same in {percent(told['agree'] / told['asked'])} of "
            f"{told['asked']:,}."
        )
    return text


def _figure(modes: Modes, short: dict[str, str], name: str) -> ShownFigure:
    frame = modes.by_model.assign(
        model=modes.by_model["model"].map(short), row=[sentence(mode) for mode in modes.by_model["mode"]]
    )
    models = [short[model] for model in modes.answers.models if short[model] in set(frame["model"])]
    first = frame[frame["model"] == models[0]]
    return ShownFigure(
        Figure(
            name,
            "Share of each model's wrong answers, by what explains them",
            f"{models[0]}: "
            + "; ".join(f"{row['row']} {percent(row['estimate'])}" for row in first.to_dict("records")),
            lambda width: dots(
                frame[["model", "row", "estimate", "low", "high"]],
                width,
                models=models,
                rows=[sentence(mode) for mode in modes.modes],
                title="share of wrong answers",
                domain=(0, 1),
            ),
        )
    )


def columns(*first: Column) -> list[Column]:
    """How a table of modes is shown."""
    return [
        *first,
        Column("mode", "Explained by", show=sentence),
        Column("answers", "Wrong answers", "integer"),
        Column("n", "of", "integer"),
        Column("prompts", "Prompts", "integer"),
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
    parts: list[Part] = [ShownTable(Table(name, "Modes by model", frame, shown, note.strip(), shown=80, folded=True))]
    if len(modes.by_group):
        group = modes.by_group.assign(model=modes.by_group["model"].map(short))
        group = group[group["answers"] > 0]
        shown = columns(Column("model", "Model"), Column("group", "Images", show=sentence))
        parts.append(ShownTable(Table(f"{name}_by_kind", "By kind of image", group, shown, shown=120, folded=True)))
    parts.append(ShownTable(_associations(modes, short, name)))
    return parts


def _associations(modes: Modes, short: dict[str, str], name: str) -> Table:
    """Which value went with which answer: a row a model and pair, the most frequent first."""
    known = modes.explained[modes.explained["mode"] != UNEXPLAINED]
    # Look-alikes are pairs of classes, factors are pairs of a value and a class.
    source = known["value"].where(known["mode"] != LOOK_ALIKE, known["category"])
    pairs = known.assign(model=known["model"].map(short), source=source, other=known["mode"] != LOOK_ALIKE)
    keys = ["model", "mode", "source", "said"]
    means = {key: (key, "median") for key in ("rate", "base", "odds_ratio")}
    found = pairs.groupby(keys).agg(answers=("sample_id", "size"), **means).reset_index()
    found = found.sort_values(["answers", *keys], ascending=[False, True, True, True, True])
    shown = [
        Column("model", "Model"),
        Column("mode", "Explained by", show=sentence),
        Column("source", "Seen"),
        Column("said", "Answered"),
        Column("answers", "Wrong answers", "integer"),
        Column("rate", "Rate with it", "percent"),
        Column("base", "Rate without", "percent"),
        Column("odds_ratio", "Odds ratio", "number", digits=1),
    ]
    note = (
        "Rates are over other images, and a median where they differ with the class; half an image is added to each "
        "cell of the odds ratio."
    )
    return Table(f"{name}_pairs", "What goes with which answer", found, shown, note, shown=25, folded=True)


def _gallery(modes: Modes, short: dict[str, str], pictures: Pictures | None) -> list[Part]:
    counts = modes.explained.groupby(["mode", "sample_id"]).size()
    picked: list[tuple[str, int, list[str]]] = []
    for mode in modes.modes:
        if mode in counts.index.get_level_values(0):
            own = counts.xs(mode).rename("models").to_frame().join(modes.answers.images["category"])
            own["turn"] = own.sort_values("models", ascending=False, kind="stable").groupby("category").cumcount()
            line = own.sort_values(["turn", "models"], ascending=[True, False], kind="stable")
            picked.append((mode, len(own), [str(one) for one in line.index[:TILES]]))
    jpegs = pictures({one for *_, ids in picked for one in ids}) if pictures is not None else {}
    parts: list[Part] = [Heading("What they look like")]
    if not jpegs:
        parts.append(Notice("The pictures: the images are not at hand."))
    photos = [
        Photo(
            sentence(mode),
            f"{plural(count, 'image')}: {_MEANING.get(mode, f'the answer goes with the {mode}')}",
            "",
            [_tile(modes, short, mode, one, jpegs) for one in ids],
            of=f"{len(ids)} of",
        )
        for mode, count, ids in picked
    ]
    return [*parts, Gallery(photos)]


def _tile(modes: Modes, short: dict[str, str], mode: str, sample_id: str, jpegs: dict[str, bytes]) -> Tile:
    image = modes.answers.images.loc[sample_id]
    own = modes.explained[modes.explained["sample_id"] == sample_id].set_index("model")
    given = []
    for model in modes.answers.models:
        answer = str(modes.answers.said.at[sample_id, model])
        if model not in own.index:
            given.append(Answer(short[model], answer, "✓", "right"))
            continue
        why = str(own.at[model, "mode"])
        value = str(own.at[model, "value"])
        given.append(Answer(short[model], f"{answer} ({f'{why} {value}' if value else why})", "✗", "wrong"))
    hits = own[own["mode"] == mode]
    asked = str(image.get("prompt", "")) or str(image["category"])
    jpeg = jpegs.get(sample_id, b"")
    width, height = picture_size(jpeg)
    said = listing(list(dict.fromkeys(hits["said"].astype(str))), 2)
    return Tile(
        f"“{asked}”", base64.b64encode(jpeg).decode() if width else "", width, height, given, len(own),
        f"✗ {said}: {plural(len(hits), 'model')}",
    )  # fmt: skip


def picture_size(jpeg: bytes) -> tuple[int, int]:
    """Width and height; zeros for what is no JPEG."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
            return image.size
    except (UnidentifiedImageError, OSError):
        return 0, 0


def build(found: Sequence[tuple[Modes, Pictures | None]], out: Path) -> Path:
    """Write the page of one dataset, or of several to compare; returns its path."""
    names = _distinct([modes.answers.name for modes, _ in found])
    sections = [_side_by_side(found, names)] if len(found) > 1 else []
    for place, ((modes, pictures), name) in enumerate(zip(found, names, strict=True)):
        made = section(modes, pictures, name=f"modes_{place}" if len(found) > 1 else "modes")
        made.title = f"{made.title}: {name}" if len(found) > 1 else made.title
        sections.append(made)
    answers = [modes.answers for modes, _ in found]
    try:
        return page.write(
            sections,
            out,
            title="Why models are wrong",
            subject=listing(names),
            facts=[
                (f"{sum(int(one.wanted.sum()) for one in answers):,}", "images looked at"),
                (f"{sum(len(modes.explained) for modes, _ in found):,}", "wrong answers"),
                (f"{len({model for one in answers for model in one.models})}", "models"),
                (f"{sum(len(one.images) for one in answers):,}", "images as evidence"),
            ],
            limits="Shares are of wrong answers, with intervals at the 95 % level that treat prompts (or photos), not "
            "images, as independent. An explanation is an association across images, not an experiment on this one.",
            note=DRAWN_WORLD if all(model.startswith("embedded:") for one in answers for model in one.models) else "",
            run_names=listing(names),
        )
    except OSError as error:
        raise UserError(f"cannot write the page to {out}: {error.strerror}") from error


def _distinct(names: Sequence[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name} ({place + 1})" for place, name in enumerate(names)]


def _side_by_side(found: Sequence[tuple[Modes, Pictures | None]], names: Sequence[str]) -> Section:
    import pandas as pd

    frame = pd.concat(
        [modes.by_model.assign(dataset=name) for (modes, _), name in zip(found, names, strict=True)], ignore_index=True
    )
    made = Section("compared", "Side by side")
    made.lead = [
        "The same models, the same rules; what is not known of one dataset's images cannot explain an error there, so "
        "compare look-alikes and what is known of both."
    ]
    shared = [model for model in found[0][0].answers.models if frame[frame["model"] == model]["dataset"].nunique() > 1]
    order = [name for modes, _ in found for name in modes.modes]
    modes_here = sorted(dict.fromkeys(order), key=lambda mode: (mode == UNEXPLAINED, mode == LOOK_ALIKE))
    shown = frame[frame["model"].isin(shared)]
    for place, model in enumerate(shared[:6]):
        made.parts.append(_compared_figure(shown[shown["model"] == model], model, names, modes_here, place))
    first = [Column("model", "Model"), Column("dataset", "Dataset")]
    made.parts.append(ShownTable(Table("compared", "Modes by model and dataset", frame, columns(*first), shown=80)))
    return made


def _compared_figure(frame: pd.DataFrame, model: str, names: Sequence[str], modes: Sequence[str], place: int) -> Any:
    tidy = frame.assign(model=frame["dataset"], row=[sentence(mode) for mode in frame["mode"]])
    told = "; ".join(f"{row['dataset']}: {row['mode']} {percent(row['estimate'])}" for row in frame.to_dict("records"))
    return ShownFigure(
        Figure(
            f"compared_{place}",
            f"Wrong answers of {model}, by what explains them",
            told,
            lambda width: dots(
                tidy[["model", "row", "estimate", "low", "high"]],
                width,
                models=list(names),
                rows=[sentence(mode) for mode in modes],
                title="share of wrong answers",
                domain=(0, 1),
            ),
        )
    )
