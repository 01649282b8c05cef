"""A real server process that behaves well and badly: what is asked of it, retried, refused and kept secret."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import parse_name
from holdfast.core.protocols import Refusal, VisionLanguageModel
from holdfast.core.remote import Patience, retry_after
from holdfast.models import is_vlm, load_vlm

QUESTION = "What is the main object in this image? Choose from the following list: fox, ice cream."
Load = Callable[..., VisionLanguageModel]
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server() -> Iterator[int]:
    file = Path(__file__).with_name("chat_server.py")
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture
def load(server: int, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.delenv("HOLDFAST_API_KEY", raising=False)

    def make(model: str, options: str = "", path: str = "/v1") -> VisionLanguageModel:
        return load_vlm(f"vlm+http://127.0.0.1:{server}{path}#{model}?backoff=0.01&{options or 'retries=3'}")

    return make


def seen(server: int) -> dict:
    with urlopen(f"http://127.0.0.1:{server}/seen") as response:
        return json.load(response)


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def red_square() -> np.ndarray:
    image = np.zeros((32, 32, 3), np.uint8)
    image[8:24, 8:24] = (220, 40, 40)
    return image


@pytest.mark.parametrize("encoding", ["png", "jpeg"])
def test_a_question_arrives_whole(load: Load, server: int, encoding: str) -> None:
    model = load("sees", f"image={encoding}&max_tokens=7")
    assert model.answer([red_square()], [QUESTION]) == ["disc"]  # red is the disc's colour, so channels are in order
    (body,) = seen(server)["bodies"]
    assert body["temperature"] == 0 and body["max_tokens"] == 7 and body["model"] == "sees"
    assert body["messages"][0].startswith(f"data:image/{encoding};base64,")
    assert body["messages"][1] == QUESTION
    assert seen(server)["path"] == "/v1/chat/completions"
    assert seen(server)["keys"] == [""]


def test_paths_that_name_the_endpoint(load: Load, server: int, image: np.ndarray) -> None:
    for path in ("", "/", "/v1/", "/v1/chat/completions"):
        assert load("first", path=path).answer([image], [QUESTION]) == ["fox"]
        assert seen(server)["path"] == "/v1/chat/completions"


def test_it_comes_back_after_the_pause_a_busy_server_asks_for(load: Load, server: int, image: np.ndarray) -> None:
    assert load("busy").answer([image], [QUESTION]) == ["fox"]
    first, second = seen(server)["times"]
    assert second - first >= 1.0  # Retry-After, not the backoff of 0.01 s


def test_5xx_and_hangs_are_tried_again(load: Load, server: int, image: np.ndarray) -> None:
    assert load("flaky").answer([image], [QUESTION]) == ["fox"]
    assert load("hangs-once", "retries=1&timeout=2").answer([image], [QUESTION]) == ["fox"]
    assert seen(server)["requests"] == 5


@pytest.mark.parametrize(
    ("model", "options", "sentence", "requests"),
    [
        ("down", "retries=2", "3 attempts: status 503", 3),
        ("hangs", "retries=1&timeout=0.5", "2 attempts: no answer in 0.5 s", 2),
        ("drips", "retries=0&timeout=0.5", "1 attempt: no answer in 0.5 s", 1),
        ("drops", "retries=1", "2 attempts: the connection broke", 2),
        ("broken", "retries=1", "2 attempts: a response that is not a chat completion", 2),
        ("strange", "retries=0", "not a chat completion", 1),
        ("huge", "retries=3", f"larger than {Patience().largest >> 20} MB", 1),
        ("too-large", "retries=3", "refuses the request with status 413: the image is too large", 1),
    ],
)
def test_what_stays_wrong_is_that_images_trouble(
    load: Load, server: int, image: np.ndarray, model: str, options: str, sentence: str, requests: int
) -> None:
    with pytest.raises(SampleError, match=sentence):
        load(model, options).answer([image], [QUESTION])
    assert seen(server)["requests"] == requests


def test_a_server_that_is_not_there_stops_the_run(image: np.ndarray) -> None:
    model = load_vlm("vlm+http://127.0.0.1:9#llava?retries=0")
    for _ in range(2):
        with pytest.raises(SampleError, match="no connection"):
            model.answer([image], [QUESTION])
    with pytest.raises(UserError, match=r"nothing answers at 127\.0\.0\.1:9"):
        model.answer([image], [QUESTION])


def test_answers_that_are_none(load: Load, image: np.ndarray) -> None:
    assert load("empty").answer([image], [QUESTION]) == [""]
    assert load("null").answer([image], [QUESTION]) == [""]
    (plain,) = load("refuses").answer([image], [QUESTION])
    assert plain.startswith("I'm sorry") and not isinstance(plain, Refusal)
    (marked,) = load("refuses-by-field").answer([image], [QUESTION])
    assert isinstance(marked, Refusal) and marked == "This goes against what is allowed here."


def test_several_at_once_but_not_more(load: Load, server: int, image: np.ndarray) -> None:
    questions = [QUESTION.replace("fox", f"fox {number}") for number in range(12)]
    answers = load("slow", "concurrency=3").answer([image] * 12, questions)
    assert answers == [f"fox {number}" for number in range(12)]
    assert seen(server)["most"] == 3


def test_no_more_a_minute_than_allowed(load: Load, server: int, image: np.ndarray) -> None:
    load("first", "per_minute=600&concurrency=4").answer([image] * 6, [QUESTION] * 6)
    times = sorted(seen(server)["times"])
    assert times[-1] - times[0] >= 0.45  # six requests are five gaps of 0.1 s


def test_redirects_are_not_followed(
    load: Load, server: int, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    with pytest.raises(UserError, match=f"redirects to localhost:{server}, and redirects are not followed"):
        load_vlm(f"vlm+http://127.0.0.1:{server}#redirects").answer([image], [QUESTION])
    assert seen(server)["elsewhere"] == 0


def test_the_key_comes_from_the_environment_and_stays_secret(
    server: int, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    monkeypatch.setenv("OTHER_KEY", "sk-other")
    address = f"vlm+http://127.0.0.1:{server}"
    model = load_vlm(f"{address}#repeats-key")
    assert model.answer([image], [QUESTION]) == ["fox Bearer [key]"]
    assert KEY not in repr(model) and KEY not in f"{model.name} {model.fingerprint}"
    with pytest.raises(UserError) as refused:
        load_vlm(f"{address}#wants-key").answer([image], [QUESTION])
    assert "refuses the key" in str(refused.value) and "HOLDFAST_API_KEY" in str(refused.value)
    assert KEY not in "".join(traceback.format_exception(refused.value)) and "[key]" in str(refused.value)
    with pytest.raises(SampleError) as cut:  # where the message is cut, half of the key must not be left of it
        load_vlm(f"{address}#long-complaint").answer([image], [QUESTION])
    assert "no no no" in str(cut.value) and KEY[:4] not in str(cut.value)
    load_vlm(f"{address}#first?key_env=OTHER_KEY").answer([image], [QUESTION])
    assert seen(server)["keys"] == [f"Bearer {KEY}"] * 3 + ["Bearer sk-other"]
    monkeypatch.delenv("OTHER_KEY")
    with pytest.raises(UserError, match="OTHER_KEY"):
        load_vlm(f"{address}#first?key_env=OTHER_KEY")
    monkeypatch.setenv("HOLDFAST_API_KEY", "two\nlines")
    with pytest.raises(UserError, match="characters that no key has") as strange:
        load_vlm(f"{address}#first")
    assert "two" not in str(strange.value)


def test_name_and_fingerprint_do_not_depend_on_the_address() -> None:
    one = load_vlm("vlm+http://localhost:8000/v1#llava:7b?timeout=5&concurrency=1")
    other = load_vlm("vlm+https://elsewhere#llava:7b")
    assert one.name == other.name == "vlm+http:llava:7b"
    assert one.fingerprint == other.fingerprint
    assert load_vlm("vlm+http://localhost#llava:7b?image=jpeg").fingerprint != one.fingerprint
    assert load_vlm("vlm+http://localhost#other").fingerprint != one.fingerprint
    assert load_vlm("vlm+http://localhost#org/model@v2?name=mine").name == "mine"
    assert isinstance(one, VisionLanguageModel)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("vlm+http://localhost:8000/v1", "HOST:PORT/v1#MODEL"),
        ("vlm+http:#llava", "HOST:PORT/v1#MODEL"),
        ("vlm+http://localhost:99999#llava", "HOST:PORT/v1#MODEL"),
        ("vlm+http://localhost#m?image=gif", "no image format is called 'gif'"),
        ("vlm+http://localhost#m?retrys=3", "did you mean retries"),
        ("vlm+http://localhost#m?concurrency=0", "between 1 and 256"),
        ("vlm+http://localhost#m?timeout=0", "between 0.01 and 3600"),
    ],
)
def test_mistakes_in_a_name(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load_vlm(name)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match="holds no password") as refused:
        load_vlm("vlm+http://user:hunter2@localhost#m")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(UserError) as unknown:
        load_vlm("vlm+http://localhost#m?key=hunter2")
    assert "hunter2" not in str(unknown.value)


def test_the_grammar_of_names() -> None:
    name = parse_name("vlm+http://[::1]:8000/v1#llava:7b?max_tokens=9", tagged=False)
    assert (name.scheme, name.name, name.options) == ("vlm+http", "//[::1]:8000/v1#llava:7b", {"max_tokens": 9})
    assert is_vlm("vlm+https://h#m") and is_vlm("vlm:folder") and not is_vlm("timm:resnet50") and not is_vlm("folder/x")


def test_retry_after() -> None:
    from email.utils import formatdate

    assert retry_after(None) == retry_after("soon") == retry_after("nan") == 0
    assert retry_after("2.5") == 2.5
    assert retry_after("1e9") == 1e9 and retry_after("-3") == 0
    assert 5 < retry_after(formatdate(time.time() + 10, usegmt=True)) <= 10
    assert retry_after(formatdate(time.time() - 10, usegmt=True)) == 0
