"""``make setup``, ``make demo`` and ``make test``: what README promises, and how pip's settings reach uv."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "docs" / "environment.py"
SPEC = importlib.util.spec_from_file_location("environment_of_make", PROGRAM)
assert SPEC and SPEC.loader
environment = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(environment)


def test_the_first_screen_of_the_readme_has_two_commands() -> None:
    first = "\n".join((ROOT / "README.md").read_text(encoding="utf8").splitlines()[:24])
    assert re.findall(r"^make (\w+)", first, re.M) == ["demo", "test"]
    assert "[ $# -gt 0 ] || set -- make test\n" in (ROOT / ".ci" / "run").read_text()


def test_no_page_asks_for_a_placeholder_to_be_cloned() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert "REPOSITORY" not in page.read_text(encoding="utf8"), page


def test_both_commands_set_up_first() -> None:
    for target in ("demo", "test"):
        command = ["make", "--dry-run", "--always-make", target, "VENV=/nowhere"]
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert shown.index("docs/environment.py") < shown.index("holdfast demo" if target == "demo" else "lint pytest")


@pytest.mark.parametrize(
    ("settings", "variables"),
    [
        ({}, {}),
        (
            {"index-url": "https://a/simple", "timeout": "9"},
            {"UV_DEFAULT_INDEX": "https://a/simple", "UV_HTTP_TIMEOUT": "9"},
        ),
        ({"extra-index-url": "file:///a\nfile:///b"}, {"UV_INDEX": "file:///a file:///b"}),
        ({"find-links": "/a /b", "quiet": "1"}, {"UV_FIND_LINKS": "/a,/b"}),
        ({"no-index": "false"}, {}),
        ({"no_index": "1"}, {"UV_NO_INDEX": "1"}),
        ({"require-hashes": "1"}, None),  # uv has no counterpart, so pip installs
    ],
)
def test_settings_of_pip_hold_for_uv(settings: dict[str, str], variables: dict[str, str] | None) -> None:
    found = environment.uv_settings(settings)
    assert found == (None if variables is None else {"UV_INDEX_STRATEGY": "unsafe-best-match", **variables})


def test_settings_are_those_that_pip_reads(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a/simple\nfind-links =\n  /a\n  /b\n[install]\ntimeout = 8\n"
        "[freeze]\ntimeout = 5\n"
    )
    variables = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
    variables |= {
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
        "PIP_INDEX_URL": "https://b/simple",
        "HOME": str(tmp_path),
    }
    code = f"import sys, json; sys.path.insert(0, {str(PROGRAM.parent)!r}); import environment; "
    code += "print(json.dumps(environment.pip_settings()))"
    shown = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    ).stdout
    found = json.loads(shown)
    assert (found["index-url"], found["timeout"]) == ("https://b/simple", "8")
    assert found["find-links"].split() == ["/a", "/b"]


def test_pip_installs_where_uv_fails(tmp_path: Path) -> None:
    broken = tmp_path / "uv"
    broken.write_text("#!/bin/sh\necho no route to host\nexit 2\n")
    broken.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "new"], check=True)
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import environment; "
        f"environment._install({str(broken)!r}, ['--no-index', '--help'], [])"
    )
    ended = subprocess.run(
        [tmp_path / "new" / "bin" / "python", "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert (
        ended.stdout.index("no route to host")
        < ended.stdout.index("pip continues")
        < ended.stdout.index("pip install [options]")
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"},
            "4 GB of CUDA libraries, .* pip is set to an index of its own",
        ),
        ({}, "4 GB of CUDA libraries, .* the index of the builds for CPUs is not reachable"),
        ({"UV_TORCH_BACKEND": "cu130"}, "as the package index has it"),
    ],
)
def test_set_up_says_why_the_cuda_libraries_come(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    """``uv`` is a program that ends with 2, as where an index does not answer; -S hides the torch that is installed."""
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has an NVIDIA GPU")
    (tmp_path / "uv").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "uv").chmod(0o755)
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import environment; "
        f"print(environment.torch_options({str(tmp_path / 'uv')!r}, ''))"
    )
    variables = {"PATH": "/nowhere", "PIP_CONFIG_FILE": os.devnull, "HOME": str(tmp_path), **settings}
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code], env=variables, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(says, shown) and shown.endswith("[]\n"), shown
    assert ("TORCH_INDEX=ADDRESS" in shown) == ("CUDA" in shown)
