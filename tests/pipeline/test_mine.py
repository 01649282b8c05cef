from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import mine_world
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from mine_world import CLASSES, HELD_OUT, NAMES, ORACLE, CodedMaker, HardSets, make_pool, spec_of
from mine_world import hard_sets as hard_sets

import holdfast
from commands import HOLDFAST, run
from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.data import images as images_module
from holdfast.data import load_collection
from holdfast.pipeline.hard.mine import mine
from holdfast.pipeline.hard.pool import model_facts
from holdfast.pipeline.hard.publish import mentions


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = mine_world.write_models(tmp_path / "modules")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    sys.modules.pop("coded", None)
    registry.image_makers.register("coded", lambda name, device: CodedMaker(), summary="the test world's")
    yield
    registry.image_makers.remove("coded")


@pytest.fixture
def pool(hard_sets: HardSets) -> Path:
    """The pool of all tests; who changes it takes ``own_pool``."""
    return hard_sets.pool


@pytest.fixture
def own_pool(tmp_path: Path) -> Path:
    return make_pool(tmp_path / "pool")


def truth(pool: Path) -> pd.DataFrame:
    """What the pixels say, read with nothing of ours but the decoder."""
    import cv2

    rows = pq.read_table(pool / "manifest.parquet").to_pandas()
    bits = [int(cv2.imread(str(pool / path))[0, 1, 0]) for path in rows["path"]]
    for bit, name in enumerate((*NAMES, *HELD_OUT)):
        rows[name] = [bool(one >> bit & 1) for one in bits]
    rows["valid"] = [not one >> 7 & 1 for one in bits]
    return rows.set_index("sample_id")


def test_the_hard_set_is_what_the_pixels_say(pool: Path, tmp_path: Path) -> None:
    mined = mine(spec_of(pool, at_least=3, use=4), tmp_path / "hard")
    told = truth(pool)
    failures = told[list(NAMES)].sum(axis=1)
    expected = told[(failures >= 3) & told["valid"]]
    manifest = pq.read_table(tmp_path / "hard" / "manifest.parquet").to_pandas().set_index("sample_id")
    assert set(manifest.index) == set(expected.index) and mined.images == len(expected) > 10
    assert (manifest["surrogates_failed"] == failures[manifest.index]).all()
    assert manifest["oracle_accepted"].all() and (manifest["set"] == "hard").all()
    assert (manifest["nuisance"] == told.loc[manifest.index, "nuisance"]).all()
    for path, digest in zip(manifest["path"], manifest["published_sha256"], strict=True):
        kind, category, _ = path.split("/")
        assert kind in ("background", "texture", "material") and category in CLASSES
        assert (tmp_path / "hard" / path).read_bytes() == (pool / path).read_bytes()
        assert digest in set(told["published_sha256"])
    table = mined.tables["accuracy"]
    halves = manifest["half"]
    for target in HELD_OUT:
        for half in ("choose", "report"):
            row = table.query("model == @target and half == @half and subset == 'valid' and `set` == 'hard'").iloc[0]
            inside = expected.loc[halves.index[halves == half]]
            assert row["n"] == len(inside) and row["estimate"] == pytest.approx(1 - inside[target].mean())
    shared = told[failures >= 3]
    validity = mined.tables["validity"].set_index("set")
    selection = pd.read_parquet(tmp_path / "hard" / "mining" / "selection.parquet").set_index("sample_id")
    inside = selection["half"] == "report"
    assert validity.at["pool", "estimate"] == pytest.approx(told.loc[selection.index[inside], "valid"].mean())
    assert mined.facts["shared"] == len(shared) and set(selection["set"]) == {"hard", "control", "rest"}
    assert (selection[selection["set"] == "control"]["surrogates_failed"].between(1, 2)).all()


def test_targets_take_no_part_in_choosing(hard_sets: HardSets, tmp_path: Path) -> None:
    first = hard_sets.mined()
    spec = replace(spec_of(hard_sets.pool), targets=("python:coded:always_wrong",))
    second = mine(spec, tmp_path / "second")
    assert first.facts["choice"] == second.facts["choice"]
    a, b = (pd.read_parquet(mined.path / "mining" / "selection.parquet") for mined in (first, second))
    pd.testing.assert_frame_equal(a, b)


def test_halves_share_no_prompt_and_choices_see_one_half(hard_sets: HardSets) -> None:
    mined = hard_sets.mined()
    selection = pd.read_parquet(mined.path / "mining" / "selection.parquet")
    assert (selection.groupby("prompt_id")["half"].nunique() == 1).all()
    told = truth(hard_sets.pool)
    choosing = told.loc[selection.loc[selection["half"] == "choose", "sample_id"]]
    used = [name for name in NAMES if name in mined.facts["used"]]
    for row in mined.tables["choice_m"].to_dict("records"):
        hard = choosing[used].sum(axis=1) >= row["m"]
        assert (row["images"], row["valid"]) == (hard.sum(), (hard & choosing["valid"]).sum())


def test_everybody_can_open_it(hard_sets: HardSets, tmp_path: Path) -> None:
    hard_sets.copy(tmp_path / "hard", at_least=3)
    for text in (str(tmp_path / "hard"), f"imagenet-d:{tmp_path / 'hard'}"):
        collection = load_collection(text)
        assert {sample.kind for sample in collection.samples} == {"generated"}
        assert all(sample.attributes["nuisance"] and sample.attributes["prompt_id"] for sample in collection.samples)
        assert {sample.licence for sample in collection.samples} == {"CC0-1.0"} and not collection.problems
    (tmp_path / "hard" / "manifest.parquet").unlink()
    (tmp_path / "hard" / "manifest.csv").unlink()
    plain = load_collection(str(tmp_path / "hard"))
    assert {sample.sample_id for sample in plain.samples} == {sample.sample_id for sample in collection.samples}
    asked = plain.samples[0].attributes
    assert asked["gt_category"] == plain.samples[0].label and asked["top1_pred_cate"] == asked["gt_category"]
    assert asked["top2_pred_cate"] in CLASSES and asked["top2_pred_cate"] != asked["gt_category"]


@pytest.mark.parametrize("scheme", ["", "imagenet-d:"])
def test_a_changed_image_is_an_error_in_its_row(hard_sets: HardSets, tmp_path: Path, scheme: str) -> None:
    hard_sets.copy(tmp_path / "hard", at_least=3)
    path = sorted((tmp_path / "hard").glob("*/*/*.png"))[0]
    path.write_bytes(path.read_bytes() + b"x")
    run = holdfast.evaluate(f"{scheme}{tmp_path / 'hard'}", models=HELD_OUT[0], out=tmp_path / "run")
    errors = [row for row in run.rows().to_pylist() if row["status"] != "ok"]
    assert len(errors) == 1 and "has changed since it was published" in errors[0]["error"]


def test_another_m_is_cheap_and_replaces_the_set(hard_sets: HardSets, tmp_path: Path) -> None:
    out = tmp_path / "hard"
    hard_sets.copy(out, at_least=2, use=4)
    (out / "notes.txt").write_text("mine")
    before = {path: path.stat().st_mtime_ns for path in (out / "mining").rglob("part-*.parquet")}
    first = set(out.glob("*/*/*.png"))
    second = mine(spec_of(hard_sets.pool, at_least=4, use=4), out)
    assert {path: path.stat().st_mtime_ns for path in (out / "mining").rglob("part-*.parquet")} == before
    after = set(out.glob("*/*/*.png"))
    assert after < first and len(after) == second.images
    assert (out / "notes.txt").read_text() == "mine"
    fresh = hard_sets.mined(at_least=4, use=4)
    assert (out / "manifest.csv").read_bytes() == (fresh.path / "manifest.csv").read_bytes()
    for name, table in fresh.tables.items():
        pd.testing.assert_frame_equal(table, second.tables[name], obj=name)


def test_each_image_is_decoded_once_for_all_models(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    real = images_module.decode_image

    def counting(data: bytes, **options) -> np.ndarray:
        decoded.append(1)
        return real(data, **options)

    monkeypatch.setattr(images_module, "decode_image", counting)
    from holdfast.pipeline.evaluate.evaluate import evaluate

    evaluate(spec_of(pool).evaluation(str(pool)), tmp_path / "run")
    assert len(decoded) == len(load_collection(str(pool)).samples)


def test_caps_balance_and_rejected_images(pool: Path, tmp_path: Path) -> None:
    capped = mine(spec_of(pool, at_least=3, cap_per_category=4, cap_per_pair=1), tmp_path / "capped")
    manifest = pd.read_csv(tmp_path / "capped" / "manifest.csv")
    assert manifest.groupby("label").size().max() <= 4 and manifest.groupby(["label", "nuisance"]).size().max() == 1
    assert capped.facts["shared"] > capped.facts["hard"]
    mine(spec_of(pool, at_least=3, balance=True, keep_rejected=True), tmp_path / "balanced")
    counts = pd.read_csv(tmp_path / "balanced" / "manifest.csv").groupby("label").size()
    assert counts.nunique() == 1
    everything = mine(spec_of(pool, at_least=3, keep_rejected=True), tmp_path / "balanced")
    assert everything.images == everything.facts["shared"] > everything.facts["hard_valid"]
    assert not pd.read_csv(tmp_path / "balanced" / "manifest.csv")["oracle_accepted"].all()


def test_painting_anew_tells_prompt_from_luck(pool: Path, tmp_path: Path) -> None:
    """Hard prompts fail all models with chance 0.8 whatever the seed, so failures come back."""
    out = tmp_path / "hard"
    CodedMaker.painted = 0
    mined = mine(spec_of(pool, at_least=3, use=4, again=5), out)
    told = truth(pool)
    hard = told[told[list(NAMES)].sum(axis=1) >= 3]
    assert CodedMaker.painted == 5 * hard["prompt_id"].nunique() == mined.facts["again"]
    table = mined.tables["persistence"].set_index(["what", "half", "subset"])
    row = table.loc[("shared failure", "both", "all")]
    painted = load_collection(str(out / "mining" / "again" / "manifest.parquet")).samples
    again = [int(sample.image.load()[0, 1, 0]) for sample in painted]
    fails = np.mean([bin(bits & 15).count("1") >= 3 for bits in again])
    assert row["estimate"] == pytest.approx(fails) and row["n"] == len(painted)
    assert row["mined"] == 1 and row["pool"] < 0.4 < row["estimate"] and 0.3 < row["lasting"] < 1
    assert not {sample.attributes["seed"] for sample in painted} & set(told["seed"])
    mine(spec_of(pool, at_least=4, use=4, again=5), out)
    assert CodedMaker.painted == mined.facts["again"]  # the harder set's prompts were painted already
    mine(spec_of(pool, at_least=2, use=4, again=5), out)
    assert CodedMaker.painted > mined.facts["again"]
    for name in ("mining/again/run/spec.json", "mining/again/manifest.parquet"):
        assert (out / name).is_file()


def test_painting_anew_needs_the_pools_generator(pool: Path, tmp_path: Path) -> None:
    CodedMaker.fingerprint = "other weights"
    try:
        with pytest.raises(UserError, match="not what made the pool"):
            mine(spec_of(pool, at_least=3, again=2), tmp_path / "hard")
    finally:
        CodedMaker.fingerprint = "coded maker"
    with pytest.raises(UserError, match=r"cannot be loaded.*--again 0"):
        mine(spec_of(pool, at_least=3, again=2, generator="embedded:nothing"), tmp_path / "hard")
    assert not (tmp_path / "hard" / "manifest.parquet").exists()


def test_a_pool_without_prompts_is_mined_all_the_same(tmp_path: Path) -> None:
    pool = make_pool(tmp_path / "pool")
    for name in ("manifest.parquet", "manifest.csv", "spec.json"):
        (pool / name).unlink()
    mined = mine(spec_of(pool, at_least=3, again=5), tmp_path / "hard")
    assert any("does not say what its images were painted from" in one for one in mined.warnings) and mined.images > 10
    assert mined.facts["source"] == "photo"
    assert mined.tables["rates_nuisance"].empty and not mined.tables["rates_kind"].empty


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"surrogates": NAMES[:1]}, "two surrogates at least"),
        ({"targets": ()}, "name one or more: --targets"),
        ({"oracle": ""}, "--oracle"),
        ({"targets": (NAMES[0],)}, "is a surrogate and a target"),
        ({"targets": (f"{NAMES[0]}?name=other",)}, "is a surrogate and a target"),
        ({"surrogates": (NAMES[0], NAMES[0])}, "named twice"),
        ({"oracle": f"classifier:{NAMES[1]}"}, "is the model"),
        ({"oracle": f"ensemble:{ORACLE}+classifier:{HELD_OUT[0]}"}, "is the model"),
        ({"at_least": 1}, "cannot be"),
        ({"at_least": 5}, "cannot be"),
        ({"use": 9}, "--use 9"),
        ({"outcome": "half"}, "no choice of --outcome is called"),
        ({"pool": "nowhere"}, "does not exist"),
    ],
)
def test_mistakes_are_one_sentence(pool: Path, tmp_path: Path, options: dict, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        mine(replace(spec_of(pool), **options), tmp_path / "hard")
    assert not (tmp_path / "hard").exists()


def test_a_category_without_an_output(own_pool: Path, tmp_path: Path) -> None:
    table = pq.read_table(own_pool / "manifest.parquet").to_pandas()
    table.loc[table["label"] == "hen", "label"] = "walrus"
    table.to_parquet(own_pool / "manifest.parquet")
    with pytest.raises(UserError, match=r"class 'walrus' is no output of the model.*--labels"):
        mine(spec_of(own_pool), tmp_path / "hard")
    labels = tmp_path / "labels.csv"
    labels.write_text("class,label\nwalrus,hen\n")
    assert mine(spec_of(own_pool, at_least=3, labels=str(labels)), tmp_path / "hard").images > 10


def test_no_shared_failure_leaves_what_was_there(hard_sets: HardSets, tmp_path: Path) -> None:
    easy = make_pool(tmp_path / "easy", bits=lambda prompt, seed: 1 << int(seed) % 4)
    with pytest.raises(UserError, match=r"no image of 108 is failed by 4 of the 4.*most that fail together is 1"):
        mine(spec_of(easy, at_least=4, use=4), tmp_path / "new")
    assert not list((tmp_path / "new").glob("*/*/*.png")) and not (tmp_path / "new" / "manifest.csv").exists()
    hard_sets.copy(tmp_path / "hard", at_least=3)
    before = {path: path.read_bytes() for path in (tmp_path / "hard").glob("*/*/*.png")}
    (tmp_path / "moved").mkdir()
    easy.rename(tmp_path / "moved" / "pool")
    with pytest.raises(UserError, match="no image of"):
        mine(spec_of(tmp_path / "moved" / "pool", at_least=4, use=4), tmp_path / "hard")
    assert {path: path.read_bytes() for path in (tmp_path / "hard").glob("*/*/*.png")} == before
    assert (tmp_path / "hard" / "manifest.parquet").is_file()


def test_only_wrong_labels_are_no_hard_set(tmp_path: Path) -> None:
    wrong = make_pool(tmp_path / "pool", bits=lambda prompt, seed: 15 | 128 if seed == 0 else 0)
    with pytest.raises(UserError, match="accepts none of the 36 images"):
        mine(spec_of(wrong), tmp_path / "hard")
    mined = mine(spec_of(wrong, keep_rejected=True), tmp_path / "hard")
    assert mined.images == 36 and mined.facts["hard_valid"] == 0


def test_doubtful_models_are_told(pool: Path, tmp_path: Path) -> None:
    wrong = "python:coded:always_wrong"
    told = mine(replace(spec_of(pool), surrogates=(*NAMES, wrong)), tmp_path / "a").warnings
    assert any("always_wrong gets every image wrong" in one and "everything" in one for one in told)
    told = mine(replace(spec_of(pool), surrogates=(*NAMES, "python:coded:copy")), tmp_path / "b").warnings
    assert any("python:coded:one and python:coded:copy give the same answer to every image" in one for one in told)
    everything = make_pool(tmp_path / "every", bits=lambda prompt, seed: 15)
    told = mine(spec_of(everything), tmp_path / "c").warnings
    assert any("the hard set is the pool" in one for one in told)
    told = mine(spec_of(pool, at_least=4, use=4, least_images=10_000), tmp_path / "d").warnings
    assert any("fewer than the 10000 asked for" in one for one in told)


def test_what_is_not_ours_is_left_alone(pool: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="is not empty"):
        mine(spec_of(pool), tmp_path / "full")
    with pytest.raises(UserError, match=r"are in|is not empty"):
        mine(spec_of(pool), pool)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


def test_an_image_changed_in_between_is_not_published(own_pool: Path, tmp_path: Path) -> None:
    mine(spec_of(own_pool, at_least=3), tmp_path / "hard")
    (own_pool / "manifest.csv").unlink()
    table = pq.read_table(own_pool / "manifest.parquet")
    pq.write_table(table.drop(["published_sha256"]), own_pool / "manifest.parquet")
    chosen = pq.read_table(tmp_path / "hard" / "manifest.parquet")["path"].to_pylist()[0]
    image = mine_world.picture(chosen.split("/")[1], 0)
    from holdfast.data.writers import encode_image

    (own_pool / chosen).write_bytes(encode_image(image))
    again = mine(spec_of(own_pool, at_least=3), tmp_path / "hard")  # classified again, and right now
    assert chosen not in pq.read_table(tmp_path / "hard" / "manifest.parquet")["path"].to_pylist()
    assert not (tmp_path / "hard" / chosen).exists() and again.images > 10


def test_the_card_counts_and_names_people(hard_sets: HardSets, tmp_path: Path) -> None:
    pool = make_pool(tmp_path / "pool", words=", next to a nun and two children <script>alert(1)</script>")
    mined = mine(spec_of(pool, at_least=3), tmp_path / "hard")
    card = (tmp_path / "hard" / "DATACARD.md").read_text()
    manifest = pd.read_csv(tmp_path / "hard" / "manifest.csv")
    for label, count in manifest.groupby("label").size().items():
        assert any(line.startswith(f"| {label} |") and line.endswith(f" {count} |") for line in card.splitlines())
    assert "| nun | people | 36 | 108 |" in card and "| children | people |" in card and "| child |" not in card
    assert "CC0-1.0" in card and "coded:" in card and "<script>" not in card
    assert mined.facts["choice"]["rule"][0] in card
    assert "None of them occurs" in (hard_sets.mined(at_least=3).path / "DATACARD.md").read_text()


def test_words_are_found_whole() -> None:
    prompts = pd.Series(["a man", "a mango", "two Nuns", "a churchyard", "churches"])
    assert list(mentions(prompts, "man")) == [True, False, False, False, False]
    assert list(mentions(prompts, "nun")) == [False, False, True, False, False]
    assert list(mentions(prompts, "church")) == [False, False, False, False, True]


def test_what_is_known_of_models() -> None:
    texts = ["embedded:resnet_rho0", "embedded:resnet_rho95_strong", "clip:ViT-B-32@openai"]
    texts.append("timm:vit_base_patch16_224.mae")
    facts = model_facts(texts, texts)
    assert list(facts["family"]) == ["resnet", "resnet", "vit", "vit"]
    assert facts["data"].iloc[0] != facts["data"].iloc[1] and "ρ = 0" in facts["data"].iloc[0]
    assert facts["objective"].iloc[0] != facts["objective"].iloc[1]
    assert list(facts["objective"].iloc[2:]) == ["image–text contrast", "masked images"]
    assert list(model_facts(["x"], ["python:coded:one"]).iloc[0]) == ["", "", ""]


@pytest.mark.slow
def test_killed_and_run_again(pool: Path, tmp_path: Path) -> None:
    command = [*HOLDFAST, "mine", str(pool), "--surrogates"]
    command += ["python:coded:slow," + ",".join(NAMES[1:]), "--targets", ",".join(HELD_OUT), "--oracle", ORACLE]
    command += ["--out", str(tmp_path / "killed"), "--again", "0", "--least-images", "5", "--device", "cpu"]
    parts = tmp_path / "killed" / "mining" / "run" / "predictions"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not list(parts.glob("part-*.parquet")):
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    done = set(parts.glob("part-*.parquet"))
    assert not (tmp_path / "killed" / "manifest.parquet").exists()
    finished = run(*command[len(HOLDFAST) :])
    assert done <= set(parts.glob("part-*.parquet")) and "points lost against the control" in finished.stdout
    whole = mine(spec_of(pool), tmp_path / "whole")
    assert (tmp_path / "killed" / "manifest.csv").read_bytes() == (whole.path / "manifest.csv").read_bytes()
    rows = json.loads((tmp_path / "killed" / "mining" / "summary.json").read_text())
    assert rows["shared"] == whole.facts["shared"]
    assert (tmp_path / "killed" / "mining" / "report" / "index.html").is_file()


def test_models_choose_among_all_categories_when_few_are_hard(tmp_path: Path) -> None:
    """Only hens are hard; painted again, a model that calls them cats must be wrong although no cat was painted."""
    pool = make_pool(tmp_path / "pool", bits=lambda prompt, seed: 63 if " hen " in prompt else 0)
    mined = mine(spec_of(pool, at_least=4, again=1, outcome="restricted"), tmp_path / "hard")
    again = load_collection(str(tmp_path / "hard" / "mining" / "again" / "manifest.parquet"))
    assert again.classes == CLASSES and mined.facts["again"] == 12
    assert {sample.label for sample in again.samples if sample.condition != "stand-in"} == {"hen"}


def test_a_pool_of_few_prompts(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make a larger pool"):
        mine(spec_of(pool, limit=1, seed=1), tmp_path / "one")
    few = mine(spec_of(pool, limit=6, keep_rejected=True), tmp_path / "six")
    assert few.facts["prompts"] == 6 and any("fewer than the 5 asked for" in one for one in few.warnings)
