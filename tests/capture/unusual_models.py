"""Models that nobody tuned the capture for: losses, spectra, codebooks, masks, other layouts, as people write them."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.capture.inputs_and_outputs import Loss
from tests.runtime.kinds_of_models import KINDS, Case, Made

LAST = torch.channels_last


def images(channels: int = 3) -> torch.Tensor:
    return torch.randn(2, channels, 16, 16)


def convolutions() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))


def against(loss: Callable[..., torch.Tensor], target: torch.Tensor, reduction: str = "mean") -> Case:
    def forward(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return loss(self.net(x), y, reduction=reduction).mean()

    return Case(Made(forward, net=convolutions()), (images(), target))


def then(function: Callable[[torch.Tensor], torch.Tensor], loss: Loss | None = None) -> Case:
    return Case(Made(lambda self, x: function(self.net(x)), net=convolutions()), (images(),), loss=loss)


class VectorQuantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 1, 1))
        self.codebook = nn.Embedding(32, 8)
        self.decoder = nn.Sequential(nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encoder(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, 8)
        squares = flat.square().sum(1, keepdim=True) + self.codebook.weight.square().sum(1)
        nearest = (squares - 2 * flat @ self.codebook.weight.t()).argmin(1)
        code = self.codebook(nearest).view_as(z)
        distance = functional.mse_loss(code, z.detach()) + 0.25 * functional.mse_loss(z, code.detach())
        code = z + (code - z).detach()
        return distance + functional.mse_loss(self.decoder(code.permute(0, 3, 1, 2).contiguous()), x)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.enter, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norm, self.middle = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, padding=1)
        self.up, self.leave = nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.Conv2d(16, 3, 3, padding=1)
        self.kept: torch.Tensor
        self.register_buffer("kept", torch.linspace(0.9999, 0.98, 100).cumprod(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        t, noise = torch.randint(0, 100, (x.shape[0],), device=x.device), torch.randn_like(x)
        kept = self.kept[t][:, None, None, None]
        frequencies = torch.exp(-math.log(1000) * torch.arange(8, device=x.device) / 8)
        angles = t[:, None].float() * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        wide = self.enter(kept.sqrt() * x + (1 - kept).sqrt() * noise)
        deep = self.middle(functional.silu(self.norm(self.down(functional.silu(wide)) + time)))
        return functional.mse_loss(self.leave(torch.cat([self.up(functional.silu(deep)), wide], 1)), noise)


class FourierOperator(nn.Module):
    """A layer of a Fourier neural operator: low frequencies times complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.skip, self.project = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 3, 1)
        self.weight = nn.Parameter(0.1 * torch.randn(8, 8, 5, 5, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lift(x)
        spectrum = torch.fft.rfft2(x)
        kept = torch.zeros_like(spectrum)
        kept[:, :, :5, :5] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :5, :5], self.weight)
        return self.project(functional.gelu(torch.fft.irfft2(kept, s=x.shape[-2:]) + self.skip(x)))


def mixing(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = self.first(x + torch.fft.fft2(x).real)
    return self.last(x + self.wide(x)).mean(1)


def fnet() -> Case:
    wide = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    model = Made(mixing, first=nn.LayerNorm(16), wide=wide, last=nn.LayerNorm(16))
    return Case(model, (torch.randn(2, 12, 16),), loss=mean)


def erased(y: torch.Tensor) -> torch.Tensor:
    y = y * 2
    y[y.detach() > 0.3] = 0.0
    return y.square().mean()


def assigned(y: torch.Tensor) -> torch.Tensor:
    rows = torch.zeros(2, 3, 16, 32)
    rows[:, :, :, 4:20] = y
    rows[:, 1, :, :16] = y[:, 0].cos()
    return rows.square().mean()


def sampled(y: torch.Tensor) -> torch.Tensor:
    grid = functional.affine_grid(torch.eye(2, 3).expand(2, 2, 3), [2, 3, 16, 16], align_corners=False)
    return functional.grid_sample(y, grid + 0.1 * y[:, :2].permute(0, 2, 3, 1), align_corners=False)


def positions(*shape: int) -> torch.Tensor:
    return torch.randint(0, 8, shape)


def probabilities() -> torch.Tensor:
    return torch.rand(2, 3, 16, 16)


def mean(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


LOSSES: dict[str, Callable[[], Case]] = {
    "MSE": lambda: against(functional.mse_loss, images()),
    "MSE against one channel": lambda: against(functional.mse_loss, images(1)),
    "SmoothL1": lambda: against(functional.smooth_l1_loss, images()),
    "BCE": lambda: against(lambda y, t, **o: functional.binary_cross_entropy(y.sigmoid(), t, **o), probabilities()),
    "soft margin": lambda: against(functional.soft_margin_loss, images().sign()),
    "KL divergence": lambda: against(
        lambda y, t, **o: functional.kl_div(y.log_softmax(1), t, **o), probabilities().softmax(1), "batchmean"
    ),
    "MSE of channels last": lambda: Case(
        Made(lambda s, x, y: functional.mse_loss(s.net(x.contiguous(memory_format=LAST)), y), net=convolutions()),
        (images(), images()),
    ),
    "MSE of a transposed output": lambda: Case(
        Made(lambda s, x, y: functional.mse_loss(s.net(x).transpose(2, 3), y), net=convolutions()), (images(), images())
    ),
    "SmoothL1 of an LSTM": lambda: Case(
        Made(lambda s, x: functional.smooth_l1_loss(s.net(x)[0], x), net=nn.LSTM(8, 8, batch_first=True)),
        (torch.randn(2, 5, 8),),
    ),
}
MODELS: dict[str, Callable[[], Case]] = {
    "VQ-VAE": lambda: Case(VectorQuantized(), (images(),)),
    "diffusion at a random time": lambda: Case(Denoiser(), (images(),)),
    "Fourier neural operator": lambda: Case(FourierOperator(), (images(),), loss=mean),
    "FNet": fnet,
    "spectrogram": lambda: then(
        lambda y: torch.stft(y.flatten(1), 32, window=torch.hann_window(32), return_complex=True).abs().mean()
    ),
    "masked entries set to zero": lambda: then(erased),
    "slices assigned": lambda: then(assigned),
    "grid sample": lambda: then(sampled, mean),
    "interpolation": lambda: then(lambda y: functional.interpolate(y, scale_factor=2, mode="bicubic"), mean),
    "circular padding": lambda: then(lambda y: functional.pad(y, (2, 2, 2, 2), "circular"), mean),
    "scatter": lambda: Case(
        Made(lambda s, x, at: torch.zeros(2, 3, 16, 8).scatter_add(3, at, s.net(x)), net=convolutions()),
        (images(), positions(2, 3, 16, 16)),
        loss=mean,
    ),
    "sort and top": lambda: then(lambda y: y.sort(1)[0].cumsum(2).topk(3, dim=3)[0], mean),
    "einsum": lambda: then(lambda y: torch.einsum("bchw,bdhv->wbcd", y, y), mean),
    "expanded": lambda: then(lambda y: y.mean((2, 3), keepdim=True).expand(2, 3, 16, 16) * y, mean),
    "complex numbers": lambda: then(lambda y: (torch.complex(y, y.cos()) @ torch.complex(y, y)).abs(), mean),
    "bfloat16": lambda: then(lambda y: y.bfloat16().softmax(1).float(), mean),
    "channels last and a unit": lambda: then(
        lambda y: functional.glu(functional.elu(functional.logsigmoid(y.contiguous(memory_format=LAST))), 3), mean
    ),
    "a normalization before another layout": lambda: Case(
        Made(
            lambda s, x: s.last(s.norm(s.net(x)).contiguous(memory_format=LAST)).square().mean(),
            net=nn.Conv2d(3, 8, 3),
            norm=nn.BatchNorm2d(8),
            last=nn.Conv2d(8, 8, 3),
        ),
        (images(),),
    ),
    "bags of embeddings": lambda: Case(
        Made(lambda s, i: functional.mse_loss(s.bags(i), torch.ones(4, 8)), bags=nn.EmbeddingBag(20, 8)),
        (positions(4, 6),),
    ),
}
SHARED = {name: KINDS[name] for name in ("one picture as a sequence", "a view of folded patches")}
UNUSUAL = {**SHARED, **LOSSES, **MODELS}
ONE_OF_EACH_KIND = (
    *("one picture as a sequence", "BCE", "MSE of a transposed output", "SmoothL1 of an LSTM", "interpolation"),
    *("Fourier neural operator", "slices assigned", "scatter", "expanded", "channels last and a unit"),
)
