"""Files of weights whose pickle is damaged are refused in a sentence, whatever torch's reader raises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import UserError
from holdfast.generators import autoencoders
from holdfast.models import checkpoint

DAMAGED = {
    "nothing to pop": b"\x80\x020.",
    "no mark": b"\x80\x02t.",
    "unknown memo": b"\x80\x02h\x07.",
    "a tuple as a dictionary": b"\x80\x02)K\x01K\x02s.",
    "text": b"import torch\n",
}


def _tiny(file: Path) -> Any:
    return autoencoders._read_chain(file.rename(file.parent / "encoder.pth").parent, "encoder")


@pytest.mark.parametrize("reader", [checkpoint.read_state, autoencoders.load_taming, _tiny])
@pytest.mark.parametrize("kind", DAMAGED)
def test_weights(tmp_path: Path, reader: Callable[[Path], Any], kind: str) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(DAMAGED[kind])
    with pytest.raises(UserError, match=r"\.(pt|pth) (is not|is refused|holds)"):
        reader(file)
