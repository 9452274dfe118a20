"""VGG: stacks of 3 x 3 convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import nn

from remat_explorer.models.entry import Entry, Size, SizeRule, label_images

WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS_OF_16 = (2, 2, 3, 3, 3)  # in each block: configuration D of table 1
CONVOLUTIONS_OF_19 = (2, 2, 4, 4, 4)  # configuration E


class VGG(nn.Module):
    """Configurations of Simonyan and Zisserman, ICLR 2015, table 1, with their dropout.

    Images smaller than the published 224 pixels get a smaller grid before the first linear layer.
    """

    def __init__(self, convolutions: tuple[int, ...], image: tuple[int, int] = (224, 224), classes: int = 1000) -> None:
        super().__init__()
        height, width = (min(7, side // 32) for side in image)
        self.features = nn.Sequential(*itertools.chain.from_iterable(vgg_blocks(convolutions)))
        self.pool = nn.AdaptiveAvgPool2d((height, width))
        self.classifier = nn.Sequential(
            nn.Linear(512 * height * width, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


def vgg_blocks(convolutions: tuple[int, ...]) -> Iterator[list[nn.Module]]:
    """The layers of each block: convolutions with ReLU, then pooling that halves the sides."""
    channels = 3
    for count, width in zip(convolutions, WIDTHS, strict=False):  # an encoder may stop before the last block
        layers: list[nn.Module] = []
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        yield [*layers, nn.MaxPool2d(2)]


def _entry(convolutions: tuple[int, ...]) -> Entry:
    # batch 256, 224 pixels: section 3.1 of the paper, and Checkmate (Jain et al., MLSys 2020), figure 5
    sizes = SizeRule(Size(256, image=(224, 224)), smallest=32)
    return Entry(lambda size: VGG(convolutions, size.image_sides), sizes, label_images(1000))


ENTRIES = {"vgg16": _entry(CONVOLUTIONS_OF_16), "vgg19": _entry(CONVOLUTIONS_OF_19)}
