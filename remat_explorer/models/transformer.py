"""What the transformers of the zoo share: self-attention and the feed-forward layers."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """Multi-head self-attention: Vaswani et al., NeurIPS 2017, section 3.2; queries, keys and values in one product.

    Args:
        width: channels of a position, a multiple of ``heads``.
        heads: how many attend side by side.
        dropout: share of attention weights that is dropped in training.
        causal: whether a position sees only those before it.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, causal: bool = False) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.heads, self.dropout, self.causal = heads, dropout, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.query_key_value(x).chunk(3, 2)
        )
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=self.causal)
        return self.output(seen.transpose(1, 2).flatten(2))


def feed_forward(width: int, activation: nn.Module, dropout: float = 0.0) -> nn.Sequential:
    """Two linear layers, the inner one four times as wide; a dropout above 0 follows the activation."""
    inner: list[nn.Module] = [nn.Linear(width, 4 * width), activation]
    if dropout:
        inner.append(nn.Dropout(dropout))
    return nn.Sequential(*inner, nn.Linear(4 * width, width))


def initialize(module: nn.Module) -> None:
    """Weights from a normal distribution of standard deviation 0.02, biases 0: GPT-1 and BERT, and GPT-2 after them."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
