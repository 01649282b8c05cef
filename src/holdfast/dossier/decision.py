"""Decide a declared question: the rule and the margin of a protocol against a run's intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from holdfast.core.conditions import without_object
from holdfast.core.errors import UserError
from holdfast.results import Results

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
