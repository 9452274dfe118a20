"""The attribute ``forward`` of a rematerialized model: with the model's own signature, and open to assignments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn


class Forward:
    """Gives ``forward`` of a rematerialized class, and takes what a loop assigns to it.

    Libraries look at the parameters of forward to choose columns of a data set, and put forward into a function of
    their own, such as accelerate with autocast around it. What is assigned is the rematerialized model's alone: a call
    of it runs that function, and the forward that it got runs the plan. It has no ``__wrapped__``, so that who takes
    such functions off again does not arrive at the model's own forward. What is assigned may also take the place of
    the model's forward, and call it only for evaluation, as trl's SFTTrainer does: `renew` is for this.

    Args:
        model: whose forward it looks like.

    >>> import inspect
    >>> class Looked:
    ...     forward = Forward(nn.Linear(2, 2))
    >>> inspect.signature(Looked.forward)
    <Signature (self, /, input: torch.Tensor) -> torch.Tensor>
    """

    def __init__(self, model: nn.Module) -> None:
        self._function = _running(model.forward)

    def __get__(self, module: Any, owner: type | None = None) -> Callable[..., Any]:
        if module is None:
            return self._function
        assigned = module.rematerialization.assigned
        return MethodType(self._function, module) if assigned is None else assigned

    def __set__(self, module: Any, value: Any) -> None:
        own = getattr(value, "__func__", None) is self._function
        module.rematerialization.assigned = None if own else value

    def __delete__(self, module: Any) -> None:
        module.rematerialization.assigned = None

    def renew(self, model: nn.Module) -> Callable[..., Any]:
        """Look like the forward that the model has now; returns what loops got before."""
        before, self._function = self._function, _running(model.forward)
        return before


def _running(own: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the looks of a model's own forward that runs the plan, or what has taken its place."""

    def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
        mine = module.rematerialization
        replaced = mine.replaced.get(forward)
        return mine.run(args, kwargs) if replaced is None else replaced(*args, **kwargs)

    return _looking_like(own, forward)


def _looking_like(own: Callable[..., Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    made: Any = functools.update_wrapper(forward, own, updated=())
    del made.__wrapped__
    try:
        signature = inspect.signature(own)
        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        made.__signature__ = signature.replace(parameters=[this, *signature.parameters.values()])
    except (TypeError, ValueError):  # not every callable has one that can be read
        pass
    return made
