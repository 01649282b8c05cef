"""Accuracy lost from one dataset to another, by models that were tried on both: their images cannot be paired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_special
from holdfast.core.numbers import alike, points, span
from holdfast.core.types import ORIGINAL
from holdfast.stats.core import cells as cell_statistics
from holdfast.stats.core.bootstrap import RESAMPLES, Floats, codes, interval, resampled_sums, t_quantile
from holdfast.stats.core.cells import Average, cluster_codes, newcombe, summary
from holdfast.stats.core.grid import averages, grid
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.models.between import Between
from holdfast.stats.models.relative import logits, through

DROPS = [
    "model", "dataset", "part", "n_reference", "n", "reference", "reference_low", "reference_high", "accuracy",
    "accuracy_low", "accuracy_high", "drop", "low", "high", "class_low", "class_high",
]  # fmt: skip
EFFECTIVE = ["model", "dataset", "reference", "accuracy", "predicted", "effective", "low", "high", "slope", "models"]
QUESTIONS = ["model", "kind", "dataset", "n_reference", "n", "reference", "accuracy", "drop", "low", "high"]
LEAST_MODELS = 4  # A line through fewer than three other models predicts nothing


@dataclass(frozen=True)
class DatasetDrops:
    """What models lose from one dataset to others.

    ``drops``: a row per model × dataset, and per ``part`` of a dataset that has several (the kinds of nuisance of a
    hard set; '' is the whole): accuracies, ``drop`` = reference − accuracy with ``low`` and ``high`` (other images of
    these classes) and ``class_low``, ``class_high`` (other classes, too); ``n`` images.
    """

    reference: str  # name of the first dataset
    datasets: list[str]  # names of the others
    drops: pd.DataFrame
    classes: pd.DataFrame  # a row per model × dataset × class with the same columns but the last two
    effective: Between  # accuracy minus what the line through the other models predicts from the reference accuracy
    shared: list[str]  # the classes that all datasets have; only these count
    left_out: dict[str, list[str]]  # dataset → its classes that another lacks
    missing: list[str]  # models that were not tried on all datasets

    @property
    def sentence(self) -> str:
        """Return what the models lose, in one sentence."""
        whole = self.drops[self.drops["part"] == ""].sort_values("drop", kind="stable")
        least, most = whole.iloc[0], whole.iloc[-1]
        clear = int((whole["low"] > 0).sum())
        if len(whole) == 1:
            verb = "loses" if most["drop"] > 0 else "changes by"
            return f"{most['model']} {verb} {_points(most)} from {self.reference} to {most['dataset']}."
        if alike(least["drop"], most["drop"]):
            same = f"all {len(whole)} drops are {_points(most)}"
            return f"From {self.reference}, {same}; {clear} of {len(whole)} are clear."
        return (
            f"From {self.reference}, {clear} of {len(whole)} drops are clear: {most['model']} loses most, "
            f"{_points(most)} to {most['dataset']}; {least['model']} least, {_points(least)} to {least['dataset']}."
        )


def _points(row: pd.Series) -> str:
    return f"{points(row['drop'])} ({span(row['low'], row['high'])})"


def dataset_drops(
    sets: Mapping[str, Counts],
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    clusters: Mapping[str, Mapping[str, str]] | None = None,
    baseline: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> DatasetDrops:
    """Return the accuracy that each model loses from the first dataset to every other.

    ``sets``: counts by the dataset's name, the reference first. Of each, the originals count; if it has none (a
    generated set), all its generated images. ``clusters``: dataset → source_id → cluster, for images that are not
    independent (the prompt of a generated one). ``baseline``: the models that make the line of effective robustness; by
    default all. The line never includes the model that is held against it.
    """
    names = list(sets)
    if len(names) < 2:
        raise UserError(f"One dataset only ({', '.join(names)}): a loss from one dataset to another needs two.")
    own = {name: _own_pictures(name, counts) for name, counts in sets.items()}
    labels = {name: set(cells["label"].astype(str)) for name, cells in own.items()}
    shared = sorted(set.intersection(*labels.values()))
    if not shared:
        some = "; ".join(f"{name} has {', '.join(sorted(values)[:4])}" for name, values in labels.items())
        raise UserError(f"The datasets have no class name in common, so nothing can be compared: {some}.")
    models = {name: set(cells["model"].astype(str)) for name, cells in own.items()}
    common = set.intersection(*models.values())
    if not common:
        some = "; ".join(f"{name}: {', '.join(sorted(values)[:4])}" for name, values in models.items())
        raise UserError(f"No model was evaluated on all of these datasets ({some}): evaluate one on each.")
    unknown = sorted(set(baseline or ()) - common)
    if unknown:
        raise UserError(
            f"The baseline names {', '.join(unknown)}; models on all datasets: {', '.join(sorted(common))}."
        )
    frames: dict[tuple[str, str], Counts] = {}
    cluster_of: dict[str, str] = {}
    for name, cells in own.items():
        cells = cells[cells["label"].isin(shared) & cells["model"].isin(sorted(common))]
        words = {key: cells[key].astype(str) for key in ("model", "label", "condition")}
        cells = cells.assign(**words, trained_on="", source_id=name + "/" + cells["source_id"].astype(str))
        inner = sorted(cells["condition"].unique())  # '' is the whole; parts are those of a set that has several
        parts = {"": cells} | {part: cells[cells["condition"] == part] for part in inner if len(inner) > 1}
        frames |= {(name, part): _counts(some.assign(condition=ORIGINAL)) for part, some in parts.items()}
        given = (clusters or {}).get(name, {})  # an image without an entry is its own cluster
        for source in cells["source_id"].unique():
            cluster_of[source] = f"{name}/{given.get(source.removeprefix(name + '/'), source)}"
    by_cluster = None if clusters is None else cluster_of
    return DatasetDrops(
        names[0],
        names[1:],
        _drops(frames, names, outcome, average, by_cluster),
        _class_drops({name: frames[name, ""] for name in names}, outcome),
        _effective(frames, names, outcome, average, baseline, by_cluster, resamples, seed),
        shared,
        {name: sorted(values - set(shared)) for name, values in labels.items() if values - set(shared)},
        sorted(set.union(*models.values()) - common),
    )


def question_drops(sets: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return what the strict accuracy of answers loses from the first dataset's questions to the others'."""
    (_, before), *others = sets.items()
    frames = []
    for dataset, after in others:
        frame = after.merge(before, on=["model", "kind"], suffixes=("", "_before"))
        ends = [[frame[f"strict{end}{which}"] for end in ("", "_low", "_high")] for which in ("_before", "")]
        frame["drop"], frame["low"], frame["high"] = newcombe(*ends)
        frame = frame.assign(
            dataset=dataset, n_reference=frame["n_before"], reference=frame["strict_before"], accuracy=frame["strict"]
        )
        frames.append(frame[QUESTIONS])
    return pd.concat(frames, ignore_index=True)


def _own_pictures(name: str, counts: Counts) -> pd.DataFrame:
    """Return the cells of images that the dataset itself has, of models that saw no other condition in training."""
    cells = counts.cells[counts.cells["trained_on"].isin(["", ORIGINAL])] if len(counts.cells) else counts.cells
    if len(cells) and (cells["condition"] == ORIGINAL).any():
        return cells[cells["condition"] == ORIGINAL]
    if len(cells):
        cells = cells[cells["kind"].isin(["generated"])]
    if not len(cells):
        raise UserError(
            f"{name} has no answer to an original or generated image: evaluate it with --scenarios original."
        )
    return cells


def _counts(cells: pd.DataFrame) -> Counts:
    none = cells.iloc[:0]
    models, labels = (sorted(cells[key].unique()) for key in ("model", "label"))
    return Counts(cells, none, none, none, {}, models, [ORIGINAL], labels)


def _drops(
    frames: Mapping[tuple[str, str], Counts], names: list[str], outcome: Outcome, average: Average,
    clusters: Mapping[str, str] | None,
) -> pd.DataFrame:  # fmt: skip
    rows = []
    for (dataset, part), after in frames.items():
        if dataset == names[0]:
            continue
        before = frames[names[0], ""]
        if len(after.classes) < len(before.classes):  # a part may lack some classes
            before = _counts(before.cells[before.cells["label"].isin(after.classes)])
        sides = [summary(side, outcome=outcome, average=average, clusters=clusters) for side in (before, after)]
        frame = _against(sides[0], sides[1], ["model"]).assign(dataset=dataset, part=part)
        half = frame["model"].map(_class_spread(before, after, outcome))
        rows.append(frame.assign(class_low=frame["drop"] - half, class_high=frame["drop"] + half))
    return pd.concat(rows, ignore_index=True)[DROPS]


def _against(before: pd.DataFrame, after: pd.DataFrame, on: list[str]) -> pd.DataFrame:
    """Return both accuracies and their difference, with Newcombe's interval for independent estimates."""
    columns = [*on, "n", "accuracy", "low", "high"]
    frame = after[columns].merge(before[columns], on=on, suffixes=("", "_reference"))
    ends = [[frame[f"{name}{which}"] for name in ("accuracy", "low", "high")] for which in ("_reference", "")]
    drop, low, high = newcombe(*ends)
    return frame.assign(
        reference=frame["accuracy_reference"], reference_low=frame["low_reference"],
        reference_high=frame["high_reference"], accuracy_low=frame["low"], accuracy_high=frame["high"], drop=drop,
        low=low, high=high,
    )  # fmt: skip


def _class_spread(before: Counts, after: Counts, outcome: Outcome) -> dict[str, float]:
    """Return t · s / √K of the K class drops of each model: classes taken as draws from many; NaN for one class."""
    frames = [cell_statistics.accuracy(counts, outcome=outcome) for counts in (before, after)]
    both = frames[0].merge(frames[1], on=["model", "label"])
    half = {}
    for model, rows in both.groupby("model"):
        drops = (rows["accuracy_x"] - rows["accuracy_y"]).to_numpy()
        few = len(drops) < 2
        half[str(model)] = np.nan if few else t_quantile(len(drops) - 1) * drops.std(ddof=1) / np.sqrt(len(drops))
    return half


def _class_drops(sets: Mapping[str, Counts], outcome: Outcome) -> pd.DataFrame:
    (_, before), *others = ((name, cell_statistics.accuracy(counts, outcome=outcome)) for name, counts in sets.items())
    rows = [_against(before, after, ["model", "label"]).assign(dataset=name, part="") for name, after in others]
    columns = ["model", "dataset", "label", *DROPS[3:-2]]
    return pd.concat(rows, ignore_index=True)[columns].sort_values("drop", ascending=False, kind="stable")


def _effective(
    frames: Mapping[tuple[str, str], Counts], names: list[str], outcome: Outcome, average: Average,
    baseline: Sequence[str] | None, clusters: Mapping[str, str] | None, resamples: int, seed: int,
) -> Between:  # fmt: skip
    """Return logit(accuracy) − the line of the other models over logit(reference), on the scale of accuracies."""
    models = frames[names[0], ""].models
    line = [at for at, name in enumerate(models) if baseline is None or name in set(baseline)]
    if len(set(line)) < LEAST_MODELS - (len(line) < len(models)):
        reason = (
            f"{len(line)} models make no line: effective robustness holds each model against a line through at least "
            "three others."
        )
        return Between(pd.DataFrame(columns=EFFECTIVE), reason, reason)
    drawn = [
        _resampled(frames[name, ""], outcome, average, clusters, resamples, seed + at) for at, name in enumerate(names)
    ]
    tables = []
    for dataset, (shifted, n) in zip(names[1:], drawn[1:], strict=True):
        clean, clean_n = drawn[0]
        x, y = logits(clean, clean_n), logits(shifted, n)
        predicted, slope = np.empty_like(y), np.empty_like(y)
        for at in range(len(models)):
            others = [other for other in line if other != at]
            fitted, slope[:, at] = through(x, y, others)
            predicted[:, at] = scipy_special.expit(fitted[:, at])
        effective = shifted - predicted
        low, high = interval(effective[1:])
        columns = (models, dataset, clean[0], shifted[0], predicted[0], effective[0], low, high, slope[0])
        sizes = [len([other for other in line if other != at]) for at in range(len(models))]
        tables.append(pd.DataFrame(dict(zip(EFFECTIVE, (*columns, sizes), strict=True))))
    table = pd.concat(tables, ignore_index=True)
    if table["slope"].isna().any():
        reason = f"Some models are equally right on {names[0]}, so accuracy there predicts nothing."
        return Between(pd.DataFrame(columns=EFFECTIVE), reason, reason)
    clear = int(((table["low"] > 0) | (table["high"] < 0)).sum())
    return Between(table, f"{clear} of {len(table)} lie clearly off the line of the other models.", "")


def _resampled(
    counts: Counts, outcome: Outcome, average: Average, clusters: Mapping[str, str] | None, resamples: int, seed: int
) -> tuple[Floats, float]:
    """Return accuracies of the models (first row) and in resamples of images or clusters, and the number of images."""
    laid = grid(counts, outcome=outcome, conditions=[ORIGINAL])
    estimate, parts = averages(laid.rate()[:, :, 0], laid.classes, average)
    sources = [str(source) for source in laid.sources]
    groups = codes(np.arange(len(sources)))[0] if clusters is None else cluster_codes(sources, clusters)
    moved = resampled_sums(parts, groups, resamples=resamples, seed=seed)
    return np.concatenate([estimate[None], estimate + moved]), float(len(sources))
