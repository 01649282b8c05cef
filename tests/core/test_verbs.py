"""Verbs as objects: those of the core keep the contract, and one of another package becomes command and function."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import registry
from holdfast.commands import VERBS
from holdfast.core.errors import UserError
from holdfast.core.options import Spec, option
from holdfast.core.verbs import Verb
from holdfast.testing import check_verb, option_surface

SOURCE = """
from dataclasses import dataclass
from holdfast.core.options import Spec, option
from holdfast.core.verbs import Verb

@dataclass(frozen=True)
class GreetingSpec(Spec):
    who: str = option(help="Who is greeted.", argument="WHO")
    times: int = option(1, help="How often.", least=1)

def greet(spec, *, progress):
    \"\"\"Greet somebody.\"\"\"
    return [f"hello {spec.who}"] * spec.times

VERB = Verb("greet-me", "Company", greet, GreetingSpec, show=lambda lines: lines)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    """An environment in which a package with two verbs is installed, one of which cannot be imported."""
    (tmp_path / "greeting.py").write_text(SOURCE)
    metadata = tmp_path / "greeting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    entries = "greet-me = greeting:VERB\nlost = greeting.nowhere:VERB\n"
    (metadata / "entry_points.txt").write_text(f"[holdfast.verbs]\n{entries}")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200"}


def holdfast_program(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_verb_of_another_package_is_a_command_and_a_function(plugin: dict[str, str]) -> None:
    text = holdfast_program(plugin, "--help").stdout
    assert "Company" in text and "Greet somebody." in text and "Images and masks" in text
    assert "from greeting, cannot be loaded: verb 'lost' needs the package" in text
    said = holdfast_program(plugin, "greet-me", "Ada", "--times", "2")
    assert (said.returncode, said.stdout) == (0, "hello Ada\nhello Ada\n")
    wrong = holdfast_program(plugin, "greet-me", "Ada", "--times", "0")
    assert wrong.returncode == 2 and "times" in wrong.stderr
    lost = holdfast_program(plugin, "lost", "--anything", "3")
    assert lost.returncode == 2 and lost.stderr.startswith("holdfast: lost, from greeting, cannot be loaded: ")
    code = (
        "import holdfast, greeting\n"
        "from holdfast.testing import check_verb, option_surface\n"
        "check_verb(greeting.VERB)\n"
        "print(holdfast.greet_me('Ada', times=1), option_surface('greet-me'))\n"
        "holdfast.greet_me('Ada', timse=1)"
    )
    python = subprocess.run([sys.executable, "-c", code], env=plugin, capture_output=True, text=True, check=False)
    assert "['hello Ada'] ['holdfast greet-me: 1. argument str, needed', " in python.stdout
    assert "no option of greet is called 'timse'; did you mean times" in python.stderr


@pytest.fixture
def registered() -> Iterator[Any]:
    names: list[str] = []

    def register(verb: Verb) -> Verb:
        registry.verbs.register(verb.name, verb, summary="")
        names.append(verb.name)
        return verb

    yield register
    for name in names:
        registry.verbs.remove(name)


@dataclass(frozen=True)
class MadeSpec(Spec):
    times: int = option(1, help="How often.")


def done(spec: MadeSpec, *, progress: Any) -> int:
    """Count."""
    return spec.times


def undocumented(spec: MadeSpec, *, extra: int = 0) -> int:
    """Count."""
    return spec.times


GOOD = Verb("made-here", "Measure", done, MadeSpec)


def test_a_good_verb_passes(registered: Any) -> None:
    check_verb(registered(GOOD))
    assert holdfast.made_here(times=3) == 3
    assert option_surface("made-here")[-1] == "holdfast made-here: --times int, default 1"


@dataclass(frozen=True)
class ForgottenSpec(Spec):
    times: int = 1


@dataclass(frozen=True)
class MumblingSpec(Spec):
    times: int = option(1, help="how often")


@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        (replace(GOOD, name="Made Here"), "lower-case words"),
        (replace(GOOD, group=""), "needs a group"),
        (replace(GOOD, spec=ForgottenSpec), r"ForgottenSpec\.times is on neither the command line nor the function"),
        (replace(GOOD, spec=MumblingSpec), "its help must be a sentence"),
        (replace(GOOD, function=undocumented), "about= has no help for 'extra'"),
        (replace(GOOD, function=lambda spec: spec), "needs a docstring"),
        (replace(GOOD, function=None), "needs a function or a command"),
        (replace(GOOD, spec=None), "needs a spec"),
        (replace(GOOD, workload=len), "needs --limit and --out"),
    ],
)
def test_what_an_author_forgets_fails(verb: Verb, sentence: str, registered: Any) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_verb(registered(verb))


def test_a_verb_without_an_entry_point_or_with_a_taken_name_fails() -> None:
    for verb in (GOOD, replace(GOOD, name="eval")):
        with pytest.raises(AssertionError, match=r'project\.entry-points\."holdfast\.verbs"'):
            check_verb(verb)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_verbs_of_the_core_keep_the_contract(verb: Verb) -> None:
    check_verb(verb)


def test_names_that_are_no_verbs_stay_unknown() -> None:
    for name in ("eval", "ls", "no_such_verb"):
        with pytest.raises(AttributeError):
            getattr(holdfast, name)
    with pytest.raises(UserError, match="no verb is called 'evall'; did you mean eval"):
        registry.verbs.get("evall")
