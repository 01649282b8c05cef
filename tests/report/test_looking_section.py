"""The section on where models look says what its tables say, whatever they are called."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from holdfast.data.writers import encode_image
from holdfast.reports.attribution.section import looking, method_name
from holdfast.reports.page.parts import Front, Gallery, answer
from holdfast.reports.page.tables import Table
from holdfast.reports.page.writer import write_page

HOSTILE = "<script>alert(1)</script>"


def frame(models: list[str], *, alike: float | None, share: float = 0.6, status: str = "ok") -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for place, model in enumerate(models):
        for photo in range(12):
            for condition in ("original", "blur_background", HOSTILE):
                rows.append({  # noqa: PERF401  # noqa: PERF401
                    "row_id": f"{place}-{photo}-{condition}", "method": "gradcam", "target": "label", "model": model,
                    "trained_on": "", "condition": condition, "label": HOSTILE, "source_id": f"p{photo}",
                    "sample_id": f"p{photo}", "status": status, "error": None if status == "ok" else HOSTILE,
                    "share": share * (1 - 0.2 * place) if status == "ok" else np.nan, "area": 0.3, "hit": True,
                    "correct": condition == "original" or bool(rng.random() > 0.3 * place), "prediction": HOSTILE,
                    "rank_correlation": alike, "structural_similarity": alike, "share_randomised": 0.3,
                    "picture": "", "folder": ".", "layer": "", "target_class": "",
                })  # fmt: skip
    return pd.DataFrame(rows)


def test_maps_that_do_not_change_are_called_out() -> None:
    same = looking(frame(["a", "b"], alike=0.9), resamples=50, seed=0)
    assert "hardly change when the weights are shuffled" in same.lead[-1] and "a by Grad-CAM" in same.lead[-1]
    other = looking(frame(["a", "b"], alike=0.1), resamples=50, seed=0)
    assert "With shuffled weights the maps change" in other.lead[-1] and "0.10" in other.lead[-1]
    unknown = looking(frame(["a"], alike=None), resamples=50, seed=0)
    assert "was not checked" in unknown.lead[-1]


def test_findings_name_the_most_and_the_least() -> None:
    section = looking(frame(["a", "b", "c"], alike=None), resamples=50, seed=0)
    assert "a 60.0 %" in section.lead[1] and "c 36.0 %" in section.lead[1] and "2.00 times" in section.lead[1]
    tables = {part.name: part for part in section.parts if isinstance(part, Table)}
    assert list(tables["looking"].frame["model"])[:3] == ["a", "a", "a"]
    assert "method" not in [column.key for column in tables["looking"].columns]
    assert method_name("gradcam?layer=layer3") == "Grad-CAM (layer=layer3)"


@pytest.mark.parametrize("status", ["ok", "empty"])
def test_hostile_names_and_files_outside_the_run(status: str, tmp_path) -> None:
    (tmp_path / "run").mkdir()
    jpeg = encode_image(np.full((8, 8, 3), 77, np.uint8), format="jpeg", quality=90)
    (tmp_path / "secret.jpg").write_bytes(jpeg)
    (tmp_path / "run" / "own.jpg").write_bytes(jpeg)
    rows = frame([HOSTILE, "b"], alike=0.1, status=status).assign(picture="../secret.jpg", folder=str(tmp_path / "run"))
    section = looking(rows, resamples=20, seed=0)
    assert not [part for part in section.parts if isinstance(part, Gallery)]
    inside = looking(rows.assign(picture="own.jpg"), resamples=20, seed=0)
    assert [part for part in inside.parts if isinstance(part, Gallery)] or status == "empty"
    front = Front(HOSTILE, answer(HOSTILE), [], HOSTILE)
    page = write_page(front, [inside], tmp_path / "page", subject=HOSTILE, run_names="")
    assert HOSTILE not in page.read_text()
