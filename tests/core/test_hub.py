"""Behind a firewall the answer comes at once; with a hub, a proxy or the user's own word nothing changes."""

from __future__ import annotations

import socket

import pytest
from huggingface_hub import constants

from holdfast.core.networks import mind_the_hub


@pytest.fixture(autouse=True)
def own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:  # a port that was free a moment ago
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    mind_the_hub()
    assert constants.HF_HUB_OFFLINE is True


def test_somebody_listens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        mind_the_hub()
    assert constants.HF_HUB_OFFLINE is False


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "https_proxy"])
def test_the_user_knows_better(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    mind_the_hub()
    assert constants.HF_HUB_OFFLINE is False
