"""A page of many images, conditions and models stays small enough to be sent around."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import cv2
import numpy as np
from made_runs import make_run

from holdfast.reports import build
from holdfast.scenarios import parse_conditions
from holdfast.store import Run

MOST = 5_000_000  # bytes


def test_240_images_under_18_conditions_by_8_models_make_a_small_page(tmp_path: Path) -> None:
    conditions = [condition.name for condition in parse_conditions("all")]
    run = make_run(
        tmp_path / "run", models=[f"timm:model_{place}" for place in range(8)], photos=20, conditions=conditions,
        classes=[f"class {place}" for place in range(12)],
    )  # fmt: skip
    rng = np.random.default_rng(0)

    def pictures(
        _: Run, source_ids: Collection[str], *, size: int = 160, only: Collection[str] = ()
    ) -> dict[tuple[str, str], bytes]:
        """As large as thumbnails of photographs: about 6 kB."""
        return {
            (source, name): cv2.imencode(".jpg", _blurred(rng, size), [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()
            for source in source_ids for name in (only or conditions)
        }  # fmt: skip

    assert len(conditions) == 18 and run.rows().num_rows == 240 * 18 * 8
    page = build([run], tmp_path / "report", resamples=50, pictures=pictures)
    assert page.stat().st_size <= MOST


def _blurred(rng: np.random.Generator, size: int) -> np.ndarray:
    noise = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 1.2)
