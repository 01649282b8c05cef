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
        ("kind", _category),  # static | generated | dynamic | attack
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

WALKS = pa.schema(
    [
        ("row_id", pa.string()),  # of the row in the one table
        ("steps", pa.int32()),  # behind the image that was kept: 0 where the original stands
        ("budget", pa.int32()),
        ("validated", pa.bool_()),
        ("stop", _category),  # budget | rejected | first_rejected | fooled | not_finite
        ("reconstruction_accepted", pa.bool_()),
        ("oracle_saw", _category),  # at the last image it judged
        ("oracle_margin", pa.float32()),  # of the image that was kept
        ("latent_distance", pa.float32()),  # root mean square, between the ends of the walk
        ("image_distance", pa.float32()),  # root mean square, 0..1, from the reconstruction
        ("largest_change", pa.float32()),  # of any channel of any pixel, 0..1, from the reconstruction
        ("perceptual_distance", pa.float32()),  # from the original, in the oracle's features
        ("colour_shift", pa.float32()),  # mean CIE76 difference from the original
        ("image", pa.string()),  # file below images/, empty where it was not kept
    ]
)
"""What only a dynamic row has."""

FRAMES = pa.schema(
    [
        ("row_id", pa.string()),  # of the perturbed row
        ("step", pa.int32()),  # 0 is the reconstruction
        ("loss", pa.float32()),  # of the model under test
        ("probability", pa.float32()),  # the model's, of the true class
        ("prediction", _category),
        ("oracle_score", pa.float32()),
        ("accepted", pa.bool_()),
        ("image", pa.string()),  # file below the run directory
    ]
)
"""A walk step by step, of the few images it is kept for."""

LATENTS = pa.schema(
    [
        ("row_id", pa.string()),  # of the perturbed row
        ("shape", pa.list_(pa.int32())),
        ("start", pa.list_(pa.float32())),  # as the encoder gave it
        ("start_quantised", pa.list_(pa.float32())),  # null where the generator does not quantise
        ("end", pa.list_(pa.float32())),  # behind the image that was kept; quantised where the generator does
    ]
)
"""The ends of validated walks, which the sparse mask is fitted to."""

ANSWERS = pa.schema(
    [
        ("row_id", pa.string()),  # of the row in the one table
        ("strict", pa.bool_()),  # right, read strictly
        ("lenient", pa.bool_()),  # right, read leniently
        ("matched", _category),  # the option it names, read leniently; null where it names none or several
        ("refusal", pa.bool_()),
        ("unmatched", pa.bool_()),  # neither an option nor a refusal
        ("options", pa.list_(pa.string())),  # in the order of the question
        ("truth_place", pa.int32()),  # of the true class among them, from 1
        ("distractor", _category),  # null where the whole list is asked
    ]
)
"""What only a question's row has."""


def row_id(key: Mapping[str, Any], *, image: str, mask: str, model: str) -> str:
    """The name of a row, known before it is computed: 32 hex digits.

    Hashes the key and what was measured (fingerprints of image, mask and model); never the run, the engine, the
    batch size, paths or the other models, so that adding a model invalidates nothing.
    """
    named = {name: key[name] for name in KEY.names}
    return fingerprint({"key": named, "image": image, "mask": mask, "model": model, "schema": SCHEMA_VERSION})[:32]
