"""Measures and sections of other packages: declared, shown on the page, refused where something is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import make_run

from holdfast import registry, testing
from holdfast.core.errors import UserError
from holdfast.core.measures import Measure, MeasureColumn
from holdfast.reports import build
from holdfast.reports.page.parts import Section
from holdfast.reports.page.sections import LAST, ReportEvidence, ReportSection, in_order
from holdfast.results import Results

SHARE = Measure(
    "How often is a model right?",
    lambda rows: rows[rows["status"] == "ok"].groupby("model", observed=True)["correct"].mean().reset_index(),
    ("model", "status", "correct"),
    (MeasureColumn("model", "Name of the model."), MeasureColumn("correct", "Share of right rows.", "percent")),
)


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in (registry.measures, registry.sections):
        list(kept)
        monkeypatch.setattr(kept, "_entries", dict(kept._entries))


@pytest.mark.parametrize("name", list(registry.measures))
def test_the_measures_of_holdfast_keep_the_contract(name: str) -> None:
    testing.check_measure(name)


@pytest.mark.usefixtures("entries")
def test_a_measure_is_a_table_in_python_and_on_the_page(tmp_path: Path) -> None:
    registry.measures.register("share", SHARE, summary="how often a model is right")
    testing.check_measure("share")
    run = make_run(tmp_path / "run", models=("one", "two"), photos=4)
    table = Results(run).measure("share")
    rows = run.rows().to_pandas()
    for row in table.to_dict("records"):
        assert row["correct"] == rows[rows["model"] == row["model"]]["correct"].mean()
    page = build([run], tmp_path / "page", resamples=20)
    assert "How often is a model right?" in page.read_text()
    assert (tmp_path / "page" / "tables" / "share.csv").is_file()
    registry.sections.register("own", ReportSection(lambda _: Section("own", "Own"), measures=("share",)), summary="")
    assert "How often is a model right?" not in build([run], tmp_path / "page", resamples=20).read_text()
    with pytest.raises(UserError, match="accuracy"):
        Results(run).measure("acuracy")


@pytest.mark.usefixtures("entries")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"question": "Right answers"}, "must be a question"),
        ({"reads": ("model", "colour")}, "colour"),
        ({"columns": (MeasureColumn("model", "Name."), MeasureColumn("high", "More."))}, "does not have"),
        ({"columns": (MeasureColumn("model", "name"),)}, "must be a sentence"),
        ({"columns": (MeasureColumn("model", "Name.", "number"),)}, "not numbers"),
        ({"function": lambda rows: rows.assign(correct=1.0).head(1)}, "rows of no rows|order"),
    ],
)
def test_what_a_measure_lacks_is_named(changes: dict[str, object], words: str) -> None:
    registry.measures.register("share", replace(SHARE, **changes), summary="")  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=words):
        testing.check_measure("share")


@pytest.mark.usefixtures("entries")
def test_a_section_stands_where_it_says_and_its_template_escapes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", models=("one",), photos=4)
    own = ReportSection(
        lambda report: Section("own", "Own", data={"models": report.classified.models, "text": "<b>bold</b>"}),
        template="<p>{{ section.data.models|length }} model, {{ section.data.text }}</p>",
        after="scenarios",
    )
    registry.sections.register("own", own, summary="")
    names = list(in_order())
    assert names[names.index("scenarios") + 1] == "own" and names[-2:] == list(LAST)
    testing.check_section("own", run)
    assert "<p>1 model, &lt;b&gt;bold&lt;/b&gt;</p>" in build([run], tmp_path / "page", resamples=20).read_text()
    registry.sections.register("never", replace(own, applies=lambda _: False), summary="")
    with pytest.raises(AssertionError, match="does not apply"):
        testing.check_section("never", run)
    assert [section.name for section in own.sections(ReportEvidence([run]))] == ["own"]


@pytest.mark.parametrize("name", ["verdict", "scores", "scenarios", "comparison", "gallery", "errors", "run"])
def test_the_sections_of_holdfast_keep_the_contract(name: str, tmp_path: Path) -> None:
    testing.check_section(name, make_run(tmp_path / "run", models=("one", "two"), photos=6))
