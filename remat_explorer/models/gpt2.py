"""GPT-2, the smallest of its four sizes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry, Size, SizeRule, predict_tokens
from remat_explorer.models.transformer import SelfAttention, feed_forward, initialize

VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS, DROPOUT = 50257, 1024, 768, 12, 12, 0.1


class GPT2Block(nn.Module):
    """Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3: normalize first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = SelfAttention(WIDTH, HEADS, DROPOUT, causal=True)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.feed_forward = feed_forward(WIDTH, nn.GELU("tanh"))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class GPT2(nn.Module):
    """From tokens of shape (batch, sequence) to logits of shape (batch, sequence, vocabulary).

    Source: Radford et al., 2019, section 2.3; dropout of 0.1 as in Radford et al., "Improving language understanding",
    2018, section 4.1. The embedding of the tokens is also the last layer's weight.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(GPT2Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.apply(initialize)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return functional.linear(self.norm(self.blocks(self.dropout(x))), self.tokens.weight)


ENTRIES = {
    "gpt2": Entry(
        lambda size: GPT2(),
        SizeRule(Size(512, sequence=POSITIONS)),  # section 2.3 of the paper
        predict_tokens(VOCABULARY),
    )
}
