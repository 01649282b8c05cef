"""``python -m holdfast`` is ``holdfast``; an incomplete installation says what it lacks."""

from __future__ import annotations

import sys

from holdfast.core.distribution import lacks


def main() -> None:
    """Run the command line."""
    try:
        from holdfast.cli.main import main as run
    except ImportError as error:
        troubles = lacks()
        if not troubles or "--debug" in sys.argv:
            raise
        sys.exit("\n".join([f"Holdfast cannot start: {error}", *troubles]))
    run()


if __name__ == "__main__":
    main()
