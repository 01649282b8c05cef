"""Networks that a user gives: style transfer and inpainting. Tiny ones of the same interface stand in for them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import DEFAULT_MAX_PIXELS, Donor, Sample
from holdfast.data.images import FileImage
from holdfast.pipeline.donors import DonorPool, SampleContext
from holdfast.pipeline.generate.tools import StyleTransfer, Tools, load_tools
from holdfast.pipeline.specs import EvaluateSpec
from holdfast.scenarios import parse_conditions, render
from holdfast.scenarios.stylised import texture_of
from holdfast.stats.core.cells import wilson
from shapes import make_photos

SHARED = Path(__file__).parents[3] / "shared"
WEIGHTS = SHARED / "weights" / "style_transfer"
STYLISED = ("stylised", "stylised_object", "stylised_background")


def save_graph(file: Path, nodes: list, inputs: list, output: tuple, constants: dict[str, np.ndarray]) -> Path:
    import onnx
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node(kind, names, [to], **options) for kind, names, to, options in nodes],
        "tiny",
        [helper.make_tensor_value_info(*entry) for entry in inputs],
        [helper.make_tensor_value_info(*output)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
    return file


def save_stylist(folder: Path, kept: float = 0.05) -> Path:
    """Reads a style as its mean colour (of 100 numbers); draws ``kept`` of the image and the rest in that colour."""
    save_graph(
        folder / "read.onnx",
        [("ReduceMean", ["style"], "mean", {"axes": [1, 2], "keepdims": 1}),
         ("Concat", ["mean", "rest"], "code", {"axis": 3})],
        [("style", 1, [1, 16, 16, 3])], ("code", 1, [1, 1, 1, 100]), {"rest": np.zeros((1, 1, 1, 97), np.float32)},
    )  # fmt: skip
    save_graph(
        folder / "draw.onnx",
        [("Slice", ["code", "from", "to", "axis"], "colour", {}),
         ("Mul", ["photo", "kept"], "faint", {}), ("Mul", ["colour", "gone"], "strong", {}),
         ("Add", ["faint", "strong"], "drawn", {})],
        [("photo", 1, [1, 24, 32, 3]), ("code", 1, [1, 1, 1, 100])], ("drawn", 1, [1, 24, 32, 3]),
        {"from": np.array([0]), "to": np.array([3]), "axis": np.array([3]),
         "kept": np.float32(kept), "gone": np.float32(1 - kept)},
    )  # fmt: skip
    return folder


def save_migan(file: Path) -> Path:
    """Paints 77 into the hole (mask 0), and spoils the known pixels (mask 255), which the caller has to keep."""
    return save_graph(
        file,
        [("Equal", ["mask", "zero"], "hole", {}), ("Sub", ["white", "image"], "spoilt", {}),
         ("Where", ["hole", "painted", "spoilt"], "result", {})],
        [("image", 2, ["b", 3, "h", "w"]), ("mask", 2, ["b", 1, "h", "w"])], ("result", 2, ["b", 3, "h", "w"]),
        {"zero": np.uint8([0]), "white": np.uint8([255]), "painted": np.uint8([77])},
    )  # fmt: skip


@pytest.fixture(scope="module")
def stylist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_stylist(tmp_path_factory.mktemp("weights") / "style")


@pytest.fixture(scope="module")
def migan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_migan(tmp_path_factory.mktemp("weights") / "migan.onnx")


def tools(**options: str) -> Tools:
    loaded = load_tools(EvaluateSpec(data="", models=("m",), **options))
    assert loaded is not None
    return loaded


class Lender(SampleContext):
    """A context whose style is one given image."""

    lent: Donor

    def style(self) -> Donor:
        return self.lent


def context(loaded: Tools, style: np.ndarray, mask: np.ndarray | None = None) -> Lender:
    pool = DonorPool([])
    pool.tools = loaded
    lender = Lender(Sample("photo", "own", FileImage("")), pool)
    lender.lent = Donor("style", "other", style, mask)
    return lender


def made(text: str, image: np.ndarray, mask: np.ndarray | None, lender: SampleContext) -> np.ndarray:
    (condition,) = parse_conditions(text)
    return render(condition, image, mask, rng=np.random.default_rng(0), context=lender).image


@settings(max_examples=25, deadline=None)
@given(arrays.arrays(np.bool_, (24, 32)), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_a_stylised_part_leaves_the_other_part_bit_for_bit(
    stylist: Path, mask: np.ndarray, seed: int, strength: float
) -> None:
    if not mask.any() or mask.all():
        return
    rng = np.random.default_rng(seed)
    image, style = (rng.integers(0, 256, (24, 32, 3), np.uint8) for _ in range(2))
    lender = context(tools(stylist=str(stylist)), style)
    whole, thing, behind = (made(f"{name}?strength={strength}", image, mask, lender) for name in STYLISED)
    np.testing.assert_array_equal(thing, np.where(mask[..., None], whole, image))
    np.testing.assert_array_equal(behind, np.where(mask[..., None], image, whole))
    again = made(f"stylised?strength={strength}", image, None, context(tools(stylist=str(stylist)), style))
    np.testing.assert_array_equal(again, whole)


@pytest.mark.parametrize(("text", "strength"), [("stylised", 1), ("stylised@2", 0.4), ("stylised@copy", 0)])
def test_strength_moves_the_code_from_the_photos_own_to_the_styles(stylist: Path, text: str, strength: float) -> None:
    image = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    style = np.full((60, 60, 3), (200, 30, 90), np.uint8)
    own = cv2.resize(image, (16, 16), interpolation=cv2.INTER_AREA).mean((0, 1))
    expected = 0.05 * image + 0.95 * (strength * np.array([200, 30, 90]) + (1 - strength) * own)
    drawn = made(text, image, None, context(tools(stylist=str(stylist)), style))
    assert np.abs(drawn - expected).max() <= 0.51


def test_the_texture_lies_inside_the_donors_object() -> None:
    image = np.zeros((90, 120, 3), np.uint8)
    mask = np.zeros((90, 120), bool)
    mask[20:70, 30:90] = True
    image[mask] = 200
    texture, whole = texture_of(Donor("d", "other", image, mask))
    assert not whole and (texture == 200).all() and min(texture.shape[:2]) >= 40
    thin = np.zeros_like(mask)
    thin[40:44, 10:100] = True
    assert texture_of(Donor("d", "other", image, thin))[0].shape[:2] == (4, 90)  # its box
    assert texture_of(Donor("d", "other", image, None))[1]


def test_a_run_in_other_textures_and_its_shape_share(stylist: Path, tmp_path: Path, toy_models: str, table_of) -> None:
    photos = make_photos(tmp_path / "photos")
    asked = {
        "data": str(photos / "images"), "masks": str(photos / "masks"), "models": [f"{toy_models}:colour"],
        "scenarios": "original,stylised_object,stylised_background", "stylist": str(stylist),
    }  # fmt: skip
    results = holdfast.evaluate(**asked, out=tmp_path / "run")
    rows = results.rows().to_pylist()
    conflicts = [row for row in rows if row["condition"] == "stylised_object"]
    assert len(conflicts) == 12 and all(row["donor_label"] not in ("", row["label"]) for row in conflicts)
    assert all(row["status"] == "ok" for row in rows)
    # The model sees colours only, so it names the texture of every object that is large enough, and never the shape.
    (share,) = results.shape_share().to_dict("records")
    right = {row["source_id"] for row in rows if row["condition"] == "original" and row["correct_restricted"]}
    counted = [row for row in conflicts if row["source_id"] in right]
    named = [row["prediction_restricted"] for row in counted]
    texture = sum(name == row["donor_label"] for name, row in zip(named, counted, strict=True))
    shape = sum(name == row["label"] for name, row in zip(named, counted, strict=True))
    assert texture >= 8 and shape == 0
    assert (share["n"], share["shape"], share["texture"]) == (len(counted), shape, texture)
    assert share["share"] == 0 and share["high"] >= float(wilson(0, texture)[1]) - 1e-9
    page = holdfast.report([results], tmp_path / "page", resamples=200).read_text()
    assert "Shape against texture" in page and (tmp_path / "page" / "tables" / "shape_share.csv").is_file()
    # Two processes make the same rows; another network makes other ids, and its rows take the place of the old ones.
    elsewhere = holdfast.evaluate(**asked, workers=2, out=tmp_path / "elsewhere")
    assert table_of(elsewhere) == table_of(results)
    other = save_stylist(tmp_path / "other", kept=0.9)
    again = holdfast.evaluate(**asked | {"stylist": str(other)}, out=tmp_path / "run").rows().to_pylist()
    kept = {row["row_id"] for row in rows} & {row["row_id"] for row in again}
    assert len(again) == 36 and kept == {row["row_id"] for row in rows if row["condition"] == "original"}


def test_styles_come_from_a_folder(stylist: Path, tmp_path: Path, toy_models: str) -> None:
    photos = make_photos(tmp_path / "photos", count=2)
    for name in ("disc/red.png", "plain.png"):
        (tmp_path / "styles" / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / "styles" / name), np.full((20, 20, 3), (40, 40, 220), np.uint8))
    results = holdfast.evaluate(
        str(photos / "images"), models=[f"{toy_models}:colour"], scenarios="stylised", stylist=str(stylist),
        styles=str(tmp_path / "styles"), out=tmp_path / "run",
    )  # fmt: skip
    rows = results.rows().to_pylist()
    assert {row["donor_id"] for row in rows} <= {"styles/disc/red.png", "styles/plain.png"}
    assert all(row["donor_label"] == ("disc" if "disc" in row["donor_id"] else "") for row in rows)
    assert all(row["donor_label"] != row["label"] and row["prediction"] == "disc" for row in rows)


def test_filled_backgrounds_keep_every_pixel_but_the_hole(migan: Path, tmp_path: Path, toy_models: str) -> None:
    photos = make_photos(tmp_path / "photos", count=2)
    image = cv2.imread(str(photos / "images" / "disc" / "0.png"), cv2.IMREAD_COLOR_RGB)
    mask = cv2.imread(str(photos / "masks" / "disc" / "0.png"), cv2.IMREAD_GRAYSCALE) > 0
    filled = made("only_background", image, mask, context(tools(fill=f"migan:{migan}"), image))
    hole = (filled == 77).all(2)
    assert hole[mask].all() and hole.sum() < 2.5 * mask.sum()
    np.testing.assert_array_equal(filled[~hole], image[~hole])
    near = cv2.dilate(mask.view(np.uint8), np.ones((5, 5), np.uint8)) > 0
    np.testing.assert_array_equal(filled[~near], image[~near])
    asked = (str(photos / "images"), "--masks", str(photos / "masks"), "--models", f"{toy_models}:colour")
    runs = []
    for more in ([], ["--fill", f"migan:{migan}"]):
        call = ["eval", *asked, "--scenarios", "original,only_background", "--out", str(tmp_path / "run"), *more]
        assert CliRunner().invoke(app, call).exit_code == 0
        runs.append({row["row_id"]: row for row in holdfast.open_run(tmp_path / "run").run.rows().to_pylist()})
    shared = [runs[1][name]["condition"] for name in runs[0].keys() & runs[1].keys()]
    assert len(runs[1]) == 12 and shared == ["original"] * 6


def test_donors_lend_backgrounds_without_their_object(migan: Path, tmp_path: Path, toy_models: str) -> None:
    photos = make_photos(tmp_path / "photos", count=2)
    asked = (str(photos / "images"), "--masks", str(photos / "masks"), "--scenarios")
    borrowed = "original,random_background,same_class_background"
    runs = {}
    for name, more in {"tiled": (), "filled": ("--fill", f"migan:{migan}")}.items():
        call = ["eval", *asked, borrowed, "--models", f"{toy_models}:colour", "--out", str(tmp_path / "run"), *more]
        assert CliRunner().invoke(app, call).exit_code == 0
        runs[name] = {row["row_id"]: row for row in holdfast.open_run(tmp_path / "run").run.rows().to_pylist()}
        call = ["synth", *asked, "random_background", "--out", str(tmp_path / name), "--workers", "1", *more]
        assert CliRunner().invoke(app, call).exit_code == 0
    shared = [runs["filled"][row_id]["condition"] for row_id in runs["tiled"].keys() & runs["filled"].keys()]
    assert len(runs["filled"]) == 18 and shared == ["original"] * 6
    for row in runs["filled"].values():
        assert row["status"] == "ok" and row["donor_unmasked"] in (None, False)
    pictures = {
        name: [cv2.imread(str(file)) for file in sorted((tmp_path / name).rglob("*.png")) if "mask" not in str(file)]
        for name in ("tiled", "filled")
    }
    assert len(pictures["filled"]) == 6
    for tiled, filled in zip(pictures["tiled"], pictures["filled"], strict=True):
        assert (filled == 77).all(2).sum() > 20 > (tiled == 77).all(2).sum()


def test_fast_borrows_the_same_filled_backgrounds(migan: Path, tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos", count=3)
    (tmp_path / "names.txt").write_text("cross\ndisc\nsquare\n")
    model = f"timm:test_resnet?pretrained=false&num_classes=3&size=32&labels={tmp_path / 'names.txt'}"
    answers = {}
    for fill in ("", f"migan:{migan}"):
        for fast in (False, True):
            results = holdfast.evaluate(
                str(photos / "images"), masks=str(photos / "masks"), models=[model], scenarios="random_background",
                fill=fill, fast=fast, device="cpu", out=tmp_path / f"{bool(fill)}{fast}",
            )  # fmt: skip
            rows = sorted(results.rows().to_pylist(), key=lambda row: row["sample_id"])
            answers[bool(fill), fast] = np.array([row["confidence"] for row in rows])
    np.testing.assert_allclose(answers[True, True], answers[True, False], atol=1e-5)
    assert np.abs(answers[True, True] - answers[False, True]).max() > 1e-3


def test_mistakes_are_sentences(stylist: Path, migan: Path, tmp_path: Path, toy_models: str) -> None:
    photos = make_photos(tmp_path / "photos", count=2)
    call = ["eval", str(photos / "images"), "--models", f"{toy_models}:colour", "--out", str(tmp_path / "run")]
    (tmp_path / "text.onnx").write_text("no network")
    (tmp_path / "empty").mkdir()
    twice = save_stylist(tmp_path / "twice")
    (twice / "draw.onnx").write_bytes((twice / "read.onnx").read_bytes())
    for more, said in {
        ("--scenarios", "stylised"): "stylised needs a network that stylises: --stylist FOLDER",
        ("--scenarios", "grey", "--stylist", str(stylist)): "--stylist is for stylised conditions, which",
        (
            "--scenarios",
            "grey",
            "--fill",
            f"migan:{migan}",
        ): "--fill is for only_background and borrowed",
        ("--scenarios", "stylised", "--stylist", str(tmp_path / "empty")): "should be a folder with two ONNX files",
        ("--scenarios", "stylised", "--stylist", str(twice)): "one file should take a style image",
        ("--scenarios", "only_background", "--fill", "lama:x"): "migan:FILE names an ONNX file",
        ("--scenarios", "only_background", "--fill", f"migan:{tmp_path}/text.onnx"): "not an ONNX model",
        ("--scenarios", "only_background", "--fill", f"migan:{stylist}/read.onnx"): "an image and a mask as bytes",
        ("--scenarios", "stylised", "--stylist", str(stylist), "--styles", str(tmp_path / "empty")): "has no images",
    }.items():
        ended = CliRunner().invoke(app, [*call, *more])
        assert isinstance(ended.exception, UserError) and said in str(ended.exception), (more, ended.output)
    with pytest.raises(UserError, match="cannot be trained on"):
        holdfast.train(
            photos, architectures=["embedded:resnet_rho0"], scenarios="stylised", folds=2, out=tmp_path / "trained"
        )
    bare = SampleContext(Sample("photo", "own", FileImage("")), DonorPool([], max_pixels=DEFAULT_MAX_PIXELS))
    with pytest.raises(SampleError, match="no network to stylise with"):
        bare.stylise(np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4, 3), np.uint8), 1)


@pytest.mark.skipif(not WEIGHTS.is_dir(), reason="the weights of arbitrary style transfer are not here")
def test_the_real_network_carries_the_styles_colours_over() -> None:
    loaded = tools(stylist=str(WEIGHTS))
    assert isinstance(loaded.stylist, StyleTransfer)
    photo = next((SHARED / "photos" / "pets12" / "images").rglob("*.jpg"))
    image = cv2.imread(str(photo), cv2.IMREAD_COLOR_RGB)
    rng = np.random.default_rng(0)
    style = np.clip(np.array([30, 60, 200]) + rng.normal(0, 40, (256, 256, 1)), 0, 255).astype(np.uint8)
    nothing, half, whole = (loaded.stylist(image, style, strength).astype(float) for strength in (0, 0.5, 1))
    assert whole.shape == image.shape
    blueness = [picture[..., 2].mean() - picture[..., 0].mean() for picture in (nothing, half, whole)]
    assert blueness[0] < blueness[1] < blueness[2] and blueness[2] > 40
    grey = [cv2.cvtColor(p.astype(np.uint8), cv2.COLOR_RGB2GRAY).ravel() for p in (nothing, image)]
    assert np.corrcoef(*grey)[0, 1] > 0.8  # at 0 it is the image, drawn again
    np.testing.assert_array_equal(loaded.stylist(image, style, 0.5), half)
