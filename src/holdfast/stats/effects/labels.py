"""What conditions cost each label of photos that have several."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.lazy import pd
from holdfast.core.schema import CLASSIFY
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.drops import drops

COLUMNS = [
    "task", "kind", "sample_id", "source_id", "fold", "condition", "variant", "parameters", "model", "trained_on",
    "label", "donor_id", "donor_label", "prediction_restricted", "correct", "correct_restricted", "confidence",
    "status", "error", "image_sha256",
]  # fmt: skip
_SHOWN = ["label", "model", "condition", "n", "original", "accuracy", "drop", "low", "high", "recall", "alarms"]


def label_drops(rows: pa.Table, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return a row per label × model × condition: what the condition costs the label, paired by photo.

    ``original`` and ``accuracy`` are means of the share of yes where photos have the label and of no where they have
    not; ``drop`` with ``low`` and ``high``, which hold for all labels together (Bonferroni); ``recall``: share of yes
    where the label is there; ``alarms``: share of yes where it is not.
    """
    # Rows of one label are a classification in two classes, so the statistics of classifiers are asked, label by label.
    asked = pc.replace_substring_regex(rows["sample_id"].cast(pa.string()), ".*#", "")
    rows = rows.set_column(0, "task", pa.array([CLASSIFY.name] * len(rows)))
    labels = sorted(asked.unique().to_pylist())
    tables = []
    for label in labels:
        counts = reduce(rows.filter(pc.equal(asked, label)))
        table = drops(counts, resamples=resamples, seed=seed, level=1 - 0.05 / len(labels)).assign(label=label)
        cells = counts.cells.assign(present=counts.cells["label"].astype(str) == label)
        hits = cells.astype({"model": str, "condition": str}).groupby(["model", "condition", "present"])[["n", "right"]]
        right = (summed := hits.sum())["right"] / summed["n"]
        for column, present in (("recall", True), ("alarms", False)):
            share = [right.get((row.model, row.condition, present)) for row in table.itertuples()]
            table[column] = [None if each is None else each if present else 1 - each for each in share]
        tables.append(table)
    return pd.concat(tables, ignore_index=True)[_SHOWN] if tables else pd.DataFrame(columns=_SHOWN)
