"""A hard set of real photographs: style and background swaps that three models fail together.

``python benchmarks/real_hard_set.py RUN SWAPS YOLOX.onnx OUT``: RUN is an ``eval`` with five models and the four
conditions below, SWAPS the same images as ``synth`` wrote them. An image is hard if all three surrogates are
wrong over all their outputs. The oracle is a detector, of another family, task and training set than the classifiers:
it accepts an image in which its surest cat or dog is of the right species (it knows no breeds). A control is, for each
hard image, another of the same condition and class that one or two surrogates fail. Prints accuracies of all models
with Wilson's intervals, images as clusters; writes the accepted hard images and their controls below OUT.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pandas as pd

import holdfast
from holdfast.models import load_detector
from holdfast.stats.core.cells import design_effects, wilson

CONDITIONS = ("stylised", "stylised_object", "stylised_background", "random_background")
SURROGATES = ("packaged:efficientnet_lite0", "packaged:mobilenet_v2", "squeezenet1_1")
HELD_OUT = ("packaged:efficientnet_lite1", "packaged:efficientnet_lite2")
CATS = ("egyptian_mau", "persian", "siamese")


def answers_of(run: Path) -> pd.DataFrame:
    """Return a row per image: condition, sample_id, label, and whether each model is right."""
    columns = ["condition", "variant", "parameters", "sample_id", "label", "model", "correct"]
    rows = holdfast.open_run(run).rows(columns).to_pandas()
    plain = rows["condition"].isin(CONDITIONS) & (rows["variant"] == "paper")
    rows = rows[plain & ~rows["parameters"].astype(str).str.contains('"strength":0.0')]
    wide = rows.pivot(index=["condition", "sample_id", "label"], columns="model", values="correct")
    return wide.astype(bool).reset_index()


def accepted(pictures: pd.DataFrame, swaps: Path, yolox: Path) -> list[bool]:
    """Return whether the detector's surest cat or dog in each image is of the right species."""
    detector = load_detector(f"onnx:{yolox}?decode=yolox", device="cpu")
    names = np.array(detector.labels.names)
    verdicts = []
    for row in pictures.itertuples():
        file = next(swaps.glob(f"{row.condition}/{row.label}/{Path(row.sample_id).stem}*"))
        (answer,) = detector.detect([cv2.imread(str(file), cv2.IMREAD_COLOR_RGB)])
        species = names[answer.labels]
        known = np.isin(species, ("cat", "dog")) & (answer.scores >= 0.1)
        surest = species[known][answer.scores[known].argmax()] if known.any() else ""
        verdicts.append(surest == ("cat" if row.label in CATS else "dog"))
    return verdicts


def controls_of(pool: pd.DataFrame, hard: pd.DataFrame) -> pd.DataFrame:
    """Return for each hard image another of the same condition and class that some, not all, surrogates fail."""
    left = pool[pool["failed"].between(1, len(SURROGATES) - 1)].sort_values(["failed", "sample_id"])
    chosen: list[int] = []
    for row in hard.itertuples():
        fitting = left[(left["condition"] == row.condition) & (left["label"] == row.label) & ~left.index.isin(chosen)]
        chosen += list(fitting.index[:1])
    return pool.loc[chosen]


def main(run: Path, swaps: Path, yolox: Path, out: Path) -> None:
    """Choose, judge, print, write."""
    pool = answers_of(run)
    pool["failed"] = (~pool[list(SURROGATES)]).sum(axis=1)
    pool["accepted"] = accepted(pool, swaps, yolox)
    hard = pool[pool["failed"] == len(SURROGATES)]
    valid = pool[pool["accepted"]]
    sets = {"pool": valid, "control": controls_of(valid, hard[hard["accepted"]]), "hard": hard[hard["accepted"]]}
    shares = [f"{pictures['accepted'].mean():.1%}" for pictures in (pool, hard)]
    print(f"{len(pool)} images, {len(hard)} failed by all three; accepted: {shares[0]} of all, {shares[1]} of those")
    print(hard.groupby("condition")["accepted"].agg(["size", "sum"]))
    for name, pictures in sets.items():
        print(f"{name}: {len(pictures)} images of {pictures['sample_id'].nunique()} images")
        for model in (*SURROGATES, *HELD_OUT):
            right, n = int(pictures[model].sum()), len(pictures)
            ones, photos = np.ones(n), pd.factorize(pictures["sample_id"])[0].astype(np.intp)
            correct = pictures[model].to_numpy(float)
            (effect,) = design_effects(correct, ones, np.zeros(n, np.intp), 1, source=photos)
            low, high = wilson(right / effect, n / effect)
            print(f"{name:8} {model:30} {right}/{n} = {right / n:.1%} ({float(low):.1%} to {float(high):.1%})")
    for name in ("hard", "control"):
        for row in sets[name].itertuples():
            file = next(swaps.glob(f"{row.condition}/{row.label}/{Path(row.sample_id).stem}*"))
            target = out / name / row.label / f"{row.condition}_{file.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]))
