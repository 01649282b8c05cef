"""Questions from planning to rows: options and orders, distractors, classifiers as well, resuming, reading again."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import holdfast
from holdfast.core.errors import UserError
from holdfast.store import Run
from shapes import make_photos

Table = Callable[..., list[dict[str, object]]]

TALKERS = '''
import numpy as np

def options(question):
    return [one.strip(" .") for one in question.split("list")[-1].partition(":")[2].split(",")]

def first(images, questions):
    return [options(one)[0] for one in questions]

class Seeing:
    """Knows the class by its colour."""
    fingerprint = "seeing 1"
    calls = 0
    def answer(self, images, questions):
        Seeing.calls += len(images)
        strong = [[((i[..., c] > 180) & (np.delete(i, c, 2).max(2) < 90)).mean() for c in (2, 0, 1)] for i in images]
        return ["It is a " + ("cross", "disc", "square")[int(np.argmax(one))] + "." for one in strong]
seeing = Seeing()

def fails(images, questions):
    if len(images) > 1 or "square, disc" in questions[0] or "disc, square" in questions[0]:
        raise RuntimeError("a nerve is torn, or so")
    return ["disc"] * len(images)

def rounds(images, questions):
    return ["a round thing"] * len(images)

class Grey:
    labels = ("cross", "disc", "square", "other")
    def predict(self, images):
        return np.tile(np.array([0.1, 0.2, 0.05, 0.65], np.float32), (len(images), 1))
grey = Grey()
'''


@pytest.fixture
def talkers(toy_models: str, tmp_path: Path) -> str:
    (tmp_path / "modules" / "ask_talkers.py").write_text(TALKERS)
    return "vlm+python:ask_talkers"


def rows_of(path: Path, **wanted: str) -> list[dict]:
    told = {one["row_id"]: one for one in Run(path).details("answers").rows().to_pylist()}
    rows = [row | told.get(row["row_id"], {}) for row in Run.open(path).rows().to_pylist()]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_vlms_and_classifiers_side_by_side(photos: Path, toy_models: str, talkers: str, tmp_path: Path) -> None:
    models = [f"{talkers}:first", f"{talkers}:seeing", f"{toy_models}:colour", "python:ask_talkers:grey"]
    out = tmp_path / "run"
    results = holdfast.ask(photos, models=models, out=out, distractor=f"{toy_models}:second", letters=False)
    rows = rows_of(out)
    assert len(rows) == 12 * 4 * 2
    assert {row["task"] for row in rows} == {"question"}
    assert {row["status"] for row in rows} == {"ok"}
    for row in rows:
        assert row["correct"] == row["strict"] and row["correct_restricted"] == row["lenient"]
        assert row["options"][row["truth_place"] - 1] == row["label"]
        if row["protocol"] == "full_list":
            assert sorted(row["options"]) == ["cross", "disc", "square"] and row["distractor"] is None
        else:
            place = {"two_way:truth_first": 1, "two_way:truth_second": 2}[row["protocol"]]
            assert row["truth_place"] == place and len(row["options"]) == 2
            assert row["distractor"] in row["options"] and row["distractor"] != row["label"]
    found = results.questions().set_index(["model", "kind"])
    assert (
        found.loc[f"{talkers}:first", "two_way"]["strict"],
        found.loc[f"{talkers}:first", "two_way"]["position_bias"],
    ) == (0.5, 1)
    seeing = found.loc[f"{talkers}:seeing", "full_list"]
    assert (seeing["strict"], seeing["lenient"], seeing["unmatched"]) == (0, 1, 0)  # a sentence is not an option
    colour = [found.loc[f"{toy_models}:colour", kind]["strict"] for kind in ("two_way", "full_list")]
    assert colour == [1, 1]
    # one that says "other" over all outputs: full argmax is wrong always, of two options the better one counts
    assert found.loc["python:ask_talkers:grey", "full_list"]["strict"] == 0
    assert found.loc["python:ask_talkers:grey", "full_list"]["lenient"] == pytest.approx(1 / 3)
    for row in rows_of(out, model="python:ask_talkers:grey"):
        if row["protocol"] != "full_list":
            best = "disc" if "disc" in row["options"] else "cross"
            assert row["prediction"] == best and row["correct"] == (best == row["label"])
            both = {"cross": 0.1, "disc": 0.2, "square": 0.05}
            assert row["confidence"] == pytest.approx(both[best] / sum(both[one] for one in row["options"]))
    orders = {row["protocol"] for row in rows} - {"full_list"}
    assert orders == {"two_way:truth_first", "two_way:truth_second"}


def test_everybody_gets_the_same_question_and_the_distractor_is_the_best_wrong_class(
    photos: Path, toy_models: str, talkers: str, tmp_path: Path
) -> None:
    from holdfast.data import load_collection
    from holdfast.models import load_classifier

    out = tmp_path / "run"
    holdfast.ask(
        photos, models=[f"{talkers}:first", f"{toy_models}:colour"], out=out, distractor=f"{toy_models}:second"
    )
    asked = {(row["sample_id"], row["protocol"], tuple(row["options"])) for row in rows_of(out)}
    assert len(asked) == 24
    model = load_classifier(f"{toy_models}:second")
    classes = load_collection(str(photos)).classes
    wrong = {row["sample_id"]: row["distractor"] for row in rows_of(out) if row["distractor"]}
    for sample in load_collection(str(photos)).samples:
        scores = model.predict([sample.image.load()])[0].copy()
        scores[classes.index(sample.label)] = -1
        assert wrong[sample.sample_id] == classes[int(scores.argmax())]


def test_orders_follow_the_seed_and_not_the_others(photos: Path, toy_models: str, talkers: str, tmp_path: Path) -> None:
    def orders(name: str, **options: object) -> dict[str, tuple]:
        out = tmp_path / name
        holdfast.ask(photos, models=f"{talkers}:first", out=out, distractor=f"{toy_models}:colour", **options)
        return {(row["sample_id"], row["protocol"]): tuple(row["options"]) for row in rows_of(out)}

    whole = orders("whole")
    few = orders("few", limit=6, batch_size=1)
    assert few.items() <= whole.items() and len(few) == 12
    assert orders("other", seed=1) != whole
    both = orders("both", both_orders=True)
    assert whole.items() <= both.items() and len(both) == 36
    lists = {options for (_, protocol), options in whole.items() if protocol == "full_list"}
    assert len(lists) > 2


def test_letters_and_templates(photos: Path, talkers: str, tmp_path: Path) -> None:
    (tmp_path / "modules" / "ask_letters.py").write_text(
        "asked = []\ndef b(images, questions):\n    asked.extend(questions)\n    return ['B'] * len(images)\n"
    )
    out = tmp_path / "run"
    holdfast.ask(
        photos,
        models="vlm+python:ask_letters:b",
        questions="full_list",
        out=out,
        letters=True,
        template="Pick: {options}?",
    )
    import ask_letters  # type: ignore[import-not-found]

    for row in rows_of(out):
        assert row["prediction"] == row["options"][1]
        spelled = ", ".join(f"{letter}. {name}" for letter, name in zip("ABC", row["options"], strict=True))
        assert f"Pick: {spelled}?" in ask_letters.asked


def test_a_model_that_fails_is_a_row_and_an_unreadable_image_too(
    photos: Path, toy_models: str, talkers: str, tmp_path: Path
) -> None:
    (photos / "images" / "disc" / "0.png").write_bytes(b"no image")
    out = tmp_path / "run"
    results = holdfast.ask(
        photos, models=[f"{talkers}:fails", f"{toy_models}:colour"], out=out, distractor=f"{toy_models}:second"
    )
    broken = rows_of(out, sample_id="disc/0")
    assert len(broken) == 4 and {row["status"] for row in broken} == {"error"}
    mine = [row for row in rows_of(out, model=f"{talkers}:fails") if row["sample_id"] != "disc/0"]
    hurt = [row for row in mine if row["status"] == "error"]
    assert hurt and len(hurt) < len(mine)
    assert all("a nerve is torn, or so" in str(row["error"]) for row in hurt)
    found = results.questions()
    assert (found["n"] + found["errors"]).eq(12).all()


def test_going_on_adds_what_is_missing_and_replaces_what_changed(
    photos: Path, toy_models: str, talkers: str, tmp_path: Path, table_of: Table
) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    models = [f"{talkers}:first", f"{toy_models}:colour"]
    options = {"distractor": f"{toy_models}:second"}
    holdfast.ask(photos, models=models[:1], out=out, questions="full_list", **options)
    holdfast.ask(photos, models=models, out=out, **options)
    holdfast.ask(photos, models=models, out=whole, batch_size=3, **options)
    assert table_of(Run.open(out)) == table_of(Run.open(whole))
    shutil.copy(photos / "images" / "disc" / "0.png", photos / "images" / "disc" / "1.png")
    holdfast.ask(photos, models=models, out=out, **options)
    rows = rows_of(out)
    assert len(rows) == 48 and len({row["row_id"] for row in rows}) == 48
    assert {row["row_id"] for row in rows} == set(Run(out).details("answers").stored_ids())
    with pytest.raises(UserError, match="whose template is"):
        holdfast.ask(photos, models=models, out=out, template="{options}?", **options)


def test_new_synonyms_read_old_answers_again_without_asking(photos: Path, talkers: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    holdfast.ask(photos, models=f"{talkers}:rounds", questions="full_list", out=out)
    assert all(row["unmatched"] and row["prediction_restricted"] is None for row in rows_of(out))
    synonyms = tmp_path / "words.toml"
    synonyms.write_text('disc = ["round thing"]\n')
    source = (tmp_path / "modules" / "ask_talkers.py").read_text()
    before = {row["row_id"] for row in rows_of(out)}
    assert "round thing" in source
    results = holdfast.ask(photos, models=f"{talkers}:rounds", questions="full_list", out=out, synonyms=synonyms)
    rows = rows_of(out)
    assert {row["row_id"] for row in rows} == before
    assert all(row["matched"] == "disc" and row["lenient"] == (row["label"] == "disc") for row in rows)
    assert results.questions()["lenient"].iloc[0] == pytest.approx(1 / 3)
    again = holdfast.ask(photos, models=f"{talkers}:rounds", questions="full_list", out=out)
    assert again.questions()["unmatched"].iloc[0] == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"models": ""}, "no model was named"),
        ({"questions": "three_way"}, "did you mean two_way"),
        ({"questions": ""}, "no kind of question"),
        ({"template": "What is it?"}, "where the options go"),
        ({"distractor": ""}, "need distractor"),
        ({"distractor": "questions"}, "has no questions"),
        ({"distractor": "python:toy_models:colour"}, "take another distractor"),
        ({"distractor": "python:toy_models:colour?name=other"}, "take another distractor"),
        ({"distractor": "vlm+python:ask_talkers:first"}, "answers in words"),
        (
            {"models": "vlm+python:ask_talkers:first,vlm+python:ask_talkers:first?name=vlm+python:ask_talkers:first"},
            "share the name",
        ),
        ({"models": "vlm+pyhton:talkers:first"}, "did you mean vlm\\+python"),
    ],
)
def test_mistakes(photos: Path, talkers: str, tmp_path: Path, options: dict[str, str], sentence: str) -> None:
    given = {"models": f"{talkers}:first,python:toy_models:colour", "distractor": "python:toy_models:second"} | options
    with pytest.raises(UserError, match=sentence):
        holdfast.ask(photos, out=tmp_path / "run", **given)
    assert not (tmp_path / "run" / "spec.json").exists()


@pytest.fixture
def imagenet_d(photos: Path, tmp_path: Path) -> Path:
    """The images in ImageNet-D's layout, with question files; the first names the truth as its best class."""
    root = tmp_path / "hard"
    for kind, shapes in (("background", ("disc", "square")), ("material", ("cross",))):
        lines = [["image_dir", "gt_category", "top1_pred_cate", "top2_pred_cate"]]
        for shape in shapes:
            shutil.copytree(photos / "images" / shape, root / kind / shape)
            other = "cross" if shape != "cross" else "disc"
            lines += [
                [f"/x/{kind}/{shape}/0.png", shape, shape, other],
                [f"/x/{kind}/{shape}/1.png", shape, other, shape],
            ]
        (root / "questions").mkdir(exist_ok=True)
        with (root / "questions" / f"{kind}.csv").open("w", newline="") as file:
            csv.writer(file, delimiter="\t").writerows(lines)
    return root


def test_imagenet_ds_own_questions(imagenet_d: Path, toy_models: str, talkers: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    data = f"imagenet-d:{imagenet_d}"
    results = holdfast.ask(data, models=[f"{talkers}:first", f"{toy_models}:colour"], out=out, distractor="questions",
                           questions="two_way")  # fmt: skip
    rows = rows_of(out)
    asked = [row for row in rows if row["status"] == "ok"]
    assert len(rows) == 24 and len(asked) == 12
    assert all(row["distractor"] == ("disc" if row["label"] == "cross" else "cross") for row in asked)
    assert {row["condition"] for row in asked} == {"background", "material"}
    assert {row["error"] for row in rows if row["status"] != "ok"} == {
        "the question files name no wrong class of the dataset for this image"
    }
    assert set(results.questions(by=["condition"])["condition"]) == {"background", "material"}


def test_who_mined_a_hard_set_names_no_wrong_options(
    imagenet_d: Path, toy_models: str, talkers: str, tmp_path: Path
) -> None:
    record = imagenet_d / "mining" / "run" / "spec.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"verb": "evaluate", "models": [f"{toy_models}:colour?name=mine", "timm:resnet50"]}))
    options = {"models": f"{talkers}:first", "out": tmp_path / "run", "questions": "two_way"}
    with pytest.raises(UserError, match="took part in choosing these images"):
        holdfast.ask(f"imagenet-d:{imagenet_d}", distractor=f"{toy_models}:colour", **options)
    holdfast.ask(f"imagenet-d:{imagenet_d}", distractor=f"{toy_models}:second", **options)


def test_aliases_count_once_when_imagenet_d_is_evaluated(imagenet_d: Path, talkers: str, tmp_path: Path) -> None:
    """Full argmax over all outputs, any alias right; restricted among the dataset's; no class twice in the top five."""
    (tmp_path / "modules" / "ask_aliases.py").write_text(
        "import numpy as np\n"
        "class Model:\n"
        "    labels = ('ring', 'plate', 'box', 'plus', 'moon', 'sun', 'star')\n"
        "    def predict(self, images):\n"
        "        return np.tile(np.array([.25, .2, .15, .05, .3, .03, .02], np.float32), (len(images), 1))\n"
        "model = Model()\n"
    )
    labels = tmp_path / "labels.csv"
    labels.write_text("class,label\ndisc,ring\ndisc,plate\nsquare,box\ncross,plus\n")
    run = holdfast.evaluate(
        f"imagenet-d:{imagenet_d}", models=["python:ask_aliases:model"], labels=labels, out=tmp_path / "run",
        scenarios="original",
    )  # fmt: skip
    for row in run.rows().to_pylist():
        assert row["topk"] == ["moon", "disc", "square", "cross", "sun"]
        assert row["prediction"] == "moon" and not row["correct"]
        assert row["prediction_restricted"] == "disc" and row["correct_restricted"] == (row["label"] == "disc")
        assert row["probability_of_label"] == pytest.approx({"disc": 0.45, "square": 0.15, "cross": 0.05}[row["label"]])
    assert np.mean([row["correct_restricted"] for row in run.rows().to_pylist()]) == pytest.approx(1 / 3)


def test_asking_stops_when_it_is_known_who_does_better_than_guessing(
    toy_models: str, talkers: str, tmp_path: Path
) -> None:
    many = make_photos(tmp_path / "many", 40)
    ask = partial(holdfast.ask, many, distractor=f"{toy_models}:second", questions=("two_way",), stop="when-decided")
    seeing = ask(models=[f"{talkers}:seeing"], out=tmp_path / "seeing")
    asked = len(rows_of(tmp_path / "seeing"))
    assert asked == 24  # all right: one round is enough
    table = seeing.questions()
    assert table["lenient"].iloc[0] == 1 and 0.55 < table["lenient_low"].iloc[0] < 0.95
    # Always the first: neither better nor worse than guessing by the margin, and all images are asked.
    first = ask(models=[f"{talkers}:first"], out=tmp_path / "first")
    assert len(rows_of(tmp_path / "first")) == 120
    row = first.questions().iloc[0]
    assert row["lenient_low"] < 0.5 < row["lenient_high"]
    page = seeing.report().read_text(encoding="utf8")
    assert "intervals hold whenever one stops" in page
    again = ask(models=[f"{talkers}:seeing"], out=tmp_path / "seeing")
    assert len(rows_of(tmp_path / "seeing")) == asked and again.rounds == seeing.rounds


def test_the_same_questions_are_asked_under_conditions(
    photos: Path, toy_models: str, talkers: str, tmp_path: Path
) -> None:
    asked = {"models": [f"{talkers}:seeing"], "distractor": f"{toy_models}:second", "out": tmp_path / "run"}
    holdfast.ask(photos, **asked)
    before = rows_of(tmp_path / "run")
    results = holdfast.ask(photos, **asked, scenarios="original,silhouette,random_background")
    rows = rows_of(tmp_path / "run")
    assert {row["row_id"] for row in before} < {row["row_id"] for row in rows}  # the first answers stay
    by_question: dict[tuple, set] = {}
    for row in rows:
        assert (row["donor_id"] is not None) == (row["condition"] == "random_background" and row["status"] == "ok")
        if row["status"] == "ok":
            by_question.setdefault((row["sample_id"], row["protocol"]), set()).add(tuple(row["options"]))
    assert all(len(options) == 1 for options in by_question.values())
    figures = results.questions(by=["condition"]).set_index(["condition", "kind"])["lenient"]
    costs = results.questions(drops=True).set_index(["condition", "kind"])
    kept = costs.loc["random_background", "full_list"]
    assert (
        figures["original", "full_list"] == 1
        and kept["drop"] == 1 - kept["lenient"]
        and kept["both"] == kept["lenient"]
    )
    dark = costs.loc["silhouette", "full_list"]  # without colours it says cross, whatever it sees
    assert dark["drop"] == pytest.approx(2 / 3) and dark["both"] == pytest.approx(1 / 3) and dark["drop_low"] > 0.1
    whole = results.questions().set_index("kind").loc["full_list"]
    assert whole["n"] == 12 and whole["pairs_right"] == 1  # of the images as they are
    assert (
        results.questions(by=["condition"])
        .set_index(["condition", "kind"])
        .loc["silhouette", "full_list"]["pairs_right"]
        == 0
    )
    page = results.report(out=tmp_path / "page.html")
    assert "Right on both" in Path(page).read_text() and "under silhouette" in Path(page).read_text()
    with pytest.raises(UserError, match="ask does not make fgsm"):
        holdfast.ask(photos, **asked, scenarios="attacks")
