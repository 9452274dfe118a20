"""Decoders of language: Llama and Qwen, which differ in numbers, and Mixtral, whose feed-forward layers are experts.

Blocks of grouped queries with rotary positions, RMSNorm and SwiGLU; Qwen adds biases of queries, keys and values (2.5),
or normalizes queries and keys (3). `reported_llama` is the model of a report about PyTorch's activation memory budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry, Size, SizeRule, predict_tokens
from remat_explorer.models.transformer import Attention, RMSNorm, Rotation, rotation_of

DEVIATION = 0.02  # of the normal distribution of weights, as in the configurations of all three
_LLAMA_VOCABULARY, _LLAMA_THETA, _LLAMA_EPSILON, _LLAMA_GROUPS = 128256, 500000.0, 1e-5, 8
_LLAMA_SEQUENCE = 8192  # Grattafiori et al., "The Llama 3 herd of models", 2024, section 3.4.1
_QWEN_VOCABULARY, _QWEN_THETA, _QWEN_EPSILON = 151936, 1e6, 1e-6
# Of most of the training: Qwen2.5 technical report, section 3.3; Qwen3 technical report, section 3.2
_QWEN_SEQUENCE = 4096
_MIXTRAL_EXPERTS, _MIXTRAL_CHOSEN = 8, 2
_MIXTRAL_SEQUENCE = 32768  # Jiang et al., "Mixtral of experts", 2024, table 1: context_len
_REPORTED_LAYERS, _REPORTED_TOKENS = 32, 2048


@dataclass(frozen=True)
class DecoderShape:
    """What a decoder is made of."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    groups: int  # heads of keys and values
    inner: int
    theta: float  # base of the rotary frequencies
    epsilon: float  # of RMSNorm
    head: int | None = None  # channels of a head; None for width / heads
    biases: str = ""  # which linear layers of attention have one, by the letters q, k, v and o
    normalized: bool = False  # RMSNorm of queries and keys
    tied: bool = False  # whether the embedding of the tokens is also the last layer's weight

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
    """From tokens of shape (batch, sequence) to logits of shape (batch, sequence, vocabulary)."""

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


# Table 3 of that paper; the 1B model of Llama 3.2 by config.json of meta-llama/Llama-3.2-1B.
_LLAMA_SHAPES = {
    "llama3.2_1b": DecoderShape(
        _LLAMA_VOCABULARY, 2048, 16, 32, _LLAMA_GROUPS, 8192, _LLAMA_THETA, _LLAMA_EPSILON, tied=True
    ),
    "llama3_8b": DecoderShape(_LLAMA_VOCABULARY, 4096, 32, 32, _LLAMA_GROUPS, 14336, _LLAMA_THETA, _LLAMA_EPSILON),
    "llama3_70b": DecoderShape(_LLAMA_VOCABULARY, 8192, 80, 64, _LLAMA_GROUPS, 28672, _LLAMA_THETA, _LLAMA_EPSILON),
}


# Qwen2.5 technical report, 2024, table 1, and Qwen3 technical report, 2025, table 1; widths and the rest by config.json
# of Qwen/Qwen2.5-0.5B and Qwen/Qwen3-8B.
_QWEN_SHAPES = {
    "qwen2.5_0.5b": DecoderShape(
        _QWEN_VOCABULARY, 896, 24, 14, 2, 4864, _QWEN_THETA, _QWEN_EPSILON, biases="qkv", tied=True
    ),
    "qwen3_8b": DecoderShape(
        _QWEN_VOCABULARY, 4096, 36, 32, 8, 12288, _QWEN_THETA, _QWEN_EPSILON, head=128, normalized=True
    ),
}


# The same table; theta by config.json of mistralai/Mixtral-8x7B-v0.1.
_MIXTRAL_SHAPE = DecoderShape(32000, 4096, 32, 32, 8, 14336, 1e6, 1e-5)


class Experts(nn.Module):
    """Several SwiGLU layers, of which each token takes a few: Jiang et al., 2024, section 2.1.

    How many tokens an expert takes is fixed, so that no shape depends on the data: capacity = tokens * chosen / experts
    * factor, as in Lepikhin et al., "GShard", ICLR 2021, section 2.2. An expert that more tokens chose takes those with
    the largest weights, and the others go past it; one that fewer chose fills up with tokens of weight 0. With as many
    tokens for each expert, and a factor of 1, it computes what Mixtral does.
    """

    def __init__(self, width: int, inner: int, experts: int, chosen: int, factor: float = 1.0) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.gate = nn.Parameter(torch.empty(experts, width, inner))
        self.up = nn.Parameter(torch.empty(experts, width, inner))
        self.down = nn.Parameter(torch.empty(experts, inner, width))
        for weight in (self.gate, self.up, self.down):
            nn.init.normal_(weight, std=width**-0.5)
        self.experts, self.chosen, self.factor = experts, chosen, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        weights, taken = self._routing(tokens).topk(self.capacity(tokens.shape[0]), dim=0)
        places = taken.transpose(0, 1).flatten()  # of an expert's tokens, one expert after the other
        given = tokens.index_select(0, places).unflatten(0, (self.experts, -1))
        inner = functional.silu(torch.bmm(given, self.gate)) * torch.bmm(given, self.up)
        found = torch.bmm(inner, self.down) * weights.transpose(0, 1).unsqueeze(2)
        mixed = torch.zeros_like(tokens, dtype=found.dtype).index_add(0, places, found.flatten(0, 1))
        return mixed.unflatten(0, x.shape[:2])

    def capacity(self, tokens: int) -> int:
        """How many tokens an expert takes."""
        return min(tokens, math.ceil(tokens * self.chosen / self.experts * self.factor))

    def _routing(self, tokens: torch.Tensor) -> torch.Tensor:
        """Weights of shape (tokens, experts): a softmax over the chosen ones, and 0 for the others."""
        scores, chosen = self.router(tokens).topk(self.chosen, dim=1)
        weights = functional.softmax(scores, dim=1, dtype=torch.float32).to(tokens.dtype)
        return torch.zeros_like(tokens[:, : self.experts]).scatter(1, chosen, weights)


def experts(shape: DecoderShape) -> nn.Module:
    """The feed-forward layers of Mixtral."""
    return Experts(shape.width, shape.inner, _MIXTRAL_EXPERTS, _MIXTRAL_CHOSEN)


_REPORTED_SHAPE = DecoderShape(0, 256, _REPORTED_LAYERS, 4, 4, 1024, 1e4, 1e-5)


class ReportedLlama(nn.Module):
    """From hidden states of shape (batch, tokens, 256) to the mean square of the last ones, a scalar.

    With it a non-monotone peak of PyTorch's activation memory budget was reported: pytorch issue 197838, 32 blocks of
    Llama's kind and sequences of 1024 tokens. A comment there, of 2026-09-22, has results of shape (2048, 256) before
    the residual additions, and about 1 GB in four values of each feed-forward layer, which are 1024 channels in
    float32. How many sequences and heads there are, and what stands before and after the blocks, is not said; here it
    is one sequence of 2048 tokens and 4 heads, the input is the hidden states, and nothing follows but the last norm.
    """

    def __init__(self, layers: int = _REPORTED_LAYERS) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DecoderBlock(_REPORTED_SHAPE, swiglu) for _ in range(layers))
        self.norm = RMSNorm(_REPORTED_SHAPE.width, _REPORTED_SHAPE.epsilon)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rotation = rotation_of(x, _REPORTED_SHAPE.head_width, _REPORTED_SHAPE.theta)
        for block in self.blocks:
            x = block(x, rotation)
        return self.norm(x).square().mean()


def reported_llama(
    layers: int = _REPORTED_LAYERS, tokens: int = _REPORTED_TOKENS
) -> tuple[ReportedLlama, tuple[torch.Tensor]]:
    """The module and its input, the same ones in every call; fewer layers and tokens make it small."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ReportedLlama(layers), (torch.randn(1, tokens, _REPORTED_SHAPE.width),)


ENTRIES = {
    **{name: decoder_entry(shape, _LLAMA_SEQUENCE) for name, shape in _LLAMA_SHAPES.items()},
    **{name: decoder_entry(shape, _QWEN_SEQUENCE) for name, shape in _QWEN_SHAPES.items()},
    "mixtral_8x7b": decoder_entry(_MIXTRAL_SHAPE, _MIXTRAL_SEQUENCE, experts),
}
