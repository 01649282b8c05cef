"""JSON in the metadata of weight files that is nested thousands deep is one sentence, no RecursionError."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from holdfast.core.errors import UserError
from holdfast.models import label_spaces
from holdfast.pipeline.walk.sparse import read_mask

DEEP = "[" * 100_000 + "]" * 100_000


def test_classes() -> None:
    with pytest.raises(UserError, match="must be a JSON list of names"):
        label_spaces.from_json(DEEP, "model.safetensors")


def test_sparse_masks(tmp_path: Path) -> None:
    file = tmp_path / "mask.safetensors"
    save_file({"mask": np.ones(4, np.uint8)}, file, {"holdfast": DEEP})
    with pytest.raises(UserError, match="is not a mask of holdfast perturb --find-sparse"):
        read_mask(file)
