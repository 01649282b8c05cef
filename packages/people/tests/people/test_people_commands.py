from __future__ import annotations

from pathlib import Path

from holdfast.testing import check_verb, option_surface
from holdfast_people.cli import VERBS


def test_the_commands_keep_the_contract_and_their_options() -> None:
    for verb in VERBS:
        check_verb(verb)
    kept = Path(__file__).parents[1] / "option_surface.txt"
    assert option_surface(*(verb.name for verb in VERBS)) == kept.read_text().splitlines()
