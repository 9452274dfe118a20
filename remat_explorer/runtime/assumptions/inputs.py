"""Which parameter of forward each input is for, so that a call by position and one by name can be the same call."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from remat_explorer.errors import ExecutionError


@dataclass(frozen=True)
class Calling:
    """How a model was called: how many inputs came by position, and the names of the others.

    Attributes:
        parameters: those of forward; None where Python does not know them.
        named: for each input by position the name of its parameter; fewer where forward takes ``*args``.

    >>> layer, x = nn.Bilinear(2, 3, 4), torch.ones(1, 2)
    >>> calling = Calling.of(layer, (x, x), {})
    >>> calling.same_way((x,), {"input2": 5})
    ((tensor([[1., 1.]]), 5), {})
    """

    parameters: inspect.Signature | None
    count: int
    named: tuple[str, ...]
    keys: tuple[str, ...]

    @staticmethod
    def of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Calling:
        """How ``model`` is called with these inputs."""
        try:
            parameters = inspect.signature(model.forward)
        except (TypeError, ValueError):  # not every callable has one
            return Calling(None, len(args), (), tuple(kwargs))
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [name for name, parameter in parameters.parameters.items() if parameter.kind in kinds]
        return Calling(parameters, len(args), tuple(names[: len(args)]), tuple(kwargs))

    def same_way(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same inputs, by position or by name as in the call that this one is about.

        What is left out has its default, and what that call did not give is given by name. Inputs that cannot be
        given in that way come back as they are.

        Raises:
            ExecutionError: if an input is missing, or forward does not take it.
        """
        if self.parameters is None or (len(args), tuple(kwargs)) == (self.count, self.keys):
            return args, kwargs
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as error:
            names = self.parameters.replace(return_annotation=inspect.Signature.empty)
            raise ExecutionError(f"forward takes {names}, which does not fit the inputs: {error}") from None
        passed = {*bound.arguments, *kwargs}
        bound.apply_defaults()
        given: dict[str, Any] = dict(bound.arguments)
        rest: tuple[Any, ...] = ()
        kinds = {name: parameter.kind for name, parameter in self.parameters.parameters.items()}
        for name, kind in kinds.items():
            if kind is inspect.Parameter.VAR_POSITIONAL:
                rest = given.pop(name)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                given |= given.pop(name)
        wanted = (*self.named, *self.keys)
        defaults = {name: p.default for name, p in self.parameters.parameters.items()}
        beyond = [name for name in given if name not in wanted and given[name] is not defaults.get(name, given)]
        if any(kinds.get(name) is inspect.Parameter.POSITIONAL_ONLY for name in beyond):
            return args, kwargs
        if len(rest) != self.count - len(self.named) or not all(name in given for name in wanted):
            return args, kwargs
        keys = [*(name for name in self.keys if name in passed), *beyond] if beyond else self.keys
        return (*(given[name] for name in self.named), *rest), {name: given[name] for name in keys}


def paths_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """What to call each tensor or other value among the inputs, in the order of `Signature.leaves`.

    >>> paths_of((1, {"a": [2, 3]}), {"mask": 4})
    ['input 0', "input 1['a'][0]", "input 1['a'][1]", "input 'mask'"]
    """
    named = [*((f"input {i}", held) for i, held in enumerate(args)), *((f"input {n!r}", h) for n, h in kwargs.items())]
    return [path for name, held in named for path in _paths(name, held)]


def _paths(name: str, nested: Any) -> list[str]:
    found: list[str] = []
    for keys, leaf in pytree.tree_flatten_with_path(nested)[0]:
        place = name + pytree.keystr(keys)
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type | torch.Tensor):
            fields = [field.name for field in dataclasses.fields(leaf) if hasattr(leaf, field.name)]
            found += [path for field in fields for path in _paths(f"{place}.{field}", getattr(leaf, field))]
        else:
            found.append(place)
    return found
