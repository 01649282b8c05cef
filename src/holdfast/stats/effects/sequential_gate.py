"""The release gate for people who look again and again: its error rates hold whenever one stops.

``stats.models.gate`` decides once, on a number of photos that was fixed beforehand. Here photos may be added until
the gate passes or fails. docs/statistics/sequential.md has the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import Codes, Floats, codes, sums
from holdfast.stats.core.grid import chosen, holm, own_cells
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.sequential import log_capital
from holdfast.stats.models.gate import COLUMNS, Gate, _errors, _only, _paired, _rows
from holdfast.stats.models.noninferiority import Differences

if TYPE_CHECKING:
    import pandas as pd

_GRID = np.linspace(-1, 1, 2001)[1:-1]


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
) -> Gate:
    """Test paired non-inferiority of new against old on the photos so far; more may be added and looked at again.

    A condition passes once the capital of a gambler who bets that new − old lies above −margin has reached 20 (at
    95 %), and fails once that of the opposite gambler has. Passing a model that is worse than the margin under some
    condition then happens in at most 5 % of all series of looks, and so does failing one that is nowhere worse
    (Holm over the conditions). Photos that share a donor are one value, since they are not independent.

    Args: those of ``stats.models.gate.gate``.
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
    rows = []
    for name in names:
        pairs = _paired(
            _rows(before, ours, name, outcome), _rows(after, theirs, name, outcome), _errors(new, theirs, name)
        )
        row: dict[str, object] = dict.fromkeys(COLUMNS, float("nan")) | {"condition": name, "n": 0, "donors": 0}
        if pairs is not None:
            differences = pairs.differences
            p_pass, p_fail, low, high = _tested(differences, margin, 1 - level)
            row |= {
                "old": pairs.old, "new": pairs.new, "difference": differences.mean, "low": low, "high": high,
                "n": len(differences.photos), "donors": differences.donors, "unanswered": pairs.unanswered,
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
        for row in table.to_dict("records")
    ]
    return _overall(table, margin, level)


def _overall(table: pd.DataFrame, margin: float, level: float) -> Gate:
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
    return Gate(verdict, table, margin, float("nan"), f"{text} {errs}")


def _tested(differences: Differences, margin: float, alpha: float) -> tuple[float, float, float, float]:
    """Return p-values for passing and failing that hold whenever one stops, and one-sided bounds of the difference."""
    unit = _independent(differences.photo, differences.donor, len(differences.photos))
    values, sizes = _means(differences.photos, unit)
    above = log_capital(values, -margin, least=-1, most=1, above=True, sizes=sizes)
    below = log_capital(values, -margin, least=-1, most=1, above=False, sizes=sizes)
    wanted = -np.log(alpha)
    too_low = log_capital(values, _GRID, least=-1, most=1, above=True, sizes=sizes) >= wanted
    too_high = log_capital(values, _GRID, least=-1, most=1, above=False, sizes=sizes) >= wanted
    low = float(_GRID[too_low][-1]) if too_low.any() else -1.0
    high = float(_GRID[too_high][0]) if too_high.any() else 1.0
    return min(1.0, float(np.exp(-above))), min(1.0, float(np.exp(-below))), low, high


def _independent(photo: Codes, donor: Codes, photos: int) -> Codes:
    """Return a number per photo, the same for photos that are linked by shared donors."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    lent = donor >= 0
    places = photos + int(donor.max(initial=-1)) + 1
    links = coo_array((np.ones(int(lent.sum())), (photo[lent], photos + donor[lent])), shape=(places, places))
    return np.asarray(connected_components(links, directed=False)[1][:photos], np.intp)


def _means(values: Floats, unit: Codes) -> tuple[Floats, Floats]:
    number, count = codes(unit)
    sizes = sums(number, np.ones(len(values)), count)
    return sums(number, values, count) / sizes, sizes
