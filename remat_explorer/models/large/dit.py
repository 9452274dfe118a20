"""DiT-XL/2: a diffusion model that is a transformer on patches of latents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from remat_explorer.models.entry import Entry
from remat_explorer.models.large.timesteps import CHANNELS, LATENT, TimestepEmbedding, noise_loss, noisy_latents
from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import Task
from remat_explorer.models.transformer import SelfAttention, feed_forward

FREQUENCIES, CLASSES, PATCH = 256, 1000, 2
EPSILON = 1e-6  # of the layer normalization, in the authors' code


@dataclass(frozen=True)
class DiTShape:
    """What a DiT is made of: channels of a position, blocks, and heads of attention."""

    width: int
    layers: int
    heads: int


class DiTBlock(nn.Module):
    """Peebles and Xie, ICCV 2023, figure 3: adaLN-Zero. Scales, shifts and gates come from time and class."""

    def __init__(self, shape: DiTShape) -> None:
        super().__init__()
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(shape.width, 6 * shape.width))
        self.norm1 = nn.LayerNorm(shape.width, EPSILON, elementwise_affine=False)
        self.attention = SelfAttention(shape.width, shape.heads)
        self.norm2 = nn.LayerNorm(shape.width, EPSILON, elementwise_affine=False)
        self.feed_forward = feed_forward(shape.width, nn.GELU("tanh"))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).unsqueeze(1).chunk(6, 2)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.feed_forward(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """From latents (batch, 4, height, width), steps and classes (batch,) to noise and its variance in 8 channels.

    Source: Peebles and Xie, ICCV 2023, section 3.2. Positions are sines that are not trained; the class after the last
    stands for none. The variance, which the paper trains by a bound of its own, takes part in no loss here.

    Args:
        shape: what it is made of.
        image: height and width in pixels, of which latents have an eighth.
    """

    def __init__(self, shape: DiTShape, image: tuple[int, int]) -> None:
        super().__init__()
        self.sides = image[0] // LATENT // PATCH, image[1] // LATENT // PATCH
        self.patches = nn.Conv2d(CHANNELS, shape.width, PATCH, PATCH)
        self.steps = TimestepEmbedding(FREQUENCIES, shape.width)
        self.classes = nn.Embedding(CLASSES + 1, shape.width)
        self.blocks = nn.ModuleList(DiTBlock(shape) for _ in range(shape.layers))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(shape.width, 2 * shape.width))
        self.norm = nn.LayerNorm(shape.width, EPSILON, elementwise_affine=False)
        self.head = nn.Linear(shape.width, PATCH * PATCH * 2 * CHANNELS)
        self.register_buffer("positions", _waves(self.sides, shape.width), persistent=False)

    def forward(self, latents: torch.Tensor, steps: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        condition = self.steps(steps) + self.classes(classes)
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.modulation(condition).unsqueeze(1).chunk(2, 2)
        x = self.head(self.norm(x) * (1 + scale) + shift)
        x = x.unflatten(1, self.sides).unflatten(
            3, (PATCH, PATCH, -1)
        )  # batch, rows, columns, inner row, column, channel
        return x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


def _waves(sides: tuple[int, int], width: int) -> torch.Tensor:
    """Sines and cosines of each patch's row and column, of shape (1, patches, width)."""
    frequencies = 10000.0 ** -(torch.arange(width // 4) / (width // 4))
    rows, columns = torch.meshgrid(*(torch.arange(float(side)) for side in sides), indexing="ij")
    angles = [place.flatten()[:, None] * frequencies for place in (columns, rows)]
    return torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], 1).unsqueeze(0)


def _make(size: Size, generator: torch.Generator) -> tuple[Any, torch.Tensor]:
    latents, steps, noise = noisy_latents(size, generator)
    return (latents, steps, torch.randint(CLASSES, (size.batch,), generator=generator)), noise


def _entry(shape: DiTShape) -> Entry:
    def build(size: Size) -> DiT:
        return DiT(replace(shape, layers=size.layers or shape.layers), size.image_sides)

    side = LATENT * PATCH
    sizes = SizeRule(Size(256, image=(256, 256), layers=shape.layers), smallest=side, multiple=side)  # section 4
    return Entry(build, sizes, Task(_make, noise_loss))


ENTRIES = {"dit_xl": _entry(DiTShape(1152, 28, 16))}  # table 1 of the paper
