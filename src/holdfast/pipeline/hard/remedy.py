"""A hard set's easy images → a fine-tuned model, and what it gains and loses on images that it was not trained on."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import pd, torch
from holdfast.core.names import Name, parse_name
from holdfast.core.types import Collection, Sample
from holdfast.data.labels import LabelMap, class_keys, map_labels
from holdfast.engine import core_count
from holdfast.models import load_classifier
from holdfast.models.local_dir import read_asset, read_config
from holdfast.models.options import PREPROCESSING
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.hard.pool import JUDGED, answer_frames, without_answer
from holdfast.pipeline.hard.publish import read_hard_set
from holdfast.pipeline.jobs.progress import Progress, environment, silent
from holdfast.pipeline.samples import DataSpec, read
from holdfast.pipeline.specs import RemedySpec as RemedySpec
from holdfast.pipeline.specs.training import RemedyRecipe
from holdfast.stats.core.bootstrap import paired_change
from holdfast.stats.hard.mining import CHOOSE, REPORT, draw_order
from holdfast.store import Parts, Run, read_json, write_json, writing
from holdfast.store.run import write_frame
from holdfast.training import augment
from holdfast.training.checkpoint import DRAWN_WORLD, write_model
from holdfast.training.loop import TrainingOptions, constant, fit, one_cycle

DRAWN_ORIGINALS = {
    "drawn scenes, tied": "diorama:test?n=480&context=0.95",
    "drawn scenes, untied": "diorama:test?n=480&context=0",
}
"""What models of drawn scenes are tried on as well: as most of them were trained, and without any tie."""

HARD, AGAIN, EASY, POOL = "hard set", "hard prompts, repainted", "easy images", "unmined pool"


@dataclass(frozen=True)
class Remedied:
    """What ``remedy`` made."""

    path: Path
    name: str  # of the fine-tuned model, for ``--models``
    table: pd.DataFrame  # a row a set of images: ``set`` and the columns of stats.paired.paired_change
    answers: pd.DataFrame  # a row an image of those sets: whether it is right before and after, and what was said
    facts: dict[str, Any]  # what ``summary.json`` holds
    warnings: list[str]


def remedy(spec: RemedySpec, out: Path, *, progress: Progress = silent) -> Remedied:
    """Fine-tune a model on the easy images of a hard set's pool, and measure it before and after on everything else."""
    recipe = spec.how()
    mined, images = read_hard_set(Path(spec.hard))
    mined |= {"pool": spec.pool or mined["pool"]}
    mined["drawn"] = bool(mined["generators"]) and all(
        str(name).startswith("embedded:") for name in mined["generators"]
    )
    collection = read(DataSpec(mined["pool"]))
    samples = easy_samples(images, collection, limit=spec.limit, seed=spec.seed)
    with writing(out):
        _claim(out, spec)
        classifier, config = trainable(spec.model, device=spec.device)
        label_map = map_labels(collection.classes, class_keys(collection, spec.labels), classifier.labels)
        name = f"{parse_name(spec.model).name.rpartition('/')[2]}-remedied"
        asked = {
            "fingerprint": classifier.fingerprint,
            "recipe": asdict(recipe),
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
                "data": f"{len(samples)} easy images of {Path(mined['pool']).name}",
                "recipe": spec.recipe,
                "asked": asked,
                "history": {f"epoch {place + 1}": round(row["loss"], 4) for place, row in enumerate(history)},
            }
            save(folder, module, config, facts, drawn=mined["drawn"])
        text = f"local-dir:{folder.resolve()}?name={name}"
        answers, trouble = _measured(spec, mined, images, text, out, progress)
        return _finish(spec, mined, samples, collection, answers, text, out, trouble)


def easy_samples(images: pd.DataFrame, collection: Collection, *, limit: int, seed: int) -> list[Sample]:
    """Return valid images that no surrogate fails, of prompts that no result is about."""
    # ``images``: of the pool by sample_id: prompt_id, half, valid, surrogates_failed. ``limit``: at most so many, by
    # hash; 0 takes all. ``seed``: of the hash.
    easy = images[(images["half"] == CHOOSE) & images["valid"] & (images["surrogates_failed"] == 0)]
    leaked = set(easy["prompt_id"]) & set(images.loc[images["half"] == REPORT, "prompt_id"])
    if leaked:
        raise UserError(
            f"{len(leaked)} prompts (first: {min(leaked)}) are in both halves of this hard set, so training would see "
            "what results are about; mine it again"
        )
    if limit:
        turns = draw_order([str(image_id) for image_id in easy.index], seed=seed)
        easy = easy.assign(turn=turns).nsmallest(limit, "turn")
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
    write_json(file, asked)


def _measured(
    spec: RemedySpec, mined: dict[str, Any], images: pd.DataFrame, remedied: str, out: Path, progress: Progress
) -> tuple[pd.DataFrame, list[str]]:
    """Return one row per image of every set, before and after; none of them was trained on."""
    images = images[(images["half"] == REPORT) & images["valid"]]
    hard = images["set"] == "hard"
    trouble: list[str] = []
    answers = partial(_answers, spec, remedied, out / "runs", progress, trouble)
    facts = answers(mined["pool"], "pool").join(images[["prompt_id"]], how="inner")
    parts = [
        facts[facts.index.isin(images.index[inside])].assign(set=name)
        for name, inside in ((HARD, hard), (EASY, images["surrogates_failed"] == 0), (POOL, hard | True))
    ]
    again = Path(spec.hard) / "mining" / "again"
    if (again / "manifest.parquet").is_file():  # new images of the hard prompts: no one's failure chose them
        verdicts = Parts(again / "oracle", JUDGED).rows().to_pylist()  # of every oracle that this set was mined with
        accepted = {row["sample_id"] for row in verdicts if row["accepted"] and row["oracle"] == str(mined["oracle"])}
        own = answers(str(again / "manifest.parquet"), "again")
        own = own[own.index.isin(accepted) & own["source_id"].isin(images.loc[hard, "prompt_id"])]
        parts.insert(1, own.assign(set=AGAIN, prompt_id=own["source_id"]))
    originals = {name: name for name in spec.originals} or (DRAWN_ORIGINALS if mined["drawn"] else {})
    for place, (name, data) in enumerate(originals.items()):
        own = answers(data, f"originals_{place}")
        parts.append(own.assign(set=name, prompt_id=own["source_id"]))
    if not originals:
        trouble.append("no --originals were named, so what the model forgets of its own data is not measured")
    if spec.model in mined["used"]:
        trouble.append(
            f"{spec.model} chose this hard set as a surrogate: it is wrong there because the images were kept for "
            "that, and whatever changes its answers raises its accuracy; believe the repainted prompts, or remedy a "
            "target"
        )
    columns = ["set", "sample_id", "prompt_id", "category", "before", "after", "said_before", "said_after"]
    joined = pd.concat(parts).rename_axis("sample_id").reset_index()
    return joined[columns], trouble


def _answers(
    spec: RemedySpec, remedied: str, folder: Path, progress: Progress, trouble: list[str], data: str, name: str
) -> pd.DataFrame:
    """Return by sample_id: source_id, category, before, after, said_before, said_after; what went wrong is added."""
    asked = EvaluateSpec(
        data, models=(spec.model, remedied), scenarios="original", labels=spec.labels, batch_size=spec.batch_size,
        device=spec.device, max_pixels=spec.max_pixels,
    )  # fmt: skip
    run, _ = evaluate(asked, folder / name, progress=progress)
    trouble += without_answer(run)
    right, said = answer_frames(run, spec.outcome)  # of the model, then of the remedied one
    rows = run.rows(["sample_id", "source_id", "label"]).to_pandas().astype({"label": object})
    samples = rows.drop_duplicates("sample_id").set_index("sample_id").rename(columns={"label": "category"})
    samples = samples.join(right.dropna().astype(bool).set_axis(["before", "after"], axis=1), how="inner")
    joined: pd.DataFrame = samples.join(said.set_axis(["said_before", "said_after"], axis=1))
    return joined.sort_index()  # parts of a run may be read in any order


def _finish(
    spec: RemedySpec,
    mined: dict[str, Any],
    samples: Sequence[Sample],
    collection: Collection,
    answers: pd.DataFrame,
    text: str,
    out: Path,
    warnings: list[str],
) -> Remedied:
    table = pd.DataFrame(
        {"set": name} | paired_change(part["before"], part["after"], part["prompt_id"].astype(str), seed=spec.seed)
        for name, part in answers.groupby("set", sort=False)
    )
    missing = sorted(set(collection.classes) - {sample.label for sample in samples})
    if missing:
        warnings.append(f"no easy image of {', '.join(missing)} was there to train on")
    facts = {
        "hard": spec.hard,
        "model": spec.model,
        "remedied": text,
        "recipe": spec.recipe,
        "how": asdict(spec.how()),
        "images": len(samples),
        "prompts": len({str(sample.attributes.get("prompt_id") or sample.source_id) for sample in samples}),
        "surrogates": mined["used"],
        "outcome": spec.outcome,
        "originals": list(spec.originals or (DRAWN_ORIGINALS.values() if mined["drawn"] else ())),
        "drawn": mined["drawn"],
        "warnings": warnings,
        "environment": environment(),
    }
    for name, frame in (("remedy", table), ("answers", answers)):
        write_frame(out / "results", name, frame)
    write_json(out / "summary.json", facts)
    return Remedied(out, text, table, answers, facts, warnings)


SCHEMES = ("embedded", "local-dir", "timm")  # models that a folder of timm's can hold
WEIGHTS = "model"  # the folder of a remedied model, below the run


def trainable(text: str, *, device: str) -> tuple[TorchClassifier, dict[str, Any]]:
    """Return a classifier and the configuration that rebuilds it as timm writes it."""
    name = parse_name(text)
    if name.scheme not in SCHEMES:
        raise UserError(
            f"remedy trains {', '.join(f'{scheme}:' for scheme in SCHEMES)} models, and {text} is none of them"
        )
    classifier = load_classifier(text, device=device)
    assert isinstance(classifier, TorchClassifier)
    if name.scheme == "timm":
        if changed := sorted(set(PREPROCESSING) & set(name.options)):
            raise UserError(f"remedy writes a folder that timm prepares images for; leave out {', '.join(changed)}")
        return classifier, _timm_config(name, classifier)
    if name.scheme == "embedded":
        plain = Name(name.scheme, name.name, name.tag, {})
        return classifier, dict(read_asset("classifiers", plain).config)
    config = read_config(Path(name.whole) / "config.json")
    return classifier, {key: value for key, value in config.items() if key != "holdfast"}


def _timm_config(name: Name, classifier: TorchClassifier) -> dict[str, Any]:
    from timm.data import resolve_data_config

    module: Any = classifier.module
    known = classifier.labels.wnids  # ImageNet's outputs are named by their number
    return {
        "architecture": name.name,
        "num_classes": len(classifier.labels),
        "num_features": int(module.num_features),
        "model_args": {},
        "pretrained_cfg": {**resolve_data_config(pretrained_cfg=module.pretrained_cfg), "custom_load": False},
        **({} if known else {"label_names": list(classifier.labels.names)}),
    }


def fine_tune(
    classifier: TorchClassifier,  # whose weights to start from and whose preparation to use
    samples: Sequence[Sample],  # what to train on
    label_map: LabelMap,  # which outputs mean which class; an image's loss is that of all outputs of its class together
    recipe: RemedyRecipe,
    *,
    seed: int,  # of order and augmentation
    max_pixels: int,  # larger images are refused
    checkpoints: Path,  # folder to resume from and to write to
    progress: Progress,
) -> tuple[torch.nn.Module, list[dict[str, float]]]:
    """Return a trained copy of the classifier's module on the CPU, and its history."""
    from timm.layers import freeze_batch_norm_2d, unfreeze_batch_norm_2d

    # Few images would replace what batch norms know of many: the paper's small steps alone then cost accuracy.
    module = freeze_batch_norm_2d(copy.deepcopy(classifier.module).requires_grad_(True))
    belongs = np.zeros((len(label_map.classes), len(classifier.labels)), bool)
    for place, outputs in enumerate(label_map.members):
        belongs[place, list(outputs)] = True
    owners = torch.from_numpy(belongs)
    places = {name: place for place, name in enumerate(label_map.classes)}
    targets = torch.tensor([places[sample.label] for sample in samples])
    moves = augment.Moves() if recipe.moves else augment.Moves(rotation=0, zoom=0, shift=0)
    size = min(recipe.batch_size, len(samples))

    def batches(epoch: int) -> Iterator[Any]:
        with ThreadPoolExecutor(core_count()) as threads:
            for index in augment.shuffled(len(samples), size, "cpu"):
                chosen = [samples[place] for place in index.tolist()]
                pictures = threads.map(
                    lambda sample: classifier.prepare(sample.image.load(max_pixels=max_pixels)), chosen
                )
                batch = torch.stack(list(pictures))
                yield augment.move(batch, augment.move_grid(batch, moves)), owners[targets[index]]

    options = TrainingOptions(
        epochs=recipe.epochs, steps_per_epoch=len(samples) // size, seed=seed, checkpoints=checkpoints,
        on_cpu=classifier.device == "cpu",
    )  # fmt: skip
    progress("train", 0, recipe.epochs)
    if recipe.optimiser == "sgd":
        optimiser: torch.optim.Optimizer = torch.optim.SGD(module.parameters(), lr=recipe.rate, momentum=0.9)
    else:
        optimiser = torch.optim.AdamW(module.parameters(), lr=recipe.rate, weight_decay=0.01)
    fitted = fit(
        module, batches, _loss, optimiser, options, schedule=one_cycle if recipe.cycle else constant,
        on_epoch=lambda epoch: progress("train", epoch.number + 1, recipe.epochs),
    )  # fmt: skip
    return unfreeze_batch_norm_2d(fitted.model.cpu()).eval(), [dict(row) for row in fitted.history]


def _loss(module: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    logits = module(batch[0]).float()
    own = batch[1].to(logits.device)
    likely = logits.log_softmax(1).masked_fill(~own, float("-inf")).logsumexp(1)
    right = own.gather(1, logits.argmax(1, keepdim=True)).float().mean()
    return {"loss": -likely.mean(), "accuracy": right}


def save(
    folder: Path, module: torch.nn.Module, config: Mapping[str, Any], facts: Mapping[str, Any], *, drawn: bool
) -> None:
    """Write the folder that ``local-dir:`` reads, with a card and weights in single precision."""
    weights = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
    text = f"# {facts['name']}\n\n{facts['model']}, fine-tuned on generated images that other models get right."
    write_model(folder, weights, config, facts, text, note=DRAWN_WORLD if drawn else "")


def trained_as(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Return whether the folder holds the finished model of the very same training."""
    if not all((folder / name).is_file() for name in ("README.md", "config.json")):
        return False
    facts = read_json(folder / "config.json").get("holdfast", {})
    return bool(facts.get("asked") == json.loads(json.dumps(asked)))
