"""``holdfast study oracle-swap`` and ``oracle-attack``: how far FMR hangs on the oracle, and the oracle led astray."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import seed_from
from holdfast.core.numbers import number, percent
from holdfast.core.protocols import DifferentiableClassifier, LatentGenerator
from holdfast.core.schema import FRAMES
from holdfast.core.types import DEFAULT_MAX_PIXELS, Collection
from holdfast.data.images import decode_image, read_file
from holdfast.data.labels import map_labels
from holdfast.generators import load_generator
from holdfast.models import load_classifier
from holdfast.oracle import kinship
from holdfast.pipeline.classifiers import proved
from holdfast.pipeline.walk.resources import LARGEST_DEFAULT, square
from holdfast.pipeline.walk.walk import UnderTest
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.page.words import listing
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import Estimate, Floats, estimated, interval, resampled_sums
from holdfast.store import Parts
from holdfast_studies import study
from holdfast_studies.study import Setting, Study, StudyOptions
from holdfast_studies.walking import walks

SWAP_MODELS = ("embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:vit_rho95")
ORACLES = (
    "clip:embedded",
    "classifier:embedded:resnet_rho0",
    "ensemble:clip:embedded+classifier:embedded:resnet_rho0?rule=unanimous",
)
MOVED = ("validation_rate", "perturbed_accuracy", "fmr")


def run_swap(options: StudyOptions) -> StudyResult:
    """Walk under every oracle; then let all of them judge the same images."""
    settings = options.settings
    oracles = list(dict.fromkeys(settings["oracles"]))
    if len(oracles) < 2:
        raise UserError("this study compares oracles: name two or more with --set oracles=A,B")
    options.require(compared=2)
    models = study.model_names(settings["models"])
    ways = {name: {"oracle": name} for name in oracles}
    results, rows = walks.walk(options, models, ways, frames=settings["compared"])
    rows = rows.assign(oracle=rows["way"])
    related = [
        sentence for model in models for oracle in oracles for sentence in kinship(model, oracle, settings["generator"])
    ]
    return StudyResult(
        title="Oracle swap",
        question=(
            "How far does FMR depend on who judges? Every scene walked against each model under each oracle. The walks "
            "of one scene against one model are the same up to where an oracle ends them, so oracles can be compared "
            "on the same images: every image that any of them was shown. Intervals are at the 95 % level, differences "
            "paired by scene." + "".join(f" {sentence}" for sentence in dict.fromkeys(related))
        ),
        findings=[
            _each_oracle(rows, oracles),
            _moves(rows, oracles),
            _agreement(_judged(results, oracles, options), oracles, options.seed),
        ],
        facts={"models": len(models), "oracles": len(oracles), "test scenes": rows["sample_id"].nunique()},
    )


SWAP_STUDY = Study(
    run_swap,
    (
        *walks.walk_settings(SWAP_MODELS, 48, step_size=0.03, without=("oracle",)),
        Setting("oracles", ORACLES, "who judges; the others are compared with the first"),
        Setting("compared", 24, "scenes whose images all oracles judge, step by step", 6),
    ),
)


def _each_oracle(rows: pd.DataFrame, oracles: list[str]) -> Finding:
    frame = walks.family(rows, ["oracle", "model"])
    sentences = []
    for model, own in frame.groupby("model", sort=False):
        listed = [f"{percent(row['fmr'])} under {row['oracle']}" for row in own.to_dict("records")]
        sentences.append(f"{model}: FMR {listing(listed, 10)}.")
    drawn = frame.assign(name=study.shortened(frame["oracle"], 40), row=study.shortened(frame["model"]))
    return Finding(
        "FMR under each oracle",
        sentences,
        frame,
        [*plain("text", oracle="Oracle", model="Model"), *walks.columns(), *walks.BOUNDS, *walks.COUNTS],
        chart=study.dots_of(drawn, "fmr", line="name", row="row", title="FMR = PA / SA"),
        caption="FMR of each model by oracle",
    )


def _moves(rows: pd.DataFrame, oracles: list[str]) -> Finding:
    table: list[dict[str, Any]] = []
    for model, own in rows.groupby("model", sort=False):
        first, *others = (own[own["oracle"] == name] for name in oracles)
        for name, other in zip(oracles[1:], others, strict=True):
            table.append({"model": model, "oracle": name} | walks.differences(first, other, MOVED))
    frame = pd.DataFrame(table)
    sentences = [f"No model has an FMR under both {oracles[0]} and another oracle."]
    if frame["fmr"].notna().any():
        row = study.farthest(frame, "fmr")
        sentences = [
            f"FMR moves farthest for {row['model']} under {row['oracle']}, by "
            f"{walks.in_points(walks.change_of(row, 'fmr'))}; the interval leaves out 0 in "
            f"{study.is_clear(frame, 'fmr').sum()} of {len(frame)} cases."
        ]
    columns = [*plain("text", model="Model", oracle=f"Less {oracles[0]}")]
    return Finding("How far FMR moves", sentences, frame, [*columns, *walks.columns(*MOVED, kind="points")])


def _judged(results: api.Results, oracles: list[str], options: StudyOptions) -> pd.DataFrame:
    """Return a row per image that any oracle was shown: sample_id, step and, per oracle, whether it accepts."""
    rows = {row["row_id"]: row for row in results.rows(["row_id", "model", "sample_id", "label"]).to_pylist()}
    shown: dict[tuple[str, str, int], tuple[str, str]] = {}
    for frame in Parts(results.path / "details" / "frames", FRAMES).rows(["row_id", "step", "image"]).to_pylist():
        row = rows[frame["row_id"]]
        shown.setdefault((row["model"], row["sample_id"], frame["step"]), (str(row["label"]), frame["image"]))
    images = [decode_image(read_file(results.path / file)) for _, file in shown.values()]
    labels = [label for label, _ in shown.values()]
    collection = study.collection_of(options)
    verdicts: dict[str, Any] = {
        "sample_id": [sample_id for _, sample_id, _ in shown],
        "step": [step for _, _, step in shown],
    }
    for name in oracles:
        judged = study.oracle_of(options, name, collection).judge(images, labels)
        verdicts[name] = [verdict.accepted for verdict in judged]
    return pd.DataFrame(verdicts)


def same_verdicts(judged: pd.DataFrame, first_name: str, second_name: str, *, seed: int) -> tuple[Estimate, Estimate]:
    """Return the share of equal verdicts and Cohen's κ of two oracles, with intervals from resampled scenes."""
    first, second = (judged[name].to_numpy(np.float64) for name in (first_name, second_name))
    table = np.column_stack([np.ones(len(judged)), first == second, first, second])
    drawn = resampled_sums(table, judged["sample_id"], seed=seed)

    def statistics(sums: Floats) -> tuple[Floats, Floats]:
        n, agreed, yes, others = sums.T
        by_chance = (yes * others + (n - yes) * (n - others)) / n**2
        nothing = np.full(len(sums), np.nan)
        kappa = np.divide(agreed / n - by_chance, 1 - by_chance, out=nothing, where=by_chance < 1 - 1e-12)
        return np.asarray(agreed / n), np.asarray(kappa)

    (same, kappa), (same_drawn, kappa_drawn) = statistics(table.sum(axis=0, keepdims=True)), statistics(drawn)
    return estimated(same[0], same_drawn), estimated(kappa[0], kappa_drawn)


def _agreement(judged: pd.DataFrame, oracles: list[str], seed: int) -> Finding:
    rows: list[dict[str, Any]] = []
    for first, second in itertools.combinations(oracles, 2):
        same, kappa = same_verdicts(judged, first, second, seed=seed)
        row: dict[str, Any] = {"first": first, "second": second, "images": len(judged)}
        row |= same.row("same") | kappa.row("kappa") | {"only_first": int((judged[first] & ~judged[second]).sum())}
        rows.append(row | {"only_second": int((~judged[first] & judged[second]).sum())})
    sentences = [
        f"{row['first']} and {row['second']} say the same of {percent(row['same'])} of {row['images']} images "
        f"(κ {number(row['kappa'])})."
        for row in rows
    ]
    columns = [
        *plain("text", first="Oracle", second="Another"),
        Column("images", "Images", "integer"),
        ranged("same", "Same verdict"),
        ranged("kappa", "Cohen's κ", "number", 2),
        *plain("integer", only_first="only the first accepts", only_second="only the other accepts"),
    ]
    return Finding("Do they agree on the same images", sentences, pd.DataFrame(rows), columns)


BATCH = 24
MEASURES = ("target_loss", "true", "target")
PANELS = {
    "target_loss": ("Loss towards the target", False),
    "true": ("p(true class)", True),
    "target": ("p(target)", True),
}
ATTACK_MODELS = ("embedded:resnet_rho95_strong", "embedded:resnet_rho95")


def run_attack(options: StudyOptions) -> StudyResult:
    """Lead the oracle and the classifiers towards a wrong class, and record every step."""
    settings = options.settings
    if settings["steps"] < 1 or not 0 < settings["step_size"] < 1:
        raise UserError("steps must be 1 or more, and step_size a number between 0 and 1")
    study.images_of(options)  # checks the settings
    collection = study.collection_of(options)
    generator = load_generator(settings["generator"], device=options.device)
    victims = _victims(collection, options)
    targets = targets_of(collection, options.seed)
    curves = {}
    for place, (name, victim) in enumerate(victims.items()):
        options.progress("attack", place, len(victims))
        curves[name] = _led(collection, targets, generator, victim, options)
    options.progress("attack", len(victims), len(victims))
    reach = settings["steps"] * settings["step_size"]
    return StudyResult(
        title="The oracle under attack",
        question=(
            "How easily is the oracle itself led astray? Every scene was given a wrong class as target, and moved by "
            f"the sign of the gradient towards it, {settings['steps']} steps of {settings['step_size']:g} in the "
            f"latent of {settings['generator']} (no value changes by more than {reach:g}), once against the oracle and "
            "once against each classifier. Lines are means over scenes, bands their 95 % intervals."
        ),
        findings=[_curves(_frame(curves, options.seed)), _ends(curves)],
        facts={"networks": len(curves), "test scenes": len(collection), "steps": settings["steps"]},
    )


ATTACK_STUDY = Study(
    run_attack,
    (
        *walks.walk_settings(ATTACK_MODELS, 96, steps=30, step_size=0.001, without=("generator",)),
        Setting("generator", "pixel:", "whose latent is moved; pixel: is an attack bounded by steps × step size"),
    ),
)


def _victims(collection: Collection, options: StudyOptions) -> dict[str, UnderTest]:
    """Return the oracle's network and the classifiers by name; raise UserError if one has no gradients."""
    name = options.settings["oracle"]
    judge: Any = getattr(study.oracle_of(options, name, collection), "classifier", None)
    if not isinstance(judge, DifferentiableClassifier):
        raise UserError(f"{name} has no gradients to be attacked by; name a clip: or a classifier: oracle")
    networks = {f"{name} (oracle)": judge}
    for name in study.model_names(options.settings["models"]):
        model = load_classifier(name, device=options.device, classes=collection.classes)
        if not isinstance(model, DifferentiableClassifier):
            raise UserError(f"{model.name} has no gradients to be attacked by")
        networks[model.name] = model
    for network in networks.values():
        proved(network, collection.samples, DEFAULT_MAX_PIXELS)
    return {
        name: UnderTest(network, map_labels(collection.classes, collection.keys, network.labels))
        for name, network in networks.items()
    }


def targets_of(collection: Collection, seed: int) -> NDArray[np.int64]:
    """Return a wrong class for each sample, the same for every network."""
    count = len(collection.classes)
    turns = [1 + seed_from(seed, sample.sample_id, "target") % (count - 1) for sample in collection.samples]
    return np.asarray((_true_classes(collection) + np.array(turns, np.int64)) % count)


def _true_classes(collection: Collection) -> NDArray[np.int64]:
    return np.array([collection.classes.index(sample.label) for sample in collection.samples], np.int64)


def _led(
    collection: Collection,
    targets: NDArray[np.int64],
    generator: LatentGenerator,
    victim: UnderTest,
    options: StudyOptions,
) -> Floats:
    """Return (scenes, steps + 1, 3): loss towards the target, p(true), p(target)."""
    size = getattr(generator, "size", None)
    if not size:
        factor = getattr(generator, "factor", 1)
        size = min(*collection.samples[0].image.load().shape[:2], LARGEST_DEFAULT) // factor * factor
    device = torch.device(getattr(generator, "device", "cpu"))
    truth = _true_classes(collection)
    steps, step_size = options.settings["steps"], options.settings["step_size"]
    curves = []
    for start in range(0, len(collection), BATCH):
        part = slice(start, start + BATCH)
        images = np.stack([square(sample.image.load(), size) for sample in collection.samples[part]])
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().float().to(device) / 255
        labels = [torch.from_numpy(places[part]).to(device) for places in (truth, targets)]
        curves.append(led_astray(pixels, labels[0], labels[1], generator, victim, steps=steps, step_size=step_size))
    return np.concatenate(curves)


def led_astray(
    pixels: torch.Tensor,  # RGB NCHW in 0..1
    truth: torch.Tensor,  # indices of the true classes
    target: torch.Tensor,  # indices of the targets
    generator: LatentGenerator,  # whose latent moves
    victim: UnderTest,  # the network
    *,
    steps: int,  # number of steps; step 0 is the reconstruction
    step_size: float,  # of the latent
) -> Floats:
    """Descend the loss towards a target by the gradient's sign; return ``MEASURES``, (images, steps + 1, 3)."""
    with torch.no_grad():
        latent = generator.encode(pixels)
    rows = []
    for step in range(steps + 1):
        latent = latent.detach().requires_grad_()
        scores = victim.scores(generator.decode(latent, pixels).clamp(0, 1)).float()
        loss = torch.nn.functional.cross_entropy(scores, target, reduction="none")
        shares = scores.detach().softmax(1)
        own, aim = (shares.gather(1, places[:, None])[:, 0] for places in (truth, target))
        rows.append(torch.stack([loss.detach(), own, aim], dim=1).double().cpu().numpy())
        if step < steps:
            (gradient,) = torch.autograd.grad(loss.sum(), latent)
            latent = latent - step_size * gradient.sign()
    return np.stack(rows, axis=1)


def _frame(curves: dict[str, Floats], seed: int) -> pd.DataFrame:
    """Return network, step and each measure with its interval."""
    frames = []
    for name, values in curves.items():
        scenes, steps, width = values.shape
        sums = resampled_sums(values.reshape(scenes, -1), np.arange(scenes), seed=seed)
        low, high = (end.reshape(steps, width) for end in interval(sums / scenes))
        mean = values.mean(axis=0)
        columns: dict[str, Any] = {"network": name, "step": np.arange(steps)}
        for place, measure in enumerate(MEASURES):
            values_of = {"": mean, "_low": low, "_high": high}
            columns |= {f"{measure}{end}": array[:, place] for end, array in values_of.items()}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def _curves(frame: pd.DataFrame) -> Finding:
    sentences = []
    for name, own in frame.groupby("network", sort=False):
        first, last = own.iloc[0], own.iloc[-1]
        sentences.append(
            f"{name}: p(true class) goes from {percent(first['true'])} to {percent(last['true'])}, p(target) from "
            f"{percent(first['target'])} to {percent(last['target'])}."
        )
    drawn = frame.assign(line=study.shortened(frame["network"], 40))
    columns = [
        Column("network", "Network"),
        Column("step", "Step", "integer"),
        ranged("target_loss", "Loss towards the target", "number"),
        ranged("true", "p(true class)"),
        ranged("target", "p(target)"),
    ]
    return Finding(
        "Step by step",
        sentences,
        frame,
        columns,
        chart=lambda width: walks.curves(drawn, width, line="line", x="step", panels=PANELS, across="step"),
        caption="Loss towards the target, p(true class) and p(target) by step",
    )


def _ends(curves: dict[str, Floats]) -> Finding:
    """Count the scenes that end as the target, and the step at which the target overtakes the true class."""
    rows, sentences = [], []
    for name, values in curves.items():
        ahead = values[:, :, 2] > values[:, :, 1]
        overtaken = ahead.any(axis=1)
        steps = ahead.argmax(axis=1)[overtaken]
        middle = float(np.median(steps)) if overtaken.mean() > 0.5 else float("nan")
        led = float(ahead[:, -1].mean())
        rows.append({"network": name, "scenes": len(values), "led": led, "median_step": middle})
        sentences.append(
            f"{name}: at the end the target is likelier than the true class in {percent(led)} of the scenes."
        )
    columns = [
        Column("network", "Network"),
        Column("scenes", "Scenes", "integer"),
        Column("led", "Target ahead at the end", "percent"),
        Column("median_step", "First step with the target ahead, median", "number", digits=0),
    ]
    return Finding("How many were led astray", sentences, pd.DataFrame(rows), columns)
