"""Random models kind by kind, as people write them: the same model for the same seed.

Each kind draws its sizes, its layers, how they are put together, and its loss. `RandomNetwork` is one of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.runtime.kinds_of_models import Case, Made
from tests.runtime.random_models import random_network

Draw = np.random.Generator
Tensors = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class RandomCase(Case):  # ``outside`` makes a loss of what the model returns, where autograd goes on by itself
    outside: Callable[[Any], torch.Tensor] | None = None


def pick(draw: Draw, *choices: Any) -> Any:
    return choices[int(draw.integers(len(choices)))]


def flip(draw: Draw, chance: float = 0.5) -> bool:
    return bool(draw.random() < chance)


def assigned(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[:, 0] = 0
    y[:, 1:3] += 1
    return y


PLACES = torch.tensor([2, 0, 5, 2, 3, 1])
PICKED = PLACES[None, :, None]
STEPS: dict[str, tuple[Tensors, ...]] = {  # kinds of which one to three steps lie between two layers
    "views": (
        lambda x: x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2).reshape(x.shape),
        lambda x: x.transpose(1, 2).contiguous().view(x.shape),
        lambda x: torch.cat([part * 2 for part in x.chunk(2, -1)][::-1], -1),
        lambda x: x.narrow(1, 1, x.shape[1] - 1) + x.narrow(1, 0, x.shape[1] - 1),
        lambda x: x.unfold(-1, 4, 2).mean(-1).repeat_interleave(4, -1)[..., : x.shape[-1]],
        lambda x: x.flatten(1).unflatten(1, x.shape[1:]).flip(1),
        lambda x: torch.stack(x.split(2, -1), 2).permute(0, 1, 3, 2).reshape(x.shape),
        lambda x: x.unsqueeze(2).expand(-1, -1, 3, -1).sum(2),
        lambda x: x.roll(1, 1) - x.movedim(1, 0).movedim(0, 1),
        lambda x: x + x.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None],
    ),
    "in place": (
        lambda x: (x * 2).add_(1).mul_(0.5).relu_(),
        lambda x: (x + 1).add_(x).mul_(x.detach()).div_(3),
        lambda x: (x * 1).masked_fill_(x.detach() > 0.5, 0.25),
        lambda x: functional.leaky_relu_(x - 0.5),
        lambda x: (x.exp() + 1).div_(2).sub_(x).neg_(),
        lambda x: functional.hardtanh(x * 1, inplace=True) + functional.elu(x * 1, inplace=True),
        lambda x: (x * 1).index_fill_(1, torch.tensor([0, 2]), 3.0),
        assigned,
    ),
    "sorting": (
        lambda x: x.sort(dim=1, descending=True, stable=True).values,
        lambda x: x.topk(3, 1).values.repeat(1, 2, 1),
        lambda x: x.gather(1, x.detach().argsort(1)),
        lambda x: x - x.max(-1, keepdim=True).values,
        lambda x: x * x.kthvalue(2, -1, keepdim=True).values,
        lambda x: x + x.median(1, keepdim=True).values,
    ),
    "indexing": (
        lambda x: torch.zeros_like(x).scatter_add(1, PICKED.expand_as(x), x),
        lambda x: x.gather(1, PICKED.expand_as(x)),
        lambda x: torch.zeros_like(x).index_add(1, PLACES, x),
        lambda x: x.index_select(1, PLACES),
        lambda x: x[:, PLACES] * 2,
        lambda x: x.scatter(1, torch.arange(3)[None, :, None].expand(x.shape[0], 3, x.shape[2]), 0.5),
        lambda x: x.index_put((torch.tensor([0]), torch.tensor([1])), torch.ones(x.shape[-1]), accumulate=True),
    ),
    "running sums": (
        lambda x: x.cumsum(1),
        lambda x: x.tanh().cumprod(1) if torch.__version__ >= "2.13" else x,  # docs/limits.md
        lambda x: x.logcumsumexp(-1),
        lambda x: x.flip(1).cumsum(1).flip(1),
        lambda x: x.cummax(1).values,
    ),
    "conditions": (
        lambda x: torch.where(x > 0, x, 0.1 * x),
        lambda x: torch.where(x.detach() > x.detach().mean(), x.sin(), x.cos()),
        lambda x: torch.maximum(x, x.flip(-1)),
        lambda x: x.clamp(-0.8, 0.8).nan_to_num(),
        lambda x: x * (x > 0),
        lambda x: x.tril() + torch.minimum(x, torch.zeros(())),
    ),
    "fourier": (
        lambda x: torch.fft.rfft(x, dim=1).abs().repeat(1, 2, 1)[:, : x.shape[1]],
        lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=-1) * 0.5, n=x.shape[-1], dim=-1),
        lambda x: torch.fft.fft2(x).real,
        lambda x: torch.view_as_real(torch.fft.fft(x, dim=1)).sum(-1),
    ),
}


def chained(draw: Draw, steps: tuple[Tensors, ...]) -> RandomCase:
    """One to three of the steps between two linear layers; every other time what goes into one is added to its result.

    An activation comes before or after them; the last layer takes what they give.
    """
    chosen = [(pick(draw, *steps), flip(draw, 0.3)) for _ in range(int(draw.integers(1, 4)))]
    before = pick(draw, nn.Identity, nn.ReLU, nn.GELU, nn.Tanh)()
    after = pick(draw, nn.Identity, nn.Sigmoid, lambda: nn.Dropout(0.15))()
    x = torch.randn(int(draw.integers(2, 5)), 6, 8)

    def run(x: torch.Tensor) -> torch.Tensor:
        for step, residual in chosen:
            y = step(x)
            x = x + y if residual and y.shape == x.shape else y
        return x

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.last(after(run(before(self.first(x)))))
        return y.mean() if self.scalar else y

    last = nn.Linear(run(torch.randn_like(x)).shape[-1], 4)
    return RandomCase(Made(forward, first=nn.Linear(8, 8), last=last, scalar=flip(draw)), (x,))


def batch_norm(draw: Draw, cumulative: bool = False) -> RandomCase:
    """Every mode of it, in one to three blocks; the first may average over all batches that it has seen."""
    width, images = int(draw.integers(2, 20)), flip(draw)

    def block(first: bool) -> nn.Module:
        train, tracked = flip(draw, 0.7), flip(draw, 0.7)
        momentum = pick(draw, 0.1, 0.7) if train and tracked else pick(draw, 0.1, None)
        if first and cumulative:
            train, tracked, momentum = True, True, None
        make = nn.BatchNorm2d if images else nn.BatchNorm1d
        norm = make(width, momentum=momentum, affine=flip(draw, 0.7), track_running_stats=tracked)
        layer = nn.Conv2d(width, width, 3, padding=1, bias=flip(draw)) if images else nn.Linear(width, width)
        return nn.Sequential(layer, norm.train(train), pick(draw, nn.ReLU(inplace=True), nn.Identity()))

    blocks = nn.ModuleList([block(place == 0) for place in range(int(draw.integers(1, 4)))])
    shape = (int(draw.integers(2, 9)), width, *((5, 5) if images else ()))
    residual, result = flip(draw), pick(draw, lambda x: x, lambda x: x.square().mean(), torch.sum, torch.mean)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x) if residual else block(x)
        return result(x)

    return RandomCase(Made(forward, blocks=blocks), (torch.randn(shape),))


def incoming_gradients(draw: Draw) -> RandomCase:
    """Outputs transposed, sliced or expanded, and losses outside whose gradients are strided, expanded or of a part."""
    images = flip(draw)
    layer = nn.Conv2d(3, 4, 3) if images else nn.Linear(6, 4)
    norm = pick(draw, nn.Identity, lambda: nn.BatchNorm2d(4) if images else nn.BatchNorm1d(4), nn.ReLU, nn.Tanh)()
    plain: tuple[Tensors, ...] = (lambda y: y, lambda y: y.transpose(0, 1), lambda y: y[:, ::2], lambda y: y[1:, :3])
    seen = pick(draw, *plain, lambda y: y.unsqueeze(0).expand(3, *y.shape), lambda y: (y, y.flatten(1)))
    scale = torch.randn(())
    outside = pick(
        draw,
        torch.sum,
        torch.mean,
        lambda y: y[0].sum() * scale,
        lambda y: y.transpose(0, 1).square().sum(),
        lambda y: (y.select(-1, 0) * scale).sum(),
        lambda y: y.sum(0).square().mean(),
    )

    def loss(y: Any) -> torch.Tensor:
        return sum(map(outside, y)) if isinstance(y, tuple) else outside(y)  # type: ignore[return-value]

    model = Made(lambda s, x: seen(s.norm(s.layer(x))), layer=layer, norm=norm)
    x = torch.randn(4, 3, 6, 6) if images else torch.randn(4, 6)
    return RandomCase(model, (x,), loss=loss) if flip(draw, 0.4) else RandomCase(model, (x,), outside=loss)


def half_precision(draw: Draw) -> RandomCase:
    """bfloat16, or float16 where the CPU has all kernels for it."""
    layers: list[nn.Module] = [pick(draw, nn.Identity, lambda: nn.Dropout(0.3))()]
    for _ in range(int(draw.integers(1, 4))):
        norm = pick(draw, lambda: nn.LayerNorm(8), nn.Identity, lambda: nn.RMSNorm(8))()
        layers += [nn.Linear(8, 8), norm, pick(draw, nn.GELU, nn.ReLU, nn.SiLU, lambda: nn.Softmax(-1))()]
    scalar = flip(draw)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = x + self.layers(x)
        return y.float().square().mean() if scalar else y

    model, x = Made(forward, layers=nn.Sequential(*layers)), torch.randn(3, 5, 8)
    dtype = pick(draw, torch.bfloat16, torch.float16)
    try:
        model.to(dtype)(x.to(dtype)).sum().backward()
    except RuntimeError as error:
        if "not implemented for 'Half'" not in str(error):
            raise
        dtype = torch.bfloat16
    model.zero_grad(set_to_none=True)
    return RandomCase(model.to(dtype), (x.to(dtype),))


def grouped_query_attention(draw: Draw) -> RandomCase:
    groups, repeats, size = int(draw.integers(1, 3)), int(draw.integers(1, 4)), 4
    heads, causal, dropped = groups * repeats, flip(draw), pick(draw, 0.0, 0.0, 0.2)
    mask = None if causal or flip(draw) else pick(draw, torch.randn(5, 5), torch.ones(5, 5).tril().bool())
    width = heads * size

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).view(*x.shape[:2], heads, size).transpose(1, 2)
        k, v = (t.view(*x.shape[:2], groups, size).transpose(1, 2) for t in self.kv(x).chunk(2, -1))
        y = functional.scaled_dot_product_attention(q, k, v, mask, dropped, causal, enable_gqa=True)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))

    parts = {"q": nn.Linear(width, width), "kv": nn.Linear(width, 2 * groups * size), "out": nn.Linear(width, width)}
    return RandomCase(Made(forward, **parts), (torch.randn(2, 5, width),))


def recurrent(draw: Draw) -> RandomCase:
    kind = pick(draw, nn.LSTM, nn.GRU, nn.RNN)
    size, layers, first = int(draw.integers(2, 6)) ** 2, int(draw.integers(1, 3)), flip(draw)
    options: dict[str, Any] = {"bidirectional": flip(draw, 0.3), "batch_first": first, "bias": flip(draw, 0.8)}
    if layers > 1:
        options["dropout"] = pick(draw, 0.0, 0.15)
    if kind is nn.RNN:
        options["nonlinearity"] = pick(draw, "tanh", "relu")
    if kind is nn.LSTM and size > 2 and flip(draw, 0.3):
        options["proj_size"] = 2
    taken = pick(draw, lambda y, h: y, lambda y, h: y[-1], lambda y, h: h.sum(), lambda y, h: y.sum() + h.mean())

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y, state = self.layer(x)
        return taken(y, state[0] if isinstance(state, tuple) else state)

    x = torch.randn(3, int(draw.integers(1, 5)), 3)
    return RandomCase(Made(forward, layer=kind(3, size, layers, **options)), (x,))


def losses(draw: Draw) -> RandomCase:
    """Losses of two tensors, with reductions, in all sizes; targets as they lie in memory, or transposed."""
    reduction, most = pick(draw, "mean", "sum"), pick(draw, 8, 60, 400)
    rows, columns = int(draw.integers(1, most)), int(draw.integers(1, most))
    regression = columns == 1 or flip(draw, 0.7)
    if regression:
        loss = pick(draw, nn.MSELoss, nn.SmoothL1Loss, nn.HuberLoss, nn.L1Loss, nn.BCEWithLogitsLoss)
        criterion = loss(reduction=reduction)
        target = torch.rand(rows, columns) if flip(draw, 0.7) else torch.rand(columns, rows).t()
    else:
        criterion = nn.CrossEntropyLoss(reduction=reduction, label_smoothing=pick(draw, 0.0, 0.1))
        target = torch.randint(columns, (rows,))
    depth = int(draw.integers(0, 3))
    layers = [nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(depth)]
    model = nn.Sequential(*layers, nn.Linear(6, columns))
    if flip(draw):
        whole = Made(lambda s, x, t: criterion(s.model(x), t), model=model)
        return RandomCase(whole, (torch.randn(rows, 6), target))
    return RandomCase(model, (torch.randn(rows, 6),), loss=lambda y: criterion(y, target))


def two_heads(draw: Draw, outside: bool = False) -> RandomCase:
    """Two heads on one trunk; one may have no influence on a loss within the model, or has none on one outside."""
    used = pick(draw, "both", "first", "detached", "second layer never called", "times zero")

    def forward(self: Any, x: torch.Tensor) -> Any:
        y = functional.relu(self.trunk(x))
        if outside:
            return self.first(y), self.second(y)
        if used == "second layer never called":
            return self.first(y).square().mean()
        first, second = self.first(y).square().mean(), self.second(y).mean()
        sums = {"both": first + second, "first": first, "detached": first + second.detach()}
        return sums.get(used, first + 0 * second)

    parts = {"trunk": nn.Linear(6, 6), "first": nn.Linear(6, 3), "second": nn.Linear(6, 2)}
    model, x = Made(forward, **parts), torch.randn(4, 6)
    return RandomCase(model, (x,), outside=(lambda y: y[1].square().mean()) if outside else None)


def differentiated_inputs(draw: Draw) -> RandomCase:
    """Inputs that require a gradient, of which one may be left out; the model may be frozen."""
    kind = pick(draw, "added", "expanded", "joined", "viewed", "given out", "square")
    several, frozen = flip(draw), flip(draw, 0.3)

    def forward(self: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        h = {
            "added": lambda: self.first(x) + x + y,
            "expanded": lambda: self.first(x + y[:1].expand_as(x)),
            "joined": lambda: self.first(torch.cat([x, y]).relu()),
            "viewed": lambda: self.first(x.t().reshape(-1, 6)) * y.sum(),
            "given out": lambda: x + self.first(y).detach(),
            "square": lambda: self.first(x) * x + y.square(),
        }[kind]()
        return (h, self.second(functional.gelu(h)).sum(0)) if several else self.second(functional.gelu(h))

    model = Made(forward, first=nn.Linear(6, 6), second=nn.Linear(6, 3))
    x, y = (torch.randn(4, 6).requires_grad_(wanted) for wanted in pick(draw, (True, False), (True, True)))
    outside = pick(draw, lambda out: out[0].sum(), lambda out: (out[0] * out[1].mean()).mean()) if several else None
    return RandomCase(model.requires_grad_(not frozen), (x, y), outside=outside)


RANDOM_KINDS: dict[str, Callable[[Draw], RandomCase]] = {
    "networks": lambda draw: RandomCase(*random_network(int(draw.integers(2**20)))),
    "batch norm": batch_norm,
    "cumulative batch norm": partial(batch_norm, cumulative=True),
    "incoming gradients": incoming_gradients,
    **{kind: partial(chained, steps=steps) for kind, steps in STEPS.items()},
    "half precision": half_precision,
    "grouped-query attention": grouped_query_attention,
    "recurrent": recurrent,
    "losses": losses,
    "two heads": two_heads,
    "one of two heads": partial(two_heads, outside=True),
    "inputs with gradients": differentiated_inputs,
}


def random_case(kind: str, seed: int) -> RandomCase:
    """A model of a kind that plain PyTorch trains; the same for the same seed."""
    with torch.random.fork_rng():
        for attempt in range(100):
            torch.manual_seed(seed)
            case = RANDOM_KINDS[kind](np.random.default_rng([seed, attempt]))
            if _trains(case):
                return case
    raise AssertionError(f"plain PyTorch trains no model of kind {kind!r} and seed {seed}")


def _trains(case: RandomCase) -> bool:
    """Whether plain PyTorch does; it refuses what writes over a tensor that the backward pass needs."""
    before = {name: buffer.clone() for name, buffer in case.model.named_buffers()}
    returned = case.model(*case.args, **case.kwargs)
    results = case.loss(returned) if case.loss else case.outside(returned) if case.outside else returned
    results = results if isinstance(results, tuple) else (results,)
    try:
        torch.autograd.backward(results, [torch.ones_like(result) for result in results])
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return False
    finally:
        case.model.zero_grad(set_to_none=True)
        for name, buffer in case.model.named_buffers():
            buffer.copy_(before[name])
    return True
