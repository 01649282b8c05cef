"""``holdfast check``: known answers, doubtful masks, continuing, and what a new user gets wrong."""

from __future__ import annotations

import csv
import html
import importlib.metadata
import shutil
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import holdfast
from commands import run
from holdfast.annotate.u2netp import DISTRIBUTION
from holdfast.checking import DOUBTFUL, _about_masks, _sure_verdict, check
from holdfast.core.errors import UserError
from holdfast.pipeline.mask import MaskCounts
from holdfast.stats.effects.verdict_words import more_photos, photo_advice

READERS = """
import numpy as np

def _answers(colours):
    scores = np.stack([c / (c.sum() + 1) for c in colours]).astype(np.float32) ** 4 + 1e-6
    return scores / scores.sum(1, keepdims=True)

def object_reader(images):
    # the most colourful pixels: the square
    flat = [i.reshape(-1, 3).astype(int) for i in images]
    return _answers([i[np.argsort(np.ptp(i, 1))[-40:]].mean(0) for i in flat])

def background_reader(images):
    return _answers([np.concatenate([i[0], i[-1], i[:, 0], i[:, -1]]).mean(0) for i in images])

def scores_only(images):
    return background_reader(images)

object_reader.labels = background_reader.labels = ("red", "green", "blue")
"""


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "readers"
    folder.mkdir()
    (folder / "readers.py").write_text(READERS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("readers", None)
    return "python:readers"


def make(folder: Path, count: int, *, masks: bool = True) -> Path:
    """Squares in the strong colour of their class before a pale, noisy ground with a tint of it."""
    for place, label in enumerate(("red", "green", "blue")):
        for index in range(count):
            rng = np.random.default_rng([place, index])
            image = rng.integers(120, 140, (48, 64, 3), np.uint8)
            image[..., place] += 40
            mask = np.zeros((48, 64), np.uint8)
            x, y = rng.integers(8, 30), rng.integers(6, 18)
            mask[y : y + 22, x : x + 22] = 255
            strong = np.full(3, 20, np.uint8)
            strong[place] = 235
            image[mask > 0] = strong
            for tree, picture in (("images", image[..., ::-1]), ("masks", mask)):
                if tree == "images" or masks:
                    path = folder / tree / label / f"{index}.png"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    cv2.imwrite(str(path), picture)
    return folder


def test_known_answers_and_no_word_of_masks_where_the_dataset_has_them(readers: str, tmp_path: Path) -> None:
    photos = make(tmp_path / "squares", 30)
    said: list[str] = []
    seen = check(f"{readers}:object_reader", str(photos), on_look=said.append)
    assert said[0].startswith("Unchanged images: accuracy 100.0 % ") and " conditions take about " in said[0]
    assert said[1].startswith(f"First verdict, from 3 conditions: {seen.verdict['headline']}. ") and len(said) == 2
    check(f"{readers}:object_reader", str(photos), on_look=said.append)
    assert len(said) == 2  # nothing is asked again, so nothing comes first
    leaning = check(f"{readers}:background_reader", str(photos))
    assert (seen.verdict["verdict"], leaning.verdict["verdict"]) == ("foreground", "background")
    assert seen.masks is None and not any(line.startswith(("Masks", "Backgrounds")) for line in seen.lines)
    assert seen.more_photos is None and not any("More images" in line for line in seen.lines)
    page = seen.page.read_text(encoding="utf8")
    steps = [line.removeprefix("Next: ").split(" holdfast ")[0] for line in seen.lines if line.startswith("Next: ")]
    assert steps and all(step in page for step in steps)  # the page has the terminal's next steps
    assert leaning.lines[1] == "Relies on the background, and does not see the object."
    assert seen.page == Path("checks/squares/python-readers-object_reader/report/index.html") and seen.page.is_file()
    assert not Path("checks/squares/masks").exists()
    rows = seen.results.rows(["status", "sample_id"]).to_pandas()
    assert len(rows) == 90 * 18 and (rows["status"] == "ok").all()


def test_the_worst_background_is_asked_for_with_one_option(readers: str, tmp_path: Path) -> None:
    photos, model = str(make(tmp_path / "squares", 5)), f"{readers}:background_reader"
    with pytest.raises(UserError, match="no scenario is called 'worst'"):
        holdfast.check(model, photos, also="worst")
    with pytest.raises(UserError, match=r"also= is for a check of a classifier that asks everything"):
        holdfast.check(model, photos, also="worst_background", budget="100")
    seen = check(model, photos, also="worst_background?count=3")
    worst = seen.results.measure("worst-background")
    assert worst["backgrounds"].tolist() == [1, 2, 3] and worst["effect"].tolist() == pytest.approx([1, 1, 1])
    assert worst["other"].max() == pytest.approx(0) and worst["same"].min() == pytest.approx(1)
    assert 'id="worst_background"' in seen.page.read_text(encoding="utf8")


def test_asking_for_less_removes_nothing_and_answers_for_less(readers: str, tmp_path: Path) -> None:
    photos = str(make(tmp_path / "squares", 4))
    whole = check(f"{readers}:background_reader", photos)
    key, columns = ["sample_id", "condition"], ["sample_id", "condition", "row_id"]
    stored = whole.results.run.rows(columns).to_pandas().astype(str).set_index(key).sort_index()
    fewer = check(f"{readers}:background_reader", photos, limit=6)
    shown = set(fewer.results.run.rows(["sample_id"])["sample_id"].to_pylist())
    assert len(shown) == 6 and fewer.results.run.predictions.count() == 6 * 18
    assert "6 images" in fewer.page.read_text(encoding="utf8")
    kept = holdfast.open_run(fewer.results.path).run.rows(columns).to_pandas().astype(str).set_index(key).sort_index()
    assert list(kept.index) == list(stored.index) and len(kept) == 12 * 18
    # Six images lend each other backgrounds, as in a check of their own; no row of another image is touched.
    others = ~stored.index.get_level_values("sample_id").isin(shown)
    assert list(kept["row_id"][others]) == list(stored["row_id"][others])
    assert check(f"{readers}:background_reader", photos).lines == whole.lines


def test_the_command_makes_masks_and_goes_on(readers: str, tmp_path: Path) -> None:
    photos = make(tmp_path / "squares", 2, masks=False)
    first = run("check", f"{readers}:object_reader", photos, "-q", "--out", "answer")
    page = tmp_path / "answer" / "python-readers-object_reader" / "report" / "index.html"
    assert first.stdout.splitlines()[-1] == str(page.relative_to(tmp_path)) and page.is_file()
    assert "6 masks of 6 made by u2netp" in first.stdout and "Backgrounds: 6 images share " in first.stdout
    assert "6 masks of 6 made by u2netp" in page.read_text(encoding="utf8")
    assert "when only the background changes: " in first.stdout and "95 % interval" in first.stdout
    parts = {path: path.stat().st_mtime_ns for path in page.parents[1].glob("predictions/*.parquet")}
    masks = {path: path.stat().st_mtime_ns for path in (tmp_path / "answer" / "masks").rglob("*.png")}
    assert parts and len(masks) == 6
    (photos / "images" / "red" / "1.png").unlink()
    again = check(f"{readers}:object_reader", str(photos), out=tmp_path / "answer")
    assert {path: path.stat().st_mtime_ns for path in masks} == masks
    ids = set(again.results.run.rows(["sample_id"])["sample_id"].to_pylist())
    assert len(ids) == 5 and "red/1" not in ids  # an image that was taken away counts no more
    written = page.stat().st_mtime_ns
    same = check(f"{readers}:object_reader", str(photos), out=tmp_path / "answer")
    assert same.lines == again.lines and page.stat().st_mtime_ns == written  # nothing to do, so the page is kept


def take_u2netp_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave grabcut to make masks, which takes half a core-second less for each."""
    files = importlib.metadata.files

    def without_network(name: str) -> object:
        if name == DISTRIBUTION:
            raise importlib.metadata.PackageNotFoundError(name)
        return files(name)

    monkeypatch.setattr(importlib.metadata, "files", without_network)


def test_masks_that_are_there_are_kept_and_the_others_made_without_the_network(
    readers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = make(tmp_path / "squares", 4)
    for path in (photos / "masks" / "red").iterdir():
        path.unlink()
    take_u2netp_away(monkeypatch)
    found = check(f"{readers}:object_reader", str(photos))
    assert found.masks is not None and found.masks.annotator == "grabcut" and found.masks.count == 4
    with Path("checks/squares/masks/masks.csv").open() as stream:
        rows = {row["sample_id"]: row for row in csv.DictReader(stream)}
    assert {row["annotator"] for name, row in rows.items() if name.startswith("red")} == {"grabcut"}
    for name in rows.keys() - {f"red/{index}" for index in range(4)}:
        kept = cv2.imread(f"checks/squares/masks/{name}.png", cv2.IMREAD_GRAYSCALE)
        own = cv2.imread(str(photos / "masks" / f"{name}.png"), cv2.IMREAD_GRAYSCALE)
        assert np.array_equal(kept > 0, own > 0) and float(rows[name]["confidence"]) == 1
    doubtful = sum(float(row["confidence"]) < DOUBTFUL for row in rows.values())
    assert found.masks.doubtful == doubtful and len(found.masks.sure) == 12 - doubtful


def test_the_sure_verdict_leaves_out_doubtful_masks_of_lenders_too(readers: str, tmp_path: Path) -> None:
    photos = make(tmp_path / "squares", 20)
    scenarios = "original,same_class_background,random_background"
    results = holdfast.evaluate(
        photos, models=f"{readers}:background_reader", scenarios=scenarios, out=tmp_path / "run"
    )
    rows = results.rows().to_pandas()
    ids = sorted(set(rows["sample_id"]))
    sure = frozenset(name for name in ids if not name.endswith(("/0", "/5", "/9")))
    verdict = _sure_verdict(results, MaskCounts("made", 60, 0, 9, sure), "python:readers:background_reader", "full")
    assert verdict is not None
    pasted = rows[rows["condition"].isin(["same_class_background", "random_background"])]
    good = pasted[pasted["sample_id"].isin(sure) & pasted["donor_id"].isin(sure)]
    pairs = good.groupby("sample_id")["condition"].nunique()
    assert verdict["n"] == (pairs == 2).sum() and 0 < verdict["n"] < len(sure)
    assert (
        _sure_verdict(results, MaskCounts("made", 60, 0, 60, frozenset()), "python:readers:background_reader", "full")
        is None
    )


SEES = {"leans": "no", "sees": "yes", "headline": "Sees the object", "sentence": "S."}


@pytest.mark.parametrize(
    ("sure", "said"),
    [
        (SEES | {"n": 30}, "The verdict is the same on the 30 images"),
        (
            {"leans": "open", "sees": "yes", "headline": "Few", "n": 30, "sentence": "Few."},
            "say no more and no less than this: Few.",
        ),
        (
            {"leans": "yes", "sees": "yes", "headline": "Leans", "n": 30, "sentence": "S."},
            "Take care, the verdict is another on the 30 images",
        ),
        (SEES | {"n": 0}, "make masks by hand"),
        (None, "make masks by hand"),
    ],
)
def test_doubtful_masks_are_told(sure: dict[str, object] | None, said: str) -> None:
    masks = MaskCounts("u2netp", 40, 1, 9, frozenset(map(str, range(30))))
    text = _about_masks(masks, SEES, sure)
    assert said in text and "40 masks of 40 made by u2netp, 1 could not be had; 9 doubtful" in text
    none = MaskCounts("u2netp", 40, 0, 0, frozenset(map(str, range(40))))
    assert "none is doubtful" in _about_masks(none, SEES, None)


def effects(**changed: tuple[float, float, float]) -> dict[str, object]:
    """A row of ``what_it_holds``: a model that sees, with the background effect open, unless told otherwise."""
    there = (0.9, 0.8, 0.95)
    named = {"original_excess": there, "same_class_excess": there, "foreground_evidence": there, "object_effect": there}
    row: dict[str, object] = {"leans": "open", "sees": "yes", "why_leans": "interval", "why_sees": "", "n": 100}
    for name, (value, low, high) in ({"background_effect": (-0.01, -0.06, 0.06), **named} | changed).items():
        row |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return row


def test_how_many_more_photos() -> None:
    # ± 6 points with 100 images, 6 points from the margin: 100 ((1.96 + 0.8416) / 1.96 · 6 / d)², d = 6 ± 2.06
    assert more_photos(effects()) == (14, 375)
    assert "14 to 380 more like these" in photo_advice(effects())
    assert more_photos(effects(background_effect=(0.02, -0.03, 0.07))) is None  # too near the margin to say
    assert "Four times as many would halve the interval, which is 10.0 points wide" in photo_advice(
        effects(background_effect=(0.02, -0.03, 0.07))
    )
    answered = effects() | {"leans": "no", "why_leans": ""}
    assert more_photos(answered) is None and photo_advice(answered).startswith("None needed")
    for why in ("missing", "guessing", "pasting"):
        assert "would not help" in photo_advice(effects() | {"why_leans": why})


def test_what_a_new_user_gets_wrong(readers: str, tmp_path: Path) -> None:
    photos = make(tmp_path / "squares", 2)
    model = f"{readers}:object_reader"

    def told(*words: Any, **options: Any) -> str:
        with pytest.raises(UserError) as error:
            holdfast.check(*words, **options)
        return str(error.value)

    assert "are in no class folder; move them to red/<class>/" in told(model, str(photos / "images" / "red"))
    (tmp_path / "alone" / "red").mkdir(parents=True)
    (photos / "images" / "red" / "0.png").rename(tmp_path / "alone" / "red" / "0.png")
    assert "two classes or more" in told(model, str(tmp_path / "alone"))
    (tmp_path / "alone" / "green").mkdir()
    (photos / "images" / "green" / "0.png").rename(tmp_path / "alone" / "green" / "0.png")
    assert "two images or more of each class" in told(model, str(tmp_path / "alone"))
    assert "is among the images" in told(model, str(photos), out=photos / "answer")
    assert "the model comes first" in told(str(photos), model) and "the model comes first" in told(str(photos), len)
    for limit in (1, 2, 3):
        assert f"limit={limit} leaves too few images; use 6 or more" in told(model, str(photos), limit=limit)
    broken = tmp_path / "broken"
    for name in ("red/0", "red/1", "green/0", "green/1"):
        (broken / name).parent.mkdir(parents=True, exist_ok=True)
        (broken / f"{name}.png").write_text("words")
    unread = told(model, str(broken), out=tmp_path / "answer")
    assert "(green/0)" in unread and "run the same command again" in unread and "retry" not in unread
    assert "scheme:name" in told("object_reader", str(photos))
    rows = tmp_path / "labels.csv"
    for text, said in (
        ("class,label\nrad,red\n", "did you mean red?"),
        ("class,label\nred,rod\n", "not an output of the model"),
    ):
        rows.write_text(text)  # a row that matches no class, or no output
        assert said in told(model, str(photos), labels=rows, out=tmp_path / "answer")
    (photos / "images" / "red").rename(photos / "images" / "reed")
    assert "nearest: red" in told(model, str(photos), out=tmp_path / "answer")
    (photos / "images" / "reed").rename(photos / "images" / "red")
    assert "needs a labels attribute" in told(f"{readers}:scores_only", str(photos), out=tmp_path / "answer")
    assert not (tmp_path / "answer").exists()  # no one waited for masks, and nothing is left behind


def test_a_check_shows_the_gravest_findings_about_the_photos(photos: Path, toy_models: str, tmp_path: Path) -> None:
    for number, label in enumerate(("disc", "square", "cross")):
        first = sorted((photos / "images" / label).iterdir())[0]
        (photos / "images" / label / f"gone{number}.png").symlink_to("nowhere.png")
        shutil.copyfile(first, photos / "images" / label / f"copy{number}{first.suffix}")
        mask = next((photos / "masks" / label).glob(f"{first.stem}.*"))
        shutil.copyfile(mask, photos / "masks" / label / f"copy{number}{mask.suffix}")
    shutil.copyfile(next((photos / "masks" / "disc").iterdir()), photos / "masks" / "disc" / "unused.png")
    shutil.copyfile(
        sorted((photos / "images" / "disc").iterdir())[0], sorted((photos / "images" / "square").iterdir())[0]
    )
    answer = check(f"{toy_models}:colour", str(photos), out=tmp_path / "out")
    lines = [line for line in answer.lines if line.startswith("Data: ")]
    assert [finding.kind for finding in answer.findings][:2] == ["two-classes", "twice"]
    assert len(lines) == 4 and "two labels" in lines[0]
    assert lines[3] == "Data: 1 other finding; holdfast data check PHOTOS lists them all"


def test_in_rounds_known_readers_are_decided_early(readers: str, tmp_path: Path) -> None:
    photos = make(tmp_path / "squares", 60)
    seen = run("check", f"{readers}:background_reader", photos, "-q", "--stop", "when-decided")
    assert "Relies on the background." in seen.stdout
    looks = [line for line in seen.stdout.splitlines() if line.startswith("Round ")]
    assert len(looks) == 1 and "continuing" not in looks[-1] and "decided after" in seen.stdout
    page = Path(seen.stdout.splitlines()[-1])
    assert page.is_file() and "hold whenever one stops" in page.read_text(encoding="utf8")
    answer = check(f"{readers}:object_reader", str(photos), stop="when-decided")
    assert answer.verdict["verdict"] == "foreground" and len(answer.looks) < 7
    assert answer.looks[-1].photos < 180 and answer.looks[-1].answers == 3 * answer.looks[-1].photos
    # A user who opens the run later reads the same intervals: page, table and notebook.
    row, seen_row = answer.results.verdicts().iloc[0], answer.verdict
    assert all(row[f"background_effect{end}"] == seen_row[f"background_effect{end}"] for end in ("", "_low", "_high"))
    words = answer.page.read_text(encoding="utf8")
    assert (
        seen_row["rests_on"] in html.unescape(words) and "all intervals of this page hold whenever one stops" in words
    )
    assert 'id="figure-narrowing"' in words and 'id="regression"' not in words
    assert "Background effect" in answer.results._repr_html_()
    # The gate of two such runs has the pasted conditions, too, as no background is lent twice.
    leaning = next(Path("checks/squares").glob("*background_reader-rounds"))
    gate = holdfast.compare(answer.results, leaning, sequential=True)
    assert gate.verdict == "failed" and "random_background" in set(gate.conditions["condition"])
    assert "Left out" not in gate.sentence
    with pytest.raises(UserError, match="compared with sequential="):
        holdfast.compare(answer.results, leaning)


def test_a_budget_ends_a_check_in_rounds_and_masks_are_made_for_its_photos_only(
    readers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_u2netp_away(monkeypatch)
    photos = make(tmp_path / "squares", 20, masks=False)
    seen = run("check", f"{readers}:object_reader", photos, "-q", "--budget", "100", "--out", "answer")
    assert "the budget allows no further round after 33 images" in seen.stdout
    assert len(list((tmp_path / "answer" / "masks").rglob("*.png"))) == 33
    assert len((tmp_path / "answer" / "masks" / "masks.csv").read_text().splitlines()) == 34
    for options, words in (
        (["--budget", "5"], "a round of squares takes 27 answers, more than the budget"),
        (["--budget", "5 apples"], "is not a budget"),
        (["--stop", "soon"], "soon"),
    ):
        refused = run("check", f"{readers}:object_reader", photos, "-q", "--out", "other", *options, code=2)
        assert words in refused.stderr and "Traceback" not in refused.stderr


def test_a_page_is_made_again_for_code_templates_and_styles_only(tmp_path: Path) -> None:
    from holdfast.checking import code_files

    (tmp_path / "inner").mkdir()
    for name in ("a.py", "b.j2", "c.js", "d.css", "a.pyc", "e.json", "f.txt", "g.pyi", "inner/h.py", "i.pjs"):
        (tmp_path / name).touch()
    assert sorted(path.name for path in code_files(tmp_path)) == ["a.py", "b.j2", "c.js", "d.css", "h.py"]
