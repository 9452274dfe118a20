"""BERT base, with its masked language model."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry, Size, SizeRule, predict_tokens
from remat_explorer.models.transformer import SelfAttention, feed_forward, initialize

VOCABULARY, POSITIONS, SEGMENTS, WIDTH, HEADS, LAYERS, DROPOUT = 30522, 512, 2, 768, 12, 12, 0.1
EPSILON = 1e-12  # of the layer normalization, in the authors' code


class BertBlock(nn.Module):
    """The encoder layer of Vaswani et al., NeurIPS 2017, section 3.1, with GELU: normalize after each addition."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention(WIDTH, HEADS, DROPOUT)
        self.norm1 = nn.LayerNorm(WIDTH, EPSILON)
        self.feed_forward = feed_forward(WIDTH, nn.GELU())
        self.norm2 = nn.LayerNorm(WIDTH, EPSILON)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.dropout(self.attention(x)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class BERT(nn.Module):
    """From tokens of shape (batch, sequence) to logits of shape (batch, sequence, vocabulary).

    Source: Devlin et al., NAACL 2019, section 3 and appendix A.2; the head as in the authors' code: a linear layer, the
    tokens' embedding as weight, and a bias. Every token lies in the first segment, and the loss counts every position,
    not just the masked ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.segments = nn.Embedding(SEGMENTS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(BertBlock() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH, EPSILON))
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))
        self.apply(initialize)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]] + self.segments.weight[0]
        x = self.head(self.blocks(self.dropout(self.norm(x))))
        return functional.linear(x, self.tokens.weight, self.bias)


ENTRIES = {
    "bert": Entry(
        lambda size: BERT(),
        SizeRule(Size(256, sequence=POSITIONS)),  # appendix A.2 of the paper
        predict_tokens(VOCABULARY),
    )
}
