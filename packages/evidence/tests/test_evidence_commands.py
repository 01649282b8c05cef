from __future__ import annotations

from pathlib import Path

from holdfast.testing import check_verb, option_surface
from holdfast_evidence.cli import VERBS


def test_the_commands_keep_the_contract_and_the_options() -> None:
    for verb in VERBS:
        check_verb(verb)
    kept = Path(__file__).with_name("option_surface.txt").read_text().splitlines()
    assert sorted(option_surface(*(verb.name for verb in VERBS))) == sorted(kept)
