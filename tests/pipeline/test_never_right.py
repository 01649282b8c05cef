"""A model that is right on no original is named: labels or preprocessing are wrong."""

import numpy as np

import holdfast
from holdfast.diorama import CLASSES
from holdfast.pipeline.evaluate.evaluate import never_right


def nothing(images):
    """Always answer with a class that no photo has."""
    return np.tile(np.eye(len(CLASSES) + 1)[-1], (len(images), 1))


nothing.fingerprint = "nothing"


def test_models_that_are_never_right_are_named(tmp_path):
    run = holdfast.evaluate(
        "diorama:test?n=12", models={"lost": nothing}, class_names=[*CLASSES, "nothing"], scenarios="original,grey",
        out=tmp_path / "lost",
    )  # fmt: skip
    assert never_right(run.run) == [("lost", 12)] and never_right(run.run, least=13) == []
    right = holdfast.evaluate(
        "diorama:test?n=12", models=["embedded:resnet_rho0"], scenarios="original", out=tmp_path / "right"
    )
    assert never_right(right.run) == []
