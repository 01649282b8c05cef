"""Backgrounds made to order, through synth and eval, with real tiny pipelines of diffusers."""

from __future__ import annotations

import csv
import html
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from tiny_pipelines import save_pipeline

from holdfast import api
from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import Sample
from holdfast.data import load_collection
from holdfast.generators import load_image_maker
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.generate.backgrounds import NOT_RECOGNISED, Painter
from holdfast.pipeline.generate.prompts import Prompts
from holdfast.pipeline.synth.synth import SynthSpec, synth
from holdfast.scenarios import parse_conditions

SCENARIO = "generated_background"


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pipelines")
    return {kind: f"diffusers:{save_pipeline(folder / kind, kind)}?steps=2&size=32" for kind in ("inpaint", "text")}


@pytest.fixture
def spec(photos: Path, pipelines: dict[str, str]) -> SynthSpec:
    return SynthSpec(str(photos), scenarios=SCENARIO, workers=1, generator=pipelines["inpaint"], device="cpu")


def manifest(out: Path) -> list[dict[str, str]]:
    with (out / "manifest.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def picture(path: Path) -> np.ndarray:
    found = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["inpaint", "text"])
def test_only_the_background_is_new(spec: SynthSpec, pipelines: dict[str, str], photos: Path, out: Path, kind: str):
    synth(replace(spec, generator=pipelines[kind]), out)
    rows = manifest(out)
    assert Counter(row["status"] for row in rows) == {"ok": 12}
    for row in rows:
        made, before = picture(out / row["path"]), picture(photos / "images" / f"{row['source_id']}.png")
        mask = picture(photos / "masks" / f"{row['source_id']}.png") > 127
        assert made.shape == before.shape
        np.testing.assert_array_equal(made[mask], before[mask])
        assert (made[~mask] != before[~mask]).any(1).mean() > 0.9
        assert row["kind"] == "generated" and row["generator"].startswith(f"diffusers:{kind}")
        assert len(row["generator_fingerprint"]) == 64 and int(row["image_seed"]) > 0 and row["attempt"] == "0"
        assert row["prompt"] == f"a high-resolution photograph of a {row['label']} in fitting surroundings, " + (
            "foreground and background consistent"
        )
    assert len({row["image_seed"] for row in rows}) == 12


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_soft_seam_mixes_and_a_hard_one_does_not(spec: SynthSpec, photos: Path, tmp_path: Path) -> None:
    for feather in (0.0, 4.0):
        synth(replace(spec, feather=feather, limit=3), tmp_path / f"{feather:g}")
    for row in manifest(tmp_path / "4"):
        soft = picture(tmp_path / "4" / row["path"]).astype(int)
        hard = picture(next((tmp_path / "0" / SCENARIO).rglob(f"{row['source_id']}.png"))).astype(int)
        mask = (picture(photos / "masks" / f"{row['source_id']}.png") > 127).astype(np.uint8)
        away = np.maximum(*(cv2.distanceTransform(one, cv2.DIST_L2, 5) for one in (mask, 1 - mask)))
        differs = (soft != hard).any(2)
        assert differs[away < 2].mean() > 0.3 and not differs[(away > 9) & (mask == 0)].any()


def test_disk_equals_memory_whatever_was_there_before(
    spec: SynthSpec, out: Path, tmp_path: Path, toy_models: str
) -> None:
    synth(replace(spec, limit=5), out)
    assert synth(spec, out).already == 5
    model = (f"{toy_models}:colour",)
    made = EvaluateSpec(
        spec.data,
        models=model,
        scenarios=f"original,grey,{SCENARIO}",
        generator=spec.generator,
        device="cpu",
        workers=2,
    )
    memory, _ = evaluate(made, tmp_path / "memory")
    disk, _ = evaluate(EvaluateSpec(str(out), models=model, scenarios="original"), tmp_path / "disk")
    columns = ("image_sha256", "prediction", "confidence", "label", "status", "kind", "condition")

    def facts(run: object) -> dict[str, list[object]]:
        rows = [row for row in run.rows().to_pylist() if row["condition"] == SCENARIO]  # type: ignore[attr-defined]
        return {row["source_id"]: [row[name] for name in columns] for row in rows}

    assert len(facts(memory)) == 12 and facts(memory) == facts(disk)
    assert evaluate(made, tmp_path / "memory")[1].rows == 0
    both = replace(made, models=(*model, f"{toy_models}:second"))
    assert evaluate(both, tmp_path / "memory")[1].rows == 3 * 12


def test_a_changed_prompt_remakes_its_class_and_nothing_else(spec: SynthSpec, out: Path, tmp_path: Path) -> None:
    table = tmp_path / "prompts.toml"
    table.write_text('default = "{a class} in the sea"\n[classes]\ndisc = "a disc in the snow"\n')
    asked = replace(spec, prompts=str(table))
    synth(asked, out)
    before = {row["source_id"]: row["sha256"] for row in manifest(out)}
    table.write_text('default = "{a class} in the sea"\n[classes]\ndisc = "a disc in the sea"\n')
    assert synth(asked, out).rows == 4
    changed = {row["source_id"] for row in manifest(out) if row["sha256"] != before[row["source_id"]]}
    assert {one.partition("/")[0] for one in changed} == {"disc"}
    assert {row["prompt"] for row in manifest(out)} == {
        "a disc in the sea",
        "a cross in the sea",
        "a square in the sea",
    }
    assert synth(replace(asked, seed=1), out).rows == 12


def test_words_that_no_tower_reads_are_said(spec: SynthSpec, out: Path, tmp_path: Path) -> None:
    table = tmp_path / "prompts.toml"
    words = " ".join(["in the sea"] * 7)
    table.write_text(f'default = "{{a class}} in the snow"\n[classes]\ndisc = "{words} beyond"\n')
    summary = synth(replace(spec, prompts=str(table), limit=6), out)
    (said,) = (text for text in summary.trouble if text.endswith("beyond"))
    assert "does not read" in said and summary.trouble[said] == 2
    cut = {row["label"]: row["cut_words"] for row in manifest(out)}
    assert cut["disc"].endswith("beyond") and words.endswith(cut["disc"].removesuffix(" beyond"))
    assert cut["cross"] == cut["square"] == ""


ORACLE = """
import numpy as np
def sees_crosses(images):
    return np.tile(np.array([0.8, 0.1, 0.1], np.float32), (len(images), 1))
sees_crosses.labels = ("cross", "disc", "square")
"""


def test_the_filter_says_why(spec: SynthSpec, out: Path, tmp_path: Path, toy_models: str, photos: Path) -> None:
    (tmp_path / "modules" / "toy_oracle.py").write_text(ORACLE)
    masks = photos / "masks"
    tiny, cut = np.zeros((48, 64), np.uint8), np.zeros((48, 64), np.uint8)
    tiny[20:24, 20:24] = 255
    cut[10:30, 0:20] = 255
    cv2.imwrite(str(masks / "cross" / "0.png"), tiny)
    cv2.imwrite(str(masks / "cross" / "1.png"), cut)
    (masks / "square" / "0.png").unlink()
    judged = replace(spec, oracle="classifier:python:toy_oracle:sees_crosses")
    summary = synth(judged, out)
    said = {row["source_id"]: (row["status"], row["error"]) for row in manifest(out)}
    small = "too small: the object is less than 2 % of the image"
    cut_off = "incomplete: the object touches the image's border"
    assert said["cross/0"] == ("rejected", small) and said["cross/1"] == ("rejected", cut_off)
    assert said["cross/2"] == ("ok", "") and said["square/0"][0] == "skipped"
    assert {said[f"disc/{n}"] for n in range(4)} == {("rejected", NOT_RECOGNISED)}
    assert summary.trouble[f"rejected: {NOT_RECOGNISED}"] == 7
    judged_rows = {row["source_id"]: row for row in manifest(out)}
    assert judged_rows["disc/0"]["oracle_saw"] == "cross" and judged_rows["disc/0"]["prompt"]
    assert not list((out / SCENARIO).rglob("disc/*.png")) and len(list((out / SCENARIO).rglob("*.png"))) == 2
    assert synth(judged, out).rows == 0
    problems = Counter(problem.message for problem in load_collection(str(out)).problems)
    assert problems[f"rejected: {NOT_RECOGNISED}"] == 7 and problems[f"rejected: {small}"] == 1

    loose = f"{SCENARIO}?min_share=0.001&max_border=0.5"
    made = EvaluateSpec(
        spec.data, models=(f"{toy_models}:colour",), scenarios=f"original,{loose}", generator=spec.generator,
        oracle=judged.oracle, device="cpu",
    )  # fmt: skip
    run, _ = evaluate(made, tmp_path / "run")
    rows = {row["source_id"]: row for row in run.rows().to_pylist() if row["condition"] == SCENARIO}
    assert Counter(row["status"] for row in rows.values()) == {"ok": 4, "rejected": 7, "skipped": 1}
    assert rows["disc/1"]["error"] == NOT_RECOGNISED and rows["disc/1"]["oracle_accepted"] is False
    assert rows["cross/1"]["oracle_accepted"] is True and rows["disc/1"]["prediction"] is None
    counts = api.Results(run).counts
    assert int(counts.cells[counts.cells["condition"] == SCENARIO]["n"].sum()) == 4
    page = api.Results(run).report(tmp_path / "report", resamples=50).read_text(encoding="utf8")
    assert "7 of 11 images with a generated background were rejected by the filter" in page.replace("\n", " ")


def test_markup_in_a_prompt_stays_text(spec: SynthSpec, tmp_path: Path, toy_models: str) -> None:
    table = tmp_path / "prompts.toml"
    table.write_text('default = "<script>alert(1)</script> {class} \\"&"\n')
    run = api.evaluate(
        spec.data, models=f"{toy_models}:colour", scenarios=f"original,{SCENARIO}", generator=spec.generator,
        prompts=table, out=tmp_path / "run", device="cpu", limit=3,
    )  # fmt: skip
    assert run.run.spec()["painter"]["prompts"]["default"].startswith("<script>")
    page = run.report(resamples=50).read_text(encoding="utf8")
    assert "alert(1)" in page and "<script>alert(1)" not in page


def test_images_painted_before_a_run_are_in_its_report_with_their_prompts(
    spec: SynthSpec, out: Path, tmp_path: Path, toy_models: str
) -> None:
    synth(spec, out)
    made = [row for row in manifest(out) if row["status"] == "ok"]
    run = api.evaluate(out, models=f"{toy_models}:colour", scenarios="original", out=tmp_path / "run", device="cpu")
    page = html.unescape(run.report(resamples=50).read_text(encoding="utf8"))
    section = page[page.index('id="painted"') :]
    section = section[: section.index("</section>")]
    assert section.count("<img") == min(24, len(made)) > 1
    assert all(row["prompt"] in section for row in made[:3])


def test_the_report_shows_what_was_painted(spec: SynthSpec, tmp_path: Path, toy_models: str) -> None:
    from holdfast.pipeline.thumbnails import thumbnails

    run, _ = evaluate(
        EvaluateSpec(
            spec.data, models=(f"{toy_models}:colour",), scenarios=f"original,{SCENARIO}", generator=spec.generator,
            device="cpu", limit=3,
        ),
        tmp_path / "run",
    )  # fmt: skip
    made = thumbnails(run, {"disc/0"})
    assert set(made) == {("disc/0", "original"), ("disc/0", SCENARIO)}
    small = cv2.imdecode(np.frombuffer(made["disc/0", SCENARIO], np.uint8), cv2.IMREAD_COLOR)
    assert small is not None and small.shape == (48, 64, 3)


def test_mistakes_are_said_at_once(spec: SynthSpec, out: Path, toy_models: str, tmp_path: Path) -> None:
    for change, said in [
        ({"generator": ""}, "--generator"),
        ({"generator": "embedded:"}, "twelve drawn classes"),
        ({"generator": "diffuser:x"}, "did you mean diffusers"),
        ({"scenarios": "grey"}, "--generator is for generated_background"),
        ({"scenarios": "grey", "generator": "", "oracle": "clip:embedded"}, "--oracle is for generated_background"),
        ({"prompts": str(tmp_path / "none.toml")}, "is not a file"),
        ({"oracle": "clip:embedded"}, "no name for class"),
        ({"scenarios": f"{SCENARIO}?min_share=2"}, "at most 1"),
    ]:
        with pytest.raises(UserError, match=said):
            synth(replace(spec, **change), out)
    with pytest.raises(UserError, match="--generator"):
        evaluate(EvaluateSpec(spec.data, models=(f"{toy_models}:colour",), scenarios=SCENARIO), out)


def test_a_class_that_is_only_a_number_is_given_a_name(
    spec: SynthSpec, out: Path, photos: Path, tmp_path: Path
) -> None:
    for tree in ("images", "masks"):
        (photos / tree / "disc").rename(photos / tree / "n02085936")
    with pytest.raises(UserError, match="no name for class 'n02085936'; give it one in a --labels file"):
        synth(spec, out)
    names = tmp_path / "labels.csv"
    names.write_text("class,label\nn02085936,Maltese dog\n")
    synth(replace(spec, labels=str(names), limit=3), out)
    assert any("of a Maltese dog in fitting" in row["prompt"] for row in manifest(out))


def test_without_masks_everything_is_skipped(spec: SynthSpec, out: Path, photos: Path) -> None:
    (photos / "masks").rename(photos / "hidden")
    with pytest.raises(UserError, match="no image could be made"):
        synth(replace(spec, data=str(photos / "images")), out)
    assert {(row["status"], row["error"]) for row in manifest(out)} == {
        ("skipped", f"{SCENARIO} needs a mask and this image has none")
    }


class Flat:
    """Blank for even seeds, noise for odd ones; fails if the prompt says so."""

    name, fingerprint = "flat", "1"

    def __init__(self, *, always: bool = False) -> None:
        self.always = always
        self.seeds: list[int] = []

    def generate(self, prompts, seeds):  # type: ignore[no-untyped-def]
        if any("trouble" in prompt for prompt in prompts):
            raise RuntimeError("no such word\nand more")
        self.seeds += seeds
        blank = np.zeros((20, 30, 3), np.uint8)
        return [
            blank
            if self.always or not seed % 2
            else np.random.default_rng(seed).integers(0, 255, blank.shape, np.uint8)
            for seed in seeds
        ]


def samples(photos: Path) -> list[Sample]:
    return list(load_collection(str(photos)).samples)


def test_a_blank_picture_is_made_once_more(photos: Path) -> None:
    maker = Flat()
    painter = Painter(maker, Prompts("{class}"))  # type: ignore[arg-type]
    attempts = set()
    for sample in samples(photos):
        image = sample.image.load()
        assert sample.mask is not None
        made = painter.paint(sample, image, sample.mask.load(*image.shape[:2]))
        asked = painter.request(sample)
        assert made.details["image_seed"] == asked.seed + made.details["attempt"] == maker.seeds[-1]
        assert made.details["attempt"] == (asked.seed % 2 == 0)
        assert made.image.shape == image.shape and made.image.any()
        attempts.add(made.details["attempt"])
    assert attempts == {0, 1}
    first = samples(photos)[0]
    mask = np.eye(48, 64, dtype=bool)
    with pytest.raises(SampleError, match="blank background, and another"):
        Painter(Flat(always=True), Prompts("{class}")).paint(first, first.image.load(), mask)  # type: ignore[arg-type]
    with pytest.raises(SampleError, match=r"RuntimeError: no such word$"):
        Painter(Flat(), Prompts("trouble {class}")).paint(first, first.image.load(), mask)  # type: ignore[arg-type]


def test_many_at_once_are_what_each_is_alone(photos: Path, pipelines: dict[str, str]) -> None:
    maker = load_image_maker(pipelines["inpaint"], device="cpu")
    alone, together = (Painter(maker, Prompts("{class}"), at_once=count) for count in (1, 4))
    chosen = samples(photos)[:5]
    together.prepare([(sample, parse_conditions(SCENARIO)) for sample in chosen], 10**6)
    for sample in chosen:
        image = sample.image.load()
        assert sample.mask is not None
        mask = sample.mask.load(*image.shape[:2])
        one, other = alone.paint(sample, image, mask), together.paint(sample, image, mask)
        np.testing.assert_array_equal(one.image, other.image)
        assert one.details == other.details
    assert alone.identity(chosen[0]) == together.identity(chosen[0]) != alone.identity(chosen[1])


def test_nothing_is_painted_ahead_that_would_be_rejected(photos: Path) -> None:
    cut = np.zeros((48, 64), np.uint8)
    cut[10:30, 0:20] = 255
    cv2.imwrite(str(photos / "masks" / "cross" / "1.png"), cut)
    for scenarios, count in [(SCENARIO, 11), (f"{SCENARIO}?max_border=0.5", 12), (f"grey,{SCENARIO}?min_share=0.9", 0)]:
        maker = Flat()
        wanted = [(sample, parse_conditions(scenarios)) for sample in samples(photos)]
        Painter(maker, Prompts("{class}"), at_once=4).prepare(wanted, 10**6)  # type: ignore[arg-type]
        assert len(maker.seeds) == count


class Alone(Flat):
    """Says when it is asked for two things at once, as tokenizers cannot bear."""

    def __init__(self) -> None:
        super().__init__()
        self.busy, self.met = threading.Lock(), 0

    def generate(self, prompts, seeds):  # type: ignore[no-untyped-def]
        return self._alone(lambda: [np.arange(1800, dtype=np.uint8).reshape(20, 30, 3) for _ in prompts])

    def cut_words(self, prompts):  # type: ignore[no-untyped-def]
        return self._alone(lambda: [""] * len(prompts))

    def _alone(self, work):  # type: ignore[no-untyped-def]
        self.met += not self.busy.acquire(blocking=False)
        time.sleep(0.01)
        with suppress(RuntimeError):
            self.busy.release()
        return work()


def test_a_generator_is_asked_for_one_thing_at_a_time(photos: Path) -> None:
    maker = Alone()
    painter = Painter(maker, Prompts("{class}"))  # type: ignore[arg-type]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda one: painter.paint(one, one.image.load(), np.eye(48, 64, dtype=bool)), samples(photos)))
    assert maker.met == 0
