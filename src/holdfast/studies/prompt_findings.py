"""The sections of the page of ``holdfast study prompts``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.types import Image
from holdfast.pipeline.generate.prompts import Prompts
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.page.words import listing, number, percent, short_names
from holdfast.report.study import Finding
from holdfast.stats.models.trainings import Estimate
from holdfast.studies.prompt_strategies import MEANING, ORIGINALS
from holdfast.studies.walks import in_points

if TYPE_CHECKING:
    import pandas as pd

_MEASURES = (
    Column("recognised", "Recognised", "percent", hint="pictures whose class the oracle names"),
    Column("background_seen", "Asked background seen", "percent", hint="among all backgrounds that were asked for"),
    Column("fid", "FID", "number", digits=1, hint="from the originals, in the oracle's features; less is nearer"),
    Column("kid", "KID", "number", digits=3, hint="the same with a cubic kernel"),
    Column("clip_score", "CLIP score", "number", digits=1, hint="100 × cosine of picture and prompt"),
    Column("diversity", "Diversity", "number", digits=3, hint="mean cosine distance between pictures of one class"),
    Column("seam", "Seam", "number", digits=2, hint="steepness along the edge, over nearby, over the original's"),
)
_NAMES = [column.key for column in _MEASURES]


def looks(pictures: pd.DataFrame) -> Finding:
    """What each strategy's pictures are like, averaged over seeds."""
    frame = pictures.groupby("strategy", sort=False).agg(
        {"pictures": "sum"} | dict.fromkeys(_NAMES, "mean")
    ).reset_index()  # fmt: skip
    shown = frame.dropna(axis="columns", how="all")
    painted = frame[frame["strategy"] != ORIGINALS]
    by_distance = _by(painted, "kid")
    nearest, farthest = by_distance[0], by_distance[-1]
    told, edge = _by(painted, "clip_score")[-1], _by(painted, "seam")[-1]
    yardstick = frame[frame["strategy"] == ORIGINALS].iloc[0]
    sentences = [
        f"Nearest to the originals is {nearest['strategy']} (KID {number(nearest['kid'], 3)}), farthest "
        f"{farthest['strategy']} ({number(farthest['kid'], 3)}); the originals' own is {number(yardstick['kid'], 3)}.",
        f"The prompt is followed best by {told['strategy']} (CLIP score {number(told['clip_score'], 1)}); the oracle "
        f"still names the class on at least {percent(painted['recognised'].min())} of each strategy's pictures.",
        f"The edge stands out most under {edge['strategy']}: {number(edge['seam'], 2)} times as much as in the "
        "originals.",
    ]
    seen = frame.dropna(subset="background_seen")
    if len(seen):
        each = [f"{percent(row['background_seen'])} ({row['strategy']})" for row in seen.to_dict("records")]
        sentences.append(f"The background that was asked for is the one the oracle sees on {listing(each, 6)}.")
    columns = [Column("strategy", "Strategy"), Column("pictures", "Pictures", "integer")]
    columns += [column for column in _MEASURES if column.key in shown]
    return Finding("How the pictures look", sentences, shown, columns)


def _by(frame: pd.DataFrame, measure: str) -> list[dict[Hashable, Any]]:
    """The strategies in rising order of a measure."""
    return frame.sort_values(measure, kind="stable", na_position="first").to_dict("records")


def costs(drops: pd.DataFrame, models: Sequence[str]) -> Finding:
    """Accuracy on the originals less accuracy with a painted background, over all seeds."""
    import pandas as pd

    frame = drops[drops["seed"] == -1].drop(columns="seed")
    short = short_names(list(models))
    strategies = list(dict.fromkeys(frame["strategy"]))
    sentences = []
    for model in models:
        own = frame[frame["model"] == model].dropna(subset="drop").sort_values("drop", kind="stable")
        if own.empty:
            continue
        least, most = own.iloc[0], own.iloc[-1]
        told = [
            f"{row['strategy']} costs {in_points(Estimate(row['drop'], row['drop_low'], row['drop_high']))}"
            for row in (most, least)
        ]
        sentences.append(f"{short[model]}: {told[0]}, {told[1]}.")
    drawn = pd.DataFrame(
        {"model": frame["model"].map(short), "row": frame["strategy"], "estimate": frame["drop"]}
        | {end: frame[f"drop_{end}"] for end in ("low", "high")}
    )
    columns = [
        Column("strategy", "Strategy"),
        Column("model", "Model"),
        Column("scenes", "Scenes", "integer"),
        Column("before", "Original", "percent"),
        Column("after", "Painted", "percent"),
        Column("drop", "Drop", "points", "drop_low", "drop_high"),
    ]
    return Finding(
        "What each strategy costs",
        sentences,
        frame,
        columns,
        chart=lambda width: dots(
            drawn, width, models=list(short.values()), rows=strategies, title="Drop in accuracy, points", zero=True
        ),
        caption="Accuracy on the originals less accuracy with a painted background",
    )


def luck(pictures: pd.DataFrame, drops: pd.DataFrame) -> Finding:
    """How far the seed moves what the strategies are compared by."""
    import pandas as pd

    each = drops[drops["seed"] >= 0].pivot_table(index=["strategy", "seed"], columns="model", values="drop", sort=False)
    short = short_names([str(name) for name in each.columns])
    each = each.rename(columns={name: f"drop {short[str(name)]}" for name in each.columns}).reset_index()
    frame = pd.merge(pictures, each, on=["strategy", "seed"])
    pictures = pictures[pictures["strategy"] != ORIGINALS]
    between = pictures.groupby("strategy")["kid"].mean()
    within = pictures.groupby("strategy")["kid"].agg(lambda values: values.max() - values.min())
    sentences = [
        f"From one seed to the next KID moves by {number(within.mean(), 3)} on average; the strategies' means span "
        f"{number(between.max() - between.min(), 3)}."
    ]
    columns = [Column("strategy", "Strategy"), Column("seed", "Seed", "integer")]
    columns += [column for column in _MEASURES if frame[column.key].notna().any()]
    columns += [
        Column(str(name), f"{str(name).capitalize()}", "points") for name in frame if str(name).startswith("drop ")
    ]
    return Finding("Seed by seed", sentences, frame, columns)


def words(
    strategies: Mapping[str, Prompts], examples: Mapping[str, Sequence[str]], pictures: Mapping[str, Image]
) -> Finding:
    """What was asked, in full, with pictures."""
    import pandas as pd

    rows = [
        {
            "strategy": name,
            "asks_for": MEANING.get(name, ""),
            "prompt": prompts.default,
            "examples": " · ".join(examples[name]),
        }
        for name, prompts in strategies.items()
    ]
    columns = [
        Column("strategy", "Strategy"),
        Column("asks_for", "Asks for"),
        Column("prompt", "Prompt, where a class has none of its own"),
        Column("examples", "For example"),
    ]
    sentences = ["Some scenes as they were, and under each strategy from the first seed."]
    return Finding("The words and the pictures", sentences, pd.DataFrame(rows), columns, images=pictures)
