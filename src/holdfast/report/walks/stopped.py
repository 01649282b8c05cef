"""Section: why latent walks stopped, and how far they went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Notice, Part, Section, Text
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import listing, number, percent, plural
from holdfast.report.walks import charts
from holdfast.report.walks.charts import BINS, STOPS
from holdfast.report.walks.evidence import ReportWalks

if TYPE_CHECKING:
    import pandas as pd

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
    known = known.assign(row=names, reason=[_reason(stop) for stop in known["stop"]])
    rows = [walks.row(model, walk) for model, walk in walks.order if walks.row(model, walk) in set(names)]
    section.lead = _lead(known)
    section.parts = [*_stops(known, rows), *_steps(known, rows), *_distances(known, rows)]
    return section


def _reason(stop: str) -> str:
    return STOPS[stop][0] if stop in STOPS else stop


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
    import pandas as pd

    counted = known.groupby(["row", "reason"]).size().rename("n").reset_index()
    counted["share"] = counted["n"] / counted.groupby("row")["n"].transform("sum")
    places = {words: place for place, (words, _) in enumerate(STOPS.values())}
    counted["place"] = counted["reason"].map(places).fillna(len(places))
    finding = "; ".join(
        f"{row}: " + listing([f"{cell['reason']} {percent(cell['share'], 0)}" for cell in part.to_dict("records")], 5)
        for row, part in list(counted.groupby("row"))[:8]
    )
    figure = Figure(
        "walk_stops", "Why walks stopped", finding + ".", lambda width: charts.stops(counted, width, rows=rows)
    )
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
    # Half a step to either side, so that a bar stands over its number of steps.
    tidy["start"], tidy["end"] = tidy["first"] - 0.5, tidy["last"] + 0.5
    tidy["place"] = tidy["reason"].map(places).fillna(len(places))
    tidy["position"] = tidy["row"].map({row: place for place, row in enumerate(rows)})
    middle = np.median(taken["steps"])
    sentence = (
        f"In the middle of all walks, {number(float(middle), 0)} of at most {int(taken['budget'].max())} steps lie "
        "behind the image that was kept; 0 where the original stands."
    )
    figure = Figure(
        "walk_steps",
        "Steps behind the image that was kept",
        sentence,
        lambda width: charts.steps(tidy, width, rows=rows),
    )
    return [Heading("How many steps"), Text([sentence]), figure]


def _distances(known: pd.DataFrame, rows: list[str]) -> list[Part]:
    import pandas as pd

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
        lambda width: charts.distances(frame, width, rows=rows, measures=measures),
        "Image distance: root mean square of the pixels, 0 to 1, from the reconstruction. Perceptual distance: from "
        "the original, in the oracle's features. Colour shift: mean CIE76 difference from the original.",
    )
    columns = [
        Column("row", "Model"),
        Column("title", "Distance"),
        Column("n", "Images", "integer"),
        *(Column(key, title, "number", digits=4) for key, title in (
            ("p50", "Median"), ("p25", "Quarter below"), ("p75", "Quarter above"), ("p10", "10 % below"),
            ("p90", "10 % above"))),
    ]  # fmt: skip
    table = Table("walk_distances", "Distances of the accepted images", frame, columns, folded=True)
    return [heading, Text([finding + "."]), figure, table]
