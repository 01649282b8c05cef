"""The runs of a dossier and what its chapters share: decisions by declared rules, charts and photos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np

from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.lazy import pd
from holdfast.core.names import without_object
from holdfast.core.types import ORIGINAL
from holdfast.dossier.document import DossierPicture
from holdfast.pipeline.declaration import attached, deviations, row_deviations
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.results import Results
from holdfast.stats.core.reduce import Outcome


@dataclass(frozen=True)
class Fact:
    """What was measured, in a few words, and the chapter that shows it."""

    text: str
    chapter: int


@dataclass(frozen=True)
class DossierEvidence:
    """All runs of a dossier, their declarations, and how they deviate from these."""

    runs: Sequence[Results]
    folder: Path
    bundles: dict[str, str]
    votes: str | Path | None
    pictures: bool

    @cached_property
    def specs(self) -> list[dict[str, Any]]:
        """Return what each run was asked for."""
        return [results.run.spec() for results in self.runs]

    @cached_property
    def dataset(self) -> str:
        """Return the name of the data."""
        return ", ".join(dict.fromkeys(str(spec.get("dataset", "data")) for spec in self.specs))

    @cached_property
    def models(self) -> list[str]:
        """Return the names of all models."""
        return list(dict.fromkeys(name for results in self.runs for name in results.counts.models))

    @cached_property
    def conditions(self) -> list[str]:
        """Return the names of all conditions."""
        return list(dict.fromkeys(name for results in self.runs for name in results.counts.conditions))

    @cached_property
    def records(self) -> list[dict[str, Any] | None]:
        """Return each run's declaration with what was measured under it, or None."""
        return [attached(results.run) for results in self.runs]

    @cached_property
    def faults(self) -> list[list[str]]:
        """Return how each run and its rows differ from its declaration; empty where it has none."""
        return [
            deviations(record) + row_deviations(results.run, record) if record else []
            for results, record in zip(self.runs, self.records, strict=True)
        ]

    def protocol(self, number: int) -> dict[str, Any]:
        """Return the protocol of a run; empty where none was declared."""
        record = self.records[number]
        return dict(record["declaration"].get("protocol", {})) if record else {}

    def outcome(self, results: Results) -> Any:
        """Return which answers count as right in a run: as its protocol says, else among all outputs of a model."""
        return self.protocol(list(self.runs).index(results)).get("outcome", "full")

    def frames(self, make: Callable[[Results], pd.DataFrame]) -> pd.DataFrame:
        """Return a table of all runs; runs that do not allow it are left out."""
        frames = []
        for results in self.runs:
            try:
                frames.append(make(results))
            except HoldfastError:
                continue
        return pd.concat([pd.DataFrame(frame) for frame in frames], ignore_index=True) if frames else pd.DataFrame()


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
        return [
            ProtocolDecision(row["model"], _side(row["background_effect_low"], row["background_effect_high"], margin),
                     "accuracy lost when only the background changes", int(row["n"]), row["background_effect"],
                     row["background_effect_low"], row["background_effect_high"], margin)
            for row in frame.to_dict("records")
        ]  # fmt: skip
    frame = results.drops(outcome=outcome)
    frame = frame[[not without_object(name) for name in frame["condition"]]]
    if not len(frame):
        raise UserError(
            "the run has no condition beside the original, so the rule every-condition has nothing to decide"
        )
    return [_every(str(model), rows, margin) for model, rows in frame.groupby("model", sort=False)]


def _side(low: float, high: float, margin: float) -> Decided:
    return "passed" if high < margin else "failed" if low > margin else "undecided"


def _every(model: str, rows: Any, margin: float) -> ProtocolDecision:
    """Pass where every drop's interval lies below the margin; fail where the worst lies above, corrected for choosing.

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


def chart(results: Results, folder: Path, name: str, caption: str, outcome: Outcome) -> list[DossierPicture]:
    """Return a chart of the report as a picture; nothing where the run does not allow it."""
    try:
        results.plot(name, outcome=outcome).save(folder / f"{name}.png")
    except HoldfastError:
        return []
    return [DossierPicture(f"{name}.png", caption, f"{caption}: the chart shows the numbers of the tables above.")]


def flips(results: Results, folder: Path, outcome: Outcome) -> list[DossierPicture]:
    """Return up to three photos whose answer was right and turned wrong when only the background changed."""
    suffix = "_restricted" if outcome == "restricted" else ""
    answer, hit = f"prediction{suffix}", f"correct{suffix}"
    columns = ["model", "condition", "sample_id", "source_id", "label", answer, hit, "status"]
    rows = results.run.rows(columns).to_pandas().rename(columns={answer: "prediction", hit: "correct"})
    rows = rows[rows["status"] == "ok"]
    right = rows[(rows["condition"] == ORIGINAL) & rows["correct"].astype(bool)]
    wrong = rows[(rows["condition"] == "random_background") & ~rows["correct"].astype(bool)]
    pairs = right.merge(wrong, on=["model", "source_id"], suffixes=("", "_after")).drop_duplicates("source_id").head(3)
    images = thumbnails(results.run, set(pairs["source_id"]), size=400)
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
