"""The release gate for people who look again and again: its error rates hold whenever one stops.

``stats.models.gate`` decides once, on a number of photos that was fixed beforehand. Here photos may be added until
the gate passes or fails. docs/statistics/sequential.md has the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.grid import chosen, holm, own_cells
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.sequential import log_capital, running_interval
from holdfast.stats.models.gate import COLUMNS, Gate, _errors, _only, _paired, _rows

if TYPE_CHECKING:
    import pandas as pd


def sequential_gate(
    old: Counts,
    new: Counts,
    *,
    margin: float = 0.02,
    old_model: str | None = None,
    new_model: str | None = None,
    outcome: Outcome = "full",
    conditions: Sequence[str] | None = None,
    level: float = 0.95,
    in_rounds: bool = False,
) -> Gate:
    """Test paired non-inferiority of new against old on the photos so far; more may be added and looked at again.

    A condition passes once the capital of a gambler who bets that new − old lies above −margin has reached 20 (at
    95 %), and fails once that of the opposite gambler has (Holm over the conditions). Photos must come in random order,
    or in batches that hold every class equally often. Conditions that borrow backgrounds are left out, because their
    photos share donors, and new photos change who lends; not so where both runs asked in the same rounds, in which no
    background is lent twice.

    Args: those of ``stats.models.gate.gate``, and ``in_rounds``: both runs are of ``check --stop when-decided``, with
    the same rounds as far as both went.
    """
    import pandas as pd

    if not 0 <= margin < 1:
        raise UserError(f"A margin is a share of accuracy from 0 to 1, not {margin}.")
    before = own_cells(old, conditions)
    present = set(before["condition"].astype(str))
    names = [name for name in chosen(old, conditions) if name in present]
    after = own_cells(new, [name for name in names if name in new.conditions])
    ours, theirs = _only(before, old, old_model, "old"), _only(after, new, new_model, "new")
    if len(after) and not set(before["source_id"]) & set(after["source_id"]):
        raise UserError("The two runs have no photo in common: compare runs on the same data.")
    rows, borrowing = [], []
    for name in names:
        pairs = _paired(
            _rows(before, ours, name, outcome), _rows(after, theirs, name, outcome), _errors(new, theirs, name)
        )
        if pairs is not None and pairs.differences.donors and not in_rounds:
            borrowing.append(name)
            continue
        row: dict[str, object] = dict.fromkeys(COLUMNS, float("nan")) | {"condition": name, "n": 0, "donors": 0}
        if pairs is not None:
            differences = pairs.differences
            p_pass, p_fail, low, high = _tested(differences.photos, margin, 1 - level)
            row |= {
                "old": pairs.old, "new": pairs.new, "difference": differences.mean, "low": low, "high": high,
                "n": len(differences.photos), "unanswered": pairs.unanswered,
                "better": int((differences.photos > 0).sum()), "worse": int((differences.photos < 0).sum()),
                "p_pass": p_pass, "p_fail": p_fail,
            }  # fmt: skip
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["p_fail"] = holm(table["p_fail"].fillna(1).to_numpy(np.float64))
    passed, failed = table["p_pass"].fillna(1) <= 1 - level, table["p_fail"] <= 1 - level
    table["verdict"] = np.select([passed, failed], ["passed", "failed"], "undecided")
    table["sentence"] = [
        f"{row['condition']}: {100 * row['difference']:+.1f} points on {row['n']} photos so far "
        f"({100 * row['low']:+.1f} to {100 * row['high']:+.1f}): {row['verdict']}."
        if row["n"]
        else f"{row['condition']}: no photo was answered by both, so nothing can be said."
        for row in table.to_dict("records")
    ]
    return _overall(table, borrowing, margin, level)


def _overall(table: pd.DataFrame, borrowing: Sequence[str], margin: float, level: float) -> Gate:
    allowed = f"{100 * margin:g} points"
    failed, left = (list(table.loc[table["verdict"] == name, "condition"]) for name in ("failed", "undecided"))
    verdict: Literal["passed", "failed", "undecided"] = "failed" if failed else "undecided" if left else "passed"
    if failed:
        text = f"Failed: more than {allowed} lost under {', '.join(failed)}."
    elif left or not len(table):
        verdict = "undecided"
        text = f"Undecided under {', '.join(left) or 'no condition both runs have'}: add photos and look again."
    else:
        text = f"Passed: no more than {allowed} lost under any condition."
    errs = f"It errs in at most {100 * (1 - level):.2g} % of cases, however often one looks."
    left_out = (
        f" Left out, because their photos share backgrounds: {', '.join(borrowing)}. Compare them without "
        "--sequential, or ask both models in rounds (holdfast check --stop when-decided): there none is lent twice."
        if borrowing
        else ""
    )
    return Gate(verdict, table, margin, float("nan"), f"{text} {errs}{left_out}")


def _tested(photos: Floats, margin: float, alpha: float) -> tuple[float, float, float, float]:
    """Return p-values for passing and failing that hold whenever one stops, and one-sided bounds of the difference."""
    above, below = (log_capital(photos, -margin, least=-1, most=1, above=side) for side in (True, False))
    interval = running_interval(photos, alpha=alpha, before=None)
    return min(1.0, float(np.exp(-above))), min(1.0, float(np.exp(-below))), interval.low, interval.high
