"""Run a study: declared settings, one function that measures, and the page made of its findings.

What a study is about (images, masks, labels, models, generator, oracle) is declared here once: a study that lists
``subject(...)`` in its settings takes the user's own images with ``--set data=FOLDER``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from holdfast import api, registry
from holdfast.core.errors import UserError
from holdfast.core.files import check_own, clear_leftovers, write_atomic
from holdfast.core.names import split_list, unknown
from holdfast.core.protocols import Oracle
from holdfast.core.types import Collection
from holdfast.data.labels import class_keys, map_labels
from holdfast.data.nine_classes import in_nine_classes
from holdfast.models import available, load_classifier
from holdfast.oracle import load_oracle
from holdfast.pipeline.jobs.progress import Progress, environment, silent
from holdfast.pipeline.samples import DataSpec, read
from holdfast.reports.page.charts import dots
from holdfast.reports.page.figures import Chart
from holdfast.reports.page.words import short_names
from holdfast.reports.study import DRAWN_WORLD, StudyResult, write_study

Value = bool | int | float | str | tuple[float, ...] | tuple[str, ...]

DRAWN = "drawn"  # a value of the setting ``data`` that stands for drawn scenes, as an empty one does
EMBEDDED = "embedded"  # a value of the setting ``models`` that stands for all models that come with Holdfast
ENDS = {"value": "value", "low": "95 % from", "high": "to"}  # numbers of a dot's tooltip, with their titles
REHEARSAL = "A rehearsal, too small to say anything."


@dataclass(frozen=True)
class Setting:
    """A value that the user can choose, of ``default``'s type (a tuple: a list with commas); ``quick``: rehearsals."""

    name: str
    default: Value
    meaning: str
    quick: Value | None = None


@dataclass(frozen=True)
class StudyOptions:
    """The options of one run of a study."""

    out: Path  # folder of the study; runs go below ``out / "runs"``, where they resume
    settings: Mapping[str, Any]  # a value for every setting of the study
    quick: bool = False  # whether it is a rehearsal
    device: str = "auto"  # ``auto``, ``cpu``, ``cuda`` …
    seed: int = 0  # all random numbers follow from it
    progress: Progress = silent  # is called with stage, done and total

    def require(self, **least: float) -> None:
        """Raise UserError for a setting that is smaller than it may be."""
        for name, value in least.items():
            if self.settings[name] < value:
                raise UserError(f"{name} must be {value} or more; change it with --set {name}=…")

    def run_options(self, folder: str) -> dict[str, Any]:
        """Return the options that every run of ``api`` gets: folder, seed, device and progress."""
        out = self.out / "runs" / folder
        return {"out": out, "seed": self.seed, "device": self.device, "progress": self.progress}


@dataclass(frozen=True)
class Study:
    """A study: a function that measures and reports, and its settings. The registry holds name and summary."""

    run: Callable[[StudyOptions], StudyResult]
    settings: tuple[Setting, ...] = ()


def run_study(
    name: str,  # of the study
    out: Path,  # its folder; an unfinished study is continued, one with other settings is refused
    *,
    assignments: Sequence[str] = (),  # ``key=value`` for settings that differ from their default
    quick: bool = False,  # a rehearsal of seconds that shows that everything works
    device: str = "auto",  # for models
    seed: int = 0,  # of everything random
    progress: Progress = silent,  # is called with stage, done and total
) -> Path:
    """Run a study by name, write its page, tables and figures, and return the path of the page."""
    study: Study = registry.studies.get(name)
    settings = chosen(name, study.settings, assignments, quick=quick)
    defaults = chosen(name, study.settings, (), quick=quick)
    asked, usual = (
        json.loads(json.dumps({"study": name, "quick": quick, "seed": seed, "settings": values}))
        for values in (settings, defaults)
    )
    is_new = _claim(out / "study.json", asked, usual)
    options = StudyOptions(out, settings, quick, device, seed, progress)
    try:
        result = study.run(options)
    except UserError:
        if is_new:  # a mistake in the settings must not keep the folder from the right ones
            (out / "study.json").unlink()
        raise
    own = world_note(options) if result.note is None else result.note
    note = " ".join(part for part in (own, REHEARSAL if quick else "") if part)
    runs = result.runs or [f"runs/{run.name}" for run in sorted((out / "runs").glob("*"))]
    return write_study(replace(result, note=note, runs=runs), out, asked | {"environment": environment()})


def chosen(name: str, settings: Sequence[Setting], assignments: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """Return the value of every setting: the assigned one, else the default."""
    known = {setting.name: setting for setting in settings}
    values = {
        setting.name: setting.quick if quick and setting.quick is not None else setting.default for setting in settings
    }
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"a setting must have the form key=value, not {assignment!r}")
        if key not in known:
            if not known:
                raise UserError(f"the study {name} has no settings")
            raise unknown(f"setting of the study {name}", key, known)
        values[key] = _parsed(known[key], text)
    return values


def _parsed(setting: Setting, text: str) -> Value:
    default = setting.default
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text]
        if isinstance(default, tuple):
            parts = split_list(text)
            if not parts:
                raise ValueError("no members")
            return tuple(float(part) for part in parts) if isinstance(default[0], float) else tuple(parts)
        return type(default)(text)
    except (ValueError, KeyError):
        raise UserError(f"{setting.name}={text} is not {kind_of(setting)}: {setting.meaning}") from None


def kind_of(setting: Setting) -> str:
    """Return the type of a setting in words."""
    words: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if isinstance(setting.default, tuple):
        members = {float: "numbers", str: "names"}[type(setting.default[0])]
        return f"a list of {members} with commas"
    return words[type(setting.default)]


def written(value: Value) -> str:
    """Return a value as it is written behind ``--set name=``."""
    if isinstance(value, tuple):
        return ",".join(written(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _claim(file: Path, asked: Mapping[str, Any], usual: Mapping[str, Any]) -> bool:
    """Write ``study.json`` and return whether it is new; refuse a folder with other settings (absent: ``usual``)."""
    if not file.is_file():
        check_own(file.parent)
        clear_leftovers(file)
        write_atomic(file, (json.dumps(asked, indent=2) + "\n").encode())
        return True
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise UserError(f"{file} cannot be read; choose another folder or delete it")
    before = {**usual["settings"], **stored.get("settings", {}), **stored}
    now = {**asked["settings"], **asked}
    differing = [key for key in now if key != "settings" and before.get(key) != now[key]]
    if differing:
        was = ", ".join(f"{key} {before.get(key)}" for key in differing)
        raise UserError(f"{file.parent} holds a study with other settings ({was}); choose another folder")
    return False


def subject(
    models: tuple[str, ...],  # the default models
    scenes: int,  # the default number of images
    *,
    quick: tuple[str, ...] = (),  # the models of a rehearsal; empty: the first two
    quick_scenes: int = 12,  # the images of a rehearsal
    context: float = 0.95,  # how strongly class and background go together in drawn scenes
    generator: str = "embedded:vqgan",  # the default generator of walks
    oracle: str = "clip:embedded",  # the default oracle
    without: Sequence[str] = (),  # names of settings that the study does not have
) -> tuple[Setting, ...]:
    """Return the settings that say what a study is about, except those in ``without``."""
    settings = (
        Setting("data", "", "images: a folder, a manifest or scheme:name; empty: drawn scenes"),
        Setting("masks", "", "folder of their masks, if the data has none of its own"),
        Setting("labels", "", "CSV that maps classes to model outputs, if the names do not match"),
        Setting(
            "models", models,
            "models by name; embedded stands for all that come with Holdfast, local-dir:FOLDER/* for all in a folder",
            quick or models[:2],
        ),
        Setting(
            "scenes", scenes, "drawn scenes, a multiple of 12 for equally many of each class; of other data at most so "
            "many images", quick_scenes,
        ),
        Setting("context", context, "how strongly class and background go together in drawn scenes, 0 to 1"),
        Setting("generator", generator, "what makes images of latents", "pixel:"),
        Setting("oracle", oracle, "who says whether an image still shows its class"),
    )  # fmt: skip
    return tuple(setting for setting in settings if setting.name not in without)


def is_drawn(options: StudyOptions) -> bool:
    """Return whether the images are drawn scenes."""
    data = str(options.settings.get("data") or DRAWN)
    return data == DRAWN or data.startswith("diorama:")


def data_of(options: StudyOptions, count: str = "scenes") -> str:
    """Return the name of the data: the user's, or drawn scenes, as many as the setting ``count`` says."""
    settings = options.settings
    if settings.get("data", "") not in ("", DRAWN):
        return str(settings["data"])
    return f"diorama:test?n={settings[count]}&context={settings['context']:g}&seed={options.seed}"


def images_of(options: StudyOptions, count: str = "scenes", *, least: int = 12) -> dict[str, Any]:
    """Return the images as options of ``api.evaluate`` and ``api.perturb``."""
    settings = options.settings
    if settings[count] < least or not 0 <= settings["context"] <= 1:
        raise UserError(f"{count} must be {least} or more, and context a number from 0 to 1")
    images: dict[str, Any] = {"data": data_of(options, count), "labels": settings.get("labels") or None}
    if settings.get("data", "") not in ("", DRAWN):
        images |= {"limit": settings[count], "masks": settings.get("masks") or None}
    elif settings.get("masks"):
        raise UserError("drawn scenes have exact masks of their own; leave masks out, or name other data")
    return images


def collection_of(options: StudyOptions, count: str = "scenes") -> Collection:
    """Read the images of a study, with the keys of its label file."""
    images = images_of(options, count, least=1)
    spec = DataSpec(images["data"], images.get("masks"), limit=images.get("limit", 0), seed=options.seed)
    collection = in_nine_classes(read(spec), images["labels"])
    return replace(collection, keys=class_keys(collection, images["labels"]))


def oracle_of(options: StudyOptions, name: str, collection: Collection) -> Oracle:
    """Load an oracle for the classes of a collection."""
    return load_oracle(
        name, classes=collection.classes, keys=collection.keys, load_classifier=load_classifier, map_labels=map_labels,
        device=options.device,
    )  # fmt: skip


def evaluate(
    options: StudyOptions, models: Sequence[str], scenarios: str, folder: str, *, count: str = "scenes", least: int = 12
) -> api.Results:
    """Evaluate models on the images of a study under some scenarios; the run resumes."""
    images = images_of(options, count, least=least)
    return api.evaluate(models=models, scenarios=scenarios, batch_size=64, **images, **options.run_options(folder))


def model_names(named: Sequence[str], *, least: int = 1) -> list[str]:
    """Return the named models without repetition, with ``embedded`` and ``local-dir:FOLDER/*`` written out."""
    names: list[str] = []
    for name in named:
        if name.startswith("local-dir:") and name.endswith("/*"):
            folder = Path(name.removeprefix("local-dir:")[:-2])
            inside = sorted(file.parent for file in folder.glob("*/model.safetensors"))
            if not inside:
                raise UserError(f"{folder} has no folder with a model.safetensors")
            names += [f"local-dir:{model}" for model in inside]
        else:
            names += available(name) if name == EMBEDDED else [name]
    models = list(dict.fromkeys(names))
    if len(models) < least:
        raise UserError(f"this study compares models: name {least} or more with --set models=A,B")
    return models


def result_names(options: StudyOptions, models: Sequence[str]) -> list[str]:
    """Return the names that results use for these models, in the same order."""
    classes = None if is_drawn(options) else collection_of(options).classes
    return [load_classifier(name, device="cpu", classes=classes).name for name in models]


def world_note(options: StudyOptions) -> str:
    """Return what a reader must know first: drawn scenes, or parts that were made for them and not for these images."""
    if is_drawn(options):
        return DRAWN_WORLD
    made_for_drawn = [
        f"{name} {options.settings[name]}"
        for name in ("generator", "oracle")
        if str(options.settings.get(name, "")).startswith(("embedded:", "clip:embedded"))
    ]
    if not made_for_drawn:
        return ""
    return f"Made for drawn scenes and used on other images here: {' and '.join(made_for_drawn)}."


def shortened(names: pd.Series, limit: int = 28) -> pd.Series:
    """Return the names of models or oracles as charts show them, at most so many letters each."""
    return names.map(short_names(list(dict.fromkeys(names)), limit))


def is_clear(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return in which rows the interval of a measure leaves out zero."""
    return (frame[f"{name}_low"] > 0) | (frame[f"{name}_high"] < 0)


def farthest(frame: pd.DataFrame, name: str) -> dict[str, Any]:
    """Return the row in which a measure is farthest from zero."""
    row = frame.iloc[int(frame[name].abs().fillna(-1).to_numpy().argmax())]
    return {str(key): value for key, value in row.items()}


def long_form(frame: pd.DataFrame, names: Mapping[str, str], *kept: str) -> pd.DataFrame:
    """Return a row per row and measure: ``kept`` columns, the title as ``measure``, and value, low, high."""
    ends = {"value": "", "low": "_low", "high": "_high"}
    return pd.concat(
        frame[list(kept)].assign(measure=title, **{end: frame[f"{name}{suffix}"] for end, suffix in ends.items()})
        for name, title in names.items()
    )


def dots_of(
    frame: pd.DataFrame, measure: str = "", *, line: str, row: str, title: str, zero: bool = False
) -> Callable[[int], Chart]:
    """Return a chart of dots with intervals, in the order of the frame: a measure, or value, low and high."""
    low, high = (f"{measure}_{end}" if measure else end for end in ("low", "high"))
    columns = {"model": line, "row": row, "estimate": measure or "value", "low": low, "high": high}
    tidy = pd.DataFrame({name: frame[column] for name, column in columns.items()})
    models, rows = (list(dict.fromkeys(tidy[name])) for name in ("model", "row"))
    return lambda width: dots(tidy, width, models=models, rows=rows, title=title, zero=zero)


def panel(measure: str, title: str, width: int, layers: list[Chart], height: int = 210) -> Chart:
    """Return a panel of a chart that shows one measure of a long form."""
    only = [{"filter": {"field": "measure", "equal": measure}}]
    size = {"width": width, "height": height}
    return {"title": {"text": title, "fontSize": 12}, **size, "transform": only, "layer": layers}
