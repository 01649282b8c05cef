"""The rows of the three papers: their commands exist, they write something, and ``make seeds`` notices what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, commands
from doc_parser import check_command

sys.path.insert(0, str(ROOT / "docs"))
import papers

ROWS = papers.rows()
NUMBERS = {
    "fmr": {*(f"Table {number}" for number in (1, 2, 3, 4, 5, 8, 9, 10, 12, 13, 14)),
            *(f"Figure {number}" for number in range(1, 5)), "Appendix A", "Appendix J", "Appendix K"},
    "ximagenet-12": {"Table 1", "Table 2", "Table 3",
                    *(f"Figure {number}" for number in (1, 3, 4, 5, 6, *range(9, 15)))},
}  # fmt: skip
"""What the audit of the papers numbered; ImageNet-D's rows are named by their subject."""


@pytest.mark.parametrize("command", sorted({row.command for row in ROWS}))
def test_a_command_is_one_that_the_parser_takes(command: str) -> None:
    words = commands(Block("seeds", 0, "bash", command.partition(" > ")[0].replace(" && ", "\n")))
    assert words and all(part[0] == "holdfast" for part in words)
    for part in words:
        check_command(part)


def test_every_row_belongs_to_a_paper() -> None:
    assert {row.paper for row in ROWS} == set(papers.PAPERS)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_writes_below_the_working_folder_and_states_its_limits(row: papers.Row) -> None:
    assert row.writes == papers.BROWSER or not Path(row.writes).is_absolute()
    assert ".." not in Path(row.writes).parts
    assert row.limits, "a row without limits has a dash"
    assert "whole" not in row.limits


@pytest.mark.parametrize("paper", sorted(NUMBERS))
def test_every_number_of_a_paper_has_a_row(paper: str) -> None:
    there = ", ".join(_numbers(row.there) for row in ROWS if row.paper == paper)
    assert {number for number in NUMBERS[paper] if f"{number}," not in f"{there},"} == set()


def _numbers(there: str) -> str:
    """``Tables 1, 12 to 14`` as ``Table 1, Table 12, Table 13, Table 14``."""
    for kind in ("Table", "Figure"):
        if there.startswith(f"{kind}s "):
            words = there.removeprefix(f"{kind}s ").split(" (")[0].split(", ")
            return ", ".join(f"{kind} {word}" for word in words)
    return there.split(" (")[0]


def test_a_row_without_command_or_file_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    head = "## Page, row by row\n\n| there | asks | command | writes | limits |\n|---|---|---|---|---|\n"
    page.write_text(f"{head}| Table 1 | what | `holdfast ls` | `out` | – |\n")
    assert papers.rows(page) == [papers.Row("page", "Table 1", "what", "holdfast ls", "out", "–")]
    for line in ("| Table 1 | what |  | `out` | – |", "| Table 1 | what | `holdfast ls` | out | – |", "| Table 1 |"):
        page.write_text(f"{head}{line}\n")
        with pytest.raises(ValueError, match=r"page\.md:5"):
            papers.rows(page)


def test_a_failed_command_and_a_missing_section_are_found(tmp_path: Path) -> None:
    assert papers.run("echo done > out.txt", tmp_path, serves=False)[0] == ""
    assert papers.run("echo no such data >&2; exit 2", tmp_path, serves=False)[0] == "exit code 2: no such data"
    assert papers.missing("out.txt", tmp_path) == "" and "not there" in papers.missing("other.txt", tmp_path)
    began = (tmp_path / "out.txt").stat().st_mtime
    assert papers.missing("out.txt", tmp_path, began) == ""
    assert "does not write it" in papers.missing("out.txt", tmp_path, began + 1), "another row wrote it"
    (tmp_path / "page.html").write_text('<section class="front" id="scores">')
    assert papers.missing("page.html#scores", tmp_path) == ""
    assert papers.missing("page.html#grid", tmp_path) == "page.html has no section grid; it has scores"


def test_a_server_is_asked_for_its_page_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<html></html>")
    serve = f"exec {sys.executable} -u -m http.server 0 --bind 127.0.0.1"
    assert papers.run(serve, tmp_path, serves=True)[0] == ""
    assert "printed no address" in papers.run("echo nothing", tmp_path, serves=True)[0]


def test_rows_are_printed_in_order_also_if_a_study_runs_next_to_them(tmp_path: Path) -> None:
    words = (sys.executable, ROOT / "docs" / "papers.py", "--out", tmp_path / "seeds", "--only", "pooling|ls nuis")
    said = subprocess.run(words, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    assert [line[:2] for line in said.stdout.splitlines()] == ["ok", "ok", "2 "]
    assert "study pooling" in said.stdout.splitlines()[0] and "0 failed" in said.stdout


@pytest.mark.slow
def test_every_row_runs(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, ROOT / "docs" / "papers.py", "--out", tmp_path / "seeds"], capture_output=True, text=True
    )
    assert said.returncode == 0, "\n".join(line for line in said.stdout.splitlines() if not line.startswith("ok"))
