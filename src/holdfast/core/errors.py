"""The tree of things that go wrong, by who has to act on them."""

from __future__ import annotations


class HoldfastError(Exception):
    """Anything Holdfast raises on purpose."""


class UserError(HoldfastError):
    """A mistake in what was asked for: one sentence, exit code 2, no traceback."""


class SampleError(HoldfastError):
    """One image, mask or model answer that cannot be used: it becomes a row with a status, the run goes on."""


class RejectedError(SampleError):
    """A picture that a stated filter leaves out, with the reason: an outcome, in a row with status ``rejected``."""


def first_line(error: BaseException) -> str:
    """The beginning of a library's message, short enough for one sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class PromiseError(HoldfastError):
    """A scenario touched what it had promised to leave alone: a bug in that scenario, never in the data."""


class DamageWarning(UserWarning):
    """A damaged file was set aside and its contents are made again."""
