"""Section: the walks of a few images, step by step."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import SampleError
from holdfast.report.page.parts import Answer, Filmstrip, Filmstrips, Frame, Notice, Section
from holdfast.report.page.words import number, percent, plural
from holdfast.report.walks.evidence import Walked

if TYPE_CHECKING:
    import pandas as pd

STRIPS = 6
FRAMES_SHOWN = 8
SIDE = 112
"""Pixels of a frame's longer side on the page."""

MAX_PIXELS = 4_000_000
MAX_BYTES = 20_000_000
"""Of a frame's file; no generator here makes larger images, so a larger file is none of ours."""


def filmstrips(walks: Walked) -> Section:
    """A few walks with the model's and the oracle's answer under each step."""
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
    section.parts = [Filmstrips(strips)]
    if not any(frame.picture for strip in strips for frame in strip.frames):
        section.parts.insert(0, Notice("The pictures: their files are not in the run folder any more."))
    return section


def _picked(filmed: pd.DataFrame) -> pd.DataFrame:
    """Up to three models fooled, two that held, one that was not validated; then whatever else there is."""
    held = filmed["right_perturbed"].fillna(0).astype(bool)
    right, validated = filmed["right_original"].astype(bool), filmed["validated"].astype(bool)
    groups = ((right & validated & ~held, 3), (validated & held, 2), (~validated, 1))
    taken: list[Any] = []
    for chosen, most in groups:
        part = filmed[chosen].sort_values(["walk", "sample_id", "model"], kind="stable")
        varied = part.drop_duplicates("model")  # a strip a model first
        rest = part.drop(varied.index).drop_duplicates("label")
        taken += [*varied.index, *rest.index][:most]
    others = [index for index in filmed.index if index not in set(taken)]
    return filmed.loc[[*taken, *others][:STRIPS]]


def _strip(walks: Walked, record: dict[Any, Any], frames: pd.DataFrame) -> Filmstrip:
    steps = frames.sort_values("step", kind="stable").drop_duplicates("step").reset_index(drop=True)
    label, validated = str(record["label"]), bool(record["validated"])
    kept = int(record["steps"]) if validated and record["steps"] == record["steps"] else None
    folder = walks.folders[record["row_id"]]
    shown = [_frame(folder, row, label, kept) for row in steps.iloc[_chosen(steps, label, kept)].to_dict("records")]
    return Filmstrip(
        str(record["sample_id"]), label, walks.row(record["model"], record["walk"]), _summary(record), shown
    )


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
    """Places of the frames to show: the ends, where the model's answer turns, what was kept; the rest evenly spread."""
    last = len(steps) - 1
    wanted = {0, min(1, last), last}
    wrong = steps.index[steps["prediction"] != label]
    wanted |= {int(wrong[0])} if len(wrong) else set()
    wanted |= {int(place) for place in steps.index[steps["step"] == kept]}
    room = FRAMES_SHOWN - len(wanted)
    spread = [round(part * last / (room + 1)) for part in range(1, room + 1)]
    return sorted(wanted | set(spread))


def _frame(folder: Path, row: dict[Any, Any], label: str, kept: int | None) -> Frame:
    step = int(row["step"])
    picture, width, height = _picture(folder, str(row["image"] or ""))
    right = row["prediction"] == label
    probability = "" if row["probability"] is None else f" · p\N{NO-BREAK SPACE}{number(float(row['probability']))}"
    said = Answer(
        "model", f"{'right' if right else 'wrong'}: {row['prediction']}{probability}", "✓" if right else "✗",
        "right" if right else "wrong",
    )  # fmt: skip
    accepted = bool(row["accepted"])
    score = (
        ""
        if row["oracle_score"] is None
        else " " + percent(float(row["oracle_score"]), 0).replace(" ", "\N{NO-BREAK SPACE}")
    )
    said_by_oracle = ("accepts" if accepted else "rejects") + score.replace(" %", "\N{NO-BREAK SPACE}%")
    verdict = Answer("oracle", said_by_oracle, "●" if accepted else "○", "right" if accepted else "none")
    return Frame(f"step {step}", picture, width, height, [said, verdict], not right, step == kept)


def _picture(folder: Path, name: str) -> tuple[str, int, int]:
    """A small JPEG in base64 with its size; empty for a file that is not there, too large, or outside the run."""
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
