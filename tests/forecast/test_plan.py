"""What a run will take: the fit on known numbers, what is counted, and two real trials against real runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import run
from holdfast.cli.plan import show, size
from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.numbers import duration
from holdfast.forecast import CostForecast, RunForecast
from holdfast.forecast import plan as plan_of
from holdfast.forecast.planning import _clock, _forecast, _next, estimate
from holdfast.forecast.trial import Trial, _trouble, bytes_in, measured, rows_in, words_of
from holdfast.forecast.workload import workload

amounts = st.floats(0.001, 1e4)


@settings(deadline=None)  # no test times itself
@given(amounts, amounts, st.integers(10, 10**7))
def test_known_prices_are_found(fixed: float, price: float, wanted: int) -> None:
    sizes = (4, 32, 256, 2048)
    found = estimate([fixed + price * n for n in sizes], [{"images": n} for n in sizes], {"images": wanted})
    assert found.value == pytest.approx(fixed + price * wanted, rel=1e-3)
    assert found.low <= found.value <= found.high
    assert found.fixed == pytest.approx(fixed, rel=0.02, abs=0.002 * price)


@settings(deadline=None)  # no test times itself
@given(amounts, amounts, amounts, amounts)
def test_prices_of_several_kinds_of_work(fixed: float, image: float, epoch: float, job: float) -> None:
    work = [
        {"images": n, "trained": n * folds * epochs, "jobs": folds}
        for n, folds, epochs in ((10, 2, 1), (40, 2, 3), (80, 3, 1), (160, 2, 1), (300, 3, 3))
    ]
    costs = [fixed + image * one["images"] + epoch * one["trained"] + job * one["jobs"] for one in work]
    wanted = {"images": 5000.0, "trained": 5000.0 * 11 * 30, "jobs": 12.0}
    exact = fixed + image * 5000 + epoch * wanted["trained"] + job * 12
    assert estimate(costs, work, wanted).value == pytest.approx(exact, rel=1e-3)


@settings(deadline=None)  # no test times itself
@given(st.lists(st.floats(0.7, 1.4), min_size=4, max_size=4))
def test_the_range_holds_the_value_and_nothing_is_negative(noise: list[float]) -> None:
    sizes = (4, 32, 256, 1024)
    costs = [(2 + 0.01 * n) * factor for n, factor in zip(sizes, noise, strict=True)]
    found = estimate(costs, [{"images": n} for n in sizes], {"images": 100_000})
    assert 0 <= found.low <= 0.9 * found.value <= 1.1 * found.value <= found.high * (1 + 1e-9)
    assert found.fixed >= 0


def test_options_become_the_command_line() -> None:
    options = {"data": "photos", "models": ["a", "b?x=1"], "with_": "grabcut", "keep_images": True,
               "random_walk": False, "masks": None, "split": "", "limit": 3}  # fmt: skip
    assert words_of("perturb", options) == [
        "perturb", "photos", "--models", "a,b?x=1", "--with", "grabcut", "--keep-images", "--no-random-walk",
        "--limit", "3",
    ]  # fmt: skip


def test_what_is_counted() -> None:
    found = workload("eval", {"data": "diorama:test?n=40", "models": "a,b", "scenarios": "original,grey", "limit": 30})
    assert (found.units, found.images, found.conditions, found.models, found.rows) == (30, 30, 2, 2, 120)
    assert workload("generate", {"generator": "embedded:"}).images == 12 * 37
    train = workload("train", {"data": "diorama:train?n=96", "architectures": "x,y", "scenarios": "original,grey",
                              "folds": 6, "epochs": 10})  # fmt: skip
    assert train.work(96, {}) == {"images": 96, "trained": 96 * 5 * 10 * 4, "jobs": 24}
    assert train.work(24, {"folds": 2, "epochs": 1}) == {"images": 24, "trained": 24 * 4, "jobs": 8}
    three = workload("train", {"data": "diorama:train?n=96", "architectures": "x", "scenarios": "grey", "folds": 3})
    assert three.work(96, {})["jobs"] == 3 and {one["folds"] for one in three.variants} == {2, 3}  # a network a fold


def test_too_few_backgrounds_are_noted_beforehand(photos: Path, tmp_path: Path) -> None:
    lent = tmp_path / "lent"
    lent.mkdir()
    for number, path in zip(range(3), sorted(photos.rglob("*.png")) or sorted(photos.rglob("*.jpg")), strict=False):
        shutil.copy(path, lent / f"{number}{path.suffix}")
    options = {"data": "diorama:test?n=120", "models": "a", "scenarios": "original,random_background"}
    assert workload("eval", options).notes == ()
    (note,) = workload("eval", {**options, "backgrounds": str(lent)}).notes
    assert "120 images share 3 backgrounds; with 41 or more" in note and "--backgrounds FOLDER" in note
    assert workload("eval", {**options, "backgrounds": str(lent), "scenarios": "original,grey"}).notes == ()


def test_mistakes_are_told() -> None:
    for options, words in (
        ({"verb": "report"}, "holdfast plan cannot forecast report"),
        ({"verb": "eval"}, "eval needs DATA"),
        ({"verb": "eval", "data": "no/such/folder", "models": "a"}, "no/such/folder"),
        ({"verb": "eval", "data": "diorama:test?n=4", "models": "a", "scenarios": "blurr"}, "blurr"),
        ({"verb": "synth", "data": "diorama:test?n=4", "seconds": 0}, "--seconds"),
        ({"verb": "synth", "data": "diorama:test?n=4", "machines": 0}, "--machines"),
        ({"verb": "perturb", "data": "diorama:test?n=4"}, "--out"),
    ):
        with pytest.raises(UserError, match=words):
            plan_of(**options)
    assert "Missing option '--models'" in run("plan", "eval", "photos", "--out", "x", code=2).stderr
    assert "No such option" in run("plan", "synth", "photos", "--out", "x", "--modles", "a", code=2).stderr


def test_a_command_that_refuses_is_quoted() -> None:
    refused = _trouble("hash: 3/4\nholdfast: no model was named; --models a,b lists them\n", 2)
    assert isinstance(refused, UserError)
    assert str(refused) == "no model was named; --models a,b lists them"
    boxed = "Usage: holdfast synth\nTry 'holdfast -h'\n╭─ Error ──╮\n│ No such option: --modles │\n╰──────╯\n"
    assert str(_trouble(boxed, 2)).endswith("No such option: --modles")
    assert not isinstance(_trouble("holdfast: the disk is full", 1), UserError)
    with pytest.raises(HoldfastError, match="exit code 3"):
        measured([sys.executable, "-c", "import sys; sys.exit(3)"])


def test_memory_and_time_of_children_count() -> None:
    child = "x = bytearray(120_000_000); import time; time.sleep(0.4)"
    parent = f"import subprocess, sys; y = bytearray(120_000_000); subprocess.run([sys.executable, '-c', {child!r}])"
    cost = measured([sys.executable, "-c", parent])
    assert 240e6 < cost.memory < 400e6
    assert cost.wall > 0.4 and cost.processor > 0


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty small images of two classes, with masks, all of much the same size as files."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(40):
        label = ("circle", "square")[number % 2]
        for tree in ("images", "masks"):
            (folder / tree / label).mkdir(parents=True, exist_ok=True)
        noise = cv2.resize(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8), (32, 32))
        cv2.imwrite(str(folder / "images" / label / f"{number:02d}.png"), noise)
        mask = np.zeros((32, 32), np.uint8)
        mask[8:24, 8:24] = 255
        cv2.imwrite(str(folder / "masks" / label / f"{number:02d}.png"), mask)
    return folder


def test_synth_takes_what_was_planned(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    words = ("synth", photos, "--scenarios", "original,grey,random_background", "--workers", "1", "--out")
    out = tmp_path / "runs" / "made"
    told = json.loads(run("plan", "--seconds", "0.1", "--machines", "4", "--json", *words, out).stdout)
    assert not list(tmp_path.iterdir()), "trials leave nothing behind"
    run(*words, out)
    assert (told["images"], told["conditions"], told["rows"]) == (40, 3, 120)
    assert rows_in(out) == told["rows"]
    assert sum(told["bytes"].values()) == pytest.approx(sum(bytes_in(out).values()), rel=0.25)
    assert [one["size"] for one in told["trials"]] == [4, 8]
    fixed, value = told["seconds"]["fixed"], told["seconds"]["value"]
    assert told["seconds_on_machines"] == pytest.approx(fixed + (value - fixed) / 4)
    assert not told["whole"]


def test_eval_takes_what_was_planned(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    (tmp_path / "guess.py").write_text(
        "import numpy as np\n"
        "class Guess:\n"
        "    name, labels, fingerprint = 'guess', ('circle', 'square'), 'guess'\n"
        "    def predict(self, images):\n"
        "        return np.full((len(images), 2), 0.5, np.float32)\n"
        "guess = Guess()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = (
        "eval",
        photos,
        "--models",
        "python:guess:guess",
        "--scenarios",
        "original,grey",
        "--out",
        tmp_path / "run",
    )
    told = json.loads(run("plan", "--seconds", "0.1", "--json", *words).stdout)
    run(*words, "-q")
    assert rows_in(tmp_path / "run") == told["rows"] == 80
    assert sum(told["bytes"].values()) == pytest.approx(sum(bytes_in(tmp_path / "run").values()), rel=0.25)


def test_a_run_as_short_as_its_trial(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    out.mkdir()
    (out / "spec.json").write_text("{}")
    found = plan_of("synth", seconds=1, data=photos, scenarios="original", workers=1, limit=4, out=out)
    assert found.whole and [one.size for one in found.trials] == [4]
    assert found.rows == 4 and found.seconds.value == found.trials[-1].wall
    assert any("exists: what is finished" in sentence for sentence in found.notes)


def test_the_table_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    hour = CostForecast(3600.0, 3000.0, 4000.0, 360.0)
    show(
        RunForecast(
            command="holdfast eval", unit="source images", units=900, images=1800, conditions=13, models=2, rows=46_800,
            bytes={"parquet": 2e6, "json": 1e6, "csv": 10}, seconds=hour, processor=hour,
            memory=CostForecast(1e9, 9e8, 2e9, 9e8), machines=2, seconds_on_machines=1980.0, whole=False, load=1.0,
            trials=(Trial(4, 2.0, 2.0, 1e8, 104, 1, {}, {"images": 4}),), notes=("something is assumed",),
        )
    )  # fmt: skip
    shown = capsys.readouterr().out
    for words in ("1,800 (900 source images)", "13 × 2", "46,800", "3 MB (parquet 2 MB, json 1 MB)",
                  "60 min (50 min to 67 min)", "1 GB (900 MB to 2 GB)", "6 min fixed (10%), 3.6 s per image",
                  "33 min, if each pays", "4 in 2 s; load 1.0", "note: something is assumed"):  # fmt: skip
        assert words in shown


def test_trials_grow_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    about = workload("synth", {"data": "diorama:test?n=5000"})

    def trial(images: int, seconds: float) -> Trial:
        return Trial(images, seconds, seconds, 1e8, images, 1, {}, {"images": images})

    assert _next([trial(4, 2.0)], about, 58.0) == 32  # eight times the last, and not more
    assert _next([trial(4, 2.0)], about, 0.0) == 8  # two at least
    assert _next([trial(4, 2.0), trial(32, 2.3)], about, 0.5) == 0
    grown = _next([trial(4, 2.0), trial(32, 2.3), trial(256, 4.6)], about, 20.0)
    assert 384 <= grown <= 2048 and 2 + 0.0102 * grown <= 10.2
    assert _next([trial(4, 2.0), trial(5000, 50.0)], about, 100.0) == 0


def test_on_a_busy_machine_trials_grow_until_they_tell_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    about = workload("synth", {"data": "diorama:test?n=5000"})

    def trial(images: int, processor: float) -> Trial:
        return Trial(images, 10 * processor, processor, 1e8, images, 1, {}, {"images": images})

    # 0.01 s an image and 2 s that are fixed: 4 and 8 images do not tell, and no trial fits into the time that is left.
    assert _next([trial(4, 2.04), trial(8, 1.95)], about, 9.0) == 64  # eight times the last, and not more
    assert _next([trial(4, 2.04), trial(8, 1.95)], about, 0.0) == 0  # the time is up
    sizes = [4, 8]
    while more := _next([trial(size, 2 + 0.01 * size) for size in sizes], about, 9.0):
        sizes.append(more)
    assert sizes[:3] == [4, 8, 64] and 200 <= sizes[-1] <= 450
    assert _next([trial(4, 2.0), trial(8, 4.2)], about, 9.0) == 0  # dear images are told by few
    assert _next([trial(4 * 2**turn, 2.0) for turn in range(6)], about, 9.0) == 0
    train = workload("train", {"data": "diorama:test?n=720", "architectures": "x", "folds": 2, "epochs": 5})
    assert len(train.variants) == 2
    made = [
        Trial(size, 9.0, 9.0, 1e8, size, 1, {}, train.work(size, train.variants[turn % 2]))
        for turn, size in enumerate((72, 150, 720, 720))
    ]
    assert [_next(made[:count], train, 9.0) for count in (1, 2, 3, 4)] == [72, 150, 720, 0]  # each kind at each size
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert _next([trial(4, 2.04), trial(8, 1.95)], about, 9.0) == 0


def test_a_cost_that_the_trials_do_not_show_is_said_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    about = workload("synth", {"data": "diorama:test?n=5000"})

    def trial(images: int, processor: float, stretch: float = 1.0) -> Trial:
        return Trial(images, stretch * processor, processor, 1e8, images, 1, {}, {"images": images})

    def planned(*trials: Trial) -> tuple[float, float, bool]:
        made = _forecast("synth", {"data": "diorama:test?n=5000"}, about, trials, 1)
        return made.seconds.high, made.processor.high, any("too few to estimate" in note for note in made.notes)

    for load in (0.0, 1000.0):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        wall, processor, unknown = planned(trial(4, 2.04, 10.0), trial(8, 1.95, 12.0))  # 0.01 s an image, in truth
        assert unknown and wall >= 12 * 52 and processor >= 52
        assert planned(trial(4, 2.0), trial(8, 4.2))[1:] == (pytest.approx(0.55 * 5000, rel=0.2), False)
        assert planned(trial(8, 1.95), trial(4, 2.04), trial(256, 4.6))[2] is False
    _, processor, unknown = planned(trial(4, 2.04), trial(8, 1.95), trial(64, 2.6))
    assert unknown and processor >= 52  # busy with other work: only processor time counts, and it hardly grew
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert planned(trial(4, 2.04), trial(8, 1.95), trial(64, 2.6))[2] is False


def test_on_a_busy_machine_processor_time_is_stretched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    sizes, stretch = (4, 32, 256), (2.0, 6.0, 4.0)
    busy = [2 + 0.01 * n for n in sizes]
    trials = [
        Trial(n, used * factor, used, 1e8, n, 1, {}, {"images": n})
        for n, used, factor in zip(sizes, busy, stretch, strict=True)
    ]
    mean = sum(one.wall for one in trials) / sum(busy)
    found = _clock(trials, {"images": 10_000})
    assert found.value == pytest.approx(102 * mean, rel=0.01)
    assert found.low <= 2 * 102 and found.high >= 6 * 102
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert _clock(trials, {"images": 10_000}).value != found.value


def test_units_that_one_would_say() -> None:
    assert [duration(one) for one in (0.004, 2, 61, 600, 7200, 3.6e6)] == [
        "4 ms", "2 s", "61 s", "10 min", "2 hours", "1,000 hours",
    ]  # fmt: skip
    assert [size(one) for one in (12, 1500, 2.5e9)] == ["12 bytes", "1.5 kB", "2.5 GB"]
