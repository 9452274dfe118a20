"""Random programs of training: a small model with side effects, exchanged parameters, random operators and phases.

A program is drawn from a seed. Each time it is built it is a new world: a model, and whatever its forward reaches
outside of it. So one can be trained as it is and another by a plan, and everything in them be compared.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.runtime.random_kinds import Draw, flip, pick

Part = Callable[[torch.Tensor], torch.Tensor]
GLOBAL: dict[str, Any] = {}  # what forward may reach as a global; it has one entry for each world
PHASES = ("step", "two passes", "accumulation", "some frozen", "all but one frozen", "smaller batch", "no gradients",
          "smaller batch without gradients", "evaluation", "gradient of the input", "unused loss")  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """What a program is: its parts in the order of forward, each with a seed of its own, and the phases of training."""

    seed: int
    width: int
    batch: int
    parts: tuple[tuple[str, int], ...]
    phases: tuple[str, ...]
    scalar: bool

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its parts, and of phases that are no plain step."""
        return tuple(dict.fromkeys([name for name, _ in self.parts] + [p for p in self.phases if p != "step"]))

    def smaller(self) -> Iterator[Spec]:
        """This program with one part or phase less, or of a small width."""
        for place in range(len(self.parts)):
            yield replace(self, parts=self.parts[:place] + self.parts[place + 1 :])
        for place in range(len(self.phases)):
            if len(self.phases) > 1:
                yield replace(self, phases=self.phases[:place] + self.phases[place + 1 :])


@dataclass
class World:
    """A model that is built, and what else of its program a person can look into.

    Attributes:
        model: calls its parts between two layers.
        visible: by name, whatever forward, hooks or Functions may change.
        losses: what the loss adds to that of the model's output, after each call.
        named: whether a batch is a dictionary that forward gets and may change.
    """

    spec: Spec
    model: Program
    visible: dict[str, Any] = field(default_factory=dict)
    losses: list[Callable[[], torch.Tensor | float]] = field(default_factory=list)

    def batch(self, place: int, smaller: bool = False) -> dict[str, Any]:
        """The batch of a step; containers for key/value caches are part of it."""
        made = torch.Generator().manual_seed(1000 * self.spec.seed + place)
        rows = max(1, self.spec.batch // 2) if smaller else self.spec.batch
        batch: dict[str, Any] = {"x": torch.randn(rows, self.spec.width, generator=made)}
        return batch | ({"cache": [], "seen": {}} if self.model.takes else {})


class Program(nn.Module):
    """Parts between two linear layers; ``batch`` is what forward was called with."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(spec.width, spec.width), nn.Linear(spec.width, 3)
        self.inner = nn.ModuleDict()
        self.scalar, self.takes = spec.scalar, False
        self.run: Plain = Plain()

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        h = self.first(batch["x"]).tanh()
        for part in self.run.parts:
            h = part(h, batch)
        y = self.last(h)
        return y.square().mean() if self.scalar else y


class Plain:
    """Functions that forward calls, kept out of the attributes of the model."""

    def __init__(self) -> None:
        self.parts: list[Callable[[torch.Tensor, dict[str, Any]], torch.Tensor]] = []


@dataclass
class Room:
    """Where a part is made: its world, its name in it, and a draw of its own."""

    world: World
    name: str
    draw: Draw

    @property
    def width(self) -> int:
        return self.world.spec.width

    def layer(self, made: nn.Module | None = None, name: str = "layer") -> nn.Module:
        """A layer of the model, or outside of it if ``name`` says so."""
        made = nn.Linear(self.width, self.width) if made is None else made
        self.world.model.inner[f"{self.name} {name}"] = made
        return made

    def holder(self, kind: Any) -> Any:
        """A new container, which is reached in one of the ways in which people reach one."""
        made, model = kind(), self.world.model
        way = pick(self.draw, "model", "child", "other module", "closure", "global", "object", "class")
        if way == "model":
            setattr(model, f"kept_{self.name.replace(' ', '_')}", made)
        elif way == "child":
            model.first.kept = made
        elif way == "other module":
            other = nn.Linear(2, 2)
            other.kept = made
            self.world.visible[f"{self.name} other module"] = other
            return lambda: other.kept
        elif way == "global":
            key = f"{id(self.world)} {self.name}"
            GLOBAL[key] = made
            self.world.visible[f"{self.name} global"] = made
            return lambda: GLOBAL[key]
        elif way == "object":
            thing = SimpleNamespace(kept=made)
            self.world.visible[f"{self.name} object"] = thing
            return lambda: thing.kept
        elif way == "class":
            kept = type("Kept", (), {"kept": made})
            self.world.visible[f"{self.name} class"] = made
            return lambda: kept.kept
        self.world.visible[f"{self.name} {way}"] = made
        return lambda: made


def list_of_losses(room: Room) -> Any:
    """Auxiliary losses in a list, of which the loss is made, or which is only looked at."""
    kept = room.holder(pick(room.draw, list, list, deque))
    value = pick(room.draw, torch.mean, lambda h: h.square().mean(), lambda h: h.detach().mean(), lambda h: h,
                 lambda h: h.mean().clone(), lambda h: (h.mean(), h.detach()), lambda h: {"h": h})  # fmt: skip
    cleared, used = flip(room.draw), flip(room.draw)

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        if cleared:
            kept().clear()
        kept().append(value(h))
        return h

    if used:
        room.world.losses.append(lambda: sum(one.mean() for one in kept() if isinstance(one, torch.Tensor)))
    return part


def dict_of_features(room: Room) -> Any:
    kept = room.holder(pick(room.draw, dict, OrderedDict, lambda: defaultdict(list)))
    value = pick(room.draw, lambda h: h, torch.detach, lambda h: h.mean(), lambda h: [h], lambda h: h.detach().clone())

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        if isinstance(kept(), defaultdict):
            kept()["h"].append(value(h))
        else:
            kept()["h"] = value(h)
        return h

    return part


def attribute_elsewhere(room: Room) -> Any:
    """A tensor in an attribute of the model, of another module, of an object, or of a cell of a closure."""
    other = pick(room.draw, nn.Linear(2, 2), SimpleNamespace(), room.world.model, room.world.model.first)
    room.world.visible[f"{room.name} other"] = other
    value, last = pick(room.draw, lambda h: h, torch.detach, torch.mean), None

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        nonlocal last
        other.last = last = value(h)
        return h

    room.world.visible[f"{room.name} cell"] = lambda: last
    return part


def counter(room: Room) -> Any:
    """A number that forward counts up in a dictionary, or writes what it has read into."""
    kept = room.holder(dict)

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        kept()["calls"] = kept().get("calls", 0) + 1
        return h

    return part


def forward_hook(room: Room) -> Any:
    layer, kept = room.layer(), room.holder(dict)
    detached = flip(room.draw)

    def hook(*arguments: Any) -> None:
        seen = arguments[-1][0] if isinstance(arguments[-1], tuple) else arguments[-1]
        kept()["seen"] = seen.detach() if detached else seen

    pick(room.draw, layer.register_forward_hook, layer.register_forward_pre_hook)(hook)
    return lambda h, batch: layer(h).tanh()


def forward_hook_that_changes(room: Room) -> Any:
    layer = room.layer()
    layer.register_forward_hook(lambda module, args, output: output * 0.5)
    layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return lambda h, batch: layer(h).tanh()


def backward_hook(room: Room) -> Any:
    """Hooks that keep gradients: of a module, of a tensor, of a parameter."""
    layer, kept = room.layer(), room.holder(list)
    way = pick(room.draw, "module", "module before", "tensor", "parameter", "accumulated", "retained")
    if way == "module":
        layer.register_full_backward_hook(lambda module, given, got: kept().append(got[0].detach()))
    elif way == "module before":
        layer.register_full_backward_pre_hook(lambda module, got: kept().append(got[0].detach()))
    elif way == "parameter":
        layer.weight.register_hook(lambda gradient: kept().append(gradient.clone()))
    elif way == "accumulated":
        layer.weight.register_post_accumulate_grad_hook(lambda parameter: kept().append(parameter.grad.clone()))

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        y = layer(h).tanh()
        if y.requires_grad and way == "tensor":
            y.register_hook(lambda gradient: kept().append(gradient.clone()))
        elif y.requires_grad and way == "retained":
            y.retain_grad()
            kept().append(y)
        return y

    return part


def changed_input(room: Room) -> Any:
    """Entries of the batch that forward puts in, takes out or exchanges."""
    room.world.model.takes = True
    layer = room.layer()
    way = pick(room.draw, "added", "added detached", "exchanged", "taken out", "appended", "cache", "nested", "number")

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        if way == "added":
            batch["h"] = h
        elif way == "added detached":
            batch["h"] = h.detach()
        elif way == "exchanged":
            batch["x"] = batch["x"] * 2
        elif way == "taken out":
            batch.pop("seen", None)
        elif way == "appended":
            batch["cache"].append(h)
        elif way == "cache":
            batch["cache"].append(layer(h))
            return torch.stack(batch["cache"]).mean(0)
        elif way == "nested":
            batch.setdefault("seen", {})["h"] = [h]
        else:
            batch["number"] = 3
        return layer(h)

    return part


def exchanged_data(room: Room) -> Any:
    """What forward puts in the place of a parameter or buffer, or of its storage."""
    owner = room.layer(nn.Linear(room.width, room.width), "owner")
    owner.register_buffer("mean", torch.zeros(room.width))
    owner.scale = nn.Parameter(torch.full((room.width,), 1.5), requires_grad=flip(room.draw, 0.7))
    way = pick(room.draw, "clamped data", "new parameter", "data.copy_", "data.clamp_", "buffer data", "new buffer",
               "copy_", "buffer in place", "set_", "data of weight", "buffer copied", "swapped")  # fmt: skip

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        with torch.no_grad():
            if way == "clamped data":
                owner.scale.data = torch.clamp(owner.scale.data - 0.1, 0, 1.3)
            elif way == "new parameter":
                owner.scale = nn.Parameter(owner.scale.detach() * 0.9, requires_grad=owner.scale.requires_grad)
            elif way == "data.copy_":
                owner.scale.data.copy_(owner.scale.data * 0.9)
            elif way == "data.clamp_":
                owner.scale.data.clamp_(0, 1.3)
            elif way == "buffer data":
                owner.mean.data = owner.mean.data * 0.9 + h.detach().mean(0)
            elif way == "new buffer":
                owner.mean = owner.mean * 0.9 + h.detach().mean(0)
            elif way == "copy_":
                owner.scale.copy_(owner.scale * 0.9)
            elif way == "buffer in place":
                owner.mean.mul_(0.9).add_(h.detach().mean(0))
            elif way == "set_":
                owner.scale.data.set_(owner.scale.data * 0.9)
            elif way == "data of weight":
                owner.weight.data = owner.weight.data / owner.weight.data.norm()
            elif way == "buffer copied":
                owner.mean.copy_(h.detach().mean(0))
            else:
                owner.weight.data, owner.weight.data = owner.weight.data * 1.5, owner.weight.data * 2
        return owner(h) * owner.scale + owner.mean

    return part


def inner_gradients(room: Room) -> Any:
    """Functions that differentiate within their own backward, or gradients that forward asks for."""
    layer = room.layer()
    way = pick(room.draw, "grad", "backward", "grad with parameters", "in forward", "func", "vjp")

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            with torch.no_grad():
                return layer(x).tanh()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            parameters = tuple(layer.parameters())
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                y = layer(x).tanh()
            if way == "backward":
                torch.autograd.backward(y, gradient)
                return x.grad, *(None for _ in parameters)
            if way == "grad":
                return torch.autograd.grad(y, x, gradient)[0], *(None for _ in parameters)
            return torch.autograd.grad(y, (x, *parameters), gradient, allow_unused=True)

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        if way == "in forward":
            with torch.enable_grad():
                z = h.detach().requires_grad_()
                (slope,) = torch.autograd.grad(layer(z).tanh().sum(), z)
            return layer(h) + slope.detach()
        if way == "func":
            return layer(h) + torch.func.grad(lambda z: z.sin().sum())(h)
        if way == "vjp":
            y, pull = torch.func.vjp(lambda z: z.sin(), h)
            return layer(y) + pull(torch.ones_like(y))[0]
        return Inner.apply(h, *layer.parameters())

    return part


def custom_function(room: Room) -> Any:
    """Functions of people whose backward is arithmetic, with what they keep."""
    way, kept = pick(room.draw, "saved", "attribute", "straight", "in place", "keeps"), room.holder(list)

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            if way == "in place":
                ctx.mark_dirty(x)
                return x.mul_(2)
            if way == "attribute":
                ctx.sign = x.sign()
            ctx.save_for_backward(x)
            return x.round() if way == "straight" else x.abs()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            if way == "in place":
                return gradient * 2
            if way == "straight":
                return gradient
            if way == "keeps":
                kept().append(gradient.detach())
            return gradient * (ctx.sign if way == "attribute" else ctx.saved_tensors[0].sign())

    return lambda h, batch: Own.apply(h * 1.5)


def cell(room: Room) -> Any:
    kind, bias, times = pick(room.draw, nn.LSTMCell, nn.GRUCell, nn.RNNCell), flip(room.draw), pick(room.draw, 1, 2, 3)
    size = pick(room.draw, room.width, int(room.draw.integers(1, 71)))
    layer, out = room.layer(kind(room.width, size, bias=bias)), room.layer(nn.Linear(size, room.width), "out")

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        state: Any = None
        for _ in range(times):
            state = layer(h, state)
        return out(state[0] if isinstance(state, tuple) else state)

    return part


def recurrent(room: Room) -> Any:
    kind, size = pick(room.draw, nn.LSTM, nn.GRU, nn.RNN), int(room.draw.integers(1, 40))
    layer = room.layer(kind(room.width, size, 2, dropout=0.2, bidirectional=flip(room.draw, 0.3), batch_first=True))
    out = room.layer(nn.Linear(size, room.width), "out")
    return lambda h, batch: out(layer(torch.stack([h, h * 2], 1))[0][:, -1, :size])


def norm(room: Room) -> Any:
    layer = room.layer(pick(room.draw, nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm)(room.width))
    return lambda h, batch: layer(h)


def parametrized(room: Room) -> Any:
    make = pick(room.draw, parametrizations.weight_norm, parametrizations.spectral_norm)
    layer = room.layer(make(nn.Linear(room.width, room.width)))
    return lambda h, batch: layer(h)


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda h: functional.dropout(h, 0.3),
    "dropout in place": lambda h: functional.dropout(h * 2, 0.3, inplace=True),
    "alpha dropout": lambda h: functional.alpha_dropout(h, 0.3, training=True),
    "feature alpha dropout": lambda h: functional.feature_alpha_dropout(h[..., None], 0.3, training=True)[..., 0],
    "dropout1d": lambda h: functional.dropout1d(h[..., None], 0.3)[..., 0],
    "dropout2d": lambda h: functional.dropout2d(h[..., None, None], 0.3)[..., 0, 0],
    "dropout3d": lambda h: functional.dropout3d(h[..., None, None, None], 0.3)[..., 0, 0, 0],
    "native dropout": lambda h: torch.native_dropout(h, 0.3, True)[0],
    "rrelu": lambda h: functional.rrelu(h, training=True),
    "rrelu in place": lambda h: functional.rrelu(h * 1.5, training=True, inplace=True),
    "gumbel softmax": lambda h: functional.gumbel_softmax(h, 0.7),
    "hard gumbel softmax": lambda h: functional.gumbel_softmax(h, hard=True),
    "rand": lambda h: h * torch.rand(h.shape),
    "randn": lambda h: h + torch.randn(h.shape),
    "rand_like": lambda h: h * torch.rand_like(h),
    "randn_like": lambda h: h + torch.randn_like(h),
    "randint": lambda h: h * torch.randint(0, 3, h.shape),
    "randint_like": lambda h: h * torch.randint_like(h, 0, 3),
    "randperm": lambda h: h[:, torch.randperm(h.shape[1])],
    "bernoulli": lambda h: h * torch.bernoulli(h.sigmoid()),
    "bernoulli of a number": lambda h: h * torch.bernoulli(torch.full_like(h, 0.4)),
    "bernoulli_": lambda h: h * torch.empty_like(h).bernoulli_(0.4),
    "bernoulli_ of a tensor": lambda h: h * torch.empty_like(h).bernoulli_(h.detach().sigmoid()),
    "multinomial": lambda h: h[:, torch.multinomial(torch.ones(h.shape[1]), h.shape[1], replacement=True)],
    "multinomial of a tensor": lambda h: h.gather(1, torch.multinomial(h.detach().softmax(1), 1)) + h,
    "normal": lambda h: h + torch.normal(h.detach(), 0.5),
    "normal of two": lambda h: h + torch.normal(h.detach(), h.detach().abs() + 0.1),
    "normal of numbers": lambda h: h + torch.normal(0.0, 1.0, tuple(h.shape)),
    "normal_": lambda h: h + torch.empty_like(h).normal_(),
    "uniform_": lambda h: h + torch.empty_like(h).uniform_(-1, 1),
    "random_": lambda h: h * torch.empty_like(h).random_(0, 3),
    "exponential_": lambda h: h + torch.empty_like(h).exponential_(),
    "cauchy_": lambda h: h + torch.empty_like(h).cauchy_().clamp(-1, 1),
    "log_normal_": lambda h: h + torch.empty_like(h).log_normal_(0, 0.1),
    "geometric_": lambda h: h + torch.empty_like(h).geometric_(0.5),
    "poisson": lambda h: h + torch.poisson(h.detach().exp()),
    "binomial": lambda h: h + torch.binomial(torch.full_like(h, 5), h.detach().sigmoid()),
    "gamma": lambda h: h + torch._standard_gamma(h.exp()),
    "dirichlet": lambda h: h + torch._sample_dirichlet(h.exp() + 0.1),
    "Normal": lambda h: torch.distributions.Normal(h, 0.5, validate_args=False).rsample(),
    "Gamma": lambda h: h + torch.distributions.Gamma(h.exp(), 1.0, validate_args=False).rsample(),
    "Beta": lambda h: h + torch.distributions.Beta(h.exp(), 2.0, validate_args=False).rsample(),
    "Laplace": lambda h: torch.distributions.Laplace(h, 0.5, validate_args=False).rsample(),
    "Categorical": lambda h: h + torch.distributions.Categorical(logits=h, validate_args=False).sample()[:, None],
    "RelaxedBernoulli": lambda h: torch.distributions.RelaxedBernoulli(
        torch.tensor(0.5), logits=h, validate_args=False
    ).rsample(),
    "attention": lambda h: functional.scaled_dot_product_attention(*(h[None, None],) * 3, dropout_p=0.3)[0, 0],
    "fractional pooling": lambda h: h + functional.fractional_max_pool2d(h[None, None], 1, 1)[0, 0],
    "noise in a part": lambda h: torch.cat([h[:1] + torch.randn_like(h[:1]), h[1:]]),
    "normal_ in a part": lambda h: _with_noise(h * 2),
    "own generator": lambda h: h + torch.rand(h.shape, generator=torch.Generator().manual_seed(3)),
    "layers at random": lambda h: torch.where(torch.rand(()) < 0.5, h, h.sin()),
}


def _with_noise(h: torch.Tensor) -> torch.Tensor:
    h.detach()[:, :1].normal_()
    return h


def _random(name: str) -> Callable[[Room], Any]:
    return lambda room: lambda h, batch: RANDOM[name](h)


def attention_layer(room: Room) -> Any:
    layer = room.layer(nn.MultiheadAttention(room.width, 1, dropout=0.2, batch_first=True))
    return lambda h, batch: layer(h[None], h[None], h[None], need_weights=False)[0][0]


PARTS: dict[str, Callable[[Room], Any]] = {
    "list of losses": list_of_losses,
    "dict of features": dict_of_features,
    "attribute elsewhere": attribute_elsewhere,
    "counter": counter,
    "forward hook": forward_hook,
    "forward hook that changes": forward_hook_that_changes,
    "backward hook": backward_hook,
    "changed input": changed_input,
    "exchanged data": exchanged_data,
    "inner gradients": inner_gradients,
    "custom function": custom_function,
    "cell": cell,
    "recurrent": recurrent,
    "norm": norm,
    "parametrized": parametrized,
    "random attention layer": attention_layer,
    **{f"random {name}": _random(name) for name in RANDOM},
}
HARMLESS = [name for name in PARTS if name.startswith("random ")] + ["cell", "norm", "forward hook that changes"]


def random_spec(seed: int) -> Spec:
    """A program of one to three parts and one to four phases; of every other one no part has a side effect."""
    draw = np.random.default_rng(seed)
    names = [name for name in PARTS if not name.startswith("random ")]
    chosen = []
    for _ in range(pick(draw, 1, 1, 2, 3)):
        chosen.append(pick(draw, *HARMLESS) if flip(draw, 0.4) else pick(draw, *names))
    phases = [pick(draw, *PHASES) if flip(draw, 0.6) else "step" for _ in range(int(draw.integers(2, 5)))]
    parts = tuple((name, int(draw.integers(2**20))) for name in chosen)
    width = pick(draw, int(draw.integers(1, 71)), int(draw.integers(1, 71)), 8)
    return Spec(seed, width, int(draw.integers(2, 17)), parts, tuple(phases), flip(draw))


def build(spec: Spec) -> World:
    """A new world of a program; the same one for the same program."""
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed)
        world = World(spec, Program(spec))
        for place, (name, seed) in enumerate(spec.parts):
            world.model.run.parts.append(PARTS[name](Room(world, f"{place} {name}", np.random.default_rng(seed))))
    return world
