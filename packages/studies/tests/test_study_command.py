from __future__ import annotations

from pathlib import Path

from holdfast.testing import check_verb, option_surface
from holdfast_studies.cli import STUDY, TELLTALE


def test_the_commands_keep_the_contract_and_their_options() -> None:
    for verb in (STUDY, TELLTALE):
        check_verb(verb)
    kept = Path(__file__).with_name("option_surface.txt").read_text().splitlines()
    assert option_surface("study", "study telltale") == kept
