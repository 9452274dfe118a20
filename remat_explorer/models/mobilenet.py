"""MobileNet: depthwise separable convolutions, and inverted residuals of them."""

from __future__ import annotations

import torch
from torch import nn

from remat_explorer.models.entry import Entry, Size, SizeRule, label_images

# channels after each block, and its stride: Howard et al., arXiv 1704.04861, table 1. The last stride is 1: with the
# printed 2 the sizes in the same table would not follow.
SEPARABLE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
# expansion, channels, repeats, stride of the first: Sandler et al., CVPR 2018, table 2
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class MobileNetV1(nn.Module):
    """Howard et al., "MobileNets", arXiv 1704.04861, table 1."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers, channels = _convolution(3, 32, 3, nn.ReLU, stride=2), 32
        for width, stride in SEPARABLE:
            layers += _convolution(channels, channels, 3, nn.ReLU, stride, groups=channels)
            layers += _convolution(channels, width, 1, nn.ReLU)
            channels = width
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.features(x)), 1))


class InvertedResidual(nn.Module):
    """Sandler et al., CVPR 2018, figure 4(d): expand, filter each channel, project without activation."""

    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        expand = _convolution(before, wide, 1, nn.ReLU6) if expansion != 1 else []
        self.layers = nn.Sequential(
            *expand,
            *_convolution(wide, wide, 3, nn.ReLU6, stride, groups=wide),
            nn.Conv2d(wide, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.residual = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    """Sandler et al., CVPR 2018, table 2, with the dropout of 0.2 that torchvision puts before the last layer."""

    def __init__(self, classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        layers, channels = _convolution(3, 32, 3, nn.ReLU6, stride=2), 32
        for expansion, width, repeats, stride in INVERTED:
            for repeat in range(repeats):
                layers.append(InvertedResidual(channels, width, 1 if repeat else stride, expansion))
                channels = width
        self.features = nn.Sequential(*layers, *_convolution(channels, 1280, 1, nn.ReLU6))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(1280, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(torch.flatten(self.pool(self.features(x)), 1)))


def _convolution(
    before: int, after: int, kernel: int, activation: type[nn.ReLU] | type[nn.ReLU6], stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(after), activation(inplace=True)]


ENTRIES = {
    "mobilenet_v1": Entry(
        lambda size: MobileNetV1(),
        SizeRule(Size(512, image=(224, 224)), smallest=64),  # Checkmate (Jain et al., MLSys 2020), figure 5
        label_images(1000),
    ),
    "mobilenet_v2": Entry(
        lambda size: MobileNetV2(),
        SizeRule(Size(272, image=(224, 224)), smallest=64),  # MONeT (Shah et al., ICLR 2021), section 5
        label_images(1000),
    ),
}
