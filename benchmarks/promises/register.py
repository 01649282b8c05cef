"""The register: one row for each promise, with its simulation and the range that the measured rate has to stay in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from promises import trials_answers as answers
from promises import trials_audit as auditing
from promises import trials_concepts as concepts
from promises import trials_encoders as encoders
from promises import trials_models as models
from promises import trials_objects as objects
from promises import trials_walks as walks
from promises import trials_watching as watching
from promises.promise import Promise, Simulation, Trial

Settings = dict[str, tuple[str, dict[str, Any]]]
"""Name of the simulation → the data in words, and the settings."""


PAGES = {
    "accuracy": ("drops", "confidence", "concepts"),
    "comparing-models": ("between-datasets", "choice", "regression", "interaction"),
    "fmr": ("fmr-people", "agreement", "votes"),
    "release-gate": ("watching",),
    "sample-size": ("sequential",),
    "scores": ("robustness-score",),
    "tasks": ("objects", "questions", "segmentation", "mining", "embedding"),
    "verdict": ("holds", "worst-background"),
}
"""Page of docs/statistics → its topics with other names. Names of simulations, and so their seeds, have the topic."""
PAGE_OF = {topic: page for page, topics in PAGES.items() for topic in topics}


def _rows(
    topic: str, statement: str, outcome: str, low: float, high: float, trial: Trial, draws: int, settings: Settings
) -> Iterator[Promise]:
    for name, (words, options) in settings.items():
        simulation = Simulation(f"{topic}.{name}", trial, draws, options)
        yield Promise(PAGE_OF.get(topic, topic), statement, words, simulation, outcome, low, high)


LARGE = [0.02, 0.05, 0.1, 0.08, 0.5, 0.25]
TWELVE = [0, 0.01, 0.02, 0.03, 0.05, 0.05, 0.1, 0.1, 0.1, 0.2, 0.3, 0.5]
UNEVEN = [6, 8, 10, 14, 20, 30, 44, 60]
THREE = [3, 20, 20, 20, 20, 20, 20]

CHECKPOINTS: Settings = {
    "checkpoints": ("30 checkpoints, 120 images, 6 conditions", {"runs": 30, "conditions": 6}),
    "checkpoints-alone": ("30 checkpoints, 60 images, one condition", {"runs": 30, "conditions": 1, "photos": 60}),
    "checkpoints-donors": ("20 checkpoints, 3 conditions, 24 donors", {"runs": 20, "conditions": 3, "donors": 24}),
    "checkpoints-renderings": ("20 checkpoints, 3 conditions, three renderings",
                               {"runs": 20, "conditions": 3, "renderings": 3}),
}  # fmt: skip
MONTHS: Settings = {
    "months": ("8 months of 120 images, 2 conditions, accuracy 85 %",
               {"runs": 8, "conditions": 2, "photos": 120, "accuracy": 0.85}),
    "months-high": ("8 months of 60 images, 2 conditions, accuracy 97 %",
                    {"runs": 8, "conditions": 2, "photos": 60, "accuracy": 0.97}),
}  # fmt: skip
AT_TOLERANCE: Settings = {
    "moved-60": ("60 images a side, new ones farther in 60 % of pairs", {"photos": 60, "shift": 3.0, "balanced": True}),
    "moved-120": ("120 images a side, new ones farther in 60 % of pairs",
                  {"photos": 120, "shift": 3.0, "balanced": True}),
    "moved-random": ("120 images a side of random classes, new ones farther in 60 % of pairs",
                     {"photos": 120, "shift": 2.7}),
    "turned": ("120 images a side, answers turn in 12 % instead of 2 %", {"photos": 120, "turned": 0.12}),
    "confidence": ("120 images a side, confidence 80 % instead of 90 %", {"photos": 120, "confidence": 0.8}),
}  # fmt: skip

# --- accuracy -------------------------------------------------------------------------------------------------------
CLASS_COUNTS: Settings = {
    "12x10": ("12 classes of 10 images, accuracies 50 to 95 %",
              {"truth": np.linspace(0.5, 0.95, 12).tolist(), "n": [10] * 12}),
    "12x10-high": ("12 classes of 10 images, accuracies 90 to 100 %",
                   {"truth": np.linspace(0.9, 1.0, 12).tolist(), "n": [10] * 12}),
    "12x25-low": ("12 classes of 25 images, accuracies 0 to 30 %",
                  {"truth": np.linspace(0.0, 0.3, 12).tolist(), "n": [25] * 12}),
    "uneven": ("9 classes of 3 to 144 images, accuracies 60 to 100 %",
               {"truth": np.linspace(0.6, 1.0, 9).tolist(), "n": [3, 5, 8, 13, 21, 34, 55, 89, 144]}),
    "100x5": ("100 classes of 5 images, accuracies 50 to 100 %",
              {"truth": np.linspace(0.5, 1.0, 100).tolist(), "n": [5] * 100}),
    "one-of-three": ("one class of 3 images next to six of 20, accuracies 60 to 90 %",
                     {"truth": np.linspace(0.6, 0.9, 7).tolist(), "n": THREE}),
}  # fmt: skip
SHARES: Settings = {
    "share-120": ("120 images, accuracy 90 %", {"truth": 0.9, "n": 120}),
    "share-40": ("40 images, accuracy 50 %", {"truth": 0.5, "n": 40}),
    "share-75": ("75 images, accuracy 30 %", {"truth": 0.3, "n": 75}),
}
FEW_ERRORS: Settings = {
    "few-errors-12x10": ("12 classes of 10 images, accuracy 99 %", {"truth": [0.99] * 12, "n": [10] * 12}),
    "few-errors-3x12": ("3 classes of 12 images, accuracy 97 %", {"truth": [0.97] * 3, "n": [12] * 3}),
}
DEPENDENT: Settings = {
    "renderings": ("120 images, three renderings each", {"drops": [0.2], "renderings": 3}),
    "donors-40": ("120 images on 40 shared donors", {"drops": [0.2], "donors": 40}),
    "donors-240": ("120 images on 240 donors", {"drops": [0.2], "donors": 240}),
    "renderings-24": ("24 images of 6 classes, three renderings each",
                      {"drops": [0.2], "photos": 24, "classes": 6, "renderings": 3}),
    "missing": ("a third of the images without a mask, most of them in the last classes",
                {"drops": [0.2], "missing": 0.33, "slope": 0.5}),
}  # fmt: skip
DONORS_12: Settings = {
    "donors-12": ("120 images on 12 shared donors", {"drops": [0.2], "donors": 12}),
    "donors-12x3": (
        "120 images on 12 shared donors, three renderings",
        {"drops": [0.2], "donors": 12, "renderings": 3},
    ),
    "donors-12-uneven": (
        "120 images on 12 shared donors of uneven use",
        {"drops": [0.2], "donors": 12, "uneven": True},
    ),
}
COPIES: Settings = {
    "copies": ("120 images, a fourth of them near-copies of others", {"drops": [0.2], "copies": 0.25}),
}
# --- drops ----------------------------------------------------------------------------------------------------------
DROPS: Settings = {
    "balanced": ("12 classes of 10 images, a drop of 25 points", {"drops": [0.25]}),
    "uneven-macro": ("8 classes of 6 to 60 images, drops of 13 to 37 points by class",
                     {"drops": [0.25], "sizes": UNEVEN, "slope": 0.5}),
    "uneven-micro": ("the same, every image alike",
                     {"drops": [0.25], "sizes": UNEVEN, "slope": 0.5, "average": "micro"}),
    "one-of-three": ("one class of 3 images next to six of 20", {"drops": [0.25], "sizes": THREE}),
    "missing": ("a third of the images without a mask, most of them in the last classes",
                {"drops": [0.25], "missing": 0.33, "slope": 0.5}),
    "renderings": ("three renderings of each image", {"drops": [0.25], "renderings": 3}),
    "none": ("no drop at all, answers that change often", {"drops": [0.0]}),
    "donors-40": ("40 shared donors", {"drops": [0.25], "donors": 40}),
    "donors-240": ("240 donors", {"drops": [0.25], "donors": 240}),
}  # fmt: skip
DROPS_12: Settings = {
    "donors-12": ("12 shared donors", {"drops": [0.25], "donors": 12, "blind": True}),
    "donors-12x3": ("12 shared donors, three renderings",
                    {"drops": [0.25], "donors": 12, "renderings": 3, "blind": True}),
    "donors-12-48": ("48 images on 12 shared donors", {"drops": [0.25], "photos": 48, "donors": 12}),
    "donors-12-uneven": ("12 shared donors of uneven use", {"drops": [0.25], "donors": 12, "uneven": True}),
    "donors-5": ("5 shared donors", {"drops": [0.25], "donors": 5}),
}  # fmt: skip
DROPS_CAUTIOUS: Settings = {
    "few-24": ("24 images of 12 classes", {"drops": [0.25], "photos": 24}),
    "few-24-small": ("24 images of 12 classes, a drop of 5 points", {"drops": [0.05], "photos": 24}),
    "tiny": ("120 images, a drop of one point, answers that hardly change",
             {"drops": [0.01], "alike": 0.97, "base": 0.95}),
    "renderings-48": ("48 images of 6 classes, three renderings",
                      {"drops": [0.25], "photos": 48, "classes": 6, "renderings": 3}),
    "few-24x3": ("24 images of 12 classes, three renderings", {"drops": [0.25], "photos": 24, "renderings": 3}),
    "tiny-uneven": ("8 classes of 6 to 60 images, a drop of one point, answers that hardly change",
                    {"drops": [0.01], "alike": 0.97, "base": 0.95, "sizes": UNEVEN}),
    "tiny-one-of-three": ("one class of 3 images next to six of 20, a drop of one point, answers that hardly change",
                          {"drops": [0.01], "alike": 0.97, "base": 0.95, "sizes": THREE}),
    "everything": ("everything is lost: 90 % before, nothing after", {"drops": [0.9], "base": 0.9}),
}  # fmt: skip
DROPS_COPIES: Settings = {
    "copies": ("a fourth of the images are near-copies of others", {"drops": [0.25], "copies": 0.25}),
}
# --- score ----------------------------------------------------------------------------------------------------------
SCORES: Settings = {
    "120": ("120 images, drops of 2 to 50 points under 6 conditions", {"drops": LARGE, "photos": 120}),
    "48": ("the same with 48 images", {"drops": LARGE, "photos": 48}),
    "240": ("the same with 240 images", {"drops": LARGE, "photos": 240}),
    "24": ("the same with 24 images", {"drops": LARGE, "photos": 24}),
    "renderings": ("120 images, three renderings", {"drops": LARGE, "renderings": 3}),
    "renderings-24": ("24 images, three renderings", {"drops": LARGE, "photos": 24, "renderings": 3}),
    "donors-240": ("120 images, 240 donors of three pasted conditions", {"drops": LARGE, "donors": 240, "pasted": 3}),
    "donors-40": ("120 images, 40 donors shared by three pasted conditions",
                  {"drops": LARGE, "donors": 40, "pasted": 3}),
    "donors-40-uneven": ("the same, donors of uneven use",
                         {"drops": LARGE, "donors": 40, "pasted": 3, "uneven": True}),
    "donors-12": ("120 images, 12 donors shared by three pasted conditions",
                  {"drops": LARGE, "donors": 12, "pasted": 3}),
    "donors-12-uneven": ("120 images, 12 donors of uneven use, shared by three pasted conditions",
                         {"drops": LARGE, "donors": 12, "pasted": 3, "uneven": True}),
    "donors-12x3": ("120 images, 12 donors shared by three pasted conditions, three renderings",
                    {"drops": LARGE, "donors": 12, "pasted": 3, "renderings": 3}),
    "conditions-12": ("36 images, 12 conditions", {"drops": TWELVE, "photos": 36}),
    "one-condition-24": ("24 images, one condition with a drop of 30 points", {"drops": [0.3], "photos": 24}),
    "one-condition": ("120 images, one condition with a drop of 30 points", {"drops": [0.3]}),
    "uneven": ("8 classes of 6 to 60 images", {"drops": LARGE, "sizes": UNEVEN}),
    "one-of-three": ("one class of 3 images next to six of 20", {"drops": LARGE, "sizes": THREE}),
    "everything": ("everything is lost under three of six conditions",
                   {"drops": [0.85, 0.85, 0.85, 0.1, 0.05, 0.02]}),
}  # fmt: skip
SCORES_NEAR_NOTHING: Settings = {
    "tiny-40": ("40 images, drops of one point under 5 conditions", {"drops": [0.01] * 5, "photos": 40, "alike": 0.95}),
    "tiny-40-high": ("the same, accuracy 99 %",
                     {"drops": [0.01] * 5, "photos": 40, "alike": 0.95, "base": 0.99}),
    "tiny-120": ("120 images, drops of one point under 5 conditions", {"drops": [0.01] * 5, "alike": 0.95}),
    "small-120": ("120 images, drops of two points under 6 conditions", {"drops": [0.02] * 6}),
    "tiny-uneven": ("8 classes of 6 to 60 images, drops of one point under 5 conditions",
                    {"drops": [0.01] * 5, "sizes": UNEVEN, "alike": 0.95}),
    "tiny-one-of-three": ("one class of 3 images next to six of 20, drops of one point under 5 conditions",
                          {"drops": [0.01] * 5, "sizes": THREE, "alike": 0.95}),
    "none-40": ("40 images, no drop", {"drops": [0.0] * 5, "photos": 40, "alike": 0.9}),
    "one-photo": ("one image, a drop of 20 points under 5 conditions",
                  {"drops": [0.2] * 5, "photos": 1, "classes": 1, "alike": 0.9}),
    "three-photos": ("three images, drops of 20 points under 5 conditions",
                     {"drops": [0.2] * 5, "photos": 3, "classes": 1, "alike": 0.9}),
    "three-unchanged": ("three images, drops of two points: mostly no answer changes",
                        {"drops": [0.02] * 5, "photos": 3, "classes": 1, "alike": 0.9}),
}  # fmt: skip
SCORES_MISSING: Settings = {
    "missing": ("a third of the images without a mask", {"drops": LARGE, "missing": 0.33}),
}
SCORES_COPIES: Settings = {
    "copies": ("120 images, a fourth of them near-copies of others", {"drops": LARGE, "copies": 0.25}),
}
# --- gate -----------------------------------------------------------------------------------------------------------
GATES: Settings = {
    "donors-0": ("120 images without donors", {"photos": 120}),
    "donors-240": ("120 images, 240 donors", {"photos": 120, "donors": 240}),
    "donors-40": ("120 images, 40 shared donors", {"photos": 120, "donors": 40}),
    "donors-12": ("120 images, 12 shared donors", {"photos": 120, "donors": 12}),
    "donors-12x3": ("120 images, 12 shared donors, three renderings",
                    {"photos": 120, "donors": 12, "renderings": 3}),
    "donors-12-uneven": ("120 images, 12 shared donors of uneven use",
                         {"photos": 120, "donors": 12, "uneven": True}),
    "donors-5": ("120 images, 5 shared donors", {"photos": 120, "donors": 5}),
    "donors-5x3-uneven": ("120 images, 5 shared donors of uneven use, three renderings",
                          {"photos": 120, "donors": 5, "renderings": 3, "uneven": True}),
    "donors-40-uneven": ("240 images, 40 shared donors of uneven use, three renderings",
                         {"photos": 240, "donors": 40, "renderings": 3, "uneven": True}),
    "alike-donors": ("120 images, 12 shared donors, two models whose errors are alike (0.8)",
                     {"photos": 120, "donors": 12, "alike": 0.8}),
    "alike-donors-uneven": ("the same, donors of uneven use, three renderings",
                            {"photos": 120, "donors": 12, "alike": 0.8, "uneven": True, "renderings": 3}),
    "alike-donors-5": ("120 images, 5 shared donors, two models whose errors are alike (0.8)",
                       {"photos": 120, "donors": 5, "alike": 0.8}),
    "donors-12x3-48": ("48 images, 12 shared donors, three renderings",
                       {"photos": 48, "donors": 12, "renderings": 3}),
    "donors-20x3-240": ("240 images, 20 shared donors, three renderings",
                        {"photos": 240, "donors": 20, "renderings": 3}),
    "renderings": ("120 images, three renderings", {"photos": 120, "renderings": 3}),
    "renderings-24": ("24 images, three renderings", {"photos": 24, "renderings": 3}),
    "alike": ("120 images, two models whose errors are alike (correlation 0.95)", {"photos": 120, "alike": 0.95}),
    "two-points": ("240 images, margin 2 points", {"photos": 240, "margin": 0.02}),
}  # fmt: skip
GATES_WHOLE: Settings = {
    "whole-donors-12x3": ("the whole gate, 120 images, 12 shared donors, three renderings",
                          {"photos": 120, "donors": 12, "renderings": 3}),
}  # fmt: skip
BOUNDS: Settings = {
    f"bounds-{name}-{100 * loss:.0f}": (f"{words}, {100 * loss:.0f} points lost", world | {"loss": loss})
    for name, (words, world) in {
        "36": ("36 images", {"photos": 36}),
        "120": ("120 images", {"photos": 120}),
        "120-alike": ("120 images, two models whose errors are alike (0.95)", {"photos": 120, "alike": 0.95}),
        "renderings": ("60 images, three renderings", {"photos": 60, "renderings": 3}),
        "donors-12": ("120 images, 12 shared donors", {"photos": 120, "donors": 12}),
        "donors-40": ("120 images, 40 shared donors", {"photos": 120, "donors": 40}),
        "donors-5": ("120 images, 5 shared donors", {"photos": 120, "donors": 5}),
        "donors-12x3": ("48 images, 12 shared donors of uneven use, three renderings",
                        {"photos": 48, "donors": 12, "renderings": 3, "uneven": True}),
    }.items()
    for loss in (0.05, 0.75)
}  # fmt: skip
BOUNDS_MARGINS: Settings = {
    f"margins-{name}": (f"{words}, at margins of 1, 2, 5, 10 and 30 points", world)
    for name, (words, world) in {
        "36": ("36 images, 5 points lost", {"photos": 36, "loss": 0.05}),
        "36-most": ("36 images, 75 points lost", {"photos": 36, "loss": 0.75}),
        "renderings": ("60 images, three renderings, 5 points lost", {"photos": 60, "renderings": 3, "loss": 0.05}),
        "donors-12": ("120 images, 12 shared donors, 5 points lost", {"photos": 120, "donors": 12, "loss": 0.05}),
    }.items()
}  # fmt: skip
BOUNDS_OBJECTS: Settings = {
    "objects-60": ("60 images, 5 points of recall lost, 0.1 false alarms per image added",
                   {"photos": 60, "before": 0.8, "loss": 0.05, "alarms": 0.5, "more": 0.1}),
    "objects-20": ("20 images, 85 points of recall lost, 2 false alarms per image added",
                   {"photos": 20, "before": 0.9, "loss": 0.85, "alarms": 0.3, "more": 2.0}),
    "objects-12": ("120 images, 12 shared donors, 5 points of recall lost, 0.1 false alarms per image added",
                   {"photos": 120, "before": 0.8, "loss": 0.05, "alarms": 0.5, "more": 0.1, "donors": 12}),
    "objects-40": ("120 images, 40 shared donors, 2 points of recall lost, 0.05 false alarms per image added",
                   {"photos": 120, "before": 0.95, "loss": 0.02, "alarms": 0.1, "more": 0.05, "donors": 40}),
    "objects-all": ("30 images, all objects lost, as many false alarms",
                    {"photos": 30, "before": 1.0, "loss": 1.0, "alarms": 0.2, "more": 0.0}),
}  # fmt: skip
GATES_SINGLE: Settings = {
    f"exact-{n}-{100 * margin:.0f}-{1000 * more:.0f}": (
        f"{n} images, margin {100 * margin:.0f} points, {100 * (margin + more):.1f} % of images change",
        {"n": n, "margin": margin, "changed": margin + more},
    )
    for n, margin in ((24, 0.05), (60, 0.05), (60, 0.02), (120, 0.02))
    for more in (0.0, 0.01, 0.06)
}
GATES_UNION: Settings = {
    "six-conditions": ("120 images, 6 conditions, all at the margin", {"photos": 120, "conditions": 6, "margin": 0.05}),
}
GATES_MORE: Settings = {
    "more-pass": ("200 images, 4 better and 3 worse, margin 2 points",
                  {"n": 200, "better": 4, "worse": 3, "margin": 0.02}),
    "more-fail": ("200 images, 4 better and 14 worse, margin 2 points",
                  {"n": 200, "better": 4, "worse": 14, "margin": 0.02}),
}  # fmt: skip
# --- the rest -------------------------------------------------------------------------------------------------------
SIGN_TESTS: Settings = {
    "mcnemar-600": ("2,000 images of which 30 % change", {"photos": 2000, "changed": 0.3}),
    "mcnemar-300": ("1,000 images of which 30 % change", {"photos": 1000, "changed": 0.3}),
}
PAIRED: Settings = {
    f"{average}-{photos}": (f"{photos} images of 6 classes, {average}", {"photos": photos, "average": average})
    for average in ("macro", "micro")
    for photos in (60, 300)
} | {
    "alike": ("300 images, two models whose errors are alike (correlation 0.9)",
              {"photos": 300, "average": "macro", "alike": 0.9}),
}  # fmt: skip
SIZES: Settings = {
    "uneven-6": ("classes of 60, 30, 15, 8, 4 and 3 images", {"sizes": (60, 30, 15, 8, 4, 3)}),
    "uneven-2": ("classes of 100 and 10 images", {"sizes": (100, 10)}),
    "uneven-9": ("a class of 60 images, eight of 3", {"sizes": (60, *[3] * 8)}),
}
UNEVEN: Settings = {name: (words, {**own, "average": "macro"}) for name, (words, own) in SIZES.items()}
UNEVEN_LENT: Settings = {
    f"pairs-{name}-donors-12{'-uneven' if uneven else ''}": (
        f"{words}, 12 shared donors{' of uneven use' if uneven else ''}",
        {**own, "donors": 12} | ({"uneven": True} if uneven else {}),
    )
    for name, (words, own) in SIZES.items()
    for uneven in (False, True)
    if name != "uneven-2"
}
LENT: Settings = {
    f"{count}{'-uneven' if uneven else ''}": (
        f"120 images on {count} shared donors{' of uneven use' if uneven else ''}",
        {"photos": 120, "donors": count} | ({"uneven": True} if uneven else {}),
    )
    for count, uneven in ((12, False), (12, True), (40, False))
}


def _lent(words: str, kind: str = "", **options: Any) -> Settings:
    """Return settings of a trial over images on shared donors."""
    return {f"{kind}donors-{name}": (f"{words}, {data}", own | options) for name, (data, own) in LENT.items()}


RANKS: Settings = {
    "eight": ("eight equal models, 150 images", {"models": 8, "photos": 150}),
    "three": ("three equal models, 60 images", {"models": 3, "photos": 60}),
} | _lent("three equal models", models=3)
ORDERS: Settings = {
    "order-20": ("two models that are nearly alike, 20 images",
                 {"first": (1.0, 0.9), "second": (0.5, 0.3), "photos": 20}),
    "order-60": ("two models whose order changes, 60 images",
                 {"first": (1.0, 0.7), "second": (0.3, 0.5), "photos": 60}),
    "order-many": ("four models, 60 images",
                   {"first": (1.4, 1.2, 0.8, 0.6), "second": (0.6, 0.8, 0.3, 0.0), "photos": 60}),
    "order-donors": ("three models, 120 images on 12 shared donors of uneven use",
                     {"first": (1.2, 0.9, 0.7), "second": (0.5, 0.6, 0.2), "photos": 120, "donors": 12,
                      "uneven": True}),
}  # fmt: skip
INTERACTION: Settings = {
    "additive-60": ("two models, three conditions, 60 images", {"logits": "additive", "photos": 60}),
    "additive-250": ("two models, three conditions, 250 images", {"logits": "additive", "photos": 250}),
    "many-120": ("three models, six conditions, 120 images", {"logits": "many", "photos": 120}),
    "separated": ("three models whose originals are all right, 100 images", {"logits": "separated", "photos": 100}),
    "few": ("four models, five conditions, 50 images", {"logits": "few", "photos": 50}),
}
AUROC: Settings = {
    "60": ("true value 0.6, 100 and 100 images", {"truth": 0.6, "n": 100, "others": 100}),
    "80": ("true value 0.8, 60 and 120 images", {"truth": 0.8, "n": 60, "others": 120}),
    "90": ("true value 0.9, 100 and 100 images", {"truth": 0.9, "n": 100, "others": 100}),
}
AUROC_HIGH: Settings = {"98": ("true value 0.98, 100 and 100 images", {"truth": 0.98, "n": 100, "others": 100})}
WALKS: Settings = {
    "60": ("60 images, SA 80 %, VR 50 %", {"photos": 60, "standard": 0.8, "validated": 0.5, "kept": 0.6}),
    "150": ("150 images, SA 93 %, VR 80 %", {"photos": 150, "standard": 0.93, "validated": 0.8, "kept": 0.25}),
    "1350": ("1,350 images, SA 92 %, VR 82 %", {"photos": 1350, "standard": 0.92, "validated": 0.82, "kept": 0.28}),
}
WALKS_FEW: Settings = {
    "few": ("15 images of which 30 % are right", {"photos": 15, "standard": 0.3, "validated": 0.8, "kept": 0.5}),
}
PEOPLE: Settings = {
    "140-of-300": ("300 images, 140 judged", {"images": 300, "easy": 100, "hard": 40}),
    "40-of-120": ("120 images, 40 judged", {"images": 120, "easy": 20, "hard": 20}),
}
POWER: Settings = {
    "2-of-5": ("2 points, 5 % of images change, power 0.8", {"difference": 0.02, "changed": 0.05, "wanted": 0.8}),
    "10-of-30": ("10 points, 30 % of images change, power 0.8", {"difference": 0.1, "changed": 0.3, "wanted": 0.8}),
}
SETTLED: Settings = {
    f"settled-{100 * value:g}": (f"an estimate of {100 * value:g} points, margin 5", {"value": value})
    for value in (0.08, 0.02, -0.1)
}

SEEN: dict[tuple[str, str], tuple[str, tuple[int, int, int, int]]] = {
    ("regression", "t"): ("t (with estimate and standard error)", (50, 70, 82, 90)),
    ("regression", "p"): ("p (with t)", (33, 48, 62, 74)),
    ("regression", "low"): ("lower end of an interval", (0, 8, 84, 90)),
    ("regression", "high"): ("upper end of an interval", (0, 8, 84, 90)),
    ("regression", "estimate"): ("estimate", (10, 58, 92, 96)),
    ("regression", "standard_error"): ("standard error", (25, 82, 94, 94)),
    ("fmr", "sa"): ("accuracy of 150 images", (95, 98, 98, 98)),
    ("fmr", "vr"): ("validated share of 150 images", (95, 98, 98, 98)),
    ("fmr", "pa"): ("PA of 150 images", (18, 88, 98, 98)),
    ("fmr", "fmr"): ("FMR of 150 images", (15, 86, 98, 98)),
    ("twice", "twice"): ("a figure that two tables print", (0, 95, 98, 98)),
    ("claims", "claim"): ("a claim: a cell, a mean or a difference", (1, 70, 95, 95)),
}
"""Table and column → its name, and the least percentage of slips of 1, 2, 5 and 20 units that is seen."""

UNITS = (1, 2, 5, 20)


def _slips() -> Iterator[Promise]:
    for (table, column), (words, least) in SEEN.items():
        shares = ", ".join(map(str, least))
        statement = f"Slips of 1, 2, 5 and 20 units in {words} are found in at least {shares} %"
        for units, share in zip(UNITS, least, strict=True):
            trial = {"twice": auditing.printed_twice, "claims": auditing.claimed}.get(table, auditing.slips)
            options = {"table": table, "column": column} if trial is auditing.slips else {}
            draws = 400 if units < 5 else 200  # from 5 units on nearly all are seen
            simulation = Simulation(f"audit.slip-{column}-{units}", trial, draws, options | {"units": units})
            setting = f"{words}: a slip of {units} unit{'s' if units > 1 else ''} of the last digit"
            yield Promise("audit", statement, setting, simulation, "seen", share / 100, 1.0)
    text = "A flipped sign of an estimate or of its t is seen in at least 98 %"
    signs: Settings = {f"sign-{name}": (f"the sign of {name}", {"column": name}) for name in ("estimate", "t")}
    yield from _rows("audit", text, "seen", 0.98, 1.0, auditing.flipped_signs, 250, signs)
    text = "a star too many or too few in at least 58 %"
    stars: Settings = {"stars": ("one star too many or too few", {})}
    yield from _rows("audit", text, "seen", 0.58, 1.0, auditing.wrong_stars, 600, stars)
    text = "Claims that follow from their table are called wrong in at most 0.1 %"
    right: Settings = {"slip-claim-20": ("claims next to one that has a slip of 20 units", {"units": 20})}
    yield from _rows("audit", text, "alarms", 0.0, 0.001, auditing.claimed, 200, right)


CLEAN: Settings = {"clean": ("correct tables of 17 kinds, in mixed styles of print", {})}

RECALLS: Settings = {
    "60": ("60 images of 1 to 5 objects, recall 90 → 70 %", {"photos": 60, "before": 0.9, "after": 0.7}),
    "30": ("30 images of 1 to 5 objects, recall 95 → 90 %", {"photos": 30, "before": 0.95, "after": 0.9}),
    "donors-40": ("120 images of 1 to 5 objects on 40 shared donors, recall 90 → 85 %",
                  {"photos": 120, "before": 0.9, "after": 0.85, "donors": 40}),
    "donors-12": ("120 images of 1 to 5 objects on 12 shared donors, recall 80 → 50 %",
                  {"photos": 120, "before": 0.8, "after": 0.5, "donors": 12}),
}  # fmt: skip
SHARED = {
    "lent": ("on each other's backgrounds", objects.LENT_OUT),
    "12": ("on 12 shared donors", 12),
    "6": ("on 6 shared donors", 6),
}
"""Name → words and ``donors`` of conditions whose backgrounds images share."""
PRECISIONS: Settings = {
    "ap-30": ("30 images of 1 to 4 objects, recall 80 %", {"photos": 30, "recall": 0.8, "alarms": 0.5}),
    "ap-60": ("60 images of 1 to 4 objects, recall 70 %, twice the false alarms",
              {"photos": 60, "recall": 0.7, "alarms": 1.0}),
    "ap-150": ("150 images of 1 to 4 objects, recall 85 %", {"photos": 150, "recall": 0.85, "alarms": 0.5}),
    **{f"ap-{name}": (f"60 images of 1 to 4 objects, {words}, recall 70 %, twice the false alarms",
                      {"photos": 60, "recall": 0.7, "alarms": 1.0, "donors": donors})
       for name, (words, donors) in SHARED.items()},
}  # fmt: skip
COUNTS: Settings = {
    "images-20": ("20 images, 0.2 per image", {"images": 20, "mean": 0.2}),
    "images-30": ("30 images, 2 per image, backgrounds unlike", {"images": 30, "mean": 2.0, "alike": 0.5}),
    "images-60": ("60 images, 6 per image", {"images": 60, "mean": 6.0}),
    **{f"images-{name}": (f"60 images {words}, 1 per image, backgrounds unlike",
                          {"images": 60, "mean": 1.0, "alike": 0.5, "donors": donors})
       for name, (words, donors) in SHARED.items()},
}  # fmt: skip

WORST_OF: Settings = {
    "alike": ("120 images, 9 backgrounds of like difficulty", {"backgrounds": 9}),
    "unlike": ("120 images, 9 backgrounds of unlike difficulty", {"backgrounds": 9, "unlike": 0.04}),
    "unlike-20": ("240 images of 8 classes, 20 backgrounds of unlike difficulty",
                  {"backgrounds": 20, "unlike": 0.04, "photos": 240, "classes": 8}),
    "loss": ("120 images, 9 backgrounds of unlike difficulty, 5 points lost on other classes'",
             {"backgrounds": 9, "unlike": 0.04, "loss": 0.05}),
}  # fmt: skip
RARE: Settings = {
    "rare": ("120 images, 9 backgrounds, one in twenty fools half of the objects", {"backgrounds": 9, "fooling": 0.05}),
}
EMBEDDINGS: Settings = {
    f"{name}-{width}": (
        f"{objects} objects on {backgrounds} backgrounds, shares {shares}, {width} dimensions",
        {"objects": objects, "backgrounds": backgrounds, "parts": parts, "width": width},
    )
    for name, objects, backgrounds, shares, parts in (
        ("even", 30, 12, "50, 30 and 20 %", (0.5, 0.3, 0.2)),
        ("ground", 30, 12, "10, 80 and 10 %", (0.1, 0.8, 0.1)),
        ("weak", 100, 12, "60, 2 and 38 %", (0.6, 0.02, 0.38)),
        ("few", 12, 6, "50, 30 and 20 %", (0.5, 0.3, 0.2)),
    )
    for width in (3, 64)
}
GROUNDS: Settings = {
    f"{images}-{donors}-{100 * share:.0f}": (
        f"{images} images on {donors} unlike donors, of which {100 * share:.0f} % have each of 8 attributes; one costs "
        f"{100 * drop:.0f} points",
        {"images": images, "donors": donors, "share": share, "drop": drop},
    )
    for images, donors, share, drop in (
        (120, 120, 0.3, 0.0), (240, 40, 0.3, 0.3), (240, 240, 0.15, 0.2), (600, 60, 0.15, 0.2)
    )
}  # fmt: skip
NO_BACKGROUND: Settings = {
    f"none-{width}": (
        f"30 objects on 12 backgrounds that move nothing, {width} dimensions",
        {"objects": 30, "backgrounds": 12, "parts": (0.7, 0.0, 0.3), "width": width},
    )
    for width in (3, 64)
}


def _register() -> Iterator[Promise]:
    text = "Intervals of the difference that an attribute makes cover in 92–98 % of datasets"
    yield from _rows("concepts", text, "covers", 0.92, 0.98, concepts.concept_effects, 400, GROUNDS)
    text = "An attribute that costs nothing stands out in at most 6 %"
    yield from _rows("concepts", text, "alarms", 0.0, 0.06, concepts.concept_effects, 400, GROUNDS)
    text = "Intervals of shares of the variance cover in 93–99 %"
    yield from _rows("embedding", text, "covers", 0.93, 0.99, encoders.embedding_shares, 2_000, EMBEDDINGS)
    text = "A background that moves nothing is claimed to in at most 4 %"
    yield from _rows("embedding", text, "claims", 0.0, 0.04, encoders.embedding_shares, 2_000, NO_BACKGROUND)

    text = "Intervals of macro and micro accuracy cover in 93–97 % of datasets"
    yield from _rows("accuracy", text, "covers", 0.93, 0.97, answers.class_counts, 20_000, CLASS_COUNTS)
    yield from _rows("accuracy", text, "covers", 0.93, 0.97, answers.share, 20_000, SHARES)
    yield from _rows("accuracy", text, "covers", 0.93, 0.97, answers.accuracy, 3_000, DEPENDENT)
    text = "With 12 shared donors they cover in 93–99 %"
    yield from _rows("accuracy", text, "covers", 0.93, 0.99, answers.accuracy, 3_000, DONORS_12)
    text = "If a fourth of the images are near-copies of others they cover in 88–96 %"
    yield from _rows("accuracy", text, "covers", 0.88, 0.96, answers.accuracy, 3_000, COPIES)
    text = "With fewer than about two expected errors the interval is conservative (95–99 %)"
    yield from _rows("accuracy", text, "covers", 0.95, 0.99, answers.class_counts, 20_000, FEW_ERRORS)
    text = "The worst class's interval covers in at least 95 %"
    every = CLASS_COUNTS | FEW_ERRORS
    yield from _rows("accuracy", text, "worst", 0.95, 1.0, answers.class_counts, 20_000, every)

    text = "Intervals of drops cover in 93–97 % of datasets"
    yield from _rows("drops", text, "covers", 0.93, 0.97, answers.drop, 2_500, DROPS)
    text = "With 12 shared donors they cover in 92–97 % of datasets"
    yield from _rows("drops", text, "covers", 0.92, 0.97, answers.drop, 2_500, DROPS_12)
    text = "ignoring the donors would cover in less than 90 %"
    blind = {name: DROPS_12[name] for name in ("donors-12", "donors-12x3")}
    yield from _rows("drops", text, "blind_covers", 0.0, 0.9, answers.drop, 2_500, blind)
    text = "with few changed answers, tiny classes or everything lost, intervals of drops are conservative (96–100 %)"
    yield from _rows("drops", text, "covers", 0.96, 1.0, answers.drop, 2_500, DROPS_CAUTIOUS)
    text = "If a fourth of the images are near-copies of others, intervals of drops cover in 90–96 %"
    yield from _rows("drops", text, "covers", 0.90, 0.96, answers.drop, 2_500, DROPS_COPIES)
    text = "Exact McNemar rejects a true null in 3–7 % of samples when hundreds of answers changed"
    yield from _rows("drops", text, "rejects", 0.03, 0.07, answers.sign_test, 20_000, SIGN_TESTS)
    text = "Nadeau and Bengio's interval covers in 93–97 %"
    folds: Settings = {"trainings": ("10 runs, a fifth of the images tested in each", {"runs": 10, "share": 0.2})}
    yield from _rows("drops", text, "covers", 0.93, 0.97, answers.trainings, 20_000, folds)

    text = "*yes* and *no* are each given in at most 4 % of datasets"
    margin: Settings = {"margin": ("240 images, 60 donors of each kind of background", {"effect": 0.05})}
    yield from _rows("holds", text, "there", 0.0, 0.04, answers.background_effect, 4_000, margin)
    yield from _rows("holds", text, "absent", 0.0, 0.04, answers.background_effect, 4_000, margin)
    text = "The permutation test declares a model that predicts at random better than chance in 3–7 %"
    chance: Settings = {"permuted": ("150 images of 6 classes, answers unrelated to them", {})}
    yield from _rows("holds", text, "rejects", 0.03, 0.07, answers.permuted, 6_000, chance)

    text = "Its intervals cover in 93–100 %"
    yield from _rows("worst-background", text, "covers", 0.93, 1.0, answers.worst_background, 400, WORST_OF)
    text = "where the class of the background costs nothing, they are above 0 in at most 4 %"
    nothing = {name: data for name, data in (WORST_OF | RARE).items() if not data[1].get("loss")}
    yield from _rows("worst-background", text, "alarm", 0.0, 0.04, answers.worst_background, 400, nothing)
    text = "If one background in twenty fools half of the objects, they cover in only 70–90 %"
    yield from _rows("worst-background", text, "covers", 0.7, 0.9, answers.worst_background, 400, RARE)

    looks: Settings = {
        "margin": (
            "an effect of 5 points, 30 % of images change, 20 rounds of 24 images",
            {"effect": 0.05, "changed": 0.3},
        ),
        "few-change": ("the same, 8 % of images change", {"effect": 0.05, "changed": 0.08}),
        "large": ("an effect of 40 points, half of the images change", {"effect": 0.4, "changed": 0.5}),
    }
    text = (
        "Each effect's true value is in all of its intervals of all rounds together with a probability of at least 95 %"
    )
    yield from _rows("sequential", text, "covers", 0.95, 1.0, answers.rounds, 2_000, looks)
    text = "Each of the two answers is wrong with a probability of at most 2.5 % on each side"
    yield from _rows("sequential", text, "too_high", 0.0, 0.025, answers.rounds, 2_000, looks)
    yield from _rows("sequential", text, "too_low", 0.0, 0.025, answers.rounds, 2_000, looks)

    text = "the intervals of all rounds together still cover the truth with a probability of at least 95 %"
    lending: Settings = {
        f"ring-{ring}": (f"20 rounds of 24 images that lend in rings of {ring}", {"ring": ring}) for ring in (3, 4, 6)
    }
    yield from _rows("sequential", text, "covers", 0.95, 1.0, answers.rings, 1_000, lending)
    text = "a model that loses exactly the margin passes in at most 5 % of such series, and fails in at most 5 %"
    yield from _rows("sequential", text, "passed", 0.0, 0.05, answers.rings, 1_000, lending)
    yield from _rows("sequential", text, "failed", 0.0, 0.05, answers.rings, 1_000, lending)
    text = (
        "Passing a model that is worse than the margin under some condition happens in at most 5 % of all such series, "
        "and failing one that is not in at most 5 %"
    )
    batches: Settings = {
        f"gate-{share}": (
            f"{share} % of answers differ, 20 looks, 24 images more at each",
            {"changed": share / 100},
        )
        for share in (5, 30)
    }
    yield from _rows("sequential", text, "passed", 0.0, 0.05, answers.gate_looks, 1_000, batches)
    yield from _rows("sequential", text, "failed", 0.0, 0.05, answers.gate_looks, 1_000, batches)
    text = "Three margins from the margin, a check needs at most 25 % of the fixed design's images on average"
    far: Settings = {"three": ("an effect of 20 points, 30 % of images change", {"effect": 0.2, "changed": 0.3})}
    yield from _rows("sequential", text, "share", 0.0, 0.25, answers.early, 10_000, far)
    text = "two margins from it, at most 50 %"
    near: Settings = {
        "two": ("an effect of 15 points, 30 % of images change", {"effect": 0.15, "changed": 0.3}),
        "two-below": ("an effect of −5 points, 20 % of images change", {"effect": -0.05, "changed": 0.2}),
    }
    yield from _rows("sequential", text, "share", 0.0, 0.5, answers.early, 10_000, near)
    text = (
        "A check that stops early never needs more than 110 % of the fixed design's images, "
        "and at most 5 % of its answers are wrong"
    )
    anywhere: Settings = (
        far
        | near
        | {
            "one": ("an effect of 10 points, 30 % of images change", {"effect": 0.1, "changed": 0.3}),
            "none": ("no effect, 10 % of images change", {"effect": 0.0, "changed": 0.1}),
        }
    )
    yield from _rows("sequential", text, "beyond", 0.0, 0.0, answers.early, 10_000, anywhere)
    yield from _rows("sequential", text, "wrong", 0.0, 0.05, answers.early, 10_000, anywhere)

    text = "The interval covers the true score in 93–99 % of datasets"
    yield from _rows("robustness-score", text, "covers", 0.93, 0.99, answers.score, 1_200, SCORES)
    text = "A floor at the true score is passed in at most 5 %"
    yield from _rows("robustness-score", text, "floor_passed", 0.0, 0.05, answers.score, 1_200, SCORES)
    text = "If almost nothing is lost it covers in at least 95 %"
    yield from _rows("robustness-score", text, "covers", 0.95, 1.0, answers.score, 1_200, SCORES_NEAR_NOTHING)
    text = "0 % of the intervals have no width"
    yield from _rows("robustness-score", text, "no_width", 0.0, 0.0, answers.score, 1_200, SCORES_NEAR_NOTHING)
    text = "If a third of the images lack a mask it covers in 91–97 %"
    yield from _rows("robustness-score", text, "covers", 0.91, 0.97, answers.score, 1_200, SCORES_MISSING)
    text = "if a fourth of the images are near-copies of others it covers in 88–97 %"
    yield from _rows("robustness-score", text, "covers", 0.88, 0.97, answers.score, 1_200, SCORES_COPIES)

    text = "Intervals of the recall drop cover in 93–98 % of datasets"
    yield from _rows("objects", text, "covers", 0.93, 0.98, objects.recall_drop, 3_000, RECALLS)
    text = "Intervals of AP cover in 89–97 %"
    yield from _rows("objects", text, "covers", 0.89, 0.97, objects.precision_change, 1_000, PRECISIONS)
    text = "those of the AP change in 89–97 %"
    yield from _rows("objects", text, "change_covers", 0.89, 0.97, objects.precision_change, 1_000, PRECISIONS)
    text = "Intervals of counts per image cover in 92–98 %"
    yield from _rows("objects", text, "covers", 0.92, 0.98, objects.counted, 2_000, COUNTS)
    text = "those of the change of counts in 92–98 %"
    yield from _rows("objects", text, "change_covers", 0.92, 0.98, objects.counted, 2_000, COUNTS)

    text = "A model that is worse than the margin somewhere passes with at most 5 %"
    uneven = {"donors-40-uneven": GATES["donors-40-uneven"]}
    others = {name: setting for name, setting in GATES.items() if name not in uneven}
    yield from _rows("release-gate", text, "passes", 0.0, 0.05, models.gate_at_margin, 5_000, others)
    yield from _rows("release-gate", text, "passes", 0.0, 0.05, models.whole_gate, 600, GATES_WHOLE)
    yield from _rows("release-gate", text, "passes", 0.0, 0.05, models.gate_single_answers, 20_000, GATES_SINGLE)
    yield from _rows("release-gate", text, "passes", 0.0, 0.05, models.gate_conditions, 300, GATES_UNION)
    text = "with many donors of which a few lend most backgrounds, it passes with at most 6 %"
    yield from _rows("release-gate", text, "passes", 0.0, 0.06, models.gate_at_margin, 5_000, uneven)
    text = "A model that is exactly at the margin fails with at most 5 %"
    yield from _rows("release-gate", text, "fails", 0.0, 0.05, models.gate_at_margin, 5_000, GATES)
    yield from _rows("release-gate", text, "fails", 0.0, 0.05, models.whole_gate, 600, GATES_WHOLE)
    yield from _rows("release-gate", text, "fails", 0.0, 0.05, models.gate_single_answers, 20_000, GATES_SINGLE)
    yield from _rows("release-gate", text, "fails", 0.0, 0.05, models.gate_conditions, 300, GATES_UNION)
    text = "Each lower bound holds in at least 95 % of datasets"
    yield from _rows("release-gate", text, "low_holds", 0.95, 1.0, models.gate_bounds, 2_000, BOUNDS)
    text = "each upper bound in at least 95 %"
    yield from _rows("release-gate", text, "high_holds", 0.95, 1.0, models.gate_bounds, 2_000, BOUNDS)
    text = "bounds are the same for every margin (in 100 %)"
    yield from _rows("release-gate", text, "same", 1.0, 1.0, models.bounds_of_margins, 500, BOUNDS_MARGINS)
    text = "Each lower bound holds in at least 95 % of datasets"
    yield from _rows("release-gate", text, "low_holds", 0.95, 1.0, models.bounds_of_margins, 500, BOUNDS_MARGINS)
    text = "each upper bound in at least 95 %"
    yield from _rows("release-gate", text, "high_holds", 0.95, 1.0, models.bounds_of_margins, 500, BOUNDS_MARGINS)
    text = "Of detectors, each bound of recall holds in at least 94 % of datasets"
    for end in ("recall low", "recall high"):
        yield from _rows("release-gate", text, end, 0.94, 1.0, objects.gate_bounds, 1_000, BOUNDS_OBJECTS)
    text = "each bound of false alarms in at least 90 %"
    for end in ("false alarms low", "false alarms high"):
        yield from _rows("release-gate", text, end, 0.90, 1.0, objects.gate_bounds, 1_000, BOUNDS_OBJECTS)
    text = "and all bounds of recall are changes that there can be (100 %)"
    yield from _rows("release-gate", text, "inside", 1.0, 1.0, objects.gate_bounds, 1_000, BOUNDS_OBJECTS)
    text = "with the fewest of them the gate decides in at most 8 of 10 cases"
    yield from _rows("release-gate", text, "least", 0.0, 0.8, models.gate_more_photos, 2_000, GATES_MORE)
    text = "with the most in at least 8 of 10"
    yield from _rows("release-gate", text, "most", 0.8, 1.0, models.gate_more_photos, 2_000, GATES_MORE)

    text = "Paired intervals cover in 93–97 %"
    yield from _rows("comparing-models", text, "covers", 0.93, 0.97, models.paired_models, 20_000, PAIRED)
    text = "equal models are declared different in 3–7 %"
    yield from _rows("comparing-models", text, "told_apart", 0.03, 0.07, models.paired_models, 20_000, PAIRED)
    lent = _lent("two equal models", "pairs-")
    text = "If images share donors, the intervals of two models cover in 91–98 %"
    yield from _rows("comparing-models", text, "covers", 0.91, 0.98, models.lent_pairs, 600, lent)
    yield from _rows("comparing-models", text, "covers_condition", 0.91, 0.98, models.lent_pairs, 600, lent)
    text = "equal models on shared donors are declared different in at most 9 %"
    yield from _rows("comparing-models", text, "told_apart", 0.0, 0.09, models.lent_pairs, 600, lent)
    yield from _rows("comparing-models", text, "told_apart_condition", 0.0, 0.09, models.lent_pairs, 600, lent)
    text = "In classes of unequal size equal models are declared different in at most 7 %"
    yield from _rows("comparing-models", text, "told_apart", 0.0, 0.07, models.paired_models, 20_000, UNEVEN)
    yield from _rows("comparing-models", text, "told_apart", 0.0, 0.07, models.lent_pairs, 600, UNEVEN_LENT)
    text = "their intervals cover in at least 93 %"
    yield from _rows("comparing-models", text, "covers", 0.93, 1.0, models.paired_models, 20_000, UNEVEN)
    yield from _rows("comparing-models", text, "covers", 0.93, 1.0, models.lent_pairs, 600, UNEVEN_LENT)
    yield from _rows("comparing-models", text, "covers_condition", 0.93, 1.0, models.lent_pairs, 600, UNEVEN_LENT)
    text = "Three entries of a board whose scores are equal are declared different in at most 7 %"
    boards: Settings = {
        f"board-donors-12{'-uneven' if uneven else ''}": (
            f"120 images, 12 donors{' of uneven use' if uneven else ''}, shared by three pasted conditions of six",
            {"drops": LARGE, "donors": 12, "pasted": 3} | ({"uneven": True} if uneven else {}),
        )
        for uneven in (False, True)
    }
    yield from _rows("comparing-models", text, "told_apart", 0.0, 0.07, answers.board_ranks, 400, boards)
    text = "Among several equal models, any two are declared different in 3–7 % of datasets"
    yield from _rows("comparing-models", text, "told_apart", 0.03, 0.07, models.equal_models, 1_000, RANKS)
    text = "All intervals of the ranks' accuracies cover together in 92–97 %"
    yield from _rows("comparing-models", text, "covers", 0.92, 0.97, models.equal_models, 1_000, RANKS)

    text = "Intervals of Kendall's τ cover in at least 93 %"
    yield from _rows("comparing-models", text, "covers", 0.93, 1.0, models.orders, 1_000, ORDERS)

    text = "Without an interaction the joint test rejects in 3–7 % at level .05"
    sized = {name: INTERACTION[name] for name in ("additive-60", "additive-250", "separated", "few")}
    yield from _rows("interaction", text, "rejects", 0.03, 0.07, models.no_interaction, 1_500, sized)
    text = "Intervals of differences of drops cover in 93–97 %"
    yield from _rows("interaction", text, "covers", 0.93, 0.97, models.no_interaction, 1_500, INTERACTION)
    additive = _lent("two models, three conditions", logits="additive")
    text = "If images share donors, the joint test rejects in 2–7 %"
    yield from _rows("interaction", text, "rejects", 0.02, 0.07, models.no_interaction, 600, additive)
    text = "intervals of differences on shared donors cover in 93–99 %"
    yield from _rows("interaction", text, "covers", 0.93, 0.99, models.no_interaction, 600, additive)
    text = "with few images per contrast it is conservative (2–5 %)"
    timid = {name: INTERACTION[name] for name in ("many-120",)}
    yield from _rows("interaction", text, "rejects", 0.02, 0.05, models.no_interaction, 1_500, timid)

    sets: Settings = {"drop": ("120 and 80 images in four classes", {"photos": 120, "others": 80})}
    text = "Intervals of drops cover in 93–99 % of pairs of datasets"
    yield from _rows("between-datasets", text, "covers", 0.93, 0.99, models.two_datasets, 500, sets)

    three: Settings = {"three": ("three equal models, 120 images, two conditions", {"models": 3, "photos": 120})}
    three |= _lent("three equal models, two conditions", models=3)
    text = "Equal models are declared different in at most 7 % of datasets"
    yield from _rows("choice", text, "told_apart", 0.0, 0.07, models.choices, 600, three)
    text = "intervals of the weighted accuracy cover in 93–98 %"
    yield from _rows("choice", text, "covers", 0.93, 0.98, models.choices, 600, three)

    text = "The interval of `auroc` covers in 93–97 % of datasets"
    yield from _rows("confidence", text, "covers", 0.93, 0.97, answers.auroc, 20_000, AUROC)
    text = "near an `auroc` of 1 it covers in 96–99 %"
    yield from _rows("confidence", text, "covers", 0.96, 0.99, answers.auroc, 20_000, AUROC_HIGH)

    text = "With 60 to 1,350 images intervals of FMR cover in 93–97 %"
    yield from _rows("fmr", text, "covers", 0.93, 0.97, walks.walks, 6_000, WALKS)
    text = "15 images of which 30 % are right are covered in 93–98 %"
    yield from _rows("fmr", text, "covers", 0.93, 0.98, walks.walks, 6_000, WALKS_FEW)
    text = "three equal models are declared different in at most 9 %"
    alike: Settings = {"ranking": ("three models, 60 images", {"photos": 60})}
    yield from _rows("fmr", text, "told_apart", 0.0, 0.09, walks.walked_models, 1_000, alike)

    text = "Intervals of the corrected FMR cover in 93–99 % of datasets"
    yield from _rows("fmr-people", text, "fmr", 0.93, 0.99, walks.judged_walks, 600, PEOPLE)
    text = "those of false accepts in 92–98 %"
    yield from _rows("fmr-people", text, "false_accepts", 0.92, 0.98, walks.judged_walks, 600, PEOPLE)

    text = "Simulated McNemar tests at the n asked for find the difference in 80 % of datasets, ± 1.5 points"
    yield from _rows("sample-size", text, "finds", 0.785, 0.815, models.power, 40_000, POWER)
    shared: Settings = {
        f"donors-{count}": (
            f"10 points, 30 % of images change, {count} donors",
            {"difference": 0.1, "changed": 0.3, "donors": count},
        )
        for count in (40, 120)
    }
    text = "With shared donors, drops are found at the n asked for in 76–84 %"
    yield from _rows("sample-size", text, "finds", 0.76, 0.84, models.power_with_donors, 3_000, shared)
    text = "the intervals at the n of `photos_to_settle` exclude the margin in 80 %, ± 1.5 points"
    yield from _rows("sample-size", text, "clear", 0.785, 0.815, models.settled, 40_000, SETTLED)

    text = "With independent cells, intervals of coefficients cover in 93–97 %"
    cells: Settings = {"coefficient": ("three models, three scenarios, four classes", {})}
    yield from _rows("regression", text, "covers", 0.93, 0.97, models.regression, 600, cells)
    classes: Settings = {
        "class": ("ten images of each of four equal classes, two models, three conditions", {}),
        "class-donors": ("the same, the pasted ones on 8 shared donors", {"donors": 8}),
    }
    text = "the clustered 95 % interval of a class covers 0 in 92–99 % of datasets"
    yield from _rows("regression", text, "covers", 0.92, 0.99, models.regression_of_photos, 500, classes)
    text = "the published one in fewer than 70 %"
    yield from _rows("regression", text, "published", 0.0, 0.70, models.regression_of_photos, 500, classes)
    text = "Intervals of Krippendorff's α cover in 92–98 % of 150 items"
    people: Settings = {"alpha": ("150 images, three people, α = 0.36", {"items": 150})}
    yield from _rows("agreement", text, "covers", 0.92, 0.98, walks.raters, 1_500, people)
    few: Settings = {
        f"alpha-{items}-{people}-{alpha}-{share}": (
            f"{items} images, {people} people, α = {alpha}, {100 * share:g} % in the commoner class",
            {"items": items, "people": people, "alpha": alpha, "share": share},
        )
        for items, people, alpha, share in (
            (10, 3, 0.6, 0.5), (20, 2, 0.8, 0.5), (30, 2, 0.95, 0.5), (30, 3, 0.4, 0.9), (30, 3, 0.8, 0.9),
            (50, 5, 0.6, 0.8),
        )
    }  # fmt: skip
    text = "in 90–100 % of 10 to 50 items"
    yield from _rows("agreement", text, "covers", 0.90, 1.0, walks.raters, 600, few)
    text = "the interval never has no width (in 100 %)"
    yield from _rows("agreement", text, "wide", 1.0, 1.0, walks.raters, 600, few)
    text = "in 75–90 % of 10 items with a class in one of ten"
    rare: Settings = {
        "alpha-rare": ("10 images, 2 people, α = 0.8, 90 % in the commoner class",
                       {"items": 10, "people": 2, "alpha": 0.8, "share": 0.9}),
    }  # fmt: skip
    yield from _rows("agreement", text, "covers", 0.75, 0.90, walks.raters, 600, rare)
    text = "Intervals of mean ratings cover in 93–99 % of datasets"
    crowds: Settings = {
        "12": ("30 images, 12 people", {"images": 30, "people": 12}),
        "5": ("60 images, 5 people", {"images": 60, "people": 5}),
    }
    yield from _rows("votes", text, "covers", 0.93, 0.99, walks.ratings, 400, crowds)
    two_way: Settings = {
        "60": ("60 images, two images each, two-way", {"photos": 60}),
        "200": ("200 images, two images each, two-way", {"photos": 200}),
    }
    text = "Intervals of the accuracies cover in 92–97 % of datasets"
    yield from _rows("questions", text, "covers", 0.92, 0.97, walks.asked, 600, two_way)
    text = "those of the position bias in 93–99 %"
    yield from _rows("questions", text, "bias", 0.93, 0.99, walks.asked, 600, two_way)
    outlines: Settings = {
        "15": ("6 classes of 15 images", {"classes": 6, "each": 15}),
        "5": ("6 classes of 5 images", {"classes": 6, "each": 5}),
        **{
            name: (f"6 classes of 10 images, {words}", {"classes": 6, "each": 10, "donors": max(donors, 0)})
            for name, (words, donors) in SHARED.items()
        },
    }
    text = "Intervals of mIoU cover in 90–97 % of datasets"
    yield from _rows("segmentation", text, "covers", 0.90, 0.97, walks.outlined, 300, outlines)
    text = "those of its drops in 90–97 %"
    yield from _rows("segmentation", text, "drop", 0.90, 0.97, walks.outlined, 300, outlines)
    text = "Intervals of shares cover in 92–97 % of datasets"
    prompts: Settings = {"share": ("40 prompts of unlike difficulty, five images each", {})}
    yield from _rows("mining", text, "covers", 0.92, 0.97, walks.prompts, 10_000, prompts)
    text = "those of paired changes in 93–99 %"
    gains: Settings = {"change": ("40 prompts, four images each, three in ten prompts gain", {})}
    yield from _rows("mining", text, "covers", 0.93, 0.99, walks.changed_prompts, 10_000, gains)

    text = "at most 5 % of series ever say *worse* although nothing changed"
    yield from _rows("watching", text, "worse", 0.0, 0.05, watching.series_of_checkpoints, 1_000, CHECKPOINTS)
    yield from _rows("watching", text, "worse", 0.0, 0.05, watching.series_of_months, 100, MONTHS)
    text = "the lower ends of a first comparison hold together in at least 97 % of series"
    one_way: Settings = {
        f"one-way-{photos}-{conditions}": (
            f"{photos} images, {conditions} condition(s), {share:.0%} of the images become wrong and none right",
            {"photos": photos, "share": share, "conditions": conditions},
        )
        for photos, share, conditions in ((120, 0.02, 6), (60, 0.04, 6), (120, 0.02, 1))
    }
    yield from _rows("watching", text, "covers", 0.97, 1.0, watching.changed_one_way, 2_000, one_way)
    text = "*Within* is said of images that are at the tolerance in at most 5 % of checks"
    yield from _rows("watching", text, "within", 0.0, 0.05, watching.new_photos, 2_000, AT_TOLERANCE)
    text = "At most 5 % of series of checks ever say *outside* of images that are at the tolerance"
    checks: Settings = {
        f"checks-{name}": (f"12 checks of {words}", options | {"checks": 12})
        for name, (words, options) in AT_TOLERANCE.items()
        if name in ("turned", "moved-120")
    }
    yield from _rows("watching", text, "outside", 0.0, 0.05, watching.new_photos, 500, checks)

    text = "Something is found in less than 1 of 500 correct tables"
    yield from _rows("audit", text, "alarms", 0.0, 0.002, auditing.clean, 2_000, CLEAN)
    yield from _slips()


PROMISES: list[Promise] = list(_register())
