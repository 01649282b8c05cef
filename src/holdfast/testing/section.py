"""The contract suite of report sections."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from holdfast import registry
from holdfast.reports.page.parts import Front, Section
from holdfast.reports.page.sections import ReportEvidence, ReportSection
from holdfast.reports.page.writer import body, write_page
from holdfast.store import Run


def check_section(name: str, run: Run | str | Path) -> list[Section]:
    """Check that a section is registered, applies to a run, and can be shown on a page; return what it builds.

    Args:
        name: as it is registered.
        run: a run directory to which the section applies.

    Raises:
        AssertionError: says what is missing or wrong.
    """
    assert name in registry.sections, (
        f"section {name} is not registered; pyproject.toml needs "
        f'[project.entry-points."holdfast.sections"] with {name} = "MODULE:ATTRIBUTE", and the package installed'
    )
    section = registry.sections.get(name)
    assert isinstance(section, ReportSection), f"section {name} must be a holdfast.reports.page.sections.ReportSection"
    assert not section.after or section.after in registry.sections, f"section {name}: no section {section.after!r}"
    unknown = [measure for measure in section.measures if measure not in registry.measures]
    assert name in _BUILT_IN or not unknown, f"section {name} shows measures that do not exist: {', '.join(unknown)}"
    report = ReportEvidence([run if isinstance(run, Run) else Run.open(run)], resamples=100)
    assert section.applies(report) is True, f"section {name} does not apply to this run (applies must return a bool)"
    built = section.sections(report)
    assert built or section.front, f"section {name} applies to this run, but build returns nothing"
    for each in built:
        assert isinstance(each, Section), f"section {name}: build must return a Section, not {type(each).__name__}"
        assert re.fullmatch(r"[a-z][\w-]*", each.name), f"section {name}: {each.name!r} cannot be an address (#name)"
        assert each.title, f"section {name} has no title"
        assert body(each).strip(), f"section {name} shows nothing below its heading"
        assert all(text.rstrip().endswith((".", "?", "!", ":")) for text in each.lead), f"section {name}: sentences"
    own = None if section.front is None else section.front(report)
    front = Front("Is it shown?", [], [("1", "run")], "None.") if own is None else own
    assert front.title.endswith("?"), f"section {name}: the title of its front must be the question that it answers"
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        page = write_page(front, built, Path(folder), subject="check", run_names="check")
        text = page.read_text(encoding="utf8")
        assert all(f'id="{each.name}"' in text for each in built), f"section {name} is not on its page"
    return built


_BUILT_IN = tuple(entry.name for entry in registry.sections.entries() if str(entry.target).startswith("holdfast."))
