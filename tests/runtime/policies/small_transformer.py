"""A transformer of three blocks, in which operators occur several times, and what runs it under a policy."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Attention and two linear layers, each with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.query(self.before(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        attention = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, length, width))
        return x + self.inner(self.after(x))


class SmallTransformer(nn.Module):
    """Gives a number, as a model that is trained does."""

    def __init__(self, blocks: int = 3, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(blocks)], nn.Dropout(dropout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.first(x)).square().mean()
