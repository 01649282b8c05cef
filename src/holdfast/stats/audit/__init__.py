"""Printed tables of the three protocols, checked against their own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.core.errors import UserError
from holdfast.stats.audit import counts, percentages, ratios, regressions, squares
from holdfast.stats.audit.claims import check_claims, printed_twice
from holdfast.stats.audit.printed import AuditFinding, Printed, read_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AuditFinding", "audit", "check_claims", "read_table"]


def audit(
    table: pd.DataFrame,
    *,
    name: str = "",
    reference: pd.DataFrame | None = None,
    n: int | None = None,
    also: Mapping[str, pd.DataFrame] | None = None,
) -> list[AuditFinding]:
    """What in a printed table cannot be true, or was not computed as its formulas say.

    Columns are recognised by their names (``standard_accuracy`` or ``sa``, ``perturbed_accuracy`` or ``pa``, ``fmr``,
    ``validation_rate`` or ``vr``, also with a prefix as in ``adm_fmr``; ``variance…``, ``…score…``; ``n``;
    ``before``, ``after``, ``saving``; ``estimate``, ``standard_error``, ``t``, ``p``, ``df``, ``low``, ``high``,
    ``stars``); the other numbers are
    accuracies, or squared deviations where there is a variance. A printed figure stands for every number that rounds
    to it, and a finding is reported only if none of those fits.

    ``table``: as ``read_table`` gives it: strings, so that 92.30 keeps its two decimals (numbers work too). ``name``:
    of the table, put before each place. ``reference``: a second table to hold it against: accuracies for a table of
    squared deviations, standard accuracies for a table without, a table of classes for a table that quotes its total.
    ``also``: name → tables of the same paper that print some of the same figures. ``n``: images behind each accuracy of
    a row, where the table has no column ``n``; a total has the sum.
    """
    if table.empty:
        raise UserError("The table to audit has no rows.")
    if n is not None and n < 1:
        raise UserError(f"The number of images behind a row must be at least 1, not {n}.")
    ours = Printed.of(table, name)
    other = None if reference is None else Printed.of(reference, "reference")
    return [
        *ratios.fmr_is_ratio(ours, other),
        *ratios.repeated_totals(ours, other),
        *squares.variances(ours),
        *squares.cut_variances(ours),
        *squares.scores(ours),
        *squares.against_accuracies(ours, other),
        *squares.suspected_squares(ours, other),
        *counts.whole_counts(ours, n),
        *counts.totals(ours, n),
        *percentages.t_in_p(ours),
        *percentages.wrong_denominator(ours),
        *regressions.regression_slips(ours),
        *printed_twice(ours, [Printed.of(frame, other_name) for other_name, frame in (also or {}).items()]),
    ]
