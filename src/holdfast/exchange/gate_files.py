"""The verdict of a release gate for other programs: JUnit XML, Markdown, annotations of GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from holdfast.core.names import NO_XML
from holdfast.stats.models.gate import Gate, Verdict, quantity_of

_LEVELS = {"failed": "error", "undecided": "warning", "passed": "notice"}
_SIGNS = {"failed": "❌ failed", "undecided": "❔ undecided", "passed": "✅ passed"}


@dataclass(frozen=True)
class GateCase:
    """One thing that the gate tested: a condition or a floor."""

    name: str
    verdict: Verdict
    sentence: str


def cases(gate: Gate, floors: Sequence[tuple[str, Verdict, str]] = ()) -> list[GateCase]:
    """Return the conditions that both models answered, and the floors (name, verdict, sentence)."""
    compared = gate.conditions[gate.conditions["n"] > 0].to_dict("records")
    rows = [GateCase(_name(row), row["verdict"], row["sentence"]) for row in compared]
    return [*rows, *(GateCase(f"floor of {name}", verdict, sentence) for name, verdict, sentence in floors)]


def _name(row: dict[Any, Any]) -> str:
    return " ".join(str(row[key]) for key in ("measure", "condition") if row.get(key))


def as_junit(gate: Gate, floors: Sequence[tuple[str, Verdict, str]] = ()) -> bytes:
    """Return a JUnit file with a test case per condition and floor; what is undecided is a failure of its own type."""
    listed = cases(gate, floors)
    failures = str(sum(case.verdict != "passed" for case in listed))
    counts = {"name": "holdfast compare", "tests": str(len(listed)), "failures": failures, "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", counts | {"skipped": "0", "time": "0"})
    for case in listed:
        entry = ElementTree.SubElement(
            suite, "testcase", {"classname": "holdfast.compare", "name": NO_XML.sub("", case.name), "time": "0"}
        )
        if case.verdict != "passed":
            message = NO_XML.sub("", case.sentence)
            ElementTree.SubElement(entry, "failure", {"type": case.verdict, "message": message}).text = message
    ElementTree.SubElement(suite, "system-out").text = NO_XML.sub("", gate.sentence)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def as_markdown(gate: Gate, floors: Sequence[tuple[str, Verdict, str]] = ()) -> str:
    """Return the verdict, a table of the conditions and the floors, for a comment or a job's summary."""
    head = "| condition | verdict | old | new | new − old, at least | at most | images |\n|---|---|---|---|---|---|---|"
    rows = [_line(row) for row in gate.conditions[gate.conditions["n"] > 0].to_dict("records")]
    listed = [f"- {_SIGNS[verdict]}: {_cell(sentence)}" for _, verdict, sentence in floors]
    title = f"## Holdfast: {_SIGNS[gate.verdict]}"
    return "\n".join([title, "", _cell(gate.sentence), "", head, *rows, *([""] if listed else []), *listed, ""])


def _line(row: dict[Any, Any]) -> str:
    quantity = quantity_of(row)
    values = [quantity.value(row[key]) for key in ("old", "new")]
    ends = [quantity.changed(row[key]) for key in ("low", "high")]
    return f"| {' | '.join([_cell(_name(row)), _SIGNS[row['verdict']], *values, *ends, str(row['n'])])} |"


def _cell(text: str) -> str:
    """Return text in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&@!])", r"\\\1", re.sub(r"\s+", " ", text))


def as_annotations(gate: Gate, floors: Sequence[tuple[str, Verdict, str]] = ()) -> Iterator[str]:
    """Yield GitHub's workflow commands: the whole, then an error per failed case and a warning per undecided one.

    GitHub keeps ten of each level, so the worst come first.
    """
    yield _annotation(gate.verdict, "release gate", gate.sentence)
    for verdict in ("failed", "undecided"):
        for case in cases(gate, floors):
            if case.verdict == verdict:
                yield _annotation(case.verdict, case.name, case.sentence)


def _annotation(verdict: Verdict, title: str, message: str) -> str:
    def escaped(text: str, more: str = "") -> str:
        for character in "%\r\n" + more:
            text = text.replace(character, f"%{ord(character):02X}")
        return text

    return f"::{_LEVELS[verdict]} title=holdfast {escaped(title, ':,')}::{escaped(message)}"
