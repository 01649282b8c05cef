"""The operations behind the annotate page: what they refuse, and what reaches the disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import cv2
import httpx
import numpy as np
import pytest
from annotate_world import HEIGHT, WIDTH, open_set, scene, silent, stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from holdfast.core.errors import SampleError, UserError
from holdfast.core.protocols import MaskProposal
from holdfast.data.masks import decode_coco
from holdfast.data.writers import mask_rle
from holdfast.registry import annotators
from holdfast_people.web.services.mask_editing import take_in
from web_server import Serving, serving

Point = tuple[float, float]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("annotate")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Serving]:
    with serving(place / "state") as found:
        open_set(found.state, place)
        yield found


@pytest.fixture(scope="module")
def client(server: Serving) -> httpx.Client:
    return server.client(name="Ann")


def work(mask: np.ndarray, base: int, **other: object) -> dict[str, object]:
    height, width = mask.shape
    return {"base": base, "height": height, "width": width, "counts": mask_rle(mask), "editor": "test"} | other


def version(client: httpx.Client, drawing: int = 1) -> int:
    return int(client.get(f"/api/annotate/masks/{drawing}").json()["version"])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays(np.bool_, (HEIGHT, WIDTH), elements=st.booleans(), fill=st.booleans()))
def test_any_mask_reaches_the_disk(client: httpx.Client, place: Path, mask: np.ndarray) -> None:
    saved = client.put("/api/annotate/masks/1", json=work(mask, version(client)))
    assert saved.status_code == 200 and np.array_equal(stored(place), mask)
    shown = client.get("/api/annotate/masks/1").json()
    assert shown["mask"]["counts"] == mask_rle(mask) and shown["status"] == "draft"


def test_a_conflict_answers_with_the_newest(server: Serving, client: httpx.Client, place: Path) -> None:
    first, second = np.zeros((HEIGHT, WIDTH), bool), np.ones((HEIGHT, WIDTH), bool)
    assert client.put("/api/annotate/masks/2", json=work(first, 0)).status_code == 200
    refused = server.client(name="Ben").put("/api/annotate/masks/2", json=work(second, 0, editor="his"))
    assert refused.status_code == 409 and refused.json()["detail"] == "Ann saved this mask since you opened it"
    newest = refused.json()["newest"]
    assert newest["person"] == "Ann" and newest["mask"]["counts"] == mask_rle(first)
    assert not stored(place, "ball/1").any()
    assert server.stranger().put("/api/annotate/masks/2", json=work(second, 1)).status_code == 401


@pytest.mark.parametrize(
    "change",
    [
        {"height": HEIGHT + 1},
        {"height": 60_000, "width": 60_000, "counts": "0"},  # would be 3.6 GB, were it decoded
        {"counts": "0"},
        {"counts": "zzzz"},
        {"counts": "o" * 100},
        {"counts": "1" * (2 * HEIGHT * WIDTH + 17)},
        {"counts": "\x00"},
        {"counts": 7},
        {"base": -1},
        {"editor": "../../x"},
        {"path": "/etc/passwd"},
        {"name": "ball/0"},  # of another image
    ],
)
def test_what_is_no_mask_of_the_image_is_refused(client: httpx.Client, place: Path, change: dict[str, object]) -> None:
    before, number = stored(place, "ball/2"), version(client, 3)
    sent = work(np.ones((HEIGHT, WIDTH), bool), number) | change
    answer = client.put("/api/annotate/masks/3", json=sent)
    assert answer.status_code in (400, 404, 413, 422) and "detail" in answer.json()
    assert np.array_equal(stored(place, "ball/2"), before) and version(client, 3) == number


def test_a_body_without_end_is_refused(client: httpx.Client) -> None:
    sent = work(np.ones((HEIGHT, WIDTH), bool), 0, counts="1" * (33 << 20))
    assert client.put("/api/annotate/masks/3", json=sent).status_code == 413


def test_rough_masks(client: httpx.Client) -> None:
    url = "/api/annotate/masks/3/rough"
    rough = client.post(url, json={"box": [45, 25, 115, 95], "inside": [[80, 60]], "outside": [[46, 26]]})
    answer = rough.json()
    mask = decode_coco({"size": [HEIGHT, WIDTH], "counts": answer["counts"]}, HEIGHT, WIDTH)
    truth = cv2.circle(np.zeros((HEIGHT, WIDTH), np.uint8), (80, 60), 30, 1, -1).astype(bool)
    assert (mask & truth).sum() / (mask | truth).sum() > 0.9 and mask[60, 80] and not mask[26, 46]
    assert client.post("/api/annotate/masks/3/prepare").status_code == 204
    for wrong in (
        {},
        {"inside": [[500, 500]]},
        {"box": [0, 0, "NaN", 1]},
        {"inside": [[1]]},
        {"inside": [[1, 1]] * 201},
    ):
        assert client.post(url, json=wrong).status_code in (400, 422)
    assert client.get("/api/annotate/masks/3").json()["version"] == version(client, 3), "a rough mask is not saved"


class Looker:
    """A mask maker that counts: the box is the mask, or a disc's worth around the last point inside."""

    name = fingerprint = "looker"

    def __init__(self) -> None:
        self.embedded: list[int] = []
        self.at_work, self.most_at_work = 0, 0
        self.may_go_on = Event()
        self.may_go_on.set()

    def embed(self, image: np.ndarray) -> np.ndarray:
        self.embedded.append(int(image.sum()))
        return image

    def propose(self, image: np.ndarray) -> MaskProposal:
        return MaskProposal(np.ones(image.shape[:2], bool), 1.0)

    def guided(
        self, embedding: np.ndarray, *, box: object = None, inside: Sequence[Point] = (), outside: Sequence[Point] = ()
    ) -> MaskProposal:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        time.sleep(0.02)
        assert self.may_go_on.wait(120)
        self.at_work -= 1
        mask = np.zeros(embedding.shape[:2], bool)
        mask[int(inside[-1][1]), int(inside[-1][0])] = True
        return MaskProposal(mask, 0.5)


@pytest.fixture
def looker() -> Iterator[Looker]:
    one = Looker()
    annotators.register("looker", lambda name: one, summary="a test's own")
    yield one
    annotators.remove("looker")


def test_an_image_is_embedded_once(tmp_path: Path, looker: Looker) -> None:
    with serving(tmp_path / "state") as server:
        take_in(server.state, str(scene(tmp_path / "data")), masks=tmp_path / "masks", guide="looker", progress=silent)
        client = server.client()

        def ask(number: int) -> bool:
            drawing, x = 1 + number % 2, number
            client.post(f"/api/annotate/masks/{drawing}/prepare").raise_for_status()
            answer = client.post(f"/api/annotate/masks/{drawing}/rough", json={"inside": [[x, 0]]}).json()
            mask = decode_coco({"size": [HEIGHT, WIDTH], "counts": answer["counts"]}, HEIGHT, WIDTH)
            return bool(mask.sum() == 1 and mask[0, x])

        with ThreadPoolExecutor(6) as threads:
            assert all(threads.map(ask, range(24)))
    assert len(looker.embedded) == len(set(looker.embedded)) == 2 and looker.most_at_work == 1


def test_images_that_were_passed_are_not_prepared(tmp_path: Path, looker: Looker) -> None:
    looker.may_go_on.clear()
    with serving(tmp_path / "state") as server:
        take_in(
            server.state, str(scene(tmp_path / "data", 5)), masks=tmp_path / "masks", guide="looker", progress=silent
        )
        client, other = server.client(), server.client()
        with ThreadPoolExecutor(6) as threads:
            busy = threads.submit(other.post, "/api/annotate/masks/1/rough", json={"inside": [[1, 1]]})
            while not looker.at_work:
                time.sleep(0.01)
            waiting = []
            for drawing in (2, 3, 4, 5):  # someone leafs through the images
                client.get(f"/api/annotate/masks/{drawing}").raise_for_status()
                waiting.append(threads.submit(client.post, f"/api/annotate/masks/{drawing}/prepare"))
            assert all(one.result().status_code == 204 for one in waiting[:3])
            assert not busy.done(), "no one waits for what they passed"
            looker.may_go_on.set()
            assert busy.result().status_code == 200 and waiting[3].result().status_code == 204
    assert len(looker.embedded) == 2, "the image at work and the one that is open"


def test_an_image_that_the_mask_maker_does_not_take(tmp_path: Path, looker: Looker) -> None:
    def refuse(image: np.ndarray) -> np.ndarray:
        raise SampleError("too narrow")

    looker.embed = refuse  # type: ignore[method-assign]
    with serving(tmp_path / "state") as server:
        take_in(server.state, str(scene(tmp_path / "data")), masks=tmp_path / "masks", guide="looker", progress=silent)
        client = server.client()
        assert client.post("/api/annotate/masks/1/prepare").status_code == 204
        rough = client.post("/api/annotate/masks/1/rough", json={"inside": [[1, 1]]})
        assert rough.status_code == 400 and rough.json()["detail"] == "too narrow"


def test_lists(client: httpx.Client) -> None:
    url = "/api/annotate/sets/1/images"
    assert [one["name"] for one in client.get(url).json()["images"]] == ["ball/0", "ball/1", "ball/2"]
    assert client.get(url, params={"text": "L/1"}).json()["total"] == 1
    assert client.get(url, params={"label": "bal"}).json()["total"] == 0
    page = client.get(url, params={"offset": 1, "limit": 1}).json()
    assert page["total"] == 3 and [one["id"] for one in page["images"]] == [2]
    assert client.get(url, params={"show": "everything"}).status_code == 422
    for missing in ("sets/99", "masks/99", "masks/99/versions", "masks/1/versions/9999"):
        assert client.get(f"/api/annotate/{missing}").status_code == 404, missing
    assert client.get("/annotate/99").status_code == 404


def test_masks_are_not_written_among_the_images(server: Serving, place: Path) -> None:
    with pytest.raises(UserError, match="choose another --masks"):
        take_in(server.state, str(place / "data"), masks=place / "data", guide="grabcut", progress=silent)
    with pytest.raises(UserError, match="takes no box"):
        take_in(server.state, str(place / "data"), masks=place / "other", guide="threshold", progress=silent)
