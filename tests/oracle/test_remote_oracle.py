"""Oracles over HTTP: a real server, its budget, its cache, and what goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import holdfast
from holdfast.core.errors import UserError
from holdfast.data.labels import map_labels
from holdfast.models import load_classifier
from holdfast.oracle import card, load_oracle
from holdfast.testing import check_oracle

CLASSES = ("lamp", "coal", "cat")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [sys.executable, str(Path(__file__).with_name("oracle_server.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.terminate()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def requests(port: int) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as response:
        return dict(json.load(response))


def oracle(port: int, model: str, options: str = "", classes: tuple[str, ...] = CLASSES):
    text = f"http://127.0.0.1:{port}/v1#{model}" + (f"?{options}" if options else "")
    return load_oracle(text, classes=classes, load_classifier=load_classifier, map_labels=map_labels)


def grey(level: int, side: int = 16) -> np.ndarray:
    return np.full((side, side, 3), level, np.uint8)


def test_verdicts_are_asked_for_once_and_kept(port: int) -> None:
    judge = oracle(port, "plain", "backoff=0")
    images, labels = [grey(200), grey(30), grey(200)], ["lamp", "lamp", "lamp"]
    before = requests(port)["requests"]
    light, dark, again = judge.judge(images, labels)
    assert light.accepted and light.saw == "lamp" and again == light
    assert not dark.accepted and dark.reason == "too dark" and dark.score == pytest.approx(30 / 255, abs=0.01)
    assert requests(port)["requests"] == before + 2
    # Another process with the same folder pays nothing.
    assert oracle(port, "plain").judge(images, labels) == [light, dark, again]
    assert requests(port)["requests"] == before + 2
    assert len(Path("oracle-answers/calls.jsonl").read_text().split()) == 4, "two lines of two words"
    check_oracle(judge)
    assert "127.0.0.1" in dict(card(judge))["Oracle"]


def test_scores_are_judged_by_the_rule(port: int) -> None:
    strict, plain = oracle(port, "scores", "min_margin=0.5"), oracle(port, "scores")
    for judge, accepted in ((plain, True), (strict, False)):
        verdict = judge.judge([grey(140)], ["lamp"])[0]
        assert verdict.accepted is accepted and verdict.saw == "lamp"
        assert verdict.margin == pytest.approx(140 / 255 - (1 - 140 / 255) / 2, abs=0.01)
    assert "more like lamp" in plain.judge([grey(200)], ["cat"])[0].reason
    assert strict.fingerprint != plain.fingerprint


def test_the_budget_stops_and_a_larger_one_goes_on(port: int) -> None:
    images, labels = [grey(level) for level in (50, 60, 70, 80)], ["coal"] * 4
    with pytest.raises(UserError, match="budget of 3 calls is spent"):
        oracle(port, "plain", "budget=3&parallel=1").judge(images, labels)
    before = requests(port)["requests"]
    assert len(oracle(port, "plain", "budget=4").judge(images, labels)) == 4
    assert requests(port)["requests"] == before + 1


def test_trouble(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert oracle(port, "busy", "backoff=0").judge([grey(220)], ["lamp"])[0].accepted, "it is asked again"
    for model, sentence in (
        ("refuses", "not allowed"),
        ("words", "not a verdict in JSON"),
        ("large", "larger than 1 MB"),
    ):
        with pytest.raises(UserError, match=sentence):
            oracle(port, model, "retries=1&backoff=0").judge([grey(220)], ["lamp"])
    with pytest.raises(UserError, match="gave no verdict: the server did not answer"):
        oracle(1, "plain", "retries=0&timeout=1").judge([grey(1)], ["lamp"])
    monkeypatch.setenv("HOLDFAST_API_KEY", "secret-key")
    keyed = oracle(port, "plain", "side=32")
    keyed.judge([grey(99, 100)], ["lamp"])
    seen = requests(port)
    assert seen["keys"][-1] == "Bearer secret-key" and seen["sides"][-1] == 32
    assert "secret" not in keyed.name + Path("oracle-answers/calls.jsonl").read_text()
    with Path("oracle-answers/answers.jsonl").open("a") as file:
        file.write('\n{"question": "cut o')
    after = oracle(port, "plain", "side=32")
    assert after.judge([grey(99, 100), grey(3)], ["lamp", "lamp"])
    calls = requests(port)["requests"]
    assert oracle(port, "plain", "side=32").judge([grey(3)], ["lamp"]) and requests(port)["requests"] == calls


@pytest.mark.parametrize(
    ("options", "sentence"),
    [("budgt=3", "budget"), ("side=2", "8 or more"), ("parallel=0", "1 or more"), ("space=all", "dataset's classes"),
     ("timeout=0", "timeout"), ("retries=x", "is not a int"), ("key_env=NOT_THERE", "NOT_THERE")],
)  # fmt: skip
def test_bad_options(options: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        oracle(9, "plain", options)
    with pytest.raises(UserError, match="#MODEL"):
        load_oracle("http://host/v1", classes=CLASSES, load_classifier=load_classifier, map_labels=map_labels)


def test_a_walk_asks_it(port: int, tmp_path: Path) -> None:
    results = holdfast.perturb(
        "diorama:test?n=2", models=["embedded:resnet_rho95"], generator="pixel:", oracle=f"http://127.0.0.1:{port}#plain",
        steps=3, step_size=0.01, random_walk=False, out=tmp_path / "run", device="cpu",
    )  # fmt: skip
    rows = results.rows().to_pandas()
    assert {"ok"} <= set(rows["status"]) and rows["oracle"].dropna().str.contains("#plain").all()
    before = requests(port)["requests"]
    holdfast.perturb(
        "diorama:test?n=2", models=["embedded:resnet_rho95"], generator="pixel:", oracle=f"http://127.0.0.1:{port}#plain",
        steps=3, step_size=0.01, random_walk=False, out=tmp_path / "again", device="cpu",
    )  # fmt: skip
    assert requests(port)["requests"] == before, "the same walk is paid for once"
