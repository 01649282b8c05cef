"""What many workers did, in one summary."""

from __future__ import annotations

from holdfast.pipeline.jobs.progress import Summary


def test_what_each_worker_says_with_its_own_figures_is_said_once() -> None:
    faster = "timm:vit_{} is not compiled: it is faster as it is ({} images/s, compiled {})"
    whole = Summary()
    for notes in (
        [faster.format(1, 900, 800), "timm:a is not compiled: no compiler"],
        [faster.format(1, 950, 780), faster.format(2, 30, 20)],
        [faster.format(2, 31, 19), "timm:a is not compiled: no compiler", "timm:b is not compiled: no compiler"],
    ):
        whole.merge(Summary(notes=notes))
    assert whole.notes == [
        faster.format(1, 900, 800),
        "timm:a is not compiled: no compiler",
        faster.format(2, 30, 20),
        "timm:b is not compiled: no compiler",
    ]
