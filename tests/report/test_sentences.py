"""No sentence of a report claims an order, a loss or a comparison that its numbers lack.

Every section and first screen is built from runs whose tables are degenerate: all right, all wrong, ties, no loss, one
model, one condition, one class, one image, nothing answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import CONDITIONS, make_run
from made_walks import make_walks

from holdfast.reports.assembly import page_front, report_sections
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Listing, Notice, Section, Text, Verdicts
from holdfast.reports.page.sections import ReportEvidence
from holdfast.stats.models.datasets import dataset_drops
from holdfast.stats.models.gate import gate
from made_detections import Planted, detector_run, made_detections

NOTHING = re.compile(r"[−-]?0(\.0+)?")
NUMBER = r"[−+-]?\d[\d,]*(?:\.\d+)?"
VALUE = rf"({NUMBER})(?: (?:%|points))?"
ORDER = r"(?:most harmful|lowest|least|fewest|smallest|worst|highest|largest|widest|greatest|best)"
LOSS = r"(?:loses?|costs?(?: most)?|falls by|drops? by|is|by|gains|lowers|raises|ahead|most, by|most)"


def texts_of(section: Section) -> Iterator[str]:
    yield from section.lead
    for part in section.parts:
        if isinstance(part, (Text, Listing)):
            yield from part.texts
        elif isinstance(part, Notice):
            yield part.text
        elif isinstance(part, Figure):
            yield part.finding
        elif isinstance(part, Verdicts):
            yield from (f"{item.word}. {item.sentence} {item.small}".replace("  ", " ") for item in part.items)


def sentences(report: ReportEvidence) -> list[str]:
    front = page_front(report)
    texts = [text for section in report_sections(report) for text in texts_of(section)]
    texts += [front.limits, *front.warnings, *(text for text, _ in front.steps)]
    texts += [f"{item.word}. {item.sentence} {item.small}".replace("  ", " ") for item in front.verdicts]
    texts += [photo.summary for photo in front.images.photos] if front.images else []
    texts += [front.chart.finding] if front.chart else []
    return [one for text in texts for one in re.split(r"(?<=[.!?]) (?=[A-Z])", text) if one]


def faults(text: str) -> list[str]:
    """Return what a sentence claims without having it."""
    found = []
    if re.search(r"\b(nan|NaN|None(?! of)|inf)\b|\bof 0\b(?! steps|[.,]\d)|  ", text):
        found.append("a missing value")
    for first, second in re.findall(rf"\bfrom {VALUE}(?: \([^()]*\))? to {VALUE}", text):
        if first == second:
            found.append(f"from {first} to {second}")
    for name, again in re.findall(rf"\bfrom ([\w ]+?) \({NUMBER}[^()]*\) to ([\w ]+?) \({NUMBER}", text):
        if name == again:
            found.append(f"from {name} to {name}")
    extremes = re.findall(rf"{ORDER}\b[^.;]*?\({VALUE}[^()]*\)[^.;]*?{ORDER}\b[^.;]*?\({VALUE}", text)
    found += [f"an order of {first} and {second}" for first, second in extremes if first == second]
    for value in re.findall(rf"\b{LOSS} {VALUE} points?\b", text):
        if NOTHING.fullmatch(value):
            found.append(f"a loss of {value}")
    if re.search(r"none of the (controls|others)|\b1 (images|models|conditions|drops|pairs|classes)\b", text):
        found.append("a plural of one")
    return found


def even(*_: str) -> float:
    return 0.5


WORLDS: dict[str, dict[str, Any]] = {
    "all right": {"share": lambda *_: 1.0},
    "all wrong": {"share": lambda *_: 0.0},
    "half right": {"share": even},
    "no loss, models differ": {"share": lambda model, *_: 1.0 if model.endswith("first") else 0.5},
    "equal models": {"share": lambda _, condition, __: 1.0 if condition == "original" else 0.5},
    "better under conditions": {"share": lambda _, condition, __: 0.5 if condition == "original" else 1.0},
    "classes differ": {"share": lambda _, __, label: 1.0 if label == "cat" else 0.5},
    "one model": {"share": even, "models": ["timm:first"]},
    "one model, all right": {"share": lambda *_: 1.0, "models": ["timm:first"]},
    "three models": {"share": even, "models": ["timm:resnet50", "timm:vit_b", "timm:alexnet"]},
    "original alone": {"conditions": ["original"], "share": even},
    "no original": {"conditions": ["grey", "random_background"], "share": even},
    "one condition": {"conditions": ["original", "grey"], "share": even},
    "controls alone": {"conditions": ["original", "only_background", "silhouette"], "share": even},
    "one class": {"classes": ["cat"], "share": even},
    "one image a class": {"photos": 1, "share": lambda *_: 1.0},
    "one image": {"photos": 1, "classes": ["cat"], "share": lambda *_: 1.0},
    "nothing answered": {"status": "error", "error": "the model failed", "photos": 2},
    "corruptions, all right": {
        "conditions": ["original", *(f"fog@{level}" for level in (1, 2, 3)), *(f"snow@{level}" for level in (1, 2, 3))],
        "share": lambda *_: 1.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("world", WORLDS)
def test_no_sentence_claims_what_its_numbers_lack(tmp_path: Path, world: str) -> None:
    run = make_run(tmp_path / "run", **{"photos": 4, "conditions": CONDITIONS} | WORLDS[world])
    said = sentences(ReportEvidence([run], resamples=40))
    assert len(said) > 5
    wrong = {text: fault for text in said if (fault := faults(text))}
    assert not wrong, "\n".join(f"{fault}: {text}" for text, fault in wrong.items())


@pytest.mark.parametrize(
    "world", ["all right", "all wrong", "half right", "one model, all right", "corruptions, all right"]
)
def test_equal_values_have_no_extremes(tmp_path: Path, world: str) -> None:
    run = make_run(tmp_path / "run", **{"photos": 4, "conditions": CONDITIONS} | WORLDS[world])
    claims = [text for text in sentences(ReportEvidence([run], resamples=40)) if re.search(CLAIM, text)]
    claims = [text for text in claims if "too sure" not in text]  # confidences differ in all of these worlds
    assert not claims, "\n".join(claims)


# An order among models, conditions or classes that a sentence states as a result, not as a rule.
CLAIM = (
    r"\b(is|are|has|have|loses|costs|under|with|by) the (most|lowest|least|highest|largest|widest|worst|best)\b|"
    r"^(The|Of \d+ \w+) (the )?(most harmful|largest|widest|worst|best|highest|lowest)\b|\bis first\b|"
    r"\b(loses|costs) most\b|\bSoonest broken\b|\bmakes the fewest\b"
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The most harmful condition is grey: it takes first from 100.0 % to 100.0 %.", "from 100.0 to 100.0"),
        ("FMR is lowest for A (0.0 %) and highest for B (0.0 %).", "an order of 0.0 and 0.0"),
        ("from background (40 %) to background (40 %)", "from background to background"),
        ("Accuracy falls by 0.0 points.", "a loss of 0.0"),
        ("Blur costs most (0.0 points over the models).", ""),
        ("It is right in nan % of them.", "a missing value"),
    ],
)
def test_the_rules_find_the_known_faults(text: str, fault: str) -> None:
    assert (fault in faults(text)) if fault else True


WALKS: dict[str, dict[str, Any]] = {
    "all kept": {"models": {"timm:first": 1.0, "timm:second": 1.0}, "standard": 1.0, "validation": 1.0},
    "none kept": {"models": {"timm:first": 0.0, "timm:second": 0.0}},
    "none accepted": {"validation": 0.0},
    "none right": {"standard": 0.0},
    "three equal models": {"models": {f"timm:{name}": 1.0 for name in "abc"}, "standard": 1.0, "validation": 1.0},
    "one model": {"models": {"timm:first": 0.5}, "classes": ["cat", "dog"]},
    "one image a class": {"classes": ["cat", "dog"], "photos": 1, "random_walk": False},
}


@pytest.mark.parametrize("world", WALKS)
def test_no_sentence_on_walks_claims_what_its_numbers_lack(tmp_path: Path, world: str) -> None:
    run = make_walks(tmp_path / "run", **{"photos": 4} | WALKS[world])
    said = sentences(ReportEvidence([run], resamples=40))
    wrong = {text: fault for text in said if (fault := faults(text))}
    assert not wrong, "\n".join(f"{fault}: {text}" for text, fault in wrong.items())


DETECTED: dict[str, dict[str, Planted]] = {
    "no loss": {"original": Planted(1.0, alarms=0.0), "grey": Planted(1.0, alarms=0.0)},
    "all lost": {"original": Planted(0.0, alarms=0.0), "grey": Planted(0.0, alarms=0.0)},
    "equal losses": {"original": Planted(1.0), "grey": Planted(0.5), "blur_object": Planted(0.5)},
    "original alone": {"original": Planted(0.8)},
    "better under a condition": {"original": Planted(0.5), "grey": Planted(1.0)},
}


@pytest.mark.parametrize("world", DETECTED)
def test_no_sentence_on_detectors_claims_what_its_numbers_lack(tmp_path: Path, world: str) -> None:
    run = detector_run(tmp_path / "run", made_detections(DETECTED[world], photos=8))
    wrong = {text: fault for text in sentences(ReportEvidence([run], resamples=40)) if (fault := faults(text))}
    assert not wrong, "\n".join(f"{fault}: {text}" for text, fault in wrong.items())


@pytest.mark.parametrize("world", ["all right", "all wrong", "half right", "equal models", "one class", "one image"])
def test_no_sentence_that_compares_runs_claims_what_its_numbers_lack(tmp_path: Path, world: str) -> None:
    options = {"photos": 4, "conditions": CONDITIONS} | WORLDS[world]
    runs = [make_run(tmp_path / name, **options | {"dataset": name}) for name in ("here", "there")]
    counts = {run.path.name: ReportEvidence([run]).counts for run in runs}
    single = make_run(tmp_path / "single", **options | {"models": ["timm:first"]})
    own = ReportEvidence([single]).counts
    tested = gate(own, own)
    texts = [dataset_drops(counts, resamples=40).sentence]
    texts += [tested.sentence, *tested.notes, *tested.advice(), *tested.conditions["sentence"]]
    split = [one for text in texts for one in re.split(r"(?<=[.]) (?=[A-Z])", text)]
    wrong = {text: fault for text in split if (fault := faults(text))}
    assert not wrong, "\n".join(f"{fault}: {text}" for text, fault in wrong.items())
