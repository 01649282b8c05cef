"""Runs and gates in experiment trackers: numbers with intervals, charts, the report and the run's fingerprint."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import MachineError, UserError, first_line, missing_extra
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import unknown
from holdfast.results import Results

if TYPE_CHECKING:
    import pandas as pd

    from holdfast.stats.models.gate import Gate

PROJECT = "holdfast"
"""Name of the experiment or project if the tracker's own settings name none."""

# Trackers read these when they are imported: nothing is reported to their makers, and an absent server is given up on.
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "WANDB_INIT_TIMEOUT": "30",
}  # fmt: skip


@dataclass(frozen=True)
class TrackedRecord:
    """What is sent to a tracker."""

    name: str
    folder: Path  # where a tracker that writes files may write
    facts: dict[str, str]
    numbers: dict[str, float] = field(default_factory=dict)
    report: Path | None = None  # a folder with index.html and figures/

    @property
    def charts(self) -> list[Path]:
        """The report's charts."""
        return sorted((self.report / "figures").glob("*.png")) if self.report else []


def record_run(results: Results, page: Path | None = None, **facts: str) -> TrackedRecord:
    """Return what is sent about a run: what its task tracks, with intervals, and its report."""
    rows = results.run.rows(["row_id", "prediction", "status"]).sort_by("row_id").to_pylist()
    spec = results.run.spec()
    facts = {
        "fingerprint": fingerprint([[row["row_id"], str(row["prediction"]), str(row["status"])] for row in rows]),
        "dataset": str(spec.get("dataset", "")), "models": ", ".join(map(str, spec.get("model_names", []))),
        "rows": str(len(rows)), "run": results.run.run_id, **facts,
    }  # fmt: skip
    numbers: dict[str, float] = {}
    for table, columns in results.task.tracked.items():
        numbers |= _numbers(results.task.results[table](results), columns)
    return TrackedRecord(results.run.run_id, results.path, facts, numbers, page.parent if page else None)


def report_of(results: Results) -> Path:
    """Return the page of a run's report, made now unless it is newer than every part of the table."""
    page, parts = results.path / "report" / "index.html", (results.path / "predictions").glob("*")
    newest = max((part.stat().st_mtime for part in parts), default=0.0)
    return page if page.is_file() and page.stat().st_mtime > newest else results.report()


def record_gate(gate: Gate, folder: Path, **facts: str) -> TrackedRecord:
    """Return what is sent about a release gate: differences with their bounds, and the verdict."""
    facts = {"verdict": gate.verdict, "sentence": gate.sentence, "margin": f"{gate.margin:g}", **facts}
    return TrackedRecord("compare", folder, facts, _numbers(gate.conditions, {"difference": ("low", "high")}))


def _numbers(frame: pd.DataFrame, wanted: Mapping[str, tuple[str, str]]) -> dict[str, float]:
    """Return metric → number: MODEL/CONDITION/WHAT, and the ends of its interval as WHAT_low and WHAT_high."""
    numbers: dict[str, float] = {}
    for row in frame.to_dict("records"):
        place = "/".join(_plain(str(row[key])) for key in ("model", "measure", "condition", "label") if row.get(key))
        for what, ends in wanted.items():
            for name, key in zip((what, f"{what}_low", f"{what}_high"), (what, *ends), strict=True):
                if key in row and row[key] == row[key]:
                    numbers[f"{place}/{name}"] = float(row[key])
    return numbers


def _plain(text: str) -> str:
    """Return a name with the characters that every tracker takes."""
    return re.sub(r"[^\w.:@ -]", "_", text)


def check_tracker(name: str) -> None:
    """Raise a UserError if there is no such tracker."""
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)


def track(tracker: str, record: TrackedRecord) -> str:
    """Report to a tracker, and return where it is to be seen.

    Raises UserError: there is no such tracker, or its package is not installed; MachineError: it cannot be reached.
    """
    check_tracker(tracker)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return TRACKERS[tracker](record)
    except ModuleNotFoundError as error:
        raise UserError(missing_extra(error) or f"{tracker} cannot be used: {first_line(error)}") from error
    except Exception as error:  # of the tracker's library, about its server or its files
        raise MachineError(
            f"{tracker} did not get the results; the run itself is complete: {first_line(error)}"
        ) from error


def _mlflow(record: TrackedRecord) -> str:
    import mlflow

    if "MLFLOW_EXPERIMENT_NAME" not in os.environ and "MLFLOW_EXPERIMENT_ID" not in os.environ:
        mlflow.set_experiment(PROJECT)
    with mlflow.start_run(run_name=record.name) as run:
        mlflow.set_tags({f"holdfast.{key}": value[:4000] for key, value in record.facts.items()})
        mlflow.log_metrics(record.numbers)
        if record.report:
            mlflow.log_artifacts(str(record.report), "report")
    return f"{mlflow.get_tracking_uri()}, run {run.info.run_id}"


def _wandb(record: TrackedRecord) -> str:
    import wandb

    project = os.environ.get("WANDB_PROJECT", PROJECT)
    with wandb.init(project=project, name=record.name, config=record.facts, dir=str(record.folder)) as run:
        run.log({**record.numbers, **{f"charts/{chart.stem}": wandb.Image(str(chart)) for chart in record.charts}})
        if record.report:
            artifact = wandb.Artifact(f"report-{re.sub(r'[^A-Za-z0-9_.-]', '_', record.name)}", type="report")
            artifact.add_dir(str(record.report))
            run.log_artifact(artifact)
        return str(run.url or run.dir)


def _tensorboard(record: TrackedRecord) -> str:
    import numpy as np
    import PIL.Image
    from torch.utils.tensorboard import SummaryWriter

    folder = record.folder / "tensorboard"
    with SummaryWriter(str(folder)) as writer:
        for name, value in record.numbers.items():
            writer.add_scalar(name, value)
        for chart in record.charts:
            with PIL.Image.open(chart) as image:
                writer.add_image(f"charts/{chart.stem}", np.asarray(image.convert("RGB")), dataformats="HWC")
        facts = record.facts | ({"report": str(record.report / "index.html")} if record.report else {})
        for key, text in facts.items():
            writer.add_text(key, text)
    return str(folder)


TRACKERS: dict[str, Callable[[TrackedRecord], str]] = {
    "mlflow": _mlflow, "wandb": _wandb, "tensorboard": _tensorboard
}  # fmt: skip
