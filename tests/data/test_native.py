"""Images at native depth: 16-bit PNG and TIFF, DICOM, arrays of many bands; and hostile ones of them."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image as Pillow

import holdfast
from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import Donor, Sample
from holdfast.data.images import FileImage, decode_image
from holdfast.data.native import NativeImage, decode_native, eight_bits, encode_native
from holdfast.pipeline.donors import DonorPool
from holdfast.scenarios import find_scenario, parse_conditions, render

pydicom = pytest.importorskip("pydicom", reason="the extra dicom is not installed")

RNG = np.random.default_rng(3)
GREY = RNG.integers(0, 1 << 16, (20, 30)).astype(np.uint16)
COLOUR = RNG.integers(0, 1 << 16, (20, 30, 3)).astype(np.uint16)


def dicom(pixels: Any, **fields: Any) -> bytes:
    """Return a DICOM file that pydicom writes, uncompressed."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    file = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    file.Rows, file.Columns = pixels.shape[:2]
    file.SamplesPerPixel, file.PhotometricInterpretation = 1, "MONOCHROME2"
    file.BitsAllocated = file.BitsStored = 16
    file.HighBit, file.PixelRepresentation = 15, int(pixels.dtype.kind == "i")
    file.PixelData = pixels.tobytes()
    for name, value in fields.items():
        setattr(file, name, value)
    stream = io.BytesIO()
    file.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


@pytest.mark.parametrize("suffix", [".png", ".tiff"])
def test_sixteen_bits_are_read_as_stored_and_models_get_the_high_byte(suffix: str) -> None:
    for pixels in (GREY, COLOUR):
        data = cv2.imencode(suffix, pixels[..., ::-1] if pixels.ndim == 3 else pixels)[1].tobytes()
        native, window = decode_native(data)
        wanted = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)
        assert native.dtype == np.uint16 and np.array_equal(native, wanted)
        for picture in (decode_image(data), eight_bits(native, window)):
            assert np.array_equal(picture, wanted // 256)


def test_dicom_keeps_stored_values_and_is_seen_through_its_window() -> None:
    from pydicom.pixels import apply_modality_lut, apply_voi_lut

    hounsfield = RNG.integers(-1024, 3000, (20, 30)).astype(np.int16)
    data = dicom(hounsfield, RescaleSlope=2, RescaleIntercept=-1000, WindowCenter=[40, 9], WindowWidth=[400, 9])
    native, window = decode_native(data)
    assert np.array_equal(native[..., 0].astype(int) - 32768, hounsfield)
    file = pydicom.dcmread(io.BytesIO(data))
    reference = apply_voi_lut(apply_modality_lut(hounsfield, file), file)  # in units of the output, 0..65535 shifted
    reference = (reference - reference.min()) / (reference.max() - reference.min())
    assert np.abs(eight_bits(native, window)[..., 0] - 255 * reference).max() <= 1
    inverted = dicom(GREY, PhotometricInterpretation="MONOCHROME1")
    assert np.abs(decode_image(inverted)[..., 0].astype(int) - np.rint(255 - GREY / 257)).max() <= 1
    assert np.array_equal(decode_native(inverted)[0][..., 0], 65535 - GREY)
    film = dicom(GREY // 16, PhotometricInterpretation="MONOCHROME1", BitsStored=12, HighBit=11, WindowCenter=900,
                 WindowWidth=500)  # fmt: skip
    file = pydicom.dcmread(io.BytesIO(film))
    reference = apply_voi_lut(GREY // 16, file) / 4095  # pydicom leaves the turning round to the display
    assert np.abs(decode_image(film)[..., 0] - 255 * (1 - reference)).max() <= 1


def test_donors_lend_only_values_of_the_same_meaning(tmp_path: Path) -> None:
    twelve = GREY // 16
    others = {"intercept": {"RescaleIntercept": -1024}, "slope": {"RescaleSlope": 2},
              "film": {"PhotometricInterpretation": "MONOCHROME1"}, "signed": {"PixelRepresentation": 1}}  # fmt: skip
    samples = []
    for name, fields in {"own": {}, **others, "same": {"RescaleSlope": "1.0"}}.items():
        (tmp_path / f"{name}.dcm").write_bytes(dicom(twelve, **fields))
        samples.append(Sample(name, str(name == "own"), NativeImage(FileImage(tmp_path / f"{name}.dcm"))))
    pool = DonorPool(samples)
    drawn = {pool.draw(samples[0], np.random.default_rng(seed), same_class=False).sample_id for seed in range(20)}
    assert drawn == {"same"}
    with pytest.raises(SampleError, match="to borrow a background from"):
        DonorPool(samples[:-1]).draw(samples[0], RNG, same_class=False)


@given(
    pixels=arrays(st.sampled_from([np.uint8, np.uint16]), st.tuples(st.just(12), st.just(15), st.integers(2, 9))),
    name=st.sampled_from(
        ["blur_background", "blur_background@5", "segmented", "random_background", "same_class_background",
         "mean_background", "foreground_on_grey", "bright_background"]
    ),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_objects_pixels_are_identical_at_native_depth(pixels: Any, name: str) -> None:
    mask = np.zeros((12, 15), bool)
    mask[4:9, 3:9] = True

    class Context:
        label = "a"

        def memo(self, key: object, make: Any) -> Any:
            return make()

        def donor(self, *, same_class: bool) -> Donor:
            return Donor("d", "b", np.ascontiguousarray(pixels[::-1, ::-1]), mask)

        def fill(self, image: Any, mask: Any) -> None:
            return None

    (condition,) = parse_conditions(name)
    result = render(condition, pixels, mask, rng=np.random.default_rng(1), context=Context())  # type: ignore[arg-type]
    assert result.image.dtype == pixels.dtype and result.image.shape == pixels.shape
    assert np.array_equal(result.image[mask], pixels[mask])
    data, _ = encode_native(result.image) if pixels.dtype == np.uint16 or pixels.shape[2] != 3 else (b"", "")
    assert not data or np.array_equal(decode_native(data)[0], result.image)


@pytest.mark.parametrize("name", ["blur_background@3", "bright_background", "rainbow", "red@released", "grey", "blue"])
def test_native_backgrounds_are_the_eight_bit_ones_with_more_digits(name: str) -> None:
    coarse = cv2.GaussianBlur(RNG.integers(0, 256, (40, 60, 3)).astype(np.uint8), (0, 0), 2)
    fine = coarse.astype(np.uint16) * 257
    mask = np.zeros((40, 60), bool)
    mask[10:20, 20:30] = True

    class Context:
        label = "a"

        def memo(self, key: object, make: Any) -> Any:
            return make()

    (condition,) = parse_conditions(name)
    eight, sixteen = (
        render(condition, picture, mask, rng=np.random.default_rng(2), context=Context()).image.astype(float)  # type: ignore[arg-type]
        for picture in (coarse, fine)
    )
    assert np.abs(sixteen / 257 - eight).max() <= (
        8 if name in ("rainbow", "red@released") else 2
    )  # hues have 180 steps
    assert len(np.unique(sixteen)) >= len(np.unique(eight))


def test_every_background_condition_has_a_native_form_or_says_so() -> None:
    assert {name for name in ("transparent", "gaussian_noise", "shift_object") if find_scenario(name).native} == set()
    with pytest.raises(SampleError, match="transparent needs an HWC uint8 RGB image, not uint16"):
        (condition,) = parse_conditions("transparent")
        render(condition, COLOUR, GREY > 9, rng=RNG, context=None)  # type: ignore[arg-type]


def tiff(*pages: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    first, *rest = (Pillow.fromarray(page) for page in pages)
    first.save(stream, "TIFF", save_all=bool(rest), append_images=rest, **options)
    return stream.getvalue()


def hostile() -> dict[str, tuple[bytes, str]]:
    plain = np.zeros((4, 4), np.uint8)
    bomb = bytearray(tiff(plain))
    for tag in (256, 257):  # width and height of the first directory
        place = bomb.index(tag.to_bytes(2, "little"), 8)
        bomb[place + 2 : place + 12] = struct.pack("<HII", 4, 1, 60_000)
    deflated = dicom(GREY).replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.1.99", 1)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<u2", "fortran_order": False, "shape": (60_000, 60_000, 3)})
    objects = io.BytesIO()
    np.save(objects, np.array([{}, {}], object), allow_pickle=True)
    return {
        "tiff bomb": (bytes(bomb), "above --max-pixels"),
        "tiff pages": (tiff(plain, plain), "several pages"),
        "dicom bomb": (dicom(GREY, Rows=60_000, Columns=60_000), "above --max-pixels"),
        "dicom cut": (dicom(GREY)[:900], "cut short or damaged"),
        "dicom frames": (dicom(GREY, NumberOfFrames=500), "500 frames"),
        "dicom deflated": (deflated, "deflated as a whole"),
        "dicom slope": (
            dicom(GREY, RescaleSlope="1.25").replace(b"DS\4\x001.25", b"DS\4\x00x.yz"),
            "header .* damaged",
        ),
        "dicom count": (dicom(GREY, NumberOfFrames="01").replace(b"IS\2\x0001", b"IS\2\x000x"), "cut short or damaged"),
        "dicom bits": (dicom(GREY, BitsStored=60_000), "60000 bits"),
        "dicom sigmoid": (dicom(GREY, WindowCenter=9, WindowWidth=9, VOILUTFunction="SIGMOID"), "only LINEAR"),
        "dicom noise": (bytes(128) + b"DICM" + RNG.bytes(500), "cut short or damaged"),
        "array bomb": (header.getvalue(), "above --max-pixels"),
        "array of objects": (objects.getvalue(), "uint8 or uint16"),
        "png cut": (cv2.imencode(".png", COLOUR)[1].tobytes()[:700], "cut short or damaged"),
    }


@pytest.mark.parametrize("kind", hostile())
def test_hostile_files_are_refused_in_one_sentence(kind: str) -> None:
    data, sentence = hostile()[kind]
    for decode in (decode_native, decode_image):
        with pytest.raises(SampleError, match=sentence) as refusal:
            decode(data)
        assert "\n" not in str(refusal.value)


class Brightest:
    """Says which of two classes an image is of by its largest value, at native depth."""

    native, labels, fingerprint = True, ("dim", "bright"), "1"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def predict(self, images: list[Any]) -> list[str]:
        self.seen += images
        return ["bright" if image.max() > 1000 else "dim" for image in images]


def test_eval_gives_native_bands_to_models_that_ask_and_rgb_to_others(tmp_path: Path) -> None:
    masks = [np.pad(np.ones((6, 6), np.uint8), 5)] * 4
    tops = (900, 900, 1100, 1100)  # the high byte of both is 3 or 4: only native values distinguish them
    bands = [RNG.integers(800, top, (16, 16, 5)).astype(np.uint16) for top in tops]
    data = {"images": bands, "labels": ["dim", "dim", "bright", "bright"], "masks": masks}
    asked, other = Brightest(), Brightest()
    other.native = False  # type: ignore[misc]
    options: dict[str, Any] = {"scenarios": "original,segmented,rainbow", "out": tmp_path / "run"}
    run = holdfast.evaluate(data, models={"native": asked, "plain": other}, depth="native", **options)
    rows = run.rows().to_pandas()
    assert {image.shape for image in asked.seen} == {(16, 16, 5)} and asked.seen[0].dtype == np.uint16
    assert {image.shape for image in other.seen} == {(16, 16, 3)} and other.seen[0].dtype == np.uint8
    right = rows[rows["condition"] == "original"].groupby("model")["correct"].mean()
    assert right["native"] == 1 and right["plain"] == 0.5
    refused = rows[rows["condition"] == "rainbow"]
    assert set(refused["status"]) == {"error"} and "rainbow needs an HWC RGB image" in refused["error"].iloc[0]
    with pytest.raises(UserError, match="native depth: use eval with depth= native"):
        holdfast.evaluate(data, models={"native": asked}, scenarios="original", out=tmp_path / "eight")


def test_synth_writes_native_files_whose_objects_are_identical(tmp_path: Path) -> None:
    mask = np.pad(np.full((10, 10), 255, np.uint8), 15)
    for label in ("a", "b"):
        for tree, pixels in (("images", RNG.integers(0, 4096, (40, 40)).astype(np.uint16)), ("masks", mask)):
            (tmp_path / "photos" / tree / label).mkdir(parents=True)
            cv2.imwrite(str(tmp_path / "photos" / tree / label / "0.png"), pixels)
    options: dict[str, Any] = {"scenarios": "random_background,blur_background", "depth": "native", "workers": 1}
    holdfast.synth(str(tmp_path / "photos"), out=tmp_path / "made", **options)
    for condition in ("random_background", "blur_background"):
        files = sorted((tmp_path / "made" / condition).rglob("*.png"))
        assert len(files) == 2
        for file in files:
            made, source = (
                cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
                for path in (file, tmp_path / "photos" / "images" / file.parent.name / "0.png")
            )
            assert made.dtype == np.uint16 and made.shape == (40, 40)
            assert np.array_equal(made[mask > 0], source[mask > 0]) and not np.array_equal(made, source)
