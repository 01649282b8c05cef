"""The workflows of this repository: parsed, pinned, without stored secrets; and what a release does, on a copy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = [sys.executable, str(ROOT / "docs" / "release.py")]


def workflow(name: str) -> dict[Any, Any]:
    parsed: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    return parsed


def test_there_are_workflows() -> None:
    assert {"ci", "release", "versions"} <= {path.stem for path in WORKFLOWS}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_only_and_takes_no_text_into_a_script(path: Path) -> None:
    said = yaml.safe_load(path.read_text())
    assert said["permissions"] == {"contents": "read"} and "pull_request_target" not in said[True]
    assert "secrets." not in path.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for job in said["jobs"].values():
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert len({"uses", "run"} & step.keys()) == 1
            assert "${{" not in step.get("run", ""), "a name of a branch or tag would become part of the script"
            assert set(re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))) <= targets
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", ["ci", "release", "versions"])
def test_actions_are_pinned_to_commits(name: str) -> None:
    used = re.findall(r"uses: (\S+)(.*)", (ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) and re.search(r"# v\d", comment), action


def test_a_release_is_tested_on_every_python_before_it_is_published() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["test"]["needs"] == "build" and set(jobs["publish"]["needs"]) == {"attest", "test", "docs"}
    assert "permissions" not in jobs["build"], "what the index installs there must not be able to ask for a token"
    assert not any("run" in step for step in jobs["attest"]["steps"])
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert not any("checkout" in step.get("uses", "") for step in jobs["test"]["steps"]), "the wheels alone are tried"
    assert jobs["publish"]["environment"] == "release" and jobs["publish"]["permissions"]["id-token"] == "write"
    used = [step.get("uses", "").partition("@")[0] for job in jobs.values() for step in job["steps"]]
    assert {"actions/attest-build-provenance", "pypa/gh-action-pypi-publish", "actions/deploy-pages"} <= set(used)
    publishing = next(step for step in jobs["publish"]["steps"] if "pypi-publish" in step.get("uses", ""))
    assert publishing["with"].keys() == {"packages-dir"}, "no password: the index trusts this workflow"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for file in [ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml"), ROOT / "CHANGELOG.md"]:
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return tmp_path


def released(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RELEASE, *words, "--root", copy], capture_output=True, text=True, check=False)


def test_all_packages_get_the_version_of_the_tag_and_require_each_other_at_it(copy: Path) -> None:
    for tag in ("v9.8.7", "v9.9.0rc1"):  # the second replaces the first
        assert released(copy, "stamp", tag).returncode == 0
    parsed = [tomllib.loads(file.read_text())["project"] for file in sorted(copy.rglob("pyproject.toml"))]
    assert len(parsed) > 1 and {project["version"] for project in parsed} == {"9.9.0rc1"}
    names = {project["name"] for project in parsed}
    for project in parsed:
        extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
        for needed in map(Requirement, [*project["dependencies"], *extras]):
            if needed.name in names - {project["name"]}:
                assert str(needed.specifier) == "==9.9.0rc1", (project["name"], str(needed))


def test_all_packages_of_the_repository_have_one_version() -> None:
    files = [ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")]
    assert len({tomllib.loads(file.read_text())["project"]["version"] for file in files}) == 1


def test_the_notes_are_the_section_of_the_changelog(copy: Path) -> None:
    (copy / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (2027-01-02)\n\n- new\n\n## 0.1.0\n\n- first\n")
    assert released(copy, "notes", "v0.2.0").stdout == "- new\n"
    assert released(copy, "notes", "v0.1.0").stdout == "- first\n"
    for tag, reason in (("v0.3.0", "no section '## 0.3.0'"), ("0.2.0", "is not a tag of a release")):
        ended = released(copy, "notes", tag)
        assert ended.returncode == 1 and reason in ended.stderr
