"""``holdfast demo``: drawn scenes and twenty photographs, measured and reported without hub, data or GPU."""

from __future__ import annotations

import csv
import html
import importlib.util
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.types import ORIGINAL
from holdfast.models import available
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.report.page.words import percent, plural
from holdfast.report.study import DRAWN_WORLD

Part = Callable[[Path, bool, Progress], tuple[Path, list[str]]]
"""Takes a folder, whether to be quick, and progress; returns the page of its report and sentences about it."""

POOL = Path(__file__).parent / "assets" / "pool" / "pool.zip"
MADE_AHEAD = "The images were made ahead (recipes/pool.py): painting them takes a quarter of an hour."
TRAINED = Path(__file__).parent / "assets" / "trained" / "trained.zip"
TRAINED_AHEAD = "39 trainings were made ahead on a GPU (recipes/trained.py); one small network is trained here."
SURROGATES = ("resnet_rho95", "mobilenet_rho95", "densenet_rho95", "resnet_rho95_strong", "resnet_rho80")
TARGETS = ("vit_rho95", "convnext_rho95")
SCENES = 240
QUICK_SCENES = 48
QUICK_WALKS = 12
QUICK_POOL = 222
FEW = "n = 20: enough to see how it works, not to judge a model."
PHOTO_CONDITIONS = "static,only_background,mean_background,foreground_on_grey,silhouette"
"""No condition with backgrounds of the same class: each photograph is the only one of its class."""


def demo(out: Path, *, quick: bool = False, progress: Progress = silent) -> Path:
    """Run all parts, write one page with links to their reports, and return its path."""
    parts: list[tuple[str, str, Part]] = [
        ("Drawn scenes with known answers", DRAWN_WORLD, _scenes),
        ("Pushed as far as an oracle still agrees", DRAWN_WORLD, _walks),
        ("Images that many models fail together", f"{DRAWN_WORLD} {MADE_AHEAD}", _hard_set),
        ("Trained and tested within each scenario", f"{DRAWN_WORLD} {TRAINED_AHEAD}", _trainings),
    ]
    if not quick:
        parts.append(("Twenty photographs", FEW, _photographs))
    sections = []
    for title, note, run in parts:
        try:
            page, lines = run(out, quick, progress)
        except UserError as error:
            if run is not _photographs:  # only they need packages that may be missing
                raise
            sections.append(f"<h2>{html.escape(title)}</h2><p>Left out: {html.escape(str(error))}</p>")
            continue
        listed = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        sections.append(
            f"<h2>{html.escape(title)}</h2><p><strong>{html.escape(note)}</strong></p><ul>{listed}</ul>"
            f'<p><a href="{html.escape(page.relative_to(out).as_posix())}">Open the report</a></p>'
        )
    index = out / "index.html"
    write_atomic(index, _PAGE.format(body="".join(sections)).encode())
    return index


def _reported(results: api.Results, note: str, progress: Progress) -> Path:
    progress("report", 0, 1)
    page = results.report(note=note)
    progress("report", 1, 1)
    return page


def _scenes(out: Path, quick: bool, progress: Progress) -> tuple[Path, list[str]]:
    data = f"diorama:test?n={QUICK_SCENES if quick else SCENES}&context=0.95"
    results = api.evaluate(data, models=available("embedded"), out=out / "scenes", scenarios="all", progress=progress)
    page = _reported(results, DRAWN_WORLD, progress)
    return page, [f"{row.model}: {row.sentence}" for row in results.verdicts(resamples=500).itertuples()]


def _walks(out: Path, quick: bool, progress: Progress) -> tuple[Path, list[str]]:
    """Walk against two models that were trained differently; fewer steps than in the paper, but larger ones."""
    results = api.perturb(
        f"diorama:test?n={QUICK_WALKS if quick else 24}&context=0.95",
        models=["embedded:resnet_rho95", "embedded:resnet_rho95_strong"],
        generator="embedded:vqgan",
        oracle="clip:embedded",
        out=out / "walks",
        steps=3 if quick else 8,
        step_size=0.08,
        frames=1 if quick else 4,
        progress=progress,
    )
    table = results.fmr()
    shares = table[table["label"] == ""].pivot(index="model", columns="measure", values="estimate")
    return _reported(results, DRAWN_WORLD, progress), [
        f"{model}: FMR {percent(share['fmr'], 0)}. Right on {percent(share['standard_accuracy'], 0)} of the originals, "
        f"and on {percent(share['perturbed_accuracy'], 0)} of the images made against it that the oracle accepts."
        for model, share in shares.iterrows()
    ]


def _hard_set(out: Path, quick: bool, progress: Progress) -> tuple[Path, list[str]]:
    """Mine images that were generated ahead of time, so that it takes half a minute."""
    with zipfile.ZipFile(POOL) as packed:
        packed.extractall(out / "pool")
    mined = api.mine(
        out / "pool",
        surrogates=[f"embedded:{name}" for name in SURROGATES],
        targets=[f"embedded:{name}" for name in TARGETS],
        oracle="clip:embedded",
        out=out / "hard",
        again=0,
        limit=QUICK_POOL if quick else 0,
        progress=progress,
    )
    lines = [
        f"{mined.images} of {mined.facts['images']} generated images are failed by {mined.facts['choice']['words']} "
        "models together and still show what they should, says the oracle."
    ]
    right = mined.tables["accuracy"].query("half == 'report' and subset == 'valid' and role == 'target'")
    for model, own in right.groupby("model", sort=False):
        share = own.set_index("set")["estimate"]
        lines.append(
            f"{model}, which took no part in choosing them, on the half of the prompts where nothing was chosen: right "
            f"on {percent(share['pool'], 0)} of the unmined pool, {percent(share['control'], 0)} of a matched control "
            f"and {percent(share['hard'], 0)} of the hard set."
        )
    return mined.path / "mining" / "report" / "index.html", lines


def _trainings(out: Path, quick: bool, progress: Progress) -> tuple[Path, list[str]]:
    """Report networks that were trained ahead of time, and train one live as evidence."""
    with zipfile.ZipFile(TRAINED) as packed:
        packed.extractall(out / "trained")
    ahead = api.open_run(out / "trained")
    lines = [
        f"{row.model}, trained ahead: robustness score {row.score:.3f} ({row.low:.3f} to {row.high:.3f})."
        for row in ahead.scores(resamples=500).itertuples()
    ]
    scenes, epochs = (96, 1) if quick else (480, 12)
    live = api.train(
        f"diorama:train?n={scenes}&context=0.8",
        architectures="embedded:resnet_rho95",
        scenarios=f"{ORIGINAL},random_background",
        train_on=ORIGINAL,
        folds=1,
        size=64,
        epochs=epochs,
        out=out / "live",
        progress=progress,
    )
    right = live.accuracy().set_index("condition")["accuracy"]
    lines.append(
        f"A small ResNet, trained live on four in five of {scenes} scenes ({plural(epochs, 'epoch')}): "
        f"{percent(right[ORIGINAL], 0)} right on the others, {percent(right['random_background'], 0)} before other "
        "backgrounds."
    )
    return _reported(ahead, f"{DRAWN_WORLD} {TRAINED_AHEAD}", progress), lines


def _photographs(out: Path, quick: bool, progress: Progress) -> tuple[Path, list[str]]:
    photos, labels = _collect(out / "photographs" / "data")
    api.mask(photos, out=out / "photographs" / "masks", progress=progress)
    results = api.evaluate(
        photos,
        masks=out / "photographs" / "masks",
        labels=labels,
        models=available("packaged"),
        scenarios=PHOTO_CONDITIONS,
        out=out / "photographs" / "run",
        progress=progress,
    )
    right = results.accuracy().pivot(index="model", columns="condition", values="accuracy")
    return _reported(results, FEW, progress), [
        f"{model}: {percent(share[ORIGINAL], 0)} right on the originals, {percent(share['random_background'], 0)} with "
        "the background of another photograph."
        for model, share in right.iterrows()
    ]


def _collect(folder: Path) -> tuple[Path, Path]:
    """Copy the twenty ImageNet pictures of the package foolbox, a folder per class; return folder and label file."""
    spec = importlib.util.find_spec("foolbox")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the photographs come with the package foolbox: pip install foolbox")
    if not available("packaged"):
        raise UserError("no packaged model is installed; see holdfast doctor")
    rows = []
    for file in sorted((Path(spec.submodule_search_locations[0]) / "data").glob("imagenet_*.jpg")):
        index = file.stem.rpartition("_")[2]
        target = folder / f"imagenet {index}" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        rows.append((f"imagenet {index}", index))
    labels = folder.with_name("labels.csv")
    with labels.open("w", newline="") as opened:
        csv.writer(opened).writerows([("class", "imagenet_index"), *rows])
    return folder, labels


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast demo</title>
<style>body{{font:17px/1.55 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem}}
body{{color:#1c1f2b;background:#fdfdfb}}
h1,h2{{font-family:Georgia,serif}}a{{color:#00538a}}li{{margin:.3rem 0}}
@media (prefers-color-scheme:dark){{body{{color:#e8e6df;background:#16181d}}a{{color:#7db9e8}}}}</style></head>
<body><h1>What the models hold on to</h1>{body}</body></html>
"""
