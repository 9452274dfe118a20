"""Hooks that are registered on a rematerialized model, which shares all other attributes with the model."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeVar

from torch import nn

Kind = TypeVar("Kind", bound=type[nn.Module])

_FLAGS = ("_is_full_backward_hook",)
_HOOKS = (
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_pre_hooks", "_backward_hooks", *_FLAGS),
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
)


def no_hooks() -> dict[str, Any]:
    """What torch keeps the hooks of a module in, by the names of its attributes, without any."""
    return {name: None if name in _FLAGS else OrderedDict() for name in _HOOKS}


def with_hooks_of_its_own(kind: Kind) -> Kind:
    """The class, with the hooks of its modules in ``rematerialization.hooks`` in place of their ``__dict__``."""
    for name in _HOOKS:
        setattr(kind, name, _own(name))
    return kind


def _own(name: str) -> property:
    def get(module: Any) -> Any:
        return module.rematerialization.hooks[name]

    def put(module: Any, value: Any) -> None:
        module.rematerialization.hooks[name] = value

    return property(get, put)
