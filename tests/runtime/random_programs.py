"""Random programs of training: a small model with side effects, exchanged parameters, random operators and phases.

A program is drawn from a seed. Each time it is built it is a new world: a model, and whatever its forward reaches
outside of it. So one can be trained as it is and another by a plan, and everything in them be compared.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.runtime.random_kinds import Draw, flip, pick

Part = Callable[[torch.Tensor, dict[str, Any]], torch.Tensor]
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
        return tuple(dict.fromkeys([name for name, _ in self.parts] + [p for p in self.phases if p != "step"]))

    def smaller(self) -> Iterator[Spec]:
        """This program with one part or phase less, or of a small width or batch."""
        for place in range(len(self.parts)):
            yield replace(self, parts=self.parts[:place] + self.parts[place + 1 :])
        for place in range(len(self.phases) if len(self.phases) > 1 else 0):
            yield replace(self, phases=self.phases[:place] + self.phases[place + 1 :])
        small = replace(self, width=min(self.width, 2)), replace(self, batch=4)
        yield from (one for one in small if one != self)


@dataclass
class World:
    """A model that is built, and what else of its program a person can look into."""

    spec: Spec
    model: Program
    visible: dict[str, Any] = field(default_factory=dict)  # whatever forward, hooks or Functions may change
    losses: list[Callable[[], Any]] = field(default_factory=list)  # added to that of the model's output
    holders: list[Callable[[], Any]] = field(default_factory=list)  # containers, emptied after each backward pass

    def batch(self, place: int, rows: int) -> dict[str, Any]:
        """The batch of a step, with containers that forward may change if a part does."""
        made = torch.Generator().manual_seed(1000 * self.spec.seed + place)
        batch: dict[str, Any] = {"x": torch.randn(rows, self.spec.width, generator=made)}
        return batch | ({"cache": [], "seen": {}} if self.model.takes else {})


class Program(nn.Module):
    """Parts between two linear layers; they are functions, which are not kept in its attributes."""

    def __init__(self, spec: Spec, parts: list[Part]) -> None:
        super().__init__()
        self.first, self.last, self.inner = nn.Linear(spec.width, spec.width), nn.Linear(spec.width, 3), nn.ModuleDict()
        self.scalar, self.takes = spec.scalar, False
        self.parts = lambda: parts

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        h = self.first(batch["x"]).tanh()
        for part in self.parts():
            h = part(h, batch)
        y = self.last(h)
        return y.square().mean() if self.scalar else y


@dataclass
class Room:
    world: World
    name: str
    draw: Draw
    width: int

    def layer(self, made: nn.Module | None = None, name: str = "layer") -> Any:
        made = nn.Linear(self.width, self.width) if made is None else made
        self.world.model.inner[f"{self.name} {name}"] = made
        return made

    def holder(self, kind: Callable[[], Any]) -> Callable[[], Any]:
        """A new container, which is reached in one of the ways in which people reach one."""
        made, model, key = kind(), self.world.model, f"kept_{self.name.replace(' ', '_')}"
        way = pick(self.draw, "model", "child", "other module", "closure", "global", "object", "class")
        owners = {"model": model, "child": model.first, "other module": nn.Linear(2, 2), "object": SimpleNamespace()}
        owner: Any = owners.get(way) or type("Kept", (), {})
        if way == "global":
            GLOBAL[f"{id(self.world)} {key}"] = made
        elif way != "closure":
            setattr(owner, "kept" if way == "class" else key, made)
        reach = {"global": lambda: GLOBAL[f"{id(self.world)} {key}"], "closure": lambda: made}
        kept: Callable[[], Any] = (reach | {"class": lambda: owner.kept}).get(way, lambda: getattr(owner, key))
        self.world.visible[f"{self.name} {way}"] = kept
        self.world.holders.append(kept)
        return kept


def list_of_losses(room: Room) -> Part:
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


def dict_of_features(room: Room) -> Part:
    kept = room.holder(pick(room.draw, dict, OrderedDict, lambda: defaultdict(list)))
    values: list[Callable[[torch.Tensor], Any]] = [lambda h: h, torch.detach, torch.mean, lambda h: [h.clone()]]
    value = pick(room.draw, *values, lambda h: kept().get("h", 0) + 1)

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        if isinstance(kept(), defaultdict):
            kept()["all"].append(value(h))
        else:
            kept()["h"] = value(h)
        return h

    return part


def attribute_elsewhere(room: Room) -> Part:
    """A tensor in an attribute of the model, of another module, of an object, or of a cell of a closure."""
    other: Any = pick(room.draw, nn.Linear(2, 2), SimpleNamespace(), room.world.model, room.world.model.first)
    room.world.visible[f"{room.name} other"] = other
    value, last = pick(room.draw, lambda h: h, torch.detach, torch.mean), None

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        nonlocal last
        other.kept = last = value(h)
        return h

    room.world.visible[f"{room.name} cell"] = lambda: last
    return part


def forward_hook(room: Room) -> Part:
    layer, kept = room.layer(), room.holder(dict)
    detached = flip(room.draw)

    def hook(*arguments: Any) -> None:
        seen = arguments[-1][0] if isinstance(arguments[-1], tuple) else arguments[-1]
        kept()["seen"] = seen.detach() if detached else seen

    pick(room.draw, layer.register_forward_hook, layer.register_forward_pre_hook)(hook)
    return lambda h, batch: layer(h).tanh()


def forward_hook_that_changes(room: Room) -> Part:
    layer = room.layer()
    layer.register_forward_hook(lambda module, args, output: output * 0.5)
    return lambda h, batch: layer(h).tanh()


def backward_hook(room: Room) -> Part:
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


def changed_input(room: Room) -> Part:
    room.world.model.takes = True
    layer = room.layer()
    changes: list[Callable[[torch.Tensor, dict[str, Any]], Any]] = [
        lambda h, batch: batch.update(h=h),
        lambda h, batch: batch.update(h=h.detach()),
        lambda h, batch: batch.update(x=batch["x"] * 2),
        lambda h, batch: batch.update(number=3),
        lambda h, batch: batch.pop("seen", None),
        lambda h, batch: batch["cache"].append(h),
        lambda h, batch: batch.setdefault("seen", {}).update(h=[h]),
    ]
    change, read = pick(room.draw, *changes), flip(room.draw, 0.3)

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        change(h, batch)
        return layer(torch.stack([h, *batch["cache"]]).mean(0) if read else h)

    return part


def exchanged_data(room: Room) -> Part:
    """What forward puts in the place of a parameter or buffer, or of its storage."""
    owner = room.layer(nn.Linear(room.width, room.width), "owner")
    owner.register_buffer("mean", torch.zeros(room.width))
    owner.scale = nn.Parameter(torch.full((room.width,), 1.5), requires_grad=flip(room.draw, 0.7))
    changes: list[Callable[[torch.Tensor], Any]] = [
        lambda mean: setattr(owner.scale, "data", torch.clamp(owner.scale.data - 0.1, 0, 1.3)),
        lambda mean: setattr(owner, "scale", nn.Parameter(owner.scale * 0.9, owner.scale.requires_grad)),
        lambda mean: setattr(owner.weight, "data", owner.weight.data / owner.weight.data.norm()),
        lambda mean: setattr(owner.mean, "data", owner.mean.data * 0.9 + mean),
        lambda mean: setattr(owner, "mean", owner.mean * 0.9 + mean),
        lambda mean: owner.scale.data.copy_(owner.scale.data * 0.9),
        lambda mean: owner.scale.data.clamp_(0, 1.3),
        lambda mean: owner.scale.data.set_(owner.scale.data * 0.9),
        lambda mean: owner.scale.copy_(owner.scale * 0.9),
        lambda mean: owner.mean.mul_(0.9).add_(mean),
        lambda mean: owner.mean.copy_(mean),
    ]
    change = pick(room.draw, *changes)

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        with torch.no_grad():
            change(h.detach().mean(0))
        return owner(h) * owner.scale + owner.mean

    return part


def inner_gradients(room: Room) -> Part:
    """Functions that differentiate within their own backward, or gradients that forward asks for."""
    layer = room.layer()
    way = pick(room.draw, "grad", "backward", "in forward", "func")

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(inputs[0])
            with torch.no_grad():
                return layer(inputs[0]).tanh()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                y = layer(x).tanh()
            if way == "backward":
                torch.autograd.backward(y, gradients[0])
                return x.grad, None, None
            return torch.autograd.grad(y, (x, *layer.parameters()), gradients, allow_unused=True)

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        if way == "in forward":
            with torch.enable_grad():
                z = h.detach().requires_grad_()
                (slope,) = torch.autograd.grad(layer(z).tanh().sum(), z)
            return layer(h) + slope.detach()
        if way == "func":
            return layer(h) + torch.func.grad(lambda z: z.sin().sum())(h)
        return Inner.apply(h, *layer.parameters())

    return part


def custom_function(room: Room, keeps: bool = False) -> Part:
    """Functions of people whose backward is arithmetic; ``keeps`` those that keep a gradient."""
    kept = room.holder(list) if keeps else None
    way = pick(room.draw, "saved", "attribute", "straight", "in place")

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
            if way == "in place":
                ctx.mark_dirty(*inputs)
                return inputs[0].mul_(2)
            ctx.sign = inputs[0].sign()
            ctx.save_for_backward(*inputs)
            return inputs[0].round() if way == "straight" else inputs[0].abs()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            if kept is not None:
                kept().append(gradients[0].detach())
            if way in ("in place", "straight"):
                return gradients[0] * 2
            return gradients[0] * (ctx.sign if way == "attribute" else ctx.saved_tensors[0].sign())

    return lambda h, batch: Own.apply(h * 1.5)


def custom_function_that_keeps(room: Room) -> Part:
    return custom_function(room, keeps=True)


def cell(room: Room) -> Part:
    kind, bias, times = pick(room.draw, nn.LSTMCell, nn.GRUCell, nn.RNNCell), flip(room.draw), pick(room.draw, 1, 2, 3)
    size = pick(room.draw, room.width, int(room.draw.integers(1, 71)))
    layer, out = room.layer(kind(room.width, size, bias=bias)), room.layer(nn.Linear(size, room.width), "out")

    def part(h: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        state: Any = None
        for _ in range(times):
            state = layer(h, state)
        return out(state[0] if isinstance(state, tuple) else state)

    return part


def recurrent(room: Room) -> Part:
    kind, size = pick(room.draw, nn.LSTM, nn.GRU, nn.RNN), int(room.draw.integers(1, 40))
    layers, both = pick(room.draw, 1, 1, 2), flip(room.draw, 0.3)
    dropout = 0.2 * (layers - 1)
    layer = room.layer(kind(room.width, size, layers, batch_first=True, dropout=dropout, bidirectional=both))
    out = room.layer(nn.Linear(size, room.width), "out")
    return lambda h, batch: out(layer(torch.stack([h, h * 2], 1))[0][:, -1, :size])


def norm(room: Room) -> Part:
    weight = pick(room.draw, None, parametrizations.weight_norm, parametrizations.spectral_norm)
    of_activations = pick(room.draw, nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm)
    layer = room.layer(weight(nn.Linear(room.width, room.width)) if weight else of_activations(room.width))
    return lambda h, batch: layer(h)


IN_PLACE = {"normal_": (), "uniform_": (-1, 1), "random_": (0, 3), "exponential_": (), "cauchy_": (),
            "bernoulli_": (0.4,), "log_normal_": (0, 0.1), "geometric_": (0.5,)}  # fmt: skip
DISTRIBUTIONS: dict[str, Callable[[torch.Tensor], tuple[Any, ...]]] = {
    "Normal": lambda h: (h, 0.5),
    "Laplace": lambda h: (h, 0.5),
    "Gamma": lambda h: (h.exp(), 1.0),
    "Beta": lambda h: (h.exp(), 2.0),
    "Dirichlet": lambda h: (h.exp() + 0.1,),
    "RelaxedBernoulli": lambda h: (h.new_tensor(0.5), None, h),
}
RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda h: functional.dropout(h, 0.3),
    "dropout in place": lambda h: functional.dropout(h * 2, 0.3, inplace=True),
    "alpha dropout": lambda h: functional.alpha_dropout(h, 0.3, training=True),
    "feature alpha dropout": lambda h: functional.feature_alpha_dropout(h[..., None], 0.3, training=True)[..., 0],
    "native dropout": lambda h: torch.native_dropout(h, 0.3, True)[0],
    "rrelu": lambda h: functional.rrelu(h, training=True),
    "rrelu in place": lambda h: functional.rrelu(h * 1.5, training=True, inplace=True),
    "gumbel softmax": lambda h: functional.gumbel_softmax(h, 0.7),
    "hard gumbel softmax": lambda h: functional.gumbel_softmax(h, hard=True),
    "randint": lambda h: h * torch.randint(0, 3, h.shape),
    "randint_like": lambda h: h * torch.randint_like(h, 0, 3),
    "randperm": lambda h: h[:, torch.randperm(h.shape[1])],
    "bernoulli": lambda h: h * torch.bernoulli(h.sigmoid()),
    "bernoulli_ of a tensor": lambda h: h * torch.empty_like(h).bernoulli_(h.detach().sigmoid()),
    "multinomial": lambda h: h[:, torch.multinomial(torch.ones(h.shape[1]), h.shape[1], replacement=True)],
    "multinomial of a tensor": lambda h: h.gather(1, torch.multinomial(h.detach().softmax(1), 1)) + h,
    "normal": lambda h: h + torch.normal(h.detach(), 0.5),
    "normal of two": lambda h: h + torch.normal(h.detach(), h.detach().abs() + 0.1),
    "normal of numbers": lambda h: h + torch.normal(0.0, 1.0, tuple(h.shape)),
    "poisson": lambda h: h + torch.poisson(h.detach().exp()),
    "binomial": lambda h: h + torch.binomial(torch.full_like(h, 5), h.detach().sigmoid()),
    "Categorical": lambda h: h + torch.distributions.Categorical(logits=h, validate_args=False).sample()[:, None],
    "attention": lambda h: functional.scaled_dot_product_attention(*(h[None, None],) * 3, dropout_p=0.3)[0, 0],
    "fractional pooling": lambda h: h + functional.fractional_max_pool2d(h[None, None], 1, 1)[0, 0],
    "noise in a part": lambda h: torch.cat([h[:1] + torch.randn_like(h[:1]), h[1:]]),
    "own generator": lambda h: h + torch.rand(h.shape, generator=torch.Generator().manual_seed(3)),
    "choice": lambda h: torch.where(torch.rand(()) < 0.5, h, h.sin()),
    **{name: lambda h, name=name: h + getattr(torch.empty_like(h), name)(*IN_PLACE[name]) for name in IN_PLACE},
    **{name: lambda h, name=name: h * getattr(torch, name)(h.shape) for name in ("rand", "randn")},
    **{name: lambda h, name=name: h * getattr(torch, name)(h) for name in ("rand_like", "randn_like")},
    **{
        f"dropout{n}d": lambda h, n=n: getattr(functional, f"dropout{n}d")(h[..., *[None] * n], 0.3).view_as(h)
        for n in (1, 2, 3)
    },
    **{name: lambda h, name=name: h + _distribution(name, h).rsample() for name in DISTRIBUTIONS},
}


def _distribution(name: str, h: torch.Tensor) -> torch.distributions.Distribution:
    return getattr(torch.distributions, name)(*DISTRIBUTIONS[name](h), validate_args=False)


def random_attention_layer(room: Room) -> Part:
    layer = room.layer(nn.MultiheadAttention(room.width, 1, dropout=0.2, batch_first=True))
    return lambda h, batch: layer(*(h[None],) * 3, need_weights=False)[0][0]


PLAIN = (list_of_losses, dict_of_features, attribute_elsewhere, forward_hook, forward_hook_that_changes, backward_hook,
         changed_input, exchanged_data, inner_gradients, custom_function, custom_function_that_keeps, cell, recurrent,
         norm, random_attention_layer)  # fmt: skip
PARTS: dict[str, Callable[[Room], Part]] = {
    **{part.__name__.replace("_", " "): part for part in PLAIN},
    **{f"random {name}": lambda room, run=run: lambda h, batch: run(h) for name, run in RANDOM.items()},
}


def random_spec(seed: int, without: Collection[str] = ()) -> Spec:
    """A program of one to three parts and two to four phases, none of them one of ``without``."""
    draw = np.random.default_rng(seed)
    known = [name for name in PARTS if name not in without]
    drawn = [name for name in known if name.startswith("random ")]
    others = [name for name in known if not name.startswith("random ")]
    names = [pick(draw, *(drawn if flip(draw, 0.4) else others)) for _ in range(pick(draw, 1, 1, 2, 3))]
    phases = [phase for phase in PHASES if phase not in without]
    chosen = tuple(pick(draw, *phases) if flip(draw, 0.6) else "step" for _ in range(int(draw.integers(2, 5))))
    width = pick(draw, int(draw.integers(1, 71)), int(draw.integers(1, 71)), 8)
    parts = tuple((name, int(draw.integers(2**20))) for name in names)
    return Spec(seed, width, int(draw.integers(4, 17)), parts, chosen, flip(draw))


def build(spec: Spec) -> World:
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed)
        parts: list[Part] = []
        world = World(spec, Program(spec, parts))
        for place, (name, seed) in enumerate(spec.parts):
            parts.append(PARTS[name](Room(world, f"{place} {name}", np.random.default_rng(seed), spec.width)))
    return world
