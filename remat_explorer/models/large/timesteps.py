"""What the diffusion models share: the embedding of how noisy an input is, and what they are trained for."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.sizes import Size

LATENT, CHANNELS = 8, 4  # Rombach et al., CVPR 2022: an autoencoder makes 4 channels of each 8 x 8 pixels
STEPS = 1000  # of noise: Ho et al., NeurIPS 2020, section 4


class TimestepEmbedding(nn.Module):
    """From a number of steps to a vector: Ho et al., NeurIPS 2020, appendix B, by sines of Vaswani et al., 2017.

    Args:
        frequencies: numbers that the sines and cosines make, even.
        width: channels of the result.
    """

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
