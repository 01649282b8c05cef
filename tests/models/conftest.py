from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def photo() -> np.ndarray:
    """500 × 375 with structure at several scales."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:375, :500]
    waves = [np.sin(x / (3 + 5 * c)) * np.cos(y / (7 + 3 * c)) for c in range(3)]
    return (127 + 90 * np.stack(waves, -1) + rng.normal(0, 12, (375, 500, 3))).clip(0, 255).astype(np.uint8)


@pytest.fixture
def labels_file(tmp_path: Path) -> Path:
    file = tmp_path / "names.txt"
    file.write_text("cat\ndog\nfox\nred panda\n")
    return file


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of this room reaches for a hub."""
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
