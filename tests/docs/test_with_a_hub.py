"""The commands of docs/with-a-hub.md, each with small networks of the published architectures in random weights."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import holdfast
from commands import run
from holdfast.diorama import CLASSES
from shapes import make_photos
from tiny_detectors import save_rt_detr
from tiny_diffusion import save_sdxl

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "models"), str(TESTS / "generate")]

from test_clip import save_hf_clip, save_open_clip  # noqa: E402
from test_taming import random_state  # noqa: E402
from tiny_vlms import save_llava  # noqa: E402


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    save_open_clip(folder / "open_clip")
    save_hf_clip(folder / "hf_clip")
    save_sdxl(folder / "sdxl")
    save_llava(folder / "llava")
    save_rt_detr(folder / "rt_detr", list(CLASSES))
    torch.save({"state_dict": random_state()}, folder / "last.ckpt")
    return folder


def rows_of(path: Path) -> list[dict]:
    rows = holdfast.open_run(path).run.rows().to_pylist()
    assert rows and "error" not in {row["status"] for row in rows}
    return rows


def test_fmr_with_a_vqgan_of_taming_and_clip_as_oracle(weights: Path, tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos", count=2) / "images"
    (tmp_path / "names.txt").write_text("cross\ndisc\nsquare\n")
    model = f"timm:test_resnet?pretrained=false&num_classes=3&size=32&labels={tmp_path / 'names.txt'}"
    run(
        "perturb", photos, "--models", model, "--generator", f"vqgan:{weights / 'last.ckpt'}", "--oracle",
        f"clip:local-dir:{weights / 'open_clip'}", "--steps", "2", "--size", "32", "--out", tmp_path / "run",
    )  # fmt: skip
    rows_of(tmp_path / "run")
    run("report", tmp_path / "run")
    assert "FMR" in (tmp_path / "run" / "report" / "index.html").read_text()


def test_a_pool_of_stable_diffusion_xl_is_mined_with_clip(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "categories.txt").write_text("fox\nwhale\ndisc\n")
    (tmp_path / "nuisances.toml").write_text('background = ["snow", "sea"]\nmaterial = ["wool"]\n')
    painter = f"diffusers:{weights / 'sdxl'}?steps=2&size=64"
    run(
        "generate", "--generator", painter, "--categories",
        tmp_path / "categories.txt", "--nuisances", tmp_path / "nuisances.toml", "--per-pair", "2", "--kinds",
        "background,material", "--out", tmp_path / "pool",
    )  # fmt: skip
    (tmp_path / "names.txt").write_text("fox\nwhale\ndisc\n")
    nets = [
        f"timm:test_{kind}?pretrained=false&num_classes=3&labels={tmp_path / 'names.txt'}" for kind in ("resnet", "vit")
    ]
    said = run(
        "mine", tmp_path / "pool", "--surrogates", ",".join(nets), "--targets", f"clip:hf/{weights / 'hf_clip'}",
        "--oracle", f"clip:local-dir:{weights / 'open_clip'}", "--outcome", "restricted", "--again", "1",
        "--generator", painter, "--keep-rejected", "--out", tmp_path / "hard",
    )  # fmt: skip
    assert "of 18 images are failed by all 2 surrogates" in said.stdout
    assert (tmp_path / "hard" / "mining" / "report" / "index.html").is_file()


def test_llava_is_asked_with_the_distractor_of_clip(weights: Path, tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos", count=2) / "images"
    run(
        "ask", photos, "--models", f"vlm:{weights / 'llava'}", "--distractor",
        f"clip:local-dir:{weights / 'open_clip'}", "--out", tmp_path / "run",
    )  # fmt: skip
    rows = rows_of(tmp_path / "run")
    assert {row["protocol"] for row in rows} > {"full_list"}


def test_rt_detr_under_conditions(weights: Path, tmp_path: Path) -> None:
    run(
        "eval", "diorama:test?n=4&size=64", "--models", f"hf:{weights / 'rt_detr'}", "--scenarios",
        "original,segmented", "--out", tmp_path / "run",
    )  # fmt: skip
    assert {row["condition"] for row in rows_of(tmp_path / "run")} == {"original", "segmented"}


def test_clip_of_both_libraries_under_conditions(weights: Path, tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos", count=2)
    models = f"clip:local-dir:{weights / 'open_clip'},clip:hf/{weights / 'hf_clip'}"
    run(
        "eval", photos / "images", "--masks", photos / "masks", "--models", models, "--scenarios", "static", "--out",
        tmp_path / "run",
    )  # fmt: skip
    assert len({row["model"] for row in rows_of(tmp_path / "run")}) == 2
