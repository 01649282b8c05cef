"""Charts and photos of a dossier, written beside it."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.types import ORIGINAL
from holdfast.dossier.document import DossierPicture
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.results import Results
from holdfast.stats.core.reduce import Outcome


def chart(results: Results, folder: Path, name: str, caption: str, outcome: Outcome) -> list[DossierPicture]:
    """Return a chart of the report as a picture; nothing where the run does not allow it."""
    try:
        results.plot(name, outcome=outcome).save(folder / f"{name}.png")
    except HoldfastError:
        return []
    return [DossierPicture(f"{name}.png", caption, f"{caption}: the chart shows the numbers of the tables above.")]


def flips(results: Results, folder: Path, outcome: Outcome) -> list[DossierPicture]:
    """Return up to three photos whose answer was right and turned wrong when only the background changed."""
    suffix = "_restricted" if outcome == "restricted" else ""
    answer, hit = f"prediction{suffix}", f"correct{suffix}"
    columns = ["model", "condition", "sample_id", "source_id", "label", answer, hit, "status"]
    rows = results.run.rows(columns).to_pandas().rename(columns={answer: "prediction", hit: "correct"})
    rows = rows[rows["status"] == "ok"]
    right = rows[(rows["condition"] == ORIGINAL) & rows["correct"].astype(bool)]
    wrong = rows[(rows["condition"] == "random_background") & ~rows["correct"].astype(bool)]
    pairs = right.merge(wrong, on=["model", "source_id"], suffixes=("", "_after")).drop_duplicates("source_id").head(3)
    images = thumbnails(results.run, set(pairs["source_id"]), size=400)
    blocks: list[DossierPicture] = []
    for number, row in enumerate(pairs.to_dict("records"), start=1):
        before = images.get((row["sample_id"], ORIGINAL))
        after = images.get((row["sample_id_after"], "random_background"))
        if before is None or after is None:
            continue
        (folder / f"photo-{number}.jpg").write_bytes(_side_by_side(before, after))
        caption = (
            f"{row['label']}: {row['model']} answers {row['prediction']} before its own background (left) and "
            f"{row['prediction_after']} before the background of another class (right)"
        )
        blocks.append(DossierPicture(f"photo-{number}.jpg", caption, caption, width=60))
    return blocks


def _side_by_side(first: bytes, second: bytes) -> bytes:
    """Return two JPEGs of one size as one."""
    pictures = [cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) for data in (first, second)]
    return bytes(cv2.imencode(".jpg", cv2.hconcat([picture for picture in pictures if picture is not None]))[1])
