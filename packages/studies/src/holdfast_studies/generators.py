"""``holdfast study generators``: the same prompts through two generations of generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import pandas as pd

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.names import unknown
from holdfast.core.numbers import estimate, number, percent, points, span
from holdfast.core.types import Image
from holdfast.data.nuisances import KINDS
from holdfast.pipeline.hard.pool import MeasuredPool, MineSpec, check, measure
from holdfast.reports.page.tables import Column, plain
from holdfast.reports.page.words import plural, sentence, short_names
from holdfast.reports.study import DRAWN_WORLD, Finding, StudyResult
from holdfast.stats.core.bootstrap import paired_change
from holdfast.stats.hard.mining import share, shared
from holdfast_studies.study import Setting, Study, StudyOptions, dots_of

SETTINGS = (
    Setting(
        "first", "embedded:?steps=3&guidance=1", "the older generator, an image maker by name",
        "embedded:?steps=1&guidance=1",
    ),
    Setting("second", "embedded:", "the newer one", "embedded:?steps=2"),
    Setting("categories", "", "as for holdfast generate; left empty, those of drawn scenes"),
    Setting("nuisances", "", "likewise"),
    Setting("templates", "", "TOML with a template a kind"),
    Setting("kinds", KINDS, "kinds of nuisance"),
    Setting("per_pair", 1, "images a prompt and generator"),
    Setting("limit", 216, "at most so many images a generator, evenly over categories and kinds; 0 makes all", 18),
    Setting(
        "surrogates", ("embedded:resnet_rho95", "embedded:mobilenet_rho95", "embedded:densenet_rho95"),
        "models whose shared failures count as hard", ("embedded:resnet_rho95", "embedded:mobilenet_rho95"),
    ),
    Setting("at_least", 2, "how many of them must fail"),
    Setting(
        "targets", ("embedded:vit_rho95", "embedded:resnet_rho95_strong"), "models that take no part in that",
        ("embedded:resnet_rho95_strong",),
    ),
    Setting("oracle", "clip:embedded", "who says whether an image shows its category"),
    Setting("labels", "", "CSV that maps categories to model outputs"),
    Setting("batch_size", 16, "images at once"),
)  # fmt: skip
SIDES = ("first", "second")
RIGHT = "right: "
SHOWN = 6  # prompts in the images of the page


@dataclass(frozen=True)
class PoolPair:
    """The images that both generators made, by sample_id."""

    images: pd.DataFrame  # prompt_id, category, kind, prompt
    # measure → a column per side with a value per image: 0 or 1, NaN if it has none.
    values: Mapping[str, pd.DataFrame]
    pools: Mapping[str, MeasuredPool]  # the two pools, classified and judged
    seconds: Mapping[str, float]  # side → seconds per image
    lost: int  # images that only one generator could make


def run(options: StudyOptions) -> StudyResult:
    """Make both pools from the same prompts and seeds, classify and judge them, and compare them prompt by prompt."""
    settings = options.settings
    mining = _check(options)
    pools, seconds = {}, {}
    for side in SIDES:
        folder = options.out / "work" / side
        api.generate(
            settings[side], out=folder, kinds=settings["kinds"], categories=settings["categories"],
            nuisances=settings["nuisances"], templates=settings["templates"], per_pair=settings["per_pair"],
            limit=settings["limit"], seed=options.seed, device=options.device, batch_size=settings["batch_size"],
            progress=options.progress,
        )  # fmt: skip
        spec = replace(mining, pool=str(folder))
        pools[side] = measure(spec, str(folder), options.out / "runs" / side, options.progress)[0]
        samples = pools[side].collection.samples
        seconds[side] = float(np.mean([float(sample.attributes["seconds"]) for sample in samples]))
    both = joined(pools, settings["at_least"], seconds)
    table = compared(both, seed=options.seed)
    findings = [_overall(table, settings), _by_kind(table), _stay(both), _pictures(both, settings)]
    drawn = all(settings[side].startswith("embedded:") for side in SIDES)
    return StudyResult(
        title="Two generations of generator",
        question=_question(settings, drawn=drawn),
        findings=findings,
        facts={
            "images of each generator": len(both.images),
            "prompts": both.images["prompt_id"].nunique(),
            "surrogates": len(settings["surrogates"]),
            "targets": len(settings["targets"]),
        },
        note=(DRAWN_WORLD if drawn else ""),
        runs=[f"runs/{side}" for side in SIDES],
    )


STUDY = Study(run, SETTINGS)


def _check(options: StudyOptions) -> MineSpec:
    """Return what mines a pool, whose folder is still open; raise UserError if a setting makes no sense."""
    settings = options.settings
    options.require(per_pair=1, limit=0, batch_size=1, at_least=1)
    if settings["at_least"] > len(settings["surrogates"]):
        raise UserError(f"at_least={settings['at_least']}: only {len(settings['surrogates'])} surrogates are named")
    if settings["first"] == settings["second"]:
        raise UserError("first and second are the same generator; name two")
    for kind in settings["kinds"]:
        if kind not in KINDS:
            raise unknown("kind of nuisance", kind, KINDS)
    mining = MineSpec(
        "", tuple(settings["surrogates"]), tuple(settings["targets"]), settings["oracle"],
        labels=settings["labels"] or None, device=options.device, seed=options.seed,
    )  # fmt: skip
    check(mining)
    return mining


def _question(settings: Mapping[str, Any], *, drawn: bool) -> str:
    asked = (
        f"Do images of a newer generator fail models as those of an older one do? {settings['first']} and "
        f"{settings['second']} painted the same prompts from the same seeds. An image is hard if at least "
        f"{settings['at_least']} of {len(settings['surrogates'])} surrogates are wrong; {settings['oracle']} says "
        "whether it shows its category. Changes are second less first, image by image, with intervals at the 95 % "
        "level that treat prompts as independent."
    )
    if drawn and settings["first"].partition("?")[0] == settings["second"].partition("?")[0]:
        asked += (
            " There is one embedded generator, so that its two generations are one set of weights with fewer or more "
            "steps and weaker or stronger guidance: how well a prompt is met, not another training. With a hub, name "
            "two of its generators."
        )
    return asked


def joined(pools: Mapping[str, MeasuredPool], at_least: int, seconds: Mapping[str, float]) -> PoolPair:
    """Return the images that both pools have, and every measure of both."""
    first, second = (pools[side] for side in SIDES)
    common = first.images.index.intersection(second.images.index)
    if common.empty:
        raise UserError("the two generators have no image in common that every model and the oracle answered for")
    valid = pd.DataFrame({side: pools[side].images.loc[common, "valid"].astype(float) for side in SIDES})
    hard = pd.DataFrame(
        {side: shared(pools[side].failed.loc[common], pools[side].surrogates, at_least).astype(float) for side in SIDES}
    )
    values = {"valid": valid, "hard": hard, "hard and valid": hard * valid}
    names = short_names(list(first.targets))
    agreed = (valid == 1).all(axis=1)
    for model in first.targets:
        right = pd.DataFrame({side: (~pools[side].failed.loc[common, model]).astype(float) for side in SIDES})
        values[f"{RIGHT}{names[model]}"] = right
        values[f"right if both are valid: {names[model]}"] = right.where(agreed)
    lost = len(first.images.index.symmetric_difference(second.images.index))
    return PoolPair(first.images.loc[common], values, pools, seconds, lost)


def compared(both: PoolPair, *, seed: int = 0) -> pd.DataFrame:
    """Return a row per measure and kind of nuisance ("all" for all): the columns of ``paired_change``."""
    rows = []
    kinds = ["all", *dict.fromkeys(both.images["kind"])]
    for measure_name, values in both.values.items():
        for kind in kinds:
            part = values[(both.images["kind"] == kind) | (kind == "all")].dropna()
            clusters = both.images.loc[part.index, "prompt_id"].astype(str)
            change = paired_change(part["first"], part["second"], clusters, seed=seed)
            rows.append({"measure": measure_name, "kind": kind} | change)
    return pd.DataFrame(rows)


def _columns(*first: Column) -> list[Column]:
    return [
        *first,
        *plain("integer", n="Images", prompts="Prompts"),
        *plain("percent", before="First", after="Second"),
        Column("estimate", "Change", "points", "low", "high"),
    ]


def _change_words(row: Mapping[Any, Any]) -> str:
    return (
        f"{percent(row['before'])} → {percent(row['after'])}, {'+' if row['estimate'] > 0 else ''}"
        f"{points(row['estimate'])} ({span(row['low'], row['high'])})"
    )


def _overall(table: pd.DataFrame, settings: Mapping[str, Any]) -> Finding:
    frame = table[table["kind"] == "all"].reset_index(drop=True)
    rows = {row["measure"]: row for row in frame.to_dict("records")}
    sentences = [
        f"The hard rate is {_change_words(rows['hard'])}; the oracle accepts {_change_words(rows['valid'])}; "
        f"hard and accepted are {_change_words(rows['hard and valid'])}.",
        *(
            f"{name.removeprefix(RIGHT)} is right on {_change_words(row)}."
            for name, row in rows.items()
            if name.startswith(RIGHT)
        ),
    ]
    drawn = frame.rename(columns={"low": "estimate_low", "high": "estimate_high"}).assign(
        line="change", row=[sentence(name) for name in frame["measure"]]
    )
    return Finding(
        "What the second generator changes",
        sentences,
        frame.drop(columns="kind"),
        _columns(Column("measure", "Share of images that are", show=sentence)),
        dots_of(drawn, "estimate", line="line", row="row", title="points, second less first", zero=True),
        caption=f"Second ({settings['second']}) less first ({settings['first']})",
    )  # fmt: skip


def _by_kind(table: pd.DataFrame) -> Finding:
    frame = table[table["kind"] != "all"].reset_index(drop=True)
    hard = frame[frame["measure"] == "hard and valid"].to_dict("records")
    return Finding(
        "By kind of nuisance",
        [f"Hard and accepted, {row['kind']}: {_change_words(row)}." for row in hard],
        frame,
        _columns(Column("measure", "Share of images that are", show=sentence), Column("kind", "Kind", show=sentence)),
    )


def _stay(both: PoolPair) -> Finding:
    """Say whether a prompt that is hard with one generator is hard with the other."""
    hard = both.values["hard"] == 1
    prompts = both.images["prompt_id"].astype(str)
    rows = []
    for given, other in (SIDES, SIDES[::-1]):
        for was in (True, False):
            inside = hard[given] == was
            hard_too = share(hard.loc[inside, other], prompts[inside])
            rows.append({"given": given, "was": "hard" if was else "not hard", "other": other} | hard_too)
    frame = pd.DataFrame(rows)
    first, second = frame.iloc[0], frame.iloc[1]
    text = "No image of the first generator is hard."
    if first["n"]:
        text = (
            f"Of the {plural(int(first['n']), 'image')} that are hard with the first generator, "
            f"{estimate(first['estimate'], first['low'], first['high'])} are hard with the second, from the same "
            f"prompt and seed; of the others {estimate(second['estimate'], second['low'], second['high'])} are."
        )
    columns = [
        *plain("text", given="Images that with the", was="are"),
        *plain("integer", n="Images", prompts="Prompts"),
        Column("other", "and with the"),
        Column("estimate", "are hard", "percent", "low", "high"),
    ]
    return Finding("Do the same prompts stay hard", [text], frame, columns)


def _pictures(both: PoolPair, settings: Mapping[str, Any]) -> Finding:
    """Show the same prompts painted by both, a category and kind at a time."""
    order = both.images.assign(turn=both.images.groupby(["kind", "category"]).cumcount())
    chosen = order.sort_values(["turn", "prompt_id"]).drop_duplicates("category").head(SHOWN).index
    shown: dict[str, Image] = {}
    for place in chosen:
        prompt = str(both.images.at[place, "prompt"])
        for side in SIDES:
            pool = both.pools[side]
            image = next(sample.image for sample in pool.collection.samples if sample.sample_id == place)
            words = ["valid" if both.values["valid"].at[place, side] else "rejected"]
            words += ["hard"] if both.values["hard"].at[place, side] else []
            shown[f"{prompt}, {side}: {', '.join(words)}"] = _enlarged(image.load())
    frame = pd.DataFrame(
        [
            {"generator": settings[side], "side": side, "seconds": both.seconds[side]}
            | {"images": len(both.pools[side].images)}
            for side in SIDES
        ]
    )
    sentences = [
        f"An image took {number(both.seconds['first'], 2)} seconds with the first generator and "
        f"{number(both.seconds['second'], 2)} with the second, in batches, on this machine."
    ]
    if both.lost:
        sentences.append(f"{plural(both.lost, 'image')} that only one of them has count nowhere.")
    columns: Sequence[Column] = [
        *plain("text", side="Generator", generator="Name"),
        Column("images", "Images", "integer"),
        Column("seconds", "Seconds an image", "number", digits=2),
    ]
    return Finding("The same prompts, painted twice", sentences, frame, columns, images=shown)


def _enlarged(image: Image, side: int = 128) -> Image:
    """Enlarge small images without smoothing, and reduce large ones."""
    scale = side / max(image.shape[:2])
    method = cv2.INTER_NEAREST if scale > 1 else cv2.INTER_AREA
    size = (max(round(image.shape[1] * scale), 1), max(round(image.shape[0] * scale), 1))
    return np.asarray(cv2.resize(image, size, interpolation=method), np.uint8)
