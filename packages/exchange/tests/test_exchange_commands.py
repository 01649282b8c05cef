from __future__ import annotations

from pathlib import Path

from holdfast.testing import check_verb, option_surface
from holdfast_exchange.cli import EXPORT


def test_the_command_keep_the_contract_and_the_options() -> None:
    check_verb(EXPORT)
    kept = Path(__file__).with_name("option_surface.txt").read_text().splitlines()
    assert sorted(option_surface("share export")) == sorted(kept)
