"""Every command of the documentation: held against the parser, and run, in a folder of its own page by page.

The default suite runs the README and the tutorial with fewer images; ``make test-all`` runs every page as it stands.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import cv2
import doc_parser
import pytest
import torch
from doc_blocks import PAGES, ROOT, Block, blocks, commands, name, outside, spans

import holdfast
from commands import run
from holdfast import registry
from holdfast.cli.compare import UNDECIDED
from holdfast.core.verbs import python_name
from holdfast.demo_parts import SURROGATES, TARGETS

PHOTOS = ROOT.parent / "shared" / "photos" / "pets12"
FEW = 24
"""Drawn scenes in the default suite."""

NO_FUNCTION = {
    "audit table", "board add", "board build", "board check", "board import", "data duplicates", "data list",
    "data split", "demo", "doctor", "ls", "people annotate", "people review", "people serve", "share open", "study",
}  # fmt: skip
"""Commands without a function in ``import holdfast``: they print, serve pages, or are functions of their own rooms."""

BY_NAME = {name(page): page for page in PAGES}
RUN = [
    key
    for key, page in BY_NAME.items()
    if not key.startswith("docs/adding/")
    and any(one.language in ("bash", "python") and not one.not_run for one in blocks(page))
]
AFTER_MINING = ("docs/hard-set.md",)
"""Their commands start from a mined set."""
PYTHON_RUN = [key for key in BY_NAME if key.startswith("docs/adding/") and blocks(BY_NAME[key])]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_parser_takes_every_command(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # with the modules of the page: conditions may name them
    monkeypatch.setattr(sys, "path", [*sys.path])
    for block in blocks(page):
        if block.title.endswith(".py"):
            Path(block.title).write_text(block.text)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for block in blocks(page):
        if block.language != "bash":
            assert "\nholdfast " not in f"\n{block.text}", f"{block}: commands go into a ```bash fence, to be run"
            continue
        for words in commands(block):
            if words[0] == "holdfast":
                doc_parser.check_command(words)
            elif words[0] == "make":
                assert set(words[1:]) <= set(targets), f"{block}: make has no such target"
            else:
                assert block.not_run, f"{block}: only holdfast and make are run; say <!-- not run: why -->"
    assert "\n    holdfast " not in outside(page), f"{name(page)}: commands go into a ```bash fence, to be run"
    for text in spans(page):
        doc_parser.check_options(_loosely(text))


def test_a_command_that_is_wrong_is_found() -> None:
    for wrong in (
        "holdfast evaluate images --models a --out b",
        "holdfast eval images --model a --out b",
        "holdfast eval images --models a --out b --limit many",
        "holdfast eval images --models a --out b --scenarios blurr",
        "holdfast study dose --out b --set scene=3",
        "holdfast study doze --out b",
    ):
        with pytest.raises(Exception, match=r"\w"):
            doc_parser.check_command(wrong.split())
    unquoted = Block("page", 1, "bash", "holdfast eval diorama:test?n=24&context=0.9 --models a --out b", "")
    with pytest.raises(AssertionError, match="quote '&'"):
        commands(unquoted)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_compiles_and_its_names_exist(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text, str(block))):
                _check_names(node, block)


def test_every_verb_that_a_page_names_exists() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf8")
        named = set(re.findall(r"\bholdfast\.([a-z_]+)\(", text))
        for members in re.findall(r"^::: holdfast\.api\n(?:.*\n)*?.*members: \[(.*)\]", text, re.M):
            named |= set(members.split(", "))
        missing = {one for one in named if not callable(getattr(holdfast, one, None))}
        assert not missing, f"{name(page)} names holdfast.{', holdfast.'.join(sorted(missing))}"
    planned = {verb for verb in registry.verbs if not registry.verbs.get(verb).help} - NO_FUNCTION
    missing = {verb for verb in planned if not callable(getattr(holdfast, python_name(verb), None))}
    assert not missing, f"commands without a function: {missing}"


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_first_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a machine of one core: starting processes would take longer than what they are to do.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    _run_page(page, tmp_path, monkeypatch, fewer=True)


@pytest.fixture(scope="module")
def hard_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What docs/hard-set.md makes, of a pool that is drawn."""
    folder = tmp_path_factory.mktemp("mined")
    run("generate", "--generator", "diorama:", "--limit", "240", "--out", folder / "pool")
    names = [f"embedded:{one}" for one in (*SURROGATES, *TARGETS)]
    surrogates, targets = ",".join(names[:-2]), ",".join(names[-2:])
    options = ("--oracle", "clip:embedded", "--again", "0")
    run("mine", folder / "pool", "--surrogates", surrogates, "--targets", targets, *options, "--out", folder / "hard")
    return folder / "hard"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", RUN)
def test_every_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if page in AFTER_MINING:
        shutil.copytree(request.getfixturevalue("hard_set"), tmp_path / "hard")
    _run_page(page, tmp_path, monkeypatch, fewer=False)


@pytest.mark.parametrize("page", PYTHON_RUN)
def test_what_can_be_added_keeps_its_contract(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    for kind in (registry.scenarios, registry.models, registry.data, registry.oracles, registry.studies,
                 registry.verbs, registry.measures, registry.sections):  # fmt: skip
        list(kind)  # everything that is there, before what the page adds and the next test must not see
        monkeypatch.setattr(kind, "_entries", dict(kind._entries))
    _run_python([one for one in blocks(BY_NAME[page]) if one.language == "python"], {"__name__": "page"})


def _run_page(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, fewer: bool) -> None:
    """The commands of a page one after the other, in a folder that has images in it as the README describes them."""
    todo = [
        one for one in blocks(BY_NAME[page]) if (one.title or one.language in ("bash", "python")) and not one.not_run
    ]
    if any("photos/" in one.text for one in todo):
        _photos(folder, 2 if fewer else 3)
    monkeypatch.chdir(folder)
    threads = torch.get_num_threads()
    names: dict[str, object] = {"__name__": "page"}
    for block in todo:
        if block.language == "python":
            _run_python([block], names)
        elif block.language != "bash":
            Path(block.title).write_text(block.text)
        for words in commands(block) if block.language == "bash" else ():
            # tests/cli/test_check.py has the check of the default suite.
            if words[0] == "holdfast" and not (fewer and words[1] == "check"):
                run(*map(_fewer if fewer else str, words[1:]), code=_exit_code(block, words, fewer=fewer))
    torch.set_num_threads(threads)


def _photos(folder: Path, each: int) -> None:
    """``photos/``: as many classes with as many photographs each, and ``labels.csv``."""
    if not PHOTOS.is_dir():
        pytest.skip(f"this page is about photographs, and there are none in {PHOTOS}")
    for label in ("beagle", "pug", "samoyed")[:each]:
        (folder / "photos" / label).mkdir(parents=True)
        for photo in sorted((PHOTOS / "images" / label).iterdir())[:each]:
            small = cv2.resize(cv2.imread(str(photo)), (256, 256), interpolation=cv2.INTER_AREA)
            cv2.imwrite(str(folder / "photos" / label / photo.name), small)
    lines = (PHOTOS / "imagenet_index.csv").read_text().splitlines(keepends=True)
    used = [line for line in lines[1:] if (folder / "photos" / line.split(",")[0]).is_dir()]
    (folder / "labels.csv").write_text("".join([lines[0], *used]))


def _fewer(word: str) -> str:
    return re.sub(r"\bn=(\d+)", lambda found: f"n={min(int(found[1]), FEW)}", word)


def _exit_code(block: Block, words: list[str], *, fewer: bool) -> int:
    """0, or what the comment behind the command says; a few scenes are too few for the gate."""
    if fewer and words[1] == "compare":
        return UNDECIDED
    line = next(one for one in block.text.replace("\\\n", " ").splitlines() if shlex.split(one, comments=True) == words)
    said = re.search(r"# .*exit code (\d)", line)
    return int(said[1]) if said else 0


def _run_python(several: list[Block], names: dict[str, object]) -> None:
    """Run blocks of a page in order, in one namespace, as a reader does."""
    for block in several:
        if block.title:
            Path(block.title).write_text(block.text)
        exec(compile(block.text, str(block), "exec", dont_inherit=True), names)


def _check_names(node: ast.AST, block: Block) -> None:
    if isinstance(node, ast.Import):
        for one in node.names:
            importlib.import_module(one.name)
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "holdfast":
        module = importlib.import_module(node.module)
        for one in node.names:
            known = hasattr(module, one.name) or importlib.util.find_spec(f"{node.module}.{one.name}")
            assert known, f"{block}: {node.module} has no {one.name}"
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "holdfast":
        assert hasattr(holdfast, node.attr), f"{block}: holdfast has no {node.attr}"


def _loosely(text: str) -> list[str]:
    """Words of a command in a sentence, whose quotes may be open because something is left out."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
