"""Charts and tables of a run in a notebook or a script."""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_runs import make_run
from PIL import Image

import holdfast
from holdfast.api import compare
from holdfast.checking import Check
from holdfast.core.errors import UserError
from holdfast.core.types import Collection, LabelSpace
from holdfast.reports.page.figures import as_picture, png, svg
from holdfast.results import Results


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Results:
    models = ["</script><b>x</b>", "timm:second"]
    return Results(make_run(tmp_path_factory.mktemp("plots") / "run", models=models))


@pytest.mark.parametrize("name", ["verdict", "effects", "accuracy", "drops", "classes"])
def test_a_plot_is_a_specification_with_rows_that_notebooks_draw(run: Results, name: str) -> None:
    plot = run.plot(name, resamples=100)
    assert plot["$schema"].endswith("v6.json") and plot["title"]["text"]
    assert {row["model"] for row in plot["datasets"]["rows"]} == {"</script><b>x</b>", "timm:second"}
    shown = plot._repr_mimebundle_()
    assert json.loads(json.dumps(shown["application/vnd.vegalite.v6+json"])) == plot
    assert shown["image/svg+xml"].startswith("<svg") and shown["text/plain"] == repr(plot)
    assert len(repr(plot)) < 160


def test_the_plot_holds_the_numbers_of_the_table(run: Results) -> None:
    drops = run.drops(resamples=100).query("condition == 'blur_object' and model == 'timm:second'").iloc[0]
    rows = run.plot("drops", resamples=100)["datasets"]["rows"]
    drawn = next(row for row in rows if row["row"] == "blur object" and row["model"] == "timm:second")
    assert drawn["estimate"] == pytest.approx(drops["drop"], abs=1e-4)
    assert drawn["low"] == pytest.approx(drops["low"], abs=1e-4)


def test_a_plot_is_saved_as_its_ending_says(run: Results, tmp_path: Path) -> None:
    plot = run.plot("accuracy", width=500)
    page = plot.save(tmp_path / "new" / "chart.html").read_text(encoding="utf8")
    assert "</script><b>" not in page and "\\u003c/script\\u003e" in page
    assert json.loads(plot.save(tmp_path / "chart.json").read_text(encoding="utf8")) == plot
    assert plot.save(tmp_path / "chart.svg").read_text(encoding="utf8").startswith("<svg")
    with Image.open(io.BytesIO(plot.save(str(tmp_path / "chart.PNG")).read_bytes())) as image:
        assert image.format == "PNG" and image.width >= 900
    with pytest.raises(UserError, match=r"\.html, \.json, \.svg, \.png, not as 'chart.pdf'"):
        plot.save(tmp_path / "chart.pdf")


def test_other_charts_of_the_report_are_found_by_their_files_names(run: Results) -> None:
    assert run.plot("ranks", resamples=100)["title"]["text"][0].startswith("Models by mean accuracy")
    with pytest.raises(UserError, match=r"'acuracy'\. Did you mean 'accuracy'.*verdict.*ranks"):
        run.plot("acuracy", resamples=100)


@pytest.mark.parametrize("name", ["verdict", "effects", "accuracy", "drops", "classes"])
def test_a_shorter_drawing_looks_the_same(run: Results, name: str) -> None:
    drawing = svg(run.plot(name, resamples=100))
    shown = base64.b64decode(as_picture(drawing).partition(",")[2]).decode()
    assert len(shown) < 0.9 * len(drawing) and "aria-" not in shown
    before, after = (np.asarray(Image.open(io.BytesIO(png(text))).convert("RGB"), int) for text in (drawing, shown))
    # Hundredths of a pixel are cut, which moves some edges.
    assert before.shape == after.shape and (np.abs(before - after).max(axis=2) > 24).mean() < 2e-3


def test_a_run_without_drops_says_so(tmp_path: Path) -> None:
    alone = Results(make_run(tmp_path / "run", conditions=["original"]))
    for name in ("drops", "effects"):
        with pytest.raises(UserError, match=f"no chart of {name}"):
            alone.plot(name, resamples=100)


def test_frames_print_as_the_report_does_and_stay_frames(run: Results) -> None:
    drops, verdicts = run.drops(resamples=100), run.verdicts(resamples=100)
    assert isinstance(drops, pd.DataFrame) and type(drops[drops["n"] > 0]) is pd.DataFrame
    assert type(drops.merge(drops[["model", "n"]], on="model")) is pd.DataFrame
    assert repr(drops).splitlines()[0].split()[:3] == ["Condition", "Model", "Lost"]
    assert repr(drops).splitlines()[-1].startswith("[12 rows × 14 columns")
    assert max(map(len, repr(verdicts).splitlines())) <= 132 and len(repr(verdicts).splitlines()) == 4
    text = verdicts._repr_html_()
    assert "&lt;b&gt;" in text and "<b>" not in text and text.count("<tr>") == 3
    pd.testing.assert_frame_equal(pd.DataFrame(pickle.loads(pickle.dumps(drops))), pd.DataFrame(drops))
    assert repr(drops.iloc[:0]) and repr(run.drops(resamples=100).iloc[0])


def test_severities_are_conditions_by_the_names_that_are_typed(tmp_path: Path) -> None:
    run = holdfast.evaluate(
        "diorama:test?n=12&size=64", models="embedded:resnet_rho0", scenarios="original,pixelate@1,pixelate@5,grey",
        out=tmp_path / "run", quiet=True,
    )  # fmt: skip
    rows = run.rows()
    assert rows.groupby("condition", observed=True).size().to_dict() == dict.fromkeys(
        ("original", "pixelate@1", "pixelate@5", "grey"), 12
    )
    assert "pixelate@5" in repr(rows) and "severity" not in repr(rows) and max(map(len, repr(rows).splitlines())) <= 132
    assert repr(run.rows(["condition", "seed"])).splitlines()[0].split() == ["Condition", "seed"]
    assert set(run.accuracy()["condition"]) == set(rows["condition"])
    assert rows.num_rows == 48 and rows.to_pylist()[0]["donor_id"] is None
    assert type(rows.to_pandas()) is pd.DataFrame
    report_table = pd.read_csv(run.report(resamples=100).parent / "tables" / "accuracy_by_scenario.csv")
    assert set(report_table["condition"]) == set(rows["condition"])


def test_verdicts_are_about_one_label_space(run: Results) -> None:
    full, restricted = (run.verdicts(outcome=outcome, resamples=100) for outcome in ("full", "restricted"))
    assert set(full["space"]) == {"full"} and set(restricted["space"]) == {"restricted"}
    assert "background_effect" in full and not {"capture", "only_background", "object_effect_low"} & set(full)
    assert {"capture", "only_background", "object_effect_low"} <= set(restricted)


def test_objects_print_what_a_reader_wants(tmp_path: Path) -> None:
    run = Results(make_run(tmp_path / "run"))
    lines = ["model on images:", "Undecided."]
    check = Check(run, tmp_path / "index.html", {"n": 1}, None, None, None, lines)
    assert repr(check).splitlines() == [*lines, str(tmp_path / "index.html")]
    assert "Scores of the models" in check._repr_html_()
    assert repr(Collection("pets", ("cat",), ())) == "Collection('pets', 0 samples, 1 classes)"
    assert repr(LabelSpace(tuple("abcd"))) == "LabelSpace(4 outputs: 'a', 'b', 'c' …)"
    verdict = compare(run, run, old_model="timm:first", new_model="timm:second")
    text = repr(verdict)
    assert verdict.sentence in text and len(text.splitlines()) >= 3 + len(verdict.conditions)


@pytest.mark.filterwarnings("ignore:constant shows no weights")
def test_a_model_with_one_answer_is_marked_wherever_its_score_stands(tmp_path: Path) -> None:
    names = holdfast.load_classifier("embedded:vit_rho95").labels.names

    def constant(images: Any) -> Any:
        return np.tile(np.eye(len(names), dtype=np.float32)[2], (len(images), 1))

    run = holdfast.evaluate(
        "diorama:test?n=24", models={"constant": constant}, class_names=names, out=tmp_path / "run",
        scenarios=["original", "random_background"], quiet=True,
    )  # fmt: skip
    assert f"Take care: constant answers {names[2]} to 100 % of the images" in repr(run.scores())
    page = run.report(resamples=50).read_text()
    assert "says nothing: guesses and constant answers score high" in page and "check the names of its outputs" in page
    assert f"the new model (constant: answers {names[2]} to 24 of 24 unchanged" in repr(holdfast.compare(run, run))


def test_a_drawn_chart_keeps_the_digits_of_its_texts() -> None:
    """Only coordinates are cut to hundredths of a pixel; labels, legends, titles and opacities are not coordinates."""
    values = [
        {"x": "0.00392", "y": 0.1234567, "which": 'a d="0.00784" >'},
        {"x": "0.00784", "y": 0.7654321, "which": "translate(0.00196)"},
    ]
    mark = {"type": "point", "opacity": 0.00512}
    encoding = {"x": {"field": "x"}, "y": {"field": "y", "type": "quantitative", "title": "1.2345"}}
    chart = {"data": {"values": values}, "mark": mark, "encoding": encoding | {"color": {"field": "which"}}}
    drawing = svg(chart)
    shown = base64.b64decode(as_picture(drawing).partition(",")[2]).decode()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawing)
    assert {"0.00392", "0.00784", "1.2345", "translate(0.00196)"} <= set(texts)
    assert re.findall(r"<text[^>]*>([^<]*)</text>", shown) == texts
    assert shown.count('opacity="0.00512"') == drawing.count('opacity="0.00512"') > 0
    assert re.search(r"translate\([^)]*\.\d{3}", drawing) and not re.search(r'"translate\([^)]*\.\d{3}', shown)
