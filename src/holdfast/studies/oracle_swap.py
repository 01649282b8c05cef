"""``holdfast study oracle-swap``: what another judge would have said, and how far FMR moves with it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.schema import FRAMES
from holdfast.core.types import Image
from holdfast.data.images import decode_image, read_file
from holdfast.data.labels import map_labels
from holdfast.models import load_classifier
from holdfast.oracle import kinship, load_oracle
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.page.words import listing, number, percent, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import Floats, interval, resampled_sums
from holdfast.store import Parts
from holdfast.studies import dynamic
from holdfast.studies.seeds import Estimate
from holdfast.studies.study import Setting, Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (
    *dynamic.walk_settings(
        models=("embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:vit_rho95"),
        scenes=48,
        steps=10,
        step_size=0.03,
        leave=("oracle",),
    ),
    Setting(
        "oracles",
        (
            "clip:embedded",
            "classifier:embedded:resnet_rho0",
            "ensemble:clip:embedded+classifier:embedded:resnet_rho0?rule=unanimous",
        ),
        "who judges, the first of them the one that others are compared with",
    ),
    Setting("compared", 24, "scenes whose images all oracles judge, step by step", 6),
)


def run(options: StudyOptions) -> StudyResult:
    """Walk under every oracle; then let all of them judge the same images."""
    settings = options.settings
    oracles = list(dict.fromkeys(settings["oracles"]))
    if len(oracles) < 2:
        raise UserError("this study compares oracles: name two or more with --set oracles=A,B")
    if settings["compared"] < 2:
        raise UserError("compared must be 2 or more")
    models = dynamic.models_of(settings)
    ways = {name: {"oracle": name} for name in oracles}
    results, walks = dynamic.walk_ways(options, ways, models, frames=settings["compared"])
    walks, names = walks.assign(oracle=walks["way"]), dynamic.called(models)
    related = [
        sentence for model in models for oracle in oracles for sentence in kinship(model, oracle, settings["generator"])
    ]
    return StudyResult(
        title="Oracle swap",
        question=(
            "How far does FMR depend on who judges? Every scene walked against each model under each oracle. The walks "
            "of one scene against one model are the same up to where an oracle ends them, so oracles can be compared "
            "on the same images: every image that any of them was shown. Intervals are at the 95 % level, differences "
            "paired by scene." + "".join(f" {sentence}" for sentence in dict.fromkeys(related))
        ),
        findings=[
            _each_oracle(walks, names, oracles),
            _moves(walks, names, oracles),
            _agreement(_judged(results, oracles, options), oracles, options.seed),
        ],
        facts=[(str(len(models)), "models"), (str(len(oracles)), "oracles"), (str(settings["scenes"]), "test scenes")],
        note=dynamic.note(options),
        runs=["runs/walks"],
    )


STUDY = Study(run, SETTINGS)


def _each_oracle(walks: pd.DataFrame, models: list[str], oracles: list[str]) -> Finding:
    frame = dynamic.family(walks, ["oracle", "model"])
    sentences = []
    for model in models:
        own = frame[frame["model"] == model]
        listed = [f"{percent(row['fmr'])} under {row['oracle']}" for row in own.to_dict("records")]
        sentences.append(f"{model}: FMR {listing(listed, 10)}.")
    models_short, names_short = short_names(models), short_names(oracles, 40)
    drawn = dynamic.compared(
        frame.assign(name=frame["oracle"].map(names_short), row=frame["model"].map(models_short)),
        models="name",
        row="row",
        measure="fmr",
    )
    measures = dynamic.columns("standard_accuracy", "validation_rate", "perturbed_accuracy", "fmr")
    return Finding(
        "FMR under each oracle",
        sentences,
        frame,
        [Column("oracle", "Oracle"), Column("model", "Model"), *measures, *dynamic.BOUNDS, *dynamic.COUNTS],
        chart=lambda width: dots(
            drawn, width, models=list(names_short.values()), rows=list(models_short.values()), title="FMR = PA / SA"
        ),
        caption="FMR of each model by oracle",
    )


def _moves(walks: pd.DataFrame, models: list[str], oracles: list[str]) -> Finding:
    import pandas as pd

    rows = []
    for model in models:
        own = walks[walks["model"] == model]
        first, *others = (own[own["oracle"] == name] for name in oracles)
        for name, other in zip(oracles[1:], others, strict=True):
            row: dict[str, Any] = {"model": model, "oracle": name}
            for measure in ("validation_rate", "perturbed_accuracy", "fmr"):
                found = dynamic.difference(first, other, measure)
                row |= {measure: found.value, f"{measure}_low": found.low, f"{measure}_high": found.high}
            rows.append(row)
    frame = pd.DataFrame(rows)
    sentences = [f"No model has an FMR under both {oracles[0]} and another oracle."]
    if frame["fmr"].notna().any():
        farthest = frame.iloc[int(frame["fmr"].abs().fillna(-1).to_numpy().argmax())]
        beyond = int(((frame["fmr_low"] > 0) | (frame["fmr_high"] < 0)).sum())
        moved = Estimate(*(float(farthest[name]) for name in ("fmr", "fmr_low", "fmr_high")))
        sentences = [
            f"FMR moves farthest for {farthest['model']} under {farthest['oracle']}, by {dynamic.in_points(moved)}; "
            f"the interval leaves out 0 in {beyond} of {len(frame)} cases."
        ]
    columns = [Column("model", "Model"), Column("oracle", f"Less {oracles[0]}")]
    columns += [
        Column(name, dynamic.MEASURES[name], "points", f"{name}_low", f"{name}_high")
        for name in ("validation_rate", "perturbed_accuracy", "fmr")
    ]
    return Finding("How far FMR moves", sentences, frame, columns)


def _judged(results: api.Results, oracles: list[str], options: StudyOptions) -> pd.DataFrame:
    """sample_id, step and, for each oracle, whether it accepts: a row per image that any oracle was shown."""
    rows = {row["row_id"]: row for row in results.rows(["row_id", "model", "sample_id", "label"]).to_pylist()}
    frames = Parts(results.path / "details" / "frames", FRAMES).rows(["row_id", "step", "image"])
    shown: dict[tuple[str, str, int], dict[str, Any]] = {}
    for frame in frames.to_pylist():
        row = rows[frame["row_id"]]
        key = (row["model"], row["sample_id"], frame["step"])
        shown.setdefault(key, {"label": row["label"], "image": frame["image"], "sample_id": row["sample_id"]})
    images = [_read(results.path / one["image"]) for one in shown.values()]
    labels = [str(one["label"]) for one in shown.values()]
    return _verdicts(shown, images, labels, oracles, options)


def _verdicts(
    shown: dict[tuple[str, str, int], dict[str, Any]],
    images: list[Image],
    labels: list[str],
    oracles: list[str],
    options: StudyOptions,
) -> pd.DataFrame:
    import pandas as pd

    collection = api.load_collection(dynamic.scenes_of(options))
    made: dict[str, Any] = {
        "sample_id": [one["sample_id"] for one in shown.values()],
        "step": [step for _, _, step in shown],
    }
    for name in oracles:
        oracle = load_oracle(
            name,
            classes=collection.classes,
            keys=collection.keys,
            load_classifier=load_classifier,
            map_labels=map_labels,
            device=options.device,
        )
        made[name] = [verdict.accepted for verdict in oracle.judge(images, labels)]
    return pd.DataFrame(made)


def _read(file: Path) -> Image:
    return decode_image(read_file(file))


def same_verdicts(judged: pd.DataFrame, one: str, other: str, *, seed: int) -> tuple[Estimate, Estimate]:
    """Share of equal verdicts and Cohen's κ of two oracles; intervals from resampled scenes, whose images are alike."""
    first, second = (judged[name].to_numpy(np.float64) for name in (one, other))
    table = np.column_stack([np.ones(len(judged)), first == second, first, second])
    drawn = resampled_sums(table, judged["sample_id"], seed=seed)

    def kappa(sums: Floats) -> Floats:
        n, agreed, yes, others = sums.T
        by_chance = (yes * others + (n - yes) * (n - others)) / n**2
        nothing = np.full(len(sums), np.nan)
        return np.asarray(np.divide(agreed / n - by_chance, 1 - by_chance, out=nothing, where=by_chance < 1 - 1e-12))

    def share(sums: Floats) -> Floats:
        return np.asarray(sums[:, 1] / sums[:, 0])

    found = []
    for statistic in (share, kappa):
        value, samples = float(statistic(table.sum(axis=0, keepdims=True))[0]), statistic(drawn)
        ends = (np.nan, np.nan) if np.isnan(samples).all() else (float(end) for end in interval(samples))
        found.append(Estimate(value, *ends))
    return found[0], found[1]


def _agreement(judged: pd.DataFrame, oracles: list[str], seed: int) -> Finding:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for one, other in itertools.combinations(oracles, 2):
        same, kappa = same_verdicts(judged, one, other, seed=seed)
        row: dict[str, Any] = {"first": one, "second": other, "images": len(judged)}
        row |= {"same": same.value, "same_low": same.low, "same_high": same.high}
        row |= {"kappa": kappa.value, "kappa_low": kappa.low, "kappa_high": kappa.high}
        row |= {"only_first": int((judged[one] & ~judged[other]).sum())}
        rows.append(row | {"only_second": int((~judged[one] & judged[other]).sum())})
    frame = pd.DataFrame(rows)
    sentences = [
        f"{row['first']} and {row['second']} say the same of {percent(row['same'])} of {row['images']} images "
        f"(κ {number(row['kappa'])})."
        for row in rows
    ]
    columns = [
        Column("first", "Oracle"),
        Column("second", "Another"),
        Column("images", "Images", "integer"),
        Column("same", "Same verdict", "percent", "same_low", "same_high"),
        Column("kappa", "Cohen's κ", "number", "kappa_low", "kappa_high", digits=2),
        Column("only_first", "only the first accepts", "integer"),
        Column("only_second", "only the other accepts", "integer"),
    ]
    return Finding("Do they agree on the same images", sentences, frame, columns)
