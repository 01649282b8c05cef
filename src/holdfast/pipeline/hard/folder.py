"""What ``holdfast mine`` left in a hard set's folder, read with the doubt that a folder from elsewhere deserves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.store import read_table

if TYPE_CHECKING:
    import pandas as pd

_FACTS = {"pool": str, "oracle": str, "used": list, "targets": list, "generators": list}
_ANSWERS = ("prompt_id", "category", "kind", "nuisance", "prompt", "half", "valid")
_SELECTED = ("surrogates_failed", "set")


def read_hard_set(folder: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return ``summary.json``, and one row per image of the pool by sample_id: every model's answer and its set.

    Raises:
        UserError: the folder is no hard set, or not a whole one.
    """
    mining = folder / "mining"
    try:
        facts = json.loads((mining / "summary.json").read_text(encoding="utf8"))
        answers, selection = (
            read_table(mining / f"{name}.parquet").to_pandas().set_index("sample_id")
            for name in ("answers", "selection")
        )
        if not isinstance(facts, dict):
            raise ValueError("summary.json is no table of facts")
        wrong = [name for name, kind in _FACTS.items() if not isinstance(facts.get(name), kind)]
        wrong += [name for name in _ANSWERS if name not in answers]
        images = answers.join(selection[list(_SELECTED)])
        if wrong:
            raise KeyError(wrong[0])
    except (OSError, ValueError, KeyError) as error:
        why = "" if isinstance(error, OSError) else f" ({str(error).partition('.')[0]})"
        raise UserError(
            f"{folder} is not a hard set, or not a whole one{why}; make one of a pool first: holdfast mine POOL … "
            "--out HARD"
        ) from error
    return facts, images
