"""``holdfast check --stop when-decided``: ask in rounds, and stop as soon as the verdict is sure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.numbers import duration, estimate, percent, points, span
from holdfast.core.types import Collection, Sample
from holdfast.data.masks import FileMask
from holdfast.pipeline.evaluate.rounds import LEAST_PER_CLASS, Rounds, evaluate_rounds, plan_rounds
from holdfast.pipeline.jobs.progress import Progress
from holdfast.pipeline.mask import make_masks
from holdfast.pipeline.specs import EvaluateSpec, MaskSpec
from holdfast.reports.page.words import plural
from holdfast.stats.core.answers import from_counts
from holdfast.stats.core.reduce import Outcome, reduce
from holdfast.stats.effects.sequential import SequentialEvidence, simulated_decisions
from holdfast.stats.effects.verdict import NEEDED, VerdictEvidence, verdict_row
from holdfast.store import Run, copies_of

SECONDS_OF_MASK = 0.5  # that one automatic mask takes on a core
EFFECTS, NOISE = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3), 0.1  # true effects that a plan simulates, and changes by chance
OUT_OF_PHOTOS = "no round was left"
BUDGETS = "300 (answers), 10min, 90s, or 5@0.002 (money, and the price of an answer)"


@dataclass(frozen=True)
class Budget:
    """What a check may use: answers of the model, or seconds; infinite if neither is limited."""

    answers: float = float("inf")
    seconds: float = float("inf")


def parse_budget(text: str) -> Budget:
    """Return what a budget allows: answers (``300``), time (``10min``, ``90s``), or money @ price (``5@0.002``)."""
    if not text:
        return Budget()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:(min|s)|@(\d*\.?\d+))?", text.strip())
    amount = float(match[1]) if match else 0.0
    if match is None or amount <= 0 or (match[3] and float(match[3]) <= 0):
        raise UserError(f"--budget {text!r} is not a budget; write {BUDGETS}")
    if match[2]:
        return Budget(seconds=amount * (60 if match[2] == "min" else 1))
    return Budget(answers=float(Decimal(match[1]) // Decimal(match[3])) if match[3] else amount)


def decision_chances(collection: Collection, *, budget: str = "") -> list[str]:
    """Return in lines how likely ``check --stop when-decided`` decides about the background, by simulation."""
    allowed = parse_budget(budget)
    if allowed.seconds < float("inf"):
        raise UserError("the time of an answer is not known yet; give the budget in answers or money")
    rounds = plan_rounds(collection, 0)
    sizes: list[int] = []
    for block in rounds.blocks:
        if len(NEEDED) * (sum(sizes) + len(block)) > allowed.answers:
            break
        sizes.append(len(block))
    if not sizes:
        raise UserError(f"{collection.name} has no round of {LEAST_PER_CLASS} images of each class within the budget")
    lines = [
        f"at most {plural(sum(sizes), 'image')} in {plural(len(sizes), 'round')}, "
        f"{plural(len(NEEDED) * sum(sizes), 'answer')}; where the accuracy in truth falls by",
    ]
    for effect in EFFECTS:
        yes, no, photos = simulated_decisions(effect, effect + NOISE, sizes)
        lines.append(
            f"{100 * effect:3.0f} points: reports that it relies on the background in {percent(yes, 0):>5} of cases, "
            f"that it does not in {percent(no, 0):>5}, after {photos:,.0f} images on average"
        )
    return [
        *lines,
        f"(10,000 simulated checks a line; {100 * NOISE:g} of 100 answers are taken to change by chance, half for "
        "the better; a model that does not recognise the images is never reported as not relying on it)",
    ]


@dataclass
class TimedOriginals:
    """Progress of the originals of a check, and how long an answer took."""

    progress: Progress
    started: float = 0.0
    seconds: float = 0.0  # per image; 0 if all were answered before

    def __call__(self, step: str, done: int, total: int) -> None:
        """Report progress, and take the time of the step ``eval``."""
        if step == "eval" and done == 0:
            self.started = time.monotonic()
        elif step == "eval" and done == total:
            self.seconds = (time.monotonic() - self.started) / max(total, 1)
        self.progress("originals" if step == "eval" else step, done, total)


def first_line(row: Mapping[Hashable, Any], seconds: float, conditions: int, unmasked: int) -> str:
    """Return the accuracy on the originals, and how long the rest takes at ``seconds`` per answer."""
    images = int(row["n"])
    accuracy = estimate(row["accuracy"], row["low"], row["high"])
    rest = duration(seconds * images * conditions + SECONDS_OF_MASK * unmasked)
    return (
        f"Unchanged images: accuracy {accuracy} of {plural(images, 'image')}. The other {conditions} conditions take "
        f"about {rest} at this pace."
    )


def first_verdict(row: Mapping[str, Any]) -> str:
    """Return the verdict from the conditions that it needs, which are asked before the others."""
    rests_on = f" {row['rests_on']}" if row["rests_on"] else ""
    return f"First verdict, from {len(NEEDED)} conditions: {row['headline']}.{rests_on} Continuing with the others."


@dataclass(frozen=True)
class Look:
    """What is known after a round: images and answers so far, the evidence, and the row of the verdict."""

    photos: int
    answers: int
    evidence: VerdictEvidence
    row: dict[str, Any]
    left_out: int = 0
    contradiction: bool = False

    def __repr__(self) -> str:
        return f"Look({self.photos} images, {self.answers} answers: {self.row['headline']})"

    @property
    def decided(self) -> bool:
        """Return whether it relies on the background, or neither question is open: the verdict needs no more."""
        return self.row["leans"] == "yes" or "open" not in (self.row["leans"], self.row["sees"])

    def line(self, number: int, *, last: bool = False) -> str:
        """Return the look in a line of the terminal; ``last``: whether no round follows."""
        effects = {"background": self.evidence.background, "object": self.evidence.object}
        numbers = [
            f"{name} effect {points(effect.value, 0)} ({span(effect.low, effect.high, 0)})"
            for name, effect in effects.items()
            if effect.n
        ]
        state = self.row["headline"] if self.decided or last else f"{self.row['headline']}; continuing"
        return (
            f"Round {number}, {plural(self.photos, 'image')}, {plural(self.answers, 'answer')}: {', '.join(numbers)}. "
            f"{state}."
        )


@dataclass
class EarlyCheck:
    """The outcome of a check in rounds."""

    run: Run  # holds the rows of all rounds that were asked
    rounds: Rounds  # the design
    looks: list[Look] = field(default_factory=list)  # what was known after each round
    # a row per mask that was made, as ``make_masks`` returns them; empty if the dataset has its own
    mask_rows: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""  # why it stopped

    @property
    def note(self) -> str:
        """Return what a reader of the numbers must know."""
        last = self.looks[-1]
        ended = self.reason == OUT_OF_PHOTOS and self.rounds.unused
        unused = (
            f" {self.rounds.smallest} has no more images; {self.rounds.unused} of others are left." if ended else ""
        )
        dropped = (
            f" {plural(last.left_out, 'image')} more left out than those without an answer." if last.left_out else ""
        )
        odd = " The rounds contradict each other: images may be near-copies, or sorted." if last.contradiction else ""
        return (
            f"Asked in rounds that hold every class equally often; {self.reason} after {plural(last.photos, 'image')}. "
            f"The verdict's intervals hold whenever one stops (95 % each, betting). An image "
            "gets its new background from its own round, so that single accuracies differ from those of a full check "
            f"of the same images.{unused}{dropped}{odd}"
        )


def check_in_rounds(
    spec: EvaluateSpec,
    out: Path,
    collection: Collection,
    *,
    masks: MaskSpec,
    mask_folder: Path,
    outcome: Outcome,
    budget: Budget,
    on_look: Callable[[str], None],
    progress: Progress,
) -> EarlyCheck:
    """Ask in rounds until the verdict is sure, the budget is used, or no image is left.

    A stopped check continues with the next round; masks are made for images that have none.
    """
    rounds = _rounds_of(collection, spec.seed, budget)
    masked = all(sample.mask is not None for sample in collection.samples)
    if not masked:
        spec = replace(spec, masks=str(mask_folder))  # where a report finds them
    start = time.monotonic()
    early = EarlyCheck(Run(out), rounds)
    sequence = SequentialEvidence(collection.classes, rounds.place())
    asked: list[Sample] = []

    def with_masks(photos: Sequence[Sample]) -> list[Sample]:
        asked.extend(photos)
        if masked:
            return list(photos)
        _, rows = make_masks(
            masks, mask_folder, progress=progress, collection=replace(collection, samples=tuple(photos))
        )
        early.mask_rows += rows
        paths = {row["sample_id"]: mask_folder / row["path"] for row in rows if row["status"] == "ok"}
        return [
            replace(sample, mask=FileMask(paths[sample.sample_id])) if sample.sample_id in paths else sample
            for sample in photos
        ]

    for run, _ in evaluate_rounds(spec, out, collection, rounds, with_masks=with_masks, progress=progress):
        here = pc.field("sample_id").isin([sample.sample_id for sample in asked])
        table = run.predictions.dataset().to_table(filter=here)
        counts = reduce(table, order=list(NEEDED), copies=copies_of([run]))
        if not len(counts.cells):
            reason = str(counts.trouble["error"].iloc[0]) if len(counts.trouble) else "there are no rows"
            raise UserError(f"{spec.models[0]} answered for no image: {reason}")
        model = counts.models[0]
        evidence = sequence.look(from_counts(counts, model, outcome=outcome))
        row = verdict_row(model, "", evidence)
        look = Look(len(asked), table.num_rows, evidence, row, sequence.left_out, sequence.contradiction)
        early.looks.append(look)
        following = rounds.blocks[len(early.looks) : len(early.looks) + 1]
        on_look(look.line(len(early.looks), last=not following))
        early.reason = _why_stop(look, len(early.looks), following, budget, time.monotonic() - start)
        if early.reason:
            break
    else:
        early.reason = OUT_OF_PHOTOS
    early.run = early.run.of_samples([sample.sample_id for sample in asked])  # others are stored of other plans
    if early.mask_rows:  # masks.csv of all rounds, not of the last one
        _, early.mask_rows = make_masks(masks, mask_folder, collection=replace(collection, samples=tuple(asked)))
    return early


def _rounds_of(collection: Collection, seed: int, budget: Budget) -> Rounds:
    """Return the images in rounds; a UserError if there is none, or none that the budget allows."""
    rounds = plan_rounds(collection, seed)
    if not rounds.blocks:
        raise UserError(
            f"a round needs {LEAST_PER_CLASS} images of each class, and {rounds.smallest} has fewer: add some, or "
            "check without --stop and --budget"
        )
    if budget.answers < len(NEEDED) * len(rounds.blocks[0]):
        raise UserError(
            f"a round of {collection.name} takes {len(NEEDED) * len(rounds.blocks[0])} answers, more than the budget"
        )
    return rounds


def _why_stop(look: Look, number: int, following: Sequence[Sequence[Sample]], budget: Budget, seconds: float) -> str:
    """Return why no further round is asked after this look; '' to continue."""
    if look.decided:
        return "decided"
    dear = following and look.answers + len(NEEDED) * len(following[0]) > budget.answers
    slow = following and seconds * (1 + 1 / number) > budget.seconds
    return "the budget allows no further round" if dear or slow else ""
