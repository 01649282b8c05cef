"""Sections: where walks end and why, walks that stopped, and their steps as images."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.errors import SampleError
from holdfast.core.lazy import pd
from holdfast.core.numbers import number, percent
from holdfast.core.schema import end_picture, original_picture
from holdfast.reports.page.charts import chart_of, facet_of, layer, row_axis, tooltip
from holdfast.reports.page.figures import COLOURS, WIDE, Chart, Figure
from holdfast.reports.page.parts import (
    Answer,
    Gallery,
    Heading,
    Notice,
    Part,
    Photo,
    Section,
    Text,
    Tile,
    judged,
    proof,
)
from holdfast.reports.page.tables import Column, Table, plain
from holdfast.reports.page.words import class_words, listing, plural, unbroken
from holdfast.reports.walks.evidence import ReportWalks, walk_section

PHOTOS = 4
STRIPS = 6
FRAMES_SHOWN = 8
LARGE = 256  # Pixels of the longer side of an image on the first screen
SIDE = 112  # Pixels of the longer side of an image on the page

STOPS = {
    "budget": ("all steps taken", "#0072b2"),
    "rejected": ("rejected on the way", "#e69f00"),
    "first_rejected": ("rejected at the first image", "#d55e00"),
    "fooled": ("model fooled", "#009e73"),
    "not_finite": ("not a number", "#1f2430"),
}  # Why a walk stops: the words and the colour of each reason

BINS = 25  # Bars of a panel of steps

MAX_PIXELS = 4_000_000
MAX_BYTES = 20_000_000  # Limits of a frame's file; no generator here makes larger images, so a larger file is not ours


def ends_of_walks(walks: ReportWalks) -> Section:
    """Return a row per image: the original, and what the walk against each model left of it."""
    section = Section("ends", "Images and what walks left of them")
    folders = [run.path for run in walks.runs]
    photos = []
    for name, group in walks.images.groupby("sample_id", sort=True):
        original = _first(folders, original_picture(str(name)))
        if not original[0]:
            continue
        label = str(group["label"].iloc[0])
        by_walk = {(row["model"], row["walk"]): row for row in group.to_dict("records")}
        ends = [_end(walks, folders, by_walk[key], label) for key in walks.order if key in by_walk]
        photos.append(Photo(str(name), label, "", [Tile("original", *original), *ends]))
        if len(photos) == PHOTOS:
            break
    if not photos:
        section.parts = [Notice("This run kept no images; holdfast perturb keeps those of --pictures images.")]
        return section
    section.lead = [
        "One image a row: the original, then the last image that the oracle accepted on the walk against each model, "
        "with the model's answer and the oracle's. Images are spread over the data, not picked by their outcome. A "
        "dashed frame marks a wrong answer."
    ]
    section.parts = [Gallery(photos, steps=True)]
    return section


def _end(walks: ReportWalks, folders: Sequence[Path], record: dict[Any, Any], label: str) -> Tile:
    """Return the tile of one model's walk; without an image if the oracle accepted nothing."""
    caption = walks.row(record["model"], record["walk"])
    accepted = bool(record["validated"])
    verdict = "accepts" if accepted else "rejects the first image"
    oracle = _oracle(verdict, record.get("oracle_score"), accepted)
    if not accepted:
        return Tile(caption, "", 0, 0, [oracle])
    right = bool(record["right_perturbed"])
    spaces = {"all": "prediction"}
    column = spaces.get(str(walks.settings[record["walk"] - 1].get("space")), "prediction_restricted")
    answer = judged("model", f"{'right' if right else 'wrong'}: {record[column]}", right)
    return Tile(caption, *_first(folders, end_picture(str(record["row_id"]))), [answer, oracle], not right)


def _first(folders: Sequence[Path], name: str, side: int = SIDE) -> tuple[str, int, int]:
    """Return the image of a file from the first run folder that has it."""
    return next((picture for folder in folders if (picture := _picture(folder, name, side))[0]), ("", 0, 0))


def filmstrips(walks: ReportWalks) -> Section:
    """Return a few walks with the model's and the oracle's answer under each step."""
    section = Section("filmstrips", "Walks, step by step")
    filmed = walks.images[walks.images["row_id"].isin(set(walks.frames["row_id"]))]
    if filmed.empty:
        section.parts = [Notice("No walk was kept step by step; holdfast perturb --frames N keeps some.")]
        return section
    picked = _picked(filmed)
    by_row = dict(tuple(walks.frames.groupby("row_id")))
    strips = []
    for record in picked.to_dict("records"):
        steps = by_row[record["row_id"]].sort_values("step", kind="stable").drop_duplicates("step")
        steps = steps.reset_index(drop=True)
        label, validated = str(record["label"]), bool(record["validated"])
        kept = int(record["steps"]) if validated and record["steps"] == record["steps"] else None
        rows = steps.iloc[_chosen(steps, label, kept)].to_dict("records")
        tiles = [_tile(walks.folders[record["row_id"]], row, label, kept) for row in rows]
        against = walks.row(record["model"], record["walk"])
        strips.append(Photo(str(record["sample_id"]), label, _summary(record), tiles, against=against))
    section.lead = [
        f"{plural(len(strips), 'walk')} of {len(filmed):,} that were kept, picked to show the ways a walk can end, so "
        "they are not typical. Step 0 is the plain reconstruction. Under each step: the model's answer with its "
        "probability of the true class, and what the oracle says, with its own. The last accepted image counts; a "
        "dashed frame marks a wrong answer."
    ]
    section.parts = [Gallery(strips, steps=True)]
    if not any(step.picture for strip in strips for step in strip.tiles):
        section.parts.insert(0, Notice("The images: their files are not in the run folder any more."))
    return section


def shown_walk(walks: ReportWalks) -> Gallery | None:
    """Return one walk, large: the original, its reconstruction, and the last image that counts; None without images."""
    filmed = walks.images[walks.images["row_id"].isin(set(walks.frames["row_id"])) & walks.images["validated"]]
    if filmed.empty:
        return None
    record = _picked(filmed).to_dict("records")[0]
    label, folder = str(record["label"]), walks.folders[record["row_id"]]
    steps = walks.frames[walks.frames["row_id"] == record["row_id"]]
    steps = steps.sort_values("step", kind="stable").drop_duplicates("step")
    kept = int(record["steps"]) if record["steps"] == record["steps"] else int(steps["step"].iloc[-1])
    end = steps[steps["step"] <= kept].iloc[-1]
    right = bool(record["right_original"])
    original = _first([run.path for run in walks.runs], original_picture(str(record["sample_id"])), LARGE)
    tiles = [
        Tile("original", *original, [judged("model", f"{'right' if right else 'wrong'}", right)], not right),
        replace(_tile(folder, steps.iloc[0].to_dict(), label, None, LARGE), caption="reconstruction"),
        replace(_tile(folder, end.to_dict(), label, None, LARGE), caption=f"walked, step {int(end['step'])}"),
    ]
    wrong = steps[(steps["prediction"] != label) & (steps["step"] <= kept)]
    who = f"{walks.row(record['model'], record['walk'])} ({class_words(label)})"
    text = (
        f"{who}: the prediction stays right up to step {kept}."
        if wrong.empty
        else f"{who}: the prediction turns to {class_words(str(wrong['prediction'].iloc[0]))} at step "
        f"{int(wrong['step'].iloc[0])}, and the oracle still accepts the image at step {kept}."
    )
    return proof([Gallery([Photo("", label, text, tiles)])])


def _picked(filmed: pd.DataFrame) -> pd.DataFrame:
    """Return up to three walks that fooled the model, two that did not, one not validated, then others."""
    held = filmed["right_perturbed"].fillna(0).astype(bool)
    right, validated = filmed["right_original"].astype(bool), filmed["validated"].astype(bool)
    groups = ((right & validated & ~held, 3), (validated & held, 2), (~validated, 1))
    taken: list[Any] = []
    for chosen, most in groups:
        part = filmed[chosen].sort_values(["walk", "sample_id", "model"], kind="stable")
        varied = part.drop_duplicates("model")  # first one walk per model
        rest = part.drop(varied.index).drop_duplicates("label")
        taken += [*varied.index, *rest.index][:most]
    others = [index for index in filmed.index if index not in set(taken)]
    return filmed.loc[[*taken, *others][:STRIPS]]


def _summary(record: dict[Any, Any]) -> str:
    if not record["validated"]:
        return "The oracle rejects the first image, so the original is kept and the image is not validated."
    right, before = bool(record["right_perturbed"]), bool(record["right_original"])
    steps = "" if record["steps"] != record["steps"] else f" after {plural(int(record['steps']), 'step')}"
    end = "is still right" if right and before else "is right" if right else "is wrong" if before else "is still wrong"
    why = {
        "budget": " The walk took all its steps.",
        "rejected": " One step further the oracle rejects.",
        "fooled": " The walk stopped when the model was fooled.",
        "not_finite": " The walk ended in a value that is not a number.",
    }.get(str(record["stop"]), "")
    return f"On the kept image{steps} the model {end}.{why}"


def _chosen(steps: pd.DataFrame, label: str, kept: int | None) -> list[int]:
    """Return the frames to show: the ends, where the answer turns, the kept one, and others evenly spread."""
    last = len(steps) - 1
    wanted = {0, min(1, last), last}
    wrong = steps.index[steps["prediction"] != label]
    wanted |= {int(wrong[0])} if len(wrong) else set()
    wanted |= {int(place) for place in steps.index[steps["step"] == kept]}
    room = FRAMES_SHOWN - len(wanted)
    spread = [round(part * last / (room + 1)) for part in range(1, room + 1)]
    return sorted(wanted | set(spread))


def _tile(folder: Path, row: dict[Any, Any], label: str, kept: int | None, side: int = SIDE) -> Tile:
    step = int(row["step"])
    right = row["prediction"] == label
    probability = "" if row["probability"] is None else f" · p\N{NO-BREAK SPACE}{number(float(row['probability']))}"
    said = f"{'right' if right else 'wrong'}: {row['prediction']}{probability}"
    accepted = bool(row["accepted"])
    answers = [
        judged("model", said, right),
        _oracle("accepts" if accepted else "rejects", row["oracle_score"], accepted),
    ]
    picture, mark = _picture(folder, str(row["image"] or ""), side), "counts" if step == kept else ""
    return Tile(f"step {step}", *picture, answers, not right, mark=mark)


def _oracle(verdict: str, score: Any, accepted: bool) -> Answer:
    """Return what the oracle says of an image, with its score if it has one."""
    shown = "" if score is None or score != score else f" {unbroken(percent(float(score), 0))}"
    return Answer("oracle", verdict + shown, "●" if accepted else "○", "right" if accepted else "none")


def _picture(folder: Path, name: str, side: int = SIDE) -> tuple[str, int, int]:
    """Return a small JPEG in base64 with its size; empty for a file that is missing, too large, or outside the run."""
    import cv2

    from holdfast.data.images import decode_image, read_file
    from holdfast.data.writers import encode_image

    path = (folder / name).resolve()
    if not name or not path.is_relative_to(folder.resolve()) or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return "", 0, 0
    try:
        image = decode_image(read_file(path), max_pixels=MAX_PIXELS)
    except SampleError:
        return "", 0, 0
    scale = side / max(image.shape[:2])
    if scale < 1:
        shape = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = cv2.resize(image, shape, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    height, width = image.shape[:2]
    return base64.b64encode(encode_image(image, format="jpeg", quality=85)).decode(), width, height


DISTANCES = (
    ("image_distance", "image distance"),
    ("perceptual_distance", "perceptual distance"),
    ("colour_shift", "colour shift"),
)
QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}


def stopped(walks: ReportWalks) -> Section:
    """Return stop reasons, steps and distances."""
    section = Section("walks", "Where the walks stopped")
    known = walks.images[walks.images["stop"].notna()]
    if known.empty:
        section.parts = [Notice("The runs hold no details of their walks (details/walks).")]
        return section
    names = [walks.row(model, walk) for model, walk in zip(known["model"], known["walk"], strict=True)]
    known = known.assign(row=names, reason=[STOPS[stop][0] if stop in STOPS else stop for stop in known["stop"]])
    rows = [walks.row(model, walk) for model, walk in walks.order if walks.row(model, walk) in set(names)]
    section.lead = _lead(known)
    section.parts = [*_stops(known, rows), *_steps(known, rows), *_distances(known, rows)]
    return section


def _lead(known: pd.DataFrame) -> list[str]:
    shares = known["reason"].value_counts()
    order = [words for words, _ in STOPS.values() if words in shares.index]
    said = [f"{words} {percent(shares[words] / len(known))}" for words in order]
    judged = known["reconstruction_accepted"].dropna()
    lead = [f"Of {plural(len(known), 'walk')}: {listing(said, 5)}."]
    if len(judged):
        rejected = int((~judged.astype(bool)).sum())
        lead.append(
            f"In {plural(rejected, 'walk')} ({percent(rejected / len(judged))}) the oracle already rejects the plain "
            "reconstruction, before any step: that is between generator and oracle, whatever the model."
            if rejected
            else "The oracle accepts every plain reconstruction, so what it rejects is the walks' doing."
        )
    return lead


def _stops(known: pd.DataFrame, rows: list[str]) -> list[Part]:
    counted = known.groupby(["row", "reason"]).size().rename("n").reset_index()
    counted["share"] = counted["n"] / counted.groupby("row")["n"].transform("sum")
    places = {words: place for place, (words, _) in enumerate(STOPS.values())}
    counted["place"] = counted["reason"].map(places).fillna(len(places))
    finding = "; ".join(
        f"{row}: " + listing([f"{cell['reason']} {percent(cell['share'], 0)}" for cell in part.to_dict("records")], 5)
        for row, part in list(counted.groupby("row"))[:8]
    )
    figure = Figure("walk_stops", "Why walks stopped", f"{finding}.", partial(_stops_chart, counted, rows=rows))
    reasons = [words for words, _ in STOPS.values() if words in set(counted["reason"])]
    table = counted.pivot(index="row", columns="reason", values="n").reindex(rows)[reasons].fillna(0).astype(int)
    flat = pd.DataFrame({"row": rows} | {words: table[words].to_numpy() for words in reasons})
    flat["n"] = table.sum(axis=1).to_numpy()
    rejected = known.groupby("row")["reconstruction_accepted"].agg(lambda values: int((values.dropna() == False).sum()))  # noqa: E712
    flat["reconstruction_rejected"] = rejected.reindex(rows).to_numpy()
    columns = [
        Column("row", "Model"),
        Column("n", "Walks", "integer"),
        *(Column(words, words, "integer") for words in reasons),
        Column("reconstruction_rejected", "reconstruction already rejected", "integer"),
    ]
    return [figure, Table("walk_stops", "Stop reasons", flat, columns)]


def _steps(known: pd.DataFrame, rows: list[str]) -> list[Part]:
    import numpy as np

    taken = known[known["steps"].notna()]
    size = max(1, -(-(int(taken["steps"].max()) + 1) // BINS))
    places = {words: place for place, (words, _) in enumerate(STOPS.values())}
    tidy = taken.assign(first=(taken["steps"].astype(int) // size) * size)
    tidy = tidy.groupby(["row", "reason", "first"]).size().rename("n").reset_index()
    tidy["last"] = tidy["first"] + size - 1
    # Half a step to either side, so that a bar is over its number of steps.
    tidy["start"], tidy["end"] = tidy["first"] - 0.5, tidy["last"] + 0.5
    tidy["place"] = tidy["reason"].map(places).fillna(len(places))
    tidy["position"] = tidy["row"].map({row: place for place, row in enumerate(rows)})
    middle = np.median(taken["steps"])
    sentence = (
        f"In the middle of all walks, {number(float(middle), 0)} of at most {int(taken['budget'].max())} steps are "
        "behind the image that was kept; 0 if the original is kept."
    )
    draw = partial(_steps_chart, tidy, rows=rows)
    figure = Figure("walk_steps", "Steps behind the image that was kept", sentence, draw)
    return [Heading("How many steps"), Text([sentence]), figure]


def _distances(known: pd.DataFrame, rows: list[str]) -> list[Part]:
    heading = Heading("How far the accepted images moved")
    moved = known[known["validated"]]
    records = []
    measures = [(key, title) for key, title in DISTANCES if moved[key].notna().any()]
    for row in rows:
        for key, title in measures:
            values = moved.loc[moved["row"] == row, key].dropna()
            if len(values):
                ends = {name: float(values.quantile(part)) for name, part in QUANTILES.items()}
                records.append({"row": row, "measure": key, "title": title, "n": len(values), **ends})
    if not records:
        return [heading, Notice("No accepted image has a distance.")]
    frame = pd.DataFrame(records)
    medians = frame.groupby("title", sort=False)["p50"].agg(["min", "max"])
    finding = "Medians by model: " + "; ".join(
        f"{title} {number(ends['min'], 3)} to {number(ends['max'], 3)}" for title, ends in medians.iterrows()
    )
    figure = Figure(
        "walk_distances",
        "How far the accepted images moved: median, middle half, middle 80 %",
        finding + ".",
        lambda width: _distances_chart(frame, width, rows=rows, measures=measures),
        "Image distance: root mean square of the pixels, 0 to 1, from the reconstruction. Perceptual distance: from "
        "the original, in the oracle's features. Colour shift: mean CIE76 difference from the original.",
    )
    columns = [
        *plain("text", row="Model", title="Distance"),
        Column("n", "Images", "integer"),
        *(Column(key, title, "number", digits=4) for key, title in (
            ("p50", "Median"), ("p25", "Quarter below"), ("p75", "Quarter above"), ("p10", "10 % below"),
            ("p90", "10 % above"))),
    ]  # fmt: skip
    table = Table("walk_distances", "Distances of the accepted images", frame, columns, folded=True)
    return [heading, Text([finding + "."]), figure, table]


def _stops_chart(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return the shares of the reasons why walks stopped, stacked."""
    y, label = row_axis(rows, width)
    ticks = 5 if width >= WIDE else 2
    axis = {"title": "share of the walks", "format": "%", "domain": False, "ticks": False, "tickCount": ticks}
    encoding: dict[str, Any] = {
        "y": y,
        "x": {"field": "share", "type": "quantitative", "stack": "zero", "scale": {"domain": [0, 1]}, "axis": axis},
        "color": _by_reason(frame, width),
        "order": {"field": "place", "type": "quantitative"},
        "tooltip": tooltip({"row": "model", "reason": "stopped", "n": "walks"}),
    }
    mark = {"type": "bar", "height": 15, "stroke": "white", "strokeWidth": 1}
    size = {"width": width - label - 24, "height": {"step": 26}}
    return chart_of(frame, mark=mark, encoding=encoding, config={"legend": {"columnPadding": 30}}, **size)


def _by_reason(frame: pd.DataFrame, width: int) -> Chart:
    present = [look for look in STOPS.values() if look[0] in set(frame["reason"])]
    scale = {"domain": [words for words, _ in present], "range": [colour for _, colour in present]}
    legend = {"orient": "top", "title": None, "columns": len(present) if width >= WIDE else 1, "symbolType": "square"}
    return {"field": "reason", "type": "nominal", "scale": scale, "legend": legend}


def _steps_chart(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return how many steps are behind the kept images, a panel per row, coloured by why the walk stopped."""
    columns = min(len(rows), 3 if width >= WIDE else 1)
    inner = min(440, (width - 40) // columns - 28)
    across = {"type": "quantitative", "title": "steps behind the kept image"}
    axis: Chart = {"domain": False, "ticks": False, "tickCount": 5, "tickMinStep": 1, "format": "d"}
    scale = {"domain": [-0.5, float(frame["end"].max())], "nice": False}
    encoding: dict[str, Any] = {
        "x": across | {"scale": scale, "field": "start", "axis": axis | {"grid": False}, "bin": "binned"},
        "x2": {"field": "end"},
        "y": {"field": "n", "type": "quantitative", "stack": "zero", "title": "walks", "axis": axis | {"tickCount": 3}},
        "color": _by_reason(frame, width),
        "order": {"field": "place", "type": "quantitative"},
        "tooltip": tooltip({"row": "model", "first": "steps from", "last": "to", "reason": "stopped", "n": "walks"}),
    }
    spec = {"width": inner, "height": 110, **layer("bar", encoding, stroke="white", strokeWidth=0.5)}
    panels = {"facet": facet_of("row", inner), "columns": columns, "spacing": {"row": 14, "column": 24}, "spec": spec}
    return chart_of(frame, config={"legend": {"columnPadding": 30}}, **panels)


def _distances_chart(
    frame: pd.DataFrame, width: int, *, rows: Sequence[str], measures: Sequence[tuple[str, str]]
) -> Chart:
    """Return median, middle half and middle 80 % of each distance."""
    columns = len(measures) if width >= WIDE else 1
    label = row_axis(rows, width)[1]
    inner = (width - label - 30) // columns - 22
    parts = []
    for place, (measure, title) in enumerate(measures):
        y, _ = row_axis(rows, width)
        if place and columns > 1:
            y["axis"] = None
        axis = {"title": title, "domain": False, "ticks": False, "tickCount": 3}
        x = {"type": "quantitative", "scale": {"domainMin": 0, "nice": True}, "axis": axis}
        tip = tooltip({"row": "model"}, {"p50": "median", "p10": "10 % below", "p90": "10 % above"}, ".4f")
        ends = {"y": y, "x": x | {"field": "p10"}, "x2": {"field": "p90"}}
        middle = {"y": y, "x": x | {"field": "p25"}, "x2": {"field": "p75"}, "tooltip": tip}
        layers = [
            layer("rule", ends, strokeWidth=1.5, color=COLOURS[0]),
            layer("bar", middle, height=9, color=COLOURS[0]),
            layer("tick", {"y": y, "x": x | {"field": "p50"}}, color="white", thickness=2.5, size=9),
        ]
        chosen = [{"filter": {"field": "measure", "equal": measure}}]
        parts.append({"transform": chosen, "width": inner, "height": {"step": 24}, "layer": layers})
    return chart_of(frame, concat=parts, columns=columns, spacing=16)


ENDS = walk_section(lambda _, walks: ends_of_walks(walks))
STOPPED = walk_section(lambda _, walks: stopped(walks))
FILMSTRIPS = walk_section(lambda _, walks: filmstrips(walks))
