"""A hosted image maker against a real server process: what it asks, keeps, repeats, pays for and never shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

import holdfast
from commands import run
from holdfast.core.errors import SampleError, UserError
from holdfast.core.protocols import Inpainter, TextToImage
from holdfast.generators import load_image_maker

KEY = "sk-very-secret-0123456789"
Load = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[int]:
    file = Path(__file__).with_name("picture_server.py")
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture
def load(server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)

    def make(model: str = "paints", options: str = "budget=9") -> Any:
        cache = tmp_path / "kept"
        return load_image_maker(
            f"images+http://127.0.0.1:{server}/v1#{model}?size=64&backoff=0.01&cache={cache}&{options}", device="cpu"
        )

    return make


def seen(server: int) -> dict:
    with urlopen(f"http://127.0.0.1:{server}/seen") as response:
        return json.load(response)


def test_a_picture_is_asked_for_once_and_kept_with_its_record(load: Load, server: int, tmp_path: Path) -> None:
    maker = load()
    assert isinstance(maker, TextToImage) and isinstance(maker, Inpainter)
    first = maker.generate(["a fox", "a fox", "a dog"], [1, 2, 1])
    assert [picture.shape for picture in first] == [(64, 64, 3)] * 3 and not np.array_equal(first[0], first[1])
    again = load().generate(["a fox", "a fox", "a dog"], [1, 2, 1])  # the server would paint others now
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    told = seen(server)
    assert told["requests"] == 3 and told["paths"] == ["/v1/images/generations"] * 3
    assert told["bodies"][0] == {
        "model": "paints", "n": 1, "prompt": "a fox", "response_format": "b64_json", "size": "64x64",
    }  # fmt: skip
    assert set(told["keys"]) == {f"Bearer {KEY}"}
    records = [json.loads(file.read_text()) for file in (tmp_path / "kept").glob("*.json")]
    assert sorted(record["seed"] for record in records) == [1, 1, 2]
    assert all(record["answer"]["data"][0]["revised_prompt"].startswith("a nicer") for record in records)
    assert all(KEY not in file.read_text(errors="replace") for file in (tmp_path / "kept").iterdir())
    assert load(options="send_seed=1&budget=9").fingerprint != maker.fingerprint == load(options="budget=3").fingerprint


def test_the_budget_holds_over_runs(load: Load, server: int) -> None:
    load(options="budget=2").generate(["a", "b"], [0, 0])
    with pytest.raises(UserError, match="budget of 2 images is spent"):
        load(options="budget=2").generate(["a", "c"], [0, 0])
    assert seen(server)["requests"] == 2
    assert len(load(options="budget=3").generate(["a", "c"], [0, 0])) == 2


def test_what_goes_wrong_is_retried_or_said(load: Load, server: int) -> None:
    assert load("busy").generate(["a fox"], [0])[0].shape == (64, 64, 3)
    assert seen(server)["requests"] == 3
    with pytest.raises(SampleError, match=r"refuses the request with status 400: not allowed, Bearer \[key\]"):
        load("refuses").generate(["a fox"], [1])
    with pytest.raises(UserError, match="refuses the key"):
        load("locked").generate(["a fox"], [2])
    for model, sentence in (("words", "without an image"), ("broken", "cannot be decoded")):
        with pytest.raises(SampleError, match=sentence):
            load(model, "retries=1").generate([f"{model} a fox"], [3])


def test_new_surroundings_leave_the_object_alone(load: Load, server: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    mask = np.zeros((40, 60), bool)
    mask[10:30, 20:40] = True
    (painted,) = load().inpaint(["a fox in the snow"], [0], [image], [mask])
    assert painted.shape == image.shape and np.array_equal(painted[mask], image[mask])
    assert not np.array_equal(painted[~mask], image[~mask])
    told = seen(server)
    assert told["paths"] == ["/v1/images/edits"] and told["bodies"][0]["image"] == [64, 64, 3]
    assert told["alpha"][0] == pytest.approx(20 * 20 / 60**2, abs=0.02)


def test_a_pool_from_a_server(load: Load, server: int, tmp_path: Path) -> None:
    (tmp_path / "categories.txt").write_text("fox\n")
    (tmp_path / "nuisances.txt").write_text("background: kitchen\nbackground: beach\n")
    name = f"images+http://127.0.0.1:{server}/v1#paints?size=64&cache={tmp_path / 'kept'}"
    run(
        "generate", "--generator", name, "--categories", tmp_path / "categories.txt", "--nuisances",
        tmp_path / "nuisances.txt", "--kinds", "background", "--out", tmp_path / "pool",
    )  # fmt: skip
    rows = pq.read_table(tmp_path / "pool" / "manifest.parquet").to_pylist()
    assert len(rows) == 2 and {row["generator"] for row in rows} == {"images+http:paints?size=64"}
    assert "127.0.0.1" not in (tmp_path / "pool" / "manifest.csv").read_text()


def test_the_twelve_prompts_by_name(tmp_path: Path) -> None:
    from holdfast.pipeline.generate.prompts import prompts_for

    prompts = prompts_for("diffusers:any", "ximagenet12", ["n02066245", "Ice_Cream", "cello"])
    assert "a whale in sea water" in prompts.classes["n02066245"] and "magazine" in prompts.classes["Ice_Cream"]
    with pytest.raises(UserError, match="no class with a prompt of ximagenet12 is called 'sofa'"):
        prompts_for("diffusers:any", "ximagenet12", ["whale", "sofa"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("images+http://127.0.0.1:1/v1", "HOST:PORT/v1#MODEL"),
        ("images+http://user:word@127.0.0.1/v1#m", "holds no password"),
        ("images+http://127.0.0.1:1#m?size=0", "should be 1 or more"),
        ("images+http://127.0.0.1:1#m?retries=99", "should be between"),
        ("images+http://127.0.0.1:1#m?colour=red", "no option of images"),
        ("images+http://127.0.0.1:1#m?key_env=NOT_SET_AT_ALL", "NOT_SET_AT_ALL"),
    ],
)
def test_bad_names_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load_image_maker(name, device="cpu")


def test_painted_backgrounds_come_from_a_server(load: Load, server: int, tmp_path: Path) -> None:
    (tmp_path / "photos" / "fox").mkdir(parents=True)
    (tmp_path / "masks" / "fox").mkdir(parents=True)
    image = np.full((64, 64, 3), 90, np.uint8)
    image[20:44, 20:44] = (20, 90, 220)
    mask = np.zeros((64, 64), np.uint8)
    mask[20:44, 20:44] = 255
    cv2.imwrite(str(tmp_path / "photos" / "fox" / "1.png"), image)
    cv2.imwrite(str(tmp_path / "masks" / "fox" / "1.png"), mask)
    name = f"images+http://127.0.0.1:{server}/v1#paints?size=64&cache={tmp_path / 'kept'}"
    made = holdfast.synth(
        tmp_path / "photos", masks=tmp_path / "masks", out=tmp_path / "made", scenarios="generated_background",
        generator=name, prompts="ximagenet12",
    )  # fmt: skip
    assert made.rows == 1 and "geographic magazine" in seen(server)["bodies"][0]["prompt"]
