"""The sections of ``holdfast study ximagenet12``, each with its counterpart in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from holdfast.core.errors import UserError
from holdfast.core.numbers import number
from holdfast.core.schema import JOBS
from holdfast.core.types import ORIGINAL
from holdfast.pipeline.choosing import recorded_sizes
from holdfast.reports.attribution.section import looking, read_looks
from holdfast.reports.page.evidence import Analysis, Evidence, join_runs, on_originals
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Part, Section
from holdfast.reports.page.provenance import trouble
from holdfast.reports.page.tables import Column, Table, plain
from holdfast.reports.page.words import condition_label, listing, plural, short_names
from holdfast.reports.static.accuracy import maps
from holdfast.reports.static.comparison import fit
from holdfast.reports.static.score import parts_frame, parts_words
from holdfast.reports.static.verdicts import scores
from holdfast.reports.study import Finding
from holdfast.reports.trained.detection import detection
from holdfast.reports.trained.segmentation import Segmented, read_segments, segmentation
from holdfast.reports.trained.training import training
from holdfast.results import SCORED, Results
from holdfast.scenarios import parse_conditions
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.effects.segments import WITHIN
from holdfast.store import read_table

QUESTION = (
    "What do networks lose under the twelve scenarios of XIMAGENET-12 because they were never trained on them (EX1: "
    "trained on originals, tested on each), and what is gone for good (EX2: trained and tested within each)? What does "
    "it cost segmenters (EX3), where do the models look, and do images with another background give themselves away? "
    "Every section says which table or figure of the paper (arXiv 2310.08182) it is the counterpart of, by content, "
    "for our own scenes and networks; no number here is to be compared with a printed one. Intervals are at the 95 % "
    "level."
)
ORDER = ("accuracies", "scores", "segmentation", "looking", "regression", "classes", "curves", "detection", "errors")
_COUNTERPARTS = {
    "accuracies": "Counterpart of the paper's Table 1: accuracies by network and scenario, EX1 and EX2.",
    "scores": "Counterpart of the paper's Table 2: the robustness score with what each scenario adds to its two parts.",
    "segmentation": (
        "Counterpart of the paper's table of segmentation results (mean IoU and pixel accuracy by scenario, EX3) and, "
        "further down, of the segmentation half of its regression table, Figure 9."
    ),
    "looking": "Counterpart of the paper's saliency maps.",
    "regression": (
        "Counterpart of the paper's Figure 9, the regression of accuracies (its segmentation half is with the "
        "segmenters), and of its residual plots. Of networks trained on originals (EX1)."
    ),
    "classes": "Counterpart of the paper's accuracy density maps. Of networks trained on originals (EX1).",
    "curves": "Counterpart of the paper's training and validation curves.",
    "detection": "Counterpart of the paper's classifier that distinguishes normal, generated and random backgrounds.",
}


def in_order(sections: Sequence[Section]) -> list[Section]:
    """Return the sections in the order of the page, each with its counterpart in the paper."""
    return [
        replace(section, lead=[*filter(None, [_COUNTERPARTS.get(section.name)]), *section.lead])
        for section in sorted(sections, key=lambda section: ORDER.index(section.name))
    ]


def classified(results: Results, seed: int) -> list[Section]:
    """Return accuracies, scores, the regression, maps and curves of EX1 and EX2."""
    counts = results.counts
    if counts.cells.empty:
        raise UserError(f"{results.path} has no answer of any network; look at its report")
    every = Evidence(counts, resamples=RESAMPLES, seed=seed)
    crossed = Evidence(
        on_originals(counts),
        resamples=RESAMPLES,
        seed=seed,
        every=counts,
        analysis=Analysis(costs=recorded_sizes([results.run])),
        **SCORED,
    )
    whole = training([results.run], every)
    named = ((part, part.name if isinstance(part, (Figure, Table)) else "") for part in whole.parts)
    curves = [part for part, name in named if name.startswith(("curves_", "class_balance", "jobs"))]
    compared = [part for part in whole.parts if part not in curves]
    compared = [part for long in compared for part in (*_wide_accuracies(long, every), long)]
    if any(str(name).startswith("embedded:") for name in results.run.spec()["architectures"]):
        whole.lead.append("An embedded: name stands for that network, rebuilt; its weights are not used.")
    sections = [
        Section("accuracies", "Accuracies, across and within scenarios", whole.lead, compared),
        _scored(crossed),
        fit(crossed),
        maps(crossed),
        Section("curves", "How the training went", parts=curves),
    ]
    errors = trouble(every, [results.run])
    return [*sections, errors] if errors.parts else sections


def _wide_accuracies(part: Part, evidence: Evidence) -> list[Part]:
    """Return, for the long table of accuracies, one as the paper prints it: a row per scenario."""
    if not isinstance(part, Table) or part.name != "trained_within":
        return []
    frame, names = part.frame, short_names(evidence.counts.models)
    values = {
        (f"{names[model]}, {experiment}", f"{experiment}_{place}"): _bounds(frame[frame["model"] == model], way)
        for place, model in enumerate(evidence.counts.models)
        for way, experiment in (("originals", "EX1"), ("within", "EX2"))
    }
    caption = "Accuracy by scenario and network: trained on originals (EX1), trained within the scenario (EX2)"
    return [_by_scenario("accuracies", caption, values)]


def _bounds(frame: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return a measure with its interval, by condition."""
    names = {measure: "value", f"{measure}_low": "low", f"{measure}_high": "high"}
    return frame.set_index("condition")[list(names)].rename(columns=names)


def _by_scenario(name: str, caption: str, values: Mapping[tuple[str, str], pd.DataFrame]) -> Table:
    """Return a row per scenario, the most harmful first, and a column per (title, key) of ``values``."""
    columns = [Column("condition", "Scenario", show=condition_label)]
    parts = []
    for (title, key), frame in values.items():
        keys = {"value": key, "low": f"{key}_low", "high": f"{key}_high"}
        parts.append(frame.rename(columns=keys))
        columns.append(Column(key, title, "percent", keys["low"], keys["high"]))
    wide = pd.concat(parts, axis=1)
    means = wide[[key for _, key in values if key.startswith("EX1")]].mean(axis=1)
    order = sorted(wide.index, key=lambda condition: (condition != ORIGINAL, means[condition]))
    return Table(name, caption, wide.loc[order].reset_index(names="condition"), columns)


def _scored(evidence: Evidence) -> Section:
    """Return the report's section of scores, its two parts first."""
    section = scores(evidence)
    if evidence.score_parts.empty or isinstance(evidence.scores, str):
        return section
    table = parts_frame(evidence)
    best, worst = table.iloc[0], table.iloc[-1]
    words = [parts_words(evidence, row) for row in ([best, worst] if len(table) > 1 else [best])]
    section.lead.append(f"The score, its part across scenarios and its part within them: {'; '.join(words)}.")
    first = ("score_parts", "score_scenarios")
    for place, part in enumerate(section.parts):  # static conditions alone have no effect of pasting
        if isinstance(part, Table):
            kept = [column for column in part.columns if part.frame[column.key].notna().any()]
            section.parts[place] = replace(part, columns=kept)
    section.parts.sort(key=lambda part: getattr(part, "name", "") not in first)
    return section


def segmented(results: Results, seed: int) -> list[Section]:
    """Return the section of EX3."""
    if "segment" not in results.run.tasks():
        raise UserError(f"{results.path} has no row of any segmenter")
    segments = read_segments(join_runs([results.run]), resamples=RESAMPLES, seed=seed)
    section = segmentation(segments)
    if not segments.frame.empty:
        for place, part in enumerate(section.parts):  # the long table is behind the short ones
            if isinstance(part, Table) and part.name == "segmentation":
                section.parts[place] = replace(part, folded=True)
        measures = {"miou": "Mean IoU", "pixel_accuracy": "Pixels right"}
        section.parts[1:1] = [_segment_table(segments, *measure) for measure in measures.items()]
    return [section]


def _segment_table(segments: Segmented, measure: str, title: str) -> Table:
    values = {}
    networks = list(dict.fromkeys(name.removesuffix(WITHIN) for name in segments.models))
    for place, network in enumerate(networks):
        for name, experiment in ((network, "EX1"), (network + WITHIN, "EX2")):
            if name in segments.models:
                own = segments.table[segments.table["model"] == name]
                title_of = f"{segments.short[name].removesuffix(', within')}, {experiment}"
                values[title_of, f"{experiment}_{place}"] = _bounds(own, measure)
    caption = f"{title} by scenario and network: trained on originals (EX1), trained within the scenario (EX2)"
    return _by_scenario(f"segmentation_{measure}", caption, values)


def looked(results: Results, seed: int) -> list[Section]:
    """Return the section that shows where networks trained on originals look."""
    frame = read_looks([results.run])
    if frame is None:
        raise UserError(f"{results.path} has no attribution map; look at its errors")
    section = looking(frame, resamples=RESAMPLES, seed=seed)
    spec = results.run.spec()
    how = (
        f"One training of each network on originals, tested on the {number(100 * (1 - float(spec['train_split'])), 0)} "
        "% of the scenes that it did not see; its model was kept."
        if int(spec["folds"]) == 1
        else f"Networks of {spec['folds']} folds, each explained on scenes that it did not see."
    )
    return [replace(section, lead=[how, *section.lead])]


def detected(results: Results, seed: int) -> list[Section]:
    """Return the section of the three kinds of background."""
    del seed  # its intervals are not resampled
    return [detection(results.counts)]


def unfinished(results: Results) -> list[str]:
    """Return a sentence if trainings are missing."""
    done, wanted = len(_jobs(results)), _planned(results)
    if done >= wanted:
        return []
    return [
        f"Unfinished: {done} of {wanted} trainings are done. What the others would have shown is missing, and a "
        "condition of which only some folds are done is measured on fewer images."
    ]


def _planned(results: Results) -> int:
    spec = results.run.spec()
    trained_on = 1 if spec.get("train_on") == ORIGINAL else len(parse_conditions(str(spec["scenarios"])))
    return len(spec["architectures"]) * int(spec["folds"]) * trained_on


def facts(runs: Mapping[str, Results]) -> dict[str, str]:
    """Return the numbers at the top of the page."""
    trainings = sum(len(_jobs(results)) for results in runs.values())
    first = next(iter(runs.values()))
    spec = first.run.spec()
    rows = sum(results.run.predictions.dataset().count_rows() for results in runs.values())
    conditions = first.rows(["condition"])["condition"].unique()
    folds = {"folds" if spec["folds"] != 1 else "fold": str(spec["folds"])}
    return {"trainings": f"{trainings:,}", "conditions": str(len(conditions)), **folds, "rows": f"{rows:,}"}


def cost(runs: Mapping[str, Results]) -> Finding:
    """Return what each run was, where and how long it took, and what twelve folds would take."""
    rows = []
    for part, results in runs.items():
        spec, jobs = results.run.spec(), _jobs(results)
        planned = _planned(results)
        folds, hours = int(spec["folds"]), float(jobs["seconds"].sum()) / 3600
        recipe, packages = spec.get("trained_by") or {}, results.run.environment().get("packages", {})
        libraries = [f"{name} {packages[name]}" for name in ("holdfast", "torch", "timm") if name in packages]
        # Twelve folds are more trainings, each on 11/12 of the scenes.
        whole = hours * planned / len(jobs)
        rows.append(
            {
                "part": part,
                "networks": ", ".join(short_names([str(name) for name in spec["architectures"]]).values()),
                "data": spec["data"],
                "folds": folds,
                "trainings": len(jobs),
                "done": str(len(jobs)) if len(jobs) >= planned else f"{len(jobs)} of {planned}",
                "failed": int((jobs["status"] != "ok").sum()),
                "epochs": int(recipe.get("epochs", 0)),
                "size": int(recipe.get("size", 0)),
                "hours": hours,
                "twelve": whole * (12 / folds) * (11 / 12) / (1 - 1 / folds) if folds > 1 else None,
                "libraries": ", ".join(libraries),
                "device": listing(sorted(set(jobs["device"].dropna()))),
            }
        )
    frame = pd.DataFrame(rows)
    columns = [
        *plain("text", part="Part", networks="Networks", data="Scenes"),
        Column("folds", "Folds", "integer"),
        Column("done", "Trainings"),
        Column("epochs", "Epochs", "integer"),
        Column("hours", "Hours", "number", digits=2, hint="of all trainings, one after another"),
        Column("twelve", "12 folds", "number", digits=2, hint="hours of all trainings with 12 folds"),
        *plain("text", device="on", libraries="with"),
    ]
    spent, where = number(float(frame["hours"].sum()), 1), listing(list(dict.fromkeys(frame["device"])))
    sentence = (
        f"{plural(int(frame['trainings'].sum()), 'training')}, {spent} hours one after another, on {where}; side by "
        "side they take less. Twelve folds, as in the paper, are three times as many trainings as four, each on 22 % "
        "more scenes."
    )
    return Finding("What it took", [sentence], frame, columns, caption="The runs behind this page")


def _jobs(results: Results) -> pd.DataFrame:
    frame: pd.DataFrame = read_table(results.path / "jobs.parquet", JOBS).to_pandas()
    return frame
