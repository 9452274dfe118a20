"""One small model of each kind that a person may bring, with inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from remat_explorer.capture.inputs_and_outputs import Loss


@dataclass
class Case:
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    loss: Loss | None = None


class Made(nn.Module):
    """A module from a function of itself and its inputs."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(self, *args, **kwargs)


@dataclass
class Pair:
    """A container that PyTorch's pytree does not know."""

    first: torch.Tensor
    second: torch.Tensor | None = None


class Cube(torch.autograd.Function):
    """A backward pass that is not the derivative of the forward pass, so that leaving it out shows."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * ctx.saved_tensors[0]


def linear() -> nn.Linear:
    return nn.Linear(8, 8)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (4, 8))


def convolutional() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.15))


def nested(self: Any, a: Any, b: Any, *, c: Any) -> torch.Tensor:
    return self.layer(a[0]) + self.layer(b["x"][1]) * c[0] + self.layer(c[1].first)


def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.layer(x)
    self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
    self.steps += 1
    return y - self.mean


def reassigning(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.layer(x)
    self.mean = self.mean * 0.9 + y.detach().mean(0)
    return y - self.mean


def with_buffers(forward: Callable[..., Any]) -> nn.Module:
    model = Made(forward, layer=linear())
    model.register_buffer("mean", torch.zeros(8))
    model.register_buffer("steps", torch.zeros((), dtype=torch.long))
    model.register_buffer("nothing", None)
    return model


def caching(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.cache is None:
        self.cache = torch.arange(8.0)
    self.seen.append(self.layer(x))
    return self.seen[-1] * self.cache


def in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.layer(self.layer(x))
    y += x
    y = functional.relu_(y)
    z = self.layer(y)
    z[:, 0] = 0
    return z.add_(y)


def drawing(self: Any, x: torch.Tensor) -> torch.Tensor:
    noisy = self.layer(x + torch.randn_like(x)) * torch.rand(8)
    return noisy[torch.randperm(4)] + functional.gumbel_softmax(self.layer(x)) + functional.rrelu(noisy, training=True)


def under_autocast(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return functional.dropout(self.norm(self.layer(self.layer(x))), 0.15)


def hooked(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.layer(x)
    y.register_hook(lambda gradient: gradient * 3)
    return y.relu()


def norms() -> tuple[nn.Module, ...]:
    instance = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    return nn.GroupNorm(2, 4), instance, nn.LayerNorm([4, 4, 4])


def shared() -> nn.Module:
    layer = linear()
    return nn.Sequential(layer, nn.ReLU(), layer, layer)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Embedding(10, 8, padding_idx=0), nn.LayerNorm(8), nn.Linear(8, 10, bias=False))
    model[2].weight = model[0].weight
    return model


def last_output_kept() -> nn.Module:
    model = nn.Sequential(linear(), nn.ReLU())
    model.last = model(x())  # no copy can be made of a tensor that is no leaf
    return model


def compiled(model: nn.Module) -> nn.Module:
    wrapped: Any = torch.compile(model, backend="aot_eager")
    return wrapped


def with_a_checkpoint(self: Any, x: torch.Tensor) -> Any:
    return checkpoint(self.block, self.layer(x), use_reentrant=False)


def named_parts(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.profiler.record_function("a part"):
        return self.layer(x).sin()


def folded(self: Any, x: torch.Tensor) -> torch.Tensor:
    """What PyTorch folds lies in the memory of the larger patches, and is copied out of it."""
    patches = functional.unfold(self.net(x), 3, padding=1)
    return self.last(functional.fold(patches, (6, 6), 3, padding=1).permute(0, 2, 3, 1)).square().mean()


class PictureAsSequence(nn.Module):
    """A batch of one, whose layout before the last convolution depends on the stride of its only picture."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(8, 32, 1), nn.Conv2d(32, 32, 1)
        self.norm, self.mixing = nn.LayerNorm(32), nn.Linear(32, 32)
        self.scale = nn.Parameter(torch.randn(1, 32, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        picture = self.norm(self.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2) * self.scale
        sequence = picture.flatten(2).transpose(1, 2)
        sequence = sequence + self.mixing(sequence)
        return self.last(sequence.transpose(1, 2).view(picture.shape)).square().mean()


def several_outputs(self: Any, x: torch.Tensor) -> dict[str, Any]:
    y = self.layer(x).sin()
    return {"a": y, "again": y, "view": y.view(-1), "place": y.argmax(1), "detached": y.detach(), "b": [y.cos(), 3]}


WORDS = torch.tensor([[1, 2, 0, 4], [0, 3, 9, 9]])

KINDS: dict[str, Callable[[], Case]] = {
    "nested inputs": lambda: Case(
        Made(nested, layer=linear()), ([x(), 1], {"x": (2, x())}), {"c": (x(), Pair(x()))}, torch.sum
    ),
    "complex": lambda: Case(
        Made(lambda s, x: torch.polar(s.layer(x).abs() + 0.1, s.layer(x)).abs().tanh().sum(), layer=linear()), (x(),)
    ),
    "no inputs": lambda: Case(Made(lambda s: s.layer(s.noise).sin().square().mean(), layer=linear(), noise=x()), ()),
    "dataclass output": lambda: Case(Made(lambda s, x: Pair(s.layer(x).sin(), None), layer=linear()), (x(),)),
    "dictionary output with a loss": lambda: Case(
        Made(lambda s, x: {"loss": s.layer(x).mean(), "logits": s.layer(x)}, layer=linear()), (x(),)
    ),
    "several outputs": lambda: Case(Made(several_outputs, layer=linear()), (x(),)),
    "an input and a parameter among the outputs": lambda: Case(
        Made(lambda s, x: (s.layer(x).sin(), x, x.t(), s.layer.weight, s.layer.bias.view(2, 4)), layer=linear()), (x(),)
    ),
    "one picture as a sequence": lambda: Case(PictureAsSequence(), (torch.randn(1, 8, 3, 3),)),
    "a view of folded patches": lambda: Case(
        Made(folded, net=nn.Conv2d(2, 4, 3), last=nn.Linear(4, 4)), (x(2, 2, 8, 8),)
    ),
    "tied weights and padding": lambda: Case(tied(), (WORDS,)),
    "shared submodules": lambda: Case(shared(), (x(),)),
    "an input that requires a gradient": lambda: Case(nn.Sequential(linear(), nn.Tanh()), (x().requires_grad_(),)),
    "train mode": lambda: Case(convolutional(), (x(2, 2, 6, 6),)),
    "buffers changed in place": lambda: Case(with_buffers(counting), (x(),)),
    "buffers assigned anew": lambda: Case(with_buffers(reassigning), (x(),)),
    "caches on attributes": lambda: Case(Made(caching, layer=linear(), cache=None, seen=[]), (x(),)),
    "an attribute that cannot be copied": lambda: Case(last_output_kept(), (x(),)),
    "random operations": lambda: Case(Made(drawing, layer=linear()), (x(),)),
    "bfloat16 with dropout": lambda: Case(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).bfloat16(), (x(2, 5, 8).bfloat16(),)
    ),
    "half": lambda: Case(nn.Sequential(linear(), nn.LayerNorm(8), nn.GELU()).half(), (x().half(),)),
    "double": lambda: Case(nn.Sequential(linear(), nn.LayerNorm(8), nn.GELU()).double(), (x().double(),)),
    "autocast inside": lambda: Case(Made(under_autocast, layer=linear(), norm=nn.LayerNorm(8)), (x(),)),
    "in-place operations": lambda: Case(Made(in_place, layer=linear()), (x(),)),
    "weight norm": lambda: Case(nn.Sequential(nn.utils.parametrizations.weight_norm(linear())), (x(),)),
    "spectral norm": lambda: Case(nn.Sequential(nn.utils.parametrizations.spectral_norm(linear())), (x(),)),
    "custom autograd Function": lambda: Case(Made(lambda s, x: Cube.apply(s.layer(x)), layer=linear()), (x(),)),
    "gradient hook": lambda: Case(Made(hooked, layer=linear()), (x(),)),
    "LSTM with dropout": lambda: Case(nn.LSTM(8, 4, 2, dropout=0.15), (x(2, 3, 8),), loss=lambda y: y[0].sum()),
    "GRU": lambda: Case(nn.GRU(8, 4, batch_first=True, bidirectional=True), (x(3, 2, 8),)),
    "attention": lambda: Case(
        Made(lambda s, x: s.m(x, x, x, need_weights=False)[0], m=nn.MultiheadAttention(8, 2, 0.1)), (x(5, 2, 8),)
    ),
    "norms": lambda: Case(nn.Sequential(nn.Conv2d(2, 4, 3), *norms()), (x(2, 2, 6, 6),)),
    "interpolation": lambda: Case(
        nn.Sequential(nn.Conv2d(2, 2, 3), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Upsample(scale_factor=2)),
        (x(1, 2, 5, 5),),
    ),
    "checkpoint inside": lambda: Case(
        Made(with_a_checkpoint, layer=linear(), block=nn.Sequential(linear(), nn.Dropout(0.2), nn.ReLU())), (x(),)
    ),
    "torch.compile inside": lambda: Case(nn.Sequential(compiled(nn.Sequential(linear(), nn.ReLU())), linear()), (x(),)),
    "data parallel": lambda: Case(nn.DataParallel(nn.Sequential(linear(), nn.BatchNorm1d(8))), (x(),)),
    "exported": lambda: Case(torch.export.export(nn.Sequential(linear(), nn.ReLU()), (x(),)).module(), (x(),)),
    "parts named for the profiler": lambda: Case(Made(named_parts, layer=linear()), (x(),)),
}
