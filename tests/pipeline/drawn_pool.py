"""A pool of drawn scenes, as ``holdfast generate`` would write it: what surrounds each object is known."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import holdfast
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.data import load_collection
from holdfast.data.writers import encode_image
from holdfast.diorama.vocabulary import BACKGROUNDS

SURROGATES = ("embedded:vit_rho95", "embedded:mobilenet_rho95")
TARGET = "embedded:resnet_rho95_strong"
ORACLE = "classifier:embedded:resnet_rho0"


def make_pool(folder: Path, scenes: int) -> Path:
    """Scenes whose background is anything but tied to their class."""
    rows = []
    for sample in load_collection(f"diorama:test?n={scenes}&context=0").samples:
        nuisance = sample.attributes["background"]
        prompt = f"a {sample.label} {BACKGROUNDS[nuisance]}"
        prompt_id = fingerprint([prompt, sample.label, "background", nuisance])[:16]
        repeat = sum(row["prompt_id"] == prompt_id for row in rows)
        data = encode_image(sample.image.load())
        path = f"background/{sample.label}/{prompt_id}-{repeat}.png"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        rows.append(
            {
                "path": path, "label": sample.label, "sample_id": path.removesuffix(".png"), "source_id": prompt_id,
                "kind": "generated", "condition": "background", "nuisance": nuisance, "prompt": prompt,
                "prompt_id": prompt_id, "repeat": repeat, "seed": repeat, "generator": "embedded:text_to_image",
                "generator_fingerprint": "drawn", "published_sha256": bytes_sha256(data), "licence": "Apache-2.0",
            }
        )  # fmt: skip
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "manifest.parquet")
    pacsv.write_csv(table, folder / "manifest.csv")
    (folder / "spec.json").write_text(json.dumps({"verb": "generate", "generator": "embedded:text_to_image"}))
    return folder


def make_hard(folder: Path, scenes: int = 240) -> Path:
    """``folder/pool`` and the hard set that two models leave of it, ``folder/hard``."""
    pool = make_pool(folder / "pool", scenes)
    holdfast.mine(
        pool, surrogates=SURROGATES, targets=[TARGET], oracle=ORACLE, out=folder / "hard", at_least=2, use=2, again=0,
        least_images=1, device="cpu",
    )  # fmt: skip
    return folder / "hard"
