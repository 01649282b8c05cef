from __future__ import annotations

from pathlib import Path

from holdfast.testing import check_verb, option_surface
from holdfast_studies.cli import STUDY


def test_the_command_keeps_the_contract_and_its_options() -> None:
    check_verb(STUDY)
    assert option_surface("study") == Path(__file__).with_name("option_surface.txt").read_text().splitlines()
