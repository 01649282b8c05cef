"""What is in the folder: sections in order, tables that equal the statistics, pages for every size of run."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
from made_runs import CONDITIONS, make_run

from holdfast.core.errors import UserError
from holdfast.core.numbers import number, p_value, percent, points
from holdfast.reports import build, html_summary
from holdfast.reports.page.provenance import _facts
from holdfast.reports.page.tables import Column, Table, as_csv, as_latex, latex
from holdfast.reports.page.words import listing, sentence, short_names
from holdfast.stats.core import cells
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects import drops
from holdfast.stats.effects.confidence import calibration
from holdfast.stats.effects.verdict import what_it_holds
from holdfast.stats.models.between import pairs, ranking
from holdfast.store import Run
from holdfast.store.run import guarded

SECTIONS = [
    "verdict", "scores", "scenarios", "classes", "comparison", "regression", "confidence", "gallery", "worst",
    "errors", "run",
]  # fmt: skip
FAST = 200  # resamples


class Outline(HTMLParser):
    """Ids of sections, headings, figures and tables, and whether elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.levels: list[int] = []
        self.charts: list[str] = []
        self.captions = self.tables = self.unscoped = 0
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = dict(attrs)
        if tag == "section":
            self.sections.append(str(have["id"]))
        elif re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        elif tag == "table":
            self.tables += 1
        elif tag == "caption":
            self.captions += 1
        elif tag == "th":
            self.unscoped += "scope" not in have
        if have.get("role") == "img":
            self.charts.append(have.get("aria-label") or "")
        if tag in ("script", "img", "link", "iframe", "source") and (have.get("src") or have.get("href")):
            self.loaded.append(str(have.get("src") or have.get("href")))


def made(path: Path, **options: object) -> tuple[Path, str, Outline]:
    out = path / "report"
    run = make_run(path / "run", **options)  # type: ignore[arg-type]
    page = build([run], out, resamples=FAST)
    text = page.read_text(encoding="utf8")
    return out, text, Outline(text)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, str]:
    folder = tmp_path_factory.mktemp("two")
    run = make_run(folder / "run")
    picture = cv2.imencode(".jpg", np.full((30, 40, 3), 90, np.uint8))[1].tobytes()
    asked: list[str] = []

    def pictures(
        _: Run, source_ids: Collection[str], *, size: int = 160, only: Collection[str] = ()
    ) -> dict[tuple[str, str], bytes]:
        asked.extend(sorted(source_ids))
        made_pictures = {(source, condition): picture for source in source_ids for condition in only or CONDITIONS}
        if size > 160:  # the three of the first screen
            return made_pictures
        return made_pictures | {(min(source_ids), "grey"): b"<script>no picture</script>"}

    page = build([run], folder / "report", resamples=FAST, pictures=pictures)
    assert 1 < len(asked) <= 5 + 8 + 4  # the last four: an image of each class
    return run, folder / "report", page.read_text(encoding="utf8")


def table(folder: Path, name: str) -> pd.DataFrame:
    exact = {"float_precision": "round_trip"} if pd.__version__.startswith("2.") else {}  # pandas 3 reads exactly
    return pd.read_csv(folder / "tables" / f"{name}.csv", keep_default_na=False, na_values=[""], **exact)


def test_the_sections_come_in_order_and_headings_never_skip_a_level(report: tuple[Run, Path, str]) -> None:
    outline = Outline(report[2])
    assert outline.sections == [*SECTIONS[:7], "grid", *SECTIONS[7:]]  # with images, there is a grid of them
    assert outline.levels[0] == 1 and outline.levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(outline.levels, outline.levels[1:], strict=False))


def test_figures_have_texts_and_files_and_tables_have_captions_and_files(report: tuple[Run, Path, str]) -> None:
    _, folder, text = report
    outline = Outline(text)
    assert outline.charts and all(len(alt) > 40 for alt in outline.charts)
    assert outline.tables == outline.captions and outline.unscoped == 0
    linked = set(re.findall(r'href="((?:figures|tables)/[^"]+\.[a-z]+)"', text))
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.parent != folder}
    assert linked == there
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".svg", ".png"}
    assert {path.suffix for path in (folder / "tables").iterdir()} == {".csv", ".tex"}
    photos = [data for data in outline.loaded if data.startswith("data:image/jpeg;base64,")]
    assert all(data.startswith("data:image/svg+xml;base64,") for data in outline.loaded if data not in photos)
    wrong = 1  # three in front, an image that is wrong as it is; one in the grid and one below were not JPEG
    assert (len(photos) - 3 - wrong) % len(CONDITIONS) == len(CONDITIONS) - 2


def test_every_figure_has_an_interactive_specification(report: tuple[Run, Path, str]) -> None:
    text = report[2]
    data = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    assert data
    charts = json.loads(data.group(1))
    assert set(charts) == set(re.findall(r'data-chart="([^"]+)"', text))
    assert all({"datasets", "wide", "narrow"} == set(one) for one in charts.values())


def test_csv_values_are_the_statistics(report: tuple[Run, Path, str]) -> None:
    run, folder, _ = report
    counts = reduce(run.predictions.dataset())
    options = {"resamples": FAST, "seed": 0}
    expected = cells.summary(counts).set_index(["model", "condition"])
    got = table(folder, "accuracy_by_scenario").set_index(["model", "condition"])
    for column in ("accuracy", "low", "high", "n"):
        np.testing.assert_array_equal(got[column].loc[expected.index], expected[column])
    got = table(folder, "drops").set_index(["model", "condition"])
    expected = drops.drops(counts, **options).set_index(["model", "condition"])  # type: ignore[arg-type]
    for column in ("drop", "low", "high", "p", "lost", "gained"):
        np.testing.assert_array_equal(got[column].loc[expected.index], expected[column])
    expected = pairs(counts, **options).table.drop(columns="condition")  # type: ignore[arg-type]
    pd.testing.assert_frame_equal(table(folder, "pairs").drop(columns="condition"), expected, check_dtype=False)
    pd.testing.assert_frame_equal(table(folder, "ranking"), ranking(counts, **options).table, check_dtype=False)  # type: ignore[arg-type]
    expected = calibration(counts).set_index(["model", "condition"])
    got = table(folder, "confidence").set_index(["model", "condition"])
    np.testing.assert_array_equal(got["ece"].loc[expected.index], expected["ece"])
    verdicts = what_it_holds(counts, outcome="full", **options).set_index("model")  # type: ignore[arg-type]
    got = table(folder, "scores").set_index("model")
    for column in ("background_effect", "paste_effect_low"):
        np.testing.assert_array_equal(got[column].loc[verdicts.index], verdicts[column])


def test_the_page_shows_the_numbers_of_the_tables(report: tuple[Run, Path, str]) -> None:
    _, folder, text = report
    first = table(folder, "scores").iloc[0]
    assert percent(first["original"]) in text
    assert f"{100 * first['original_low']:.1f} to {100 * first['original_high']:.1f}" in text
    for words in table(folder, "verdicts")["headline"]:
        assert words in text


def test_answers_are_told_apart_by_sign_and_word(report: tuple[Run, Path, str]) -> None:
    text = report[2]
    for kind, sign in (("right", "✓"), ("wrong", "✗")):
        found = re.findall(
            rf'<li class="{kind}"[^>]*><span class="sign" aria-hidden="true">(.)</span>.*?<span class="said">(\w+)',
            text,
        )
        assert found and set(found) == {(sign, kind)}


def test_a_report_can_be_made_again_in_the_same_place(report: tuple[Run, Path, str]) -> None:
    run, folder, text = report
    again = build([run], folder, resamples=FAST, pictures=None).read_text(encoding="utf8")
    assert "<h1>" in again and len(again) < len(text)
    build([run], folder, resamples=FAST, outcome="restricted", average="micro")
    assert "among the dataset&#39;s classes only" in (folder / "index.html").read_text(encoding="utf8")


def test_one_model(tmp_path: Path) -> None:
    _, text, outline = made(tmp_path, models=["only"], photos=4)
    assert outline.sections == SECTIONS
    assert "There is one model only, so there are no ranks and no pairs." in text
    assert "There is one model only: an interaction needs two." in text
    assert "Does the model rely on the background?" in text


def test_a_dozen_models(tmp_path: Path) -> None:
    out, text, outline = made(tmp_path, models=[f"timm:network_{i}" for i in range(12)], photos=4)
    assert outline.sections == SECTIONS
    assert len(text) < 10_000_000
    assert len(table(out, "pairs")) == 66
    assert all(f"network_{i}" in (out / "figures" / "accuracy_by_scenario.svg").read_text() for i in range(12))


def test_a_thousand_classes(tmp_path: Path) -> None:
    out, text, outline = made(
        tmp_path, classes=[f"class {i}" for i in range(1000)], photos=1, conditions=CONDITIONS[:4]
    )
    assert outline.sections == SECTIONS
    assert len(text) < 10_000_000
    assert "Of 1,000 classes the maps show the 15" in text
    assert table(out, "accuracy_by_class")["label"].nunique() == 1000


@pytest.mark.parametrize(
    "conditions", [("original",), ("grey", "blur_object"), ("only_background",), ("original", "grey")]
)
def test_missing_conditions_are_named(tmp_path: Path, conditions: tuple[str, ...]) -> None:
    _, text, outline = made(tmp_path, conditions=conditions, photos=4)
    assert outline.sections == SECTIONS
    assert "not run: " in text or "there are no answers under " in text
    if "original" not in conditions:
        assert "The originals were not among the conditions" in text


def test_every_row_failed(tmp_path: Path) -> None:
    _, text, outline = made(tmp_path, status="error", error="no such weights", photos=2)
    assert outline.sections == ["verdict", "errors", "run"]
    assert "No model has a prediction for any image" in text and "no such weights" in text


def test_a_model_that_never_answered_is_named_at_the_top(tmp_path: Path) -> None:
    good = make_run(tmp_path / "good", models=["timm:good"])
    crashed = make_run(tmp_path / "bad", models=["timm:crashed"], status="error", error="broken", seed=1)
    page = build([good, crashed], tmp_path / "out", resamples=200).read_text(encoding="utf8")
    top = page[: page.index('id="scores"')]
    assert "224 of 448 rows have no answer and count in no statistic" in top
    assert "No answer at all came from timm:crashed." in top


def test_a_model_with_originals_only_leaves_the_other_its_score(tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", models=["timm:whole"])
    part = make_run(tmp_path / "part", models=["timm:part"], conditions=["original"], seed=1)
    page = build([whole, part], tmp_path / "out", resamples=200)
    scores = table(page.parent, "scores").set_index("model")["score"]
    assert scores["timm:whole"] > 0 and np.isnan(scores["timm:part"])
    assert "part has no score" in page.read_text(encoding="utf8")


def test_the_reason_of_an_undecided_verdict_does_not_repeat_the_word(tmp_path: Path) -> None:
    for name, conditions in (("few", CONDITIONS), ("none", ("original", "grey"))):
        run = make_run(tmp_path / name, models=["timm:only"], photos=3, conditions=conditions)
        text = html_summary(reduce(run.predictions.dataset()))
        said = re.search(r"<strong>Inconclusive</strong>\. (.*?)</li>", text)
        assert said and "Inconclusive" not in said[1] and said[1][0].isupper() and said[1].endswith(".")


def test_fast_answers_are_told_from_exact_ones() -> None:
    facts = [
        dict(_facts(Run("nowhere"), {"fast": fast, "data": "photos"}, {}, "run").frame.to_numpy().tolist())
        for fast in (True, False)
    ]
    assert "bfloat16" in facts[0]["Answers"]
    assert "Answers" not in facts[1]


def test_a_run_without_rows(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.begin({"dataset": "nothing"})
    assert "no rows" in build([run], tmp_path / "report").read_text(encoding="utf8")


def test_rows_of_several_runs_are_joined_and_counted_once(tmp_path: Path) -> None:
    first = make_run(tmp_path / "first", models=["a", "b"], photos=4)
    second = make_run(tmp_path / "second", models=["a", "b"], photos=4)
    alone = build([first], tmp_path / "alone", resamples=FAST)
    both = build([first, second], tmp_path / "both", resamples=FAST)
    name = "tables/accuracy_by_class.csv"
    assert (both.parent / name).read_bytes() == (alone.parent / name).read_bytes()
    assert "first and second" in both.read_text(encoding="utf8")


def test_runs_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    first = make_run(tmp_path / "first", photos=1)
    with pytest.raises(UserError, match="different datasets"):
        build([first, make_run(tmp_path / "second", photos=1, dataset="other")], tmp_path / "out")
    with pytest.raises(UserError, match="different answers of timm:first"):
        build([first, make_run(tmp_path / "third", photos=1, seed=1)], tmp_path / "out")
    with pytest.raises(UserError, match="at least one run"):
        build([], tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the page"):
        build([first], tmp_path / "file", resamples=FAST)


def test_the_summary_for_notebooks(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", models=["<script>alert(1)</script>", "timm:second"], photos=4)
    text = html_summary(reduce(run.predictions.dataset()), resamples=FAST)
    assert "<script>" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert text.count("<tr>") == 3 and "Robustness score" in text
    failed = make_run(tmp_path / "failed", status="error", photos=1)
    assert "No model answered" in html_summary(reduce(failed.predictions.dataset()))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@sum", "\t=1", "\r=1", " =1"])
def test_text_that_a_spreadsheet_would_run_is_guarded(text: str) -> None:
    assert guarded(text) == f"'{text}"
    frame = pd.DataFrame({"name": [text], "value": [-1.5], "count": [-3]})
    (row,) = list(csv.reader(io.StringIO(as_csv(frame))))[1:]
    assert row == ["'" + text.replace("\r", "\n"), "-1.5", "-3"]


def test_csv_keeps_numbers_exact() -> None:
    frame = pd.DataFrame({"x": [0.1 + 0.2, float("nan"), 1e-300], "n": [1, 2, 3], "told": [True, False, True]})
    back = pd.read_csv(io.StringIO(as_csv(frame)))
    pd.testing.assert_frame_equal(back, frame)


def test_latex_runs_nothing() -> None:
    hostile = r"\input{/etc/passwd} 50% of $x_1$ & more #1 ~ ^ {\bf} <b>"
    frame = pd.DataFrame({"name": [hostile], "value": [0.5], "low": [0.25], "high": [0.75]})
    text = as_latex(
        Table("t", "100 % of it", frame, [Column("name", "Name_1"), Column("value", "Share", "percent", "low", "high")])
    )
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    assert not re.search(r"\\input|(?<!\\)[%$#_]", body.replace("$-$", ""))
    assert r"\textbackslash{}input\{" in body and "50.0 (25.0 to 75.0)" in body
    assert r"Name\_1" in text and r"100 \% of it" in text
    assert latex("−1") == "$-$1"


def test_numbers_as_words() -> None:
    assert percent(0.925) == "92.5 %" and points(-0.031) == "−3.1 points" and points(0.01, 0) == "1 point"
    assert number(-0.0001, 1) == "0.0" and number(float("nan")) == "–" and number(1234.5, 1) == "1,234.5"
    assert p_value(0.0123) == ".012" and p_value(0.00001) == "< .0001" and p_value(1.0) == "1.000"
    assert (
        listing(["a"]) == "a"
        and listing(["a", "b", "c"]) == "a, b and c"
        and listing(list("abcdef")) == "a, b, c and 3 more"
    )
    assert short_names(["timm:a", "timm:b"]) == {"timm:a": "a", "timm:b": "b"}
    assert short_names(["timm:a", "hf:a"]) == {"timm:a": "timm:a", "hf:a": "hf:a"}
    long = short_names(["x" * 60 + "1" + "y" * 60, "x" * 60 + "2" + "y" * 60])
    assert len(set(long.values())) == 2 and all(len(name) < 40 for name in long.values())


def test_a_name_keeps_its_letters_at_the_beginning_of_a_sentence() -> None:
    assert sentence("hard set") == "Hard set" and sentence("") == ""
    assert sentence("embedded:vit_rho95 chose this") == "embedded:vit_rho95 chose this"
