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
        ("task", _category),  # classify | segment | question | detect
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


def original_picture(sample_id: str) -> str:
    """Return where a run of walks keeps a small copy of an original for its report."""
    return f"frames/ends/original-{fingerprint(sample_id)[:16]}.png"


def end_picture(row_id: str) -> str:
    """Return where it keeps the image at the end of a walk; ``row_id`` is that of the perturbed row."""
    return f"frames/ends/{row_id}.png"


WALK_TIMES = "times"
"""Folder of a run of walks with JSON files: ``row_id`` of a perturbed row → seconds of its steps. Times are no part of
the tables, which are the same whenever a run is made again."""

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

JOBS = pa.schema(
    [
        ("job", pa.string()),
        ("task", _category),
        ("model", _category),  # the architecture
        ("trained_on", _category),
        ("fold", pa.int32()),  # tested, so not trained on
        ("status", _category),  # ok | error
        ("error", pa.string()),
        ("epochs", pa.int32()),  # done
        ("best_epoch", pa.int32()),  # from 1; whose weights were kept
        ("validation", pa.float32()),  # accuracy or mIoU of that epoch
        ("train_images", pa.int32()),
        ("validation_images", pa.int32()),
        ("test_images", pa.int32()),
        ("left_out", pa.int32()),  # images that could not be rendered
        ("class_balance", pa.string()),  # JSON: training images of each class
        ("pieces", pa.int32()),  # into how many a batch was cut for lack of memory
        ("seed", pa.int64()),
        ("device", pa.string()),
        ("seconds", pa.float32()),
    ]
)
"""The trainings of a run, ``jobs.parquet``."""

CURVES = pa.schema(
    [
        ("job", pa.string()),
        ("model", _category),
        ("trained_on", _category),
        ("fold", pa.int32()),
        ("epoch", pa.int32()),  # from 1
        ("split", _category),  # train | validation
        ("loss", pa.float32()),
        ("accuracy", pa.float32()),  # null where segments are trained
        ("miou", pa.float32()),  # null where classes are
        ("seconds", pa.float32()),
    ]
)
"""How trainings went, ``curves/part-*.parquet``."""


SEGMENTS = pa.schema(
    [
        ("row_id", pa.string()),  # of the row in the one table
        ("class", _category),  # of the dataset, or background; only those that are in the truth or the answer
        ("intersection", pa.int64()),  # pixels of the class in both
        ("union", pa.int64()),  # in either
        ("truth", pa.int64()),
        ("predicted", pa.int64()),
        ("truth_boundary", pa.int64()),  # pixels of the class with a neighbour that is not
        ("truth_boundary_met", pa.int64()),  # of these, near the predicted boundary: recall
        ("predicted_boundary", pa.int64()),
        ("predicted_boundary_met", pa.int64()),  # of these, near the true boundary: precision
    ]
)
"""What only a segmented row has: a row a class, ``details/segments``."""

ATTRIBUTIONS = pa.schema(
    [
        ("row_id", pa.string()),  # of the row in the one table
        ("method", _category),  # as it was written: gradcam, occlusion?window=16
        ("target", _category),  # label | prediction: which answer is explained
        ("target_class", _category),
        ("layer", _category),  # that Grad-CAM looked at, else empty
        ("status", _category),  # ok | empty (a map of zeros) | skipped | error
        ("error", pa.string()),
        ("share", pa.float32()),  # of the map on the mask, 0..1
        ("area", pa.float32()),  # of the model's view that the mask covers, 0..1
        ("ratio", pa.float32()),  # share over area
        ("hit", pa.bool_()),  # the map's maximum is on the mask
        ("share_randomised", pa.float32()),  # of the same network with shuffled weights
        ("rank_correlation", pa.float32()),  # of the two maps, Spearman's
        ("structural_similarity", pa.float32()),  # of the two maps
        ("cascade", pa.list_(pa.float32())),  # rank correlations, the weights shuffled from the last layer down
        ("cascade_similarity", pa.list_(pa.float32())),  # structural similarities of the same maps
        ("picture", pa.string()),  # file below the run directory, empty where it was not kept
    ]
)
"""Where a model looked: several rows for one of the one table, one a method and target."""


def row_id(key: Mapping[str, Any], *, image: str, mask: str, model: str) -> str:
    """Return the id of a row, which is known before the row is computed: 32 hex digits.

    Hashes the key and what was measured (fingerprints of image, mask and model); never the run, the engine, the
    batch size, paths or the other models, so that adding a model invalidates nothing.
    """
    named = {name: key[name] for name in KEY.names}
    return fingerprint({"key": named, "image": image, "mask": mask, "model": model, "schema": SCHEMA_VERSION})[:32]
