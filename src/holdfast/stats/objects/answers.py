"""The tables of a run of detectors as frames and arrays: images, true objects, and predictions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.lazy import pd
from holdfast.core.schema import PREDICTIONS
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import coded, named_conditions
from holdfast.stats.core.bootstrap import Codes, Floats
from holdfast.stats.objects.matching import MatchTable, PredictedBoxes, TrueBoxes, match

DETECT = "detect"  # The task of such rows in the one table

_WORDS = ("model", "condition", "variant", "parameters", "status", "label", "predicted", "size")


@dataclass(frozen=True)
class DetectorAnswers:
    """What detectors answered.

    ``pictures``: a row per image × condition × model that was answered, with the columns of ``core.schema.IMAGES``;
    ``condition`` is the condition's name, ``row_id`` is unique. Sorted by model, condition, source and image.
    ``objects``: a row per object of these images, with the columns of ``core.schema.OBJECTS``; ``picture`` is the
    place of its image, ``asked``: whether the detector was asked about it, ``wrong_class``: another class was seen in
    its place. ``failed``: images without an answer. guess_picture, guess_label: (predictions,) places of images,
    codes into ``labels``; sorted by image.
    """

    pictures: pd.DataFrame
    objects: pd.DataFrame
    failed: pd.DataFrame
    guess_picture: Codes
    guess_label: Codes
    guess_corners: Floats  # (predictions, 4)
    guess_score: Floats  # (predictions,)
    labels: list[str]  # classes of the dataset, sorted

    @cached_property
    def models(self) -> list[str]:
        """Return the names of the models, sorted."""
        return sorted(self.pictures["model"].unique())

    @cached_property
    def conditions(self) -> list[str]:
        """Return the names of the conditions, the original first."""
        return sorted(self.pictures["condition"].unique(), key=lambda name: (name != ORIGINAL, name))

    @cached_property
    def sources(self) -> list[str]:
        """Return the images, sorted."""
        return sorted(self.pictures["source_id"].unique())

    @cached_property
    def donors(self) -> list[str]:
        """Return the donors of backgrounds, sorted."""
        return sorted(self.pictures["donor_id"].dropna().unique())

    @cached_property
    def counted(self) -> pd.DataFrame:
        """Return the objects that recall counts: no crowds, none taken out; of some conditions only those meant."""
        rows = self.objects[(self.objects["status"] == "ok") & ~self.objects["crowd"] & self.objects["asked"]]
        about_some = rows.groupby(["model", "condition"], sort=False)["target"].transform("any")
        return rows[rows["target"] | ~about_some]

    def as_classified(self) -> pa.Table:
        """Return a row per counted object as if it were a classified image, right if it was found."""
        frame, none = self.counted, np.array([None] * len(self.counted), object)
        said = np.where(frame["found"], frame["label"], frame["predicted"].replace("", "(nothing)"))
        columns = {
            "task": "classify", "kind": "static", "sample_id": frame["sample_id"] + " " + frame["object_id"],
            "source_id": frame["source_id"], "fold": -1, "condition": frame["condition"], "variant": "paper",
            "parameters": "{}", "model": frame["model"], "trained_on": "", "label": frame["label"],
            "correct": frame["found"], "correct_restricted": frame["found"], "prediction": said,
            "prediction_restricted": said, "donor_id": frame["donor_id"], "donor_label": none, "status": "ok",
            "image_sha256": none,
        }  # fmt: skip
        columns |= {name: none for name in PREDICTIONS.names if name not in columns}
        return pa.Table.from_pandas(pd.DataFrame(columns, index=frame.index), PREDICTIONS, preserve_index=False)

    def span(self, model: str, condition: str) -> slice:
        """Return the places of the images of a model under a condition; they are together."""
        here = ((self.pictures["model"] == model) & (self.pictures["condition"] == condition)).to_numpy()
        places = np.flatnonzero(here)
        return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)

    def matched(self, model: str, condition: str, *, sizes: tuple[str, ...] = ("all",)) -> MatchTable:
        """Return the predictions of a model under a condition matched to the objects; images are places in ``span``."""
        span = self.span(model, condition)
        objects = self.objects
        own = objects[
            (objects["picture"] >= span.start) & (objects["picture"] < span.stop) & (objects["status"] == "ok")
        ]
        label = {name: place for place, name in enumerate(self.labels)}
        truth = TrueBoxes(
            own["picture"].to_numpy(np.intp) - span.start, own["label"].map(label).to_numpy(np.intp),
            own[["x1", "y1", "x2", "y2"]].to_numpy(np.float64), own["area"].to_numpy(np.float64),
            own["crowd"].to_numpy(bool),
        )  # fmt: skip
        first, last = np.searchsorted(self.guess_picture, [span.start, span.stop])
        said = PredictedBoxes(
            self.guess_picture[first:last] - span.start, self.guess_label[first:last], self.guess_corners[first:last],
            self.guess_score[first:last],
        )  # fmt: skip
        return match(truth, said, classes=len(self.labels), sizes=sizes)

    def owners(self, model: str, condition: str) -> tuple[Codes, Codes]:
        """Return the image (its place in ``sources``) and the donor (−1: none) of each image of ``span``."""
        own = self.pictures.iloc[self.span(model, condition)]
        place = {name: number for number, name in enumerate(self.sources)}
        donor = {name: number for number, name in enumerate(self.donors)}
        return (
            np.array([place[name] for name in own["source_id"]], np.intp),
            np.array([donor.get(name, -1) for name in own["donor_id"]], np.intp),
        )


def detector_answers(
    objects: pa.Table, images: pa.Table, detections: pa.Table, *, row_ids: Collection[str] | None = None
) -> DetectorAnswers:
    """Return the tables of a run as frames."""
    pictures = _frame(images).drop_duplicates("row_id")
    if row_ids is not None:
        pictures = pictures[pictures["row_id"].isin(set(row_ids))]
    pictures = pictures.assign(condition=named_conditions(pictures))
    fine = pictures["status"] == "ok"
    failed = pictures[~fine].reset_index(drop=True)
    pictures = pictures[fine].sort_values(["model", "condition", "source_id", "sample_id", "seed"], ignore_index=True)
    place = {row_id: number for number, row_id in enumerate(pictures["row_id"])}
    frame = _frame(objects)
    frame = frame.assign(picture=[place.get(row_id, -1) for row_id in frame["row_id"]])
    frame = frame[frame["picture"] >= 0].drop_duplicates(["row_id", "object_id"]).reset_index(drop=True)
    frame["condition"] = pictures["condition"].to_numpy()[frame["picture"]]
    frame["asked"] = frame["found"].isin([True, False])
    for name in ("found", "crowd", "target"):
        frame[name] = frame[name].isin([True])
    frame["wrong_class"] = ~frame["found"] & (frame["predicted"] != "") & (frame["predicted"] != frame["label"])
    labels = sorted({*frame["label"], *pc.unique(detections["label"]).to_pylist()} - {None, ""})
    return DetectorAnswers(pictures, frame, failed, *_guesses(detections, place, labels), labels)


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    for name in _WORDS:
        if name in frame:
            frame[name] = frame[name].astype(object).fillna("").astype(str)
    return frame


def _guesses(table: pa.Table, place: dict[str, int], labels: list[str]) -> tuple[Codes, Codes, Floats, Floats]:
    """Return image, class, corners and score of every prediction of an answered image, sorted by image."""
    row, row_ids = coded(table["row_id"])
    number, names = coded(table["label"])
    at = {name: code for code, name in enumerate(labels)}
    picture = np.array([*(place.get(name, -1) for name in row_ids), -1], np.intp)[row]
    label = np.array([*(at[name] for name in names), -1], np.intp)[number]
    corners = np.stack([table[name].to_numpy().astype(np.float64) for name in ("x1", "y1", "x2", "y2")], axis=1)
    score = table["score"].to_numpy().astype(np.float64)
    usable = np.flatnonzero((picture >= 0) & (label >= 0) & np.isfinite(score) & np.isfinite(corners).all(axis=1))
    order = usable[np.argsort(picture[usable], kind="stable")]
    return picture[order], label[order], corners[order], score[order]
