"""The model with which a non-monotone peak of PyTorch's activation memory budget was reported.

Source: pytorch issue 197838: 32 blocks of Llama's kind and sequences of 1024 tokens. A comment there, of 2026-09-22,
has results of shape (2048, 256) before the residual additions, and about 1 GB in four values of each feed-forward
layer, which are 1024 channels in float32. How many sequences and heads there are, and what stands before and after the
blocks, is not said; here it is one sequence of 2048 tokens and 4 heads, the input is the hidden states, and nothing
follows but the last norm.
"""

from __future__ import annotations

import torch
from torch import nn

from remat_explorer.models.large.attention import rotation_of
from remat_explorer.models.large.decoder import DecoderBlock, DecoderShape, swiglu
from remat_explorer.models.large.rms_norm import RMSNorm

LAYERS, TOKENS = 32, 2048
SHAPE = DecoderShape(0, 256, LAYERS, 4, 4, 1024, 1e4, 1e-5)


class ReportedLlama(nn.Module):
    """From hidden states of shape (batch, tokens, 256) to the mean square of the last ones, a scalar.

    Args:
        layers: blocks.

    >>> ReportedLlama(layers=1)(torch.zeros(1, 8, 256)).item()
    0.0
    """

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DecoderBlock(SHAPE, swiglu) for _ in range(layers))
        self.norm = RMSNorm(SHAPE.width, SHAPE.epsilon)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rotation = rotation_of(x, SHAPE.head_width, SHAPE.theta)
        for block in self.blocks:
            x = block(x, rotation)
        return self.norm(x).square().mean()


def reported_llama(layers: int = LAYERS, tokens: int = TOKENS) -> tuple[ReportedLlama, tuple[torch.Tensor]]:
    """The module and its input, the same ones in every call; fewer layers and tokens make it small.

    >>> module, (x,) = reported_llama(layers=1, tokens=16)
    >>> x.shape
    torch.Size([1, 16, 256])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ReportedLlama(layers), (torch.randn(1, tokens, SHAPE.width),)
