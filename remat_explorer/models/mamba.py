"""Mamba: blocks of a convolution and a selective scan, without attention.

The scan is in plain torch, in as many steps as the sequence has binary digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry, Size, SizeRule, predict_tokens
from remat_explorer.models.transformer import RMSNorm

SEQUENCE = 2048  # Gu and Dao, "Mamba", 2023, section 4.2.1
EPSILON = 1e-5  # of RMSNorm, in the authors' code


def selective_scan(
    x: torch.Tensor, steps: torch.Tensor, decay: torch.Tensor, entering: torch.Tensor, leaving: torch.Tensor
) -> torch.Tensor:
    """Output of a state space model whose matrices depend on the input: Gu and Dao, "Mamba", 2023, algorithm 2.

    ``x`` and ``steps`` are (batch, tokens, channels), as the output in float32, ``decay`` is A, negative, (channels,
    states), ``entering`` and ``leaving`` are B and C, (batch, tokens, states). A is discretized by zero-order hold and
    B by Euler's rule, as in the authors' code. The recurrence h[t] = a[t] h[t-1] + b[t] is computed for all t at once
    by doubling: Hillis and Steele, "Data parallel algorithms", CACM 1986. The authors' kernel keeps no states; here all
    of them are values.
    """
    x, steps, decay, entering, leaving = (tensor.float() for tensor in (x, steps, decay, entering, leaving))
    a = torch.exp(steps.unsqueeze(3) * decay)
    b = (steps * x).unsqueeze(3) * entering.unsqueeze(2)
    distance = 1
    while distance < x.shape[1]:
        b = b + a * _later(b, distance)
        if 2 * distance < x.shape[1]:
            a = a * _later(a, distance)
        distance *= 2
    return torch.matmul(b, leaving.unsqueeze(3)).squeeze(3)


def _later(tensor: torch.Tensor, distance: int) -> torch.Tensor:
    """What stood ``distance`` tokens before, and zeros where nothing did."""
    return functional.pad(tensor[:, :-distance], (0, 0, 0, 0, distance, 0))


@dataclass(frozen=True)
class MambaShape:
    """What a Mamba is made of: numbers of the authors' code, names of the paper's section 3."""

    vocabulary: int
    width: int
    layers: int
    states: int = 16  # of each channel (N)
    expansion: int = 2  # of the channels inside of a block (E)
    window: int = 4  # tokens that the convolution sees
    tied: bool = True  # the embedding of the tokens is also the last layer's weight

    @property
    def inner(self) -> int:
        """Channels inside of a block."""
        return self.expansion * self.width

    @property
    def rank(self) -> int:
        """Channels that the steps of discretization come from."""
        return math.ceil(self.width / 16)


class MambaBlock(nn.Module):
    """Gu and Dao, 2023, figure 3 and section 3.4, with the normalization and addition around it."""

    def __init__(self, shape: MambaShape) -> None:
        super().__init__()
        self.norm = RMSNorm(shape.width, EPSILON)
        self.enter = nn.Linear(shape.width, 2 * shape.inner, bias=False)
        self.convolution = nn.Conv1d(
            shape.inner, shape.inner, shape.window, groups=shape.inner, padding=shape.window - 1
        )
        self.select = nn.Linear(shape.inner, shape.rank + 2 * shape.states, bias=False)
        self.step = nn.Linear(shape.rank, shape.inner)
        self.decay_logarithm = nn.Parameter(torch.arange(1.0, shape.states + 1).log().repeat(shape.inner, 1))
        self.skip = nn.Parameter(torch.ones(shape.inner))
        self.leave = nn.Linear(shape.inner, shape.width, bias=False)
        self.parts = (shape.rank, shape.states, shape.states)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        entered, gate = self.enter(self.norm(x)).chunk(2, 2)
        seen = self.convolution(entered.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        seen = functional.silu(seen)
        step, entering, leaving = self.select(seen).split(self.parts, 2)
        steps = functional.softplus(self.step(step))
        scanned = selective_scan(seen, steps, -self.decay_logarithm.exp(), entering, leaving)
        mixed = (scanned + seen * self.skip).to(gate.dtype) * functional.silu(gate)
        return x + self.leave(mixed)


class Mamba(nn.Module):
    """From tokens of shape (batch, sequence) to logits of shape (batch, sequence, vocabulary)."""

    def __init__(self, shape: MambaShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.blocks = nn.Sequential(*(MambaBlock(shape) for _ in range(shape.layers)))
        self.norm = RMSNorm(shape.width, EPSILON)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(tokens))))


def _entry(shape: MambaShape) -> Entry:
    def build(size: Size) -> Mamba:
        return Mamba(replace(shape, layers=size.layers or shape.layers, tied=bool(size.tied)))

    sizes = SizeRule(Size(1, sequence=SEQUENCE, layers=shape.layers, tied=shape.tied), endless=True)
    return Entry(build, sizes, predict_tokens(shape.vocabulary))


# Table 12 of the paper; the vocabulary is GPT-NeoX's, filled up to a multiple of 8, as in the authors' code.
ENTRIES = {"mamba_130m": _entry(MambaShape(50280, 768, 24))}
