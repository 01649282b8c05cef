"""``vlm+python:MODULE:ATTRIBUTE``: any callable on images and questions, for services with a library of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.types import Image
from holdfast.models.options import checked, display_name
from holdfast.registry import find_attribute


class PythonVlm:
    """A ``VisionLanguageModel`` around a callable."""

    def __init__(self, name: str, call: Callable[[list[Image], list[str]], Any], *, identity: str) -> None:
        self.name = name
        self.fingerprint = fingerprint({"code": identity})
        self._call = call

    def answer(self, images: Sequence[Image], questions: Sequence[str]) -> list[str]:
        """One answer a question; see ``VisionLanguageModel``."""
        answers = list(self._call([image.copy() for image in images], list(questions)))
        if len(answers) != len(questions) or not all(isinstance(answer, str) for answer in answers):
            raise UserError(f"{self.name} should answer with one text for each of {len(questions)} questions")
        return answers


def load(name: Name, *, device: str) -> PythonVlm:
    """A callable, a class to instantiate without arguments, or an object with ``answer``.

    It gets a list of HWC uint8 RGB images and as many questions, and returns as many texts. Its own ``fingerprint`` is
    used where it has one, else the source of its module. The working directory is importable.
    """
    del device  # the callable's own business
    checked(name, {})
    target, source = find_attribute(name)
    if isinstance(target, type):
        target = target()
    call = getattr(target, "answer", target)
    if not callable(call):
        raise UserError(f"vlm+python:{name.name} is neither callable nor an object with answer")
    return PythonVlm(display_name(name, name.name), call, identity=str(getattr(target, "fingerprint", "") or source))
