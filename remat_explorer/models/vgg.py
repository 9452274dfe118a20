"""VGG: stacks of 3 x 3 convolutions."""

from __future__ import annotations

import torch
from torch import nn

_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """Configuration D of Simonyan and Zisserman, ICLR 2015, table 1, with its dropout.

    Images smaller than the published 224 pixels get a smaller grid before the first linear layer.
    """

    def __init__(self, image: tuple[int, int] = (224, 224), classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for block in _BLOCKS:
            for width in block:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        height, width = (min(7, side // 32) for side in image)
        self.features = nn.Sequential(*layers)
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
