"""DenseNet: every layer reads what all layers of its block before it wrote."""

from __future__ import annotations

import torch
from torch import nn

from remat_explorer.models.entry import Entry, Size, SizeRule, label_images


class DenseLayer(nn.Module):
    """Two convolutions (DenseNet-B) with normalization and ReLU before each: Huang et al., CVPR 2017, section 3.

    The features before it are concatenated here, anew in each layer, so their number grows with the square of depth.
    """

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.convolution1 = nn.Conv2d(before, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.convolution2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        x = self.convolution1(self.relu(self.norm1(torch.cat(features, 1))))
        return self.convolution2(self.relu(self.norm2(x)))


class DenseBlock(nn.Module):
    """Dense layers, and at the end the concatenation of everything."""

    def __init__(self, layers: int, before: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(before + layer * growth, growth) for layer in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    """DenseNet-BC for ImageNet: Huang et al., CVPR 2017, table 1, with halved channels between the blocks.

    Each layer adds ``growth`` channels.
    """

    def __init__(self, growth: int, layers: tuple[int, ...], classes: int = 1000) -> None:
        super().__init__()
        channels = 2 * growth
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 7, 2, 3, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        for count in layers:
            if blocks:
                blocks.append(_transition(channels))
                channels //= 2
            blocks.append(DenseBlock(count, channels, growth))
            channels += count * growth
        self.blocks = nn.Sequential(*blocks, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


def _transition(channels: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels, channels // 2, 1, bias=False)
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True), convolution, nn.AvgPool2d(2))


def _entry(growth: int, layers: tuple[int, ...]) -> Entry:
    sizes = SizeRule(Size(256, image=(224, 224)), smallest=64)  # section 4.2 of the paper
    return Entry(lambda size: DenseNet(growth, layers), sizes, label_images(1000))


ENTRIES = {"densenet121": _entry(32, (6, 12, 24, 16)), "densenet161": _entry(48, (6, 12, 36, 24))}
