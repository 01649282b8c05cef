"""``holdfast ask`` as a process against a real server process: trouble is rows, keys stay secret, kills lose little."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

import holdfast
from commands import HOLDFAST, run
from holdfast.core.errors import UserError
from holdfast.store import Run

SERVER = Path(__file__).parents[1] / "models" / "chat_server.py"
KEY = "sk-very-secret-0123456789"
Table = Callable[..., list[dict[str, object]]]


@pytest.fixture
def server() -> Iterator[int]:
    with subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def seen(server: int) -> dict:
    with urlopen(f"http://127.0.0.1:{server}/seen") as response:
        return json.load(response)


def model(server: int, name: str, options: str = "retries=0&backoff=0.01") -> str:
    return f"vlm+http://127.0.0.1:{server}/v1#{name}?{options}"


def command(photos: Path, models: str, out: Path, *more: str) -> list[str]:
    return [*HOLDFAST, "ask", str(photos), "--models", models, "--questions", "full_list", "--out", str(out), *more]


def test_every_kind_of_trouble_in_one_run(photos: Path, server: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    names = ["sees", "broken", "refuses", "refuses-by-field", "empty", "huge", "chatty", "too-large"]
    with pytest.raises(UserError, match=r"broken gave no answer at all: .*huge gave no .*too-large gave no"):
        holdfast.ask(photos, models=[model(server, name) for name in names], out=out, questions="full_list", limit=3)
    results = holdfast.open_run(out)
    found = results.questions().set_index("model")
    assert found.loc["vlm+http:sees", "strict"] == 1  # the image arrived as it is
    for name, column in (("refuses", "refusal"), ("refuses-by-field", "refusal"), ("empty", "unmatched")):
        row = found.loc[f"vlm+http:{name}"]
        assert (row["n"], row["strict"], row["lenient"], row[column]) == (3, 0, 0, 1)
    chatty = [row for row in results.rows().to_pylist() if row["model"] == "vlm+http:chatty"]
    assert [row["prediction"] for row in chatty] == [None] * 3  # a sentence, so nothing strictly; but leniently:
    assert all(row["prediction_restricted"] in ("cross", "disc", "square") for row in chatty)
    for name in ("broken", "huge", "too-large"):
        assert tuple(found.loc[f"vlm+http:{name}", ["n", "errors"]]) == (0, 3)
    errors = {row["error"] for row in results.rows().to_pylist() if row["status"] == "error"}
    assert len(errors) == 3 and any("not a chat completion" in one for one in errors)


def test_the_key_is_nowhere(photos: Path, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    names = ["sees", "repeats-key", "refuses", "broken"]
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    done = run(*command(photos, ",".join(model(server, name) for name in names), out)[len(HOLDFAST) :], code=2)
    holdfast.report([out], out / "report")
    refused = run(*command(photos, model(server, "wants-key"), tmp_path / "refused")[len(HOLDFAST) :], code=2)
    assert "refuses the key" in refused.stderr and "[key]" in refused.stderr and "HOLDFAST_API_KEY" in refused.stderr
    assert seen(server)["keys"][0] == f"Bearer {KEY}"
    told = [done.stdout, done.stderr, refused.stdout, refused.stderr]
    assert not any(KEY in text for text in told)
    files = [path for folder in (out, tmp_path / "refused") for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    answers = [row["raw_text"] for row in Run.open(out).rows().to_pylist() if row["model"] == "vlm+http:repeats-key"]
    assert all("Bearer [key]" in one for one in answers)
    assert KEY not in json.dumps(Run.open(out).rows().to_pylist(), default=str)  # Parquet is compressed


def test_no_server_stops_the_run_and_errors_can_be_tried_again(photos: Path, server: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    nobody = "vlm+http://127.0.0.1:9#sees?retries=0&concurrency=1"
    with pytest.raises(UserError, match=r"nothing answers at 127\.0\.0\.1:9.*retry_errors="):
        holdfast.ask(photos, models=nobody, questions="full_list", out=out)
    kept = Run.open(out).rows().to_pylist()
    assert 0 < len(kept) < 12 and {row["status"] for row in kept} == {"error"}
    results = holdfast.ask(photos, models=model(server, "sees"), questions="full_list", out=out, retry_errors=True)
    assert [row["correct"] for row in results.rows().to_pylist()] == [True] * 12


def test_kill_9_and_run_again(photos: Path, server: int, tmp_path: Path, table_of: Table) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    slowly = model(server, "crawls", "concurrency=1&name=one")
    with subprocess.Popen(command(photos, slowly, out, "-q", "--batch-size", "1")) as process:
        while not list((out / "predictions").glob("part-*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    kept = Run.open(out).rows().num_rows
    assert 0 < kept < 12
    asked = seen(server)["requests"]
    holdfast.ask(photos, models=model(server, "crawls", "concurrency=4&name=one"), questions="full_list", out=out)
    assert seen(server)["requests"] - asked in (12 - kept, 13 - kept)  # the killed one may still have been on its way
    assert seen(server)["most"] <= 5
    holdfast.ask(photos, models=model(server, "crawls", "concurrency=12&name=one"), questions="full_list", out=whole)
    assert table_of(Run.open(out)) == table_of(Run.open(whole))
    assert Run(out).details("answers").stored_ids() == Run.open(out).predictions.stored_ids()
