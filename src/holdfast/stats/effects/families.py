"""What each family of scenarios costs, per model and for groups of models such as CNNs and transformers.

And shape against texture: which of two classes a model names when the object's texture is another class's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import from_counts
from holdfast.stats.core.bootstrap import OF_CHANGES, RESAMPLES, Floats, t_quantile
from holdfast.stats.core.cells import Average, design_effect, newcombe, pooled_accuracy, wilson
from holdfast.stats.core.grid import holm, judged
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.drops import drops
from holdfast.stats.effects.verdict import what_it_holds
from holdfast.stats.models.between import AverageOptions, common

EVERY = "all families"  # The row that averages over the families, each counting the same

CNN, TRANSFORMER = "CNN", "transformer"
_TRANSFORMERS = (
    r"vit|deit|swin|beit|cait|xcit|pvt|twins|coat|eva\d|flexivit|hiera|dinov2|segformer|\bdpt\b|mixformer|transformer|"
    r"siglip|crossformer|davit|nest_|tnt_|volo|gcvit|maxvit"
)
_CNNS = (
    r"res[a-z]*net|resnext|\brn\d|densenet|vgg|alexnet|mobilenet|efficientnet|inception|convnext|regnet|squeezenet|"
    r"shufflenet|mnasnet|lenet|ghostnet|nfnet|hrnet|\bdla|darknet|xception|repvgg|convmixer|rexnet|fbnet|hardcorenas|"
    r"unet|deeplab|pspnet|\bfpn\b|upernet|linknet|yolo"
)

DROPS = ["model", "group", "family", "drop", "low", "high", "p", "p_holm", "conditions", "n"]
GROUPED = ["group", "family", "drop", "low", "high", "models_low", "models_high", "models", "n"]
CONTRASTS = ["family", "first", "second", "difference", "low", "high", "p", "p_holm", "models_low", "models_high"]


@dataclass(frozen=True)
class FamilyDrops:
    """Drops by family of scenarios, or the ``reason`` why there are none.

    ``models``: a row per model × family (and ``EVERY``). ``groups``: a row per group of models × family; ``low``,
    ``high``: other images, these models; ``models_low``, ``models_high``: other models, too (t over the models' drops).
    ``contrasts``: a row per family × pair of groups: ``difference`` = first − second, with the same two intervals (the
    second is Welch's).
    """

    models: pd.DataFrame
    groups: pd.DataFrame
    contrasts: pd.DataFrame
    unknown: list[str]  # models that belong to no group
    reason: str  # why all of that is empty


def architecture(name: str) -> str:
    """Return ``CNN`` or ``transformer`` as a model's name says, '' if it says neither.

    A name with both words (a transformer on a ResNet's features, UPerNet on Swin) is a transformer.
    """
    plain = name.partition("?")[0].lower().replace("-", "_").replace("_", " ")
    for kind, pattern in ((TRANSFORMER, _TRANSFORMERS), (CNN, _CNNS)):
        if re.search(pattern, plain) or re.search(pattern, plain.replace(" ", "_")):
            return kind
    return ""


def group_models(models: Sequence[str], given: Mapping[str, Sequence[str]] | None = None) -> dict[str, str]:
    """Return model → group: by the patterns of each group if some are given, else CNNs and transformers by name."""
    if not given:
        return {name: architecture(name) for name in models}
    group_of = dict.fromkeys(models, "")
    for group, patterns in given.items():
        for pattern in patterns:
            members = [name for name in models if name == pattern or fnmatchcase(name, pattern)]
            if not members:
                raise UserError(f"No model is called {pattern!r} (group {group}); there are {', '.join(models)}.")
            for name in members:
                if group_of[name] not in ("", group):
                    raise UserError(f"{name} is in two groups, {group_of[name]} and {group}: a model has one.")
                group_of[name] = group
    return group_of


def family_drops(
    counts: Counts,
    families: Mapping[str, str],
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    **options: Unpack[AverageOptions],
) -> FamilyDrops:
    """Return what each family of scenarios costs, on the images that every model answered.

    ``families``: condition → family; conditions that are not in it are left out. ``groups``: group → names of models or
    patterns; by default CNNs and transformers, known from names.
    """
    empty = (pd.DataFrame(columns=DROPS), pd.DataFrame(columns=GROUPED), pd.DataFrame(columns=CONTRASTS))
    named = [name for name in counts.conditions if name in families and name not in counts.same_images]
    if ORIGINAL not in counts.conditions or not named:
        reason = "Originals and at least one scenario of a family are needed for the drop per family."
        return FamilyDrops(*empty, [], reason)
    shared = common(counts, **options | AverageOptions(conditions=[ORIGINAL, *named]))
    names = [name for name in shared.conditions if name != ORIGINAL]
    if ORIGINAL not in shared.conditions or not names:
        return FamilyDrops(*empty, [], "There is no image that every model answered under original and a scenario.")
    everything = shared.everything
    clean = everything[:, :, shared.conditions.index(ORIGINAL)]
    kinds = list(dict.fromkeys(families[name] for name in names))
    members = [[at for at, name in enumerate(shared.conditions) if families.get(name) == kind] for kind in kinds]
    drops = np.stack([clean - everything[:, :, own].mean(axis=2) for own in members], axis=2)
    drops = np.concatenate([drops, drops.mean(axis=2, keepdims=True)], axis=2)  # (1 + resamples, models, families)
    kinds, sizes = [*kinds, EVERY], [*map(len, members), len(names)]
    group_of = group_models(shared.models, groups)
    order = list(groups or (CNN, TRANSFORMER))
    present = [group for group in order if group in group_of.values()]
    by_group = {group: [at for at, name in enumerate(shared.models) if group_of[name] == group] for group in present}
    return FamilyDrops(
        _model_rows(drops, shared.models, kinds, sizes, group_of, shared.photos),
        _group_rows(drops, kinds, by_group, shared.photos) if by_group else empty[1],
        _contrast_rows(drops, kinds, by_group, shared.photos) if len(by_group) > 1 else empty[2],
        [name for name in shared.models if not group_of[name]],
        "",
    )


def _model_rows(
    drops: Floats, models: list[str], kinds: list[str], sizes: list[int], group_of: Mapping[str, str], photos: int
) -> pd.DataFrame:
    flat = drops.reshape(len(drops), -1)
    low, high, p = judged(flat[0], flat[1:] - flat[0], photos)
    frame = pd.DataFrame(
        {
            "model": np.repeat(models, len(kinds)),
            "group": np.repeat([group_of[name] for name in models], len(kinds)),
            "family": kinds * len(models),
            "drop": flat[0],
            "low": low,
            "high": high,
            "p": p,
            "p_holm": holm(p),
            "conditions": sizes * len(models),
            "n": photos,
        }
    )
    return frame[DROPS]


def _group_rows(drops: Floats, kinds: list[str], by_group: Mapping[str, list[int]], photos: int) -> pd.DataFrame:
    rows = []
    for group, members in by_group.items():
        mean = drops[:, members].mean(axis=1)
        low, high, _ = judged(mean[0], mean[1:] - mean[0], photos)
        count, spread = len(members), np.full(len(kinds), np.nan)
        if count > 1:  # t · s / √k over models
            spread = t_quantile(count - 1) * drops[0, members].std(axis=0, ddof=1) / np.sqrt(count)
        for at, kind in enumerate(kinds):
            value = mean[0, at]
            ends = (value - spread[at], value + spread[at])
            rows.append((group, kind, value, low[at], high[at], *ends, count, photos))
    return pd.DataFrame(rows, columns=GROUPED)


def _contrast_rows(drops: Floats, kinds: list[str], by_group: Mapping[str, list[int]], photos: int) -> pd.DataFrame:
    rows = []
    for first, second in combinations(by_group, 2):
        ours, theirs = by_group[first], by_group[second]
        apart = drops[:, ours].mean(axis=1) - drops[:, theirs].mean(axis=1)
        low, high, p = judged(apart[0], apart[1:] - apart[0], photos, possible=OF_CHANGES)
        half = _welch(drops[0, ours], drops[0, theirs])
        for at, kind in enumerate(kinds):
            value = apart[0, at]
            rows.append((kind, first, second, value, low[at], high[at], p[at], 0.0, value - half[at], value + half[at]))
    frame = pd.DataFrame(rows, columns=CONTRASTS)
    return frame.assign(p_holm=holm(frame["p"].to_numpy()))


def _welch(ours: Floats, theirs: Floats) -> Floats:
    """Return half of Welch's interval of a difference of means over models; NaN if a group has one model."""
    if min(len(ours), len(theirs)) < 2:
        return np.full(ours.shape[1], np.nan)
    parts = [values.var(axis=0, ddof=1) / len(values) for values in (ours, theirs)]
    total = parts[0] + parts[1]
    spent = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (ours, theirs), strict=True))
    freedom = np.divide(total**2, spent, out=np.ones_like(total), where=np.asarray(spent) > 0)
    return np.array([t_quantile(float(f)) * np.sqrt(v) for f, v in zip(freedom, total, strict=True)])


COLUMNS = ["model", "value", "n", "error", "error_low", "error_high", "rest", "gap", "low", "high", "classes"]
UNKNOWN = "(not given)"
FOLD = "fold"  # the attribute whose values are repetitions of one measurement
MOST_VALUES = 50  # more different texts are names of images rather than groups
_FEW_NUMBERS = 12  # so many different numbers are groups of their own; more are cut into quarters
IN_TAIL = 800  # resamples per group that leave 20 beyond each end of a simultaneous interval


def grouped(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the group of each value: the value itself, or the quarter of the images in which a number is."""
    texts = {name: str(value) for name, value in values.items()}
    numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce")
    if numbers.isna().any() or numbers.nunique() <= _FEW_NUMBERS:
        return texts
    quarters = pd.qcut(numbers, 4, duplicates="drop")
    order = {part: place for place, part in enumerate(quarters.cat.categories, start=1)}
    return {str(name): f"{order[part]}: {part.left:.4g} to {part.right:.4g}" for name, part in quarters.items()}


def simultaneous(groups: int) -> float:
    """Return the level of each group's interval at which those of all groups hold together, in 95 of 100 cases."""
    return 1 - 0.05 / max(groups, 1)


def attribute_errors(
    counts: Counts, values: Mapping[str, str], *, outcome: Outcome = "full", average: Average = "macro"
) -> pd.DataFrame:
    """Return each model's error rate on the images with each value of an attribute next to the others', worst first.

    Originals count, or all conditions if there are none. A row per model × value: ``n`` images, ``error`` = 1 −
    accuracy with ``error_low`` and ``error_high``; ``rest``: the error on all other images of the same classes; ``gap``
    = error − rest with Newcombe's interval ``low``, ``high`` (other images on both sides); ``classes`` that the group
    has. Intervals hold for all groups of a model together (Bonferroni).

    ``values``: source_id → value; images without one are a group of their own.
    """
    cells = counts.cells
    if ORIGINAL in counts.conditions:
        cells = cells[cells["condition"] == ORIGINAL]
    source = cells["source_id"].astype(str)
    group_of = pd.Series(source.unique(), source.unique()).map(values).fillna(UNKNOWN)
    classes = cells["label"].astype(str).groupby(source.map(group_of)).agg(set)
    place = {name: number for number, name in enumerate(classes.index)}
    models = []
    for model in counts.models:
        answers = from_counts(replace(counts, cells=cells, confusion=counts.confusion[:0]), model, outcome=outcome)
        answers = answers.part(answers.on(answers.base()))
        number = np.array([place[group_of[name]] for name in answers.sources], np.intp)[answers.source]
        models.append((model, answers, number))
    rows = []
    level = simultaneous(len(classes))
    for name, labels in classes.items():
        for model, answers, number in models:
            own = number == place[name]
            if own.any():
                others = ~own & np.array([label in labels for label in answers.labels])[answers.label]
                ours, rest = (
                    pooled_accuracy(answers.part(side), average=average, level=level) for side in (own, others)
                )
                gap = newcombe((rest.value, rest.low, rest.high), (ours.value, ours.low, ours.high))
                ends = (1 - ours.value, 1 - ours.high, 1 - ours.low, 1 - rest.value, *map(float, gap))
                rows.append((model, name, ours.n, *ends, len(labels)))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.sort_values("error", ascending=False, kind="stable", ignore_index=True)


def attribute_drops(
    counts: Counts,
    values: Mapping[str, str],
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return what each condition costs each model in each group, worst first; columns of ``drops``, and ``value``.

    Intervals hold for all groups of a model and condition together (Bonferroni).
    """
    groups = len({values.get(source, UNKNOWN) for source in counts.cells["source_id"].astype(str).unique()})
    frame = by_group(
        counts, values, drops, outcome=outcome, average=average, resamples=max(resamples, IN_TAIL * groups), seed=seed,
        level=simultaneous(groups),
    )  # fmt: skip
    return frame.sort_values("drop", ascending=False, kind="stable", ignore_index=True)


def group_verdicts(counts: Counts, values: Mapping[str, str], **settings: Any) -> pd.DataFrame:
    """Return ``what_it_holds`` of each group of images (column ``value``), the largest background effect first."""
    frame = by_group(counts, values, what_it_holds, **settings)
    return frame.sort_values("background_effect", ascending=False, kind="stable", ignore_index=True)


def by_group(
    counts: Counts, values: Mapping[str, str], statistic: Callable[..., pd.DataFrame], **options: Any
) -> pd.DataFrame:
    """Return a statistic of each group of images, below each other; the column ``value`` names the group."""
    value = counts.cells["source_id"].astype(str).map(values).fillna(UNKNOWN)
    tables = [
        statistic(in_group(counts, (value == name).to_numpy()), **options).assign(value=name)
        for name in sorted(value.unique())
    ]
    return pd.concat(tables, ignore_index=True)


def in_group(counts: Counts, chosen: NDArray[np.bool_]) -> Counts:
    """Return the counts of some of the cells."""
    cells = counts.cells[chosen]
    present = set(cells["label"].astype(str))
    return replace(counts, cells=cells, classes=[label for label in counts.classes if label in present])


CONFLICTS = ("stylised", "stylised_object")
"""Scenarios that put another class's texture on the object."""

SHAPES = ["model", "trained_on", "condition", "n", "shape", "texture", "neither", "share", "low", "high"]


def shape_share(counts: Counts) -> pd.DataFrame:
    """Return each model's share of answers by shape among those by shape or by texture (Geirhos et al. 2019).

    A row per model × condition whose textures come from images of another known class: ``n`` images, how many were
    named after their ``shape`` (the image's class), their ``texture`` (the style's) or ``neither``, among the dataset's
    classes; ``share`` = shape / (shape + texture) with Wilson's interval on n / (design effect), two-way over images
    and styles. As published, only images whose original the model names rightly count (all if there are none).
    Images answered with neither are not part of the share: read it together with their number.
    """
    cells = counts.cells.assign(
        **{name: counts.cells[name].astype(str) for name in ("model", "trained_on", "label", "donor_label")}
    )
    scenario = cells["condition"].astype(str).str.split(r"[@ ]", regex=True).str[0]
    chosen = cells[scenario.isin(CONFLICTS) & cells["donor_label"].isin(counts.classes)]
    chosen = chosen[chosen["donor_label"] != chosen["label"]]
    keys = ["model", "trained_on", "source_id"]
    originals = cells[cells["condition"] == ORIGINAL]
    if len(originals):
        right = originals[originals["right_restricted"] == originals["n"]][keys].drop_duplicates()
        chosen = chosen.merge(right, on=keys)
    rows = []
    for (model, trained_on, condition), group in chosen.groupby(
        ["model", "trained_on", "condition"], sort=False, observed=True
    ):
        n, shape, texture = (int(group[name].sum()) for name in ("n", "right_restricted", "captured"))
        decided = group.assign(n=group["right_restricted"] + group["captured"])
        decided = decided[decided["n"] > 0]
        row = [model, trained_on, str(condition), n, shape, texture, n - shape - texture]
        if decided.empty:
            rows.append([*row, *[float("nan")] * 3])
            continue
        effect = design_effect(decided, "right_restricted", by_class=False)
        low, high = wilson(shape / effect, (shape + texture) / effect)
        rows.append([*row, shape / (shape + texture), float(low), float(high)])
    order = {name: place for place, name in enumerate(counts.conditions)}
    frame = pd.DataFrame(rows, columns=SHAPES)
    return frame.sort_values(
        ["condition", "model"], key=lambda column: column.map(order) if column.name == "condition" else column,
        kind="stable", ignore_index=True,
    )  # fmt: skip
