"""Section: images with generated backgrounds, and the prompts that they were painted from."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.files import stored_object
from holdfast.core.lazy import pd
from holdfast.reports.page import parts as page
from holdfast.reports.page.sections import ReportSection
from holdfast.reports.page.tables import CLASS, Table, plain
from holdfast.reports.page.words import class_words, plural
from holdfast.store import Run, read_json

KEPT = "generated"  # the folder of a run with small copies of painted images, each next to what is known of it
PAINTED = "generated_background"
SHOWN = 24
_RECORDED = ["sample_id", "source_id", "label", "prompt", "generator", "file"]


def painted_images(runs: Sequence[Run], pictures: page.RunPictures | None) -> list[page.Section]:
    """Return the section, or none if no image of these runs has a generated background with a known prompt."""
    frame = pd.concat([_painted_here(run) for run in runs] + [_painted_before(run) for run in runs], ignore_index=True)
    frame = frame[frame["prompt"].notna()].drop_duplicates("sample_id")
    if frame.empty:
        return []
    shown = page.by_turns(frame.sort_values(["label", "sample_id"]), "label", SHOWN)
    jpegs = page.pictures_of(pictures, runs, set(shown["source_id"].dropna()), only=[PAINTED])
    tiles = []
    for row in shown.to_dict("records"):
        jpeg = row["file"].read_bytes() if row["file"] is not None else _made(jpegs, str(row["sample_id"]))
        said = page.Answer("prompt", str(row["prompt"]), "", "none")
        tiles.append(page.tile(class_words(str(row["label"])), jpeg, [said]))
    prompts = frame.groupby(["label", "prompt", "generator"], dropna=False).size().reset_index(name="n")
    columns = [CLASS, *plain("text", prompt="Prompt", generator="Generator"), *plain("integer", n="Images")]
    classes = frame["label"].nunique()
    lead = (
        f"{plural(len(shown), 'image')} of {plural(len(frame), 'image')} whose background was generated, of "
        f"{plural(classes, 'class', 'classes')} in turn, each with its prompt. Images that a filter turned down are "
        "not among them."
    )
    photo = page.Photo("", "", "", tiles)
    table = Table("prompts", "The prompts, and how many images each painted", prompts, columns, folded=True)
    return [page.Section("painted", "Generated backgrounds and their prompts", [lead], [page.Gallery([photo]), table])]


def _painted_here(run: Run) -> pd.DataFrame:
    """Return what the run kept of the images that it painted."""
    records = [
        {"source_id": None, **read_json(file), "file": file.with_suffix(".jpg")}
        for file in sorted((run.path / KEPT).glob("*.json"))
        if file.with_suffix(".jpg").is_file()
    ]
    return pd.DataFrame(records, columns=_RECORDED)


def _painted_before(run: Run) -> pd.DataFrame:
    """Return the images of the run's dataset that were painted before, as their manifest describes them."""
    samples = run.samples().select(["sample_id", "source_id", "label", "condition", "attributes"]).to_pylist()
    records = [
        {**row, "file": None, **{key: known.get(key) for key in ("prompt", "generator")}}
        for row in samples
        if row["condition"] == PAINTED and row["attributes"]
        for known in [stored_object(row["attributes"], "attributes")]
    ]
    return pd.DataFrame(records, columns=_RECORDED)


def _made(jpegs: dict[tuple[str, str], bytes], sample: str) -> bytes:
    return next((jpeg for (name, shown), jpeg in jpegs.items() if name == sample and shown.startswith(PAINTED)), b"")


PAINTED_IMAGES = ReportSection(lambda report: painted_images(report.runs, report.pictures))
