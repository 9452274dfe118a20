"""The decoder that Llama, Qwen and Mixtral share, with what they differ in as numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry
from remat_explorer.models.large.attention import Attention, Rotation, rotation_of
from remat_explorer.models.large.rms_norm import RMSNorm
from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import predict_tokens

DEVIATION = 0.02  # of the normal distribution of weights, as in the configurations of all three


@dataclass(frozen=True)
class DecoderShape:
    """What a decoder is made of.

    Attributes:
        vocabulary: tokens that it knows.
        width: channels of a position.
        layers: blocks.
        heads, groups: of queries, and of keys and values.
        inner: channels inside the feed-forward layers.
        theta: base of the rotary frequencies.
        epsilon: of RMSNorm.
        head: channels of a head; None for ``width / heads``.
        biases: which linear layers of attention have one, as `Attention` takes them.
        normalized: whether queries and keys are normalized.
        tied: whether the embedding of the tokens is also the last layer's weight.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    groups: int
    inner: int
    theta: float
    epsilon: float
    head: int | None = None
    biases: str = ""
    normalized: bool = False
    tied: bool = False

    @property
    def head_width(self) -> int:
        """Channels of a head."""
        return self.head or self.width // self.heads


FeedForward = Callable[[DecoderShape], nn.Module]


class SwiGLU(nn.Module):
    """Feed-forward layers with a gate: Shazeer, "GLU variants improve transformer", 2020, equation 6."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


def swiglu(shape: DecoderShape) -> nn.Module:
    """The feed-forward layers of Llama and Qwen."""
    return SwiGLU(shape.width, shape.inner)


class DecoderBlock(nn.Module):
    """Normalize first, by RMSNorm (Zhang and Sennrich, NeurIPS 2019): Touvron et al., "LLaMA", 2023, section 2.2."""

    def __init__(self, shape: DecoderShape, feed_forward: FeedForward) -> None:
        super().__init__()
        self.norm1 = RMSNorm(shape.width, shape.epsilon)
        epsilon = shape.epsilon if shape.normalized else None
        self.attention = Attention(
            shape.width, shape.heads, shape.groups, shape.head, biases=shape.biases, epsilon=epsilon, causal=True
        )
        self.norm2 = RMSNorm(shape.width, shape.epsilon)
        self.feed_forward = feed_forward(shape)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), rotation=rotation)
        return x + self.feed_forward(self.norm2(x))


class Decoder(nn.Module):
    """From tokens of shape (batch, sequence) to logits of shape (batch, sequence, vocabulary).

    Args:
        shape: what it is made of.
        feed_forward: makes the feed-forward layers of a block.

    >>> shape = DecoderShape(50, width=16, layers=2, heads=4, groups=2, inner=24, theta=1e4, epsilon=1e-5)
    >>> Decoder(shape)(torch.zeros(1, 5, dtype=torch.long)).shape
    torch.Size([1, 5, 50])
    """

    def __init__(self, shape: DecoderShape, feed_forward: FeedForward = swiglu) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(DecoderBlock(shape, feed_forward) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width, shape.epsilon)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=DEVIATION)
        if shape.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        rotation = rotation_of(x, self.shape.head_width, self.shape.theta)
        for block in self.blocks:
            x = block(x, rotation)
        return self.head(self.norm(x))


def decoder_entry(shape: DecoderShape, sequence: int, feed_forward: FeedForward = swiglu) -> Entry:
    """One sequence of the published length: published batches are spread over hundreds of devices."""

    def build(size: Size) -> Decoder:
        chosen = replace(shape, layers=size.layers or shape.layers, tied=bool(size.tied))
        return Decoder(chosen, feed_forward)

    sizes = SizeRule(Size(1, sequence=sequence, layers=shape.layers, tied=shape.tied), endless=True)
    return Entry(build, sizes, predict_tokens(shape.vocabulary))
