"""The one table: a row per sample × condition × model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from holdfast.core.fingerprint import fingerprint

SCHEMA_VERSION = 1

_category = pa.dictionary(pa.int32(), pa.string())

KEY = pa.schema(
    [
        ("task", _category),  # classify | segment | question
        ("kind", _category),  # static | generated | dynamic
        ("dataset", _category),
        ("sample_id", pa.string()),
        ("source_id", pa.string()),
        ("split", _category),
        ("fold", pa.int32()),
        ("condition", _category),
        ("variant", _category),
        ("parameters", _category),  # canonical JSON
        ("seed", pa.int64()),
        ("model", _category),
        ("trained_on", _category),
        ("protocol", _category),  # argmax, two_way:truth_first, full_list
    ]
)

OUTCOME = pa.schema(
    [
        ("label", _category),
        ("prediction", _category),
        ("correct", pa.bool_()),
        ("prediction_restricted", _category),
        ("correct_restricted", pa.bool_()),
        ("confidence", pa.float32()),
        ("confidence_restricted", pa.float32()),
        ("probability_of_label", pa.float32()),
        ("topk", pa.list_(pa.string())),
        ("raw_text", pa.string()),
        ("donor_id", pa.string()),  # whose background it is: the second cluster of pasted scenes
        ("donor_label", _category),
        ("donor_unmasked", pa.bool_()),  # it had no mask, so its own object is still in the scene
        ("oracle", _category),
        ("oracle_accepted", pa.bool_()),
        ("oracle_score", pa.float32()),
        ("status", _category),  # ok | error | skipped | pending | rejected
        ("error", pa.string()),
        ("image_sha256", pa.string()),  # of the rendered pixels as the models saw them
    ]
)

BOOKKEEPING = pa.schema([("row_id", pa.string()), ("run_id", _category), ("schema_version", pa.int32())])

PREDICTIONS = pa.schema([*KEY, *OUTCOME, *BOOKKEEPING])

SAMPLES = pa.schema(
    [
        ("sample_id", pa.string()),
        ("source_id", pa.string()),
        ("label", _category),
        ("split", _category),
        ("fold", pa.int32()),
        ("kind", _category),
        ("condition", _category),
        ("image_fingerprint", pa.string()),  # empty where the image cannot be read
        ("mask_fingerprint", pa.string()),  # empty where there is no mask
        ("problem", pa.string()),
        ("licence", _category),
        ("attributes", pa.string()),  # JSON
    ]
)


def row_id(key: Mapping[str, Any], *, image: str, mask: str, model: str) -> str:
    """The name of a row, known before it is computed: 32 hex digits.

    Hashes the key and what was measured (fingerprints of image, mask and model); never the run, the engine, the
    batch size, paths or the other models, so that adding a model invalidates nothing.
    """
    named = {name: key[name] for name in KEY.names}
    return fingerprint({"key": named, "image": image, "mask": mask, "model": model, "schema": SCHEMA_VERSION})[:32]
