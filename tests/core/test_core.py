from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256, canonical_json, fingerprint, generator, seed_from
from holdfast.core.names import (
    checked,
    condition_name,
    condition_names,
    condition_words,
    parse_name,
    parse_options,
    scenario_of,
    split_list,
    without_object,
    write_options,
)
from holdfast.core.schema import KEY, PREDICTIONS, row_id
from holdfast.data import load_collection
from holdfast.models import load_classifier

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_canonical_json_reads_back_and_ignores_the_order_of_keys(value: object) -> None:
    assert json.loads(canonical_json(value)) == value
    if isinstance(value, dict):
        assert canonical_json(dict(reversed(list(value.items())))) == canonical_json(value)


def test_canonical_json_knows_dataclasses_numpy_and_sets_but_no_strange_objects() -> None:
    @dataclass
    class Point:
        x: int

    assert canonical_json({"p": Point(3), "n": np.float64(0.5), "s": {2, 1}}) == '{"n":0.5,"p":{"x":3},"s":[1,2]}'
    with pytest.raises(TypeError, match="object"):
        canonical_json(object())
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


def test_fingerprint_is_the_same_in_every_process() -> None:
    # A literal, so that a change of the recipe (which would orphan every stored row) cannot pass unseen.
    assert fingerprint({"b": [1, 2.5], "a": "é"}) == "123b424b7606d08d0756074e1f76051117423e1a66a03e02f56fd334de63705b"


def test_array_hash_sees_type_shape_and_values() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    hashes = {
        array_sha256(image),
        array_sha256(image.reshape(1, 4, 3)),
        array_sha256(image.astype(np.int8)),
        array_sha256(image + np.uint8(1)),
    }
    assert len(hashes) == 4
    assert array_sha256(image[::-1][::-1]) == array_sha256(image)
    assert array_sha256(np.zeros((0, 3), np.uint8)) != array_sha256(np.zeros((3, 0), np.uint8))


@given(st.lists(st.text() | st.integers(), max_size=4))
def test_seeds_depend_on_their_parts_alone(parts: list[object]) -> None:
    assert seed_from(*parts) == seed_from(*parts)
    assert seed_from(*parts) != seed_from(*parts, "more")
    assert generator(*parts).integers(1 << 62) == generator(*parts).integers(1 << 62)


def test_names() -> None:
    name = parse_name("clip:ViT-B-32@openai?size=224&fast=true&scale=0.5")
    assert (name.scheme, name.name, name.tag) == ("clip", "ViT-B-32", "openai")
    assert name.options == {"size": 224, "fast": True, "scale": 0.5}
    assert parse_name("photos/beach").scheme == ""
    assert parse_name("./odd:name").scheme == ""
    assert parse_name("C:\\photos").scheme == ""
    assert parse_name("folder:a@b", tagged=False).name == "a@b"
    assert parse_name("torch:timm/resnet18@/tmp/a.pth").tag == "/tmp/a.pth"
    assert split_list("a, b,,c ") == ["a", "b", "c"]
    assert parse_options("labels=a+b%26c.txt&root=x=y") == {"labels": "a+b&c.txt", "root": "x=y"}
    with pytest.raises(UserError, match="option=value"):
        parse_options("size")


@pytest.mark.parametrize("typed", ["2024_01", "0001", "1e3", "0.50", "nan", "inf", "true", "+1", "1_000.5", "9" * 200])
def test_a_value_keeps_its_text_unless_its_option_is_a_number(typed: str) -> None:
    name = parse_name(f"timm:resnet18?name={typed}&size={typed}")
    assert name.text("name") == typed and checked(name, {"name": str, "size": str}) == {"name": typed, "size": typed}
    assert write_options(name.options, name.texts) == f"?name={typed}&size={typed}".replace("+", "%2B")
    number = {"0001": 1.0, "1e3": 1000.0, "0.50": 0.5, "+1": 1.0, "inf": float("inf"), "9" * 200: float("9" * 200)}.get(
        typed
    )
    if number is None:
        with pytest.raises(UserError, match="is not a float"):
            checked(name, {"name": str, "size": float})
    else:
        assert checked(name, {"name": str, "size": float})["size"] == number


def test_names_of_models_and_folders_of_digits_stay_as_they_were_typed(tmp_path: Path) -> None:
    for typed in ("2024_01", "0001", "1e3", "true", "nan"):
        assert load_classifier(f"embedded:resnet_rho0?name={typed}", device="cpu").name == typed
    (tmp_path / "0001").mkdir()
    (tmp_path / "1").mkdir()
    PIL.Image.new("RGB", (8, 8)).save(tmp_path / "0001" / "a.png")
    (tmp_path / "boxes.csv").write_text("path,x1,y1,x2,y2,label\na.png,1,1,4,4,cat\n")
    with contextlib.chdir(tmp_path):
        collection = load_collection("boxes:boxes.csv?images=0001")
    assert [sample.image.load().shape for sample in collection.samples] == [(8, 8, 3)]


KEY_VALUES = {name: 0 if name in ("fold", "seed") else name for name in KEY.names}


@given(st.sampled_from(KEY.names))
def test_every_part_of_the_key_names_the_row(column: str) -> None:
    base = row_id(KEY_VALUES, image="i", mask="m", model="w")
    other = 7 if column in ("fold", "seed") else "other"
    assert row_id({**KEY_VALUES, column: other}, image="i", mask="m", model="w") != base
    measured = {"image": "i", "mask": "m", "model": "w"}
    assert len({base, *(row_id(KEY_VALUES, **{**measured, name: "other"}) for name in measured)}) == 4


def test_row_id_ignores_the_run_and_refuses_an_incomplete_key() -> None:
    base = row_id(KEY_VALUES, image="i", mask="m", model="w")
    assert row_id({**KEY_VALUES, "run_id": "x", "batch_size": 3}, image="i", mask="m", model="w") == base
    with pytest.raises(KeyError):
        row_id({"task": "classify"}, image="i", mask="m", model="w")


def test_the_table_has_no_column_twice() -> None:
    assert len(set(PREDICTIONS.names)) == len(PREDICTIONS.names)


def test_import_and_help_stay_light() -> None:
    heavy = ["torch", "torchvision", "timm", "transformers", "pandas", "cv2", "duckdb", "scipy", "onnxruntime"]
    code = f"import sys, holdfast, holdfast.cli.main; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


VALUES = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(alphabet="ab +&=?%/@é", min_size=1)


@given(st.dictionaries(st.text(alphabet="ab_&=", min_size=1), VALUES))
def test_options_survive_being_written(options: dict[str, object]) -> None:
    read = parse_name(f"timm:x{write_options(options)}").options
    assert read == options and [type(one) for one in read.values()] == [type(one) for one in options.values()]


@pytest.mark.parametrize("variant", ["paper", "as_stored", "", None])
def test_a_plain_variant_is_not_part_of_the_name(variant: str | None) -> None:
    assert condition_name("original", variant) == "original"


def test_parameters_are_part_of_the_name_where_a_variant_has_several() -> None:
    soft, hard = ("blur", "paper", '{"sigma":2}'), ("blur", "paper", '{"sigma":9}')
    other = ("blur", "released", '{"sigma":2}')
    names = condition_names([soft, other, hard, soft])
    assert names == {soft: 'blur {"sigma":2}', hard: 'blur {"sigma":9}', other: "blur@released"}
    assert {scenario_of(name) for name in names.values()} == {"blur"}


def test_words_and_the_object() -> None:
    assert condition_words("only_background@released") == "only background@released"
    assert without_object('only_background@released {"x": "a b@c"}') and not without_object("random_background")
