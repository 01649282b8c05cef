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
    assert needed <= known.keys() and "pytest" not in known
    assert all(part["purl"] == f"pkg:pypi/{name}@{part['version']}" for name, part in known.items())
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


ADVISORY = {"id": "PYSEC-1", "fix_versions": ["2.0"], "aliases": [], "description": ""}
UNMENDED = ADVISORY | {"fix_versions": []}


def _package(*advisories: object) -> dict[str, object]:
    return {"name": "six", "version": "1.0", "vulns": list(advisories)}


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (json.dumps({"dependencies": [_package(ADVISORY)]}), 1, "six 1.0: PYSEC-1, 2.0 mended"),
        (json.dumps({"dependencies": [_package(UNMENDED)]}), 0, "six 1.0: PYSEC-1, not mended"),
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


def test_an_audit_without_an_answer_is_skipped_in_time(tmp_path: Path) -> None:
    (tmp_path / "pip_audit.py").write_text("import time\ntime.sleep(600)")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*PROGRAM, "audit", "--seconds", "0.3"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "skipped: no service" in done.stdout
