"""What notebooks and other programs call: the command line's verbs as functions.

import holdfast
run = holdfast.evaluate("photos/", models=["timm:resnet50"], out="runs/first")
run.rows().to_pandas()
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.core.names import split_list
from holdfast.data import load_collection
from holdfast.models import load_classifier
from holdfast.pipeline.evaluate import EvaluateSpec
from holdfast.pipeline.evaluate import evaluate as _evaluate
from holdfast.pipeline.mask import MaskSpec, make_masks
from holdfast.pipeline.progress import Progress, silent
from holdfast.pipeline.summary import Summary
from holdfast.pipeline.synth import make_spec
from holdfast.pipeline.synth import synth as _synth
from holdfast.store import Run

__all__ = ["evaluate", "load_classifier", "load_collection", "mask", "open_run", "synth"]


def evaluate(
    data: str | Path, *, models: str | Iterable[str], out: str | Path, progress: Progress = silent, **options: Any
) -> Run:
    """Run models on images under every condition.

    Args:
        data: a folder, manifest, COCO file or ``scheme:name``.
        models: names of models.
        out: the run directory; one that is there is continued.
        progress: told how far it is.
        **options: the other fields of EvaluateSpec: scenarios, masks, labels, seed, batch_size, device, …
    """
    names = tuple(split_list(models) if isinstance(models, str) else models)
    run, _ = _evaluate(EvaluateSpec(str(data), models=names, **_texts(options)), Path(out), progress=progress)
    return run


def synth(data: str | Path, *, out: str | Path, progress: Progress = silent, **options: Any) -> Summary:
    """Write scenario images, their masks and a manifest. ``options`` are the fields of SynthSpec."""
    return _synth(make_spec(data=str(data), **{"workers": 1} | _texts(options)), Path(out), progress=progress)


def mask(
    data: str | Path, *, out: str | Path, annotator: str = "u2netp", progress: Progress = silent, **options: Any
) -> list[dict[str, Any]]:
    """Make masks for photos that have none; returns a row a mask, the least sure first."""
    spec = MaskSpec(str(data), annotator=annotator, **{"workers": 1} | _texts(options))
    return make_masks(spec, Path(out), progress=progress)[1]


def open_run(path: str | Path) -> Run:
    """A run directory, to read."""
    return Run.open(path)


def _texts(options: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
