"""Models that find the noise in latents of images: a diffusion transformer (DiT), and the U-Net of Stable Diffusion."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry, Size, SizeRule, Task
from remat_explorer.models.transformer import Attention, SelfAttention, feed_forward

LATENT, CHANNELS = 8, 4  # Rombach et al., CVPR 2022: an autoencoder makes 4 channels of each 8 x 8 pixels
STEPS = 1000  # of noise: Ho et al., NeurIPS 2020, section 4
FREQUENCIES, CLASSES, PATCH = 256, 1000, 2
EPSILON = 1e-6  # of the layer normalization, in the authors' code
GROUPS = 32  # of group normalization


class TimestepEmbedding(nn.Module):
    """From a number of steps to a vector: Ho et al., NeurIPS 2020, appendix B, by sines of Vaswani et al., 2017."""

    def __init__(self, frequencies: int, width: int) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.first, self.second = nn.Linear(frequencies, width), nn.Linear(width, width)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        half = self.frequencies // 2
        channels = torch.arange(half, dtype=torch.float32, device=steps.device)
        angles = steps[:, None].float() * torch.exp(-math.log(10000.0) / half * channels)
        waves = torch.cat([angles.cos(), angles.sin()], 1)
        return self.second(functional.silu(self.first(waves.to(self.first.weight.dtype))))


def noisy_latents(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Latents, how many steps of noise each has, and the noise, which a model is to find."""
    height, width = (side // LATENT for side in size.image_sides)
    latents, noise = (torch.randn(size.batch, CHANNELS, height, width, generator=generator) for _ in range(2))
    return latents, torch.randint(STEPS, (size.batch,), generator=generator), noise


def noise_loss(found: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the noise: Ho et al., NeurIPS 2020, equation 14; further channels do not count."""
    return functional.mse_loss(found[:, : noise.shape[1]].float(), noise.float())


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

    Source: Peebles and Xie, ICCV 2023, section 3.2. Latents have an eighth of the image's sides. Positions are sines
    that are not trained; the class after the last stands for none. The variance, which the paper trains by a bound of
    its own, takes part in no loss here.
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


def _dit_entry(shape: DiTShape) -> Entry:
    def build(size: Size) -> DiT:
        return DiT(replace(shape, layers=size.layers or shape.layers), size.image_sides)

    side = LATENT * PATCH
    sizes = SizeRule(Size(256, image=(256, 256), layers=shape.layers), smallest=side, multiple=side)  # section 4
    return Entry(build, sizes, Task(_make, noise_loss))


@dataclass(frozen=True)
class DiffusionShape:
    """What the network is made of; the fields are those of v1-inference.yaml of CompVis/stable-diffusion."""

    width: int = 320  # channels of the first level
    multiples: tuple[int, ...] = (1, 2, 4, 4)  # of the width, for each level
    attended: tuple[int, ...] = (0, 1, 2)  # levels with attention
    blocks: int = 2  # residual ones of a level on the way down; one more on the way up
    heads: int = 8
    words: int = 77  # tokens of a text
    text: int = 768  # channels of a word

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


def _diffusion_entry(shape: DiffusionShape) -> Entry:
    def make(size: Size, generator: torch.Generator) -> tuple[Any, torch.Tensor]:
        latents, steps, noise = noisy_latents(size, generator)
        return (latents, steps, torch.randn(size.batch, shape.words, shape.text, generator=generator)), noise

    side = LATENT * 2 ** (len(shape.multiples) - 1)
    # 32 x 8 x 2 x 4 = 2048 images of 512 x 512 pixels, on 256 devices: the model card of CompVis/stable-diffusion-v1-4
    sizes = SizeRule(Size(4, image=(512, 512)), smallest=side, multiple=side)
    return Entry(lambda size: DiffusionUNet(shape), sizes, Task(make, noise_loss))


ENTRIES = {
    "dit_xl": _dit_entry(DiTShape(1152, 28, 16)),  # table 1 of the paper
    "stable_diffusion": _diffusion_entry(DiffusionShape()),
}
