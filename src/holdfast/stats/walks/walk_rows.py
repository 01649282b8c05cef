"""Dynamic rows → a row per image and walk, and the FMR family of each setting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.files import stored_object
from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import coded, equals, keep
from holdfast.stats.core.bootstrap import Codes, Floats, codes, sums
from holdfast.stats.walks.fmr import BASELINES, fmr, influences

DYNAMIC = "dynamic"
PERTURBED, RECONSTRUCTION, RANDOM_WALK = "perturbed", "reconstruction", "random_walk"
COLUMNS = [
    "kind", "condition", "model", "label", "sample_id", "source_id", "parameters", "status", "correct",
    "correct_restricted",
]  # fmt: skip
"""What ``paired`` reads."""

SETTING = ["generator", "oracle", "space", "parameters"]
"""What distinguishes the walks of one run; ``parameters`` alone would do, the others are parts of it to be read."""


def paired(rows: pa.Table, *, space: str | None = None) -> pd.DataFrame:
    """Return a row per model × setting × image: what ``stats.walks.fmr.fmr`` takes, and the columns of ``SETTING``.

    Walks that were rejected count with ``validated`` false; images whose original or walk has an error are left out.
    A baseline that was not run, or whose image the oracle rejected, is missing.

    ``rows``: the one table, at least ``COLUMNS``. ``space``: whether right answers count among the dataset's classes
    (``dataset``) or over all outputs (``all``); by default as each walk's parameters say.
    """
    if space not in (None, "dataset", "all"):
        raise UserError(f"the label space must be dataset or all, not {space!r}")
    table = keep(rows.select(COLUMNS), "kind", DYNAMIC)
    columns = {name: coded(table[name]) for name in ("model", "label", "sample_id", "source_id", "parameters")}
    parameters, texts = columns["parameters"]
    settings = [setting_from(text) for text in texts]
    size, sizes = codes(np.array([str(setting.get("size", 0)) for setting in settings], object)[parameters])
    answered = equals(table, "status", "ok")
    walked = equals(table, "condition", PERTURBED) & (answered | equals(table, "status", "rejected"))
    place = np.flatnonzero(walked)
    words = {name: np.array([*names, None], object)[numbers[place]] for name, (numbers, names) in columns.items()}
    frame = pd.DataFrame(words)
    for part in ("generator", "oracle", "space"):
        frame[part] = np.array([*(str(setting.get(part, "")) for setting in settings), None], object)[parameters[place]]
    if space is not None:
        frame["space"] = space
    frame["validated"] = answered[place]
    image = columns["model"][0] * np.intp(len(columns["sample_id"][1])) + columns["sample_id"][0]
    by_size, by_setting = image * np.intp(max(sizes, 1)) + size, image * np.intp(len(texts)) + parameters
    full, restricted = (
        table[name].cast(pa.float64()).to_numpy(zero_copy_only=False) for name in ("correct", "correct_restricted")
    )
    for name, condition, key in (
        ("right_original", ORIGINAL, by_size),
        ("right_perturbed", PERTURBED, by_setting),
        ("right_reconstruction", RECONSTRUCTION, by_setting),
        ("right_random_walk", RANDOM_WALK, by_setting),
    ):
        row = _first(np.flatnonzero(equals(table, "condition", condition) & answered), key, place)
        chosen = np.where(frame["space"] == "all", np.append(full, np.nan)[row], np.append(restricted, np.nan)[row])
        frame[name] = chosen.astype(np.float64)
    frame = frame[frame["right_original"].notna()]
    frame["right_original"] = frame["right_original"].astype(bool)
    outcomes = ["right_original", "validated", "right_perturbed", "right_reconstruction", "right_random_walk"]
    table_out: pd.DataFrame = frame[["model", "label", "sample_id", "source_id", *SETTING, *outcomes]]
    return table_out.reset_index(drop=True)


def setting_from(text: str) -> dict[str, Any]:
    """Return a walk's parameters; empty if the text is not a JSON object."""
    try:
        setting = stored_object(text, "parameters")
    except (ValueError, RecursionError):
        setting = None
    return setting if isinstance(setting, dict) else {}


def _first(candidates: Codes, key: Codes, place: Codes) -> Codes:
    """Return for each row ``place`` the first candidate row with its key, −1 if there is none."""
    if not len(candidates):
        return np.full(len(place), -1, np.intp)
    known, first = np.unique(key[candidates], return_index=True)
    at = np.minimum(np.searchsorted(known, key[place]), len(known) - 1)
    return np.where(known[at] == key[place], candidates[first[at]], -1)


def fmr_of_rows(rows: pa.Table, *, space: str | None = None) -> pd.DataFrame:
    """Return ``fmr_of_walks`` of a table's walks; a UserError if it has none."""
    walks = paired(rows, space=space)
    if walks.empty:
        raise UserError("there is no finished walk in these rows; holdfast perturb makes them")
    return fmr_of_walks(walks)


def fmr_of_walks(walks: pd.DataFrame) -> pd.DataFrame:
    """Return ``fmr`` for every setting among what ``paired`` gave: its columns, behind those of ``SETTING``."""
    tables = []
    for setting, group in walks.groupby(SETTING, sort=False):
        unused = [name for name in ("right_reconstruction", "right_random_walk") if group[name].isna().all()]
        table = fmr(group.drop(columns=unused))
        for place, name in enumerate(SETTING):
            table.insert(place, name, str(setting[place]))
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


SHORT = {
    "standard_accuracy": "SA", "perturbed_accuracy": "PA", "validation_rate": "VR", "fmr": "FMR"
}  # fmt: skip


def side_by_side(measures: pd.DataFrame) -> pd.DataFrame:
    """Return SA, PA, VR and FMR of ``fmr_of_rows`` as columns, each with ``_low`` and ``_high``."""
    several = [name for name in SETTING if measures[name].nunique() > 1]
    rows = []
    for key, group in measures.groupby([*SETTING, "model", "label"], sort=False, observed=True):
        of = group.set_index("measure")
        row: dict[str, Any] = dict(zip([*SETTING, "model", "label"], key, strict=True)) | {"n": int(of["n"].iloc[0])}
        for measure, short in SHORT.items():
            own = of.loc[measure]
            row |= {short: own["estimate"], f"{short}_low": own["low"], f"{short}_high": own["high"]}
        rows.append(row | {"reason": of.loc["fmr", "reason"] or None})
    return pd.DataFrame(rows).drop(columns=[name for name in SETTING if name not in several])


def setting_of(table: pa.Table) -> dict[str, Any]:
    """Return the parameters of a table's walks; a UserError if it has none, or walks of several settings."""
    walks = keep(keep(table.select(["kind", "condition", "parameters"]), "kind", DYNAMIC), "condition", PERTURBED)
    texts = coded(walks["parameters"])[1]
    if len(texts) != 1:
        raise UserError(f"this table has walks of {len(texts)} settings; an entry is about one")
    setting = setting_from(texts[0])
    if not setting:
        raise UserError("the parameters of this table's walks are not a JSON object")
    return setting


def walks_of(table: pa.Table) -> pd.DataFrame:
    """Return ``paired`` of a table with one model and one setting, without baselines that were not run."""
    setting_of(table)
    walks = paired(table)
    if walks.empty:
        raise UserError("there is no finished walk in this table; holdfast perturb makes them")
    return walks.drop(columns=[name for name in BASELINES if walks[name].isna().all()])


def walk_influence(walks: pd.DataFrame) -> tuple[list[str], dict[str, Floats]]:
    """Return images, and what each adds to the deviation of FMR and its parts, (images,); empty without an FMR."""
    sources, code = np.unique(walks["source_id"].to_numpy(str), return_inverse=True)
    if not walks["right_original"].any() or not walks["validated"].any():
        return list(sources), {}
    return list(sources), {name: sums(code, values, len(sources)) for name, values in influences(walks).items()}
