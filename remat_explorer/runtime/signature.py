"""What a plan was made for, and what differs from it now, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_explorer.capture.step.autocast import Autocast
from remat_explorer.capture.step.nesting import map_leaves


@dataclass(frozen=True)
class Layout:
    """Shape, type, device and strides of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    strides: tuple[int, ...]

    @staticmethod
    def of(tensor: torch.Tensor) -> Layout:
        """The layout of ``tensor``."""
        return Layout(tuple(tensor.shape), tensor.dtype, tensor.device, tensor.stride())

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{dtype} of shape {list(self.shape)} with strides {list(self.strides)} on {self.device}"


@dataclass(frozen=True)
class Signature:
    """Everything that a static plan depends on; equal signatures can share a plan.

    Attributes:
        nesting: containers of the inputs.
        leaves: `Layout` of each input tensor, and every other input as it is.
        home: device and type of each parameter and buffer.
        trained: for each parameter whether it requires a gradient.
        modes: for each module whether it is in training mode.
        autocast: what was on.
    """

    nesting: str
    leaves: tuple[Any, ...]
    home: tuple[tuple[torch.device, torch.dtype], ...]
    trained: tuple[bool, ...]
    modes: tuple[bool, ...]
    autocast: Autocast

    @staticmethod
    def of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
        """The signature of a call of ``model``."""
        given = map_leaves(lambda leaf: Layout.of(leaf) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs))
        leaves, nesting = pytree.tree_flatten(given)
        parameters = list(model.parameters())
        return Signature(
            str(nesting),
            tuple(leaves),
            tuple((tensor.device, tensor.dtype) for tensor in (*parameters, *model.buffers())),
            tuple(parameter.requires_grad for parameter in parameters),
            tuple(module.training for module in model.modules()),
            Autocast.ambient(),
        )

    def matches(self, other: Signature) -> bool:
        """Whether a plan for one serves the other."""
        return (
            (self.nesting, self.home, self.trained, self.modes, self.autocast)
            == (other.nesting, other.home, other.trained, other.modes, other.autocast)
            and len(self.leaves) == len(other.leaves)
            and all(map(_same, self.leaves, other.leaves))
        )

    def difference(self, signature: Signature, model: nn.Module) -> str:
        """The first thing in which ``signature`` differs, or an empty text.

        >>> layer, x = nn.Linear(2, 2), torch.ones(3, 2)
        >>> planned = Signature.of(layer, (x,), {})
        >>> print(planned.difference(Signature.of(layer, (x[:1],), {}), layer))
        input 0 is float32 of shape [1, 2] with strides [2, 1] on cpu, but the plan was made for float32 of shape \
[3, 2] with strides [2, 1] on cpu
        """
        if self.nesting != signature.nesting:
            return f"the inputs are nested as {signature.nesting}, but the plan was made for {self.nesting}"
        for number, (mine, theirs) in enumerate(zip(self.leaves, signature.leaves, strict=True)):
            if not _same(mine, theirs):
                return f"input {number} is {theirs}, but the plan was made for {mine}"
        if self.modes != signature.modes:
            names = [name for name, _ in model.named_modules()]
            place = next(
                i for i, pair in enumerate(zip(self.modes, signature.modes, strict=True)) if pair[0] != pair[1]
            )
            mode = {True: "training", False: "evaluation"}
            where = f"{names[place]!r}" if names[place] else "the model"
            now, planned = mode[signature.modes[place]], mode[self.modes[place]]
            return f"{where} is in {now} mode, but the plan was made for {planned}"
        for (name, _), mine, theirs in zip(model.named_parameters(), self.trained, signature.trained, strict=True):
            if mine != theirs:
                words = ("requires a gradient", "is frozen") if theirs else ("is frozen", "a gradient of it")
                return f"the parameter {name!r} {words[0]}, but the plan was made for {words[1]}"
        if self.autocast != signature.autocast:
            return f"autocast is {_words(signature.autocast)}, but the plan was made with it {_words(self.autocast)}"
        return "the model lies elsewhere than where the plan was made for" if self.home != signature.home else ""


def _same(first: Any, second: Any) -> bool:
    try:
        return type(first) is type(second) and bool(first == second)
    except Exception:  # whatever comparing a person's own objects does
        return first is second


def _words(autocast: Autocast) -> str:
    return " and ".join(f"on for {device} in {dtype}" for device, dtype in autocast.types) or "off"
