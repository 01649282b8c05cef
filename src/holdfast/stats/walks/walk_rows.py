"""Dynamic rows → a row per image and walk, and the FMR family of each setting."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.stats.walks.fmr import fmr

if TYPE_CHECKING:
    import pandas as pd

DYNAMIC = "dynamic"
PERTURBED, RECONSTRUCTION, RANDOM_WALK = "perturbed", "reconstruction", "random_walk"
COLUMNS = [
    "kind", "condition", "model", "label", "sample_id", "source_id", "parameters", "status", "correct",
    "correct_restricted",
]  # fmt: skip
"""What ``paired`` reads."""

SETTING = ["generator", "oracle", "space", "parameters"]
"""What tells the walks of one run apart; ``parameters`` alone would do, the others are parts of it to be read."""

_KEY = ["model", "sample_id", "parameters"]


def paired(rows: pa.Table, *, space: str | None = None) -> pd.DataFrame:
    """A row per model × setting × image: what ``stats.walks.fmr.fmr`` takes, and the columns of ``SETTING``.

    Walks that were rejected count with ``validated`` false; images whose original or walk has an error are left out.
    A baseline that was not run, or whose image the oracle rejected, is missing.

    Args:
        rows: the one table, at least ``COLUMNS``.
        space: whether right answers count among the dataset's classes (``dataset``) or over all outputs (``all``);
            by default as each walk's parameters say.
    """
    import pandas as pd

    if space not in (None, "dataset", "all"):
        raise UserError(f"the label space is dataset or all, not {space!r}")
    frame = rows.select(COLUMNS).filter(pc.field("kind") == DYNAMIC).to_pandas()
    for column in frame.columns:
        if isinstance(frame[column].dtype, pd.CategoricalDtype):
            frame[column] = frame[column].astype(str)
    told = {text: json.loads(text) for text in frame["parameters"].unique()}
    frame["size"] = [told[text].get("size", 0) for text in frame["parameters"]]
    walks = frame[(frame["condition"] == PERTURBED) & frame["status"].isin(["ok", "rejected"])].copy()
    for part in ("generator", "oracle", "space"):
        walks[part] = [str(told[text].get(part, "")) for text in walks["parameters"]]
    counted = walks["space"] if space is None else pd.Series(space, walks.index)
    walks["space"], walks["validated"] = counted, walks["status"] == "ok"

    def right(condition: str, key: list[str]) -> pd.Series:
        """Whether the answers under another condition were right, in the order of the walks: 1, 0 or missing."""
        some = frame[(frame["condition"] == condition) & (frame["status"] == "ok")].drop_duplicates(key)
        met = walks[key].merge(some[[*key, "correct", "correct_restricted"]], on=key, how="left")
        met.index = walks.index
        chosen = met["correct"].where(walks["space"] == "all", met["correct_restricted"])
        known: pd.Series = chosen.astype("float64")
        return known

    walks["right_original"] = right(ORIGINAL, ["model", "sample_id", "size"])
    walks["right_perturbed"] = right(PERTURBED, _KEY)
    walks["right_reconstruction"] = right(RECONSTRUCTION, _KEY)
    walks["right_random_walk"] = right(RANDOM_WALK, _KEY)
    walks = walks[walks["right_original"].notna()]
    walks["right_original"] = walks["right_original"].astype(bool)
    outcomes = ["right_original", "validated", "right_perturbed", "right_reconstruction", "right_random_walk"]
    found: pd.DataFrame = walks[["model", "label", "sample_id", "source_id", *SETTING, *outcomes]]
    return found.reset_index(drop=True)


def fmr_of_rows(rows: pa.Table, *, space: str | None = None) -> pd.DataFrame:
    """``fmr_of_walks`` of a table's walks; a UserError where it has none."""
    walks = paired(rows, space=space)
    if walks.empty:
        raise UserError("there is no finished walk in these rows; holdfast perturb makes them")
    return fmr_of_walks(walks)


def fmr_of_walks(walks: pd.DataFrame) -> pd.DataFrame:
    """``stats.walks.fmr.fmr`` for every setting among what ``paired`` gave: its columns, behind those of ``SETTING``.

    Baselines that no row of a setting has are left out.
    """
    import pandas as pd

    found = []
    for setting, group in walks.groupby(SETTING, sort=False):
        unused = [name for name in ("right_reconstruction", "right_random_walk") if group[name].isna().all()]
        table = fmr(group.drop(columns=unused))
        for place, name in enumerate(SETTING):
            table.insert(place, name, str(setting[place]))
        found.append(table)
    return pd.concat(found, ignore_index=True)
