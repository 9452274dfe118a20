"""Layers of transformers: self-attention and feed-forward layers of the first ones, attention of the large models."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

Rotation = tuple[torch.Tensor, torch.Tensor]


class SelfAttention(nn.Module):
    """Multi-head self-attention: Vaswani et al., NeurIPS 2017, section 3.2; queries, keys and values in one product."""

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


class RMSNorm(nn.Module):
    """Zhang and Sennrich, NeurIPS 2019, equation 4: entries by their root mean square, each channel with a weight.

    It computes in float32, whatever the type of its input. PyTorch's own is one operation on CUDA and several
    elsewhere, so that a graph made without a device would be another than that of the device.
    """

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Multi-head attention: Vaswani et al., NeurIPS 2017, section 3.2; grouped queries: Ainslie et al., EMNLP 2023.

    Each of the ``groups`` heads of keys and values serves ``heads / groups`` heads of queries. ``source`` is the
    channels of what keys and values are made of, where that is not x; ``biases`` the linear layers that have one, by
    the letters q, k, v and o; ``epsilon`` that of the RMSNorm of each head's queries and keys (Qwen3), None for no
    RMSNorm.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        groups: int | None = None,
        head: int | None = None,
        source: int | None = None,
        biases: str = "",
        epsilon: float | None = None,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.head, self.causal = head or width // heads, causal
        inner, outer = heads * self.head, (groups or heads) * self.head
        self.query = nn.Linear(width, inner, "q" in biases)
        self.key = nn.Linear(source or width, outer, "k" in biases)
        self.value = nn.Linear(source or width, outer, "v" in biases)
        self.output = nn.Linear(inner, width, "o" in biases)
        self.query_norm = nn.Identity() if epsilon is None else RMSNorm(self.head, epsilon)
        self.key_norm = nn.Identity() if epsilon is None else RMSNorm(self.head, epsilon)
        self.grouped = inner != outer

    def forward(
        self, x: torch.Tensor, source: torch.Tensor | None = None, rotation: Rotation | None = None
    ) -> torch.Tensor:
        seen = x if source is None else source
        query = self.query_norm(self._split(self.query(x))).transpose(1, 2)
        key = self.key_norm(self._split(self.key(seen))).transpose(1, 2)
        value = self._split(self.value(seen)).transpose(1, 2)
        if rotation is not None:
            query, key = rotated(query, rotation), rotated(key, rotation)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.causal, enable_gqa=self.grouped
        )
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        """From (batch, tokens, heads * head) to (batch, tokens, heads, head)."""
        return x.unflatten(2, (-1, self.head))


def rotation_of(x: torch.Tensor, head: int, theta: float) -> Rotation:
    """Cosines and sines, (tokens, head) each, of the angles by which each position's queries and keys are turned.

    Source: Su et al., "RoFormer", arXiv 2104.09864, equation 34. The two halves of a head are the pairs, as in the
    published weights of Llama and Qwen. What stretches the angles of Llama 3.1 and later for long inputs is left out;
    it changes numbers, not shapes.
    """
    channels = torch.arange(0, head, 2, dtype=torch.float32, device=x.device)
    positions = torch.arange(x.shape[1], dtype=torch.float32, device=x.device)
    angles = positions[:, None] * theta ** (-channels / head)
    both = torch.cat([angles, angles], -1)
    return both.cos().to(x.dtype), both.sin().to(x.dtype)


def rotated(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Queries or keys of shape (batch, heads, tokens, head), turned by their positions."""
    cosines, sines = (part.to(x.dtype) for part in rotation)  # autocast may have made other queries
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines
