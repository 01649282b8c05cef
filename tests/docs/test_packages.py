"""The bill of materials, and what the audit makes of the answers of pip-audit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "docs" / "packages.py")]


def test_the_bill_names_what_the_core_needs_and_is_valid(tmp_path: Path) -> None:
    subprocess.run([*PROGRAM, "bill", tmp_path / "bill.json"], check=True, capture_output=True)
    text = (tmp_path / "bill.json").read_text()
    known = {part["name"]: part for part in json.loads(text)["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {Requirement(line).name.lower() for line in project["dependencies"]}
    companions = {tomllib.loads(file.read_text())["project"]["name"] for file in ROOT.glob("packages/*/pyproject.toml")}
    assert needed | companions <= known.keys() and "pytest" not in known
    assert all(part["purl"] == f"pkg:pypi/{name}@{part['version']}" for name, part in known.items())
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


ADVISORY = {"id": "PYSEC-1", "fix_versions": ["2.0"], "aliases": [], "description": ""}
UNFIXED = ADVISORY | {"fix_versions": []}


def _package(*advisories: object) -> dict[str, object]:
    return {"name": "six", "version": "1.0", "vulns": list(advisories)}


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (json.dumps({"dependencies": [_package(ADVISORY)]}), 1, "six 1.0: PYSEC-1, 2.0 fixed"),
        (json.dumps({"dependencies": [_package(UNFIXED)]}), 0, "six 1.0: PYSEC-1, not fixed"),
        (json.dumps({"dependencies": [_package()]}), 0, "1 packages looked up"),
        (json.dumps({"dependencies": [{"name": "six", "skip_reason": "?"}]}), 0, "skipped: the service for advisories"),
        ("", 0, "skipped: no route to host"),
    ],
)
def test_the_audit_fails_only_where_an_update_helps(tmp_path: Path, answer: str, code: int, words: str) -> None:
    (tmp_path / "pip_audit.py").write_text(f"import sys\nprint({answer!r})\nprint('no route to host', file=sys.stderr)")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*PROGRAM, "audit"], capture_output=True, text=True, env=environment)
    assert done.returncode == code and words in done.stdout, done
    strictly = subprocess.run([*PROGRAM, "audit", "--required"], capture_output=True, text=True, env=environment)
    assert strictly.returncode == int(code or "skipped" in words)


def test_an_audit_without_an_answer_is_skipped_in_time(tmp_path: Path) -> None:
    (tmp_path / "pip_audit.py").write_text("import time\ntime.sleep(600)")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*PROGRAM, "audit", "--seconds", "0.3"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "skipped: no service" in done.stdout
