"""Names that no terminal should get raw, names that are not UTF-8, and links that lead nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import HOLDFAST, run
from holdfast.core.names import split_list, visible

STEERING = ("\x1b", "\x07", "\x00", "\u202e", "\u200f", "\x9b")


def _odd_file(photos: Path) -> None:
    """Put an image with a name in Latin-1 next to the others."""
    source = next((photos / "images" / "disc").iterdir())
    shutil.copyfile(source, os.fsdecode(os.fsencode(photos / "images" / "disc") + b"/caf\xe9" + source.suffix.encode()))


@pytest.mark.parametrize("verb", ["eval", "synth", "mask", "split"])
def test_a_name_that_is_not_utf8_is_named_and_the_others_go_on(
    verb: str, photos: Path, toy_models: str, tmp_path: Path
) -> None:
    _odd_file(photos)
    words = {
        "eval": ["--models", f"{toy_models}:colour", "--scenarios", "original", "--out", tmp_path / "out"],
        "synth": ["--scenarios", "grey", "--out", tmp_path / "out"],
        "mask": ["--with", "threshold", "--out", tmp_path / "out"],
        "split": ["--out", photos / "split.csv"],
    }[verb]
    said = run(*(["data", "split"] if verb == "split" else [verb]), photos, *words)
    assert "caf\\xe9" in said.stdout + said.stderr and "not UTF-8" in said.stdout + said.stderr
    count = "test: 3, train: 9" if verb == "split" else "12 made"
    assert count in said.stdout


def test_a_class_folder_that_is_not_utf8_is_named(photos: Path, toy_models: str, tmp_path: Path) -> None:
    shutil.copytree(photos / "images" / "disc", os.fsdecode(os.fsencode(photos / "images") + b"/d\xfcsc"))
    said = run("eval", photos, "--models", f"{toy_models}:colour", "--scenarios", "original", "--out", tmp_path / "out")
    assert "d\\xfcsc" in said.stdout and "12 made" in said.stdout


def test_links_that_lead_nowhere_are_named_and_hide_nothing(photos: Path, toy_models: str, tmp_path: Path) -> None:
    (photos / "images" / "ring").symlink_to("ring")
    (photos / "images" / "disc" / "ring.png").symlink_to("ring.png")
    (photos / "images" / "disc" / "gone.png").symlink_to("nowhere.png")
    (photos / "images" / "disc" / "more").symlink_to(photos / "images" / "square")
    said = run("eval", photos, "--models", f"{toy_models}:colour", "--scenarios", "original", "--out", tmp_path / "out")
    assert "12 made" in said.stdout
    assert "3 × the link leads nowhere" in said.stdout
    assert "1 × the link to a folder is not followed" in said.stdout and "disc/more" in said.stdout


def test_nothing_that_steers_a_terminal_is_printed_raw(photos: Path, toy_models: str, tmp_path: Path) -> None:
    evil = "e\x1b]0;title\x07v\u202eil\u200f\x9b31m"
    shutil.copytree(photos / "images" / "disc", photos / "images" / evil)
    run_words = ["--models", f"{toy_models}:colour", "--scenarios", "original", "--out", tmp_path / "out"]
    refused = run("eval", photos, *run_words, code=2)  # no output is called so
    assert "\\x1b]0;title\\x07" in refused.stderr and "\\u202e" in refused.stderr
    unknown = run("eval", photos, *run_words, f"--{evil}", code=2)
    missing = run("eval", tmp_path / evil, *run_words, code=2)
    for said in (refused, unknown, missing):
        assert not [each for each in STEERING if each in said.stdout + said.stderr]


def test_a_table_shows_odd_names_too(photos: Path, toy_models: str, tmp_path: Path) -> None:
    model = f"{toy_models}:colour?name=ti\x1b[2Jtle"
    said = run("eval", photos, "--models", model, "--scenarios", "original", "--out", tmp_path / "out")
    assert "ti\\x1b[2Jtle" in said.stdout and "\x1b" not in said.stdout


def test_the_stream_escapes_in_a_process_of_its_own(tmp_path: Path) -> None:
    name = os.fsdecode(b"no\x1b[31m\xff")
    said = subprocess.run([*HOLDFAST, "eval", tmp_path / name, "--models", "x", "--out", tmp_path / "out"],
                          capture_output=True)  # fmt: skip
    assert said.returncode == 2
    assert b"no\\x1b[31m\\udcff" in said.stderr and b"\x1b" not in said.stderr


def test_help_keeps_its_colours_where_rich_draws() -> None:
    program = "import sys; sys.argv = ['holdfast', '--help']; from holdfast.cli.main import main; main()"
    environment = os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert "\x1b[" in said.stdout and "\\x1b" not in said.stdout


def test_visible_leaves_other_text_alone() -> None:
    assert visible("größe 日本 a\tb\n") == "größe 日本 a\tb\n"
    assert visible("\x1b\x07\x00\r") == "\\x1b\\x07\\x00\\x0d"


def test_a_path_with_commas_stays_one_member_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b" / "net,1.onnx").touch()
    path = f"{tmp_path}/a,b/net,1.onnx"
    for name in (f"onnx:{path}", f"torch:resnet18@{path}", f"timm:x?labels={path}", path):
        assert split_list(f"timm:resnet18, {name},timm:resnet50") == ["timm:resnet18", name, "timm:resnet50"]
    assert split_list(f"{tmp_path}/no,file.onnx, ") == [f"{tmp_path}/no", "file.onnx"]


def test_photos_and_labels_in_folders_with_commas(photos: Path, toy_models: str, tmp_path: Path) -> None:
    moved = photos.rename(tmp_path / "my, images")
    (tmp_path / "la,bels.txt").write_text("cross\ndisc\nsquare\n")
    model = f"{toy_models}:colour?labels={tmp_path}/la,bels.txt"
    words = ["--models", model, "--scenarios", "original", "--out", tmp_path / "r,un"]
    assert "12 made" in run("eval", moved, *words).stdout


REFUSED = {
    "eval": ["--models", "timm:no-such-model"],
    "synth": ["--scenarios", "blurr"],
    "mask": ["--with", "no-such-maker"],
    "train": ["--architectures", "no-such-network"],
    "perturb": ["--models", "MODEL", "--generator", "pixel:", "--oracle", "no-such-oracle:"],
    "ask": ["--models", "vlm+python:no_such_module:x"],
    "segment": ["--models", "smp:no-such@nowhere"],
}


@pytest.mark.parametrize("verb", REFUSED)
def test_a_refused_command_leaves_no_folder(verb: str, photos: Path, toy_models: str, tmp_path: Path) -> None:
    words = [f"{toy_models}:colour" if word == "MODEL" else word for word in REFUSED[verb]]
    run(verb, photos, *words, "--out", tmp_path / "new" / "out", code=2)
    assert not (tmp_path / "new").exists()


def test_a_refused_export_leaves_no_folder(tmp_path: Path) -> None:
    run("share", "export", tmp_path / "none", "--to", "huggingface", "--out", tmp_path / "new" / "out", code=2)
    assert not (tmp_path / "new").exists()


def test_a_refused_command_keeps_what_was_there(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    run("eval", photos, "--models", "timm:no-such-model", "--out", tmp_path / "mine", code=2)
    assert (tmp_path / "mine").is_dir()
