"""The drawing of the rooms: it is read from the code, to scale, and as new as the code."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from doc_blocks import ROOT


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "docs" / "house.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A room `a` with sub-rooms that import each other, a room `b`, and a module next to them."""
    for name, text in {
        "__init__.py": "",
        "alone.py": "import toy.a.x.inner\nfrom toy import b\n",
        "a/__init__.py": "",
        "a/x/__init__.py": "",
        "a/x/inner.py": "def late():\n    from toy.a.y.other import thing\n",
        "a/y/__init__.py": "",
        "a/y/other.py": "from toy.a.x import inner, name\nimport numpy\nthing = name\n",
        "b/__init__.py": "from toy.b.c import nothing\n",
        "b/c.py": "nothing = 0\n",
    }.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "toy"


def test_imports_are_counted_between_folders(house: ModuleType, package: Path) -> None:
    found = house.read_house(package)
    assert found.lines["a.y.other"] == 3 and found.lines["toy"] == 0
    assert dict(found.edges()) == {("alone", "a.x"): 1, ("alone", "b"): 1, ("a.x", "a.y"): 1, ("a.y", "a.x"): 2}
    assert house.circles(found.edges()) == [{"a.x", "a.y"}]


def test_areas_are_lines(house: ModuleType) -> None:
    areas = {"one": 500.0, "two": 120.0, "three": 30.0, "four": 350.0}
    boxes = dict(house.tiles(list(areas.items()), (10.0, 20.0, 40.0, 50.0)))
    assert {name: width * height for name, (_, _, width, height) in boxes.items()} == pytest.approx(
        {name: area * 2.0 for name, area in areas.items()}
    )
    for left, top, width, height in boxes.values():
        assert left >= 10 and top >= 20 and left + width <= 50 + 1e-9 and top + height <= 70 + 1e-9


def test_a_picture_shows_crowding_and_circles(house: ModuleType, package: Path) -> None:
    calm = house.draw(house.read_house(package))
    assert "circle (red): </text>" in calm and "· a.x, a.y" in calm and house.RED in calm
    assert house.AMBER not in calm
    for number in range(house.CROWDED):
        (package / "b" / f"file{number}.py").write_text("pass\n")
    (package / "a" / "x" / "inner.py").write_text("")
    crowded = house.draw(house.read_house(package))
    assert "b (17)" in crowded and house.AMBER in crowded
    assert "circle (red): none." in crowded and house.RED not in crowded


def test_the_picture_is_as_new_as_the_code(house: ModuleType) -> None:
    picture = house.PICTURE.read_text(encoding="utf8")
    drawn, stands = house.kept_summary(picture), house.read_house().summary()
    for what in ("rooms", "imports"):
        missing, gone = set(stands[what]) - set(drawn[what]), set(drawn[what]) - set(stands[what])
        assert not missing and not gone, f"docs/assets/house.svg is older than the code: run make house ({what})"
    assert "assets/house.svg" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf8")
    assert not re.search(r"<script|href=", picture)


def test_the_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf8")
    names = set(re.findall(r"`([a-z_/]+/[a-z_]*(?:\.py)?)`", text))
    bases = [ROOT, ROOT / "src/holdfast", *ROOT.glob("packages/*/src/*")]
    missing = {name for name in names if not any((base / name).exists() for base in bases)}
    rooms = {"tensors/", "recipes/", "generated/", "details/", "damaged/"}  # in a room, at the root, in a run directory
    inside = [path for base in bases[1:] for path in base.rglob("*") if path.is_dir()]
    missing = {name for name in missing if not any(str(path).endswith("/" + name.rstrip("/")) for path in inside)}
    assert len(names) > 40
    assert missing <= rooms
