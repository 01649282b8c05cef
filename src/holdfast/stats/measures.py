"""The measures of Holdfast itself, as ``holdfast.registry.measures`` holds them."""

from __future__ import annotations

import pyarrow as pa

from holdfast.core.lazy import pd
from holdfast.core.measures import Measure, MeasureColumn
from holdfast.core.schema import PREDICTIONS
from holdfast.stats.core.cells import summary
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.drops import drops

READS = (
    "task", "kind", "sample_id", "source_id", "fold", "condition", "variant", "parameters", "model", "trained_on",
    "label", "prediction_restricted", "correct", "correct_restricted", "confidence", "donor_id", "donor_label",
    "image_sha256", "status", "error",
)  # fmt: skip


def _counts(rows: pd.DataFrame) -> Counts:
    schema = pa.schema([PREDICTIONS.field(name) for name in READS])  # pandas has no whole numbers with gaps
    return reduce(pa.Table.from_pandas(rows, schema, preserve_index=False))


_KEYS = (
    MeasureColumn("model", "Name of the model."),
    MeasureColumn("condition", "Condition of the images."),
    MeasureColumn("n", "Number of images.", "integer"),
)
ACCURACY = Measure(
    "How often is each model right under each condition?",
    lambda rows: summary(_counts(rows)),
    READS,
    (
        *_KEYS,
        MeasureColumn("accuracy", "Accuracy, every class counted the same.", "percent", "low", "high"),
        MeasureColumn("low", "Lower end of its 95 % interval.", "percent"),
        MeasureColumn("high", "Upper end of its 95 % interval.", "percent"),
        MeasureColumn("worst_class", "The class with the lowest accuracy."),
        MeasureColumn("worst_class_accuracy", "Accuracy of that class.", "percent"),
    ),
)
DROPS = Measure(
    "What does each condition cost each model?",
    lambda rows: drops(_counts(rows)),
    READS,
    (
        *_KEYS,
        MeasureColumn("original", "Accuracy on the originals of these images.", "percent"),
        MeasureColumn("accuracy", "Accuracy under the condition.", "percent"),
        MeasureColumn("drop", "Accuracy drop: original minus accuracy.", "points", "low", "high"),
        MeasureColumn("low", "Lower end of its 95 % interval.", "points"),
        MeasureColumn("high", "Upper end of its 95 % interval.", "points"),
        MeasureColumn("lost", "Images that are right as they are and wrong under the condition.", "integer"),
        MeasureColumn("gained", "Images that are wrong as they are and right under the condition.", "integer"),
        MeasureColumn("p", "p value of the drop.", "p"),
    ),
)
