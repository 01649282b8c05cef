"""An encoder that mixes object and background at known shares: the shares come back, through all of ``eval``."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import holdfast
from holdfast import testing
from holdfast.core.errors import UserError
from holdfast.models.encoders import features
from holdfast.pipeline.evaluate.embedding import EMBEDDING

OBJECTS, BACKGROUNDS, WIDTH = 30, 12, 32


def code(*pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return a unit vector of an object or a background, which is known by its colour."""
    drawn = np.random.default_rng([int(value) for pixel in pixels for value in pixel]).standard_normal(WIDTH)
    return drawn / np.linalg.norm(drawn)


def mixing(share: float, rest: float = 0.1) -> object:
    """Return an encoder of which the background is a known share; ``rest`` belongs to neither alone."""
    parts = np.sqrt([1 - share - rest, share, rest])

    def encode(images: list[NDArray[np.uint8]]) -> NDArray[np.float64]:
        places = [(image[16, 16], image[1, 1]) for image in images]
        codes = np.array([[code(own), code(ground), code(own, ground)] for own, ground in places])
        return (parts[:, None] * codes).reshape(len(images), -1)

    return encode


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of a square of its own colour on a ground of its own colour."""
    folder, rng = tmp_path_factory.mktemp("squares"), np.random.default_rng(0)
    lines = ["path,label,mask"]
    for number in range(OBJECTS):
        image = np.full((32, 32, 3), rng.integers(0, 256, 3), np.uint8)
        image[8:24, 8:24] = rng.integers(0, 256, 3)
        mask = np.zeros((32, 32), np.uint8)
        mask[8:24, 8:24] = 255
        cv2.imwrite(str(folder / f"{number}.png"), image)
        cv2.imwrite(str(folder / f"m{number}.png"), mask)
        lines.append(f"{number}.png,{'ab'[number % 2]},m{number}.png")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return folder / "list.csv"


def test_planted_shares_come_back_within_their_intervals(squares: Path, tmp_path: Path) -> None:
    shares = {"ground": 0.75, "even": 0.45, "own": 0.15, "blind": 0.0}
    names = [features(mixing(share), name) for name, share in shares.items()]
    run = holdfast.evaluate(f"manifest:{squares}", names, out=tmp_path / "run", quiet=True)
    rows = run.rows().to_pandas()
    assert len(rows) == OBJECTS * BACKGROUNDS * 4 and set(rows["status"]) == {"ok"}
    assert rows.groupby("parameters")["donor_id"].nunique().eq(1).all()
    table = run.embedding().set_index("model")
    assert (table["objects"] == OBJECTS).all() and (table["backgrounds"] == BACKGROUNDS).all()
    for name, share in shares.items():
        row = table.loc[name]
        truth = {"background": share, "object": 0.9 - share, "residual": 0.1, "part": share / 0.9}
        for column, value in truth.items():
            assert row[f"{column}_low"] <= value <= row[f"{column}_high"], (name, column)
        assert row["background_high"] - row["background_low"] < 0.15
    assert table.loc["ground", "nearest_background"] > 0.9 > 0.2 > table.loc["own", "nearest_background"]
    assert (table["nearest_background_chance"] < 0.1).all()
    assert table.loc["blind", "background"] <= table.loc["blind", "background_chance"] + 0.005

    page = run.report().read_text()
    assert "Follows the background more than the object" in page and "Follows the object, and the background" in page
    assert "Inconclusive: object and background may explain equally much" in page
    with pytest.raises(UserError, match="neither right nor wrong"):
        run.accuracy()
    with pytest.raises(UserError, match="neither right nor wrong"):
        holdfast.compare(run, run)
    again = holdfast.evaluate(f"manifest:{squares}", names, out=tmp_path / "run", quiet=True)
    assert again.rows().num_rows == len(rows)
    testing.check_section("embedding", run.path)


def test_the_task_keeps_its_contract() -> None:
    class Encoder:
        name = fingerprint = "mean"

        def predict(self, images: list[NDArray[np.uint8]]) -> NDArray[np.float64]:
            return np.array([image.mean((0, 1)) for image in images])

    assert EMBEDDING.ask(type("Tested", (), {"model": Encoder()}), [np.ones((4, 4, 3), np.uint8)]).shape == (1, 3)


def test_other_runs_have_no_embedding(tmp_path: Path) -> None:
    run = holdfast.evaluate("diorama:test?n=6", "embedded:resnet_rho0", scenarios="original", out=tmp_path, quiet=True)
    with pytest.raises(UserError, match="is no run of encoders: eval makes one from models named features:MODEL"):
        run.embedding()
