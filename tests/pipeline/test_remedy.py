"""``holdfast mine modes`` and ``holdfast mine remedy`` on a hard set of drawn scenes: real training, known truth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import drawn_pool
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from drawn_pool import TARGET
from typer.testing import CliRunner

import holdfast
from holdfast import api
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.data.writers import encode_image
from holdfast.diorama.vocabulary import KEYS
from holdfast.models import load_classifier
from holdfast.pipeline.hard.failure_modes import ModesSpec, class_name, gather, read_words
from holdfast.pipeline.hard.pool import JUDGED
from holdfast.pipeline.hard.remedy import AGAIN, EASY, HARD, POOL, easy_samples, trainable
from holdfast.pipeline.specs.training import REMEDIES
from holdfast.stats.hard.failure_modes import LOOK_ALIKE, UNEXPLAINED
from holdfast.store import Parts
from holdfast.testing import check_classifier


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drawn_pool.make_hard(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def remedied(hard: Path, tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("remedied") / "run"
    return holdfast.mine_remedy(
        hard,
        model=TARGET,
        out=out,
        epochs=4,
        train_batch=8,
        originals=("diorama:test?n=24&context=0.95",),
        device="cpu",
    )


def images_of(hard: Path) -> pd.DataFrame:
    answers = pd.read_parquet(hard / "mining" / "answers.parquet").set_index("sample_id")
    selection = pd.read_parquet(hard / "mining" / "selection.parquet").set_index("sample_id")
    return answers.join(selection[["surrogates_failed", "set"]])


def test_training_sees_easy_images_of_the_other_half_only(hard: Path, remedied) -> None:
    images = images_of(hard)
    samples = easy_samples(images, load_collection(str(hard.parent / "pool")), limit=0, seed=0)
    own = images.loc[[sample.sample_id for sample in samples]]
    assert len(samples) == remedied.facts["images"] > 40
    assert own["valid"].all() and (own["surrogates_failed"] == 0).all() and (own["half"] == "choose").all()
    assert all((own[model] == own["category"]).all() for model in drawn_pool.SURROGATES)
    tested = remedied.answers[remedied.answers["set"].isin([HARD, EASY, POOL])]
    assert not set(tested["prompt_id"]) & set(own["prompt_id"])
    fewer = easy_samples(images, load_collection(str(hard.parent / "pool")), limit=20, seed=0)
    assert len(fewer) == 20 and {one.sample_id for one in fewer} < {one.sample_id for one in samples}


def test_a_prompt_in_both_halves_is_refused(hard: Path) -> None:
    images = images_of(hard)
    easy = images.index[(images["half"] == "choose") & images["valid"] & (images["surrogates_failed"] == 0)][0]
    other = images.index[images["half"] == "report"][0]
    images.loc[other, "prompt_id"] = images.loc[easy, "prompt_id"]
    with pytest.raises(UserError, match=r"1 prompts .* are in both halves"):
        easy_samples(images, load_collection(str(hard.parent / "pool")), limit=0, seed=0)
    with pytest.raises(UserError, match="only 0 easy images"):
        easy_samples(images.assign(valid=False), load_collection(str(hard.parent / "pool")), limit=0, seed=0)


def test_every_set_is_measured(remedied) -> None:
    rows = remedied.table.set_index("set")
    assert list(rows.index) == [HARD, EASY, POOL, "diorama:test?n=24&context=0.95"]
    assert rows.loc[HARD, "before"] < rows.loc[POOL, "before"] < rows.loc[EASY, "before"]
    assert rows.loc[EASY, "after"] > 0.85 and (rows["low"] <= rows["estimate"]).all()
    assert rows.loc[POOL, "n"] > rows.loc[EASY, "n"] + rows.loc[HARD, "n"] - 1
    for _, part in remedied.answers.groupby("set"):  # in whatever order the parts of the runs were read
        assert list(part["sample_id"]) == sorted(part["sample_id"])


@pytest.mark.slow
def test_it_mends_what_leans_on_the_background(tmp_path: Path) -> None:
    hard = drawn_pool.make_hard(tmp_path, scenes=1800)
    done = holdfast.mine_remedy(hard, model=TARGET, out=tmp_path / "run", device="cpu")
    rows = done.table.set_index("set")
    for name in (HARD, POOL, "drawn scenes, untied"):
        assert rows.loc[name, "low"] > 0, rows.loc[name].to_dict()
    assert rows.loc["drawn scenes, tied", "estimate"] > -0.03


def test_before_and_after_are_what_the_two_models_answer(hard: Path, remedied) -> None:
    images = images_of(hard)
    inside = images[(images["half"] == "report") & images["valid"] & (images["set"] == "hard")]
    samples = {one.sample_id: one for one in load_collection(str(hard.parent / "pool")).samples}
    pictures = [samples[name].image.load() for name in inside.index]
    row = remedied.table.set_index("set").loc[HARD]
    for when, name in (("before", TARGET), ("after", remedied.name)):
        model = load_classifier(name, device="cpu")
        said = [model.labels.names[place] for place in model.predict(pictures).argmax(1)]
        right = np.mean([one == label for one, label in zip(said, inside["category"], strict=True)])
        assert row[when] == pytest.approx(right)
    assert row["estimate"] == pytest.approx(row["after"] - row["before"]) and row["n"] == len(inside) > 5


def test_the_new_model_is_a_model_like_any_other(remedied) -> None:
    check_classifier(remedied.name)
    folder = remedied.path / "model"
    facts = json.loads((folder / "config.json").read_text())["holdfast"]
    assert facts["model"] == TARGET and facts["asked"]["recipe"]["epochs"] == 4
    losses = list(facts["history"].values())
    assert len(losses) == 4 and losses[-1] < losses[0]
    assert "fine-tuned on generated images" in (folder / "README.md").read_text()
    before, after = (load_classifier(name, device="cpu").module.state_dict() for name in (TARGET, remedied.name))
    assert set(before) == set(after)
    moved = {name for name in before if not torch.equal(before[name].float(), after[name].float())}
    norms = {name for name in before if "running_" in name}
    assert moved and norms and not moved & norms  # few images do not replace what batch norms know of many


def test_going_on_trains_and_computes_nothing_again(hard: Path, remedied) -> None:
    file = remedied.path / "model" / "model.safetensors"
    stamp = file.stat().st_mtime_ns
    parts = sorted((remedied.path / "runs").rglob("part-*.parquet"))
    options = {"epochs": 4, "train_batch": 8, "originals": ("diorama:test?n=24&context=0.95",), "device": "cpu"}
    again = holdfast.mine_remedy(hard, model=TARGET, out=remedied.path, **options)
    assert file.stat().st_mtime_ns == stamp and sorted((remedied.path / "runs").rglob("part-*.parquet")) == parts
    pd.testing.assert_frame_equal(again.table, remedied.table)
    with pytest.raises(UserError, match=r"holds another run \(model"):
        holdfast.mine_remedy(hard, model="embedded:vit_rho95", out=remedied.path, device="cpu")


def test_the_page_says_what_it_mends(remedied) -> None:
    page = " ".join((remedied.path / "report" / "index.html").read_text(encoding="utf8").split())
    row = remedied.table.set_index("set").loc[HARD]
    assert f"{100 * row['before']:.1f} % → {100 * row['after']:.1f} %" in page
    assert f"on {int(row['n'])} valid images" in page
    assert "Drawn scenes: the truth is known there" in page and page.count("data:image/jpeg;base64,") >= 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "python:somewhere:model"}, "remedy trains embedded:, local-dir:, timm: models"),
        ({"recipe": "magic"}, "no choice of recipe= is called 'magic'"),
        ({"outcome": "both"}, "no choice of outcome= is called 'both'"),
        ({"hard": "pool"}, "is not a hard set.*make one of a pool first"),
        ({"pool": "gone"}, "gone"),
    ],
)
def test_wrong_requests(hard: Path, tmp_path: Path, change: dict[str, str], said: str) -> None:
    asked = {"hard": str(hard), "model": TARGET, "device": "cpu"} | change
    if change.get("hard"):
        asked["hard"] = str(hard.parent / "pool")
    with pytest.raises(UserError, match=said):
        holdfast.mine_remedy(asked.pop("hard"), out=tmp_path / "run", **asked)
    assert not (tmp_path / "run" / "model").exists()


def test_a_surrogate_is_warned_of(hard: Path, tmp_path: Path) -> None:
    done = holdfast.mine_remedy(
        hard, model=drawn_pool.SURROGATES[0], out=tmp_path / "run", epochs=1, limit=16, recipe="paper",
        originals=("diorama:test?n=12",), device="cpu",
    )  # fmt: skip
    assert any("chose this hard set as a surrogate" in one for one in done.warnings)
    assert done.facts["how"] == {
        "optimiser": "sgd", "rate": 1e-4, "epochs": 1, "batch_size": 32, "cycle": False, "moves": False,
    }  # fmt: skip
    assert REMEDIES["paper"].epochs == 10


def test_timm_models_can_be_saved(tmp_path: Path) -> None:
    from holdfast.pipeline.hard.remedy import save

    names = tmp_path / "names.txt"
    names.write_text("cat\ndog\nhen\n")
    classifier, config = trainable(f"timm:resnet10t?pretrained=false&num_classes=3&seed=1&labels={names}", device="cpu")
    save(tmp_path / "kept", classifier.module, config, {"name": "kept", "model": "timm:resnet10t"}, drawn=False)
    again = load_classifier(f"local-dir:{tmp_path / 'kept'}", device="cpu")
    image = np.random.default_rng(0).integers(0, 256, (70, 90, 3), np.uint8)
    np.testing.assert_allclose(again.predict([image]), classifier.predict([image]), atol=1e-6)
    assert again.labels.names == ("cat", "dog", "hen")
    assert "Known-truth" not in (tmp_path / "kept" / "README.md").read_text()


def test_modes_of_a_hard_set_are_of_its_valid_images(hard: Path, tmp_path: Path) -> None:
    page, (found,) = api.mine_modes([hard], out=tmp_path / "page")
    images = images_of(hard)
    wanted = images.index[(images["set"] == "hard") & images["valid"]]
    assert set(found.explained["sample_id"]) <= set(wanted) and len(found.answers.images) == 240
    surrogate = found.explained[found.explained["model"] == drawn_pool.SURROGATES[0]]
    assert set(surrogate["sample_id"]) == set(wanted)
    rows = found.by_model.set_index(["model", "mode"])
    assert rows.loc[(drawn_pool.SURROGATES[1], "background"), "answers"] > 0
    assert "goes with the background" in page.read_text(encoding="utf8")
    lead = page.read_text(encoding="utf8").partition("A wrong answer goes with")[0]
    assert TARGET.partition(":")[2] in lead.rpartition("wrong answers of")[2]
    assert not any(f"wrong answers of {one.partition(':')[2]}" in lead for one in drawn_pool.SURROGATES)
    mining = (hard / "mining" / "report" / "index.html").read_text(encoding="utf8")
    assert "Why models are wrong" in mining


def natural(folder: Path, count: int = 180) -> Path:
    """ImageNet-A's layout: folders by WordNet id, and nothing known of the images."""
    for place, sample in enumerate(load_collection(f"diorama:test?n={count}&context=0").samples):
        (own,) = KEYS[sample.label].wnids
        file = folder / own / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode_image(sample.image.load()))
    return folder


def test_a_natural_set_is_read_and_compared(hard: Path, tmp_path: Path) -> None:
    data = natural(tmp_path / "natural")
    api.evaluate(data, models=[TARGET], out=tmp_path / "run", scenarios="original", device="cpu")
    page, (blind, mined) = api.mine_modes([tmp_path / "run", hard], out=tmp_path / "blind")
    assert blind.modes == [LOOK_ALIKE, UNEXPLAINED] and "background" in mined.modes
    text = page.read_text(encoding="utf8")
    assert "Side by side" in text and "Nothing is known of what surrounds the objects" in text
    names = tmp_path / "names.csv"
    names.write_text("class,label\n" + "".join(f"{KEYS[one].wnids[0]},{one}\n" for one in KEYS))
    words = tmp_path / "words.txt"
    words.write_text("# places\n" + "\n".join(read_phrases()) + "\n")
    spec = ModesSpec(words=str(words), oracle="clip:embedded", labels=str(names), device="cpu")
    answers = gather(tmp_path / "run", spec)
    truth = {str(place): one.attributes["background"]
             for place, one in enumerate(load_collection("diorama:test?n=180&context=0").samples)}  # fmt: skip
    told = answers.factors["background"]
    told = told[told != ""]
    right = [truth[Path(name).stem] == value for name, value in told.items()]
    assert len(told) > 110 and np.mean(right) > 0.8
    assert answers.reading["read"] == len(told) and answers.reading["asked"] == 0


def read_phrases() -> list[str]:
    return list(read_words("diorama").values())


def test_words_of_a_pools_own_prompts(hard: Path) -> None:
    answers = gather(hard, ModesSpec(words="prompts", oracle="clip:embedded", device="cpu"))
    assert answers.reading["asked"] > 150 and answers.reading["agree"] / answers.reading["asked"] > 0.8
    assert (answers.factors["background"] == answers.images["nuisance"]).all()  # what was asked for is kept


def test_wrong_words(hard: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.txt"
    file.write_text("in the sea\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\xd8")
    for spec, said in (
        (ModesSpec(words="diorama"), "with both: --words FILE and --oracle"),
        (ModesSpec(words="diorama", oracle="classifier:embedded:resnet_rho0"), "must be a clip:"),
        (ModesSpec(words="nowhere", oracle="clip:embedded"), "must be a file"),
        (ModesSpec(words=str(file), oracle="clip:embedded"), "has 1 phrases"),
        (ModesSpec(words=str(tmp_path / "binary"), oracle="clip:embedded"), "is not text"),
    ):
        with pytest.raises(UserError, match=said):
            gather(hard, spec)
    with pytest.raises(UserError, match="no choice of --outcome is called"):
        ModesSpec(outcome="both")
    with pytest.raises(UserError, match="no name for class"):
        class_name("n00000000", None)
    assert "Maltese" in class_name("n02085936", None)


def test_the_verbs(hard: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(hard, tmp_path / "copy")
    asked = CliRunner().invoke(app, ["mine", "modes", str(copy), "--quiet"])
    assert asked.exit_code == 0, asked.output
    assert "wrong answers" in asked.output and (copy / "modes" / "index.html").is_file()
    asked = CliRunner().invoke(
        app,
        ["mine", "remedy", str(copy), "--model", TARGET, "--epochs", "1", "--limit", "16", "--originals",
         "diorama:test?n=12",         "--device", "cpu", "--out", str(tmp_path / "run"), "-q"],
    )  # fmt: skip
    assert asked.exit_code == 0, asked.output
    assert "trained on 16 easy images" in asked.output and "local-dir:" in asked.output


def test_hard_prompts_painted_anew_are_measured_too(hard: Path, tmp_path: Path) -> None:
    """Only those of the reporting half that the oracle accepts: no failure chose them."""
    copy = shutil.copytree(hard, tmp_path / "copy")
    pool = hard.parent / "pool"
    again = copy / "mining" / "again"
    images = images_of(hard)
    prompts = {
        half: set(images.loc[(images["set"] == "hard") & images["valid"] & (images["half"] == half), "prompt_id"])
        for half in ("report", "choose")
    }
    rows = pq.read_table(pool / "manifest.parquet").to_pylist()
    rows = [
        row | {"sample_id": f"new/{row['sample_id']}"}
        for row in rows
        if row["prompt_id"] in set.union(*prompts.values())
    ]
    for row in rows:
        (again / row["path"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pool / row["path"], again / row["path"])
    pq.write_table(pa.Table.from_pylist(rows), again / "manifest.parquet")
    accepted = {row["sample_id"]: place % 3 != 0 for place, row in enumerate(rows)}
    own = json.loads((copy / "mining" / "summary.json").read_text())["oracle"]
    Parts(again / "oracle", JUDGED).write(
        pa.Table.from_pylist(
            [
                {"row_id": f"{oracle}/{name}", "sample_id": name, "oracle": oracle, "accepted": yes or oracle != own}
                for name, yes in accepted.items()
                for oracle in (own, "one that mined it before and accepts all")
            ],
            schema=JUDGED,
        )
    )
    done = holdfast.mine_remedy(
        copy, model=TARGET, out=tmp_path / "run", epochs=1, limit=16, originals=("diorama:test?n=12",), device="cpu"
    )
    found = done.answers[done.answers["set"] == AGAIN]
    expected = {
        row["sample_id"] for row in rows if accepted[row["sample_id"]] and row["prompt_id"] in prompts["report"]
    }
    assert set(found["sample_id"]) == expected and set(found["prompt_id"]) <= prompts["report"]
    row = done.table.set_index("set").loc[AGAIN]
    truth = found["sample_id"].str.removeprefix("new/").map(images[TARGET] == images["category"])
    assert row["before"] == pytest.approx(truth.mean())
