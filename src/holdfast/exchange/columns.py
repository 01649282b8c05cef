"""The tables of a bundle, what their columns mean, and the texts that explain them to readers without Holdfast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.core import schema


@dataclass(frozen=True)
class TableKind:
    """One kind of table.

    Attributes:
        place: a folder of part files, or one file.
        schema: its columns.
        about: what a row is.
        meanings: column → what it says, in words.
        json: columns that hold JSON.
        files: columns that name a file below the folder given, ``''`` for the run's own.
    """

    place: str
    schema: pa.Schema
    about: str
    meanings: dict[str, str]
    json: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Return whether the table is a folder of parts."""
        return not self.place.endswith(".parquet")


def _meanings(text: str) -> dict[str, str]:
    pairs = (line.split(None, 1) for line in text.strip().splitlines())
    return {name: meaning.strip() for name, meaning in pairs}


_PREDICTIONS = _meanings("""
    task                   what was asked: classify, segment or question
    kind                   where the picture comes from: static (a photo, changed by rule), generated, dynamic, attack
    dataset                name of the dataset
    sample_id              name of the picture that was started from
    source_id              name of the photo behind it; pictures of one photo are not independent of each other
    split                  part of the dataset, if it has parts
    fold                   fold of the cross-validation, if there is one
    condition              what was done to the picture; "original" is nothing
    variant                which way of doing it
    parameters             all settings of the condition, as JSON
    seed                   seed of everything random
    model                  name of the model
    trained_on             condition that the model was trained on in this run; empty for a model that came trained
    protocol               how the answer was taken: argmax is the most probable class
    label                  the true class
    prediction             the model's answer among all its outputs
    correct                whether that is the true class
    prediction_restricted  the model's answer among the dataset's classes only
    correct_restricted     whether that is the true class
    confidence             probability of the answer among all outputs, 0 to 1
    confidence_restricted  probability of the answer among the dataset's classes, 0 to 1
    probability_of_label   probability of the true class, 0 to 1
    topk                   the most probable answers, best first, five at most
    raw_text               what a model that talks said
    donor_id               name of the picture whose background was pasted in
    donor_label            its class
    donor_unmasked         true where that picture had no mask, so that its own object is still in the background
    oracle                 name of the model or the people that judged the picture
    oracle_accepted        whether they still saw the true class in it
    oracle_score           their probability of the true class, 0 to 1
    status                 ok, error, skipped, pending or rejected; only ok rows have an answer that counts
    error                  why not
    image_sha256           hash of the pixels as the model saw them; equal where the pictures are; none with --fast
    row_id                 name of the row, a hash of what was measured
    run_id                 name of the run's folder
    schema_version         version of these columns
""")
_SAMPLES = _meanings("""
    sample_id          name of the picture
    source_id          name of the photo behind it
    label              its class
    split              part of the dataset
    fold               fold of the cross-validation
    kind               static or generated
    condition          "original", or what was done to it before this run
    image_fingerprint  hash of the file or the pixels; empty where the picture cannot be read
    mask_fingerprint   hash of the mask; empty where there is none
    problem            why the picture could not be used
    licence            licence of the picture, where the dataset says
    attributes         whatever else the dataset says of it, as JSON
""")
_WALKS = _meanings("""
    row_id                   of the row in predictions
    steps                    steps behind the picture that was kept; 0 where the original stands
    budget                   steps that were allowed
    validated                whether the oracle accepted the kept picture
    stop                     why it ended: budget, rejected, first_rejected, fooled, not_finite
    reconstruction_accepted  whether the oracle accepts the picture after encoding and decoding alone
    oracle_saw               what the oracle saw in the last picture that it judged
    oracle_margin            how sure it was of the kept picture, over the next class
    latent_distance          root mean square between the ends of the walk
    image_distance           root mean square from the reconstruction, 0 to 1
    largest_change           of any channel of any pixel, 0 to 1
    perceptual_distance      from the original, in the oracle's features
    colour_shift             mean CIE76 difference from the original
    image                    file of the kept picture below images/, empty where it was not kept
""")
_FRAMES = _meanings("""
    row_id        of the row in predictions
    step          0 is the reconstruction
    loss          of the model under test
    probability   the model's, of the true class
    prediction    the model's answer
    oracle_score  the oracle's probability of the true class
    accepted      whether the oracle accepts the picture
    image         file of the picture
""")
_LATENTS = _meanings("""
    row_id           of the row in predictions
    shape            of the three arrays
    start            latent of the photo, as the encoder gave it, flattened
    start_quantised  the same after quantisation, where the generator quantises
    end              latent behind the kept picture
""")
_ANSWERS = _meanings("""
    row_id       of the row in predictions
    strict       whether the answer is right, read strictly
    lenient      whether it is right, read leniently
    matched      the option that it names
    refusal      whether the model refused
    unmatched    whether it is neither an option nor a refusal
    options      the options, in the order of the question
    truth_place  place of the true class among them, from 1
    distractor   the wrong option of two
""")
_SEGMENTS = _meanings("""
    row_id                  of the row in predictions
    class                   class of the dataset, or background
    intersection            pixels of the class in truth and answer
    union                   pixels of the class in either
    truth                   pixels of the class in the truth
    predicted               pixels of the class in the answer
    truth_boundary          pixels of the true boundary
    truth_boundary_met      of these, near the predicted boundary
    predicted_boundary      pixels of the predicted boundary
    predicted_boundary_met  of these, near the true boundary
""")
_ATTRIBUTIONS = _meanings("""
    row_id                 of the row in predictions
    method                 how the map was made
    target                 which answer is explained: label or prediction
    target_class           its class
    layer                  layer that Grad-CAM looked at
    status                 ok, empty (a map of zeros), skipped or error
    error                  why not
    share                  of the map that lies on the object, 0 to 1
    area                   of the model's view that the object covers, 0 to 1
    ratio                  share over area
    hit                    whether the map's maximum is on the object
    share_randomised       share of the same network with shuffled weights
    rank_correlation       of the two maps, Spearman's
    structural_similarity  of the two maps
    cascade                rank correlations with the weights shuffled from the last layer down
    cascade_similarity     structural similarities of the same maps
    picture                file of the map over its picture
""")
_JOBS = _meanings("""
    job                name of the training
    task               classify or segment
    model              the architecture
    trained_on         condition that it was trained on
    fold               fold that it was tested on, so not trained on
    status             ok or error
    error              why not
    epochs             epochs done
    best_epoch         epoch whose weights were kept, from 1
    validation         accuracy or mean IoU of that epoch
    train_images       pictures trained on
    validation_images  pictures that the best epoch was chosen on
    test_images        pictures tested on
    left_out           pictures that could not be made
    class_balance      training pictures of each class, as JSON
    pieces             pieces that a batch was cut into for lack of memory
    seed               seed of the training
    device             where it ran
    seconds            how long it took
""")
_CURVES = _meanings("""
    job         name of the training
    model       the architecture
    trained_on  condition that it was trained on
    fold        fold that it was tested on
    epoch       from 1
    split       train or validation
    loss        mean loss
    accuracy    share of right answers; missing where segments are trained
    miou        mean IoU; missing where classes are trained
    seconds     how long the epoch took
""")

TABLES = (
    TableKind("predictions", schema.PREDICTIONS, "The one table: a row for each picture, condition and model.",
         _PREDICTIONS, json=("parameters",)),
    TableKind("samples.parquet", schema.SAMPLES, "A row for each picture of the dataset.", _SAMPLES,
              json=("attributes",)),
    TableKind("details/walks", schema.WALKS, "A row for each latent walk.", _WALKS, files=("image",)),
    TableKind("details/frames", schema.FRAMES, "A row for each step of the walks that were kept step by step.", _FRAMES,
         files=("image",)),
    TableKind("details/latents", schema.LATENTS, "A row for each validated walk whose latents were kept.", _LATENTS),
    TableKind("details/answers", schema.ANSWERS, "A row for each question that a model was asked.", _ANSWERS),
    TableKind("details/segments", schema.SEGMENTS, "A row for each class in a segmented picture.", _SEGMENTS),
    TableKind("details/attributions", schema.ATTRIBUTIONS, "A row for each map of where a model looked.", _ATTRIBUTIONS,
         files=("picture",)),
    TableKind("jobs.parquet", schema.JOBS, "A row for each training of the run.", _JOBS, json=("class_balance",)),
    TableKind("curves", schema.CURVES, "A row for each epoch and split of the trainings.", _CURVES),
)  # fmt: skip


def in_words() -> str:
    """Return what every column of every table means, for people who have nothing but the files."""
    lines = ["The tables and their columns", ""]
    for kind in TABLES:
        lines += [kind.place + ("/part-*.parquet" if kind.is_folder else ""), f"  {kind.about}", ""]
        width = max(len(name) for name in kind.meanings)
        for field in kind.schema:
            is_word = pa.types.is_dictionary(field.type) or pa.types.is_string(field.type)
            what = "text" if is_word else str(field.type)
            lines.append(f"  {field.name:<{width}}  {kind.meanings[field.name]} ({what})")
        lines.append("")
    return "\n".join(lines)


_WORDS = {
    "predictions": "rows of the one table",
    "samples": "pictures of the dataset",
    "jobs": "trainings",
    "pictures": "pictures",
    "models": "trained models",
}


def readme(spec: Mapping[str, Any], counts: Mapping[str, int], name: str, *, report: bool) -> str:
    """Return README.txt: what the files are, how to read them with and without Holdfast, and whose they are."""
    title = f"Results of the run {name!r}: what vision models hold on to"
    held = [f"  {number:>9,}  {_WORDS.get(what, 'rows of ' + what)}" for what, number in sorted(counts.items())]
    first = ["  report/index.html       the report: open it in any browser; it needs no network"] if report else []
    return "\n".join([
        title, "=" * len(title), "",
        f"Verb: {spec.get('verb', '')}. Dataset: {spec.get('dataset', '')}. Seed: {spec.get('seed', '')}.", "",
        *held, "",
        "What is here", "------------",
        *first,
        "  tables/*.csv            the summary tables, as text",
        "  predictions/*.parquet   every answer: a row for each picture, condition and model",
        "  samples.parquet         the pictures, with their hashes",
        "  details/, curves/, jobs.parquet   what else there is to some rows",
        "  columns.txt             what every column of every table means",
        "  spec.json               what was asked for",
        "  environment.json        machine, versions and command",
        "  images/, frames/, generated/, models/   pictures and trained models, where they were asked for",
        "  manifest.json           size and SHA-256 of every other file, and the versions of all formats", "",
        "To read it without Holdfast", "---------------------------",
        "The archive is a ZIP file, tables are Apache Parquet and CSV, texts are UTF-8, settings are JSON,",
        "weights are safetensors. For example in Python:", "",
        "  import pandas",
        '  rows = pandas.read_parquet("predictions")',
        '  rows = rows[rows["status"] == "ok"]',
        '  print(rows.groupby(["model", "condition"], observed=True)["correct"].mean())', "",
        "or in SQL with DuckDB:", "",
        "  select model, condition, avg(correct::int) from 'predictions/*.parquet'",
        "  where status = 'ok' group by all;", "",
        "To read it with Holdfast", "------------------------",
        "  holdfast open THIS.zip --out FOLDER    checks everything, then writes a run directory",
        "  holdfast report FOLDER                 makes the report anew from the rows", "",
        "What was left out", "-----------------",
        "The photos themselves. Paths of the machine, names of its users and addresses of servers: a path is cut",
        "to its last name.", "",
        "Licence", "-------",
        "The numbers are the submitter's. Pictures in the report and in the archive stay under the licence of their",
        "dataset: see the column licence of samples.parquet. Holdfast itself is under Apache-2.0.", "",
    ])  # fmt: skip
