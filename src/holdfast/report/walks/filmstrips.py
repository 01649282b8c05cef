"""Sections: what walks left of a few photos, and some walks step by step."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import SampleError
from holdfast.core.schema import end_picture, original_picture
from holdfast.report.page.gallery import judged
from holdfast.report.page.parts import Answer, Gallery, Notice, Photo, Section, Tile
from holdfast.report.page.words import number, percent, plural, unbroken
from holdfast.report.walks.evidence import ReportWalks

if TYPE_CHECKING:
    import pandas as pd

PHOTOS = 4
STRIPS = 6
FRAMES_SHOWN = 8
SIDE = 112  # Pixels of the longer side of a picture on the page

MAX_PIXELS = 4_000_000
MAX_BYTES = 20_000_000  # Limits of a frame's file; no generator here makes larger images, so a larger file is not ours


def ends_of_walks(walks: ReportWalks) -> Section:
    """Return a row of pictures per photo: the original, and what the walk against each model left of it."""
    section = Section("ends", "Photos and what walks left of them")
    folders = [run.path for run in walks.runs]
    photos = []
    for name, group in walks.images.groupby("sample_id", sort=True):
        original = _first(folders, original_picture(str(name)))
        if not original[0]:
            continue
        label = str(group["label"].iloc[0])
        by_walk = {(row["model"], row["walk"]): row for row in group.to_dict("records")}
        ends = [_end(walks, folders, by_walk[key], label) for key in walks.order if key in by_walk]
        photos.append(Photo(str(name), label, "", [Tile("original", *original), *ends]))
        if len(photos) == PHOTOS:
            break
    if not photos:
        section.parts = [Notice("This run kept no pictures; holdfast perturb keeps those of --pictures photos.")]
        return section
    section.lead = [
        "One photo a row: the original, then the last image that the oracle accepted on the walk against each model, "
        "with the model's answer and the oracle's. Photos are spread over the data, not picked by their outcome. A "
        "dashed frame marks a wrong answer."
    ]
    section.parts = [Gallery(photos, steps=True)]
    return section


def _end(walks: ReportWalks, folders: Sequence[Path], record: dict[Any, Any], label: str) -> Tile:
    """Return the tile of one model's walk; without a picture where the oracle accepted nothing."""
    caption = walks.row(record["model"], record["walk"])
    accepted = bool(record["validated"])
    score = record.get("oracle_score")
    said = "" if score is None or score != score else f" {unbroken(percent(float(score), 0))}"
    verdict = ("accepts" if accepted else "rejects the first image") + said
    oracle = Answer("oracle", verdict, "●" if accepted else "○", "right" if accepted else "none")
    if not accepted:
        return Tile(caption, "", 0, 0, [oracle])
    right = bool(record["right_perturbed"])
    spaces = {"all": "prediction"}
    column = spaces.get(str(walks.settings[record["walk"] - 1].get("space")), "prediction_restricted")
    answer = judged("model", f"{'right' if right else 'wrong'}: {record[column]}", right)
    return Tile(caption, *_first(folders, end_picture(str(record["row_id"]))), [answer, oracle], not right)


def _first(folders: Sequence[Path], name: str) -> tuple[str, int, int]:
    """Return the picture of a file from the first run folder that has it."""
    return next((picture for folder in folders if (picture := _picture(folder, name))[0]), ("", 0, 0))


def filmstrips(walks: ReportWalks) -> Section:
    """Return a few walks with the model's and the oracle's answer under each step."""
    section = Section("filmstrips", "Walks, step by step")
    filmed = walks.images[walks.images["row_id"].isin(set(walks.frames["row_id"]))]
    if filmed.empty:
        section.parts = [Notice("No walk was kept step by step; holdfast perturb --frames N keeps some.")]
        return section
    picked = _picked(filmed)
    by_row = dict(tuple(walks.frames.groupby("row_id")))
    strips = [_strip(walks, record, by_row[record["row_id"]]) for record in picked.to_dict("records")]
    section.lead = [
        f"{plural(len(strips), 'walk')} of {len(filmed):,} that were kept, picked to show the ways a walk can end, so "
        "they are not typical. Step 0 is the plain reconstruction. Under each step: the model's answer with its "
        "probability of the true class, and what the oracle says, with its own. The last accepted image counts; a "
        "dashed frame marks a wrong answer."
    ]
    section.parts = [Gallery(strips, steps=True)]
    if not any(step.picture for strip in strips for step in strip.tiles):
        section.parts.insert(0, Notice("The pictures: their files are not in the run folder any more."))
    return section


def _picked(filmed: pd.DataFrame) -> pd.DataFrame:
    """Return up to three walks that fooled the model, two that did not, one not validated, then others."""
    held = filmed["right_perturbed"].fillna(0).astype(bool)
    right, validated = filmed["right_original"].astype(bool), filmed["validated"].astype(bool)
    groups = ((right & validated & ~held, 3), (validated & held, 2), (~validated, 1))
    taken: list[Any] = []
    for chosen, most in groups:
        part = filmed[chosen].sort_values(["walk", "sample_id", "model"], kind="stable")
        varied = part.drop_duplicates("model")  # first one walk per model
        rest = part.drop(varied.index).drop_duplicates("label")
        taken += [*varied.index, *rest.index][:most]
    others = [index for index in filmed.index if index not in set(taken)]
    return filmed.loc[[*taken, *others][:STRIPS]]


def _strip(walks: ReportWalks, record: dict[Any, Any], frames: pd.DataFrame) -> Photo:
    steps = frames.sort_values("step", kind="stable").drop_duplicates("step").reset_index(drop=True)
    label, validated = str(record["label"]), bool(record["validated"])
    kept = int(record["steps"]) if validated and record["steps"] == record["steps"] else None
    folder = walks.folders[record["row_id"]]
    chosen = steps.iloc[_chosen(steps, label, kept)].to_dict("records")
    tiles = [_tile(folder, row, label, kept) for row in chosen]
    against = walks.row(record["model"], record["walk"])
    return Photo(str(record["sample_id"]), label, _summary(record), tiles, against=against)


def _summary(record: dict[Any, Any]) -> str:
    if not record["validated"]:
        return "The oracle rejects the first image, so the original stands and the image is not validated."
    right, before = bool(record["right_perturbed"]), bool(record["right_original"])
    steps = "" if record["steps"] != record["steps"] else f" after {plural(int(record['steps']), 'step')}"
    end = "is still right" if right and before else "is right" if right else "is wrong" if before else "is still wrong"
    why = {
        "budget": " The walk took all its steps.",
        "rejected": " One step further the oracle rejects.",
        "fooled": " The walk stopped when the model was fooled.",
        "not_finite": " The walk ended in a value that is no number.",
    }.get(str(record["stop"]), "")
    return f"On the kept image{steps} the model {end}.{why}"


def _chosen(steps: pd.DataFrame, label: str, kept: int | None) -> list[int]:
    """Return the frames to show: the ends, where the answer turns, the kept one, and others evenly spread."""
    last = len(steps) - 1
    wanted = {0, min(1, last), last}
    wrong = steps.index[steps["prediction"] != label]
    wanted |= {int(wrong[0])} if len(wrong) else set()
    wanted |= {int(place) for place in steps.index[steps["step"] == kept]}
    room = FRAMES_SHOWN - len(wanted)
    spread = [round(part * last / (room + 1)) for part in range(1, room + 1)]
    return sorted(wanted | set(spread))


def _tile(folder: Path, row: dict[Any, Any], label: str, kept: int | None) -> Tile:
    step = int(row["step"])
    right = row["prediction"] == label
    probability = "" if row["probability"] is None else f" · p\N{NO-BREAK SPACE}{number(float(row['probability']))}"
    said = f"{'right' if right else 'wrong'}: {row['prediction']}{probability}"
    accepted = bool(row["accepted"])
    score = "" if row["oracle_score"] is None else f" {unbroken(percent(float(row['oracle_score']), 0))}"
    oracle = Answer(
        "oracle",
        ("accepts" if accepted else "rejects") + score,
        "●" if accepted else "○",
        "right" if accepted else "none",
    )
    picture, width, height = _picture(folder, str(row["image"] or ""))
    answers = [judged("model", said, right), oracle]
    return Tile(f"step {step}", picture, width, height, answers, not right, mark="counts" if step == kept else "")


def _picture(folder: Path, name: str) -> tuple[str, int, int]:
    """Return a small JPEG in base64 with its size; empty for a file that is missing, too large, or outside the run."""
    import cv2

    from holdfast.data.images import decode_image, read_file
    from holdfast.data.writers import encode_image

    path = (folder / name).resolve()
    if not name or not path.is_relative_to(folder.resolve()) or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return "", 0, 0
    try:
        image = decode_image(read_file(path), max_pixels=MAX_PIXELS)
    except SampleError:
        return "", 0, 0
    scale = SIDE / max(image.shape[:2])
    if scale < 1:
        shape = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = cv2.resize(image, shape, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    height, width = image.shape[:2]
    return base64.b64encode(encode_image(image, format="jpeg", quality=85)).decode(), width, height
