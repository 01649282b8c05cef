"""The parts of ``holdfast demo``: what each measures, and the card that the front page shows of it."""

from __future__ import annotations

import csv
import importlib.util
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.names import condition_words, without_object
from holdfast.core.numbers import number, percent, points
from holdfast.core.types import ORIGINAL
from holdfast.models import available, label_spaces
from holdfast.pipeline.evaluate.background_truth import RERENDERED, SCHEME
from holdfast.pipeline.jobs.progress import Progress
from holdfast.pipeline.thumbnails import thumbnails
from holdfast.reports.page.writer import DRAWN_WORLD
from holdfast.reports.parity import build_gate
from holdfast.stats.core.cells import Average

TRAINED = Path(__file__).parent / "assets" / "trained" / "trained.zip"
TRAINED_AHEAD = "39 trainings were made ahead on a GPU (recipes/trained.py); one small network is trained here."
SURROGATES = ("resnet_rho95", "mobilenet_rho95", "densenet_rho95", "resnet_rho95_strong", "resnet_rho80")
TARGETS = ("vit_rho95", "convnext_rho95")
ANEW = "Rerendered background: the same scene drawn, not pasted, on the random background; the truth of pasting."
FEW = "Twenty photographs show how it works; they are too few to judge a model."
PHOTO_CONDITIONS = "static,only_background,mean_background,foreground_on_grey,silhouette"
"""No condition with backgrounds of the same class: each photograph is the only one of its class."""
STRIP = 4  # images that are side by side


def _hundredths(value: float) -> str:
    return number(100 * value, 0)


def _thousandths(value: float) -> str:
    return number(value, 3)


class Bar(NamedTuple):
    """A line of a small chart: a name, an estimate and its 95 % interval, and the truth if it is known."""

    name: str
    value: float
    low: float
    high: float
    truth: float | None = None


class Picture(NamedTuple):
    """An image with its caption, and whether the model was right if it was asked."""

    file: str
    caption: str
    right: bool | None = None


@dataclass(frozen=True)
class PartCard:
    """What the front page says about one part of the demo."""

    title: str  # the part, as a question or a deed
    number: str  # the one figure, with its interval in ``interval``
    interval: str
    sentence: str  # what the figure means
    more: str  # how the part works, with its terms explained
    page: Path  # the report
    bars: Sequence[Bar]  # the chart; ``axis`` names its values, ``written`` spells one
    axis: str
    pictures: Sequence[Picture] = ()  # shown above the chart
    written: Callable[[float], str] = _hundredths
    reference: float = 0.0  # the value at which the chart has a line


@dataclass(frozen=True)
class DemoSize:
    """How much the parts do."""

    scenes: int = 240  # shown to eight networks
    walks: int = 24  # scenes that are walked
    steps: int = 8  # of a walk
    frames: int = 4  # kept of a walk
    pool: int = 0  # generated images; 0 draws every prompt
    trained: int = 480  # scenes that a network is trained on
    epochs: int = 12
    first: float = 40.0  # times as long as the first result all parts take, one after the other


FULL = DemoSize()
QUICK = DemoSize(scenes=48, walks=12, steps=3, frames=1, pool=222, trained=96, epochs=1, first=15)


def first_name(name: str) -> str:
    """Return the first of a class's names, with spaces."""
    return name.split(",")[0].replace("_", " ")


def _plain(model: str) -> str:
    return model.partition(":")[2]


def _reported(results: api.Results, note: str, progress: Progress, average: Average = "macro") -> Path:
    progress("report", 0, 1)
    page = results.report(note=note, average=average)
    progress("report", 1, 1)
    return page


def scenes_of(size: DemoSize) -> str:
    """Return the name of the drawn scenes that the networks are shown."""
    return f"{SCHEME}:test?n={size.scenes}&context=0.95"


def _scenes(out: Path, size: DemoSize, progress: Progress) -> list[PartCard]:
    """Measure eight networks on scenes of which each is also drawn, not pasted, on the other background: the truth."""
    results = api.evaluate(
        scenes_of(size), models=available("embedded"), out=out / "scenes", scenarios="all", progress=progress
    )
    page = _reported(results, f"{DRAWN_WORLD} {ANEW}", progress)
    rows = results.verdicts(resamples=500).sort_values("background_effect", ascending=False)
    right = results.accuracy().set_index(["condition", "model"])["accuracy"]
    bars = [
        Bar(_plain(row["model"]), row["background_effect"], row["background_effect_low"], row["background_effect_high"],
            float(right[ORIGINAL, row["model"]] - right[RERENDERED, row["model"]]))
        for row in rows.to_dict("records")
    ]  # fmt: skip
    inside = sum(bar.low <= (bar.truth or 0) <= bar.high for bar in bars)
    worst, fair = bars[0], next(bar for bar in bars if bar.name.endswith("_rho0"))
    tied = int(worst.name.partition("rho")[2].partition("_")[0])
    card = PartCard(
        "Does it see the object, or rely on what is around it?", points(worst.value, 0), _between(worst),
        f"{worst.name} loses this much accuracy when only the background changes: in its training {tied} of 100 "
        f"objects were on the background of their class. {fair.name}, trained with every background as often, loses "
        f"{points(fair.value, 0)} {_between(fair)}. The dots are the truth, the same scenes redrawn on the other "
        f"background: {inside} of {len(bars)} intervals hold it.",
        "Eight small networks in a drawn world. The number after rho says how many of 100 objects were on the "
        "background of their class in training; how much of that a network learns differs between architectures.",
        page, bars, "points of accuracy lost when only the background changes",
    )  # fmt: skip
    return [card, _gate(results, out)]


def _between(bar: Bar, written: Callable[[float], str] = _hundredths) -> str:
    return f"({written(bar.low)} to {written(bar.high)})"


def _gate(scenes: api.Results, out: Path) -> PartCard:
    """Ask whether one model of the drawn world may replace another."""
    old, new = "embedded:resnet_rho0", "embedded:vit_rho95"
    names = [name for name in scenes.counts.conditions if name != RERENDERED and not without_object(name)]
    gate = api.compare(scenes, scenes, old_model=old, new_model=new, margin=0.02, conditions=names)
    rows = gate.conditions.sort_values("difference")
    bars = [
        Bar(condition_words(row["condition"]), row["difference"], row["low"], row["high"])
        for row in rows.head(6).to_dict("records")
    ]
    return PartCard(
        "May the new model replace the old one?", gate.verdict.capitalize(), "",
        f"{_plain(new)} against {_plain(old)}, scene by scene: under {condition_words(rows.iloc[0]['condition'])} its "
        f"accuracy changes by {points(bars[0].value, 0)} {_between(bars[0])}; 2 points less are allowed.",
        "A release gate in one command (holdfast compare): passed, failed, or undecided with how many more "
        "images would decide, if that can be estimated.",
        build_gate(gate, scenes.run, out / "gate", flips=scenes.parity(old, new).flips, pictures=thumbnails), bars,
        "change in points of accuracy, worst conditions; bounds at 95 % each",
    )  # fmt: skip


def _walks(out: Path, size: DemoSize, progress: Progress) -> list[PartCard]:
    """Walk against two models that were trained differently; fewer steps than in the paper, but larger ones."""
    results = api.perturb(
        f"diorama:test?n={size.walks}&context=0.95", out=out / "walks", progress=progress,
        models=["embedded:resnet_rho95", "embedded:resnet_rho95_strong"], generator="embedded:vqgan",
        oracle="clip:embedded", steps=size.steps, step_size=0.08, frames=size.frames,
    )  # fmt: skip
    table = results.fmr()
    rows = table[table["label"] == ""].to_dict("records")
    bars = [Bar(_plain(row["model"]), row["FMR"], row["FMR_low"], row["FMR_high"]) for row in rows]
    return [PartCard(
        "How much is left when images are changed against it?", percent(bars[0].value, 0), _between(bars[0]),
        f"of its accuracy is left to {bars[0].name} on images that a generator changed step by step so that it errs, "
        "counting only those that a second, larger model still recognises.",
        "The papers call this share foundation model-oriented robustness, FMR, and the second model (here a CLIP) the "
        "oracle. An interval reaches above 100 if few images were walked.",
        _reported(results, DRAWN_WORLD, progress), bars, "per cent of the accuracy that is left; 100 is all of it",
        reference=1.0,
    )]  # fmt: skip


def _hard_set(out: Path, size: DemoSize, progress: Progress) -> list[PartCard]:
    """Draw images from prompts, each of which shows what its prompt says, and mine them."""
    api.generate(generator="diorama:", out=out / "pool", limit=size.pool, progress=progress)
    mined = api.mine(
        out / "pool", surrogates=[f"embedded:{name}" for name in SURROGATES], oracle="clip:embedded",
        targets=[f"embedded:{name}" for name in TARGETS], out=out / "hard", again=0, progress=progress,
    )  # fmt: skip
    right = mined.tables["accuracy"].query("half == 'report' and subset == 'valid' and role == 'target'")
    model = str(right["model"].iloc[0])
    own = {row["set"]: row for row in right[right["model"] == model].to_dict("records")}
    names = {
        "pool": "all generated images",
        "control": "as many others, of the same kinds",
        "hard": "those that many fail",
    }
    bars = [
        Bar(words, own[name]["estimate"], own[name]["low"], own[name]["high"])
        for name, words in names.items() if name in own
    ]  # fmt: skip
    hard = bars[-1]
    return [PartCard(
        "Which images do many models fail together?", percent(hard.value, 0), _between(hard),
        f"is the accuracy of {_plain(model)} on {mined.images} of {mined.facts['images']} generated images, which "
        f"{mined.facts['choice']['words']} other models fail together; it is {percent(bars[0].value, 0)} on all.",
        "The model took no part in choosing the images. Each was drawn from its prompt, so it truly shows its class; "
        "another model confirms it, as it has to where images come from a generator.",
        mined.path / "mining" / "report" / "index.html", bars, f"per cent right, {_plain(model)}",
        _hard_pictures(mined.path, out),
    )]  # fmt: skip


def _hard_pictures(folder: Path, out: Path) -> list[Picture]:
    """Return a few images of the hard set, of different categories."""
    with (folder / "manifest.csv").open(newline="", encoding="utf8") as opened:
        rows = list(csv.DictReader(opened))
    chosen = {row["label"]: row for row in reversed(rows)}
    return [
        Picture((folder / row["path"]).relative_to(out).as_posix(), row.get("prompt") or row["label"])
        for row in list(chosen.values())[:STRIP]
    ]


def _trainings(out: Path, size: DemoSize, progress: Progress) -> list[PartCard]:
    """Report networks that were trained ahead of time, and train one live as evidence."""
    with zipfile.ZipFile(TRAINED) as packed:
        packed.extractall(out / "trained")
    ahead = api.open_run(out / "trained")
    scores = ahead.scores(resamples=500).to_dict("records")
    bars = [Bar(_plain(row["model"]), row["score"], row["low"], row["high"]) for row in scores]
    bars.sort(key=lambda bar: -bar.value)
    live = api.train(
        f"diorama:train?n={size.trained}&context=0.8", architectures="embedded:resnet_rho95", train_on=ORIGINAL,
        scenarios=f"{ORIGINAL},random_background", folds=1, size=64, epochs=size.epochs, out=out / "live",
        progress=progress,
    )  # fmt: skip
    right = live.accuracy().set_index("condition")["accuracy"]
    learnt = (
        f"A small ResNet trained here on {size.trained * 4 // 5} scenes is right on {percent(right[ORIGINAL], 0)} of "
        f"the others, and on {percent(right['random_background'], 0)} before other backgrounds."
    )
    return [PartCard(
        "Which network keeps its accuracy when scenes change?", _thousandths(bars[0].value),
        _between(bars[0], _thousandths),
        f"is the robustness score of {bars[0].name}, the highest of {len(bars)} networks that were trained on drawn "
        "scenes, as they are and changed (1 is best; it falls with the spread of accuracy). "
        f"{learnt if size.epochs > 1 else ''}",
        TRAINED_AHEAD, _reported(ahead, f"{DRAWN_WORLD} {TRAINED_AHEAD}", progress), bars, "robustness score",
        written=_thousandths, reference=1.0,
    )]  # fmt: skip


def _photographs(out: Path, size: DemoSize, progress: Progress) -> list[PartCard]:
    photos, labels = _collect(out / "photographs" / "data")
    api.mask(photos, out=out / "photographs" / "masks", progress=progress)
    results = api.evaluate(
        photos, masks=out / "photographs" / "masks", labels=labels, models=available("packaged"),
        scenarios=PHOTO_CONDITIONS, out=out / "photographs" / "run", progress=progress,
    )  # fmt: skip
    rows = results.drops(average="micro")  # of so few, every image counts the same: points and numbers of images agree
    rows = rows[rows["condition"] == "random_background"].sort_values("drop", ascending=False)
    bars = [Bar(_plain(row["model"]), row["drop"], row["low"], row["high"]) for row in rows.to_dict("records")]
    worst = rows.to_dict("records")[0]
    n = int(worst["n"])
    return [PartCard(
        "ImageNet models on twenty photographs", points(bars[0].value, 0), _between(bars[0]),
        f"is what {bars[0].name} loses when the same object is on the background of another photograph: "
        f"{round(worst['original'] * n)} of {n} right before, {round(worst['accuracy'] * n)} of {n} after.",
        FEW, _reported(results, FEW, progress, "micro"), bars,
        "points of accuracy lost on another photograph's background",
    )]  # fmt: skip


def _collect(folder: Path) -> tuple[Path, Path]:
    """Copy the twenty ImageNet images of the package foolbox, a folder per class; return folder and label file."""
    spec = importlib.util.find_spec("foolbox")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the photographs come with the package foolbox: pip install foolbox")
    if not available("packaged"):
        raise UserError("no packaged model is installed; see holdfast doctor")
    space = label_spaces.imagenet()
    assert space is not None
    rows = []
    for file in sorted((Path(spec.submodule_search_locations[0]) / "data").glob("imagenet_*.jpg")):
        index = file.stem.rpartition("_")[2]
        name = first_name(space.names[int(index)])
        target = folder / name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        rows.append((name, index))
    labels = folder.with_name("labels.csv")
    with labels.open("w", newline="") as opened:
        csv.writer(opened).writerows([("class", "imagenet_index"), *rows])
    return folder, labels


PHOTOGRAPHS = "photographs"
PARTS = {
    PHOTOGRAPHS: _photographs, "drawn scenes": _scenes, "walks": _walks, "hard set": _hard_set, "training": _trainings,
}  # fmt: skip
"""By name, as the page shows them."""
STARTED = ("drawn scenes", PHOTOGRAPHS, "hard set", "walks", "training")
"""In the order in which two or three processes end at about the same time."""
