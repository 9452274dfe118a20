"""A method that computes the loss of a step, as models of Lightning have it, and the plan that must run in it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from remat_explorer.errors import ExecutionError

NAME = "training_step"


def with_its_plan(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a rematerialized class; a call refuses to train in which the module itself was not called.

    Args:
        method: ``training_step`` of the model's own class. It computes what it logs, so it is no part of a plan;
            forward is.

    Raises:
        ExecutionError: of the method that is returned, if no plan ran, with what to do.
    """

    @functools.wraps(method)
    def training_step(module: Any, *args: Any, **kwargs: Any) -> Any:
        before = module.rematerialization.calls
        result = method(module, *args, **kwargs)
        if module.training and torch.is_grad_enabled() and module.rematerialization.calls == before:
            name = type(module).__name__
            raise ExecutionError(
                f"{NAME} of {name} does not call the module itself, whose forward the plan replaces, so it trains "
                f"without a plan. Write self(x) in it where it calls a network of its own, or rematerialize that "
                f"network in place: self.network = rematerialize(self.network, ...)"
            )
        return result

    return training_step
