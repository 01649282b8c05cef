"""TOML of strangers: what is hostile is refused in a sentence before it is parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import UserError
from holdfast.core.files import read_toml


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 50_000) + " = 1",
        "[" + " . ".join(['"a"'] * 50_000) + "]",
        "\n".join(f"k{row}." + ".".join(["a"] * 40) + " = 1" for row in range(1000)),
    ],
)
def test_deep_keys_are_refused_before_they_are_parsed(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(UserError, match="more than 32 dotted parts"):
        read_toml(tmp_path / "deep.toml", "the table")


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "{a=" * 5000, 'x = "\x00"', "\udcff"])
def test_what_is_no_toml_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match="is not TOML"):
        read_toml(tmp_path / "bad.toml", "the table")


def test_ordinary_tables_are_read(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text('a.b.c = "words. and. dots. in. a. sentence."\n[d."e f"]\ng = 1\n')
    assert read_toml(tmp_path / "good.toml", "the table") == {
        "a": {"b": {"c": "words. and. dots. in. a. sentence."}},
        "d": {"e f": {"g": 1}},
    }
