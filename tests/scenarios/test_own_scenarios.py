"""``--scenarios python:MODULE:FUNCTION``: scenarios from the user's own module, as they are typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import holdfast
from commands import run

FOG = '''
import numpy as np

LIMIT = 3

def fog(image, mask, density=0.5):
    """Fade the background into white."""
    faded = (image * (1 - density) + 255 * density).astype(np.uint8)
    return np.where(mask[..., None], image, faded)

def dark(image, *, rng):
    return (image * rng.uniform(0.2, 0.4)).astype(np.uint8)

def no_image(picture):
    return picture

def needs_more(image, strength):
    return image
'''

DECLARED = """
import numpy as np

import holdfast

@holdfast.scenario(id="declared_fog", summary="fog with severities", family="weather", changes="background",
                   parameters=(), severities={})
def declared(image, mask, **_):
    return np.full_like(image, 200)
"""

MODEL = """
import numpy as np

CLASSES = ("cross", "disc", "square")

def model(images):
    return np.eye(3, dtype=np.float32)[[int(image.mean()) % 3 for image in images]]
model.labels = CLASSES
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name, text in {"own_fog": FOG, "own_declared": DECLARED, "own_model": MODEL}.items():
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def evaluated(photos: Path, out: str, scenarios: str, *options: str) -> holdfast.Results:
    asked = ("--models", "python:own_model:model", "--scenarios", scenarios, "--out", out, "-q")
    run("eval", photos, *asked, *options)
    return holdfast.open_run(out)


def test_functions_and_declared_scenarios_are_conditions(photos: Path, here: Path) -> None:
    names = "python:own_fog:fog,python:own_fog:dark,python:own_declared:declared"
    results = evaluated(photos, "run", f"original,{names}")
    rows = results.rows().to_pandas()
    assert set(rows["condition"]) == {"original", *names.split(",")} and set(rows["status"]) == {"ok"}
    assert rows.groupby("condition", observed=True)["image_sha256"].nunique().gt(1).all()
    twice = "python:own_fog:fog?density=0.1,python:own_fog:fog?density=0.9"
    several = evaluated(photos, "two", twice).rows().to_pandas()
    assert several["parameters"].nunique() == 2 and several["image_sha256"].nunique() == len(several)


def test_ids_follow_the_source_of_the_module(photos: Path, here: Path) -> None:
    first = evaluated(photos, "run", "original,python:own_fog:dark").rows().to_pandas()
    said = run("eval", photos, "--models", "python:own_model:model", "--scenarios", "original,python:own_fog:dark",
               "--out", "run").stdout  # fmt: skip
    assert "0 made, 24 there already" in said
    (here / "own_fog.py").write_text(FOG + "# another line\n")
    del sys.modules["own_fog"]
    second = evaluated(photos, "again", "original,python:own_fog:dark").rows().to_pandas()
    own = [each[each["condition"] != "original"] for each in (first, second)]
    assert json.loads(own[0]["parameters"].iloc[0])["source"] != json.loads(own[1]["parameters"].iloc[0])["source"]
    assert set(first["row_id"]) & set(second["row_id"]) == set(first["row_id"]) - set(own[0]["row_id"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("python:own_fog", "python: reads python:MODULE:ATTRIBUTE"),
        ("python:no_such_fog:fog", "there is no module 'no_such_fog' here or installed"),
        ("python:own_fog:fgo", "no attribute of own_fog is called 'fgo'; did you mean fog?"),
        ("python:own_fog:LIMIT", "python:own_fog:LIMIT is a int; expected a function that takes an image"),
        ("python:own_fog:no_image", "takes no argument called image; expected FUNCTION(image) or"),
        ("python:own_fog:needs_more", "strength of python:own_fog:needs_more needs a default"),
        ("python:own_fog:fog?densty=1", "scenario python:own_fog:fog has no parameter 'densty'; it has: density"),
        ("python:own_fog:fog?density=thick", "density of python:own_fog:fog is a number, not 'thick'"),
    ],
)
def test_a_mistake_is_a_sentence(name: str, sentence: str, photos: Path, here: Path) -> None:
    done = run("eval", photos, "--models", "python:own_model:model", "--scenarios", name, "--out", "run", "-q", code=2)
    assert sentence in done.stderr and done.stderr.count("\n") == 1
