"""``holdfast audit watch``: runs against the first, new images against tested ones, and damaged series."""

import json
import shutil
from dataclasses import replace

import cv2
import numpy as np
import pyarrow as pa
import pytest
import torch
from promises.worlds import counts_of

import holdfast
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import SAMPLES
from holdfast.results import open_run
from holdfast.scenarios import parse_conditions
from holdfast.stats.models.gate import PairedPhotos, gate
from holdfast.stats.models.noninferiority import Differences
from holdfast.store import Run
from holdfast_evidence.dossier.profile import profile, unlabelled
from holdfast_evidence.dossier.series_page import sentence
from holdfast_evidence.dossier.watching import PhotoValues, changes, paired_change, placed, spent

SCENARIOS = "original,grey,random_background"


def evaluated(out, data="diorama:test?n=36", model="embedded:resnet_rho0", scenarios=SCENARIOS):
    holdfast.evaluate(data, models=[model], scenarios=scenarios, out=out)
    return out


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    evaluated(folder / "first")
    evaluated(folder / "again", model="embedded:resnet_rho0?name=again")
    evaluated(folder / "month", data="diorama:test?n=36&seed=3")
    holdfast.audit_watch(folder / "series", folder / "first")
    return folder


@pytest.fixture
def series(place, tmp_path):
    shutil.copytree(place, tmp_path / "copy")
    return tmp_path / "copy" / "series"


def test_the_error_of_an_endless_series_adds_up_to_one_in_twenty():
    assert 0.0499 < sum(spent(number) for number in range(1, 10_000)) < 0.05
    assert all(spent(number) > spent(number + 1) > 0 for number in range(1, 50))


def test_a_series_of_checkpoints_and_months(series):
    runs = series.parent
    last = holdfast.audit_watch(series, runs / "again")["entries"][-1]
    assert last["paired"] and {row["change"] for row in last["changes"]} == {"no change shown"}
    assert all(row["difference"] == 0 and row["low"] < 0 < row["high"] for row in last["changes"])
    evaluated(runs / "other", data="diorama:test?n=24", model="embedded:mobilenet_rho95", scenarios="original,fog")
    notes = holdfast.audit_watch(series, runs / "other")["entries"][-1]["notes"]
    assert "24 images are those of the first run" in notes[0] and "not measured here: grey" in notes[1]
    assert notes[2] == "not in the first run, so not compared: fog"
    month = holdfast.audit_watch(series, runs / "month")["entries"][-1]
    assert not month["paired"] and [row["n"] for row in month["changes"]] == [36, 36, 36]
    assert month["level"] == pytest.approx(spent(3))
    page = (series / "index.html").read_text()
    assert "What changed over time?" in page and sentence(month) in page


def test_a_worse_model_is_called_worse(place):
    """Half of the answers are made wrong in a copy: the drop is known."""
    counts = open_run(place / "first").counts
    cells = counts.cells.copy()
    hit = np.arange(len(cells)) % 2 == 0
    cells.loc[hit, "right"] = 0
    spoiled = replace(counts, cells=cells)
    name = counts.models[0]
    for paired in (True, False):
        table = changes(counts, spoiled, name, name, number=1, paired=paired).set_index("condition")
        assert set(table["change"]) == {"worse"} and (table["high"] < 0).all()
    before, after = (frame[frame["condition"] == "original"]["right"].mean() for frame in (counts.cells, cells))
    assert table["difference"]["original"] == pytest.approx(after - before, abs=1e-9)


def test_photos_without_labels(series, tmp_path):
    samples = holdfast.load_collection("diorama:test?n=40&seed=8").samples
    folder = tmp_path / "new"
    folder.mkdir()
    for number, sample in enumerate(samples):
        cv2.imwrite(str(folder / f"{number}.png"), sample.image.load()[..., ::-1])
    (folder / "torn.png").write_bytes(b"no picture")
    alike = holdfast.audit_watch(series, photos=folder)["entries"][-1]
    assert alike["photos"] == 40 and alike["answer"] != "outside"
    assert "1 of 41 images could not be read, such as torn.png" in alike["notes"][0]
    stored = list(series.glob("tested-*.npz"))
    assert len(stored) == 1
    for number, sample in enumerate(samples):
        noise = np.random.default_rng(number).normal(0, 70, sample.image.load().shape)
        cv2.imwrite(str(folder / f"{number}.png"), np.clip(sample.image.load() + noise, 0, 255))
    stored[0].write_bytes(b"damaged")  # it is made again
    far = holdfast.audit_watch(series, photos=folder)["entries"][-1]
    assert far["answer"] == "outside" and "lie outside what run 1 tested" in sentence(far)
    few = holdfast.audit_watch(series, photos="diorama:test?n=12")["entries"][-1]
    assert few["answer"] == "cannot say" and "fewer than 30" in few["notes"][0]


def test_new_photos_are_held_only_against_what_was_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = holdfast.load_collection("diorama:test?n=36").samples
    for number, sample in enumerate(samples):
        (tmp_path / "photos" / sample.label).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(f"photos/{sample.label}/{number}.png", sample.image.load()[..., ::-1])
    evaluated(tmp_path / "run", data="photos", scenarios="original")
    holdfast.audit_watch("series", "run")
    cv2.imwrite(f"photos/{samples[0].label}/more.png", samples[1].image.load())  # an image that was not tested
    assert holdfast.audit_watch("series", photos="diorama:test?n=40&seed=8")["entries"][-1]["tested"] == 36
    cv2.imwrite("photos/loose.png", samples[1].image.load())
    assert len(unlabelled("photos")) == 38, "images in class folders and next to them"
    (tmp_path / "photos" / "loose.png").unlink()
    cv2.imwrite(f"photos/{samples[0].label}/0.png", samples[1].image.load())
    with pytest.raises(UserError, match="1 of the 36 images that run 1 tested, or the weights"):
        holdfast.audit_watch("series", photos="diorama:test?n=40&seed=8")


def test_lower_ends_hold_where_few_photos_change_and_all_in_one_direction():
    rng, held = np.random.default_rng(0), []
    for _ in range(200):
        value = -(rng.random(120) < 0.02).astype(float)
        differences = Differences(value, np.arange(120), np.full(120, -1), value, np.ones(120))
        held.append(paired_change(PairedPhotos(differences, 0.9, 0.9, 0), spent(1) / 6)["low"] <= -0.02)
    assert np.mean(held) >= 0.99  # t alone: 91 %


def test_features_are_the_inputs_of_the_last_layer():
    model = holdfast.load_classifier("embedded:resnet_rho0", device="cpu")
    samples = holdfast.load_collection("diorama:test?n=3").samples
    values = profile(model, samples, parse_conditions("brightness@2"), max_pixels=10**6)
    weights = dict(model.module.named_modules())[values.layer]
    scores = torch.from_numpy(values.values.features).float() @ weights.weight.T + weights.bias
    assert np.allclose(scores.softmax(1).max(1).values, values.values.confidence, atol=1e-4)


def test_distances_do_not_see_photos_of_the_same_kind_as_nearer_or_farther():
    rng, centres = np.random.default_rng(0), 2 * np.random.default_rng(1).standard_normal((12, 16))

    def side(count):
        kind = np.arange(count) % 12
        return PhotoValues(centres[kind] + rng.standard_normal((count, 16)), kind, np.full(count, 0.9), np.zeros(count))

    by = [placed(side(36), side(240), number=1, seed=seed)[1][0].by for seed in range(25)]
    assert abs(np.mean(by)) < 0.04


@pytest.mark.parametrize(
    ("meddle", "words"),
    [
        (lambda s: (s.parent / "first").rename(s.parent / "gone"), "is not at"),
        (lambda s: s.joinpath("series.json").write_text("{}"), "is not a series"),
        (lambda s: changed(s, lambda held: held["entries"][0].update(model="other")), "entry 1 was changed"),
        (lambda s: s.joinpath("series.json").unlink() or shutil.rmtree(s.parent / "month"), "month"),
    ],
)
def test_meddled_series_are_refused(series, meddle, words):
    meddle(series)
    with pytest.raises(UserError, match=words):
        holdfast.audit_watch(series, series.parent / "month")


def changed(series, change):
    path = series / "series.json"
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))


def test_what_is_in_a_series_is_not_added_again(series):
    """The command may have been killed after it wrote the series and before it wrote the page."""
    runs = series.parent
    (series / "index.html").unlink()
    assert [len(holdfast.audit_watch(series, runs / name)["entries"]) for name in ("first", "again", "first")] == [
        1,
        2,
        2,
    ]
    photos = [holdfast.audit_watch(series, photos=f"diorama:test?n=36&seed={seed}") for seed in (8, 8, 9, 8)]
    assert [kept["entry"] for kept in photos] == [3, 3, 4, 5]  # an entry between makes it another check
    assert (series / "index.html").is_file()


def test_what_else_is_refused(series, tmp_path):
    runs = series.parent
    shutil.copytree(runs / "first", runs / "copy")
    with pytest.raises(UserError, match="already, as number 1"):
        holdfast.audit_watch(series, runs / "copy")
    with pytest.raises(UserError, match="not a series yet"):
        holdfast.audit_watch(tmp_path / "none")
    with pytest.raises(UserError, match="photos= are two things"):
        holdfast.audit_watch(series, runs / "again", photos="x")
    with pytest.raises(UserError, match="no condition"):
        holdfast.audit_watch(series, evaluated(tmp_path / "fog", data="diorama:test?n=24&seed=4", scenarios="fog"))
    run = Run.open(runs / "again")
    run.write_samples(run.samples().set_column(2, SAMPLES.field("label"), pa.array(["cat"] * 36).dictionary_encode()))
    with pytest.raises(UserError, match="other names, masks or labels"):
        holdfast.audit_watch(series, runs / "again")


def test_a_clock_set_back_is_noted_and_a_run_that_is_gone_too(series):
    runs = series.parent

    def in_the_future(held):
        entry = held["entries"][0] | {"time": "2999-01-01T00:00:00+00:00"}
        del entry["fingerprint"]
        held["entries"] = [entry | {"fingerprint": fingerprint(entry)}]

    changed(series, in_the_future)
    last = holdfast.audit_watch(series, runs / "again")["entries"][-1]
    assert "the clock was set back" in last["notes"][0]
    shutil.rmtree(runs / "again")
    assert holdfast.audit_watch(series)["missing"] == [2]


def test_intervals_of_a_series_are_wider_than_those_of_the_gate() -> None:
    old, new = np.ones((36, 1, 3)), np.ones((36, 1, 3))
    old[34:, :, 0], new[:, :, 0] = 0, 0
    new[:3, :, 1], old[3:5, :, 1] = 0, 0
    ends = gate(counts_of(old), counts_of(new), margin=0.05).conditions
    series = changes(counts_of(old), counts_of(new), "m00", "m00", number=1, paired=True)
    assert (series["low"] < ends["low"]).all() and (series["high"] > ends["high"]).all()


def test_a_series_spends_its_error_on_what_was_compared() -> None:
    right = np.ones((60, 1, 6))
    few = np.ones((60, 1, 2))
    wide, narrow = (
        changes(counts_of(first), counts_of(few), "m00", "m00", number=1, paired=True)
        for first in (right, right[:, :, :2])
    )
    assert wide["low"].dropna().to_list() == narrow["low"].to_list()
