"""GoogLeNet: four branches side by side in each module."""

from __future__ import annotations

import torch
from torch import nn

from remat_explorer.models.entry import Entry, Size, SizeRule, label_images

# channels after each branch, and inside the two that reduce first: 1x1, (reduce, 3x3), (reduce, "5x5"), pool.
# Szegedy et al., CVPR 2015, table 1; None is a max-pooling that halves the sides.
MODULES = (
    (64, (96, 128), (16, 32), 32),
    (128, (128, 192), (32, 96), 64),
    None,
    (192, (96, 208), (16, 48), 64),
    (160, (112, 224), (24, 64), 64),
    (128, (128, 256), (24, 64), 64),
    (112, (144, 288), (32, 64), 64),
    (256, (160, 320), (32, 128), 128),
    None,
    (256, (160, 320), (32, 128), 128),
    (384, (192, 384), (48, 128), 128),
)


class Inception(nn.Module):
    """The module of Szegedy et al., CVPR 2015, figure 2(b)."""

    def __init__(self, before: int, plain: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> None:
        super().__init__()
        self.plain = nn.Sequential(*_convolution(before, plain, 1))
        self.three = nn.Sequential(*_convolution(before, three[0], 1), *_convolution(*three, 3))
        self.five = nn.Sequential(*_convolution(before, five[0], 1), *_convolution(*five, 3))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), *_convolution(before, pool, 1))
        self.channels = plain + three[1] + five[1] + pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.plain(x), self.three(x), self.five(x), self.pool(x)], 1)


class GoogLeNet(nn.Module):
    """Szegedy et al., CVPR 2015, table 1, without its two auxiliary classifiers.

    As in torchvision, where MONeT took it from: batch normalization after every convolution instead of local response
    normalization, 3 x 3 convolutions where the table has 5 x 5, and a dropout of 0.2. MONeT kept the auxiliary
    classifiers.
    """

    def __init__(self, classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *_convolution(3, 64, 7, stride=2),
            _halving(),
            *_convolution(64, 64, 1),
            *_convolution(64, 192, 3),
            _halving(),
        )
        layers: list[nn.Module] = []
        channels = 192
        for widths in MODULES:
            if widths is None:
                layers.append(_halving())
                continue
            inception = Inception(channels, *widths)
            layers.append(inception)
            channels = inception.channels
        self.inceptions = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(torch.flatten(self.pool(self.inceptions(self.stem(x))), 1)))


def _convolution(before: int, after: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]


def _halving() -> nn.MaxPool2d:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


ENTRIES = {
    "googlenet": Entry(
        lambda size: GoogLeNet(),
        SizeRule(Size(320, image=(224, 224)), smallest=64),  # MONeT (Shah et al., ICLR 2021), section 5
        label_images(1000),
    )
}
