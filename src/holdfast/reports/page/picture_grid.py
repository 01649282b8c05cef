"""Section: a grid of images, a row per class and a column per condition, of images that no one picked by outcome."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.lazy import pd
from holdfast.core.names import scenario_of
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import parts as page
from holdfast.reports.page.evidence import Evidence, ReportRows
from holdfast.reports.page.sections import ReportSection, usual
from holdfast.reports.page.words import class_words, condition_label, plural

CLASSES = 12  # rows of the grid, as many as XIMAGENET-12 has classes
COLUMNS = 16  # most conditions of the grid
SIDE = 96  # pixels of the longer side of an image


def grid(evidence: Evidence, rows: ReportRows, pictures: page.RunPictures | None) -> list[page.Section]:
    """Return the section; none if no image can be shown."""
    shown = images_of_classes(evidence, rows, pictures)
    if shown is None:
        return []
    lead = (
        f"One image of {plural(len(shown.photos), 'class', 'classes')} under "
        f"{plural(len(shown.photos[0].tiles), 'condition')}: the first of its class by name, whatever the predictions."
    )
    return [page.Section("grid", "Images by class and condition", [lead], [shown])]


def images_of_classes(
    evidence: Evidence, rows: ReportRows, pictures: page.RunPictures | None, *, classes: int = CLASSES,
    columns: int = COLUMNS,
) -> page.Gallery | None:  # fmt: skip
    """Return a row of images per class and a column per condition; None if no image can be shown.

    Of each class the image whose name comes first is shown, whatever the predictions.
    """
    cells = evidence.counts.cells[["label", "source_id", "condition"]].astype(str)
    originals = cells[cells["condition"] == ORIGINAL] if ORIGINAL in evidence.counts.conditions else cells
    chosen = originals.groupby("label", sort=True)["source_id"].min().head(classes)
    attacks = {*evidence.counts.attacks}
    names = [name for name in evidence.conditions if name not in attacks][:columns]
    images = page.pictures_of(pictures, rows.runs, set(chosen), size=SIDE)
    sample_of = _samples(rows, set(chosen))
    shown = []
    for label, source in chosen.items():
        tiles = []
        for name in names:
            jpeg = images.get((sample_of(str(source), name), name), b"")
            tiles.append(page.tile(condition_label(name), jpeg, []))
        if any(each.picture for each in tiles):
            shown.append(page.Photo(class_words(str(label)), str(source), "", tiles, of="image"))
    return page.Gallery(shown, grid=True) if shown else None


def _samples(rows: ReportRows, sources: set[str]) -> Callable[[str, str], str]:
    """Return a function from a source and a condition to the image's name: its own if it was made before the run."""
    frame = pd.concat([
        run.samples().select(["sample_id", "source_id", "condition"]).to_pandas() for run in rows.runs
    ])  # fmt: skip
    frame = frame[frame["source_id"].isin(sorted(sources))].astype(str).sort_values("sample_id")
    stored: dict[tuple[str, str], str] = {
        (row.source_id, row.condition): row.sample_id for row in frame[::-1].itertuples()
    }

    def sample(source: str, condition: str) -> str:
        stored_name = stored.get((source, scenario_of(condition)))
        return stored_name or stored.get((source, ORIGINAL), source)

    return sample


GRID = ReportSection(lambda report: grid(report.classified, report.static_rows, report.pictures), usual)
