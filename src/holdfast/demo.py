"""``holdfast demo``: drawn scenes and twenty photographs, measured and reported without hub, data or GPU."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.files import check_own, write_atomic
from holdfast.core.names import condition_name, condition_words
from holdfast.core.numbers import duration
from holdfast.core.types import ORIGINAL
from holdfast.data.reading import doubtful_masks
from holdfast.demo_parts import (
    FULL,
    PARTS,
    PHOTOGRAPHS,
    QUICK,
    STARTED,
    STRIP,
    DemoSize,
    PartCard,
    Picture,
    first_name,
    scenes_of,
)
from holdfast.engine import LocalExecutor, core_count
from holdfast.pipeline.evaluate.background_truth import RERENDERED
from holdfast.pipeline.jobs.progress import Progress, noted, silent
from holdfast.pipeline.samples import DataSpec, read
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.reports.page.writer import DRAWN_WORLD, templates
from holdfast.results import background_conditions
from holdfast.stats.effects.verdict import NEEDED

GUIDE = Path(__file__).parents[2] / "docs" / "my-model.md"  # in a clone
TINTED = ("grey", "red", "green", "blue", "rainbow")
LARGE = 420  # pixels of the hero's images; models see drawn scenes at 64
CAPTIONS = {RERENDERED: "on another background"}
MOST_PROCESSES = 3  # more would wait for the longest part
FIRST = "embedded:resnet_rho95"  # the network of the first result
STEPS = {"judge": "does it show its class?"}  # what a step does, if its name does not say it


def demo(
    out: Path, *, quick: bool = False, progress: Progress = silent, jobs: int = 0, say: Callable[[str], object] = noted
) -> Path:
    """Run all parts, write one page with a card for each of their reports, and return its path.

    ``say`` is called with how long it takes about, and with a first result.

    Parts run side by side, each in a process with one core; on one core, or with ``jobs=1``, one after the other.
    """
    check_own(out, "*/spec.json", "*/.lock")
    names = [name for name in STARTED if not (quick and name == PHOTOGRAPHS)]
    executor = LocalExecutor(jobs or min(MOST_PROCESSES, core_count()))
    say(_first_result(out, QUICK if quick else FULL, executor.width))
    if not executor.shares_memory:
        progress = _drawn_here(progress)
    worker = _PartWorker(out, QUICK if quick else FULL, [name for name in PARTS if name in names], progress)
    answers = dict(executor.map(worker, names))
    left_out = "The twenty photographs are left out; holdfast demo without --quick has them." if quick else ""
    left_out = next((answer for answer in answers.values() if isinstance(answer, str)), left_out)
    cards = [card for name in PARTS for card in answers.get(name, ()) if isinstance(card, PartCard)]
    photographs = out / PHOTOGRAPHS / "run"
    model, hero = _flips(api.open_run(photographs if photographs.is_dir() else out / "scenes"), out)
    text = templates().get_template("front.html.j2").render(
        cards=cards, hero=hero, hero_model=model, drawn=not photographs.is_dir(), left_out=left_out,
        link=lambda path: path.relative_to(out).as_posix(), drawn_world=DRAWN_WORLD, ticks=_ticks,
        guide=os.path.relpath(GUIDE, out) if GUIDE.is_file() else "",
    )  # fmt: skip
    index = out / "index.html"
    write_atomic(index, text.encode())
    return index


@dataclass(frozen=True)
class _PartWorker:
    """Runs a part by its name, in this process or another."""

    out: Path
    size: DemoSize
    names: Sequence[str]  # of all parts that are run, as the page has them
    progress: Progress

    def __call__(self, name: str) -> tuple[str, list[PartCard] | str]:
        """Return the name with the part's cards, or with why it is left out."""
        title = f"part {self.names.index(name) + 1} of {len(self.names)}, {name}"
        try:
            return name, PARTS[name](self.out, self.size, _of_part(self.progress, title))
        except UserError as error:
            if name != PHOTOGRAPHS:  # only they need packages that may be missing
                raise
            return name, f"The twenty photographs are left out: {error}"


@dataclass(frozen=True)
class _SentProgress:
    """Sends the progress of a part to the process that draws it."""

    queue: Any

    def __call__(self, step: str, done: int, total: int) -> None:
        self.queue.put((step, done, total))


def _drawn_here(progress: Progress) -> _SentProgress:
    """Return what other processes report their progress to, so that this one draws it."""
    queue = multiprocessing.get_context("spawn").SimpleQueue()

    def draw() -> None:
        while True:
            report = queue.get()
            with suppress(Exception):  # a closed terminal: parts that report continue
                progress(*report)

    threading.Thread(target=draw, daemon=True).start()
    return _SentProgress(queue)


def _of_part(progress: Progress, part: str) -> Progress:
    return lambda step, done, total: progress(f"{part}: {STEPS.get(step, step)}", done, total)


def _first_result(out: Path, size: DemoSize, processes: int) -> str:
    """Return what one network relies on, from rows that the first part keeps, and how long all parts take about."""
    began = time.monotonic()
    needed = ",".join(NEEDED)
    first = api.evaluate(scenes_of(size), models=FIRST, scenarios=needed, out=out / "scenes", progress=silent)
    rest = duration((time.monotonic() - began) * size.first / processes)
    (row,) = first.verdicts(resamples=500).to_dict("records")
    return f"The demo takes about {rest} here. First result, {row['model']} on drawn scenes: {row['sentence']}"


def _flips(results: api.Results, out: Path) -> tuple[str, list[Picture]]:
    """Return the model and the renderings of the image whose prediction changes most with its background.

    Of drawn scenes it takes one with nothing before the object, drawn larger.
    """
    columns = ["model", "sample_id", "source_id", "condition", "variant", "status", "correct", "prediction", "donor_id"]
    rows = results.run.rows(columns).to_pandas()
    rows = rows[rows["status"] == "ok"].astype({"model": str, "sample_id": str, "condition": str, "variant": str})
    doubtful = doubtful_masks(results.run.spec().get("masks"))  # of the image, or of the one that lends the background
    rows = rows[~rows["sample_id"].isin(doubtful) & ~rows["donor_id"].astype(object).isin(doubtful)]
    rows["shown"] = [condition_name(*names) for names in zip(rows["condition"], rows["variant"], strict=True)]
    kept = [name for name in background_conditions(results.counts) if name != ORIGINAL]
    right = rows[(rows["shown"] == ORIGINAL) & rows["correct"]]
    wrong = rows[rows["shown"].isin([*kept, RERENDERED]) & ~rows["correct"].astype(bool)]
    wrong = wrong.merge(right[["model", "source_id"]], on=["model", "source_id"])
    if wrong.empty:
        return "", []
    data = str(results.run.spec()["data"])
    drawn = f"{data}&size={LARGE}" if data.startswith("diorama") and "?" in data else ""
    hidden = [each.source_id for each in read(DataSpec(data)).samples if each.attributes.get("occlusion")]
    wrong["clear"] = ~wrong["source_id"].isin(hidden)
    # A true background says more than a colour, and one that was drawn, not pasted, is the cleanest.
    wrong["lent"] = wrong["condition"].map({"random_background": 1, RERENDERED: 2}).fillna(0)
    ranked = wrong.groupby(["model", "source_id"], observed=True).agg(
        clear=("clear", "max"), lent=("lent", "max"), answers=("prediction", "nunique")
    )
    ranked["answers"] = ranked["answers"].clip(upper=STRIP - 1)
    model, source = ranked.sort_values(["clear", "answers", "lent"], ascending=False, kind="stable").index[0]
    own = rows[(rows["model"] == model) & (rows["source_id"] == source)].set_index("shown")
    others = own[own.index.isin([*kept, RERENDERED]) & ~own["correct"].astype(bool)]
    # Other backgrounds before tints of its own, and one that was drawn instead of one that was pasted.
    order = {"random_background": 3 if RERENDERED in own.index else 0, RERENDERED: 0} | dict.fromkeys(TINTED, 2)
    others = others.sort_values("condition", key=lambda names: names.map(order).fillna(1), kind="stable")
    others = others.drop_duplicates("prediction")
    names = [ORIGINAL, *others.index[: STRIP - 1]]
    small = {name: jpeg for (_, name), jpeg in
             thumbnails(results.run, {str(source)}, size=LARGE, only=names, data=drawn).items()}  # fmt: skip
    pictures = []
    for place, name in enumerate(names):
        if name in small:
            file = f"front/{place}.jpg"
            (out / "front").mkdir(exist_ok=True)
            write_atomic(out / file, small[name])
            answer = first_name(str(own.loc[name, "prediction"]))
            words = CAPTIONS.get(name, condition_words(name))
            pictures.append(Picture(file, f"{words}: “{answer}”", name == ORIGINAL))
    return str(model), pictures


def _ticks(card: PartCard) -> list[float]:
    """Return round numbers from below the smallest to above the largest value of a card's chart."""
    values = [value for bar in card.bars for value in bar[1:] if value is not None] + [card.reference]
    low, high = min(values), max(values)
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0) if (high - low) / step <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(place * step, 6) for place in range(first, max(last, first + 1) + 1)]
