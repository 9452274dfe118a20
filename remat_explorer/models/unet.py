"""U-Net: a contracting and an expanding path with long skip connections."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class UNet(nn.Module):
    """Ronneberger, Fischer and Brox, MICCAI 2015, figure 1, with padded convolutions so that sizes stay."""

    def __init__(self, classes: int = 2, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        befores = [3, *widths]
        self.down = nn.ModuleList(_two_convolutions(befores[level], widths[level]) for level in range(depth + 1))
        levels = range(depth - 1, -1, -1)
        self.up = nn.ModuleList(nn.ConvTranspose2d(widths[level + 1], widths[level], 2, 2) for level in levels)
        self.merge = nn.ModuleList(_two_convolutions(2 * widths[level], widths[level]) for level in levels)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped: list[torch.Tensor] = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            skipped.append(x)
        skipped.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skipped.pop(), up(x)], 1))
        return self.head(x)


def _two_convolutions(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, padding=1),
        nn.ReLU(inplace=True),
    )
