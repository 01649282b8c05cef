"""The name on the package index: ``holdfast`` there is someone else's, so no command may install it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from holdfast.core.distribution import DISTRIBUTION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
INSTALLED = re.compile(
    r"""
    \b(?:install|download|add|uvx|pipx\ run)\b(?:[\ \t]+-[\w-]+(?:[=\ ][^\s-]\S*)?)*?[\ \t]+\\?['"`]*  # with options
    holdfast(?![\w./-])
    | \bpip3?\ (?:install|download)\b(?:[\ \t]+[^\s;&|#`.]+)*?[\ \t]+['"]?holdfast(?![\w/-]|\.\w)  # after others
    | --with[\ =]holdfast(?![\w./-]) | \btool\ run\ holdfast\b
    | (?<![\w.-])holdfast\\?\[(?=[a-z,{])                                   # with an extra
    | (?<![\w.-])holdfast\s*(?:==|>=|~=)\s*[0-9{]                            # with a version
    | \b(?:version|distribution|metadata|requires)\(["']holdfast["']\)    # looked up
    | \bdependencies\ *=\ *\[[^\]]*["']holdfast["']                            # of another project
    """,
    re.X,
)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("python -m pip install holdfast", True),
        ("pip install --upgrade -q 'holdfast'", True),
        ("uv pip install --python .venv holdfast", True),
        ("uv add holdfast", True),
        ("uvx holdfast check", True),
        ("pip install numpy holdfast", True),
        ("uv run --with holdfast", True),
        ("uv tool run holdfast", True),
        ("holdfast[hf]>=1", True),
        (r"pip install 'hold" r"fast\[ray\]'", True),
        ("- holdfast==0.5.1", True),
        ("importlib.metadata.version('holdfast')", True),
        ('dependencies = ["numpy", "holdfast"]', True),
        (f"pip install --upgrade '{DISTRIBUTION}[all]'", False),
        ("pip install '.[all]'", False),
        ("pip install . && holdfast doctor", False),
        ("pip install 'torch>=2' holdfast_models/", False),
    ],
)
def test_what_would_install_the_strangers_package(text: str, wrong: bool) -> None:
    assert bool(INSTALLED.search(text)) == wrong


def test_no_tracked_file_installs_the_strangers_package() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout, so no file is tracked")
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in {*filter(None, listed.split("\0"))} - {Path(__file__).relative_to(ROOT).as_posix()}:
        path = ROOT / name
        text = path.read_bytes().decode("utf8", "replace") if path.is_file() else ""
        if "\0" not in text:  # no image, no weights
            found += [f"{name}: {match[0]}" for match in INSTALLED.finditer(text.replace("\\\n", " "))]
    assert found == []


def test_the_project_has_the_name_that_the_code_says() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert set(PROJECT["scripts"]) == {"holdfast"}
