"""Ties between labels and attributes or backgrounds: planted ones are found, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.stats import chi2_contingency
from scipy.stats.contingency import association

import holdfast
from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.pipeline.jobs.progress import silent
from holdfast.pipeline.metadata import BACKGROUND, attribute_columns, background_clusters
from holdfast.stats.regression.ties import contingency, cramers_v, permutation_p, ties

FACTORS = ("background", "texture", "material", "colour", "brightness", "warmth")


def tied_in(context: float, seed: int, *, look: bool, n: int = 240) -> set[str]:
    name = f"diorama:train?n={n}&size=32&context={context}&colour_context=0&seed={seed}"
    photos = list(load_collection(name).samples)
    columns = {key: values for key, values in attribute_columns(photos).items() if key in FACTORS}
    if look:
        columns = {BACKGROUND: background_clusters(photos, 12, 10**6, silent)}
    table = ties([photo.label for photo in photos], columns)
    return set(table[table["tied"]]["attribute"])


def test_planted_ties_are_found_and_false_alarms_are_rare() -> None:
    assert sum("background" in tied_in(0.5, seed, look=False) for seed in range(20)) >= 19
    # 5 % of 40 worlds are 2; more than 5 have a probability below 2 %.
    assert sum(bool(tied_in(0.0, seed, look=False)) for seed in range(40)) <= 5


def test_backgrounds_that_go_with_the_label_are_found_by_their_colours() -> None:
    assert all(tied_in(0.7, seed, look=True, n=120) for seed in range(4))
    assert sum(bool(tied_in(0.0, seed, look=True, n=120)) for seed in range(4)) <= 1


def test_the_numbers_are_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 3, 400)
    columns = np.where(rng.random(400) < 0.3, rows, rng.integers(0, 4, 400))
    table = contingency(rows, columns, 3, 4)
    assert (table == pd.crosstab(rows, columns).to_numpy()).all()
    assert 0 < cramers_v(table) < association(table, method="cramer")  # corrected for chance
    weak = contingency(rows, rng.integers(0, 4, 400), 3, 4)
    assert permutation_p(weak, 4000, rng) == pytest.approx(chi2_contingency(weak, correction=False).pvalue, abs=0.04)


def test_the_command_names_the_attribute_of_a_coco_file(tmp_path: Path) -> None:
    images, annotations = [], []
    for number in range(40):
        Image.new("RGB", (24, 24), (90, 90, 90)).save(tmp_path / f"{number}.png")
        record = {"id": number, "file_name": f"{number}.png", "width": 24, "height": 24, "camera": "AB"[number % 2]}
        images.append(record | {"line": number % 3})
        annotations.append(
            {"id": number, "image_id": number, "category_id": number % 2, "bbox": [4, 4, 8, 8], "area": 64}
        )
    categories = [{"id": 0, "name": "bolt"}, {"id": 1, "name": "nut"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "parts.json").write_text(json.dumps(content))
    findings = holdfast.data_check(f"coco:{tmp_path / 'parts.json'}", ties=True).findings
    (tie,) = [finding for finding in findings if finding.kind == "tie"]
    assert tie.sentence.startswith("camera goes with the label") and "100 % of 40 images" in tie.sentence
    assert set(tie.examples) == {"A → bolt (20 of 20)", "B → nut (20 of 20)"}
    table = tmp_path / "more.csv"
    table.write_text("file_name,operator\nelsewhere.png,x\n")
    with pytest.raises(UserError, match="names an image of parts, whose first one is '0'"):
        holdfast.data_check(f"coco:{tmp_path / 'parts.json'}", attributes=str(table))
