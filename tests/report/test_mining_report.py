from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

import holdfast
from holdfast.core.errors import UserError
from holdfast.reports.hard.mining import build

sys.path.insert(0, str(Path(__file__).parents[1] / "pipeline"))
import mine_world

NASTY = " <img src=x onerror=alert(1)> </script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("mined")
    sys.path.insert(0, str(mine_world.write_models(folder / "modules")))
    pool = mine_world.make_pool(folder / "pool", words=NASTY)
    found = holdfast.mine(
        pool, surrogates=[f"python:coded:{name}" for name in mine_world.SURROGATES],
        targets=",".join(f"python:coded:{name}" for name in mine_world.TARGETS),
        oracle="classifier:python:coded:judge", out=folder / "hard", at_least=3, again=0, device="cpu",
    )  # fmt: skip
    yield found
    sys.path.pop(0)


def test_a_pool_without_prompts_is_told_of_photos(mined, tmp_path: Path) -> None:
    pool = mine_world.make_pool(tmp_path / "pool")
    for name in ("manifest.parquet", "manifest.csv", "spec.json"):
        (pool / name).unlink()
    holdfast.mine(
        pool, surrogates=[f"python:coded:{name}" for name in mine_world.SURROGATES], targets="python:coded:five",
        oracle="classifier:python:coded:judge", out=tmp_path / "hard", at_least=3, device="cpu",
    )  # fmt: skip
    page = text_of((tmp_path / "hard" / "mining" / "report" / "index.html").read_text())
    assert "Image or luck" in page and "the half of the images" in page and "By nuisance" not in page
    card = (tmp_path / "hard" / "DATACARD.md").read_text()
    assert "half of the images" in card and "The label is their image's." in card and "seeds" not in card


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition('<script type="application/json"')[0]))


def test_the_verdict_comes_first_with_numbers_and_n(mined) -> None:
    page = (mined.path / "mining" / "report" / "index.html").read_text()
    text = text_of(page)
    accuracy = mined.tables["accuracy"].query("half == 'report' and subset == 'valid' and role == 'target'")
    hard = accuracy[accuracy["set"] == "hard"]
    first = text.index(f"On {hard['n'].iloc[0]} valid images")
    assert first < text.rindex("How far the selection can be believed")
    for row in hard.to_dict("records"):
        assert f"Right on {100 * row['estimate']:.1f} %" in text and f"of {row['n']} hard images" in text
    for section in ("Prompt or luck", "Where hard images come from", "One surrogate more", "Do models fail"):
        assert section in text
    for rule in mined.facts["choice"]["rule"]:
        assert rule.replace("'", "&#39;") in page or rule in text


def test_what_users_write_runs_nowhere(mined) -> None:
    page = (mined.path / "mining" / "report" / "index.html").read_text()
    assert "<img src=x" not in page and "<script>alert" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert page.count("data:image/jpeg;base64,") >= 16


def test_every_figure_and_table_is_a_file(mined) -> None:
    folder = mined.path / "mining" / "report"
    page = (folder / "index.html").read_text()
    links = set(re.findall(r'href="((?:figures|tables)/[^"]+\.\w+)"', page))
    assert len(links) > 20 and all((folder / link).stat().st_size for link in links)
    for name in ("accuracy", "drops", "validity", "curve", "overlap", "rates_nuisance"):
        table = mined.path / "mining" / "results" / f"{name}.parquet"
        pd.testing.assert_frame_equal(pd.read_parquet(table), mined.tables[name], check_dtype=False)


def test_too_few_models_to_predict_transfer_are_said(mined, tmp_path: Path) -> None:
    shutil.copytree(mined.path, tmp_path / "hard")
    for file in (tmp_path / "hard" / "mining" / "results").glob("transfer.*"):
        mined.tables["transfer"].iloc[:0].to_parquet(file) if file.suffix == ".parquet" else file.unlink()
    assert "What predicts transfer to a new model is unknown" in text_of(build(tmp_path / "hard").read_text())


def test_without_pictures_it_says_so(mined, tmp_path: Path) -> None:
    page = build(mined.path).read_text()
    assert "the pool is not at hand" in page and "data:image/jpeg" not in page
    with pytest.raises(UserError, match="not a hard set"):
        build(tmp_path)
