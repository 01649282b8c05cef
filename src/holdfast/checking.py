"""``holdfast check``: masks, every condition, a report and a verdict for one model on one set of images."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from holdfast import api
from holdfast.api import live
from holdfast.check_rounds import (
    EarlyCheck,
    Look,
    TimedOriginals,
    check_in_rounds,
    first_line,
    first_verdict,
    parse_budget,
)
from holdfast.core.errors import UserError
from holdfast.core.files import check_own, clear_leftovers, plain_file_name, write_atomic
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.names import condition_words
from holdfast.core.numbers import PER_IMAGE, estimate, percent
from holdfast.core.types import ORIGINAL, Collection
from holdfast.data.findings import DataFinding
from holdfast.data.inventory import check_exchange, take_inventory
from holdfast.data.reading import DOUBTFUL
from holdfast.models import is_detector
from holdfast.pipeline.classifiers import SEVERAL_LABELS
from holdfast.pipeline.files import IN_MEMORY
from holdfast.pipeline.jobs.progress import Progress, noted, printed, quietable
from holdfast.pipeline.mask import MaskCounts, best_annotator
from holdfast.pipeline.samples import DataSpec, read
from holdfast.pipeline.specs import EvaluateSpec, MaskSpec
from holdfast.reports.objects.evidence import DetectorEvidence
from holdfast.reports.objects.section import detector_steps
from holdfast.reports.page.evidence import with_display_names
from holdfast.reports.page.words import plural
from holdfast.reports.static.front import most_lost, step_list
from holdfast.reports.study import about_world
from holdfast.scenarios import parse_conditions
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import accuracy as class_accuracy
from holdfast.stats.core.reduce import Counts, Outcome, reduce
from holdfast.stats.effects.verdict import NEEDED, ONLY, RANDOM, SAME, what_it_holds
from holdfast.stats.effects.verdict_words import more_photos
from holdfast.stats.models.power import donor_advice, donors_of
from holdfast.store import Run, copies_of, other_data, unmixed

MOST_FINDINGS = 3  # findings about the data that the answer shows
SHOWN = (ORIGINAL, SAME, RANDOM, ONLY)


@dataclass(frozen=True)
class Check:
    """The answer of a check."""

    results: api.Results  # the run
    page: Path  # path of the report's page
    verdict: dict[str, Any]  # the model's row of ``stats.effects.verdict.what_it_holds``
    masks: MaskCounts | None  # None if the dataset has all masks itself
    # the same row from scenes whose masks are all sure; None if no mask is doubtful, or all are
    sure_verdict: dict[str, Any] | None
    # between how many and how many images more would answer what is open; None if nothing is, or where these
    # the images are too few for a verdict
    more_photos: tuple[int, int] | None
    lines: list[str]  # the answer in words
    findings: tuple[DataFinding, ...] = ()  # what is wrong with the images, gravest first
    looks: tuple[Look, ...] = ()  # what was known after each round, if it asked in rounds

    def __repr__(self) -> str:
        return "\n".join([*self.lines, str(self.page)])

    def _repr_html_(self) -> str:
        return self.results._repr_html_()


@quietable
def check(
    model: Any,
    photos: Any,
    *,
    out: str | Path | None = None,
    masks: str | None = None,
    labels: str | None = None,
    limit: int = 0,
    outcome: Outcome = "full",
    device: str = "auto",
    workers: int = 1,
    transform: Any = None,
    class_names: Sequence[str] | str | None = None,
    boxes: str | None = None,
    images: str | None = None,
    also: str = "",
    stop: Literal["never", "when-decided"] = "never",
    budget: str = "",
    on_look: Callable[[str], None] = noted,
    progress: Progress = printed,
) -> Check:
    """Test one model on one set of images under every condition, and return a verdict.

    Args:
        model: name of the model, or the model itself (a network, a callable).
        photos: a folder with a folder per class, any other data source, or a dataset in memory.
        out: folder of the automatic masks and of a run directory per model; an existing check is continued. By default
            ``checks/NAME_OF_THE_PHOTOS``.
        masks: folder of masks, with the same tree as the images.
        labels: CSV that maps classes to model outputs.
        limit: use at most this many images, evenly over classes; 0 uses all.
        outcome: count right answers over all outputs (full), or among the dataset's classes (restricted).
        device: auto, cpu, cuda, cuda:1 or mps.
        workers: number of processes that make masks; 0 starts one per core.
        transform: for a network given as an object: turns a PIL image into the tensor that it takes.
        class_names: for a model given as an object: the names of its outputs, in order, or ``imagenet``.
        boxes: for a detector: a COCO file, a CSV, or a folder of YOLO or VOC files with the boxes of the images.
        images: for a detector: folder of the images that a COCO file or a CSV names.
        also: further conditions for the report, such as ``worst_background``.
        stop: ``when-decided`` asks in rounds, only the conditions that the verdict rests on, and stops as soon as the
            verdict is sure, by intervals that hold whenever one stops; ``never`` asks everything.
        budget: stop at the latest after this much: 300 (answers), 10min, 90s, or 5@0.002 (money @ price of an answer).
            Asks in rounds, too.
        on_look: called with a line of what is known so far: after the originals, with the first verdict, after each
            round; by default it is printed.
        progress: called with the name of a step, how much of it is done, and its total; by default printed.
        quiet: print neither progress nor notes.

    Returns:
        The verdict, its sentences, the runs and the page.

    Raises:
        UserError: The model or the data cannot be loaded, or a class has fewer than two images.

    Examples:
        >>> checked = holdfast.check("embedded:resnet_rho95", "diorama:test?n=36", budget="200",
        ...                          out="check", quiet=True)
        >>> checked.page.exists()
        True
    """
    asked = locals()
    if live.is_name(model) and Path(model).is_dir():
        raise UserError(
            f"{model} is a folder; the model comes first: holdfast check MODEL PHOTOS, or holdfast.check(model, images)"
        )
    classes: tuple[str, ...] = ()
    if not live.is_name(photos):
        if not out:
            with live.temporary_folder() as folder:
                return check(**asked | {"out": folder})
        photos, classes = live.write_data(photos, Path(out), class_names or ())
    names = live.model_names(model, classes, transform=transform, class_names=class_names)
    model = model if live.is_name(model) else names[0]
    in_rounds = _asks_in_rounds(model, stop, budget, also, boxed=bool(boxes or images))
    if is_detector(model):
        chosen = {"boxes": boxes, "images": images, "masks": masks, "labels": labels, "limit": limit, "device": device}
        return _check_detector(model, photos, out, chosen, progress)
    collection = read(DataSpec(photos, masks=masks, limit=limit))
    if collection.separator:
        raise UserError(SEVERAL_LABELS)
    check_exchange(collection, limit)
    folder = _own_folder(out, collection.name, photos)
    unmasked = any(sample.mask is None for sample in collection.samples)
    annotator = best_annotator() if unmasked else "grabcut"
    spec = EvaluateSpec(photos, masks=masks, limit=limit, models=(model,), labels=labels, device=device)
    masking = MaskSpec(photos, masks=masks, limit=limit, annotator=annotator, keep=True, workers=workers)
    if not in_rounds:
        spec = replace(spec, scenarios=f"all,{also}".rstrip(","))
        return _check_all(spec, folder, collection, masking, outcome, progress, on_look)
    early = check_in_rounds(
        spec, folder / f"{plain_file_name(model)}-rounds", collection, masks=masking, mask_folder=folder / "masks",
        outcome=outcome, budget=parse_budget(budget), on_look=on_look, progress=progress,
    )  # fmt: skip
    return _answer_early(early, collection, outcome, masking.annotator, folder / "masks", progress)


def _asks_in_rounds(model: str, stop: str, budget: str, also: str, *, boxed: bool) -> bool:
    """Return whether a check asks in rounds; a UserError if its options do not go together."""
    in_rounds = stop == "when-decided" or bool(budget)
    if stop not in ("never", "when-decided"):
        raise UserError(f"stop must be never or when-decided, not {stop!r}")
    if in_rounds and is_detector(model):
        raise UserError("a check of a detector asks everything; leave --stop and --budget out")
    if also and (in_rounds or is_detector(model)):
        raise UserError(
            "--also is for a check of a classifier that asks everything; leave it, or --stop and --budget, out"
        )
    if also:
        parse_conditions(also)
    if boxed and not is_detector(model):
        raise UserError(f"--boxes and --images are for detectors; {model} classifies images")
    return in_rounds


def _check_all(
    spec: EvaluateSpec,
    folder: Path,
    collection: Collection,
    masking: MaskSpec,
    outcome: Outcome,
    progress: Progress,
    on_look: Callable[[str], None],
) -> Check:
    """Return the answer about a classifier that is asked everything, first what the verdict needs."""
    run = folder / plain_file_name(spec.models[0])
    # The originals need no masks, so a wrong model name or class is reported before masks are made.
    is_new = not run.exists()
    try:
        timed = TimedOriginals(progress)
        originals = api.evaluate(spec=replace(spec, scenarios=ORIGINAL), out=run, progress=timed)
    except UserError as error:
        if is_new:  # nothing that looks like a run stays behind, so there are no errors to retry
            shutil.rmtree(run, ignore_errors=True)
            with suppress(OSError):
                folder.rmdir()
        raise UserError(re.sub(r" with (--retry-errors|retry_errors=)", " again", str(error))) from error
    here = [sample.sample_id for sample in collection.samples]
    name = _name_of(originals.run.of_samples(here))
    unmasked = sum(sample.mask is None for sample in collection.samples)
    if timed.seconds:
        row = api.Results(originals.run.of_samples(here)).accuracy(outcome=outcome).to_dict("records")[0]
        on_look(first_line(row, timed.seconds, len(parse_conditions(spec.scenarios)) - 1, unmasked))
    made_masks = None
    if unmasked:
        rows = api.mask(spec=masking, out=folder / "masks", progress=progress)
        made_masks, spec = MaskCounts.of(rows, masking.annotator), replace(spec, masks=str(folder / "masks"))
    if timed.seconds:
        first = api.evaluate(spec=replace(spec, scenarios=",".join(NEEDED)), out=run, progress=progress)
        on_look(first_verdict(_verdict(api.Results(first.run.of_samples(here)).counts, name, outcome)))
    whole = api.evaluate(spec=spec, out=run, progress=progress)
    results = api.Results(whole.run.of_samples(here))  # the run may have rows of more images, or of images that went
    verdict = _verdict(results.counts, name, outcome)
    sure = _sure_verdict(results, made_masks, name, outcome) if made_masks and made_masks.doubtful else None
    about_masks = _about_masks(made_masks, verdict, sure)
    steps = _mask_steps(made_masks, folder / "masks")
    page = _page(results, progress, outcome=outcome, resamples=RESAMPLES, note=about_masks, steps=steps)
    findings = take_inventory(collection, progress=progress).findings
    if made_masks:
        findings = tuple(finding for finding in findings if finding.kind != "no-mask")
    answer = Check(results, page, verdict, made_masks, sure, more_photos(verdict), [], findings)
    answer.lines.extend(_lines(answer, collection, outcome, about_masks, folder / "masks"))
    return answer


def _check_detector(
    model: str, photos: str, out: str | Path | None, options: dict[str, Any], progress: Progress
) -> Check:
    """Return the answer about a detector: whether it finds objects elsewhere, and what it sees where nothing is."""
    folder = _own_folder(out, Path(photos.rstrip("/")).stem or "photos", photos)
    results = api.evaluate(photos, models=[model], out=folder / plain_file_name(model), progress=progress, **options)
    evidence = DetectorEvidence([results.run], results.boxes)
    verdict = {str(key): value for key, value in evidence.holds.iloc[0].items()}
    page = _page(results, progress)
    spec, name = results.run.spec(), verdict["model"]
    about = ", ".join(f"{count} {noun}" for count, noun in evidence.facts()[1:3])  # images and objects
    lines = [
        f"{name} on {spec['dataset']} ({about}; boxes count from a score of {spec['thresholds'][name]:.2f} on):",
        f"{verdict['headline']}.",
        *(str(text) for text in (verdict["rests_on"], verdict["small_print"]) if text),
        "Objects found (recall, 95 % interval) and false alarms per image:",
    ]
    rows = {row["condition"]: row for row in evidence.table.to_dict("records")}
    for row in (rows[condition] for condition in SHOWN if condition in rows):
        recall = estimate(row["recall"], row["recall_low"], row["recall_high"]) if row["objects"] else "no object"
        lines.append(f"  {condition_words(row['condition']):22} {recall}, {PER_IMAGE.value(row['false_alarms'])}")
    lines += [f"Note: {warning}" for warning in verdict["warnings"]]
    lines += [f"Next: {text} {command}".rstrip() for text, command in detector_steps(evidence)]
    return Check(results, page, verdict, None, None, None, lines)


def _answer_early(
    early: EarlyCheck, collection: Collection, outcome: Outcome, annotator: str, folder: Path, progress: Progress
) -> Check:
    """Return the answer of a check in rounds."""
    results = api.Results(early.run)
    verdict, last = early.looks[-1].row, early.looks[-1]
    made_masks = MaskCounts.of(early.mask_rows, annotator) if early.mask_rows else None
    doubtful = f" Masks: {made_masks.doubtful} doubtful, {made_masks.failed} failed." if made_masks else ""
    note = f"{early.note}{doubtful}"
    steps = _mask_steps(made_masks, folder)
    page = _page(results, progress, outcome=outcome, resamples=RESAMPLES, steps=steps, note=note)
    lines = [
        f"{verdict['model']} on {collection.name} ({plural(last.photos, 'image')} of {len(collection.samples)}, "
        f"{plural(last.answers, 'answer')}):",
        f"{verdict['headline']}.",
        *(text for text in (verdict["rests_on"], verdict["small_print"]) if text),
        note,
        *(f"Note: {warning}" for warning in verdict["warnings"] if "was not run" not in warning),
        *_unanswered(results.counts),
        f"Next: {step_list([verdict], None)[0][0]}"
        if verdict["unjudged"]
        else "Next: every condition and all images: the same command without --stop and --budget",
    ]
    return Check(results, page, verdict, made_masks, None, None, lines, looks=tuple(early.looks))


def _page(results: api.Results, progress: Progress, **options: Any) -> Path:
    """Return the report's page; one that was made of the same rows and options by the same code is kept."""
    page, mark = results.path / "report" / "index.html", results.path / "report" / "made-of.txt"
    parts = [(path.name, path.stat().st_mtime_ns) for path in sorted((results.path / "predictions").iterdir())]
    code = max(path.stat().st_mtime_ns for path in code_files(Path(__file__).parent))
    made_of = fingerprint([parts, str(results.run.predictions.where), code, options])
    if page.is_file() and mark.is_file() and mark.read_text() == f"{made_of} {bytes_sha256(page.read_bytes())}":
        return page
    progress("report", 0, 1)
    page = results.report(**options)
    clear_leftovers(mark)
    write_atomic(mark, f"{made_of} {bytes_sha256(page.read_bytes())}".encode())
    progress("report", 1, 1)
    return page


def code_files(folder: Path) -> Iterator[Path]:
    """Yield the files that decide what a page looks like."""
    return (path for path in folder.rglob("*") if path.suffix in (".py", ".j2", ".js", ".css"))


def _own_folder(out: str | Path | None, name: str, photos: str) -> Path:
    """Return where a check goes: ``out``, or the first of checks/NAME, checks/NAME-2 … without other images in it."""
    root, folder = Path(photos), Path(out or Path("checks") / plain_file_name(name))
    if out is None:
        folder = unmixed(folder, photos, "*/spec.json")
    elif others := other_data(folder, photos, "*/spec.json"):
        raise UserError(f"{out} holds a check of other images ({others[0]}); choose another --out")
    if root.is_dir() and folder.resolve().is_relative_to(root.resolve()):
        raise UserError(f"{folder} is among the images and would be read as one of their classes; choose another --out")
    check_own(folder, "*/spec.json", "*/.lock", f"{IN_MEMORY}/manifest.parquet")
    return folder


def _name_of(run: Run) -> str:
    """Return the model's name in the table."""
    names = run.rows(["model"])["model"].unique().to_pylist()
    if len(names) != 1:
        raise UserError(f"{run.path} holds the answers of {', '.join(map(str, names))}; choose another --out")
    return str(names[0])


def _verdict(counts: Counts, model: str, outcome: Outcome) -> dict[str, Any]:
    frame = what_it_holds(counts, outcome=outcome, resamples=RESAMPLES)
    rows = [] if frame.empty else frame[frame["model"] == model].to_dict("records")
    if not rows:
        reason = str(counts.trouble["error"].iloc[0]) if len(counts.trouble) else "there are no rows"
        raise UserError(f"{model} answered for no image: {reason}")
    return {str(key): value for key, value in rows[0].items()}


def _sure_verdict(results: api.Results, masks: MaskCounts, model: str, outcome: Outcome) -> dict[str, Any] | None:
    """Return the verdict from rows whose mask is sure, and the mask of the image that lent the background, too."""
    sure = pa.array(masks.sure, pa.string())
    own, lent = pc.field("sample_id").isin(sure), pc.field("donor_id")
    rows = results.run.predictions.dataset().to_table(filter=own & (lent.is_null() | lent.isin(sure)))
    if not rows.num_rows:
        return None
    order = [condition.name for condition in parse_conditions("all")]
    return _verdict(reduce(rows, order=order, copies=copies_of([results.run])), model, outcome)


def _about_masks(masks: MaskCounts | None, verdict: Mapping[str, Any], sure: Mapping[str, Any] | None) -> str:
    """Return sentences about the masks and whether doubtful ones decide the verdict; '' if none was made."""
    if masks is None:
        return ""
    total = len(masks.sure) + masks.doubtful + masks.failed
    text = f"{plural(masks.count, 'mask')} of {total} made by {masks.annotator}"
    if masks.failed:
        text += f", {masks.failed} could not be had"
    if not masks.doubtful:
        return f"{text}; none is doubtful (confidence below {DOUBTFUL}). The page shows the least sure ones."
    text += f"; {masks.doubtful} doubtful (confidence below {DOUBTFUL}). "
    if sure is None or not sure["n"]:
        return f"{text}No pair of pasted scenes has sure masks only: make masks by hand before believing the verdict."
    few = f"the {plural(int(sure['n']), 'image')} with sure masks, their own and those of the lent backgrounds"
    if sure["headline"] == verdict["headline"]:
        return f"{text}The verdict is the same on {few}."
    if any({sure[step], verdict[step]} == {"yes", "no"} for step in ("leans", "sees")):
        return f"{text}Take care, the verdict is another on {few}: {sure['sentence']}"
    return f"{text}By themselves {few}, say no more and no less than this: {sure['sentence']}"


def _mask_steps(masks: MaskCounts | None, folder: Path) -> list[tuple[str, str]]:
    """Return what to do about doubtful masks."""
    if masks is None or not masks.doubtful:
        return []
    return [(f"Fix {plural(masks.doubtful, 'doubtful mask')}; {folder / 'masks.csv'} lists the least sure first.", "")]


def _unanswered(counts: Counts) -> list[str]:
    """Return a line about rows without an answer, if there are some."""
    unanswered = int(counts.trouble["n"].sum()) if len(counts.trouble) else 0
    if not unanswered:
        return []
    share = unanswered / (unanswered + int(counts.cells["n"].sum()))
    return [f"Without an answer: {unanswered} rows ({percent(share)}); most often: {counts.trouble['error'].iloc[0]}"]


def _lines(answer: Check, collection: Collection, outcome: Outcome, about_masks: str, folder: Path) -> list[str]:
    verdict, counts = answer.verdict, answer.results.counts
    among = "all outputs of the model" if outcome == "full" else f"the {len(collection.classes)} classes"
    photos = counts.cells["source_id"].nunique()
    lines = [
        f"{verdict['model']} on {collection.name} ({plural(photos, 'image')}, {len(collection.classes)} classes):",
        f"{verdict['headline']}.",
        *(text for text in (verdict["rests_on"], verdict["small_print"]) if text),
        f"Accuracy over {among}, mean over the classes, 95 % interval:",
    ]
    accuracy = {row["condition"]: row for row in answer.results.accuracy(outcome=outcome).to_dict("records")}
    for row in (accuracy[condition] for condition in SHOWN if condition in accuracy):
        value = estimate(row["accuracy"], row["low"], row["high"])
        lines.append(f"  {condition_words(row['condition']):22} {value}")
    lines += [f"Note: {warning}" for warning in verdict["warnings"]]
    if about_masks:
        lines.append(f"Masks: {about_masks}")
    lines += _unanswered(counts)
    few = donor_advice(int(verdict["n"]), donors_of(counts).get(RANDOM, 0))
    if few and not verdict["unjudged"]:
        lines.append(f"Backgrounds: {few}; more images lend more of them.")
    for finding in answer.findings[:MOST_FINDINGS]:
        lines.append(f"Data: {finding.sentence} First: {finding.examples[0]}. {finding.advice}")
    if len(answer.findings) > MOST_FINDINGS:
        rest = len(answer.findings) - MOST_FINDINGS
        lines.append(f"Data: {plural(rest, 'other finding')}; holdfast data check PHOTOS lists them all")
    lost = most_lost(with_display_names(class_accuracy(counts, outcome=outcome)))
    steps = [*_mask_steps(answer.masks, folder), *step_list([verdict], answer.results.run, counts, lost)]
    lines += [f"Next: {text} {command}".rstrip() for text, command in steps]
    world = about_world(str(answer.results.run.spec().get("data", "")))
    return [*lines, world] if world else lines
