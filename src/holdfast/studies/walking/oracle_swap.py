"""``holdfast study oracle-swap``: what another judge would have said, and how far FMR moves with it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.numbers import number, percent
from holdfast.core.schema import FRAMES
from holdfast.data.images import decode_image, read_file
from holdfast.oracle import kinship
from holdfast.report.page.tables import Column, plain, ranged
from holdfast.report.page.words import listing, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import Floats, interval, resampled_sums
from holdfast.stats.models.trainings import Estimate
from holdfast.store import Parts
from holdfast.studies import study
from holdfast.studies.study import Setting, Study, StudyOptions
from holdfast.studies.walking import walks

MODELS = ("embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:vit_rho95")
ORACLES = (
    "clip:embedded",
    "classifier:embedded:resnet_rho0",
    "ensemble:clip:embedded+classifier:embedded:resnet_rho0?rule=unanimous",
)
MOVED = ("validation_rate", "perturbed_accuracy", "fmr")


def run(options: StudyOptions) -> StudyResult:
    """Walk under every oracle; then let all of them judge the same images."""
    settings = options.settings
    oracles = list(dict.fromkeys(settings["oracles"]))
    if len(oracles) < 2:
        raise UserError("this study compares oracles: name two or more with --set oracles=A,B")
    options.require(compared=2)
    models = study.model_names(settings["models"])
    ways = {name: {"oracle": name} for name in oracles}
    results, rows = walks.walk(options, models, ways, frames=settings["compared"])
    rows = rows.assign(oracle=rows["way"])
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
            _each_oracle(rows, oracles),
            _moves(rows, oracles),
            _agreement(_judged(results, oracles, options), oracles, options.seed),
        ],
        facts={"models": len(models), "oracles": len(oracles), "test scenes": rows["sample_id"].nunique()},
    )


STUDY = Study(
    run,
    (
        *walks.walk_settings(MODELS, 48, step_size=0.03, without=("oracle",)),
        Setting("oracles", ORACLES, "who judges; the others are compared with the first"),
        Setting("compared", 24, "scenes whose images all oracles judge, step by step", 6),
    ),
)


def _each_oracle(rows: pd.DataFrame, oracles: list[str]) -> Finding:
    frame = walks.family(rows, ["oracle", "model"])
    sentences = []
    for model, own in frame.groupby("model", sort=False):
        listed = [f"{percent(row['fmr'])} under {row['oracle']}" for row in own.to_dict("records")]
        sentences.append(f"{model}: FMR {listing(listed, 10)}.")
    short = short_names(list(dict.fromkeys(frame["model"])))
    drawn = frame.assign(name=frame["oracle"].map(short_names(oracles, 40)), row=frame["model"].map(short))
    return Finding(
        "FMR under each oracle",
        sentences,
        frame,
        [*plain("text", oracle="Oracle", model="Model"), *walks.columns(), *walks.BOUNDS, *walks.COUNTS],
        chart=study.dots_of(drawn, "fmr", line="name", row="row", title="FMR = PA / SA"),
        caption="FMR of each model by oracle",
    )


def _moves(rows: pd.DataFrame, oracles: list[str]) -> Finding:
    table = []
    for model, own in rows.groupby("model", sort=False):
        first, *others = (own[own["oracle"] == name] for name in oracles)
        for name, other in zip(oracles[1:], others, strict=True):
            row: dict[str, Any] = {"model": model, "oracle": name}
            for measure in MOVED:
                row |= walks.difference(first, other, measure).row(measure)
            table.append(row)
    frame = pd.DataFrame(table)
    sentences = [f"No model has an FMR under both {oracles[0]} and another oracle."]
    if frame["fmr"].notna().any():
        farthest = frame.iloc[int(frame["fmr"].abs().fillna(-1).to_numpy().argmax())]
        clear = int(((frame["fmr_low"] > 0) | (frame["fmr_high"] < 0)).sum())
        moved = Estimate(*(float(farthest[name]) for name in ("fmr", "fmr_low", "fmr_high")))
        sentences = [
            f"FMR moves farthest for {farthest['model']} under {farthest['oracle']}, by {walks.in_points(moved)}; "
            f"the interval leaves out 0 in {clear} of {len(frame)} cases."
        ]
    columns = [*plain("text", model="Model", oracle=f"Less {oracles[0]}")]
    return Finding("How far FMR moves", sentences, frame, [*columns, *walks.columns(*MOVED, kind="points")])


def _judged(results: api.Results, oracles: list[str], options: StudyOptions) -> pd.DataFrame:
    """Return a row per image that any oracle was shown: sample_id, step and, per oracle, whether it accepts."""
    rows = {row["row_id"]: row for row in results.rows(["row_id", "model", "sample_id", "label"]).to_pylist()}
    shown: dict[tuple[str, str, int], tuple[str, str]] = {}
    for frame in Parts(results.path / "details" / "frames", FRAMES).rows(["row_id", "step", "image"]).to_pylist():
        row = rows[frame["row_id"]]
        shown.setdefault((row["model"], row["sample_id"], frame["step"]), (str(row["label"]), frame["image"]))
    images = [decode_image(read_file(results.path / file)) for _, file in shown.values()]
    labels = [label for label, _ in shown.values()]
    collection = study.collection_of(options)
    verdicts: dict[str, Any] = {
        "sample_id": [sample_id for _, sample_id, _ in shown],
        "step": [step for _, _, step in shown],
    }
    for name in oracles:
        judged = study.oracle_of(options, name, collection).judge(images, labels)
        verdicts[name] = [verdict.accepted for verdict in judged]
    return pd.DataFrame(verdicts)


def same_verdicts(judged: pd.DataFrame, first_name: str, second_name: str, *, seed: int) -> tuple[Estimate, Estimate]:
    """Return the share of equal verdicts and Cohen's κ of two oracles, with intervals from resampled scenes."""
    first, second = (judged[name].to_numpy(np.float64) for name in (first_name, second_name))
    table = np.column_stack([np.ones(len(judged)), first == second, first, second])
    drawn = resampled_sums(table, judged["sample_id"], seed=seed)

    def kappa(sums: Floats) -> Floats:
        n, agreed, yes, others = sums.T
        by_chance = (yes * others + (n - yes) * (n - others)) / n**2
        nothing = np.full(len(sums), np.nan)
        return np.asarray(np.divide(agreed / n - by_chance, 1 - by_chance, out=nothing, where=by_chance < 1 - 1e-12))

    def share(sums: Floats) -> Floats:
        return np.asarray(sums[:, 1] / sums[:, 0])

    estimates = []
    for statistic in (share, kappa):
        value, samples = float(statistic(table.sum(axis=0, keepdims=True))[0]), statistic(drawn)
        ends = (np.nan, np.nan) if np.isnan(samples).all() else (float(end) for end in interval(samples))
        estimates.append(Estimate(value, *ends))
    return estimates[0], estimates[1]


def _agreement(judged: pd.DataFrame, oracles: list[str], seed: int) -> Finding:
    rows: list[dict[str, Any]] = []
    for first, second in itertools.combinations(oracles, 2):
        same, kappa = same_verdicts(judged, first, second, seed=seed)
        row: dict[str, Any] = {"first": first, "second": second, "images": len(judged)}
        row |= same.row("same") | kappa.row("kappa") | {"only_first": int((judged[first] & ~judged[second]).sum())}
        rows.append(row | {"only_second": int((~judged[first] & judged[second]).sum())})
    sentences = [
        f"{row['first']} and {row['second']} say the same of {percent(row['same'])} of {row['images']} images "
        f"(κ {number(row['kappa'])})."
        for row in rows
    ]
    columns = [
        *plain("text", first="Oracle", second="Another"),
        Column("images", "Images", "integer"),
        ranged("same", "Same verdict"),
        ranged("kappa", "Cohen's κ", "number", 2),
        *plain("integer", only_first="only the first accepts", only_second="only the other accepts"),
    ]
    return Finding("Do they agree on the same images", sentences, pd.DataFrame(rows), columns)
