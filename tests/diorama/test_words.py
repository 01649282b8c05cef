"""Generators of the drawn world paint what the manifest says, and refuse what they cannot paint."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from commands import run
from holdfast import api
from holdfast.core.errors import UserError
from holdfast.data.images import decode_image
from holdfast.diorama.backgrounds import paint_background
from holdfast.diorama.painter import DrawnImageMaker
from holdfast.diorama.scene import Scene
from holdfast.diorama.words import CATEGORY, WORDS, check_said, paintable, unread
from holdfast.pipeline.generate.generate import generate
from holdfast.pipeline.generate.plan import plan_prompts
from holdfast.pipeline.generate.prompts import prompts_for
from holdfast.pipeline.specs import GenerateSpec


def nuisances(folder: Path, text: str) -> str:
    (folder / "nuisances.toml").write_text(text)
    return str(folder / "nuisances.toml")


def test_short_names_are_painted_as_the_manifest_says(tmp_path: Path) -> None:
    # "in a forest" and "in a {nuisance}" were painted as any background.
    listed = nuisances(tmp_path, 'background = ["forest", "kitchen"]\ntexture = ["striped"]\nmaterial = ["wool"]')
    pool = api.generate("diorama:?size=64", nuisances=listed, per_pair=1, out=tmp_path / "pool")
    assert pool is not None
    with (tmp_path / "pool" / "manifest.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 * 4 and {row["nuisance"] for row in rows} == {"forest", "kitchen", "stripes", "wool"}
    corners = {"forest": [], "kitchen": []}
    for row in rows:
        scene = DrawnImageMaker(size=64).scene(row["prompt"], int(row["seed"]))
        assert {"background": scene.background, "texture": scene.texture, "material": scene.material}[
            row["condition"]
        ] == row["nuisance"]
        assert scene.label == row["label"] and row["cut_words"] == ""
        if row["condition"] == "background":
            image = decode_image((tmp_path / "pool" / row["path"]).read_bytes())
            corners[row["nuisance"]].append(image[:8, :8].mean((0, 1)))
    # An independent look: the corners have the colours of the background that the renderer paints by that name.
    means = {
        kind: np.mean([paint_background(kind, seed, 64)[:8, :8].mean((0, 1)) for seed in range(24)], 0)
        for kind in corners
    }
    for kind, found in corners.items():
        other = next(name for name in corners if name != kind)
        distance = {name: np.linalg.norm(np.mean(found, 0) - means[name]) for name in (kind, other)}
        assert distance[kind] < distance[other], distance


@pytest.mark.parametrize("generator", ["diorama:", "embedded:", "embedded:text_to_image128"])
def test_what_cannot_be_painted_is_refused_with_what_can(generator: str, tmp_path: Path) -> None:
    listed = nuisances(tmp_path, 'background = ["forest", "beach"]')
    with pytest.raises(
        UserError, match=r"cannot paint the background 'beach'\. It paints sea, reef, .*library .*ls nuis"
    ):
        plan_prompts(GenerateSpec(generator, nuisances=listed, kinds=("background",)))
    (tmp_path / "classes.txt").write_text("fox\nzebra\n")
    with pytest.raises(UserError, match=r"cannot paint the category 'zebra'\. It paints lizard, .*ls categories"):
        plan_prompts(GenerateSpec(generator, categories=str(tmp_path / "classes.txt")))


@pytest.mark.parametrize(
    ("kind", "name", "words", "expected"),
    [
        ("background", "forest", "", ("forest", "in the forest")),
        ("background", "forest", "in a forest", ("forest", "in the forest")),
        ("background", "wood", "in the forest", ("forest", "in the forest")),
        ("background", "on the moon", "on the moon", ("moon", "on the moon")),
        ("texture", "striped", "striped", ("stripes", "striped")),
        ("material", "gold", "gold", ("gold", "made of gold")),
        (CATEGORY, "green lizard", "", ("green lizard", "green lizard")),
    ],
)
def test_names_and_phrases(kind: str, name: str, words: str, expected: tuple[str, str]) -> None:
    assert paintable("diorama:", kind, name, words) == expected


def test_a_name_that_means_something_else_than_its_words_is_refused() -> None:
    with pytest.raises(UserError, match="'snow' is asked for as 'in the sea', for which diorama: paints 'sea'"):
        paintable("diorama:", "background", "snow", "in the sea")


def test_a_template_that_hides_its_nuisance_is_refused() -> None:
    check_said("diorama:", "a striped fox in the snow", {CATEGORY: "fox", "background": "snow", "texture": "stripes"})
    with pytest.raises(UserError, match=r"would paint any background for the prompt 'a fox under in-the-snow'"):
        check_said("diorama:", "a fox under in-the-snow", {"background": "snow"})
    with pytest.raises(UserError, match=r"would paint the category 'green lizard'"):
        check_said("diorama:", "a green lizard", {CATEGORY: "lizard"})


def test_words_that_change_nothing_are_told() -> None:
    assert unread("a photo of a tiny striped fox made of wood in the snow, tilted") == ""
    assert DrawnImageMaker().cut_words(["an oil painting of a fox in the snow at night"]) == ["oil painting at night"]


def test_backgrounds_of_prompts_for_inpainting_are_checked(tmp_path: Path) -> None:
    table = tmp_path / "prompts.toml"
    table.write_text('default = "{a class} {background}"\n[backgrounds]\nforest = "in a forest"\n')
    with pytest.raises(UserError, match="cannot paint the background 'in a forest'"):
        prompts_for("diorama:", str(table), ["fox"])
    assert prompts_for("diffusers:any", str(table), ["fox"]).backgrounds == {"forest": "in a forest"}
    table.write_text('default = "{a class} {background}"\n[backgrounds]\nforest = "on the moon"\n')
    with pytest.raises(UserError, match="'forest' is asked for as 'on the moon'"):
        prompts_for("embedded:", str(table), ["fox"])
    assert set(prompts_for("diorama:", None, ["beagle"]).backgrounds) < set(WORDS["background"])


class Moonstruck(DrawnImageMaker):
    """A renderer with a fault: it paints the moon where a prompt says snow."""

    def scene(self, prompt: str, seed: int) -> Scene:
        return super().scene(prompt.replace("in the snow", "on the moon"), seed)


def test_an_image_of_something_else_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    listed = nuisances(tmp_path, 'background = ["snow", "sea"]')
    spec = GenerateSpec("diorama:?size=32", nuisances=listed, kinds=("background",))
    generate(spec, tmp_path / "pool", maker=Moonstruck(size=32))
    failed = (tmp_path / "pool" / "failed.csv").read_text()
    assert "the generator painted the background 'moon' instead of 'snow'" in failed
    assert "snow" not in (tmp_path / "pool" / "manifest.csv").read_text()


def test_planted_images_are_kept_as_planted(tmp_path: Path) -> None:
    api.generate("diorama:?size=32&wrong=0.5", kinds=["material"], limit=40, out=tmp_path / "pool")
    with (tmp_path / "pool" / "manifest.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 40


def test_the_words_are_listed_as_a_file_of_nuisances(tmp_path: Path) -> None:
    said = run("ls", "nuisances", "--generator", "diorama:").stdout
    (tmp_path / "words.txt").write_text(said)
    planned = plan_prompts(GenerateSpec("diorama:", nuisances=str(tmp_path / "words.txt")))
    assert {request.nuisance for request in planned.requests} == {
        name for kind, names in WORDS.items() if kind != CATEGORY for name in names
    }
    assert run("ls", "categories", "--generator", "embedded:").stdout.split("\n")[:2] == ["lizard", "green lizard"]
    assert "takes any words" in run("ls", "nuisances", "--generator", "diffusers:x").stdout
    assert "--generator diorama:" in run("ls", "nuisances", code=2).stderr
    said = run("ls", "models", "--generator", "diorama:", code=2).stderr
    assert "--generator is for holdfast ls categories or nuisances only, not for ls models" in said
