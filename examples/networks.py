"""Architectures for ``holdfast train --architectures python:networks:NAME``; docs/training.md has a first one."""

import torch
from torch import nn


class PreActBlock(nn.Module):
    """Normalise, activate, convolve, twice, around a shortcut (He et al. 2016)."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(inside), nn.BatchNorm2d(outside)])
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        changes = stride != 1 or inside != outside
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False) if changes else None

    def forward(self, batch):
        active = torch.relu(self.norms[0](batch))
        around = self.shortcut(active) if self.shortcut is not None else batch
        return self.second(torch.relu(self.norms[1](self.first(active)))) + around


def preact_resnet(num_classes=10, width=64, blocks=2):
    """PreActResNet18 with the usual width of 64; smaller with less."""
    layers, inside = [nn.Conv2d(3, width, 3, padding=1, bias=False)], width
    for stage in range(4):
        outside = width * 2**stage
        for place in range(blocks):
            layers.append(PreActBlock(inside, outside, 2 if stage and not place else 1))
            inside = outside
    layers += [nn.BatchNorm2d(inside), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, num_classes)]
    return nn.Sequential(*layers)
