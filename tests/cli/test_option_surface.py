"""The whole option surface, held against ``option_surface.txt``: an option, type or default changes only on purpose.

``python tests/cli/test_option_surface.py`` writes the file again.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.commands import VERBS
from holdfast.testing import option_surface

SURFACE = Path(__file__).with_name("option_surface.txt")


def surface() -> list[str]:
    """Return the lines of the core: other packages keep their own."""
    return option_surface("", "plan", *(verb.name for verb in VERBS))


def test_every_option_is_as_it_was() -> None:
    known, now = SURFACE.read_text(encoding="utf8").splitlines(), surface()
    lost, added = sorted(set(known) - set(now)), sorted(set(now) - set(known))
    assert not (lost or added), "\n".join([*(f"- {line}" for line in lost), *(f"+ {line}" for line in added)])


if __name__ == "__main__":
    SURFACE.write_text("\n".join(surface()) + "\n", encoding="utf8")
