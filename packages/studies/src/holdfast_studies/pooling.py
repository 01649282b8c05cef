"""``holdfast study pooling``: mean and variance of a benchmark pooled with generated images (FMR, Proposition A.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from holdfast.core.errors import UserError
from holdfast.core.numbers import number
from holdfast.reports.page.tables import Column
from holdfast.reports.study import Finding, StudyResult
from holdfast_studies.study import Setting, Study, StudyOptions

BIASES = (-3.0, -1.0, 0.0, 0.5, 1.0, 2.0)
_MEAN_COLUMNS = (
    Column("generated", "Generated images", "integer"),
    Column("mean", "Mean", "number", digits=4),
    Column("simulated_mean", "Simulated", "number", digits=4),
    Column("variance", "Variance", "number", digits=4),
    Column("simulated_variance", "Simulated", "number", digits=4),
    Column("within_only", "Without the between-set term", "number", digits=4),
    Column("error", "Distance to the population mean", "number", digits=4),
)
_BIAS_COLUMNS = (
    Column("generated", "Generated images", "integer"),
    Column("ratio", "Bias of the generated set / bias of the benchmark", "number", digits=2),
    Column("remaining", "Bias of the pool / bias of the benchmark", "number", digits=3),
    Column("nearer", "Samples in which the pool is nearer", "percent"),
)


@dataclass(frozen=True)
class ImageSet:
    """A set of images as its size and the mean and variance of one score per image."""

    size: int
    mean: float
    variance: float


def pooled(sets: Sequence[ImageSet]) -> ImageSet:
    """Return the size, mean and variance of the union of sets; variances divide by the size.

    The variance is the mean of the sets' variances, weighted by size, plus the variance of their means.

    >>> pooled([ImageSet(100, 0.8, 0.16), ImageSet(300, 0.4, 0.24)])
    ImageSet(size=400, mean=0.5, variance=0.25)
    """
    size = sum(part.size for part in sets)
    if size < 1:
        raise UserError("pooling needs at least one image")
    mean = math.fsum(part.size * part.mean for part in sets) / size
    variance = math.fsum(part.size * (part.variance + (part.mean - mean) ** 2) for part in sets) / size
    return ImageSet(size, round(mean, 15), round(variance, 15))


def run(options: StudyOptions) -> StudyResult:
    """Pool a benchmark with generated sets of several sizes and biases; hold the formulas against simulated scores."""
    settings = options.settings
    options.require(images=2, samples=2, spread=0, generated_spread=0)
    if any(share < 0 for share in settings["generated"]):
        raise UserError("generated must be 0 or more: sizes as multiples of images")
    truth, benchmark = settings["truth"], settings["benchmark"]
    if benchmark == truth:
        raise UserError("benchmark and truth must differ: an unbiased benchmark leaves nothing to bring nearer")
    base = ImageSet(settings["images"], benchmark, settings["spread"] ** 2)
    rng = np.random.default_rng(options.seed)
    sizes = [round(share * base.size) for share in settings["generated"]]
    moments = pd.DataFrame([_moments(base, size, settings, rng) for size in sizes])
    biases = pd.DataFrame(
        [_bias(base, size, ratio, settings, rng) for size in sizes if size for ratio in BIASES],
        columns=[column.key for column in _BIAS_COLUMNS],
    )
    largest = moments.iloc[int((moments["variance"] - moments["within_only"]).to_numpy().argmax())]
    missing = largest["variance"] - largest["within_only"]
    return StudyResult(
        title="Pooled datasets",
        question=(
            "FMR's Proposition A.1 is about a benchmark pooled with generated images: what are the mean and "
            "the variance of the pool, and is it nearer to the population than the benchmark alone? Scores are "
            "simulated, so the population is known."
        ),
        findings=[
            Finding(
                "Mean and variance",
                [
                    "The mean of the pool is the mean of the two means, weighted by size. Its variance is the weighted "
                    "mean of the two variances plus w(1 − w)(μ₁ − μ₂)², the variance between the sets.",
                    f"Without that term the variance is too small by up to {number(missing, 4)} "
                    f"({int(largest['generated']):,} generated images).",
                ],
                moments,
                _MEAN_COLUMNS,
                caption=f"{settings['samples']:,} simulated pools per row.",
            ),
            Finding(
                "When the pool is nearer to the population",
                [
                    "With a share w of benchmark images, the pool is less biased exactly if the generated set's bias, "
                    "divided by the benchmark's, is between −(1 + w)/(1 − w) and 1.",
                    "Pooling helps if generated images err less than the benchmark, or to the other side. If they err "
                    "more, to the same side, it harms, and more images do not help.",
                ],
                biases,
                _BIAS_COLUMNS,
                caption="The ratio of biases is exact; the last column counts simulated pools.",
            ),
        ],
        facts={"benchmark images": base.size, "simulated pools per row": settings["samples"]},
        note="Simulated scores: no images and no models are involved.",
        runs=[],
    )


STUDY = Study(
    run,
    (
        Setting("images", 1350, "images of the benchmark", 200),
        Setting("generated", (0.0, 0.5, 1.0, 2.0, 5.0), "sizes of the generated set, as multiples of images"),
        Setting("truth", 0.5, "mean score of the population"),
        Setting("benchmark", 0.6, "mean score of the benchmark's images"),
        Setting("generated_mean", 0.45, "mean score of generated images"),
        Setting("spread", 0.3, "standard deviation of scores in the benchmark"),
        Setting("generated_spread", 0.4, "standard deviation of scores of generated images"),
        Setting("samples", 1000, "simulated pools per row", 200),
    ),
)


def _moments(base: ImageSet, size: int, settings: Mapping[str, Any], rng: np.random.Generator) -> dict[str, float]:
    other = ImageSet(size, settings["generated_mean"], settings["generated_spread"] ** 2)
    pool = pooled([base, other])
    scores = np.concatenate([_scores(part, settings["samples"], rng) for part in (base, other)], 1)
    within = (base.size * base.variance + other.size * other.variance) / pool.size
    return {
        "generated": size, "mean": pool.mean, "simulated_mean": float(scores.mean()), "variance": pool.variance,
        "simulated_variance": float(scores.var(1).mean()), "within_only": within,
        "error": abs(pool.mean - settings["truth"]),
    }  # fmt: skip


def _bias(
    base: ImageSet, size: int, ratio: float, settings: Mapping[str, Any], rng: np.random.Generator
) -> tuple[int, float, float, float]:
    truth = settings["truth"]
    other = ImageSet(size, truth + ratio * (base.mean - truth), settings["generated_spread"] ** 2)
    alone, added = (_means(part, settings["samples"], rng) for part in (base, other))
    pool = (base.size * alone + size * added) / (base.size + size)
    remaining = (pooled([base, other]).mean - truth) / (base.mean - truth)
    return size, ratio, remaining, float((np.abs(pool - truth) < np.abs(alone - truth)).mean())


def _scores(part: ImageSet, samples: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(part.mean, math.sqrt(part.variance), (samples, part.size))


def _means(part: ImageSet, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the means of simulated sets; a mean of normal scores is normal itself."""
    return rng.normal(part.mean, math.sqrt(part.variance / part.size), samples)
