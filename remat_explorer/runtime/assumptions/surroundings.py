"""What surrounds a call and would do something to forward, which a plan does not run: each with what to do instead."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.signature import shares_parametrizations

_TORCH: Any = torch._C
_OWN = ("torch.", "remat_explorer.")
_RAN = "remat_explorer"  # in parametrize's cache: a plan has run since the person entered `cached`
_CALLER = 7  # from where a warning is given to the call of the model


def require_plain_surroundings(model: nn.Module, tensors: Iterable[torch.Tensor] = ()) -> None:
    """Refuse modes, hooks and transforms that forward would go through, and that a plan goes around.

    Args:
        model: that is called.
        tensors: its inputs.

    Raises:
        ExecutionError: what was met, and what to do.

    >>> with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.half, torch.Tensor.float):
    ...     require_plain_surroundings(nn.ReLU())
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ExecutionError: torch.autograd.graph.saved_tensors_hooks is on around the step, but a plan \
saves no tensors with autograd, so that 'half' would not be called for what forward saves; call the rematerialized \
model outside of it, or the model that was given to rematerialize inside
    """
    if _TORCH._functorch.peek_interpreter_stack() is not None:
        raise ExecutionError(
            "a transform of torch.func (grad, vmap, jvp) is around the step, but a plan has the backward pass of "
            "autograd alone; transform the model that was given to rematerialize, which has the same parameters"
        )
    if torch._C._len_torch_function_stack():
        for mode in _get_current_function_mode_stack():
            if not type(mode).__module__.startswith(_OWN):
                raise ExecutionError(
                    f"the TorchFunctionMode {type(mode).__name__!r} is on around the step, but a plan does not call "
                    "the functions that forward calls; enter it in forward, before rematerialize, or leave it for the "
                    "call"
                )
    hooks = _TORCH._autograd._top_saved_tensors_default_hooks(True)
    if hooks is not None and not str(getattr(hooks[0], "__module__", "")).startswith(_OWN):
        name = getattr(hooks[0], "__name__", type(hooks[0]).__name__)
        raise ExecutionError(
            "torch.autograd.graph.saved_tensors_hooks is on around the step, but a plan saves no tensors with "
            f"autograd, so that {name!r} would not be called for what forward saves; call the rematerialized model "
            "outside of it, or the model that was given to rematerialize inside"
        )
    if forward_ad._current_level >= 0:
        everything = itertools.chain(tensors, model.parameters(), model.buffers())
        if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in everything):
            raise ExecutionError(
                "a tensor has a tangent of torch.autograd.forward_ad, which a plan would lose; call the model that was "
                "given to rematerialize, which has the same parameters, for this pass"
            )
    _warn_of_dispatch_modes()


def _warn_of_dispatch_modes() -> None:
    if not torch._C._len_torch_dispatch_stack():
        return
    for mode in _get_current_dispatch_mode_stack():
        if not type(mode).__module__.startswith(_OWN):
            warnings.warn(
                f"the TorchDispatchMode {type(mode).__name__!r} is on around the step: it sees the operations of the "
                "plan, also those that run again, in place of those of forward, and what it changes would change them",
                stacklevel=_CALLER,
            )


def require_first_call(model: nn.Module, planned: bool) -> None:
    """Refuse a second call in one `torch.nn.utils.parametrize.cached`, where plain PyTorch has the same weights.

    Args:
        model: that is called.
        planned: whether a plan shall run, and not the model itself.

    Raises:
        ExecutionError: what was met, and what to do.
    """
    if not parametrize._cache_enabled or not shares_parametrizations(model):
        return
    modules = {id(module) for module in model.modules()}
    cache: dict[Any, Any] = parametrize._cache
    if (id(model), _RAN) in cache or (planned and any(owner in modules for owner, _ in cache)):
        raise ExecutionError(
            "the model was called before in this torch.nn.utils.parametrize.cached(), which keeps parametrized weights "
            "for all calls in it, but a plan computes them in each call; enter cached() anew for each call"
        )
    if planned:
        cache[id(model), _RAN] = None  # goes when the person leaves it
