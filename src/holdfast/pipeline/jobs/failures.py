"""Ask about many items at once, and tell the items that fail from trouble that stops the command.

``core.errors`` says which is which: a UserError and trouble of the machine stop the command, as ``sys.exit`` does.
Everything else is about one item and becomes a row with status ``error``. Memory that runs out halves the batch; it
stops the command where one item does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.core.errors import SampleError, half_may_work, stop_or_sentence

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def answer_each(ask: Callable[[Sequence[Item]], Sequence[Answer]], items: Sequence[Item]) -> list[Answer | SampleError]:
    """Return the answer to each item, or the SampleError that its row reports.

    Where a batch fails, its halves are asked, down to the items that fail. Errors that stop the command are raised.

    Args:
        ask: answers several items at once.
        items: what is asked about.
    """
    if not items:
        return []
    try:
        return list(ask(items))
    except Exception as error:
        if len(items) == 1 or not half_may_work(error):
            return [SampleError(stop_or_sentence(error))]
    # Outside the except clause: the error's frames would keep the batch in memory.
    half = len(items) // 2
    return answer_each(ask, items[:half]) + answer_each(ask, items[half:])
