"""A model that no verdict can rest on is named by ``eval``: labels or preprocessing are wrong."""

import numpy as np

import holdfast
from holdfast.diorama import CLASSES
from holdfast.pipeline.evaluate.evaluate import evaluate
from holdfast.pipeline.specs import EvaluateSpec
from holdfast.stats.effects.verdict_words import not_judged


def always(name):
    """Return a model that gives one answer to every image."""
    outputs = [*CLASSES, "nothing"]

    def model(images):
        return np.tile(np.eye(len(outputs))[outputs.index(name)], (len(images), 1))

    model.fingerprint = name
    return model


def test_models_that_are_never_right_or_always_say_the_same_are_named(tmp_path):
    run = holdfast.evaluate(
        "diorama:test?n=24", models={"lost": always("nothing"), "stuck": always("whale")},
        class_names=[*CLASSES, "nothing"], scenarios="original", out=tmp_path / "lost",
    )  # fmt: skip
    reasons = not_judged(run.counts)
    assert reasons == {
        "lost": "right on none of 24 unchanged images", "stuck": "answers whale to 24 of 24 unchanged images"
    }  # fmt: skip
    spec = EvaluateSpec("diorama:test?n=24", models=("embedded:resnet_rho0",), scenarios="original")
    fine, summary = evaluate(spec, tmp_path / "right")
    assert not not_judged(holdfast.open_run(fine.path).counts) and not summary.notes
