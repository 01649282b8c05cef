"""A generator that paints where it is told, and classifiers whose way of seeing is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast import api
from holdfast.core.names import parse_name
from holdfast.data.images import decode_image, read_file
from holdfast.data.readers.listed import read_rows
from holdfast.diorama import vocabulary
from holdfast.models.clip import image_embeddings, load_clip, text_embeddings

SCENES = "diorama:test?n=24&context=0.95"
SHAPE, BACKGROUND = "embedded:resnet_rho0", "embedded:vit_rho95"
"""The first was trained where backgrounds tell nothing, the second where they nearly always tell the class."""


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("painted")
    api.synth(SCENES, out=out, scenarios="generated_background", generator="embedded:?steps=6", device="cpu")
    return out


def test_the_oracle_sees_the_background_that_was_asked_for(painted: Path) -> None:
    rows = [row for row in read_rows(painted / "manifest.parquet") if row["status"] == "ok"]
    clip = load_clip(parse_name("clip:embedded"), device="cpu")
    features = image_embeddings(clip, [decode_image(read_file(painted / str(row["path"]))) for row in rows])
    known = {sample.source_id: sample.attributes["background"] for sample in api.load_collection(SCENES).samples}
    kinds = list(vocabulary.BACKGROUNDS)
    asked, before = 0, 0
    for row, feature in zip(rows, features, strict=True):
        texts = text_embeddings(clip, [vocabulary.caption(row["label"], "plain", "natural", kind) for kind in kinds])
        seen = kinds[int((texts @ feature).argmax())]
        asked += seen == row["asked_background"]
        before += seen == known[str(row["source_id"])]
        assert row["asked_background"] != known[str(row["source_id"])]
    assert len(rows) >= 16
    assert asked / len(rows) > 0.7 and before / len(rows) < 0.1


def test_a_new_background_costs_the_model_that_reads_it(painted: Path, tmp_path: Path) -> None:
    models = [SHAPE, BACKGROUND]
    before = api.evaluate(SCENES, models=models, scenarios="original", out=tmp_path / "before", device="cpu")
    after = api.evaluate(painted, models=models, scenarios="original", out=tmp_path / "after", device="cpu")

    def accuracy(run: api.Results, model: str) -> float:
        rows = run.rows(["model", "correct"]).to_pandas()
        return float(np.mean(rows[rows["model"] == model]["correct"]))

    assert min(accuracy(before, model) for model in models) > 0.9
    assert accuracy(after, SHAPE) > accuracy(before, SHAPE) - 0.1
    assert accuracy(after, BACKGROUND) < accuracy(before, BACKGROUND) - 0.25
