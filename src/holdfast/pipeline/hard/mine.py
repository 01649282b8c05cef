"""A pool → the images that many models fail together, and what can honestly be said of them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.files import safe_part, write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.lazy import pd
from holdfast.core.numbers import percent
from holdfast.core.protocols import TextToImage
from holdfast.data.writers import encode_image
from holdfast.engine import Executor, LocalExecutor
from holdfast.oracle import card
from holdfast.oracle.lineage import lineages
from holdfast.pipeline.files import check_apart
from holdfast.pipeline.generate.generate import GenerateWorker, KnownMaker, image_row, know_maker, make_images
from holdfast.pipeline.generate.plan import POOL_ROWS, ImageRequest
from holdfast.pipeline.hard.pool import MeasuredPool, MineSpec, check, measure, without_answer
from holdfast.pipeline.hard.publish import publish
from holdfast.pipeline.hard.results import Mining, MiningChoice, Selection, tables
from holdfast.pipeline.jobs.execute import batched_shard_size, execute
from holdfast.pipeline.jobs.plan import Job, plan
from holdfast.pipeline.jobs.progress import Progress, environment, silent
from holdfast.pipeline.samples import DataSpec, read
from holdfast.stats.hard.mining import CHOOSE, REPORT, capped, matched_control, shared
from holdfast.stats.hard.mining_curve import choose_k, choose_m, fit_curve, stand_in_curve
from holdfast.store import Parts, write_json, write_table, writing

MINING = "mining"  # the folder of a hard set that says how it was made


@dataclass(frozen=True)
class Mined:
    """What ``mine`` made."""

    path: Path  # the hard set's folder
    images: int  # how many it has
    facts: dict[str, Any]  # what ``mining/summary.json`` holds
    tables: dict[str, pd.DataFrame] = field(repr=False)  # by name, as in ``mining/results``
    warnings: list[str]


def mine(spec: MineSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None) -> Mined:
    """Classify a pool with every model, keep shared failures, measure what they are, and write the dataset folder."""
    warnings = check(spec)
    check_apart(read(DataSpec(spec.pool)).samples, out)
    folder = out / MINING
    with writing(out, f"{MINING}/spec.json"):
        write_json(folder / "spec.json", {"verb": "mine", **asdict(spec)})
        pool, oracle = measure(spec, spec.pool, folder, progress, limit=spec.limit, executor=executor)
        warnings += without_answer(pool.run) + _doubts_about_models(spec, pool)
        choice = _choose(spec, pool)
        selection = select(spec, pool, choice)
        mining = Mining(spec, pool, oracle, choice, selection)
        warnings += choice.warnings + _doubts_about_selection(pool, selection)
        again, trouble = paint_again(mining, folder, progress, executor)
        warnings += trouble
        progress("results", 0, 1)
        mining = replace(mining, again=again)
        result_tables = tables(mining)
        progress("results", 1, 1)
        facts = {
            "pool": spec.pool,
            "surrogates": list(pool.surrogates),
            "used": list(choice.used),
            "targets": list(pool.targets),
            "oracle": oracle.name,
            "oracle_card": card(oracle),
            "choice": choice.record(),
            "images": len(pool.images),
            "prompts": int(pool.images["prompt_id"].nunique()),
            "source": "prompt" if (pool.images["prompt"] != "").any() else "photo",
            "valid": int(pool.images["valid"].sum()),
            "unanswered": pool.unanswered,
            "shared": int(selection.shared.sum()),
            "hard": int(selection.hard.sum()),
            "hard_valid": int((selection.hard & pool.images["valid"]).sum()),
            "again": 0 if again is None else len(again.images),
            "outcome": spec.outcome,
            "seed": spec.seed,
            "warnings": warnings,
            "environment": environment(),
        }
        count = publish(mining, result_tables, facts, out)
    return Mined(out, count, facts, result_tables, warnings)


def _choose(spec: MineSpec, pool: MeasuredPool) -> MiningChoice:
    """Choose k and m, on the choosing half of the prompts and without asking the targets."""
    half = pool.images["half"] == CHOOSE
    if not (pool.images["valid"] & ~half).any():
        raise UserError(
            f"the pool has {pool.images['prompt_id'].nunique()} prompts, and the half of them that results are about "
            "has no valid image; make a larger pool"
        )
    images, failed = pool.images[half], pool.failed[half]
    judged = images[images["valid"]]
    curve = stand_in_curve(judged, failed.loc[judged.index], pool.surrogates)
    fit = fit_curve(curve["k"], curve["estimate"])
    use = spec.use or max(choose_k(fit, len(pool.surrogates), fall=spec.least_fall), spec.at_least)
    used = pool.surrogates[:use]
    m, counts = choose_m(images, failed, used, least=spec.least_images)
    at_least = spec.at_least or m
    warnings = []
    left = int(counts.loc[counts["m"] == at_least, "valid"].sum())
    if left < spec.least_images:
        warnings.append(
            f"the choosing half of the prompts has {left} valid images that {at_least} of {use} surrogates fail, fewer "
            f"than the {spec.least_images} asked for: use a larger pool"
        )
    return MiningChoice(used, at_least, curve, fit, counts, spec, warnings)


def select(spec: MineSpec, pool: MeasuredPool, choice: MiningChoice) -> Selection:
    """Return the hard images, and a control for each."""
    images = pool.images
    failures = pool.failed[list(choice.used)].sum(axis=1)
    hard = shared(pool.failed, choice.used, choice.at_least)
    if not hard.any():
        most = int(failures.max())
        raise UserError(
            f"no image of {len(images)} is failed by {choice.at_least} of the {len(choice.used)} surrogates "
            f"{', '.join(choice.used)} (the most that fail together is {most}); "
            + (f"--at-least {most} would leave some" if most >= 2 else "a larger or harder pool is needed")
        )
    if not spec.keep_rejected and not (hard & images["valid"]).any():
        raise UserError(
            f"the oracle accepts none of the {int(hard.sum())} images that the surrogates fail together: they are "
            "wrong labels, not hard images; --keep-rejected publishes them all the same"
        )
    kept = capped(
        images, hard, per_category=spec.cap_per_category, per_pair=spec.cap_per_pair, balance=spec.balance,
        seed=spec.seed,
    )  # fmt: skip
    control = matched_control(images, kept, failures, ~hard, seed=spec.seed)
    valid = images["valid"]
    valid_control = matched_control(images, kept & valid, failures, ~hard & valid, seed=spec.seed)
    return Selection(failures, hard, kept, control, valid_control)


def _doubts_about_models(spec: MineSpec, pool: MeasuredPool) -> list[str]:
    """Return what a reader should know about models and oracle before believing a hard set."""
    doubts = []
    wrong = pool.failed.mean()
    chance = 1 - 1 / max(len(pool.collection.classes), 2)
    for model in pool.surrogates:
        if wrong[model] == 1:
            doubts.append(
                f"the surrogate {model} gets every image wrong, so it sorts nothing out (with such surrogates the hard "
                "set would be everything): check its preprocessing and --labels"
            )
        elif wrong[model] >= chance:
            doubts.append(
                f"the surrogate {model} is right on {percent(1 - wrong[model])} of the pool, no more than by chance"
            )
        elif wrong[model] == 0:
            doubts.append(
                f"the surrogate {model} gets no image wrong, so there is no failure that all surrogates share"
            )
    doubts += [
        f"{model} and {other} give the same answer to every image: are they the same weights?"
        for model, other in combinations(pool.models, 2)
        if wrong[model] > 0 and (pool.said[model] == pool.said[other]).all()
    ]
    makers = {str(sample.attributes.get("generator", "")).partition(":")[0] for sample in pool.collection.samples}
    if "embedded" in makers and {lineage.model for lineage in lineages(spec.oracle)} == {"clip:embedded"}:
        doubts.append(
            "the embedded generator takes its prompts through the text tower of clip:embedded, so this oracle accepts "
            "its images more readily than a stranger would: take its validity as an upper bound, or let it vote with "
            "another (ensemble:clip:embedded+classifier:MODEL?rule=unanimous)"
        )
    return doubts


def _doubts_about_selection(pool: MeasuredPool, selection: Selection) -> list[str]:
    """Return warnings if everything is hard, or if hard images of the reporting half have no control."""
    doubts = []
    if selection.shared.all():
        doubts.append(
            "every image of the pool is a shared failure, so the hard set is the pool and says nothing about mining"
        )
    hard = pool.images.index[selection.hard & pool.images["valid"] & (pool.images["half"] == REPORT)]
    controlled = int(hard.isin(selection.valid_control["hard"]).sum())
    if controlled < len(hard):
        doubts.append(
            f"{controlled} of {len(hard)} valid hard images of the reporting half have a control: the pool has no "
            "other valid image of their category and kind that too few surrogates fail"
            + ("; the control is compared with those that have one" if controlled else "")
        )
    return doubts


FIRST_REPEAT = 1_000_000  # of new images: no pool has so many of one prompt, so their seeds are new however it grows
_STAND_IN = "stand-in"  # what is in the folder only to name a category

_COLUMNS = (
    "path", "label", "sample_id", "source_id", "kind", "condition", "nuisance", "prompt", "prompt_id", "repeat", "seed",
    "generator", "generator_fingerprint", "published_sha256",
)  # fmt: skip
_OF_POOL = [POOL_ROWS.field(name) for name in _COLUMNS]
PAINTED = pa.schema(
    [("row_id", pa.string())]  # prompt, repeat and generator
    + [field.with_type(pa.int64()) if field.name == "repeat" else field for field in _OF_POOL]
)


Repaint = Job[tuple[ImageRequest, str], None]
"""A job: what is to be painted, and the name that the pool gave its prompt."""


def paint_again(
    mining: Mining, folder: Path, progress: Progress, executor: Executor | None = None
) -> tuple[MeasuredPool | None, list[str]]:
    """Paint hard prompts again, classify and judge in ``folder/again``; return warnings if that cannot be."""
    # What was painted before is kept, also for prompts that are no longer hard.
    spec, pool, oracle = mining.spec, mining.pool, mining.oracle
    if not spec.again:
        return None, [
            "hard prompts were not repainted (--again 0), so luck of the seed is not separated from the prompt"
        ]
    if hasattr(oracle, "knows"):
        return None, ["people cannot have judged images that are not made yet, so hard prompts were not repainted"]
    hard = pool.images[mining.selection.hard].drop_duplicates("prompt_id")
    if (hard["prompt"] == "").any():
        return None, ["the pool does not say what its images were painted from, so none is repainted"]
    text, known, maker = _maker(spec, pool, executor)
    wanted = {
        ImageRequest(row["prompt"], row["category"], row["kind"], row["nuisance"], repeat): str(row["prompt_id"])
        for row in hard.to_dict("records")
        for repeat in range(FIRST_REPEAT, FIRST_REPEAT + spec.again)
    }
    place = folder / "again"
    parts = Parts(place / "manifest", PAINTED)
    worker, executor = RepaintWorker(text, spec, place.absolute(), known), executor or LocalExecutor(1)
    jobs: list[Repaint] = [Job(item, (None,)) for item in wanted.items()]
    todo = plan(parts, jobs, lambda job: [_row_id(job.item[0], known)])
    size = batched_shard_size(todo.owed, executor, spec.batch_size)
    lost = todo.owed - execute(todo, worker, executor, step="paint", size=size, known=maker, progress=progress).rows
    stored = {row["row_id"]: row for row in parts.rows().to_pylist()}
    rows = [row for row in stored.values() if row["generator_fingerprint"] == known.fingerprint]
    rows = sorted(rows, key=lambda row: str(row["sample_id"])) + _stand_ins(pool, {row["label"] for row in rows}, place)
    write_table(place / "manifest.parquet", pa.Table.from_pylist(rows, schema=PAINTED).drop(["row_id"]))
    again, _ = measure(spec, str(place / "manifest.parquet"), place, progress, oracle=oracle, executor=executor)
    painted = again.images["kind"] != _STAND_IN
    again = replace(again, images=again.images[painted], failed=again.failed[painted], said=again.said[painted])
    return again, [f"{lost} of {len(wanted)} new images of hard prompts could not be made"] if lost else []


def _stand_ins(pool: MeasuredPool, present: Container[str], place: Path) -> list[dict[str, Any]]:
    """Return a pool image per category that no painted image has, so that models choose among all of them."""
    rows = []
    for category in pool.collection.classes:
        if category not in present:
            sample = next(candidate for candidate in pool.collection.samples if candidate.label == category)
            data = encode_image(sample.image.load())
            path = f"{_STAND_IN}/{safe_part(category)}.png"
            write_atomic(place / path, data)
            facts = {"label": category, "sample_id": f"{_STAND_IN}/{category}", "condition": _STAND_IN}
            rows.append(facts | {"path": path, "kind": "generated", "published_sha256": bytes_sha256(data)})
    return rows


def _maker(spec: MineSpec, pool: MeasuredPool, executor: Executor | None) -> tuple[str, KnownMaker, TextToImage | None]:
    """Return the generator's name (the pool's own, or the one named), what is known of it, and itself if loaded."""
    makers = {
        (str(sample.attributes.get("generator", "")), str(sample.attributes.get("generator_fingerprint", "")))
        for sample in pool.collection.samples
    }
    hint = "give the generator that repaints the hard prompts (--generator), or skip that (--again 0)"
    if len(makers) != 1 and not spec.generator:
        raise UserError(f"the pool has images of several generators; {hint}")
    name, identity = next(iter(makers))
    text = spec.generator or name
    if not text:
        raise UserError(f"the pool does not say what made it; {hint}")
    try:
        known, maker = know_maker(text, spec.device, (), executor)
    except HoldfastError as error:
        raise UserError(f"the generator of the pool cannot be loaded: {error}; {hint}") from error
    if identity and known.fingerprint != identity:
        raise UserError(
            f"{text} is not what made the pool, its weights or settings are others; name the pool's own generator "
            "(--generator), or leave painting out (--again 0)"
        )
    return text, known, maker


class RepaintWorker(GenerateWorker):
    """Paints prompts in batches and writes the images."""

    def run(self, maker: TextToImage, jobs: Sequence[Repaint]) -> Iterator[dict[str, Any]]:
        """Yield a row per image that could be made."""
        names = dict(job.item for job in jobs)
        for image in make_images(maker, names, seed=self.spec.seed, batch_size=self.spec.batch_size):
            if image.image is not None:
                row = image_row(image, names[image.request], self._known, self._out)
                yield row | {"row_id": _row_id(image.request, self._known)}


def _row_id(request: ImageRequest, known: KnownMaker) -> str:
    return f"{request.prompt_id}-{request.repeat}-{known.fingerprint[:16]}"
