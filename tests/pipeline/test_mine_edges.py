"""What mining does where controls are few, questions are asked, and a folder is not as it left it."""

from __future__ import annotations

import sys
from pathlib import Path

import mine_world
import pandas as pd
import pyarrow.parquet as pq
import pytest
from mine_world import CLASSES, HELD_OUT, NAMES, HardSets, make_pool, spec_of
from mine_world import hard_sets as hard_sets
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.pipeline.hard.mine import mine
from holdfast.pipeline.hard.pool import MineSpec, measure
from holdfast.pipeline.jobs.progress import silent


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(mine_world.write_models(tmp_path / "modules")))
    sys.modules.pop("coded", None)


@pytest.fixture
def pool(hard_sets: HardSets) -> Path:
    """The pool of all tests; who changes it takes ``own_pool``."""
    return hard_sets.pool


@pytest.fixture
def own_pool(tmp_path: Path) -> Path:
    return make_pool(tmp_path / "pool")


def test_the_control_is_compared_with_the_images_that_have_one(hard_sets: HardSets) -> None:
    mined = hard_sets.mined(at_least=2, use=4)
    images = pd.read_parquet(mined.path / "mining" / "answers.parquet").set_index("sample_id")
    told = pd.read_parquet(mined.path / "mining" / "selection.parquet").set_index("sample_id")
    inside = told[(told["half"] == "report") & told["valid"]]
    hard = inside.index[inside["set"] == "hard"]
    controls = inside[inside["valid_control_of"] != ""]
    matched = pd.Index(controls["valid_control_of"])
    assert 0 < len(matched) < len(hard) and set(matched) <= set(hard)
    drops = mined.tables["drops"].query("half == 'report' and subset == 'valid'").set_index(["model", "against"])
    for target in HELD_OUT:
        right = images[target] == images["category"]
        lost = right[controls.index].mean() - right[matched].mean()
        assert drops.at[(target, "control"), "estimate"] == pytest.approx(lost)
        whole = right[inside.index].mean() - right[hard].mean()
        assert drops.at[(target, "pool"), "estimate"] == pytest.approx(whole)
    sentence = f"{len(matched)} of {len(hard)} valid hard images of the reporting half have a control"
    assert any(sentence in one for one in mined.warnings)
    assert sentence in (mined.path / "DATACARD.md").read_text()


def test_no_control_at_all_is_said_in_words(tmp_path: Path) -> None:
    pool = make_pool(tmp_path / "pool", bits=lambda prompt, seed: 63 if mine_world.hard_prompt(prompt) else 0)
    options = ["--surrogates", ",".join(NAMES), "--targets", HELD_OUT[0], "--oracle", "classifier:python:coded:judge"]
    asked = CliRunner().invoke(app, ["mine", str(pool), *options, "--again", "0", "-q", "--out", str(tmp_path / "h")])
    assert asked.exit_code == 0, asked.output
    assert "nan" not in asked.output.replace("\n", " ") and "have a control" in asked.output
    page = (tmp_path / "h" / "mining" / "report" / "index.html").read_text(encoding="utf8")
    assert "have a control" in page


def test_questions_are_found_however_the_folder_is_opened(hard_sets: HardSets) -> None:
    hard = hard_sets.mined(at_least=3).path
    for text in (str(hard), f"imagenet-d:{hard}"):
        for sample in load_collection(text).samples:
            assert sample.attributes["top1_pred_cate"] == sample.label
            assert sample.attributes["top2_pred_cate"] in set(CLASSES) - {sample.label}


def test_questions_name_classes_of_the_hard_set(tmp_path: Path) -> None:
    """Cats and hens are hard, dogs are not; the judge finds all wrong classes equally likely."""
    pool = make_pool(tmp_path / "pool", bits=lambda prompt, seed: 0 if " dog " in prompt else 63)
    mine(spec_of(pool, at_least=4), tmp_path / "hard")
    found = {
        sample.label: sample.attributes["top2_pred_cate"] for sample in load_collection(str(tmp_path / "hard")).samples
    }
    assert found == {"cat": "hen", "hen": "cat"}


def test_a_deleted_or_foreign_path_does_not_stop_a_new_selection(hard_sets: HardSets, tmp_path: Path) -> None:
    out = tmp_path / "hard"
    hard_sets.copy(out, at_least=2, use=4)
    stays = tmp_path / "elsewhere" / "dog" / "a.png"
    stays.parent.mkdir(parents=True)
    stays.write_bytes(b"not yours")
    (tmp_path / "elsewhere" / "empty").mkdir()
    table = pq.read_table(out / "manifest.parquet").to_pandas()
    gone = out / table["path"].iloc[0]
    table.loc[1:2, "path"] = ["../elsewhere/dog/a.png", "../elsewhere/empty/b.png"]
    lost = sorted(set(out.glob("*/*/*.png")) - {out / one for one in table["path"]})
    table.to_parquet(out / "manifest.parquet")
    gone.unlink()
    mined = mine(spec_of(hard_sets.pool, at_least=4, use=4), out)
    assert stays.read_bytes() == b"not yours" and (tmp_path / "elsewhere" / "empty").is_dir()
    listed = {out / one for one in pq.read_table(out / "manifest.parquet")["path"].to_pylist()}
    assert set(out.glob("*/*/*.png")) - set(lost) == listed - set(lost) and len(listed) == mined.images


def test_what_was_begun_is_taken_back(hard_sets: HardSets, tmp_path: Path) -> None:
    large, out = hard_sets.mined(at_least=2, use=4).path, tmp_path / "hard"
    hard_sets.copy(out, at_least=4, use=4)
    paths = pq.read_table(large / "manifest.parquet")["path"].to_pylist()
    last = next(one for one in reversed(paths) if not (out / one).exists())
    (out / last).mkdir(parents=True)  # no file can be written there, so publishing stops in the middle
    with pytest.raises(OSError):
        mine(spec_of(hard_sets.pool, at_least=2, use=4), out)
    (out / last).rmdir()
    assert len(set(out.glob("*/*/*.png"))) > 20 and not (out / "manifest.parquet").exists()
    mined = mine(spec_of(hard_sets.pool, at_least=4, use=4), out)
    listed = {out / one for one in pq.read_table(out / "manifest.parquet")["path"].to_pylist()}
    assert set(out.glob("*/*/*.png")) == listed and len(listed) == mined.images < 20


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", b"[]"),
        ("summary.json", b'{"pool": 7, "generators": 5}'),
        ("answers.parquet", b"no table"),
        ("selection.parquet", None),
    ],
)
def test_a_torn_hard_set_is_said_in_a_sentence(
    hard_sets: HardSets, tmp_path: Path, file: str, content: bytes | None
) -> None:
    out = tmp_path / "hard"
    hard_sets.copy(out, at_least=3)
    if content is None:
        pd.read_parquet(out / "mining" / file).drop(columns="set").to_parquet(out / "mining" / file)
    else:
        (out / "mining" / file).write_bytes(content)
    for command in (
        ["mine", "modes", str(out)],
        ["mine", "remedy", str(out), "--model", "embedded:vit_rho95", "--out", "new"],
    ):
        asked = CliRunner().invoke(app, command)
        assert isinstance(asked.exception, UserError) or asked.exit_code == 2
        said = "answers.parquet is damaged" if content == b"no table" else "not a hard set, or not a whole one"
        assert said in f"{asked.exception}{asked.output}"


def test_a_torn_manifest_is_said_in_a_sentence(hard_sets: HardSets, tmp_path: Path) -> None:
    hard_sets.copy(tmp_path / "hard", at_least=3)
    (tmp_path / "hard" / "manifest.parquet").write_bytes(b"no table")
    with pytest.raises(UserError, match="cannot be read"):
        mine(spec_of(hard_sets.pool, at_least=3), tmp_path / "hard")


def test_a_category_that_no_folder_can_be_called(own_pool: Path, tmp_path: Path) -> None:
    table = pq.read_table(own_pool / "manifest.parquet").to_pandas()
    table.loc[table["label"] == "hen", "label"] = "hen/rooster"
    table.to_parquet(own_pool / "manifest.parquet")
    labels = tmp_path / "labels.csv"
    labels.write_text("class,label\nhen/rooster,hen\n")
    mine(spec_of(own_pool, at_least=3, labels=str(labels)), tmp_path / "hard")
    for text in (str(tmp_path / "hard"), f"imagenet-d:{tmp_path / 'hard'}"):
        collection = load_collection(text)
        assert "hen/rooster" in {sample.label for sample in collection.samples}
        assert set(collection.classes) == {"cat", "dog", "hen/rooster"}


def test_an_image_that_cannot_be_read_is_named(own_pool: Path, tmp_path: Path) -> None:
    file = sorted(own_pool.rglob("*.png"))[0]
    file.write_bytes(file.read_bytes()[:60])
    mined = mine(spec_of(own_pool, at_least=3), tmp_path / "hard")
    (warning,) = [text for text in mined.warnings if "nowhere; the first" in text]
    assert (
        warning.startswith("1 image has no answer and counts nowhere")
        and file.stem in warning
        and "has changed since" in warning
    )
    assert mined.facts["unanswered"] == 1


def test_drawn_scenes_can_be_mined(tmp_path: Path) -> None:
    """They are not files: the hard set has them as PNG, pixel for pixel."""
    data = "diorama:test?n=60&context=0"
    spec = MineSpec(
        data, ("embedded:mobilenet_rho95", "embedded:convnext_rho95"), ("embedded:vit_rho95",), "clip:embedded",
        again=0, device="cpu",
    )  # fmt: skip
    assert mine(spec, tmp_path / "hard").images > 3
    drawn = {sample.sample_id: sample for sample in load_collection(data).samples}
    for sample in load_collection(str(tmp_path / "hard")).samples:
        assert (sample.image.load() == drawn[sample.sample_id].image.load()).all()
        assert sample.label == drawn[sample.sample_id].label


def test_a_pools_words_run_nowhere_in_the_card(own_pool: Path, tmp_path: Path) -> None:
    table = pq.read_table(own_pool / "manifest.parquet").to_pandas()
    table = table.assign(licence="CC0 <img src=x onerror=alert(1)>", generator="<script>alert(2)</script>")
    table.to_parquet(own_pool / "manifest.parquet")
    mine(spec_of(own_pool, at_least=3), tmp_path / "hard")
    card = (tmp_path / "hard" / "DATACARD.md").read_text()
    assert "<img" not in card and "<script" not in card and "CC0 &lt;img" in card


def test_with_fast_models_answer_in_one_pass_and_say_the_same(tmp_path: Path) -> None:
    scenes, models = "diorama:test?n=6", ("embedded:resnet_rho0", "embedded:mobilenet_rho95", "embedded:vit_rho95")
    pools = []
    for fast in (False, True):
        spec = MineSpec(
            scenes, surrogates=models[:2], targets=models[2:], oracle="clip:embedded", device="cpu", fast=fast
        )
        pools.append(measure(spec, scenes, tmp_path / str(fast), silent)[0])
    assert [pool.run.spec()["fast"] for pool in pools] == [False, True]
    assert len(pools[0].images) == 6 and (pools[0].said == pools[1].said).all(axis=None)
    assert not pools[0].run.predictions.stored_ids() & pools[1].run.predictions.stored_ids()
