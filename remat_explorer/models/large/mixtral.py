"""Mixtral: Llama's blocks with several experts, each of which takes a fixed number of tokens."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.large.decoder import DecoderShape, decoder_entry

EXPERTS, CHOSEN = 8, 2
SEQUENCE = 32768  # Jiang et al., "Mixtral of experts", 2024, table 1: context_len

# The same table; theta by config.json of mistralai/Mixtral-8x7B-v0.1.
SHAPE = DecoderShape(32000, 4096, 32, 32, 8, 14336, 1e6, 1e-5)


class Experts(nn.Module):
    """Several SwiGLU layers, of which each token takes a few: Jiang et al., 2024, section 2.1.

    How many tokens an expert takes is fixed, so that no shape depends on the data: capacity = tokens * chosen / experts
    * factor, as in Lepikhin et al., "GShard", ICLR 2021, section 2.2. An expert that more tokens chose takes those with
    the largest weights, and the others go past it; one that fewer chose fills up with tokens of weight 0. With as
    many tokens for each expert, and a factor of 1, it computes what Mixtral does.

    Args:
        width, inner: channels outside and inside of an expert.
        experts: how many there are.
        chosen: how many a token chooses.
        factor: of the capacity.
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
        """How many tokens an expert takes.

        >>> Experts(4, 8, experts=8, chosen=2).capacity(32768)
        8192
        """
        return min(tokens, math.ceil(tokens * self.chosen / self.experts * self.factor))

    def _routing(self, tokens: torch.Tensor) -> torch.Tensor:
        """Weights of shape (tokens, experts): a softmax over the chosen ones, and 0 for the others."""
        scores, chosen = self.router(tokens).topk(self.chosen, dim=1)
        weights = functional.softmax(scores, dim=1, dtype=torch.float32).to(tokens.dtype)
        return torch.zeros_like(tokens[:, : self.experts]).scatter(1, chosen, weights)


def experts(shape: DecoderShape) -> nn.Module:
    """The feed-forward layers of Mixtral."""
    return Experts(shape.width, shape.inner, EXPERTS, CHOSEN)


ENTRIES = {"mixtral_8x7b": decoder_entry(SHAPE, SEQUENCE, experts)}
