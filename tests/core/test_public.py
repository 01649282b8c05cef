"""The public names, so that none vanishes or appears by accident."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

import holdfast

PUBLIC = """
HoldfastError Results SampleError UserError ask check choose compare data_check evaluate
explain generate load_classifier load_collection mask mine mine_modes mine_remedy open_run parity parse_conditions
perturb plan render report scenario segment synth track train
"""


def test_the_inventory() -> None:
    assert sorted(PUBLIC.split()) == holdfast.__all__
    assert len(holdfast.__all__) <= 30
    for name in holdfast.__all__:
        assert getattr(holdfast, name).__doc__, name
    modules = {module.name for module in pkgutil.iter_modules(holdfast.__path__)}
    assert not modules & {*holdfast.__all__, *dir(holdfast)}
    with pytest.raises(AttributeError, match="evalute"):
        _ = holdfast.evalute  # type: ignore[attr-defined]


def test_the_verbs_as_functions(photos: Path, toy_models: str, tmp_path: Path) -> None:
    run = holdfast.evaluate(photos, models=[f"{toy_models}:colour"], out=tmp_path / "run", scenarios="original,grey")
    assert holdfast.open_run(tmp_path / "run").run.rows().num_rows == run.rows().num_rows == 24
    assert holdfast.synth(photos, out=tmp_path / "synth", scenarios="red").rows == 12
    rows = holdfast.mask(photos, out=tmp_path / "masks", annotator="threshold")
    assert len(rows) == 12 and rows[0]["confidence"] <= rows[-1]["confidence"]
    assert len(holdfast.load_collection(str(tmp_path / "synth"))) == 12
