"""The grid of images by class and condition: of the data itself, and not chosen by what the models answered."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

import holdfast
from holdfast.data import load_collection

DATA, CONDITIONS = "diorama:test?n=36", ("original", "grey", "segmented")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("grid")
    run = holdfast.evaluate(
        DATA, models=["embedded:resnet_rho0", "embedded:vit_rho95"], scenarios=",".join(CONDITIONS),
        out=folder / "run", device="cpu",
    )  # fmt: skip
    return run.report(folder / "page", resamples=100).read_text()


def test_every_class_has_a_row_and_every_condition_a_column(page: str) -> None:
    section = page[page.index('id="grid"') :]
    section = section[: section.index("</section>")]
    rows = re.findall(r"<article.*?</article>", section, re.DOTALL)
    collection = load_collection(DATA)
    first = {}
    for sample in sorted(collection.samples, key=lambda each: each.source_id):
        first.setdefault(sample.label, sample)
    assert len(rows) == len(collection.classes) == 12
    shown = [sample for label, sample in sorted(first.items())]
    for row, sample in zip(rows, shown, strict=True):
        assert sample.source_id in row
        tiles = [base64.b64decode(text) for text in re.findall(r"base64,([^\"]+)", row)]
        assert len(tiles) == len(CONDITIONS) and row.count('class="condition"') == len(CONDITIONS)
        original, *changed = (np.asarray(Image.open(io.BytesIO(jpeg)), np.float64) for jpeg in tiles)
        image = sample.image.load().astype(np.float64)
        assert original.shape == image.shape and np.abs(original - image).mean() < 8  # JPEG at a quality of 80
        mask = sample.mask.load(*image.shape[:2])
        black = min(changed, key=lambda each: each[~mask].mean())
        assert black[~mask].mean() < 20 < image[~mask].mean()


def test_the_map_of_class_and_condition_is_called_a_density_map(page: str) -> None:
    section = page[page.index('id="classes"') :]
    assert "Accuracy density maps" in section[: section.index("</section>")]
