"""The U-Net of Stable Diffusion 1: residual blocks that hear the time, and attention to the words of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry
from remat_explorer.models.large.attention import Attention
from remat_explorer.models.large.timesteps import CHANNELS, LATENT, TimestepEmbedding, noise_loss, noisy_latents
from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import Task

GROUPS = 32  # of group normalization


@dataclass(frozen=True)
class DiffusionShape:
    """What the network is made of; the fields are those of v1-inference.yaml of CompVis/stable-diffusion.

    Attributes:
        width: channels of the first level.
        multiples: of the width, for each level.
        attended: levels with attention.
        blocks: residual blocks of a level on the way down; one more on the way up.
        heads: of attention.
        words: tokens of a text.
        text: channels of a word.
    """

    width: int = 320
    multiples: tuple[int, ...] = (1, 2, 4, 4)
    attended: tuple[int, ...] = (0, 1, 2)
    blocks: int = 2
    heads: int = 8
    words: int = 77
    text: int = 768

    @property
    def time(self) -> int:
        """Channels of the embedded time."""
        return 4 * self.width


class ResidualBlock(nn.Module):
    """Two convolutions; between them the time is added: Ho et al., NeurIPS 2020, appendix B."""

    def __init__(self, before: int, after: int, time: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, before)
        self.convolution1 = nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(time, after)
        self.norm2 = nn.GroupNorm(GROUPS, after)
        self.convolution2 = nn.Conv2d(after, after, 3, padding=1)
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        inner = self.convolution1(functional.silu(self.norm1(x)))
        inner = inner + self.time(functional.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.convolution2(functional.silu(self.norm2(inner)))


class TextAttention(nn.Module):
    """A transformer block on pixels that attends to the text: Rombach et al., CVPR 2022, section 3.3."""

    def __init__(self, width: int, shape: DiffusionShape) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width, 1e-6)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = Attention(width, shape.heads, biases="o")
        self.text = Attention(width, shape.heads, source=shape.text, biases="o")
        self.inner, self.outer = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        pixels = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        pixels = pixels + self.own(self.norms[0](pixels))
        pixels = pixels + self.text(self.norms[1](pixels), text)
        value, gate = self.inner(self.norms[2](pixels)).chunk(2, 2)
        pixels = pixels + self.outer(value * functional.gelu(gate))
        return x + self.leave(pixels.transpose(1, 2).unflatten(2, x.shape[2:]))


class Level(nn.Module):
    """A residual block, and attention where the level has it."""

    def __init__(self, before: int, after: int, attended: bool, shape: DiffusionShape) -> None:
        super().__init__()
        self.block = ResidualBlock(before, after, shape.time)
        self.attention = TextAttention(after, shape) if attended else None

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        x = self.block(x, time)
        return x if self.attention is None else self.attention(x, text)


class DiffusionUNet(nn.Module):
    """From latents (batch, 4, height, width), steps (batch,) and a text (batch, words, channels) to noise.

    Source: Rombach et al., CVPR 2022, section 3.3, with the numbers of CompVis/stable-diffusion.
    """

    def __init__(self, shape: DiffusionShape) -> None:
        super().__init__()
        widths = [multiple * shape.width for multiple in shape.multiples]
        self.steps = TimestepEmbedding(shape.width, shape.time)
        self.stem = nn.Conv2d(CHANNELS, shape.width, 3, padding=1)
        self.down, skipped, now = nn.ModuleList(), [shape.width], shape.width
        for level, width in enumerate(widths):
            for _ in range(shape.blocks):
                self.down.append(Level(now, width, level in shape.attended, shape))
                now = width
                skipped.append(now)
            if level + 1 < len(widths):
                self.down.append(nn.Conv2d(now, now, 3, 2, 1))
                skipped.append(now)
        self.middle = nn.ModuleList([Level(now, now, True, shape), Level(now, now, False, shape)])
        self.up = nn.ModuleList()
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(shape.blocks + 1):
                self.up.append(Level(now + skipped.pop(), width, level in shape.attended, shape))
                now = width
            if level:
                self.up.append(nn.Conv2d(now, now, 3, padding=1))
        self.norm = nn.GroupNorm(GROUPS, now)
        self.head = nn.Conv2d(now, CHANNELS, 3, padding=1)

    def forward(self, latents: torch.Tensor, steps: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        time, x = self.steps(steps), self.stem(latents)
        skipped = [x]
        for part in self.down:
            x = part(x, time, text) if isinstance(part, Level) else part(x)
            skipped.append(x)
        for part in self.middle:
            x = part(x, time, text)
        for part in self.up:
            if isinstance(part, Level):
                x = part(torch.cat([x, skipped.pop()], 1), time, text)
            else:
                x = part(functional.interpolate(x, scale_factor=2))
        return self.head(functional.silu(self.norm(x)))


def _entry(shape: DiffusionShape) -> Entry:
    def make(size: Size, generator: torch.Generator) -> tuple[Any, torch.Tensor]:
        latents, steps, noise = noisy_latents(size, generator)
        return (latents, steps, torch.randn(size.batch, shape.words, shape.text, generator=generator)), noise

    side = LATENT * 2 ** (len(shape.multiples) - 1)
    # 32 x 8 x 2 x 4 = 2048 images of 512 x 512 pixels, on 256 devices: the model card of CompVis/stable-diffusion-v1-4
    sizes = SizeRule(Size(4, image=(512, 512)), smallest=side, multiple=side)
    return Entry(lambda size: DiffusionUNet(shape), sizes, Task(make, noise_loss))


ENTRIES = {"stable_diffusion": _entry(DiffusionShape())}
