"""The measure ``count-error``, the mean error of the counts, and its section of the report."""

from __future__ import annotations

from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.measures import Measure, MeasureColumn
from holdfast.core.names import condition_names
from holdfast.reports.page.charts import dot_figure
from holdfast.reports.page.parts import Section
from holdfast.reports.page.sections import ReportEvidence, ReportSection, of_task
from holdfast.stats.core.bootstrap import deviations, estimated

SETTING = ["condition", "variant", "parameters"]


def count_error(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean error under each condition, with a bootstrap interval over images."""
    answered = rows[rows["status"] == "ok"].sort_values("source_id")
    names: dict[Any, str] = condition_names(answered[SETTING].itertuples(index=False, name=None))
    found = []
    for (model, *setting), group in answered.groupby(["model", *SETTING], observed=True):
        error = group["prediction"].astype(int) - group["label"].astype(int)
        mean = error.mean()
        estimate = estimated(mean, mean + deviations((error - mean) / len(error), group["source_id"]))
        found.append((model, names[tuple(setting)], len(error), mean, estimate.low, estimate.high))
    return pd.DataFrame(found, columns=[column.name for column in COUNT_ERROR.columns])


COUNT_ERROR = Measure(
    question="How far off are the counts?",
    function=count_error,
    reads=("model", *SETTING, "source_id", "status", "label", "prediction"),
    columns=(
        MeasureColumn("model", "Name of the model."),
        MeasureColumn("condition", "The condition."),
        MeasureColumn("images", "Number of images.", "integer"),
        MeasureColumn("error", "Mean of count minus truth.", "number", "low", "high"),
        MeasureColumn("low", "Lower end of the 95 % interval.", "number"),
        MeasureColumn("high", "Upper end of the 95 % interval.", "number"),
    ),
    tasks=("count",),
)


def build(report: ReportEvidence) -> Section:
    table = report.measure("count-error")
    worst = table.iloc[int(table["error"].abs().argmax())]
    lead = f"{worst['model']} is off by {worst['error']:+.1f} coins on average under {worst['condition']}."
    rows = table.rename(columns={"condition": "row", "error": "estimate"}).assign(solid=True)
    chart = dot_figure("count_errors", "Mean error of the counts", lead, rows, axis="count minus truth")
    return Section("count-errors", COUNT_ERROR.question, [lead], [chart])


COUNT_ERRORS = ReportSection(build, applies=of_task("count"), measures=("count-error",))
