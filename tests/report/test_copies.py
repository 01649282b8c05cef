"""A dataset that has files twice knows no more than one that has them once."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import cv2
import numpy as np
import pytest

import holdfast
from holdfast.data import load_collection
from holdfast.reports.page.evidence import join_runs
from holdfast.results import Results
from holdfast.stats.core.reduce import reduce

MODEL = "embedded:resnet_rho95"


def _folder(path: Path, times: int) -> str:
    for sample in load_collection("diorama:test?n=24&context=0").samples:
        image = cv2.cvtColor(sample.image.load()[..., :3], cv2.COLOR_RGB2BGR)
        assert sample.mask is not None
        mask = 255 * (sample.mask.load(*image.shape[:2]) > 0).astype(np.uint8)
        for copy, (part, pixels) in product(range(times), (("images", image), ("masks", mask))):
            where = path / part / sample.label
            where.mkdir(parents=True, exist_ok=True)
            assert cv2.imwrite(str(where / f"{sample.sample_id.replace('/', '-')}-{copy}.png"), pixels)
    return str(path / "images")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Results]:
    found = {}
    for times in (1, 2):
        folder = tmp_path_factory.mktemp(f"times{times}")
        data = _folder(folder, times)
        found[times] = holdfast.evaluate(
            data, models=[MODEL], masks=folder / "masks", scenarios="grey,blur", out=folder / "run"
        )
    return found


def test_intervals_are_those_of_files_that_are_there_once(results: dict[int, Results]) -> None:
    once, twice = (results[times].accuracy().sort_values("condition", ignore_index=True) for times in (1, 2))
    assert (twice["n"] == 2 * once["n"]).all()
    for end in ("accuracy", "low", "high", "worst_class_low", "worst_class_high"):
        assert twice[end].to_numpy() == pytest.approx(once[end].to_numpy(), abs=0.02), end
    before, after = (results[times].drops().set_index("condition") for times in (1, 2))
    assert (after["n"] == before["n"]).all()
    assert after[["drop", "low", "high"]].to_numpy() == pytest.approx(before[["drop", "low", "high"]].to_numpy())


def test_without_the_copies_known_they_would_be_narrower(results: dict[int, Results]) -> None:
    run = results[2].run
    blind, seen = reduce(run.predictions.dataset()), join_runs([run]).counts()
    assert blind.cells["source_id"].nunique() == 2 * seen.cells["source_id"].nunique()
    assert (blind.copies, seen.copies) == (0, 24)


def test_verdicts_say_that_there_are_copies(results: dict[int, Results]) -> None:
    (warnings,) = results[2].verdicts()["warnings"]
    assert any("24 images are copies of others, byte for byte" in text for text in warnings)
    (warnings,) = results[1].verdicts()["warnings"]
    assert not any("cop" in text for text in warnings)
