"""A pool on disk: images in ImageNet-D's folders, their rows, and the manifest the data readers open."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.files import write_atomic
from holdfast.data.labels import read_label_file
from holdfast.data.nuisances import Category
from holdfast.pipeline.files import write_csv
from holdfast.pipeline.generate.plan import label_rows
from holdfast.store import Parts, write_table

MANIFEST = pa.schema(
    [
        ("path", pa.string()),
        ("label", pa.string()),  # the category
        ("sample_id", pa.string()),
        ("source_id", pa.string()),  # the prompt: images of one prompt are one cluster
        ("kind", pa.string()),  # generated
        ("condition", pa.string()),  # background | texture | material
        ("nuisance", pa.string()),
        ("prompt", pa.string()),
        ("prompt_id", pa.string()),  # of the prompt's text, category and nuisance
        ("repeat", pa.int32()),  # which of the prompt's images
        ("seed", pa.int64()),
        ("generator", pa.string()),
        ("generator_fingerprint", pa.string()),
        ("height", pa.int32()),
        ("width", pa.int32()),
        ("seconds", pa.float32()),  # its share of its batch's time
        ("made_at", pa.string()),  # UTC
        ("attempt", pa.int32()),  # 1 where the first image was unusable
        ("cut_words", pa.string()),  # of the prompt, which the generator did not read
        ("published_sha256", pa.string()),  # of the file
        ("licence", pa.string()),
    ]
)
POOL_ROWS = pa.schema([*MANIFEST, ("status", pa.string()), ("error", pa.string()), ("row_id", pa.string())])


class GeneratedPool:
    """The folder that ``generate`` writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = Parts(folder / "manifest", POOL_ROWS)

    def drop_lost(self) -> None:
        """Forget images whose file is gone, with their failed attempts: they are made again."""
        rows = self.parts.rows(["row_id", "prompt_id", "repeat", "status", "path"]).to_pylist()
        lost = {
            (row["prompt_id"], row["repeat"])
            for row in rows
            if row["status"] == "ok" and not (self.folder / row["path"]).is_file()
        }
        self.parts.drop_ids([row["row_id"] for row in rows if (row["prompt_id"], row["repeat"]) in lost])

    def finish(self, categories: Sequence[Category]) -> None:
        """Write the manifest, the list of failures, and the label file where the categories have keys."""
        table = self.parts.rows().sort_by([("sample_id", "ascending"), ("attempt", "ascending")])
        is_ok = pc.equal(table["status"], "ok")
        images = table.filter(is_ok).select(MANIFEST.names)
        write_table(self.folder / "manifest.parquet", images)
        write_csv(self.folder / "manifest.csv", images)
        failed = table.filter(pc.invert(is_ok)).drop_columns(["row_id", "path", "height", "width", "published_sha256"])
        if failed.num_rows:
            write_csv(self.folder / "failed.csv", failed)
        else:
            (self.folder / "failed.csv").unlink(missing_ok=True)
        labels = label_rows(self._with_earlier(categories))
        if labels:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(labels[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(labels)
            write_atomic(self.folder / "labels.csv", text.getvalue().encode())

    def _with_earlier(self, categories: Sequence[Category]) -> list[Category]:
        """Return the categories and those of earlier lists, whose images are still there."""
        file = self.folder / "labels.csv"
        keys = read_label_file(file) if file.is_file() else {}
        now = {category.name for category in categories}
        return [*(Category(name, class_keys) for name, class_keys in keys.items() if name not in now), *categories]
