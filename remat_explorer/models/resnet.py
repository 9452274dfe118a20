"""ResNet for ImageNet, with residual blocks of two or three convolutions, and a small residual network with dropout."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from remat_explorer.models.entry import Entry, Size, SizeRule, label_images


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


class Bottleneck(nn.Module):
    """The bottleneck block of He et al., CVPR 2016, figure 5 (right), with a projection where the shape changes.

    The 3 x 3 convolution takes the stride, as in torchvision; the paper gives it to the first one.
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        width = after // 4
        self.convolution1 = nn.Conv2d(before, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.convolution2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.convolution3 = nn.Conv2d(width, after, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut(before, after, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm1(self.convolution1(x)))
        y = self.relu(self.norm2(self.convolution2(y)))
        y = self.norm3(self.convolution3(y))
        return self.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """He et al., CVPR 2016, table 1; convolutions have no bias, since batch normalization follows each."""

    def __init__(
        self,
        block: Callable[[int, int, int], nn.Module],
        widths: tuple[int, ...],
        blocks: tuple[int, ...],
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        before, stages = 64, []
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            first = block(before, width, 2 if stage else 1)
            stages.append(nn.Sequential(first, *(block(width, width, 1) for _ in range(count - 1))))
            before = width
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(before, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


ENTRIES = {
    "residual_net": Entry(
        lambda size: ResidualNet(),
        SizeRule(Size(128, image=(32, 32)), smallest=8),  # section 4.2 of the paper
        label_images(10),
    ),
    "resnet18": Entry(
        lambda size: ResNet(ResidualBlock, (64, 128, 256, 512), (2, 2, 2, 2)),
        SizeRule(Size(256, image=(224, 224)), smallest=64),  # section 3.4 of the paper
        label_images(1000),
    ),
    "resnet50": Entry(
        lambda size: ResNet(Bottleneck, (256, 512, 1024, 2048), (3, 4, 6, 3)),
        SizeRule(Size(184, image=(224, 224)), smallest=64),  # MONeT (Shah et al., ICLR 2021), section 5
        label_images(1000),
    ),
}
