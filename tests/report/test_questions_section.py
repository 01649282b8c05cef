"""The section about questions: what it says, that answers are text and never code, and its place next to other rows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import holdfast
from holdfast.core.errors import UserError
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.stats.core.reduce import reduce

TALKERS = """
NASTY = "<script>alert('no')</script><img src=x onerror=alert(1)>"

def options(question):
    return [one.strip(" .") for one in question.split("list:")[-1].split(",")]

def first(images, questions):
    return [options(one)[0] for one in questions]

def odd(images, questions):
    said = ["I'm sorry, I cannot help with that.", NASTY, "", "=HYPERLINK(1)"]
    return [said[int(image.sum()) % 4] for image in images]

def broken(images, questions):
    raise RuntimeError("no <b>luck</b>")
"""


@pytest.fixture
def run(photos: Path, toy_models: str, tmp_path: Path) -> holdfast.Results:
    (tmp_path / "modules" / "question_talkers.py").write_text(TALKERS)
    models = [
        "vlm+python:question_talkers:first",
        "vlm+python:question_talkers:odd",
        "vlm+python:question_talkers:broken",
        f"{toy_models}:colour",
    ]
    with pytest.raises(UserError, match="broken gave no answer at all"):  # its rows are stored, with the others'
        holdfast.ask(photos, models=models, out=tmp_path / "run", distractor=f"{toy_models}:second")
    return holdfast.open_run(tmp_path / "run")


def test_the_page_of_a_run_of_questions(run: holdfast.Results) -> None:
    page = run.report().read_text()
    title = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    assert title and "How often do the models answer right?" in title.group(1)
    found = run.questions().set_index(["model", "kind"])
    body = page[page.index("<body") :]
    assert 'id="questions"' in body and 'id="errors"' not in body
    assert found.loc[("vlm+python:question_talkers:first", "two_way"), "strict"] == 0.5
    assert "prefers options in one place (two-way): it is right in 100.0 %" in body
    assert "A guess is right in 50.0 %" in body and "A guess is right in 33.3 %" in body
    assert "chosen by python:toy_models:second" in body
    assert "24 of 96 questions have no answer" in body
    tables = run.path / "report" / "tables"
    for name in ("questions", "question_positions", "unmatched_answers", "question_errors"):
        assert (tables / f"{name}.csv").is_file() and (tables / f"{name}.tex").is_file()
    for name in ("question_accuracy", "question_positions"):
        assert (run.path / "report" / "figures" / f"{name}.svg").is_file()
    assert body.count("data:image/jpeg;base64,") >= 3  # the images of the gallery
    # Answers are text and never code.
    assert "&lt;script&gt;alert(" in body
    assert "<script>alert(" not in page and "<img src=x" not in page
    assert "no &lt;b&gt;luck" in body and "<b>luck" not in page
    text = (run.path / "report" / "tables" / "unmatched_answers.csv").read_text()
    assert "'=HYPERLINK(1)" in text  # no spreadsheet takes it for a formula
    assert "(nothing)" in body and "refusal" in body


def test_the_page_says_how_orders_were_chosen(run: holdfast.Results, photos: Path, toy_models: str) -> None:
    options = {"models": f"{toy_models}:colour", "questions": "two_way", "distractor": f"{toy_models}:second"}
    both = holdfast.ask(photos, out=run.path.parent / "both", both_orders=True, **options)
    assert "comes first is drawn by seed" in run.report().read_text()
    page = both.report().read_text()
    assert "each is asked both ways round" in page and "drawn by seed" not in page


def test_questions_stand_beside_conditions(
    run: holdfast.Results, photos: Path, toy_models: str, tmp_path: Path
) -> None:
    still = holdfast.evaluate(
        photos, models=[f"{toy_models}:colour"], out=tmp_path / "still", scenarios="original,grey"
    )
    page = holdfast.report([still, run], tmp_path / "both").read_text()
    for section in ("verdict", "scenarios", "questions", "errors"):
        assert f'id="{section}"' in page
    assert "Does the model rely on the background?" in page
    # Questions do not leak into the accuracy of conditions.
    assert still.counts.models == holdfast.open_run(still.path).counts.models
    assert reduce(run.run.predictions.dataset()).models == []


def test_a_run_without_a_single_answer(photos: Path, toy_models: str, tmp_path: Path) -> None:
    (tmp_path / "modules" / "question_talkers.py").write_text(TALKERS)
    with pytest.raises(UserError, match="gave no answer at all"):
        holdfast.ask(photos, models="vlm+python:question_talkers:broken", out=tmp_path / "mute", questions="full_list")
    page = holdfast.open_run(tmp_path / "mute").report().read_text()
    assert "No question was answered" in page and "12 of 12 questions have no answer" in page


def test_pictures_that_are_gone_leave_the_answers(run: holdfast.Results, photos: Path) -> None:
    shutil.rmtree(photos / "images")
    page = run.report().read_text()
    assert "data:image/jpeg" not in page and "Questions and answers" in page


def test_images_that_share_a_source_have_their_own_pictures(photos: Path, toy_models: str, tmp_path: Path) -> None:
    (tmp_path / "modules" / "question_talkers.py").write_text(TALKERS)
    names = sorted(path.relative_to(photos).as_posix() for path in (photos / "images").rglob("*.png"))
    rows = [f"{name},{name.split('/')[1]},{name},{name.split('/')[1]}-prompt" for name in names]
    (photos / "manifest.csv").write_text("\n".join(["path,label,sample_id,source_id", *rows]) + "\n")
    data = photos / "manifest.csv"
    run = holdfast.ask(
        data, models="vlm+python:question_talkers:odd", out=tmp_path / "shared", questions="full_list", limit=0
    )
    seen = re.findall(r"data:image/jpeg;base64,([^\"]+)", run.report().read_text())
    assert len(set(seen)) == 6 and len(seen) == 6 + 3  # three are on the first screen, too
    still = holdfast.evaluate(data, models=f"{toy_models}:colour", out=tmp_path / "still", scenarios="original,grey")
    made = thumbnails(still.run, {"disc-prompt"})
    assert {sample for sample, _ in made} == {name for name in names if "disc" in name}


def test_answers_are_shown_by_attributes_the_worst_group_first(run: holdfast.Results, tmp_path: Path) -> None:
    rows = run.run.samples().to_pylist()
    cameras = {row["sample_id"]: "AB"[place % 2] for place, row in enumerate(rows)}
    lines = ["id,camera", *(f"{name},{value}" for name, value in cameras.items())]
    (tmp_path / "cameras.csv").write_text("\n".join(lines))
    page = run.report(by=["camera"], attributes=tmp_path / "cameras.csv").read_text()
    assert "Answers by camera, the worst first" in page
    table = pd.read_csv(run.path / "report" / "tables" / "questions_by_camera.csv")
    name = "vlm+python:question_talkers:first"
    own = table[(table["model"] == name) & (table["kind"] == "full_list")].set_index("value")
    answers = run.run.details("answers").rows().to_pandas().set_index("row_id")
    asked = run.rows().to_pandas()
    asked = asked[(asked["model"] == name) & asked["protocol"].str.startswith("full_list")]
    right = answers.loc[asked["row_id"], "strict"].to_numpy(float)
    for camera in "AB":
        chosen = (asked["sample_id"].map(cameras) == camera).to_numpy()
        assert own.loc[camera, "strict"] == pytest.approx(right[chosen].mean(), abs=1e-6)
