"""The one table, a row per sample × condition × model, and the tables next to it.

A line declares a column: its name, its type, and what it says, which bundles and exports repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from holdfast.core.fingerprint import fingerprint

SCHEMA_VERSION = 1
_VERSION_KEY = b"holdfast_schema_version"
_KINDS = {
    "word": pa.dictionary(pa.int32(), pa.string()), "text": pa.string(), "flag": pa.bool_(), "int": pa.int32(),
    "long": pa.int64(), "float": pa.float32(), "texts": pa.list_(pa.string()), "ints": pa.list_(pa.int32()),
    "floats": pa.list_(pa.float32()),
}  # fmt: skip
MEANINGS: dict[str, dict[str, str]] = {}  # table → column → what it says, in words


def declared_schema(text: str) -> pa.Schema:
    """Return the schema that the lines after the table's name declare; note what its columns mean."""
    table, *columns = text.strip().splitlines()
    lines = [line.split(None, 2) for line in columns]
    MEANINGS.setdefault(table, {}).update({name: meaning for name, _, meaning in lines})
    return pa.schema([(name, _KINDS[kind]) for name, kind, _ in lines])


def plain_schema(columns: str) -> pa.Schema:
    """Return the schema of ``name kind, name kind``: of a table that no bundle explains."""
    pairs = [column.split() for column in columns.split(",")]
    return pa.schema([(name, _KINDS[kind]) for name, kind in pairs])


def versioned(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the version of Holdfast's tables in its metadata, which a Parquet file keeps."""
    return schema.with_metadata((schema.metadata or {}) | {_VERSION_KEY: str(SCHEMA_VERSION).encode()})


def newer_version(metadata: Mapping[bytes, bytes] | None) -> str:
    """Return why the table of a file with this metadata cannot be read, or "" if no newer Holdfast wrote it."""
    version = (metadata or {}).get(_VERSION_KEY, b"1")[:20].decode("ascii", "replace")  # 0.1 wrote none
    if version.isdecimal() and int(version) <= SCHEMA_VERSION:
        return ""
    return (
        f"was written by a newer Holdfast (table version {version!r}; this one reads up to {SCHEMA_VERSION}): update "
        "Holdfast to read it"
    )


KEY = declared_schema("""
    predictions
    task        word  what was asked: classify, segment, question, detect, multilabel or embed
    kind        word  where the image comes from: static (an image, changed by rule), generated, dynamic, attack
    dataset     word  name of the dataset
    sample_id   text  name of the image that was started from
    source_id   text  name of the source image; images of one source are not independent of each other
    split       word  part of the dataset, if it has parts
    fold        int   fold of the cross-validation, if there is one
    condition   word  what was done to the image; "original" is nothing
    variant     word  which way of doing it
    parameters  word  all settings of the condition, as JSON
    seed        long  seed of everything random
    model       word  name of the model
    trained_on  word  condition that the model was trained on in this run; empty for a model that came trained
    protocol    word  how the answer was taken: argmax is the most probable class
""")
OUTCOME = declared_schema("""
    predictions
    label                  word   the true class
    prediction             word   the model's answer among all its outputs
    correct                flag   whether that is the true class
    prediction_restricted  word   the model's answer among the dataset's classes only
    correct_restricted     flag   whether that is the true class
    confidence             float  probability of the answer among all outputs, 0 to 1
    confidence_restricted  float  probability of the answer among the dataset's classes, 0 to 1
    probability_of_label   float  probability of the true class, 0 to 1
    topk                   texts  the most probable answers, best first, five at most
    raw_text               text   what a model that talks said
    donor_id               text   name of the image whose background was pasted in
    donor_label            word   its class
    donor_unmasked         flag   true if that image had no mask, so that its own object is still in the background
    oracle                 word   name of the model or the people that judged the image
    oracle_accepted        flag   whether they still saw the true class in it
    oracle_score           float  their probability of the true class, 0 to 1
    status                 word   ok, error, skipped, pending or rejected; only ok rows have an answer that counts
    error                  text   why not
    image_sha256  text  hash of the pixels as the model saw them; equal if the images are; none with --fast
""")
BOOKKEEPING = declared_schema("""
    predictions
    row_id          text  name of the row, a hash of what was measured
    run_id          word  name of the run's folder
    schema_version  int   version of these columns
""")
PREDICTIONS = pa.schema([*KEY, *OUTCOME, *BOOKKEEPING])

SAMPLES = declared_schema("""
    samples
    sample_id          text  name of the image
    source_id          text  name of the source image
    label              word  its class
    split              word  part of the dataset
    fold               int   fold of the cross-validation
    kind               word  static or generated
    condition          word  "original", or what was done to it before this run
    image_fingerprint  text  hash of the file or the pixels; empty if the image cannot be read
    mask_fingerprint   text  hash of the mask; empty if there is none
    problem            text  why the image could not be used
    licence            word  licence of the image, if the dataset says
    attributes         text  whatever else the dataset says of it, as JSON
""")
WALKS = declared_schema("""
    walks
    row_id                   text   of the row in predictions
    steps                    int    steps behind the image that was kept; 0 if the original is kept
    budget                   int    steps that were allowed
    validated                flag   whether the oracle accepted the kept image
    stop                     word   why it ended: budget, rejected, first_rejected, fooled, not_finite
    reconstruction_accepted  flag   whether the oracle accepts the image after encoding and decoding alone
    oracle_saw               word   what the oracle saw in the last image that it judged
    oracle_margin            float  how sure it was of the kept image, over the next class
    latent_distance          float  root mean square between the ends of the walk
    image_distance           float  root mean square from the reconstruction, 0 to 1
    largest_change           float  of any channel of any pixel, 0 to 1
    perceptual_distance      float  from the original, in the oracle's features
    colour_shift             float  mean CIE76 difference from the original
    image                    text   file of the kept image below images/, empty if it was not kept
""")
FRAMES = declared_schema("""
    frames
    row_id        text   of the row in predictions
    step          int    0 is the reconstruction
    loss          float  of the model under test
    probability   float  the model's, of the true class
    prediction    word   the model's answer
    oracle_score  float  the oracle's probability of the true class
    accepted      flag   whether the oracle accepts the image
    image         text   file of the image
""")
LATENTS = declared_schema("""
    latents
    row_id           text    of the row in predictions
    shape            ints    of the three arrays
    start            floats  latent of the image, as the encoder gave it, flattened
    start_quantised  floats  the same after quantisation, if the generator quantises
    end              floats  latent behind the kept image
""")
ANSWERS = declared_schema("""
    answers
    row_id       text   of the row in predictions
    strict       flag   whether the answer is right, read strictly
    lenient      flag   whether it is right, read leniently
    matched      word   the option that it names
    refusal      flag   whether the model refused
    unmatched    flag   whether it is neither an option nor a refusal
    options      texts  the options, in the order of the question
    truth_place  int    place of the true class among them, from 1
    distractor   word   the wrong option of two
""")
EMBEDDINGS = declared_schema("""
    embeddings
    row_id  text    of the row in predictions
    values  floats  the embedding of the image
""")
SEGMENTS = declared_schema("""
    segments
    row_id                  text  of the row in predictions
    class                   word  class of the dataset, or background
    intersection            long  pixels of the class in truth and answer
    union                   long  pixels of the class in either
    truth                   long  pixels of the class in the truth
    predicted               long  pixels of the class in the answer
    truth_boundary          long  pixels of the true boundary
    truth_boundary_met      long  of these, near the predicted boundary
    predicted_boundary      long  pixels of the predicted boundary
    predicted_boundary_met  long  of these, near the true boundary
""")
ATTRIBUTIONS = declared_schema("""
    attributions
    row_id                 text    of the row in predictions
    method                 word    how the map was made
    target                 word    which answer is explained: label or prediction
    target_class           word    its class
    layer                  word    layer that Grad-CAM looked at
    status                 word    ok, empty (a map of zeros), skipped or error
    error                  text    why not
    share                  float   of the map that is on the object, 0 to 1
    area                   float   of the model's view that the object covers, 0 to 1
    ratio                  float   share over area
    hit                    flag    whether the map's maximum is on the object
    share_randomised       float   share of the same network with shuffled weights
    rank_correlation       float   of the two maps, Spearman's
    structural_similarity  float   of the two maps
    cascade                floats  rank correlations with the weights shuffled from the last layer down
    cascade_similarity     floats  structural similarities of the same maps
    picture                text    file of the map over its image
""")
JOBS = declared_schema("""
    jobs
    job                text   name of the training
    task               word   classify or segment
    model              word   the architecture
    trained_on         word   condition that it was trained on
    fold               int    fold that it was tested on, so not trained on
    status             word   ok or error
    error              text   why not
    epochs             int    epochs done
    best_epoch         int    epoch whose weights were kept, from 1
    validation         float  accuracy or mean IoU of that epoch
    train_images       int    images trained on
    validation_images  int    images that the best epoch was chosen on
    test_images        int    images tested on
    left_out           int    images that could not be made
    class_balance      text   training images of each class, as JSON
    pieces             int    pieces that a batch was cut into for lack of memory
    seed               long   seed of the training
    device             text   where it ran
    seconds            float  how long it took
""")
CURVES = declared_schema("""
    curves
    job         text   name of the training
    model       word   the architecture
    trained_on  word   condition that it was trained on
    fold        int    fold that it was tested on
    epoch       int    from 1
    split       word   train or validation
    loss        float  mean loss
    accuracy    float  share of right answers; missing if segments are trained
    miou        float  mean IoU; missing if classes are trained
    seconds     float  how long the epoch took
""")

_DETECTOR_KEY = """
    row_id         text   of the image's row in the one table
    sample_id      text   name of the image
    source_id      text   name of the source image: the cluster in every paired statistic
    condition      word   what was done to the image; "original" is nothing
    variant        word   which way of doing it
    parameters     word   all settings of the condition, as JSON
    seed           long   seed of everything random
    model          word   name of the detector
    donor_id       text   name of the image whose background was pasted in, else null
"""

_BOX = """
    x1             float  left edge of the box in pixels of the image as shown
    y1             float  upper edge
    x2             float  right edge
    y2             float  lower edge
"""

OBJECTS = declared_schema(f"""
    objects{_DETECTOR_KEY.rstrip()}
    object_id      text   name of the object, unique in its image, the same under every condition
    label          word   its class{_BOX.rstrip()}
    area           float  of the mask if there is one, else of the box, in the image as shown
    crowd          flag   a group under one box: not counted, and predictions on it are no false alarms
    size           word   small, medium or large
    target         flag   the object that the condition is about; false if it is about all of them
    mask_made      flag   an annotator made the mask from the box
    status         word   ok, removed, unknown_class, invalid, error or skipped
    error          text   why not
    found          flag   a prediction of its class at the threshold overlaps it by half or more; null: not asked
    iou            float  intersection over union with that prediction, else 0
    score          float  of that prediction, else 0
    mask_iou       float  of the masks, if the detector gives some and the object was found; else null
    predicted      word   class of the prediction at the threshold that overlaps it most, by half or more, or empty
""")
"""A row per true object × condition × detector, ``details/objects``.

``removed``: the condition took the object out; ``found`` then says that the detector still sees it. ``unknown_class``:
the detector has no such output. ``invalid``: the annotation is unusable, ``error`` says why. ``error`` and ``skipped``:
there is no image or no answer. Recall counts rows that are ``ok`` and no crowd.
"""

IMAGES = declared_schema(f"""
    images{_DETECTOR_KEY.rstrip()}
    n_objects      int    objects in the image as shown: those that are ok and no crowd
    n_predictions  int    predictions at the threshold, of the dataset's classes
    false_alarms   int    of these, those that match no object and are on no crowd
    threshold      float  of the score, frozen in the run
    status         word   ok, error or skipped
    error          text   why not
""")
"""A row per image × condition × detector, ``details/images``."""

DETECTIONS = declared_schema(f"""
    detections{_DETECTOR_KEY.rstrip()}{_BOX.rstrip()}
    score          float  of the prediction, 0 to 1
    label          word   the class that was predicted
    mask_iou       float  of its mask with the object of its class that its box overlaps most; null without masks
""")
"""A row per prediction of one of the dataset's classes, ``details/detections``, at any score of LEAST_SCORE or more."""


def original_picture(sample_id: str) -> str:
    """Return where a run of walks keeps a small copy of an original for its report."""
    return f"frames/ends/original-{fingerprint(sample_id)[:16]}.png"


def end_picture(row_id: str) -> str:
    """Return where it keeps the image at the end of a walk; ``row_id`` is that of the perturbed row."""
    return f"frames/ends/{row_id}.png"


WALK_TIMES = "times"
"""Folder of a run of walks with JSON files: ``row_id`` of a perturbed row → seconds of its steps. Times are not part of
the tables, which are the same whenever a run is made again."""


def row_id(key: Mapping[str, Any], *, image: str, mask: str, model: str) -> str:
    """Return the id of a row, which is known before the row is computed: 32 hex digits."""
    # Hashes the key and what was measured (fingerprints of image, mask and model); never the run, the engine, the batch
    # size, paths or the other models, so that adding a model invalidates nothing.
    named = {name: key[name] for name in KEY.names}
    return fingerprint({"key": named, "image": image, "mask": mask, "model": model, "schema": SCHEMA_VERSION})[:32]


CLASSIFY, SEGMENT, QUESTION, DETECT, MULTILABEL = "classify", "segment", "question", "detect", "multilabel"
EMBED = "embed"
"""Values of the column ``task``; ``holdfast.registry.tasks`` has the objects, and those of other packages."""
