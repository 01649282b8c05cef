"""The section on how much models can take."""

from __future__ import annotations

from pathlib import Path

from made_runs import make_run

from holdfast.reports.page.evidence import Evidence
from holdfast.reports.static.corruptions import failure_point_section
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.failure_point import failure_points

SEVERITIES = tuple(f"fog@severity_{number}" for number in range(1, 6))


def test_the_section_has_curves_points_and_orders(tmp_path: Path) -> None:
    counts = reduce(make_run(tmp_path / "run", conditions=("original", *SEVERITIES)).rows())
    evidence = Evidence(counts, resamples=50)
    (section,) = failure_point_section(evidence)
    expected = failure_points(counts, resamples=50)
    figure, points, orders = section.parts
    assert points.frame["median"].tolist() == expected.points["median"].tolist()
    assert orders.frame["difference"].tolist() == expected.orders["difference"].tolist()
    assert figure.draw(940)["datasets"]["rows"] and section.lead[0] == expected.sentence


def test_without_severities_there_is_no_section(tmp_path: Path) -> None:
    counts = reduce(make_run(tmp_path / "run", conditions=("original", "fog", "grey")).rows())
    assert failure_point_section(Evidence(counts, resamples=50)) == []
