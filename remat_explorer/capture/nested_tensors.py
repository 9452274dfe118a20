"""Tensors inside tuples, lists, dictionaries, dataclasses and whatever else PyTorch knows how to take apart."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


def map_tensors(function: Callable[[torch.Tensor], Any], nested: Any) -> Any:
    """The same nesting with ``function`` applied to each tensor; everything else stays the object that it is.

    Dataclasses are opened although `torch.utils._pytree` holds them for leaves, and are not registered there: what is
    registered stays so for the whole process.

    >>> map_tensors(lambda tensor: tensor.item(), {"a": (torch.tensor(1), "b"), "c": [torch.tensor(2.0)]})
    {'a': (1, 'b'), 'c': [2.0]}
    """
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, nested)


def map_leaves(function: Callable[[Any], Any], nested: Any) -> Any:
    """The same nesting with ``function`` applied to everything that is no container.

    >>> map_leaves(str, [1, (2.5, {"a": None})])
    ['1', ('2.5', {'a': 'None'})]
    """

    def visit(leaf: Any) -> Any:
        if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
            return function(leaf)
        changed = copy.copy(leaf)
        for field in dataclasses.fields(leaf):
            if hasattr(leaf, field.name):  # a frozen dataclass is filled like an open one
                object.__setattr__(changed, field.name, map_leaves(function, getattr(leaf, field.name)))
        return changed

    return pytree.tree_map(visit, nested)


def tensors_in(nested: Any) -> list[torch.Tensor]:
    """Every tensor of a nesting, in the order in which `map_tensors` meets them.

    >>> tensors_in((torch.tensor(1), None, {"a": [torch.tensor(2)]}))
    [tensor(1), tensor(2)]
    """
    tensors: list[torch.Tensor] = []

    def take(tensor: torch.Tensor) -> torch.Tensor:
        tensors.append(tensor)
        return tensor  # a PackedSequence is made of tensors only

    map_tensors(take, nested)
    return tensors


def named_inputs(args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a model's inputs in the order of `tensors_in`, each with what a person calls it.

    >>> [name for name, _ in named_inputs((torch.ones(1),), {"mask": torch.ones(1)})]
    ['input 0', "input 'mask'"]
    """
    for number, argument in enumerate(args):
        yield from ((f"input {number}", tensor) for tensor in tensors_in(argument))
    for name, argument in (kwargs or {}).items():
        yield from ((f"input {name!r}", tensor) for tensor in tensors_in(argument))
