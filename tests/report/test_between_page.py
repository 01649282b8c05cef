"""The page and the command on what models lose from one dataset to another."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from made_runs import make_run

import holdfast
from commands import run
from holdfast.core.errors import UserError

MODELS = tuple(f"timm:model{at}" for at in range(5))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("between")
    make_run(folder / "a", models=MODELS, conditions=("original",), dataset="photos", photos=12)
    make_run(folder / "b", models=MODELS[:4], conditions=("original",), dataset="hard", photos=9, seed=4)
    return folder / "a", folder / "b"


def test_one_page_says_what_is_lost(runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = holdfast.report(runs, tmp_path, between=True, resamples=200)
    text = page.read_text()
    lost = holdfast.open_run(runs[0]).between(runs[1])
    assert lost.sentence.split("loses most, ")[1].split(" points")[0] in text
    table = pd.read_csv(tmp_path / "tables" / "between_drops.csv")
    assert len(table) == 4 and set(table["dataset"]) == {"hard"}
    assert (table["low"] <= table["drop"]).all() and (table["n_reference"] == 48).all()
    assert "Left out, because they were not tried on all datasets: timm:model4" in text
    assert (tmp_path / "tables" / "effective.csv").is_file() and (tmp_path / "figures" / "between_line_1.svg").is_file()
    assert "--between" in text  # the command that makes the page again


def test_the_commands(runs: tuple[Path, Path], tmp_path: Path) -> None:
    printed = run("compare", runs[0], runs[1], "--between").stdout
    assert "timm:model3" in printed and "off the line" in printed
    assert str(tmp_path / "page") in run("report", *runs, "--between", "--out", tmp_path / "page").stdout
    for words, sentence in (
        (("compare", *runs, "--between", "--old-model", "m"), "belongs to the release gate"),
        (("compare", *runs, "--baseline", "timm:model1"), "add --between"),
        (("report", runs[0], "--between"), "leave --between out"),
        (("report", *runs, "--between", "--baseline", "nobody"), "baseline names nobody"),
        (("report", runs[0], "--baseline", "timm:model1"), "add --between"),
    ):
        refused = run(*words, code=2)
        assert sentence in " ".join(refused.stderr.split()), words
    with pytest.raises(UserError, match="different datasets"):
        holdfast.report(runs, tmp_path / "one")
