"""Bundles that someone made to do harm, or that broke on the way: each is refused, and nothing is written."""

from __future__ import annotations

import io
import os
import signal
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bundled_run import make_run, pack, small_bundle, with_manifest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.schema import FRAMES, PREDICTIONS
from holdfast.store import Run, foreign
from holdfast_evidence import archive as archives
from holdfast_evidence import opening
from holdfast_evidence.archive import MANIFEST
from holdfast_evidence.opening import open_bundle

ROWS = "predictions/part-00000.parquet"
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    folder = tmp_path_factory.mktemp("hostile")
    return small_bundle(make_run(folder), folder / "good.zip")


def refused(path: Path, sentence: str, **options: Any) -> None:
    """It is refused in one sentence, and the folder is as it was."""
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(UserError, match=sentence) as error:
        open_bundle(path, path.parent / "opened", **options)
    assert "\n" not in str(error.value)
    assert sorted(path.parent.rglob("*")) == before


def test_the_bundle_that_all_others_are_made_of_is_fine(members: Members, tmp_path: Path) -> None:
    opened = open_bundle(pack(with_manifest(members), tmp_path / "a.zip"), tmp_path / "opened")
    assert len(Run.open(opened.path).rows()) == opened.counts["predictions"] > 0


# The archive itself


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (lambda whole: b"", "not a ZIP"),
        (lambda whole: b"PK\x03\x04 and nothing else but words", "not a ZIP"),
        (lambda whole: whole[: len(whole) // 2], "not a ZIP"),
        (lambda whole: b"#!/bin/sh\nrm -rf ~\n" + whole, "in front of it"),
        (lambda whole: whole + b"something behind it", "not a ZIP"),
        (lambda whole: whole[:-2] + struct.pack("<H", 5) + b"words", "not a ZIP"),
        (lambda whole: whole[:-14] + struct.pack("<H", 1) + whole[-12:], "not a ZIP"),
        (lambda whole: whole[:-12] + struct.pack("<HHLLH", 9, 9, 4, 4, 0)[2:], "not a ZIP"),
    ],
)
def test_what_is_no_plain_archive(
    data: Callable[[bytes], bytes], sentence: str, members: Members, tmp_path: Path
) -> None:
    path = pack(with_manifest(members), tmp_path / "a.zip")
    path.write_bytes(data(path.read_bytes()))
    refused(path, sentence)


def test_a_missing_file_and_a_target_that_is_there(members: Members, tmp_path: Path) -> None:
    refused(tmp_path / "none.zip", "there is no file")
    (tmp_path / "opened").mkdir()
    (tmp_path / "opened" / "mine.txt").write_text("mine")
    refused(pack(with_manifest(members), tmp_path / "a.zip"), "there already")
    assert (tmp_path / "opened" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("/etc/passwd", "absolute"),
        ("../outside.txt", "points outside"),
        ("tables/../../outside.csv", "points outside"),
        ("..", "points outside"),
        ("tables\\..\\..\\outside.csv", "backslashes"),
        ("\\\\server\\share", "absolute"),
        ("C:/windows/x.csv", "absolute"),
        ("C:x.csv", "absolute"),
        ("tables/a:stream.csv", "colons"),
        ("tables/a\x1b[2J.csv", "control"),
        ("tables/a\u202etxt.csv", "control"),
        ("tables/\n.csv", "control"),
        ("tables//a.csv", "cannot write"),
        ("tables/./a.csv", "cannot write"),
        ("tables/con.csv", "cannot write"),
        ("tables/NUL .csv", "cannot write"),
        ("tables/COM\u00b9.csv", "cannot write"),
        ("tables/a.csv.", "cannot write"),
        ("tables/a.csv ", "cannot write"),
        (".git/config", "hidden"),
        ("tables/.bashrc", "hidden"),
        ("tables/" + "a" * 300 + ".csv", "long"),
        ("a/" * 20 + "a.csv", "deep"),
        ("spec.json/a.csv", "file and a folder"),
        ("README.TXT", "cannot distinguish"),
        ("tables/", "cannot write"),
    ],
)
def test_names_that_lead_elsewhere(name: str, sentence: str, members: Members, tmp_path: Path) -> None:
    refused(pack(with_manifest({**members, name: b"x"}), tmp_path / "a.zip"), sentence)


def test_accents_that_a_mac_spells_another_way(members: Members, tmp_path: Path) -> None:
    both = {**members, "tables/caf\u00e9.csv": b"1", "tables/cafe\u0301.csv": b"2"}
    refused(pack(with_manifest(both), tmp_path / "a.zip"), "cannot distinguish")


def test_a_member_twice(members: Members, tmp_path: Path) -> None:
    path = pack(with_manifest(members), tmp_path / "a.zip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("spec.json", b"{}")
    refused(path, "cannot distinguish")


def test_a_name_with_a_hidden_end(members: Members, tmp_path: Path) -> None:
    path = pack(with_manifest({**members, "tables/ab.csv#sh": b"x"}), tmp_path / "a.zip")
    path.write_bytes(path.read_bytes().replace(b"tables/ab.csv#sh", b"tables/ab.csv\x00sh"))
    refused(path, "hidden end|not in its manifest")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"external_attr": 0o120777 << 16}, "link"),
        ({"external_attr": 0o010644 << 16}, "not a plain file"),
        ({"external_attr": 0o060644 << 16}, "not a plain file"),
        ({"external_attr": 0o040755 << 16 | 0x10}, "not a plain file"),
        ({"compress_type": zipfile.ZIP_BZIP2}, "neither stored nor deflated"),
        ({"compress_type": zipfile.ZIP_LZMA}, "neither stored nor deflated|not a plain file"),
    ],
)
def test_members_that_are_no_plain_files(
    options: dict[str, int], sentence: str, members: Members, tmp_path: Path
) -> None:
    refused(pack(with_manifest(members), tmp_path / "a.zip", **options), sentence)


def _patched(path: Path, offset: int, form: str, value: int) -> Path:
    """The same archive with a field changed in every entry of its directory."""
    data = bytearray(path.read_bytes())
    place = struct.unpack("<L", data[-6:-2])[0]
    while data[place : place + 4] == b"PK\x01\x02":
        struct.pack_into(form, data, place + offset, value)
        place += 46 + sum(struct.unpack_from("<3H", data, place + 28))
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("offset", "form", "value", "sentence"),
    [
        (8, "<H", 0x1, "encrypted"),
        (8, "<H", 0x41, "encrypted"),
        (8, "<H", 0x20, "not a plain file"),
        (10, "<H", 99, "neither stored nor deflated"),
        (20, "<L", 0x7FFFFFFF, "overlap|cannot be unpacked|not a ZIP"),
        (24, "<L", 50, "manifest|its header states"),
        (34, "<H", 3, "not a plain file"),
        (42, "<L", 0, "overlap"),
        (16, "<L", 12345, "cannot be unpacked"),
    ],
)
def test_headers_that_lie(offset: int, form: str, value: int, sentence: str, members: Members, tmp_path: Path) -> None:
    refused(_patched(pack(with_manifest(members), tmp_path / "a.zip"), offset, form, value), sentence)


_LARGE = struct.Struct("<4sQ2H2L4Q")


def _large(size: int, offset: int, place: int) -> bytes:
    """The end of an archive of more than 4 GB: its directory's size and place, and where it says so."""
    told = _LARGE.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, 5, 5, size, offset)
    return told + struct.pack("<4sLQL", b"PK\x06\x07", 0, place, 1)


@pytest.mark.parametrize("place", [2**64 - 1, 2**62, 0])
def test_an_end_that_points_far_away(place: int, members: Members, tmp_path: Path) -> None:
    path = pack(with_manifest(members), tmp_path / "a.zip")
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path.write_bytes(path.read_bytes()[:-22] + _large(1, 1, place) + end)
    refused(path, "not a ZIP")


def test_a_second_directory_in_a_comment(members: Members, tmp_path: Path) -> None:
    """Python would follow it, whatever the end of the file says of the first."""
    path = pack(with_manifest(members), tmp_path / "a.zip")
    whole = bytearray(path.read_bytes())
    count, size, offset = struct.unpack("<HLL", whole[-12:-2])
    place = offset
    while whole[(behind := place + 46 + sum(struct.unpack_from("<3H", whole, place + 28))) :][:4] == b"PK\x01\x02":
        place = behind
    struct.pack_into("<H", whole, place + 32, 76)
    hidden = _large(size, offset, len(whole) - 22)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size + 76, offset, 0)
    path.write_bytes(bytes(whole[:-22]) + hidden + end)
    assert len(zipfile.ZipFile(path).namelist()) == count
    refused(path, "not a ZIP")


def test_something_in_front_that_the_directory_knows_of(members: Members, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"MZ" + bytes(500))
    with zipfile.ZipFile(path, "a") as archive:
        for name, data in with_manifest(members).items():
            archive.writestr(name, data)
    refused(path, "in front of it")


def test_members_that_share_their_bytes(members: Members, tmp_path: Path) -> None:
    """A bomb whose members lie overlap in part, so that all of them together are not larger than the file."""
    path = pack(with_manifest({"tables/filler.csv": bytes(range(256)) * 400, **members}), tmp_path / "a.zip")
    data = bytearray(path.read_bytes())
    place = struct.unpack("<L", data[-6:-2])[0]
    second = place + 46 + sum(struct.unpack_from("<3H", data, place + 28))
    (offset,) = struct.unpack_from("<L", data, second + 42)
    struct.pack_into("<L", data, second + 42, offset - 1000)
    path.write_bytes(data)
    refused(path, "overlap")


def test_bombs(members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = with_manifest({**members, "tables/zeros.csv": bytes(60 << 20)})
    path = pack(zeros, tmp_path / "a.zip", compress_type=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    refused(path, "100 times its size")
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    # The directory says that it is small; the reader stops there, and the checksum is another.
    refused(_patched(path, 24, "<L", 1000), "manifest|cannot be unpacked|its header states")
    path = pack(with_manifest(members), tmp_path / "b.zip")
    refused(path, "--max-gigabytes", max_bytes=10_000)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 5)
    refused(path, "more members")


# The manifest


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda told: told.update(version=2), "newer Holdfast"),
        (lambda told: told.update(schema_version=99), "newer Holdfast"),
        (lambda told: told.update(version="1"), "wrong at 'version'"),
        (lambda told: told.update(format="other"), "not a bundle of Holdfast"),
        (lambda told: told.update(extra=1), "wrong at 'extra'"),
        (lambda told: told["files"].pop("README.txt"), "not in its manifest"),
        (lambda told: told["files"].update({"more.txt": {"bytes": 1, "sha256": "0" * 64}}), "is missing"),
        (lambda told: told["files"]["spec.json"].update(bytes=5), "the manifest says 5"),
        (lambda told: told["files"]["spec.json"].update(bytes=-5), "wrong at"),
        (lambda told: told["files"]["spec.json"].update(sha256="0" * 64), "hash is another"),
        (lambda told: told["files"][ROWS].update(sha256="0" * 64), "hash is another"),
        (lambda told: told["files"]["tables/accuracy.csv"].update(sha256="0" * 64), "hash is another"),
        (lambda told: told["counts"].update(predictions=10**9), "manifest says 1000000000"),
        (lambda told: told["counts"].update(samples=0), "manifest says 0"),
    ],
)
def test_manifests_that_lie(
    change: Callable[[dict[str, Any]], object], sentence: str, members: Members, tmp_path: Path
) -> None:
    refused(pack(with_manifest(members, change), tmp_path / "a.zip"), sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "not JSON"),
        (b"[1, 2]", "not a bundle"),
        (b'{"format": "holdfast-bundle", "version": NaN}', "not a number"),
        (b'{"format": 1, "format": 2}', "twice"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' * 30 + b"1" + b"}" * 30, "deep"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"1" * 5000, "not JSON"),
    ],
)
def test_manifests_that_are_none(text: bytes, sentence: str, members: Members, tmp_path: Path) -> None:
    refused(pack({**members, MANIFEST: text}, tmp_path / "a.zip"), sentence)
    refused(
        pack({name: data for name, data in members.items() if name != MANIFEST}, tmp_path / "b.zip"), "not a bundle"
    )


# What is inside


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("spec.json", b'{"seed": NaN}', "not a number"),
        ("spec.json", b'{"seed": 1e999}', "not finite"),
        ("spec.json", b"[]", "not a JSON object"),
        ("spec.json", b'{"dataset": "\\u001b[2J"}', "control character"),
        ("spec.json", b'{"a": "' + b"x" * (5 << 20) + b'"}', "more than"),
        ("environment.json", b"{", "not JSON"),
        ("evil.sh", b"rm -rf ~", "nothing that a bundle has"),
        ("predictions/part-00000.pkl", b"cos\nsystem\n(S'true'\ntR.", "nothing that a bundle has"),
        ("models/a/model.pt", b"PK", "nothing that a bundle has"),
        ("models/a/model.safetensors", b"\x80\x04cos\nsystem", "not a safetensors"),
        ("tables/a.xlsx", b"x", "nothing that a bundle has"),
        ("images/a.png", b"<svg onload=alert(1)>", "not an image"),
        ("images/a.svg", b"<svg/>", "nothing that a bundle has"),
        ("generated/a.jpg", b"GIF89a", "not an image"),
        (ROWS, b"PAR1 and no more PAR1", "not a Parquet file"),
        (ROWS, b"", "not a Parquet file"),
        ("samples.parquet", b"PAR1", "not a Parquet file"),
    ],
)
def test_files_that_are_something_else(name: str, data: bytes, sentence: str, members: Members, tmp_path: Path) -> None:
    refused(pack(with_manifest({**members, name: data}), tmp_path / "a.zip"), sentence)


def test_a_picture_too_large_to_decode(members: Members, tmp_path: Path) -> None:
    png = bytearray(cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes())
    struct.pack_into(">LL", png, 16, 100_000, 100_000)
    refused(pack(with_manifest({**members, "images/a.png": bytes(png)}), tmp_path / "a.zip"), "pixels|not an image")


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


def _with(members: Members, column: str, value: Any, row: int = 0) -> bytes:
    """The rows with one value changed."""
    rows = pq.read_table(io.BytesIO(members[ROWS])).to_pylist()
    rows[row][column] = value
    return _parquet(pa.Table.from_pylist(rows, schema=PREDICTIONS))


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("confidence", float("nan"), "between 0 and 1"),
        ("probability_of_label", float("inf"), "between 0 and 1"),
        ("confidence", 7.0, "between 0 and 1"),
        ("status", "fine", "status that there is not"),
        ("label", None, "without label"),
        ("label", "cat\x1b[31m", "control character"),
        ("model", "a\u202eb", "control character"),
        ("error", "x" * 30_000, "characters"),
        ("topk", ["x" * 30_000], "characters"),
        ("parameters", "{", "not JSON"),
        ("parameters", '{"a": NaN}', "not a number"),
        ("parameters", "[" * 50 + "]" * 50, "deep"),
        ("sample_id", "an image of another dataset", "images that samples.parquet does not have"),
        ("schema_version", 2, "another version"),
    ],
)
def test_rows_that_no_run_has(column: str, value: Any, sentence: str, members: Members, tmp_path: Path) -> None:
    changed = with_manifest({**members, ROWS: _with(members, column, value)})
    refused(pack(changed, tmp_path / "a.zip"), sentence)


def test_a_row_twice_and_a_table_of_other_columns(members: Members, tmp_path: Path) -> None:
    rows = pq.read_table(io.BytesIO(members[ROWS]))
    twice = with_manifest(members | {"predictions/part-00001.parquet": members[ROWS]})
    refused(pack(twice, tmp_path / "a.zip"), "twice")
    for table, sentence in (
        (rows.drop(["correct"]), "lacks correct"),
        (rows.append_column("script", pa.array(["x"] * len(rows))), "has 'script'"),
        (rows.set_column(rows.column_names.index("seed"), "seed", pa.array(["1"] * len(rows))), "its seed is string"),
        (rows.slice(0, 0), "has no rows"),
    ):
        refused(pack(with_manifest({**members, ROWS: _parquet(table)}), tmp_path / "a.zip"), sentence)


@pytest.mark.parametrize("image", ["../../../../etc/passwd", "/etc/passwd", "C:\\boot.ini"])
def test_details_that_name_files_elsewhere(image: str, members: Members, tmp_path: Path) -> None:
    known = pq.read_table(io.BytesIO(members[ROWS]))["row_id"][0].as_py()
    frame = {"row_id": known, "step": 0, "image": image}
    name = "details/frames/part-00000.parquet"
    held = {**members, name: _parquet(pa.Table.from_pylist([frame], schema=FRAMES))}
    refused(pack(with_manifest(held), tmp_path / "a.zip"), "absolute|points outside|backslashes")
    stray = {**members, name: _parquet(pa.Table.from_pylist([{"row_id": "0" * 32}], schema=FRAMES))}
    refused(pack(with_manifest(stray), tmp_path / "b.zip"), "not in the bundle")


def test_parquet_bombs(members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pq.read_table(io.BytesIO(members[ROWS]))
    place = rows.column_names.index("error")
    plain = rows.set_column(place, "error", pa.array(["a" * 400_000] * len(rows)))
    bomb = _parquet(plain, use_dictionary=False)
    coded = rows.set_column(place, "error", pa.array(["b" * 19_000] * len(rows)))
    small = _parquet(coded)
    assert max(len(bomb), len(small)) < 60_000
    # What unpacks to more than allowed is known from the headers of its pages, before it is unpacked.
    monkeypatch.setattr(foreign, "MAX_UNPACKED", 500_000)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("it was unpacked"))
    refused(pack(with_manifest({**members, ROWS: bomb}), tmp_path / "a.zip"), "bomb")
    monkeypatch.setattr(foreign, "MAX_ROWS", 5)
    refused(pack(with_manifest(members), tmp_path / "b.zip"), "rows; 5 are the most")
    monkeypatch.undo()
    # One long text in many rows is short in the file and in its pages, and long in memory.
    monkeypatch.setattr(foreign, "MAX_UNPACKED", 500_000)
    refused(pack(with_manifest({**members, ROWS: small}), tmp_path / "c.zip"), "bomb")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("coded", [True, False])
def test_the_headers_of_pages_say_what_the_file_unpacks_to(version: str, coded: bool) -> None:
    words = pa.array([f"word {number % 50}" for number in range(5000)])
    table = pa.table({"a": words, "b": pa.array(range(5000)), "c": pa.array([[1.5] * (n % 4) for n in range(5000)])})
    sink = io.BytesIO()
    pq.write_table(
        table, sink, data_page_version=version, use_dictionary=coded, row_group_size=1500, data_page_size=2000
    )
    told = pq.read_metadata(sink)
    for group in range(told.num_row_groups):
        for place in range(told.num_columns):
            column = told.row_group(group).column(place)
            start = min(one for one in (column.data_page_offset, column.dictionary_page_offset) if one)
            pages = list(foreign._pages(sink.getvalue(), start, start + column.total_compressed_size, "it"))
            unpacked = sum(size for size, _ in pages)
            # the file's own figure counts the headers, too
            assert unpacked <= column.total_uncompressed_size <= unpacked + 100 * len(pages)
            assert sum(count for _, count in pages) >= column.num_values


def test_what_breaks_while_it_is_written_leaves_nothing(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    path = pack(with_manifest(members), tmp_path / "a.zip")
    monkeypatch.setattr(opening, "write_json", full)
    with pytest.raises(OSError, match="No space"):
        open_bundle(path, tmp_path / "opened")
    assert list(tmp_path.iterdir()) == [path]


def test_targets_that_cannot_be(members: Members, tmp_path: Path) -> None:
    path = pack(with_manifest(members), tmp_path / "a.zip")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(UserError, match="is a link"):
        open_bundle(path, tmp_path / "link")
    with pytest.raises(UserError, match="is a file"):
        open_bundle(path, path / "below" / "it")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.zip", "link"]


def test_a_killed_process_leaves_nothing_in_the_way(members: Members, tmp_path: Path) -> None:
    path = pack(with_manifest(members), tmp_path / "a.zip")
    child = os.fork()
    if not child:
        opening.write_table = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        try:
            open_bundle(path, tmp_path / "opened")
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    assert open_bundle(path, tmp_path / "opened").path.is_dir()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.zip", "opened"]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255), st.booleans())
def test_any_byte_may_be_another(members: Members, tmp_path: Path, where: float, change: int, inside: bool) -> None:
    """One changed byte, in the archive or in its largest table: refused in a sentence, or read; never anything else."""
    if inside:
        data = bytearray(members[ROWS])
        data[int(where * len(data))] ^= change
        path = pack(with_manifest({**members, ROWS: bytes(data)}), tmp_path / "a.zip")
    else:
        path = pack(with_manifest(members), tmp_path / "a.zip")
        data = bytearray(path.read_bytes())
        data[int(where * len(data))] ^= change
        path.write_bytes(data)
    try:
        with archives.opened(path) as archive:
            opening._check_contents(archive, opening.read_manifest(archive, path.name), path.name)
    except UserError as error:
        assert "\n" not in str(error)
