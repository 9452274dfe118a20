"""A transformer of three blocks, in which operators occur several times, and what runs it under a policy."""

import torch
from torch import nn


class Block(nn.Module):
    """Attention and two linear layers, each with a residual connection, and dropout before one of them."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.query(self.before(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        attention = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(attention.transpose(1, 2).reshape(batch, length, width)))
        return x + self.inner(self.after(x))


class SmallTransformer(nn.Module):
    """Gives a number, as a model that is trained does."""

    def __init__(self, blocks: int = 3, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def example(number: int = 0) -> torch.Tensor:
    """A batch of 16 inputs."""
    return torch.randn(16, 32, 8, generator=torch.Generator().manual_seed(number))
