"""Every message that a user may read, checked by rule; ``make messages`` writes them to one file for review."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import ModuleType

import pytest
from doc_blocks import ROOT

WHAT_TO_DO = re.compile(
    r"[;:–]|\b(must|needs?|only|expect(s|ed)|use|give|pass|run|name|try|say|choose|install|add|set|write|make|leave|"
    r"without|at least|at most|more than|too (few|many|large|long|deep(ly)?)|did you mean|none of|instead|between|"
    r"not an?|cannot|damaged|already|should|longer|any more|takes|is for|are for|(has|have|is|are|there is) no|such|"
    r"begin with|differ|needed|off by)\b",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def catalogue() -> ModuleType:
    spec = importlib.util.spec_from_file_location("messages", ROOT / "docs" / "messages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["messages"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_all_kinds_of_messages_are_found(catalogue: ModuleType) -> None:
    code = '''
"""A docstring is no message."""
def f(summary, path):
    """Nor is this one."""
    if path:
        raise UserError(f"--use {path!r}: expected a number between 2 and 8")
    raise SampleError("the mask has no pixel" " of the object")
    summary.notes.append("Some images were left out.")
    LOG.warning("%s is slow here", path)
    x = option(3, help="how many images to take")
    steps.append(("Make masks for the rest.", "holdfast mask"))
    page.Heading("Where the models look")
    return "select a from b where c"
'''
    kinds = {message.kind: message.text for message in catalogue.messages_of(code, "f.py")}
    assert kinds == {
        "error": "--use {path}: expected a number between 2 and 8", "row error": "the mask has no pixel of the object",
        "note": "Some images were left out.", "warning": "%s is slow here", "help": "how many images to take",
        "next step": "Make masks for the rest.", "heading": "Where the models look",
    }  # fmt: skip


def test_messages_end_and_are_spaced_as_sentences(catalogue: ModuleType) -> None:
    wrong = []
    for message in catalogue.messages():
        text = re.sub(r"\{[^{}]*\}", "X", message.text).strip("\n")
        spaced = re.search(r"\S  +\S|\w ,|,,|\( | \)|[^.]\.\.(?![.\d])", text) and "\n" not in text
        ended = message.kind in ("error", "row error") and re.search(
            r"[,;(]$|\b(a|an|the|of|and|or|to)$", text.rstrip()
        )
        period = message.kind == "error" and re.match(r"[a-z]", text) and re.search(r"\w\.$", text)
        if (spaced and "/cli" not in message.file) or ended or period:
            wrong.append(f"{message.file}:{message.line} ({message.kind}): {message.text}")
    assert not wrong, "\n".join(wrong)


def test_errors_say_what_was_expected_or_what_to_do(catalogue: ModuleType) -> None:
    errors = [message for message in catalogue.messages() if message.kind == "error"]
    assert len(errors) > 1000
    # What fewer words say is a part of a sentence, such as "class of the dataset" for "unknown class of the dataset".
    bare = [
        f"{message.file}:{message.line}: {message.text}" for message in errors
        if len(message.text.split()) > 7 and not WHAT_TO_DO.search(message.text)
    ]  # fmt: skip
    assert not bare, "\n".join(bare)


def test_the_page_has_every_message_once(catalogue: ModuleType) -> None:
    listed = catalogue.messages()[:50]
    page = catalogue.page(listed)
    assert page.startswith("# 50 messages") and page.count("\n- ") == 50
