"""Images made by processes are those that threads make, in the same order; a killed process is a sentence."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.types import Image
from holdfast.data import load_collection
from holdfast.pipeline.donors import make_pool
from holdfast.pipeline.train import pictures
from holdfast.pipeline.train.on_device import DeviceTeam
from holdfast.pipeline.train.pictures import RenderedSource, Renderer, Showing, Team, showing, tensors_of
from holdfast.scenarios import parse_conditions
from shapes import CLASSES, make_photos


@dataclass(frozen=True)
class Deadly:
    """An image that ends the process that reads it."""

    def load(self, *, max_pixels: int) -> Image:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def fingerprint(self) -> str:
        return "deadly"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Showing]:
    folder = make_photos(tmp_path_factory.mktemp("pictures") / "photos", 6)
    (folder / "images" / "disc" / "3.png").write_bytes(b"not a picture")
    (folder / "masks" / "cross" / "1.png").unlink()
    (condition,) = parse_conditions("random_background@moved")
    return showing(load_collection(str(folder)).samples, condition)


@pytest.fixture(scope="module")
def renderers(shown: list[Showing]) -> Iterator[tuple[Renderer, Renderer]]:
    pool = make_pool([sample for sample, _ in shown], None, max_pixels=10**6)
    threads = Renderer(pool, 32, hashed=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "FEW", 4)
        yield threads, replace(threads, team=Team(3))


def test_processes_make_the_pictures_of_threads(shown: list[Showing], renderers: tuple[Renderer, Renderer]) -> None:
    first, second = (tensors_of(one, shown, CLASSES, masks=True) for one in renderers)
    assert torch.equal(first.images, second.images) and len(first) == 16
    assert first.masks is not None and second.masks is not None and torch.equal(first.masks, second.masks)
    assert first.facts == second.facts and first.facts[0]["image_sha256"] and first.failed == second.failed
    assert renderers[1].team._started is not None and renderers[0].team._started is None


def test_batches_made_anew_are_those_in_memory(shown: list[Showing], renderers: tuple[Renderer, Renderer]) -> None:
    labels = torch.arange(len(shown))
    orders = torch.randperm(len(shown), generator=torch.Generator().manual_seed(0)).split(4)
    for masks, channels in ((False, 3), (True, 4)):
        source = RenderedSource(renderers[1], shown, labels, masks=masks, memory=5 * channels * 32**2)
        first, batches = list(source.batches(orders)), list(source.batches(orders))
        assert len(source.kept) == 5  # in the second epoch these come from memory
        for (images, own), (other_images, other) in zip(first, batches, strict=True):
            assert torch.equal(images, other_images) and torch.equal(own, other)
        held = tensors_of(renderers[0], shown, CLASSES, masks=True)
        whole = torch.cat([held.images, held.masks[:, None].to(torch.uint8)], 1)[:, :channels]  # type: ignore[index]
        ids = [sample.sample_id for sample in held.samples]
        places = [[place for place in order.tolist() if shown[place][0].sample_id in ids] for order in orders]
        assert [own.tolist() for _, own in batches] == places
        for images, own in batches:
            expected = whole[[ids.index(shown[place][0].sample_id) for place in own.tolist()]]
            np.testing.assert_array_equal(images.numpy(), expected.numpy())


def test_a_killed_process_is_a_sentence_and_others_start_next_time(
    shown: list[Showing], renderers: tuple[Renderer, Renderer], capfd: pytest.CaptureFixture[str]
) -> None:
    sample, condition = shown[0]
    bad = (replace(sample, sample_id="bad", image=Deadly()), condition)  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="makes images was killed"):
        tensors_of(renderers[1], [bad, *shown], CLASSES)
    assert renderers[1].team._started is None


@pytest.mark.parametrize("scenario", ["random_background", "blur_background", "rainbow", "original"])
@pytest.mark.parametrize("scaled", [0, 40])
def test_a_device_makes_the_pictures_of_threads(shown: list[Showing], scenario: str, scaled: int) -> None:
    (condition,) = parse_conditions(scenario)
    wanted = [(sample, condition) for sample, _ in shown]
    pool = make_pool([sample for sample, _ in shown], None, max_pixels=10**6)
    plain = Renderer(pool, 32, seed=3, scaled=scaled)
    team = DeviceTeam("cpu", wanted, 10**6, processes=2 if scenario == "random_background" and not scaled else 0)
    try:
        for masks in (False, True):
            first = tensors_of(plain, wanted, CLASSES, masks=masks)
            second = tensors_of(replace(plain, device=team), wanted, CLASSES, masks=masks)
            assert [sample.sample_id for sample in first.samples] == [sample.sample_id for sample in second.samples]
            apart = (first.images.int() - second.images.int()).abs()
            assert (apart > 1).double().mean() < 1e-3 and (apart > 0).double().mean() < 0.05
            assert first.facts == second.facts and first.failed == second.failed
            if masks:
                assert first.masks is not None and second.masks is not None and torch.equal(first.masks, second.masks)
        labels, orders = torch.arange(len(wanted)), torch.arange(len(wanted)).flip(0).split(4)
        source = RenderedSource(replace(plain, device=team), wanted, labels, masks=True, memory=10**9)
        for _ in range(2):  # left half-way, the processes serve the next epoch
            images, own = next(iter(source.batches(orders)))
            held = [sample.sample_id for sample in second.samples]
            places = [held.index(wanted[place][0].sample_id) for place in own.tolist()]
            assert torch.equal(images[:, :3], second.images[places]) and images.shape[1] == 4
        whole = [list(source.batches(orders)) for _ in range(2)]  # in the second epoch nothing is made
        assert len(source.kept) == len(second) and all(map(torch.equal, *([p for p, _ in each] for each in whole)))
    finally:
        team.close()
