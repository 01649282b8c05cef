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
TEMPLATES = sorted((ROOT / "docs" / "github").glob("*.yml"))  # for other repositories
BIN = Path(sys.executable).parent
RELEASE = [sys.executable, str(ROOT / "docs" / "release.py")]


def workflow(name: str) -> dict[Any, Any]:
    parsed: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    return parsed


def test_there_are_workflows() -> None:
    assert {"ci", "release", "versions"} <= {path.stem for path in WORKFLOWS}


@pytest.mark.parametrize(
    "lint",
    [("zizmor", "--offline", "--quiet"), ("check-jsonschema", "--builtin-schema", "vendor.github-workflows")],
    ids=lambda words: words[0],
)
def test_linters_have_nothing_to_say(lint: tuple[str, ...]) -> None:
    command = [BIN / lint[0], *lint[1:], *WORKFLOWS, *TEMPLATES]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("path", [*WORKFLOWS, *TEMPLATES], ids=lambda path: path.stem)
def test_steps_are_scripts_of_bash(path: Path) -> None:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        for step in job["steps"]:
            ended = subprocess.run(["bash", "-n"], input=step.get("run", ""), capture_output=True, text=True)
            assert not ended.stderr, (step, ended.stderr)


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


@pytest.mark.parametrize("path", [*WORKFLOWS, *TEMPLATES], ids=lambda path: path.stem)
def test_actions_are_pinned_to_commits(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) and re.search(r"# v\d", comment), action


def test_a_release_is_tested_on_every_python_before_it_is_published() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["test"]["needs"] == "build" and set(jobs["publish"]["needs"]) == {"attest", "test", "docs"}
    assert jobs["pages"]["needs"] == "publish" and "pages" not in jobs["publish"]["permissions"]
    assert "permissions" not in jobs["build"], "what the index installs there must not be able to ask for a token"
    assert not any("run" in step for step in jobs["attest"]["steps"])
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert not any("checkout" in step.get("uses", "") for step in jobs["test"]["steps"]), "the wheels alone are tried"
    assert jobs["publish"]["environment"] == "release" and jobs["publish"]["permissions"]["id-token"] == "write"
    used = [step.get("uses", "").partition("@")[0] for job in jobs.values() for step in job["steps"]]
    assert {"actions/attest-build-provenance", "pypa/gh-action-pypi-publish", "actions/deploy-pages"} <= set(used)
    publishing = next(step for step in jobs["publish"]["steps"] if "pypi-publish" in step.get("uses", ""))
    assert publishing["with"].keys() == {"packages-dir", "skip-existing"}, "no password: the index trusts this workflow"
    order = [step.get("run", step.get("uses", "")) for step in jobs["publish"]["steps"]]
    draft, index, public = (
        next(place for place, text in enumerate(order) if words in text)
        for words in ("gh release create", "pypi-publish", "--draft=false")
    )
    assert draft < index < public and "--draft " in order[draft]


@pytest.mark.parametrize(("tag", "kind"), [("v1.2.3", ""), ("v1.2.3rc1", "--prerelease"), ("v0.2.0b2", "--prerelease")])
def test_the_release_is_a_draft_first_and_may_be_made_again(tag: str, kind: str, tmp_path: Path) -> None:
    """The step's own script, with a program in place of gh that records what it is asked for."""
    step = next(step for step in workflow("release")["jobs"]["publish"]["steps"] if "gh release create" in str(step))
    program = tmp_path / "gh"
    program.write_text('#!/bin/sh\necho "$@" >> asked\n[ "$2" != view ] || [ -e made ]\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_REF_NAME": tag}
    for _ in range(2):
        subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], check=True, cwd=tmp_path, env=environment)
        (tmp_path / "made").touch()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[1] for line in asked] == ["view", "create", "upload", "view", "upload"]
    assert asked[1].split()[3:] == f"--draft --verify-tag --notes-file notes.md {kind}".split()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    others = [ROOT / "CHANGELOG.md", *ROOT.glob("docs/github/*.yml")]
    readmes = [ROOT / "README.md", *ROOT.glob("packages/*/README.md")]
    for file in [ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml"), *others, *readmes]:
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
    for file in copy.glob("docs/github/*.yml"):
        assert re.findall(r"holdfast-vision\S*==([\w.]+)", file.read_text()) == ["9.9.0rc1"]


def test_what_the_index_shows_links_to_files_of_the_release(copy: Path) -> None:
    address = "https://github.com/owner/name"
    for tag in ("v9.8.7", "v9.8.8"):  # the second time there is nothing left to do but in the tables
        assert released(copy, "stamp", tag, "--repository", address).returncode == 0
    for file in sorted(copy.rglob("pyproject.toml")):
        urls = tomllib.loads(file.read_text())["project"]["urls"]
        assert urls["Source"] == address and urls["Changelog"] == f"{address}/blob/v9.8.8/CHANGELOG.md"
    linked = 0
    for readme in sorted(copy.rglob("README.md")):
        for target in re.findall(r"\]\(([^)]*)\)", readme.read_text()):
            if target.startswith(("#", "https://arxiv", "https://keepachangelog")):
                continue
            kind, tag, path = target.removeprefix(f"{address}/").partition("#")[0].split("/", 2)
            assert (kind, tag) == ("raw" if path.endswith(".png") else "blob", "v9.8.7") and (ROOT / path).is_file()
            linked += 1
    assert linked > 40


def test_every_package_has_the_licence() -> None:
    for package in ROOT.glob("packages/*"):
        assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_all_packages_of_the_repository_have_one_version() -> None:
    files = [ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")]
    (version,) = {tomllib.loads(file.read_text())["project"]["version"] for file in files}
    for file in ROOT.glob("docs/github/*.yml"):
        assert re.findall(r"holdfast-vision\S*==([\w.]+)", file.read_text()) == [version]


def test_the_notes_are_the_section_of_the_changelog(copy: Path) -> None:
    (copy / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 0.2.0 (2027-01-02)\n\n- new\n\n## 0.1.0\n\n- first\n\n## 0.0.9 (Unreleased)\n\n- x\n"
    )
    assert released(copy, "notes", "v0.2.0").stdout == "- new\n"
    assert released(copy, "notes", "v0.1.0").stdout == "- first\n"
    for tag, reason in (
        ("v0.3.0", "no section '## 0.3.0'"),
        ("0.2.0", "is not a tag of a release"),
        ("v0.0.9", "calls 0.0.9 unreleased"),
        ("v0.2.0rc1", "no section '## 0.2.0rc1'"),
    ):
        ended = released(copy, "notes", tag)
        assert ended.returncode == 1 and reason in ended.stderr
