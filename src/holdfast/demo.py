"""First contact: the embedded world and twenty photographs, measured and reported with no hub, data or GPU."""

from __future__ import annotations

import csv
import html
import importlib.util
import shutil
from pathlib import Path

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.types import ORIGINAL
from holdfast.models import available
from holdfast.pipeline.progress import Progress, silent
from holdfast.report.study import DRAWN_WORLD
from holdfast.report.words import percent

SCENES = 240
QUICK_SCENES = 48
PHOTO_CONDITIONS = "static,only_background,mean_background,foreground_on_grey,silhouette"
"""Each photograph is the only one of its class, so that no other of the same class can lend a background."""


def demo(out: Path, *, quick: bool = False, progress: Progress = silent) -> Path:
    """Run all parts and write one page that leads to their reports; returns its path."""
    parts = [
        ("Drawn scenes with known answers", DRAWN_WORLD, _scenes),
        ("Pushed as far as an oracle still agrees", DRAWN_WORLD, _walks),
    ]
    if not quick:
        parts.append(("Twenty photographs", "n = 20: enough to see how it works, not to judge a model.", _photographs))
    sections = []
    for title, note, run in parts:
        try:
            results = run(out, quick, progress)
        except UserError as error:
            if run is not _photographs:  # only they need packages that may be missing
                raise
            sections.append(f"<h2>{html.escape(title)}</h2><p>Left out: {html.escape(str(error))}</p>")
            continue
        progress("report", 0, 1)
        page = results.report(note=note).relative_to(out)
        progress("report", 1, 1)
        listed = "".join(f"<li>{html.escape(line)}</li>" for line in _answers(results))
        sections.append(
            f"<h2>{html.escape(title)}</h2><p><strong>{html.escape(note)}</strong></p><ul>{listed}</ul>"
            f'<p><a href="{html.escape(page.as_posix())}">Open the report</a></p>'
        )
    index = out / "index.html"
    write_atomic(index, _PAGE.format(body="".join(sections)).encode())
    return index


def _answers(results: api.Results) -> list[str]:
    """A line a model: the verdict, or what is right on the originals and pasted where no verdict can be had."""
    if "perturbed" in results.counts.conditions:
        table = results.fmr()
        shares = table[table["label"] == ""].pivot(index="model", columns="measure", values="estimate")
        return [
            f"{model}: FMR {percent(one['fmr'], 0)}. Right on {percent(one['standard_accuracy'], 0)} of the originals, "
            f"and on {percent(one['perturbed_accuracy'], 0)} of the images made against it that the oracle accepts."
            for model, one in shares.iterrows()
        ]
    if "same_class_background" in results.counts.conditions:
        return [f"{row.model}: {row.sentence}" for row in results.verdicts(resamples=500).itertuples()]
    right = results.accuracy().pivot(index="model", columns="condition", values="accuracy")
    return [
        f"{model}: {percent(one[ORIGINAL], 0)} right on the originals, {percent(one['random_background'], 0)} with the "
        "background of another photograph."
        for model, one in right.iterrows()
    ]


def _scenes(out: Path, quick: bool, progress: Progress) -> api.Results:
    data = f"diorama:test?n={QUICK_SCENES if quick else SCENES}&context=0.95"
    return api.evaluate(data, models=available("embedded"), out=out / "scenes", scenarios="all", progress=progress)


def _walks(out: Path, quick: bool, progress: Progress) -> api.Results:
    """Two models that differ in how they were trained; steps larger than the paper's make up for there being fewer."""
    return api.perturb(
        f"diorama:test?n={12 if quick else 24}&context=0.95",
        models=["embedded:resnet_rho95", "embedded:resnet_rho95_strong"],
        generator="embedded:vqgan",
        oracle="clip:embedded",
        out=out / "walks",
        steps=3 if quick else 8,
        step_size=0.08,
        frames=1 if quick else 4,
        progress=progress,
    )


def _photographs(out: Path, quick: bool, progress: Progress) -> api.Results:
    photos, labels = _collect(out / "photographs" / "data")
    api.mask(photos, out=out / "photographs" / "masks", progress=progress)
    return api.evaluate(
        photos,
        masks=out / "photographs" / "masks",
        labels=labels,
        models=available("packaged"),
        scenarios=PHOTO_CONDITIONS,
        out=out / "photographs" / "run",
        progress=progress,
    )


def _collect(folder: Path) -> tuple[Path, Path]:
    """The twenty ImageNet pictures that the package foolbox carries, as a folder a class, and their label file."""
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
