"""``holdfast study prompts``: how to ask for a background, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.core.types import Collection, Image, Mask, Sample
from holdfast.data.images import decode_image, read_file
from holdfast.data.manifest import read_rows
from holdfast.data.nuisances import article
from holdfast.models import load_classifier
from holdfast.models.clip import Clip, image_embeddings, load_clip, text_embeddings
from holdfast.pipeline.generate.prompts import Prompts, spoken
from holdfast.pipeline.samples import DataSpec, read
from holdfast.report.study import StudyResult, about_world
from holdfast.stats.effects.drops import paired_effect
from holdfast.studies.prompt_findings import costs, looks, luck, words
from holdfast.studies.prompt_measures import clip_scores, diversity, frechet_distance, kernel_distance, seam_against
from holdfast.studies.prompt_strategies import ALL, ORIGINALS, strategies_of, write_prompts
from holdfast.studies.study import Setting, Study, StudyOptions, data_of, model_names, result_names

if TYPE_CHECKING:
    import pandas as pd

Features = NDArray[np.float32]

SETTINGS = (
    Setting("data", "", "photographs with masks, as for holdfast synth; left empty, drawn scenes"),
    Setting("masks", "", "masks in a tree parallel to the photographs"),
    Setting("labels", "", "CSV that maps classes to model outputs"),
    Setting("limit", 0, "at most so many photographs, evenly over classes; 0 takes all"),
    Setting("scenes", 96, "drawn scenes, a multiple of 24 for equally many of each class in both halves", 24),
    Setting("context", 0.95, "how strongly class and background go together in drawn scenes, 0 to 1"),
    Setting(
        "models",
        ("embedded:resnet_rho0", "embedded:resnet_rho80", "embedded:resnet_rho95", "embedded:resnet_rho95_strong"),
        "models under test; embedded stands for all that come with Holdfast",
        ("embedded:resnet_rho0", "embedded:resnet_rho95_strong"),
    ),
    Setting("generator", "embedded:", "what paints", "embedded:?steps=2"),
    Setting("oracle", "clip:embedded", "whose image and text towers measure: a clip: of any kind"),
    Setting("strategies", (ALL,), "ways to ask, by name", ("plain", "other")),
    Setting("prompts", "", "TOML with a table a strategy; left empty, those that come with Holdfast"),
    Setting("seeds", 2, "pictures a scene and strategy, each from another seed"),
    Setting("feather", 0.0, "width of a soft seam in pixels"),
)
SCENARIO = "generated_background"
SHOWN = 3
"""Scenes in the pictures of the page."""


@dataclass(frozen=True)
class Made:
    """The pictures of one strategy and seed, in one order, with what was asked for each."""

    strategy: str
    seed: int
    folder: Path
    rows: list[dict[str, Any]]
    images: list[Image]
    features: Features

    @property
    def sources(self) -> list[str]:
        """Which scene each is of."""
        return [str(row["source_id"]) for row in self.rows]


@dataclass(frozen=True)
class Originals:
    """What the pictures are compared with, by the scene's id."""

    samples: Mapping[str, Sample]
    images: Mapping[str, Image]
    masks: Mapping[str, Mask]
    features: Features
    place: Mapping[str, int]


def run(options: StudyOptions) -> StudyResult:
    """Paint with every strategy and seed, then measure pictures and models."""
    settings = options.settings
    for name, least in (("seeds", 1), ("limit", 0)):
        if settings[name] < least:
            raise UserError(f"{name} must be {least} or more")
    data, drawn = (settings["data"], False) if settings["data"] else (data_of(options), True)
    clip_name = parse_name(settings["oracle"])
    if clip_name.scheme != "clip":
        raise UserError("this study compares pictures with prompts: oracle must be a clip:, which reads both")
    collection = read(DataSpec(data, masks=settings["masks"] or None, limit=settings["limit"]))
    chosen = strategies_of(settings["prompts"], settings["strategies"], collection.classes, drawn=drawn)
    models = model_names(settings["models"])
    clip = load_clip(clip_name, device=options.device)
    originals = _originals(collection, clip)
    made = [
        _paint(options, data, name, prompts, turn, clip)
        for name, prompts in chosen.items()
        for turn in range(settings["seeds"])
    ]
    pictures = _measured(made, chosen, originals, collection, clip, options)
    drops = _drops(options, data, made, models)
    findings = [looks(pictures), costs(drops, result_names(options, models))]
    if settings["seeds"] > 1:
        findings.append(luck(pictures, drops))
    findings.append(words(chosen, _examples(made), _pictures(made, originals)))
    return StudyResult(
        title="Prompts for backgrounds",
        question=_question(options, drawn=drawn),
        findings=findings,
        facts=[
            (str(len(chosen)), "strategies"),
            (str(settings["seeds"]), "seeds"),
            (str(len(originals.samples)), "scenes" if drawn else "photographs"),
            (str(sum(len(one.rows) for one in made)), "pictures"),
        ],
        note=(about_world(data)),
        runs=["runs/originals", *(f"runs/{_name(one.strategy, one.seed)}" for one in made)],
    )


STUDY = Study(run, SETTINGS)


def _question(options: StudyOptions, *, drawn: bool) -> str:
    settings = options.settings
    what = "drawn scenes" if drawn else f"photographs of {Path(settings['data']).name}"
    return (
        "Which way of asking gives the backgrounds that look most real, and which of them cost a model most? "
        f"{settings['generator']} painted new surroundings for the objects of {what}, every strategy from the same "
        "noise. "
        "FID and KID (torchmetrics), CLIP score and diversity are taken from the image and text towers of "
        f"{settings['oracle']}, not from the Inception network, whose weights come from a hub: they compare strategies "
        "here and nothing beyond. FID and KID are from pictures of half the scenes to originals of the other half, "
        "both ways; the originals themselves are the yardstick. With few pictures FID is too large and, because both "
        "halves hold the same classes, KID too small, by about the same in every row. Objects that are too small or "
        "touch the border are left out. Intervals are at the 95 % level, over scenes."
    )


def _originals(collection: Collection, clip: Clip) -> Originals:
    samples = {sample.source_id: sample for sample in collection.samples}
    images = {one: sample.image.load() for one, sample in samples.items()}
    masks = {
        one: sample.mask.load(*images[one].shape[:2]) for one, sample in samples.items() if sample.mask is not None
    }
    if not masks:
        raise UserError("none of the images has a mask, so there is no background to paint; --set masks=FOLDER")
    features = image_embeddings(clip, list(images.values()))
    return Originals(samples, images, masks, features, {one: place for place, one in enumerate(samples)})


def _name(strategy: str, turn: int) -> str:
    return f"{strategy}-{turn}"


def _paint(options: StudyOptions, data: str, strategy: str, prompts: Prompts, turn: int, clip: Clip) -> Made:
    settings, folder = options.settings, options.out / "work" / _name(strategy, turn)
    file = write_prompts(prompts, options.out / "work" / f"{strategy}.toml")
    api.synth(
        data,
        out=folder,
        scenarios=SCENARIO,
        generator=settings["generator"],
        prompts=file,
        masks=settings["masks"] or None,
        labels=settings["labels"] or None,
        limit=settings["limit"],
        feather=settings["feather"],
        seed=options.seed + turn,
        device=options.device,
        progress=options.progress,
    )
    rows = [row for row in read_rows(folder / "manifest.parquet") if row["status"] == "ok"]
    if len(rows) < 2:
        raise UserError(f"the strategy {strategy} left {len(rows)} pictures; look at {folder / 'manifest.csv'}")
    rows.sort(key=lambda row: str(row["source_id"]))
    images = [decode_image(read_file(folder / str(row["path"]))) for row in rows]
    return Made(strategy, turn, folder, rows, images, image_embeddings(clip, images))


def _measured(
    made: Sequence[Made],
    strategies: Mapping[str, Prompts],
    originals: Originals,
    collection: Collection,
    clip: Clip,
    options: StudyOptions,
) -> pd.DataFrame:
    """A row per strategy and seed."""
    import pandas as pd

    names = [_said(one, collection) for one in collection.classes]
    judge = load_classifier(options.settings["oracle"], device=options.device, classes=names)
    rows = [_yardstick(originals, made[0].sources)]
    for one in made:
        labels = [str(row["label"]) for row in one.rows]
        answers = judge.predict(one.images).argmax(1)
        right = [collection.classes[int(place)] == label for place, label in zip(answers, labels, strict=True)]
        prompts = text_embeddings(clip, [str(row["prompt"]) for row in one.rows])
        seams = [
            seam_against(image, originals.images[source], originals.masks[source])
            for image, source in zip(one.images, one.sources, strict=True)
        ]
        rows.append(
            {
                "strategy": one.strategy,
                "seed": one.seed,
                "pictures": len(one.rows),
                "recognised": float(np.mean(right)),
                "background_seen": _background_seen(one, strategies[one.strategy].backgrounds, collection, clip),
                **_distances(originals, one.sources, one.features),
                "clip_score": float(clip_scores(one.features, prompts).mean()),
                "diversity": diversity(one.features, labels),
                "seam": float(np.nanmedian(seams)) if np.isfinite(seams).any() else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def _yardstick(originals: Originals, sources: Sequence[str]) -> dict[str, Any]:
    """The same of the originals themselves: how far photographs are from one another."""
    at = [originals.place[source] for source in sources]
    labels = [originals.samples[source].label for source in sources]
    facts = {"strategy": ORIGINALS, "seed": 0, "pictures": len(sources), "seam": 1.0}
    own = originals.features[at]
    return facts | _distances(originals, sources, own) | {"diversity": diversity(own, labels)}


def _distances(originals: Originals, sources: Sequence[str], features: Features) -> dict[str, float]:
    """FID and KID of pictures of half the scenes from originals of the other half, averaged over both ways.

    Pictures and originals of one scene show the same object, which would make them look alike. Unit vectors are
    scaled to a root mean square of 1, where torchmetrics' kernel tells them apart.
    """
    count: dict[str, int] = {}
    half = []
    for source in sources:
        label = originals.samples[source].label
        half.append(count.get(label, 0) % 2)
        count[label] = count.get(label, 0) + 1
    second = np.asarray(half) == 1
    if second.sum() < 2 or (~second).sum() < 2:
        return {"fid": float("nan"), "kid": float("nan")}
    real = originals.features[[originals.place[source] for source in sources]]
    scale = np.float32(np.sqrt(real.shape[1]))
    pairs = [(scale * real[part], scale * features[~part]) for part in (second, ~second)]
    return {
        "fid": float(np.mean([frechet_distance(*pair) for pair in pairs])),
        "kid": float(np.mean([kernel_distance(*pair) for pair in pairs])),
    }


def _said(label: str, collection: Collection) -> str:
    return spoken(label, collection.keys.get(label))


def _background_seen(one: Made, phrases: Mapping[str, str], collection: Collection, clip: Clip) -> float:
    """The share of pictures whose asked background the towers find among all the strategy has; NaN if it has none."""
    kinds = list(phrases)
    if len(kinds) < 2:
        return float("nan")
    texts: dict[str, Features] = {}
    hits = []
    for row, feature in zip(one.rows, one.features, strict=True):
        name = _said(str(row["label"]), collection)
        if name not in texts:
            texts[name] = text_embeddings(clip, [f"{article(name)} {name} {phrases[kind]}" for kind in kinds])
        hits.append(kinds[int((texts[name] @ feature).argmax())] == row.get("asked_background"))
    return float(np.mean(hits))


def _drops(options: StudyOptions, data: str, made: Sequence[Made], models: Sequence[str]) -> pd.DataFrame:
    """What each strategy costs each model: a row per model × strategy over all seeds (seed -1), and per seed."""
    import pandas as pd

    settings = options.settings
    common: dict[str, Any] = {
        "models": models, "scenarios": "original", "device": options.device, "labels": settings["labels"] or None,
        "progress": options.progress,
    }  # fmt: skip
    before = api.evaluate(
        data, out=options.out / "runs" / "originals", masks=settings["masks"] or None, limit=settings["limit"], **common
    ).counts.cells
    after = {
        (one.strategy, one.seed): api.evaluate(
            one.folder, out=options.out / "runs" / _name(one.strategy, one.seed), **common
        ).counts.cells
        for one in made
    }
    rows = []
    for strategy in dict.fromkeys(one.strategy for one in made):
        seeds = [cells for (name, _), cells in after.items() if name == strategy]
        for turn, parts in [(-1, seeds), *enumerate([one] for one in seeds)]:
            whole = pd.concat([part.astype({"model": str}) for part in parts])
            for model in dict.fromkeys(whole["model"]):
                effect = paired_effect(
                    before[before["model"] == model], whole[whole["model"] == model], "right", average="micro",
                    seed=options.seed,
                )  # fmt: skip
                rows.append(
                    {"strategy": strategy, "model": model, "seed": turn, "scenes": effect.n, "before": effect.first}
                    | {"after": effect.second, "drop": effect.value, "drop_low": effect.low, "drop_high": effect.high}
                )
    return pd.DataFrame(rows)


def _examples(made: Sequence[Made]) -> dict[str, list[str]]:
    """Some prompts of each strategy, none twice."""
    return {
        one.strategy: list(dict.fromkeys(str(row["prompt"]) for row in one.rows))[:3] for one in made if one.seed == 0
    }


def _pictures(made: Sequence[Made], originals: Originals) -> dict[str, Image]:
    """A few scenes as they were and under each strategy, scene by scene."""
    first = [one for one in made if one.seed == 0]
    picked: dict[str, str] = {}
    for source, sample in originals.samples.items():
        if all(source in one.sources for one in first):
            picked.setdefault(sample.label, source)
    shown: dict[str, Image] = {}
    for label, source in list(picked.items())[:: max(1, len(picked) // SHOWN)][:SHOWN]:
        shown[f"{label}: original"] = _at_height(originals.images[source])
        shown |= {f"{label}: {one.strategy}": _at_height(one.images[one.sources.index(source)]) for one in first}
    return shown


def _at_height(image: Image, height: int = 128) -> Image:
    width = max(1, round(image.shape[1] * height / image.shape[0]))
    return cast(Image, cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA))
