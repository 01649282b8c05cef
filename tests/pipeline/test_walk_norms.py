"""The kernels of walks on a GPU, run on the CPU by Triton's interpreter, against torch in float64."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

KERNELS = """
import torch
from torch import nn
from torch.nn import functional

from holdfast.pipeline.walk import norms

norms.TILE, norms.STEPS = 64, 2
torch.manual_seed(0)
for shape, groups, silu in (((2, 6, 5, 3), 3, True), ((2, 8, 4, 4), 2, False), ((2, 6, 11), 2, True)):
    images, slopes = 3 * torch.randn(shape) + 5, torch.randn(shape)
    weight, bias, added = torch.randn(shape[1]), torch.randn(shape[1]), torch.randn(shape[1])
    answers = []
    for ours, number in ((True, torch.float32), (False, torch.float64)):
        pixels = images.to(number).requires_grad_()
        arguments = (pixels, groups, weight.to(number), bias.to(number), 1e-5)
        if ours:
            normed = norms.NormedSilu.apply(*arguments, silu, added)
        else:
            per_channel = added.to(number).view(1, -1, *[1] * (len(shape) - 2))
            normed = functional.group_norm(pixels + per_channel, *arguments[1:])
            normed = functional.silu(normed) if silu else normed
        answers.append((normed.detach(), *torch.autograd.grad(normed, pixels, slopes.to(number))))
    for mine, exact in zip(*answers, strict=True):
        assert (mine - exact).abs().max() < 1e-5, (shape, float((mine - exact).abs().max()))


for shape in ((2, 6, 5, 3), (1, 4, 1, 40)):
    images, slopes = torch.randn(shape), torch.randn(*shape[:2], 2 * shape[2], 2 * shape[3])
    answers = []
    for enlarge in (norms.Doubled.apply, lambda pixels: functional.interpolate(pixels, scale_factor=2.0)):
        pixels = images.clone().requires_grad_()
        large = enlarge(pixels)
        answers.append((large.detach(), *torch.autograd.grad(large, pixels, slopes)))
    assert torch.equal(answers[0][0], answers[1][0]) and (answers[0][1] - answers[1][1]).abs().max() < 1e-6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.batch = nn.BatchNorm2d(4).eval()
        self.batch.running_mean.normal_(), self.batch.running_var.uniform_(0.5, 2), self.batch.weight.data.normal_()
        self.first, self.second = nn.GroupNorm(2, 4), nn.GroupNorm(2, 4)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.requires_grad_(False)

    def forward(self, images):
        hidden = self.conv(functional.silu(self.first(images)))
        twice = self.second(hidden)  # read by others, too
        hidden = self.batch((functional.silu(twice) + twice + images) / 1.0)
        hidden = hidden + self.conv(hidden)  # a sum adds the bias of the convolution
        hidden = self.conv(images) + self.conv(hidden)
        hidden = hidden + functional.relu(read := self.conv(hidden)) * read.mean()  # read twice by other functions
        assert read.shape == hidden.shape
        return self.conv(functional.interpolate(hidden, scale_factor=2.0, mode="nearest"))


block, images = Block(), torch.randn(2, 4, 5, 5)
block.conv.bias.copy_(torch.randn(4))
watched = norms.WatchedSteps()
with torch.no_grad(), watched:
    block(images)
assert watched.followed == {id(block.first.weight)} and watched.biases == {id(block.conv.bias)}
answers = []
for mode in (torch.autocast("cpu", enabled=False), norms.FastSteps(watched)):
    pixels = images.clone().requires_grad_()
    with mode, torch.autocast("cpu", torch.bfloat16, enabled=isinstance(mode, norms.FastSteps)):
        image = block(pixels).float()
    answers.append((image.detach(), *torch.autograd.grad(image.square().sum(), pixels)))
for exact, mine in zip(*answers, strict=True):
    assert (mine - exact).abs().max() < 0.03 * exact.abs().max(), float((mine - exact).abs().max())
"""

GENERATOR = """
from holdfast.data import load_collection
from holdfast.data.labels import map_labels
from holdfast.generators import load_generator
from holdfast.models import load_classifier
from holdfast.oracle.classifier import TensorClassifierOracle
from holdfast.oracle.loading import AcceptanceRule
from holdfast.pipeline.walk.norms import FastSteps
from holdfast.pipeline.walk.walk import UnderTest, WalkOptions
from holdfast.pipeline.walk.walk_step import Stepper

photo = load_collection("diorama:test?n=1&size=64")
classifier = load_classifier("embedded:resnet_rho0", device="cpu")
labels = map_labels(photo.classes, photo.keys, classifier.labels)
oracle = TensorClassifierOracle(classifier, labels, photo.classes, AcceptanceRule())
generator = load_generator("embedded:vqgan", device="cpu")
stepper = Stepper(generator, UnderTest(classifier, labels), oracle, WalkOptions(precision="bfloat16"))
state = stepper.begin([photo.samples[0].image.load()], [0], [0])
steps = stepper._fast_steps(state["latent"], state["original"])
assert isinstance(steps, FastSteps) and len(steps._followed) > 10  # picture and gradient are those of autocast
"""


def run_interpreted(text: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ended = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_norms_and_their_gradients_are_torchs() -> None:
    run_interpreted(KERNELS)


@pytest.mark.slow  # the interpreter takes ten seconds for one image
def test_a_trained_decoder_makes_the_same_picture_and_gradient() -> None:
    run_interpreted(GENERATOR)
