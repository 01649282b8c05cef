"""Printed tables of the three protocols, checked against their own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast_evidence.printed_tables import changes, regressions, shares, squares
from holdfast_evidence.printed_tables.claims import check_claims, printed_twice
from holdfast_evidence.printed_tables.printed import AuditFinding, Printed, read_table

__all__ = ["AuditFinding", "audit", "check_claims", "read_table"]


def audit(
    table: pd.DataFrame,
    *,
    name: str = "",
    reference: pd.DataFrame | None = None,
    n: int | None = None,
    also: Mapping[str, pd.DataFrame] | None = None,
) -> list[AuditFinding]:
    """Return what in a printed table cannot be true, or was not computed as its formulas say.

    Columns are recognised by their names (``printed._ROLES``); other numbers are accuracies, or squared deviations
    if there is a variance. A printed figure stands for every number that rounds to it, and a finding is reported
    only if none of those fits. ``table`` and ``reference`` (accuracies for squared deviations, standard accuracies, or
    classes for a total) hold strings, as ``read_table`` gives them; ``also``: name → tables of the same paper that
    print some of the same figures; ``n``: images behind each accuracy of a row, if the table has no column ``n``.
    """
    if table.empty:
        raise UserError("The table to audit has no rows; give one with at least one.")
    if n is not None and n < 1:
        raise UserError(f"The number of images behind a row must be at least 1, not {n}.")
    ours = Printed.of(table, name)
    other = None if reference is None else Printed.of(reference, "reference")
    return [
        *shares.fmr_is_ratio(ours, other),
        *shares.repeated_totals(ours, other),
        *squares.variances(ours),
        *squares.cut_variances(ours),
        *squares.scores(ours),
        *squares.against_accuracies(ours, other),
        *squares.suspected_squares(ours, other),
        *shares.whole_counts(ours, n),
        *shares.totals(ours, n),
        *regressions.t_in_p(ours),
        *changes.changes(ours),
        *regressions.regression_slips(ours),
        *printed_twice(ours, [Printed.of(frame, other_name) for other_name, frame in (also or {}).items()]),
    ]
