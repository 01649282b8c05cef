"""Tasks as one object: a third party's task and hook run through everything without a change in Holdfast."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import holdfast
from holdfast import registry
from holdfast.core.errors import PluginWarning, UserError
from holdfast.core.hooks import BegunRun, Hook
from holdfast.core.names import parse_name
from holdfast.core.tasks import FEATURES, Task
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.evaluate.evaluate import evaluate
from holdfast.results import Results
from holdfast.store import Run
from holdfast.testing import check_hook, check_task

TOLERANCE = 8.0
PHOTOS = 24
FITS = pa.schema([("row_id", pa.string()), ("error_size", pa.float32())])


class Meter:
    """Says how bright an image is: ``object`` looks at the middle, ``background`` at the border, too."""

    def __init__(self, name: str) -> None:
        self.name, self.fingerprint = name, f"meter {name}"

    def measure(self, image: NDArray[np.uint8]) -> float:
        middle = float(image[12:20, 12:20].mean())
        return middle if self.name == "object" else middle + float(image[:4].mean()) - 40


class Brightness(Task):
    """How bright is the object? Right within a tolerance."""

    name, title, protocol, success = "brightness", "how bright the object is", "within 8", "within 8"
    tables = {"fits": FITS}  # noqa: RUF012
    required = "fits"

    def recognises(self, collection: Any, models: Sequence[str]) -> bool:
        return all(parse_name(name, tagged=False).scheme == "meter" for name in models)

    def load(self, name: str, *, device: str, collection: Any) -> Meter:
        return Meter(parse_name(name).name)

    def ask(self, model: Any, images: Sequence[Any]) -> list[float]:
        return [model.model.measure(image) for image in images]

    def rows(self, model: Any, shown: Sequence[Any], answers: Sequence[float]) -> list[dict[str, Any]]:
        rows = []
        for each, answer in zip(shown, answers, strict=True):
            size = abs(answer - float(each.sample.label))
            rows.append({"prediction": f"{answer:g}", "correct": size <= TOLERANCE, "fits": [{"error_size": size}]})
        return rows

    def chance(self, units: pa.Table) -> float:
        return 0.1


BRIGHTNESS = Brightness()


class Local(Brightness):
    """A task that cannot be sent to other processes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Journal(Hook):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.begun: list[BegunRun] = []
        self.rows, self.ended = 0, 0

    def on_run_begin(self, run: BegunRun) -> None:
        self.begun.append(run)
        run.notes.append("noted by the journal")

    def on_rows(self, run: BegunRun, rows: Any) -> None:
        self.rows += rows.count_rows()

    def on_run_end(self, run: BegunRun) -> None:
        self.ended += 1


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the task, as its package's entry point does."""
    registry.tasks.register("brightness", BRIGHTNESS, summary="for this test")
    yield
    registry.tasks.remove("brightness")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Squares of known brightness on grounds of other brightness, with masks and a list."""
    folder = tmp_path_factory.mktemp("squares")
    rng = np.random.default_rng(1)
    lines = ["path,label,mask"]
    for number in range(PHOTOS):
        value = 100 + 5 * (number % 4)
        image = np.full((32, 32, 3), 40, np.uint8)
        image[:4] = 40 + rng.integers(-3, 4)
        image[4:] = 10 * (number % 7) + 20
        image[8:24, 8:24] = value
        mask = np.zeros((32, 32), np.uint8)
        mask[8:24, 8:24] = 255
        for name, array in ((f"{number}.png", image), (f"m{number}.png", mask)):
            cv2.imwrite(str(folder / name), array)
        lines.append(f"{number}.png,{value},m{number}.png")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return folder / "list.csv"


SCENARIOS = "original,foreground_on_grey,same_class_background,random_background"


def run(photos: Path, out: Path, models: str = "meter:object,meter:background", hooks: Sequence[Hook] = ()) -> Results:
    spec = EvaluateSpec(f"manifest:{photos}", models=tuple(models.split(",")), scenarios=SCENARIOS)
    return Results(evaluate(spec, out, hooks=hooks)[0])


def test_a_task_of_another_package_has_rows_drops_verdicts_a_gate_and_a_report(photos: Path, tmp_path: Path) -> None:
    results = run(photos, tmp_path / "run")
    rows = results.rows().to_pandas()
    assert set(rows["task"]) == {"brightness"} and len(rows) == PHOTOS * 4 * 2
    assert set(results.run.details("fits").rows()["row_id"].to_pylist()) == set(rows["row_id"])
    assert results.task is BRIGHTNESS

    drops = results.drops().set_index(["model", "condition"])
    assert drops.loc[("object", "foreground_on_grey"), "drop"] == 0.0
    assert drops.loc[("background", "foreground_on_grey"), "drop"] == 1.0  # a grey border adds 88
    own = rows[(rows["model"] == "background") & (rows["condition"] == "random_background")]
    assert drops.loc[("background", "random_background"), "accuracy"] == pytest.approx(own["correct"].mean())
    accuracy = results.accuracy().set_index(["model", "condition"])["accuracy"]
    assert accuracy["object", "original"] == accuracy["background", "original"] == 1.0

    verdicts = results.verdicts(margin=0.3).set_index("model")
    assert verdicts.loc["object", "verdict"] == "foreground"
    assert verdicts.loc["object", "success_elsewhere"] == pytest.approx(0.9)
    assert "within 8" in verdicts.loc["object", "sentence"]

    gate = holdfast.compare(results, results, old_model="object", new_model="background", margin=0.05)
    worse = gate.conditions.set_index("condition").loc["foreground_on_grey"]
    assert (gate.verdict, worse["verdict"], worse["difference"]) == ("failed", "failed", -1.0)
    same = holdfast.compare(results, results, old_model="object", new_model="object", margin=0.2)
    assert same.verdict == "passed"

    page = results.report()
    assert "foreground on grey" in page.read_text()


def test_the_rows_are_resumed(photos: Path, tmp_path: Path) -> None:
    first = run(photos, tmp_path / "run", "meter:object").rows().sort_values("row_id", ignore_index=True)
    again = run(photos, tmp_path / "run", "meter:object").rows().sort_values("row_id", ignore_index=True)
    assert again.equals(first)


class Partly(Brightness):
    """Success is the closer, the better."""

    def outcome(self, units: pa.Table) -> NDArray[np.float64]:
        pairs = zip(units["prediction"].to_pylist(), units["label"].to_pylist(), strict=True)
        return np.array([math.exp(-abs(float(said) - float(true)) / 100) if said else 0.0 for said, true in pairs])


def test_an_outcome_may_be_any_number_from_0_to_1(photos: Path, tmp_path: Path) -> None:
    registry.tasks.remove("brightness")
    registry.tasks.register("brightness", Partly(), summary="for this test")
    results = run(photos, tmp_path / "run", "meter:background")
    rows = results.rows().to_pandas().astype({"label": float, "prediction": float})
    rows["success"] = np.exp(-(rows["prediction"] - rows["label"]).abs() / 100)
    mean = rows.groupby(rows["condition"].astype(str))["success"].mean()
    table = results.drops().set_index("condition")
    for name in ("foreground_on_grey", "random_background"):
        assert table.loc[name, "drop"] == pytest.approx(mean["original"] - mean[name], abs=1e-6)
        assert table.loc[name, "low"] <= table.loc[name, "drop"] <= table.loc[name, "high"]


def test_hooks_are_called_and_a_broken_one_does_not_end_the_run(photos: Path, tmp_path: Path) -> None:
    journal = Journal()
    results = run(photos, tmp_path / "run", hooks=[journal])
    assert journal.rows == len(results.rows()) and journal.ended == 1
    (begun,) = journal.begun
    assert begun.task is BRIGHTNESS and list(begun.models) == ["object", "background"]

    class Broken(Hook):
        def on_rows(self, run: BegunRun, rows: Any) -> None:
            raise ValueError("no disk")

    class Refusing(Hook):
        def on_run_begin(self, run: BegunRun) -> None:
            raise UserError("not today")

    with pytest.warns(PluginWarning, match=r"Broken.on_rows failed: .*no disk"):
        run(photos, tmp_path / "broken", "meter:object", hooks=[Broken()])
    with pytest.raises(UserError, match="not today"):
        run(photos, tmp_path / "refused", "meter:object", hooks=[Refusing()])
    assert Run(tmp_path / "refused").predictions.count() == 0


@pytest.mark.parametrize(
    ("option", "feature"),
    [({"fast": True}, "fast"), ({"expect_accuracy": 0.9}, "expect-accuracy"), ({"depth": "native"}, "native-depth"),
     ({"threshold": 0.5}, "threshold"), ({"scenarios": "original,fgsm"}, "attacks"),
     ({"protocol": "d.json"}, "protocol"),
     ({"scenarios": "original,fog@1,fog@2,fog@3", "search": True}, "search")],
)  # fmt: skip
def test_what_a_task_does_not_support_is_refused_before_anything_is_loaded(
    photos: Path, tmp_path: Path, option: dict[str, Any], feature: str
) -> None:
    spec = EvaluateSpec(f"manifest:{photos}", models=("meter:missing",), **option)
    with pytest.raises(UserError, match=rf"{FEATURES[feature]} is not supported for how bright .*leave it out"):
        evaluate(spec, tmp_path / "run")


def test_the_drops_of_detectors_are_their_drops_of_recall(tmp_path: Path) -> None:
    results = holdfast.evaluate(
        "diorama:test?n=12&objects=1..3&size=64", models="known:scene,known:perfect", device="cpu",
        scenarios="original,random_background,same_class_background", out=tmp_path / "run",
    )  # fmt: skip
    generic = results.drops().set_index(["model", "condition"])
    special = results.objects(precision=False).set_index(["model", "condition"])
    for key in generic.index:
        for ours, theirs in (("drop", "recall_drop"), ("low", "recall_drop_low"), ("high", "recall_drop_high")):
            assert generic.loc[key, ours] == pytest.approx(special.loc[key, theirs], abs=0.02)
    assert results.accuracy().set_index(["model", "condition"]).loc[("known:perfect", "original"), "accuracy"] == 1.0


def test_two_tasks_that_recognise_a_command_are_named(photos: Path, tmp_path: Path) -> None:
    class Other(Brightness):
        name, title = "other", "another question"

    registry.tasks.register("other", Other(), summary="for this test")
    try:
        with pytest.raises(UserError, match=r"brightness .* and other .* both recognise it"):
            run(photos, tmp_path / "run")
    finally:
        registry.tasks.remove("other")


@pytest.mark.parametrize("name", ["classify", "multilabel", "detect", "segment", "question"])
def test_the_tasks_of_the_core_hold_the_contract(name: str) -> None:
    check_task(registry.tasks.get(name))


def test_the_contract_names_what_an_author_forgot() -> None:
    images = [np.full((32, 32, 3), value, np.uint8) for value in (40, 60)]
    check_task(BRIGHTNESS, model=Meter("object"), images=images, labels=["40", "90"])

    class Unnamed(Brightness):
        name = ""

    class Unknown(Brightness):
        supports = frozenset({"magic"})

    class Forgetful(Brightness):
        def rows(self, model: Any, shown: Sequence[Any], answers: Sequence[float]) -> list[dict[str, Any]]:
            return [{"prediction": f"{answer:g}"} for answer in answers]

    class Endless(Brightness):
        def outcome(self, units: pa.Table) -> NDArray[np.float64]:
            return np.full(len(units), 2.0)

    for task, message in (
        (Unnamed(), "needs a name"), (Unknown(), "supports 'magic'"), (Forgetful(), "fits"), (Endless(), "from 0 to 1"),
        (Local(), "sent to other processes"),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match=message):
            check_task(task, model=Meter("object"), images=images, labels=["40", "90"], registered=False)

    class Typo(Hook):
        def on_run_start(self, run: BegunRun) -> None: ...

    check_hook(Journal(), registered=False)
    with pytest.raises(AssertionError, match="on_run_start"):
        check_hook(Typo(), registered=False)
