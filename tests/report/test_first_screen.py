"""The first screen of a report: which image it shows, class names as words, and how much page there is."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from made_runs import CONDITIONS, make_run

from browsing import a_browser
from holdfast.data.reading import doubtful_masks
from holdfast.reports import build
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.tables import Column, Table, as_crossed_latex
from holdfast.reports.page.words import class_words
from holdfast.reports.static.front import pick_flip
from holdfast.stats.core.reduce import reduce
from holdfast.store import Run

FIRST, SAME, RANDOM = "original", "same_class_background", "random_background"


def evidence_of(run: Run) -> Evidence:
    return Evidence(reduce(run.predictions.dataset()), resamples=100, background_conditions=lambda _: [RANDOM])


def answers_of(run: Run, model: str) -> dict[tuple[str, str], dict[str, Any]]:
    columns = ["source_id", "condition", "model", "correct", "prediction", "donor_label"]
    rows = run.rows(columns).to_pylist()
    return {(row["source_id"], row["condition"]): row for row in rows if row["model"] == model}


@pytest.mark.parametrize("seed", range(6))
def test_the_photo_shown_is_right_at_home_and_wrong_elsewhere(tmp_path: Path, seed: int) -> None:
    run = make_run(tmp_path / "run", seed=seed)
    evidence = evidence_of(run)
    flip = pick_flip(evidence)
    assert flip is not None and flip.turned and flip.conditions == (FIRST, SAME, RANDOM)
    effects = evidence.holds.set_index("model")["background_effect"]
    assert flip.model == effects.idxmax()
    said = answers_of(run, flip.model)
    assert [said[flip.source, name]["correct"] for name in flip.conditions] == [True, True, False]
    flipped = [
        source
        for source, name in said
        if name == RANDOM and [said[source, shown]["correct"] for shown in flip.conditions] == [True, True, False]
    ]
    captured = [
        source for source in flipped if said[source, RANDOM]["prediction"] == said[source, RANDOM]["donor_label"]
    ]
    assert flip.source in (captured or flipped), "the best example answers with the background's class"


def test_a_doubtful_mask_is_shown_only_where_there_is_no_other(tmp_path: Path) -> None:
    evidence = evidence_of(make_run(tmp_path / "run"))
    first = pick_flip(evidence)
    assert first is not None
    other = pick_flip(evidence, {first.source})
    assert other is not None and other.source != first.source and other.turned
    everything = set(evidence.counts.cells["source_id"].astype(str))
    assert pick_flip(evidence, everything) == first


def test_doubts_come_from_the_list_that_mask_wrote(tmp_path: Path) -> None:
    assert doubtful_masks(None) == doubtful_masks(tmp_path) == frozenset()
    lines = ["path,sample_id,confidence,status", "a.png,a,0.2,ok", "b.png,b,0.9,ok", "c.png,c,0.1,error", "d.png,d,,ok"]
    (tmp_path / "masks.csv").write_text("\n".join(lines), encoding="utf8")
    assert doubtful_masks(tmp_path) == {"a"}


def test_there_is_no_photo_to_show_without_a_changed_background(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", conditions=["original", "grey"])
    evidence = Evidence(reduce(run.predictions.dataset()), resamples=100)
    assert pick_flip(evidence) is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("n02110958", "pug"),
        ("imagenet 254", "pug"),
        ("imagenet_254", "pug"),
        ("pug, pug-dog", "pug"),
        ("golden_retriever", "golden retriever"),
        ("n99999999", "n99999999"),
        ("a, b", "a, b"),
        ("_", "_"),
    ],
)
def test_classes_are_words(name: str, shown: str) -> None:
    assert class_words(name) == shown


def test_class_words_stand_on_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", classes=["n02110958", "n02099601", "imagenet 305"], photos=4, source="image {}")
    text = build([run], tmp_path / "report", resamples=100).read_text(encoding="utf8")
    shown = text.split('<section id="run"')[0]  # the specification keeps the names as they are
    assert "golden retriever" in shown and "dung beetle" in shown
    terms = re.findall(r"class\[imagenet 305\]", shown)  # the names of parameters are those of the table
    assert shown.count("imagenet 305") == len(terms)


def test_crossed_latex_has_models_down_and_conditions_across(tmp_path: Path) -> None:
    build([make_run(tmp_path / "run")], tmp_path / "report", resamples=100)
    text = (tmp_path / "report" / "tables" / "accuracy_by_scenario_crossed.tex").read_text(encoding="utf8")
    lines = text.splitlines()
    assert lines[0] == r"% needs \usepackage{booktabs, graphicx}"
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert lines.count(rule) == 1
    head, *rows = [line.removesuffix(r" \\").split(" & ") for line in lines if line.endswith(r"\\")]
    assert [row[0] for row in rows] == ["first", "second"] and head[0] == "Model"
    assert len(head) == 1 + len(CONDITIONS) == len(rows[0]) and r"\rotatebox{90}{blur object}" in head
    for column in zip(*rows, strict=True):
        assert column[0] in ("first", "second") or sum(cell.startswith(r"\textbf{") for cell in column) >= 1


def test_crossed_latex_marks_gaps_and_escapes_names() -> None:
    import pandas as pd

    frame = pd.DataFrame({
        "model": ["a_1", "a_1", "b&c"], "condition": ["x", "y", "x"], "accuracy": [0.5, 0.75, 0.25],
        "low": [0.4, 0.6, 0.1], "high": [0.6, 0.8, 0.4],
    })  # fmt: skip
    columns = [
        Column("model", "Model"),
        Column("condition", "Condition"),
        Column("accuracy", "Accuracy", "percent", "low", "high"),
    ]
    text = as_crossed_latex(Table("t", "T", frame, columns), "model", "condition")
    assert r"a\_1 & \textbf{50.0} & \textbf{75.0} \\" in text and r"b\&c & 25.0 & -- \\" in text


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on one model with images, as ``check`` writes it."""
    folder = tmp_path_factory.mktemp("screen")
    run = make_run(folder / "run", models=["timm:only"], classes=[f"class {n}" for n in range(12)], photos=4)
    picture = cv2.imencode(".jpg", np.full((320, 320, 3), 90, np.uint8))[1].tobytes()

    def pictures(
        _: Run, source_ids: Collection[str], *, size: int = 160, only: Collection[str] = ()
    ) -> dict[tuple[str, str], bytes]:
        return {(source, condition): picture for source in source_ids for condition in CONDITIONS}

    steps = [("Fix 3 doubtful masks; masks.csv lists the least sure first.", "")]
    return build([run], folder / "report", resamples=100, pictures=pictures, steps=steps)


@pytest.mark.parametrize(("width", "height", "whole", "nodes"), [(1400, 900, 2_000, 3_000), (390, 844, 3_500, 3_000)])
def test_the_page_is_short_until_it_is_unfolded(page: Path, width: int, height: int, whole: int, nodes: int) -> None:
    with a_browser() as browser:
        opened = browser.new_page(viewport={"width": width, "height": height})
        opened.goto(page.as_uri())
        front = opened.locator("section.front").bounding_box()
        total = opened.evaluate("document.documentElement.scrollHeight")
        count = opened.evaluate("document.querySelectorAll('body *').length")
        if width == 1400:
            assert front["y"] + front["height"] <= height
        assert total <= whole and count <= nodes
