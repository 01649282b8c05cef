from __future__ import annotations

import csv
import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from generate_world import Toy, tiny_pipeline

import holdfast
from commands import run
from holdfast import registry
from holdfast.core.errors import MachineError, UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.data import load_collection
from holdfast.data.labels import read_label_file
from holdfast.diorama.vocabulary import BACKGROUNDS, CLASSES, KEYS, MATERIALS, TEXTURES, caption
from holdfast.pipeline.generate.generate import BLACK, GenerateSpec, ImageRequest, generate, make_images
from holdfast.pipeline.generate.plan import plan_prompts

CHANGING = ("seconds", "made_at")
"""What two runs of the same thing may differ in."""


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def lists(tmp_path: Path) -> dict[str, Any]:
    """Two categories, two backgrounds and a material: six prompts."""
    (tmp_path / "c.txt").write_text("fox\nwhale\n")
    (tmp_path / "n.toml").write_text('material = ["wool"]\nbackground = ["snow", "sea"]\n')
    return {
        "categories": str(tmp_path / "c.txt"),
        "nuisances": str(tmp_path / "n.toml"),
        "kinds": ("background", "material"),
    }


def manifest(pool: Path, drop: tuple[str, ...] = CHANGING) -> list[dict[str, Any]]:
    rows = pq.read_table(pool / "manifest.parquet").to_pylist()
    return [{key: value for key, value in row.items() if key not in drop} for row in rows]


def images(pool: Path) -> dict[str, bytes]:
    return {path.relative_to(pool).as_posix(): path.read_bytes() for path in pool.rglob("*.png")}


def test_drawn_lists_are_the_words_the_embedded_model_was_trained_on() -> None:
    made = plan_prompts(GenerateSpec("embedded:"))
    counts = Counter(one.nuisance_kind for one in made.requests)
    assert counts == {"background": 12 * 16, "texture": 12 * 12, "material": 12 * 9}
    assert {one.category for one in made.requests} == set(CLASSES) and not made.problems
    somewhere = BACKGROUNDS["sea"]
    for one in made.requests:
        if one.nuisance_kind == "background":
            assert one.prompt == caption(one.category, "plain", "natural", one.nuisance)
        elif one.nuisance_kind == "texture":
            assert f"{one.prompt} {somewhere}" == caption(one.category, one.nuisance, "natural", "sea")
        else:
            assert f"{one.prompt} {somewhere}" == caption(one.category, "plain", one.nuisance, "sea")
    assert {one.nuisance for one in made.requests} == {*BACKGROUNDS, *TEXTURES, *MATERIALS} - {"plain", "natural"}
    assert {one.name: one.keys for one in made.categories} == KEYS


def test_published_lists_give_61_811_pairs(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("".join(f"thing {number}\n" for number in range(113)))
    kinds = {"background": 468, "texture": 47, "material": 32}
    rows = [f"{kind},{kind} {number}" for kind, count in kinds.items() for number in range(count)]
    (tmp_path / "n.csv").write_text("\n".join(["kind,name", *rows]))
    spec = GenerateSpec("diffusers:x", str(tmp_path / "c.txt"), str(tmp_path / "n.csv"))
    whole = plan_prompts(spec)
    assert len(whole.requests) == len({one.prompt_id for one in whole.requests}) == 61_811
    # A limit is even over categories and kinds, and a higher one only adds.
    first = plan_prompts(dataclasses.replace(spec, limit=339)).requests
    assert first == whole.requests[:339]
    assert set(Counter((one.nuisance_kind, one.category) for one in first).values()) == {1}


def test_a_pool_says_where_each_image_comes_from(tmp_path: Path, lists: dict[str, Any]) -> None:
    toy, pool = Toy(), tmp_path / "pool"
    spec = GenerateSpec("toy:", **lists, per_pair=2, batch_size=5, licence="CC0-1.0")
    summary = generate(spec, pool, maker=toy)
    assert (summary.rows, summary.already, summary.trouble) == (12, 0, {})
    assert toy.calls == [5, 5, 2]
    rows = manifest(pool)
    assert len(rows) == len({row["sample_id"] for row in rows}) == len({row["seed"] for row in rows}) == 12
    assert len({row["prompt_id"] for row in rows}) == 6
    for row in rows:
        request = ImageRequest(row["prompt"], row["label"], row["condition"], row["nuisance"], row["repeat"])
        assert row["source_id"] == row["prompt_id"] == request.prompt_id and len(row["prompt_id"]) == 16
        assert row["sample_id"] == f"{row['condition']}/{row['label']}/{row['prompt_id']}-{row['repeat']}"
        assert row["path"] == f"{row['sample_id']}.png"
        assert row["published_sha256"] == bytes_sha256((pool / row["path"]).read_bytes())
        assert (row["height"], row["width"], row["kind"], row["attempt"]) == (8, 12, "generated", 0)
        assert (row["generator"], row["generator_fingerprint"]) == ("toy:", toy.fingerprint)
        assert row["licence"] == "CC0-1.0" and row["seed"] == request.seed()
    prompts = {row["prompt"] for row in rows}
    assert {"a photo of a fox in a snow", "a photo of a whale made of wool"} < prompts
    spec_json = json.loads((pool / "spec.json").read_text())
    assert (spec_json["verb"], spec_json["images"], spec_json["prompts"]) == ("generate", 12, 6)
    # What the readers make of it.
    for place in (pool, pool / "manifest.csv"):
        collection = load_collection(str(place))
        assert collection.classes == ("fox", "whale") and not collection.problems and len(collection) == 12
        sample = collection.samples[0]
        assert (sample.kind, sample.condition, sample.licence) == ("generated", "background", "CC0-1.0")
        assert {"nuisance", "prompt", "prompt_id", "seed"} <= set(sample.attributes)
        toy_image = toy.generate([sample.attributes["prompt"]], [int(sample.attributes["seed"])])[0]
        np.testing.assert_array_equal(sample.image.load(), toy_image)


def test_a_pool_goes_on_and_only_grows(tmp_path: Path, lists: dict[str, Any]) -> None:
    pool = tmp_path / "pool"
    spec = GenerateSpec("toy:", **lists, limit=4)
    assert generate(spec, pool, maker=Toy()).rows == 4
    before = images(pool)
    again = Toy()
    assert (generate(spec, pool, maker=again).rows, again.calls) == (0, [])
    more = generate(dataclasses.replace(spec, limit=0, per_pair=2, batch_size=3), pool, maker=Toy())
    assert (more.rows, more.already) == (8, 4)
    after = images(pool)
    assert len(after) == len(manifest(pool)) == 12 and before.items() < after.items()
    generate(dataclasses.replace(spec, limit=0, per_pair=2), tmp_path / "at once", maker=Toy())
    assert images(tmp_path / "at once") == after and manifest(tmp_path / "at once") == manifest(pool)
    # A file that has gone is made again, a pool of something else is not mixed in.
    lost = next(iter(after))
    (pool / lost).unlink()
    assert generate(dataclasses.replace(spec, per_pair=2, limit=0), pool, maker=Toy()).rows == 1
    assert images(pool) == after and len(manifest(pool)) == 12
    with pytest.raises(UserError, match="choose another --out"):
        generate(spec, pool, maker=Toy("other weights"))
    with pytest.raises(UserError, match="choose another --out"):
        generate(dataclasses.replace(spec, seed=1), pool, maker=Toy())


def test_seeds_follow_prompt_and_repeat_alone() -> None:
    one = ImageRequest("a fox", "fox", "background", "sea")
    assert one.seed() == dataclasses.replace(one).seed() != one.seed(1)
    assert len({dataclasses.replace(one, repeat=repeat).seed() for repeat in range(100)}) == 100
    made = list(make_images(Toy(), [one], seed=5))
    assert [(item.seed, item.attempt, item.error) for item in made] == [(one.seed(5), 0, "")]


def test_a_black_image_is_a_row_and_made_once_more(tmp_path: Path, lists: dict[str, Any]) -> None:
    toy, pool = Toy(), tmp_path / "pool"
    spec = GenerateSpec("toy:", **lists)
    once, twice = (one.seed() for one in plan_prompts(spec).requests[:2])
    toy.black_seeds = {once, twice, twice + 1}
    summary = generate(spec, pool, maker=toy)
    assert summary.rows == 5 and summary.trouble == {
        f"{BLACK}; made once more with the next seed": 2,
        f"{BLACK}; the second time, too": 1,
    }
    assert {(row["seed"], row["attempt"]) for row in manifest(pool)} > {(once + 1, 1)}
    assert len(manifest(pool)) == 5 == len(images(pool))
    with (pool / "failed.csv").open() as file:
        failed = [(int(row["seed"]), row["attempt"], row["status"]) for row in csv.DictReader(file)]
    assert sorted(failed) == sorted([(once, "0", "error"), (twice, "0", "error"), (twice + 1, "1", "error")])
    # Neither is tried a third time.
    again = Toy()
    assert generate(spec, pool, maker=again).already == 6 and not again.calls
    assert len(load_collection(str(pool))) == 5


def test_a_prompt_the_generator_fails_on_does_not_stop_the_others(tmp_path: Path, lists: dict[str, Any]) -> None:
    toy = Toy()
    toy.broken_prompts = {"a photo of a fox made of wool"}
    summary = generate(GenerateSpec("toy:", **lists), tmp_path / "pool", maker=toy)
    assert summary.rows == 5 and sum(summary.trouble.values()) == 2
    assert all("ValueError: this prompt is too much for me;" in message for message in summary.trouble)


def test_running_out_of_memory_says_what_to_do(tmp_path: Path, lists: dict[str, Any]) -> None:
    class Huge(Toy):
        def generate(self, prompts: Any, seeds: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MachineError, match="smaller --batch-size"):
        generate(GenerateSpec("toy:", **lists), tmp_path / "pool", maker=Huge())


def test_duplicates_are_told_and_kept_once(tmp_path: Path, lists: dict[str, Any]) -> None:
    (tmp_path / "c.txt").write_text("fox\nwhale\nfox\n")
    (tmp_path / "n.csv").write_text("kind,name,words\nbackground,sea,sea\nbackground,ocean,sea\n")
    spec = GenerateSpec("toy:", **lists | {"nuisances": str(tmp_path / "n.csv"), "kinds": ("background",)})
    summary = generate(spec, tmp_path / "pool", maker=Toy())
    assert summary.rows == 2 and not sum(summary.trouble.values())
    assert set(summary.trouble) == {
        "the category 'fox' is listed twice; one is kept",
        "the prompt 'a photo of a fox in a sea' is asked for twice; kept for background sea, fox",
        "the prompt 'a photo of a whale in a sea' is asked for twice; kept for background sea, whale",
    }
    assert {row["nuisance"] for row in manifest(tmp_path / "pool")} == {"sea"}


def test_names_that_no_file_system_likes(tmp_path: Path, lists: dict[str, Any]) -> None:
    (tmp_path / "c.txt").write_text("../../etc\nCD/DVD case\n")
    generate(GenerateSpec("toy:", **lists), tmp_path / "pool", maker=Toy())
    collection = load_collection(str(tmp_path / "pool"))
    assert collection.classes == ("../../etc", "CD/DVD case") and not collection.problems and len(collection) == 6
    assert {path.parent.parent.parent for path in (tmp_path / "pool").rglob("*.png")} == {tmp_path / "pool"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"categories": ""}, "--categories FILE"),
        ({"nuisances": ""}, "--nuisances FILE"),
        ({"kinds": ()}, "--kinds background,texture,material"),
        ({"kinds": ("textur",)}, "did you mean texture"),
        ({"kinds": ("texture",)}, "have no texture"),
        ({"per_pair": 0}, "--per-pair"),
        ({"labels": "LABELS"}, "no label mapping for 'whale'"),
        ({"generator": "toyy:"}, "no image maker"),
        ({"templates": "TEMPLATES"}, "lacks its placeholder {nuisance}"),
    ],
)
def test_mistakes(tmp_path: Path, lists: dict[str, Any], change: dict[str, Any], said: str) -> None:
    (tmp_path / "LABELS").write_text("class,imagenet_index\nfox,277\n")
    (tmp_path / "TEMPLATES").write_text('background = "a {category}"\n')
    filled = {
        key: str(tmp_path / value) if value in ("LABELS", "TEMPLATES") else value for key, value in change.items()
    }
    with pytest.raises(UserError, match=said):
        generate(GenerateSpec(**{"generator": "toy:"} | lists | filled), tmp_path / "pool")


def test_a_label_file_goes_with_the_pool(tmp_path: Path, lists: dict[str, Any]) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("class,imagenet_index,wnid\nfox,277,n02119022\nfox,278,\nwhale,147,\n")
    generate(GenerateSpec("toy:", **lists, labels=str(labels)), tmp_path / "pool", maker=Toy())
    assert read_label_file(tmp_path / "pool" / "labels.csv") == read_label_file(labels)
    generate(GenerateSpec("toy:", **lists), tmp_path / "without", maker=Toy())
    assert not (tmp_path / "without" / "labels.csv").exists()


@pytest.fixture(scope="module")
def pipeline_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pipeline(tmp_path_factory.mktemp("pipelines") / "tiny")


def test_a_diffusers_pipeline_with_schedulers_and_negative_prompts(
    tmp_path: Path, lists: dict[str, Any], pipeline_folder: Path
) -> None:
    # Random weights hardly heed a prompt, hence the guidance.
    spec = GenerateSpec(f"diffusers:{pipeline_folder}?steps=2&guidance=60", **lists, device="cpu")
    pools = {
        name: holdfast.generate(out=tmp_path / name, **dataclasses.asdict(spec) | changes) and images(tmp_path / name)
        for name, changes in {
            "plain": {},
            "negative": {"negative": "the sea, a whale & 100% wool"},
            "scheduler": {"scheduler": "DPMSolverMultistepScheduler"},
        }.items()
    }
    assert {name: len(pool) for name, pool in pools.items()} == {"plain": 6, "negative": 6, "scheduler": 6}
    assert pools["plain"].keys() == pools["negative"].keys() == pools["scheduler"].keys()
    for path, image in pools["plain"].items():
        assert len({image, pools["negative"][path], pools["scheduler"][path]}) == 3
    rows = {name: manifest(tmp_path / name)[0] for name in pools}
    assert len({row["generator_fingerprint"] for row in rows.values()}) == 3
    assert rows["scheduler"]["generator"] == "diffusers:tiny?guidance=60&scheduler=DPMSolverMultistepScheduler&steps=2"
    with pytest.raises(UserError, match=r"did you mean .*EulerDiscreteScheduler"):
        generate(dataclasses.replace(spec, scheduler="EulerDiscreteSchedule"), tmp_path / "none")
    with pytest.raises(UserError, match="scheduler that fits"):
        generate(dataclasses.replace(spec, scheduler="FlowMatchEulerDiscreteScheduler"), tmp_path / "none")


def test_a_long_prompt_says_which_words_were_cut(tmp_path: Path, lists: dict[str, Any], pipeline_folder: Path) -> None:
    (tmp_path / "t.toml").write_text('material = "a {category} made of {nuisance} in the sea in the snow of the sea"\n')
    lists = lists | {"kinds": ("material",), "templates": str(tmp_path / "t.toml")}
    spec = GenerateSpec(f"diffusers:{pipeline_folder}?steps=1", **lists, device="cpu")
    summary = generate(spec, tmp_path / "pool")
    # Twelve tokens, two of them for begin and end, so ten words are read.
    assert {row["cut_words"] for row in manifest(tmp_path / "pool")} == {"snow of the sea"}
    assert summary.rows == 2 and not sum(summary.trouble.values())
    assert set(summary.trouble) == {
        f"of the prompt 'a {name} made of wool in the sea in the snow of the sea', diffusers:tiny?steps=1 "
        "does not read: snow of the sea"
        for name in ("fox", "whale")
    }


@pytest.mark.parametrize("flags", [True, False])
def test_the_safety_checker_is_left_as_it_is(tmp_path: Path, lists: dict[str, Any], flags: bool) -> None:
    folder = tiny_pipeline(tmp_path / "checked", flags=flags)
    spec = GenerateSpec(f"diffusers:{folder}?steps=1", **lists | {"kinds": ("material",)}, device="cpu")
    if not flags:
        summary = generate(spec, tmp_path / "pool")
        assert summary.rows == 2 and not sum(summary.trouble.values())
        return
    for _ in range(2):  # also if all of it is stored already
        with pytest.raises(UserError, match=f"no image could be made: 4 errors, the first: {BLACK}"):
            generate(spec, tmp_path / "pool")


def test_numbers_that_are_not_finite_are_told(tmp_path: Path, lists: dict[str, Any], pipeline_folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_pipeline(tmp_path / "broken")
    file = folder / "vae" / "diffusion_pytorch_model.safetensors"
    weights = load_file(file)
    weights["decoder.conv_out.bias"].fill_(float("nan"))
    save_file(weights, file, metadata={"format": "pt"})
    spec = GenerateSpec(f"diffusers:{folder}?steps=1", **lists | {"kinds": ("material",)}, device="cpu")
    with pytest.raises(UserError, match="no image could be made: 4 errors, the first: the image is black"):
        generate(spec, tmp_path / "pool")


def test_a_generator_folder_with_missing_parts_is_named(tmp_path: Path, lists: dict[str, Any]) -> None:
    import shutil

    whole = tiny_pipeline(tmp_path / "whole")
    for damage, said in {
        "vae": "its part 'vae' (AutoencoderKL) is missing",
        "tokenizer": "its part 'tokenizer' (",
        "unet/diffusion_pytorch_model.safetensors": "its part 'unet' (UNet2DConditionModel) has no safetensors weights",
        "model_index.json": "has no model_index.json",
    }.items():
        folder = Path(shutil.copytree(whole, tmp_path / "broken", dirs_exist_ok=True))
        target = folder / damage
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        with pytest.raises(UserError) as caught:
            generate(GenerateSpec(f"diffusers:{folder}", **lists, device="cpu"), tmp_path / "pool")
        assert said in str(caught.value)
        shutil.rmtree(folder)


def test_an_image_maker_of_others(tmp_path: Path, lists: dict[str, Any]) -> None:
    class Silent:
        name, fingerprint = "silent:", "0"

    registry.image_makers.register("toy", lambda name, *, device: Toy(), summary="a toy")
    registry.image_makers.register("silent", lambda name, *, device: Silent(), summary="makes nothing")
    try:
        assert holdfast.generate("toy:", out=tmp_path / "pool", **lists).rows == 6
        with pytest.raises(UserError, match="makes no images from text"):
            generate(GenerateSpec("silent:", **lists), tmp_path / "none")
    finally:
        registry.image_makers.remove("toy")
        registry.image_makers.remove("silent")


@pytest.mark.slow
def test_kill_9_in_the_middle_and_the_same_pool_in_the_end(tmp_path: Path) -> None:
    pool, whole = tmp_path / "pool", tmp_path / "whole"
    words = "generate --generator embedded:?steps=5 --limit 16 --batch-size 2 --device cpu -q --out"
    command = [sys.executable, "-m", "holdfast.cli.main", *words.split(), str(pool)]
    with subprocess.Popen(command) as process:
        while not list(pool.glob("manifest/part-*.parquet")) and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and not (pool / "manifest.csv").exists()
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    said = again.stdout.split()
    made, already = int(said[0]), int(said[3])
    assert already > 0 and made > 0 and made + already == 16
    generate(GenerateSpec("embedded:?steps=5", limit=16, batch_size=2, device="cpu"), whole)
    assert images(pool) == images(whole) and len(images(whole)) == 16
    assert manifest(pool) == manifest(whole)
    assert not list(pool.rglob(".unfinished*"))
    wrong = run(*words.split(), pool, "--kinds", "texure", code=2)
    assert "did you mean texture" in wrong.stderr and wrong.stderr.count("\n") == 1


def test_an_answer_that_is_no_image_is_told(tmp_path: Path, lists: dict[str, Any]) -> None:
    class Grey(Toy):
        def generate(self, prompts: Any, seeds: Any) -> Any:
            return [image[..., 0] for image in super().generate(prompts, seeds)]

    with pytest.raises(UserError, match=r"no image could be made: 12 errors, the first: .*uint8 of shape \(8, 12\)"):
        generate(GenerateSpec("toy:", **lists), tmp_path / "pool", maker=Grey())


def test_a_long_name_in_any_script_has_a_file(lists: dict[str, Any], tmp_path: Path) -> None:
    names = ["猫" * 100, "猫" * 99 + "犬", "../up", "fox"]  # 300 bytes; file systems take 255
    (tmp_path / "c.txt").write_text("\n".join(names), encoding="utf8")
    generate(GenerateSpec("toy:", **lists), tmp_path / "pool", maker=Toy())
    found = load_collection(str(tmp_path / "pool"))
    assert sorted(found.classes) == sorted(names) and len(found.samples) == 12 and not found.problems
    assert len({Path(row["path"]).parent for row in manifest(tmp_path / "pool")}) == 8


def test_a_generator_that_fails_on_everything_stops_and_spoils_nothing(tmp_path: Path, lists: dict[str, Any]) -> None:
    spec = GenerateSpec("toy:", **lists | {"per_pair": 4, "batch_size": 8})
    made = generate(dataclasses.replace(spec, per_pair=1), tmp_path / "pool", maker=Toy()).rows
    gone = Toy()
    gone.broken_prompts = {row["prompt"] for row in manifest(tmp_path / "pool")}
    with pytest.raises(UserError, match="fails on every prompt, 8 in a row: ValueError: this prompt is too much"):
        generate(spec, tmp_path / "pool", maker=gone)
    assert len(manifest(tmp_path / "pool")) == made == 6
    # Nothing was recorded as failed for good: with the cause mended all of it is made.
    assert generate(spec, tmp_path / "pool", maker=Toy()).rows == 18


def test_labels_of_earlier_lists_stay(tmp_path: Path, lists: dict[str, Any]) -> None:
    for name, index in [("fox", 277), ("whale", 147)]:
        (tmp_path / f"{name}.csv").write_text(f"class,imagenet_index\n{name},{index}\n")
        generate(
            GenerateSpec("toy:", **lists | {"categories": str(tmp_path / f"{name}.csv")}),
            tmp_path / "pool",
            maker=Toy(),
        )
    found = read_label_file(tmp_path / "pool" / "labels.csv")
    assert {name: keys.imagenet_indices for name, keys in found.items()} == {"fox": (277,), "whale": (147,)}


@pytest.mark.parametrize("option", ["steps=0", "steps=-1", "guidance=nan", "guidance=inf"])
def test_a_number_that_is_no_setting_is_a_sentence(tmp_path: Path, option: str) -> None:
    with pytest.raises(UserError, match=option.partition("=")[0]):
        generate(GenerateSpec(f"embedded:?{option}", limit=1), tmp_path / "pool")
