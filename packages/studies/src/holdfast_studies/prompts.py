"""``holdfast study prompts``: how to ask for a background, and what it changes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import cv2
import pandas as pd

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.core.numbers import number, percent
from holdfast.core.types import Collection, Image
from holdfast.data.images import decode_image, read_file
from holdfast.data.readers.listed import read_rows
from holdfast.models import load_classifier
from holdfast.models.clip import Clip, image_embeddings, load_clip
from holdfast.pipeline.generate.prompts import ALL, MEANING, ORIGINALS, Prompts, spoken, strategies_of, write_prompts
from holdfast.pipeline.samples import DataSpec, read
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.page.words import listing, short_names
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.effects.drops import paired_effect
from holdfast_studies import study
from holdfast_studies.prompt_measures import Originals, PaintedPictures, measured
from holdfast_studies.study import Setting, Study, StudyOptions
from holdfast_studies.walking.walks import change_of, in_points

MODELS = ("embedded:resnet_rho0", "embedded:resnet_rho80", "embedded:resnet_rho95", "embedded:resnet_rho95_strong")
SCENARIO = "generated_background"
SHOWN = 3  # scenes in the images of the page
_MEASURES = (
    Column("recognised", "Recognised", "percent", hint="images whose class the oracle names"),
    Column("background_seen", "Asked background seen", "percent", hint="among all backgrounds that were asked for"),
    Column("fid", "FID", "number", digits=1, hint="from the originals, in the oracle's features; less is nearer"),
    Column("kid", "KID", "number", digits=3, hint="the same with a cubic kernel"),
    Column("clip_score", "CLIP score", "number", digits=1, hint="100 × cosine of image and prompt"),
    Column("diversity", "Diversity", "number", digits=3, hint="mean cosine distance between images of one class"),
    Column("seam", "Seam", "number", digits=2, hint="steepness along the edge, over nearby, over the original's"),
)


def run(options: StudyOptions) -> StudyResult:
    """Paint with every strategy and seed, then measure images and models."""
    settings = options.settings
    options.require(seeds=1, limit=0)
    study.images_of(options)  # checks the settings
    data, drawn = study.data_of(options), study.is_drawn(options)
    clip_name = parse_name(settings["oracle"])
    if clip_name.scheme != "clip":
        raise UserError("this study compares images with prompts: oracle must be a clip:, which reads both")
    collection = read(DataSpec(data, masks=settings["masks"] or None, limit=settings["limit"]))
    strategies = strategies_of(settings["prompts"], settings["strategies"], collection.classes, drawn=drawn)
    models = study.model_names(settings["models"])
    clip = load_clip(clip_name, device=options.device)
    originals = _originals(collection, clip)
    painted = [
        _paint(options, data, name, prompts, seed, clip)
        for name, prompts in strategies.items()
        for seed in range(settings["seeds"])
    ]
    names = [spoken(label, collection.keys.get(label)) for label in collection.classes]
    judge = load_classifier(settings["oracle"], device=options.device, classes=names)
    pictures = measured(painted, strategies, originals, collection, clip, judge)
    drops = _drops(options, data, painted, models)
    findings = [_looks(pictures), _costs(drops, study.result_names(options, models))]
    if settings["seeds"] > 1:
        findings.append(_seeds(pictures, drops))
    findings.append(_words(strategies, painted, originals))
    return StudyResult(
        title="Prompts for backgrounds",
        question=_question(options),
        findings=findings,
        facts={
            "strategies": len(strategies),
            "seeds": settings["seeds"],
            ("scenes" if drawn else "photographs"): len(originals.samples),
            "images": sum(len(part.rows) for part in painted),
        },
        runs=["runs/originals", *(f"runs/{part.name}" for part in painted)],
    )


STUDY = Study(
    run,
    (
        *study.subject(
            MODELS, 96, quick=(MODELS[0], MODELS[-1]), quick_scenes=24,
            without=("generator", "oracle"),
        ),
        Setting("limit", 0, "at most so many photographs, evenly over classes; 0 takes all"),
        Setting("generator", "embedded:", "what paints", "embedded:?steps=2"),
        Setting("oracle", "clip:embedded", "whose image and text towers measure: a clip: of any kind"),
        Setting("strategies", (ALL,), "ways to ask, by name", ("plain", "other")),
        Setting("prompts", "", "TOML with a table per strategy; left empty, those that come with Holdfast"),
        Setting("seeds", 2, "images per scene and strategy, each from another seed"),
        Setting("feather", 0.0, "width of a soft seam in pixels"),
    ),
)  # fmt: skip


def _question(options: StudyOptions) -> str:
    settings = options.settings
    what = "drawn scenes" if study.is_drawn(options) else f"photographs of {Path(settings['data']).name}"
    return (
        "Which way of asking gives the backgrounds that look most real, and which of them cost a model most? "
        f"{settings['generator']} painted new surroundings for the objects of {what}, every strategy from the same "
        "noise. "
        "FID and KID (torchmetrics), CLIP score and diversity are taken from the image and text towers of "
        f"{settings['oracle']}, not from the Inception network, whose weights come from a hub: they compare strategies "
        "here and nothing beyond. FID and KID are from images of half the scenes to originals of the other half, "
        "both ways; the originals themselves are the yardstick. With few images FID is too large and, because both "
        "halves hold the same classes, KID too small, by about the same in every row. Objects that are too small or "
        "touch the border are left out. Intervals are at the 95 % level, over scenes."
    )


def _originals(collection: Collection, clip: Clip) -> Originals:
    samples = {sample.source_id: sample for sample in collection.samples}
    images = {source: sample.image.load() for source, sample in samples.items()}
    masks = {
        source: sample.mask.load(*images[source].shape[:2])
        for source, sample in samples.items()
        if sample.mask is not None
    }
    if not masks:
        raise UserError("none of the images has a mask, so there is no background to paint; --set masks=FOLDER")
    features = image_embeddings(clip, list(images.values()))
    return Originals(samples, images, masks, features, {source: place for place, source in enumerate(samples)})


def _paint(
    options: StudyOptions, data: str, strategy: str, prompts: Prompts, seed: int, clip: Clip
) -> PaintedPictures:  # fmt: skip
    settings, folder = options.settings, options.out / "work" / f"{strategy}-{seed}"
    api.synth(
        data,
        out=folder,
        scenarios=SCENARIO,
        generator=settings["generator"],
        prompts=write_prompts(prompts, options.out / "work" / f"{strategy}.toml"),
        masks=settings["masks"] or None,
        labels=settings["labels"] or None,
        limit=settings["limit"],
        feather=settings["feather"],
        seed=options.seed + seed,
        device=options.device,
        progress=options.progress,
    )
    rows = [row for row in read_rows(folder / "manifest.parquet") if row["status"] == "ok"]
    if len(rows) < 2:
        raise UserError(f"the strategy {strategy} left {len(rows)} images; look at {folder / 'manifest.csv'}")
    rows.sort(key=lambda row: str(row["source_id"]))
    images = [decode_image(read_file(folder / str(row["path"]))) for row in rows]
    return PaintedPictures(strategy, seed, folder, rows, images, image_embeddings(clip, images))


def _drops(
    options: StudyOptions, data: str, painted: Sequence[PaintedPictures], models: Sequence[str]
) -> pd.DataFrame:  # fmt: skip
    """Return what each strategy costs each model: a row per model × strategy over all seeds (seed -1), and per seed."""
    settings = options.settings
    common: dict[str, Any] = {
        "models": models, "scenarios": "original", "device": options.device, "labels": settings["labels"] or None,
        "progress": options.progress,
    }  # fmt: skip
    runs = options.out / "runs"
    before = api.evaluate(
        data, out=runs / "originals", masks=settings["masks"] or None, limit=settings["limit"], **common
    ).counts.cells
    after: dict[str, list[pd.DataFrame]] = {}
    for part in painted:
        cells = api.evaluate(part.folder, out=runs / part.name, **common).counts.cells
        after.setdefault(part.strategy, []).append(cells)
    rows = []
    for strategy, seeds in after.items():
        for seed, parts in [(-1, seeds), *enumerate([cells] for cells in seeds)]:
            whole = pd.concat([cells.astype({"model": str}) for cells in parts])
            for model in dict.fromkeys(whole["model"]):
                effect = paired_effect(
                    before[before["model"] == model], whole[whole["model"] == model], "right", average="micro",
                    seed=options.seed,
                )  # fmt: skip
                rows.append(
                    {"strategy": strategy, "model": model, "seed": seed, "scenes": effect.n, "before": effect.first}
                    | {"after": effect.second, **effect.estimate.row("drop")}
                )
    return pd.DataFrame(rows)


def _looks(pictures: pd.DataFrame) -> Finding:
    """Describe the images of each strategy, averaged over seeds."""
    means = {"pictures": "sum"} | {column.key: "mean" for column in _MEASURES}
    frame = pictures.groupby("strategy", sort=False).agg(means).reset_index()
    shown = frame.dropna(axis="columns", how="all")
    painted = frame[frame["strategy"] != ORIGINALS]

    def rising(measure: str) -> list[dict[Hashable, Any]]:
        return painted.sort_values(measure, kind="stable", na_position="first").to_dict("records")

    by_distance = rising("kid")
    nearest, farthest = by_distance[0], by_distance[-1]
    followed, edge = rising("clip_score")[-1], rising("seam")[-1]
    yardstick = frame[frame["strategy"] == ORIGINALS].iloc[0]
    sentences = [
        f"Nearest to the originals is {nearest['strategy']} (KID {number(nearest['kid'], 3)}), farthest "
        f"{farthest['strategy']} ({number(farthest['kid'], 3)}); the originals' own is {number(yardstick['kid'], 3)}.",
        f"The prompt is followed best by {followed['strategy']} (CLIP score {number(followed['clip_score'], 1)}); the "
        f"oracle still names the class on at least {percent(painted['recognised'].min())} of each strategy's images.",
        f"The edge stands out most under {edge['strategy']}: {number(edge['seam'], 2)} times as much as in the "
        "originals.",
    ]
    seen = frame.dropna(subset="background_seen")
    if len(seen):
        each = [f"{percent(row['background_seen'])} ({row['strategy']})" for row in seen.to_dict("records")]
        sentences.append(f"The background that was asked for is the one the oracle sees on {listing(each, 6)}.")
    columns = [Column("strategy", "Strategy"), Column("pictures", "Images", "integer")]
    columns += [column for column in _MEASURES if column.key in shown]
    return Finding("How the images look", sentences, shown, columns)


def _costs(drops: pd.DataFrame, models: Sequence[str]) -> Finding:
    """Compare accuracy on the originals with accuracy on painted backgrounds, over all seeds."""
    frame = drops[drops["seed"] == -1].drop(columns="seed")
    short = short_names(list(models))
    sentences = []
    for model in models:
        own = frame[frame["model"] == model].dropna(subset="drop").sort_values("drop", kind="stable")
        if own.empty:
            continue
        costs = [f"{row['strategy']} costs {in_points(change_of(row, 'drop'))}" for row in (own.iloc[-1], own.iloc[0])]
        sentences.append(f"{short[model]}: {costs[0]}, {costs[1]}.")
    columns = [
        *plain("text", strategy="Strategy", model="Model"),
        Column("scenes", "Scenes", "integer"),
        *plain("percent", before="Original", after="Painted"),
        ranged("drop", "Drop", "points"),
    ]
    return Finding(
        "What each strategy costs",
        sentences,
        frame,
        columns,
        chart=study.dots_of(
            frame.assign(name=frame["model"].map(short)), "drop", line="name", row="strategy",
            title="Drop in accuracy, points", zero=True,
        ),
        caption="Accuracy on the originals less accuracy with a painted background",
    )  # fmt: skip


def _seeds(pictures: pd.DataFrame, drops: pd.DataFrame) -> Finding:
    """Show how far the seed moves what the strategies are compared by."""
    each = drops[drops["seed"] >= 0].pivot_table(index=["strategy", "seed"], columns="model", values="drop", sort=False)
    short = short_names([str(name) for name in each.columns])
    each = each.rename(columns={name: f"drop {short[str(name)]}" for name in each.columns})
    frame = pictures.merge(each.reset_index(), on=["strategy", "seed"])
    kid = pictures[pictures["strategy"] != ORIGINALS].groupby("strategy")["kid"]
    means, within = kid.mean(), kid.max() - kid.min()
    sentence = (
        f"From one seed to the next KID moves by {number(within.mean(), 3)} on average; the strategies' means span "
        f"{number(means.max() - means.min(), 3)}."
    )
    columns = [Column("strategy", "Strategy"), Column("seed", "Seed", "integer")]
    columns += [column for column in _MEASURES if frame[column.key].notna().any()]
    columns += [Column(str(name), str(name).capitalize(), "points") for name in each.columns]
    return Finding("Seed by seed", [sentence], frame, columns)


def _words(strategies: Mapping[str, Prompts], painted: Sequence[PaintedPictures], originals: Originals) -> Finding:
    """Show the prompts in full, with images."""
    first = [part for part in painted if part.seed == 0]
    examples = {part.strategy: list(dict.fromkeys(str(row["prompt"]) for row in part.rows))[:3] for part in first}
    rows = [
        {"strategy": name, "asks_for": MEANING.get(name, ""), "prompt": prompts.default}
        | {"examples": " · ".join(examples[name])}
        for name, prompts in strategies.items()
    ]
    columns = [
        *plain(
            "text",
            strategy="Strategy",
            asks_for="Asks for",
            prompt="Prompt, if a class has none of its own",
            examples="For example",
        )
    ]
    sentence = "Some scenes as they were, and under each strategy from the first seed."
    pictures = _pictures(first, originals)
    return Finding("The words and the images", [sentence], pd.DataFrame(rows), columns, images=pictures)


def _pictures(painted: Sequence[PaintedPictures], originals: Originals) -> dict[str, Image]:
    """Return a few scenes as they were and under each strategy, scene by scene."""
    picked: dict[str, str] = {}
    for source, sample in originals.samples.items():
        if all(source in part.sources for part in painted):
            picked.setdefault(sample.label, source)
    shown: dict[str, Image] = {}
    for label, source in list(picked.items())[:: max(1, len(picked) // SHOWN)][:SHOWN]:
        shown[f"{label}: original"] = _at_height(originals.images[source])
        shown |= {f"{label}: {part.strategy}": _at_height(part.images[part.sources.index(source)]) for part in painted}
    return shown


def _at_height(image: Image, height: int = 128) -> Image:
    width = max(1, round(image.shape[1] * height / image.shape[0]))
    return cast(Image, cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA))
