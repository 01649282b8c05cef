"""The notebook of the docs: a real kernel executes it, and what it shows is what is there."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from doc_blocks import ROOT

nbclient = pytest.importorskip("nbclient")


def test_the_notebook_shows_what_its_cells_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat

    stored = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    fresh = nbformat.reads(nbformat.writes(stored), as_version=4)
    client = nbclient.NotebookClient(fresh, timeout=240, resources={"metadata": {"path": str(tmp_path)}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the kernel's client, about its own transport
        client.execute()
    assert (tmp_path / "notebook-run" / "predictions").is_dir()
    for before, after in zip(stored.cells, fresh.cells, strict=True):
        shown, given = (_shown(cell) for cell in (before, after))
        assert len(shown) == len(given)
        for word, other in zip(shown, given, strict=True):
            try:
                assert float(other) == pytest.approx(float(word), abs=0.03)  # another processor may round otherwise
            except ValueError:
                assert other == word
    assert any("image/png" in output.get("data", {}) for cell in fresh.cells for output in cell.get("outputs", ()))


def _shown(cell: dict) -> list[str]:
    outputs = [output for output in cell.get("outputs", ()) if output.get("name") != "stderr"]
    return " ".join(each.get("text") or each["data"]["text/plain"] for each in outputs).split()
