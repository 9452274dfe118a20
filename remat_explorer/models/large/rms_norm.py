"""Normalization by the root mean square, operation by operation as Llama's authors wrote it."""

from __future__ import annotations

import torch
from torch import nn


class RMSNorm(nn.Module):
    """Zhang and Sennrich, NeurIPS 2019, equation 4: entries by their root mean square, each channel with a weight.

    It computes in float32, whatever the type of its input. PyTorch's own is one operation on CUDA and several
    elsewhere, so that a graph made without a device would be another than that of the device.

    Args:
        width: channels, the last axis.
        epsilon: added to the mean square.

    >>> x = torch.tensor([[3.0, 4.0]])
    >>> torch.allclose(RMSNorm(2, 0.0)(x), x / 12.5**0.5)
    True
    """

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale).to(x.dtype) * self.weight
