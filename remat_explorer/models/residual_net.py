"""A small residual network with batch normalization and dropout."""

from __future__ import annotations

import torch
from torch import nn

from remat_explorer.models.entry import Entry
from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import label_images


class ResidualBlock(nn.Module):
    """The basic block of He et al., CVPR 2016, figure 5 (left), with a projection where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.convolution2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut(before, after, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm1(self.convolution1(x)))
        y = self.norm2(self.convolution2(y))
        return self.relu(y + self.shortcut(x))


def shortcut(before: int, after: int, stride: int) -> nn.Module:
    """What goes around a residual block: nothing, or a projection where the shape changes (option B of the paper)."""
    if stride == 1 and before == after:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


class ResidualNet(nn.Module):
    """The CIFAR-10 network of He et al., CVPR 2016, section 4.2, with one block per width, and dropout at the end."""

    def __init__(self, classes: int = 10, dropout: float = 0.2) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(torch.flatten(self.pool(self.blocks(self.stem(x))), 1)))


ENTRIES = {
    "residual_net": Entry(
        lambda size: ResidualNet(),
        SizeRule(Size(128, image=(32, 32)), smallest=8),  # section 4.2 of the paper
        label_images(10),
    )
}
