"""A hard set's easy images → a fine-tuned model, and what it gains and loses on images that it was not trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import parse_name
from holdfast.core.types import Collection, Sample
from holdfast.data.labels import class_keys, map_labels
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.hard.pool import JUDGED, without_answer
from holdfast.pipeline.hard.publish import read_hard_set
from holdfast.pipeline.hard.remedy_training import (
    WEIGHTS,
    described,
    fine_tune,
    save,
    trainable,
    trained_as,
)
from holdfast.pipeline.jobs.environment import environment
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.samples import DataSpec, read
from holdfast.pipeline.specs import RemedySpec as RemedySpec
from holdfast.pipeline.specs.rows import OUTCOME_COLUMNS
from holdfast.stats.core.paired import paired_change
from holdfast.stats.hard.mining import CHOOSE, REPORT, draw_order
from holdfast.store import Parts, Run, write_json, writing
from holdfast.store.spreadsheets import write_frame

if TYPE_CHECKING:
    import pandas as pd

DRAWN_ORIGINALS = {
    "drawn scenes, tied": "diorama:test?n=480&context=0.95",
    "drawn scenes, untied": "diorama:test?n=480&context=0",
}
"""What models of drawn scenes are tried on besides: as most of them were trained, and without any tie."""

HARD, AGAIN, EASY, POOL = "hard set", "hard prompts, painted anew", "easy images", "unmined pool"


@dataclass(frozen=True)
class Remedied:
    """What ``remedy`` made."""

    path: Path
    name: str  # of the fine-tuned model, for ``--models``
    table: pd.DataFrame  # a row a set of images: ``set`` and the columns of stats.paired.paired_change
    answers: pd.DataFrame  # a row an image of those sets: whether it is right before and after, and what was said
    facts: dict[str, Any]  # what ``summary.json`` holds
    warnings: list[str]


@dataclass(frozen=True)
class _Mined:
    """What remedy needs of a hard set: its summary, its pool, and a row an image of it."""

    facts: dict[str, Any]
    pool: str
    images: pd.DataFrame
    drawn: bool


def remedy(spec: RemedySpec, out: Path, *, progress: Progress = silent) -> Remedied:
    """Fine-tune a model on the easy images of a hard set's pool, and measure it before and after on everything else."""
    recipe = spec.how()
    mined = _read(spec)
    collection = read(DataSpec(mined.pool))
    samples = easy_samples(mined.images, collection, limit=spec.limit, seed=spec.seed)
    with writing(out):
        _claim(out, spec)
        classifier, config = trainable(spec.model, device=spec.device)
        label_map = map_labels(collection.classes, class_keys(collection, spec.labels), classifier.labels)
        name = f"{parse_name(spec.model).name.rpartition('/')[2]}-remedied"
        asked = {
            "fingerprint": classifier.fingerprint,
            "recipe": described(recipe),
            "seed": spec.seed,
            "images": fingerprint([[sample.sample_id, sample.image.fingerprint()] for sample in samples]),
        }
        folder = out / WEIGHTS
        if not trained_as(folder, asked):
            module, history = fine_tune(
                classifier, samples, label_map, recipe, seed=spec.seed, max_pixels=spec.max_pixels,
                checkpoints=out / "work" / fingerprint(asked)[:16], progress=progress,
            )  # fmt: skip
            facts = {
                "name": name,
                "model": spec.model,
                "data": f"{len(samples)} easy images of {Path(mined.pool).name}",
                "recipe": spec.recipe,
                "asked": asked,
                "history": {f"epoch {place + 1}": round(row["loss"], 4) for place, row in enumerate(history)},
            }
            save(folder, module, config, facts, drawn=mined.drawn)
        text = f"local-dir:{folder.resolve()}?name={name}"
        answers, trouble = _measured(spec, mined, text, out, progress)
        return _finish(spec, mined, samples, collection, answers, text, out, trouble)


def _read(spec: RemedySpec) -> _Mined:
    facts, images = read_hard_set(Path(spec.hard))
    drawn = bool(facts["generators"]) and all(
        str(generator).startswith("embedded:") for generator in facts["generators"]
    )
    return _Mined(facts, spec.pool or facts["pool"], images, drawn)


def easy_samples(images: pd.DataFrame, collection: Collection, *, limit: int, seed: int) -> list[Sample]:
    """Return valid images that no surrogate fails, of prompts that no result is about.

    ``images``: of the pool by sample_id: prompt_id, half, valid, surrogates_failed. ``limit``: at most so many, by
    hash; 0 takes all. ``seed``: of the hash.
    """
    easy = images[(images["half"] == CHOOSE) & images["valid"] & (images["surrogates_failed"] == 0)]
    leaked = set(easy["prompt_id"]) & set(images.loc[images["half"] == REPORT, "prompt_id"])
    if leaked:
        raise UserError(
            f"{len(leaked)} prompts (first: {min(leaked)}) are in both halves of this hard set, so training would see "
            "what results are about; mine it anew"
        )
    if limit:
        chosen = easy.assign(turn=draw_order([str(image_id) for image_id in easy.index], seed=seed)).nsmallest(
            limit, "turn"
        )
        easy = easy.loc[chosen.index]
    wanted = {str(image_id) for image_id in easy.index}
    samples = [sample for sample in collection.samples if sample.sample_id in wanted]
    if len(samples) < 8:
        raise UserError(
            f"only {len(samples)} easy images (valid, no surrogate fails, prompts of the choosing half) are at hand; a "
            "larger pool or other surrogates are needed"
        )
    return samples


def _claim(out: Path, spec: RemedySpec) -> None:
    """Raise a UserError if the folder holds another remedy, whose numbers must not be mixed in."""
    file = out / "spec.json"
    asked = {"verb": "remedy", **json.loads(json.dumps(asdict(spec)))}
    if file.is_file():
        stored = Run(out).spec()
        other = [key for key in ("verb", "hard", "model") if stored.get(key) != asked[key]]
        if other:
            raise UserError(f"{out} holds another run ({other[0]} {stored.get(other[0])}); name a new folder for --out")
    elif any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise UserError(f"{out} holds something else; name a new folder for --out")
    write_json(file, asked)


def _measured(
    spec: RemedySpec, mined: _Mined, remedied: str, out: Path, progress: Progress
) -> tuple[pd.DataFrame, list[str]]:
    """Return one row per image of every set, before and after; none of them was trained on."""
    import pandas as pd

    images = mined.images[(mined.images["half"] == REPORT) & mined.images["valid"]]
    hard = images["set"] == "hard"
    trouble: list[str] = []
    answered = _answers(spec, mined.pool, remedied, out / "runs" / "pool", progress, trouble)
    facts = answered.join(images[["prompt_id"]], how="inner")
    parts = [
        facts[facts.index.isin(images.index[inside])].assign(set=name)
        for name, inside in ((HARD, hard), (EASY, images["surrogates_failed"] == 0), (POOL, hard | True))
    ]
    again = Path(spec.hard) / "mining" / "again"
    if (again / "manifest.parquet").is_file():
        prompts, oracle = set(images.loc[hard, "prompt_id"]), str(mined.facts["oracle"])
        parts.insert(1, _painted(spec, again, prompts, oracle, remedied, out, progress, trouble))
    originals = {name: name for name in spec.originals} or (DRAWN_ORIGINALS if mined.drawn else {})
    for place, (name, data) in enumerate(originals.items()):
        own = _answers(spec, data, remedied, out / "runs" / f"originals_{place}", progress, trouble)
        parts.append(own.assign(set=name, prompt_id=own["source_id"]))
    if not originals:
        trouble.append("no --originals were named, so what the model forgets of its own data is not measured")
    if spec.model in mined.facts["used"]:
        trouble.append(
            f"{spec.model} chose this hard set as a surrogate: it is wrong there because the images were kept for "
            "that, and whatever changes its answers raises its accuracy; believe the prompts painted anew, or remedy a "
            "target"
        )
    columns = ["set", "sample_id", "prompt_id", "category", "before", "after", "said_before", "said_after"]
    joined = pd.concat(parts).rename_axis("sample_id").reset_index()
    return joined[columns], trouble


def _answers(
    spec: RemedySpec, data: str, remedied: str, out: Path, progress: Progress, trouble: list[str]
) -> pd.DataFrame:
    """Return by sample_id: source_id, category, before, after, said_before, said_after; what went wrong is added."""
    asked = EvaluateSpec(
        data, models=(spec.model, remedied), scenarios="original", labels=spec.labels, batch_size=spec.batch_size,
        device=spec.device, max_pixels=spec.max_pixels,
    )  # fmt: skip
    run, _ = evaluate(asked, out, progress=progress)
    trouble += without_answer(run)
    right, said = OUTCOME_COLUMNS[spec.outcome]
    rows = run.rows(["sample_id", "source_id", "label", "model", "status", right, said]).to_pandas()
    rows = rows[rows["status"] == "ok"].astype({"model": object, "label": object, said: object})
    names = run.spec()["model_names"]  # as given: the model, then the remedied one
    correct = rows.pivot(index="sample_id", columns="model", values=right)[names].dropna().astype(bool)
    samples = rows.drop_duplicates("sample_id").set_index("sample_id")[["source_id", "label"]]
    samples = samples.join(correct.set_axis(["before", "after"], axis=1), how="inner").rename(
        columns={"label": "category"}
    )
    answers = rows.pivot(index="sample_id", columns="model", values=said)[names]
    joined: pd.DataFrame = samples.join(answers.set_axis(["said_before", "said_after"], axis=1))
    return joined.sort_index()  # parts of a run may be read in any order


def _painted(
    spec: RemedySpec,
    again: Path,
    prompts: set[str],
    oracle: str,
    remedied: str,
    out: Path,
    progress: Progress,
    trouble: list[str],
) -> pd.DataFrame:
    """Return new images of the hard prompts that the oracle accepts; nobody's failure chose them."""
    verdicts = Parts(again / "oracle", JUDGED).rows().to_pylist()  # of every oracle that this set was mined with
    accepted = {row["sample_id"] for row in verdicts if row["accepted"] and row["oracle"] == oracle}
    own = _answers(spec, str(again / "manifest.parquet"), remedied, out / "runs" / "again", progress, trouble)
    own = own[own.index.isin(accepted) & own["source_id"].isin(prompts)]
    return own.assign(set=AGAIN, prompt_id=own["source_id"])


def _finish(
    spec: RemedySpec,
    mined: _Mined,
    samples: Sequence[Sample],
    collection: Collection,
    answers: pd.DataFrame,
    text: str,
    out: Path,
    warnings: list[str],
) -> Remedied:
    import pandas as pd

    rows = [
        {"set": name} | paired_change(part["before"], part["after"], part["prompt_id"].astype(str), seed=spec.seed)
        for name, part in answers.groupby("set", sort=False)
    ]
    table = pd.DataFrame(rows)
    missing = sorted(set(collection.classes) - {sample.label for sample in samples})
    if missing:
        warnings.append(f"no easy image of {', '.join(missing)} was there to train on")
    facts = {
        "hard": spec.hard,
        "model": spec.model,
        "remedied": text,
        "recipe": spec.recipe,
        "how": described(spec.how()),
        "images": len(samples),
        "prompts": len({str(sample.attributes.get("prompt_id") or sample.source_id) for sample in samples}),
        "surrogates": mined.facts["used"],
        "outcome": spec.outcome,
        "originals": list(spec.originals or (DRAWN_ORIGINALS.values() if mined.drawn else ())),
        "drawn": mined.drawn,
        "warnings": warnings,
        "environment": environment(),
    }
    for name, frame in (("remedy", table), ("answers", answers)):
        write_frame(out / "results", name, frame)
    write_json(out / "summary.json", facts)
    return Remedied(out, text, table, answers, facts, warnings)
