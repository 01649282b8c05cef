"""The runs of a dossier and what its chapters share: decisions by declared rules, charts and images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np

from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.lazy import pd
from holdfast.core.names import scenario_of, without_object
from holdfast.core.types import ORIGINAL
from holdfast.pipeline.declaration import attached, deviations, row_deviations
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.results import Results
from holdfast_evidence.dossier.document import DossierPicture


@dataclass(frozen=True)
class Fact:
    """What was measured, in a few words, and the chapter that shows it."""

    text: str
    chapter: int


@dataclass(frozen=True)
class DossierRun:
    """A run of a dossier with its declaration."""

    results: Results

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.results.run.run_id

    @cached_property
    def record(self) -> dict[str, Any] | None:
        """The declaration with what was measured under it, or None."""
        return attached(self.results.run)

    @cached_property
    def faults(self) -> list[str]:
        """How the run and its rows differ from its declaration; empty if it has none."""
        return deviations(self.record) + row_deviations(self.results.run, self.record) if self.record else []

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """The declared protocol; empty if none was declared."""
        return dict(self.record["declaration"].get("protocol", {})) if self.record else {}

    @property
    def outcome(self) -> Any:
        """Which answers count as right: as the protocol says, else among all outputs of a model."""
        return self.protocol.get("outcome", "full")

    @property
    def margin(self) -> float:
        """The largest loss of accuracy that is acceptable: as the protocol says, else 5 points."""
        return float(self.protocol.get("margin", 0.05))


@dataclass(frozen=True)
class DossierEvidence:
    """All runs of a dossier, its bundles by file name, and what else it is made of."""

    runs: Sequence[DossierRun]
    folder: Path
    bundles: dict[str, str]
    votes: str | Path | None
    pictures: bool

    @cached_property
    def dataset(self) -> str:
        """The name of the data."""
        return ", ".join(dict.fromkeys(str(run.results.run.spec().get("dataset", "data")) for run in self.runs))

    @cached_property
    def models(self) -> list[str]:
        """The names of all models."""
        return list(dict.fromkeys(name for run in self.runs for name in run.results.counts.models))

    @cached_property
    def scenarios(self) -> set[str]:
        """The names of all scenarios."""
        return {scenario_of(name) for run in self.runs for name in run.results.counts.conditions}

    def frames(self, make: Callable[[DossierRun], pd.DataFrame]) -> pd.DataFrame:
        """Return a table of all runs; runs that do not allow it are left out."""
        frames = []
        for run in self.runs:
            with suppress(HoldfastError):
                frames.append(pd.DataFrame(make(run)))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


Decided = Literal["passed", "failed", "undecided"]


@dataclass(frozen=True)
class ProtocolDecision:
    """What was decided about one model: the number it rests on, with its interval, and the margin."""

    model: str
    decided: Decided
    what: str
    n: int
    value: float
    low: float
    high: float
    margin: float
    conditions: int = 1  # of which the worst was picked


def decide(results: Results, protocol: dict[str, Any]) -> list[ProtocolDecision]:
    """Return a decision per model by the protocol's rule; without a rule, by the background effect at 5 points."""
    margin, outcome = float(protocol.get("margin", 0.05)), protocol.get("outcome", "full")
    if protocol.get("rule", "background") == "background":
        frame = results.verdicts(outcome=outcome, margin=margin).dropna(subset=["background_effect"])
        what, decisions = "accuracy lost when only the background changes", []
        for row in frame.to_dict("records"):
            value, low, high = (row[f"background_effect{end}"] for end in ("", "_low", "_high"))
            side = _side(low, high, margin)
            decisions.append(ProtocolDecision(row["model"], side, what, int(row["n"]), value, low, high, margin))
        return decisions
    frame = results.drops(outcome=outcome)
    frame = frame[[not without_object(name) for name in frame["condition"]]]
    if not len(frame):
        raise UserError(
            "the run has no condition other than the original, so the rule every-condition has nothing to decide"
        )
    return [_every(str(model), rows, margin) for model, rows in frame.groupby("model", sort=False)]


def _side(low: float, high: float, margin: float) -> Decided:
    return "passed" if high < margin else "failed" if low > margin else "undecided"


def _every(model: str, rows: Any, margin: float) -> ProtocolDecision:
    """Pass if every drop's interval lies below the margin; fail if the worst lies above, corrected for choosing.

    All conditions have to pass, so passing needs no correction. A single one that fails is enough, so lower ends are
    moved to the level 0.05 / number of conditions (Bonferroni).
    """
    from scipy.stats import norm

    wider = float(norm.ppf(1 - 0.025 / len(rows)) / norm.ppf(0.975))
    lows = rows["drop"] - (rows["drop"] - rows["low"]) * wider
    worst = rows.loc[rows["high"].idxmax()]
    decided: Decided = "passed" if (rows["high"] < margin).all() else "failed" if (lows > margin).any() else "undecided"
    shown = rows.loc[lows.idxmax()] if decided == "failed" else worst
    what = f"accuracy lost under {shown['condition']}, the worst of {len(rows)} conditions"
    return ProtocolDecision(model, decided, what,
                    int(shown["n"]), shown["drop"], shown["low"], shown["high"], margin, len(rows))  # fmt: skip


def chart(run: DossierRun, folder: Path, name: str, caption: str) -> list[DossierPicture]:
    """Return a chart of the report as an image; nothing if the run does not allow it."""
    try:
        run.results.plot(name, outcome=run.outcome).save(folder / f"{name}.png")
    except HoldfastError:
        return []
    return [DossierPicture(f"{name}.png", caption, f"{caption}: the chart shows the numbers of the tables above.")]


def flips(run: DossierRun, folder: Path) -> list[DossierPicture]:
    """Return up to three images whose answer was right and turned wrong when only the background changed."""
    suffix = "_restricted" if run.outcome == "restricted" else ""
    answer, hit = f"prediction{suffix}", f"correct{suffix}"
    columns = ["model", "condition", "sample_id", "source_id", "label", answer, hit, "status"]
    rows = run.results.run.rows(columns).to_pandas().rename(columns={answer: "prediction", hit: "correct"})
    rows = rows[rows["status"] == "ok"]
    right = rows[(rows["condition"] == ORIGINAL) & rows["correct"].astype(bool)]
    wrong = rows[(rows["condition"] == "random_background") & ~rows["correct"].astype(bool)]
    pairs = right.merge(wrong, on=["model", "source_id"], suffixes=("", "_after")).drop_duplicates("source_id").head(3)
    images = thumbnails(run.results.run, set(pairs["source_id"]), size=400)
    blocks: list[DossierPicture] = []
    for number, row in enumerate(pairs.to_dict("records"), start=1):
        before = images.get((row["sample_id"], ORIGINAL))
        after = images.get((row["sample_id_after"], "random_background"))
        if before is None or after is None:
            continue
        (folder / f"photo-{number}.jpg").write_bytes(_side_by_side(before, after))
        caption = (
            f"{row['label']}: {row['model']} answers {row['prediction']} before its own background (left) and "
            f"{row['prediction_after']} before the background of another class (right)"
        )
        blocks.append(DossierPicture(f"photo-{number}.jpg", caption, caption, width=60))
    return blocks


def _side_by_side(first: bytes, second: bytes) -> bytes:
    """Return two JPEGs of one size as one."""
    pictures = [cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) for data in (first, second)]
    return bytes(cv2.imencode(".jpg", cv2.hconcat([picture for picture in pictures if picture is not None]))[1])
