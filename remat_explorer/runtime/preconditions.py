"""What a plan, which does not run forward, takes for granted; each refusal says what to do instead.

`require_plannable` and `require_registered` are about the model, `require_plain_surroundings` and `require_first_call`
about what surrounds a call, and `attributes_after_forward` about attributes that forward changes.
"""

from __future__ import annotations

import contextvars
import itertools
import random
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from remat_explorer.capture import (
    ABSENT,
    TRAINED,
    Changes,
    InputEntry,
    Loss,
    Place,
    Program,
    Snapshot,
    Variable,
    dry_run_forward,
    has_placeholder,
    is_sharded,
    reshard,
    shard_groups,
    unwrap,
)
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.call_signature import shares_parametrizations
from remat_explorer.runtime.plan_mismatch import describe, innermost_difference


def require_plannable(model: nn.Module) -> None:
    """Refuse what goes around a model or replaces its tensors."""
    if unwrap(model) is not model:
        name = type(model).__name__
        raise ExecutionError(f"{name} goes around what rematerialize returns: {name}(rematerialize(model, ...))")
    if hasattr(model, "_orig_mod") or model._compiled_call_impl is not None:
        raise ExecutionError("the plan replaces what torch.compile would run; rematerialize the model without it")
    reshard(model)
    held = {name for group in shard_groups(model) for name in group.names}
    for path, module in model.named_modules():
        if isinstance(module, _loaded("torch.distributed.fsdp", "FullyShardedDataParallel")):
            raise _flattened(repr(path) if path else "the model")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, _loaded("torch.distributed.fsdp", "FlatParameter")):
            raise _flattened("the model")
        if is_sharded(parameter) and name not in held:
            raise ExecutionError(
                f"the parameter {name!r} is a DTensor that fully_shard has not made, of which each process holds a "
                "part; shard the model with fully_shard, or rematerialize it before it is distributed and put "
                "DistributedDataParallel around"
            )


def _flattened(what: str) -> ExecutionError:
    return ExecutionError(
        f"{what} is sharded by FullyShardedDataParallel, which puts its parameters into one tensor. Shard the model "
        "with torch.distributed.fsdp.fully_shard, and then rematerialize it"
    )


def require_registered(model: nn.Module, program: Program) -> None:
    """Refuse tensors that forward trains and that are not the model's: a plan would give them no gradient."""
    own = {id(parameter): name for name, parameter in model.named_parameters()}
    assert program.reads is not None
    for path, module, names in program.reads.entries():
        held = {} if module is None or path is not None else module._parameters
        for name in names:
            parameter = held.get(name)
            if parameter is not None and parameter.requires_grad and id(parameter) not in own:
                raise ExecutionError(
                    f"the parameter {name!r} of a {type(module).__name__} is used in the step, but is none of the "
                    "model's: a plan would give it no gradient. Make its module a part of the model, such as with "
                    "nn.ModuleList in place of a list, or freeze it"
                )
    for constant, line in program.module.meta[TRAINED].items():
        held, place = getattr(program.module, constant), f"at {line}, " if line else ""
        if id(held) in own:
            raise ExecutionError(
                f"{place}forward uses the parameter {own[id(held)]!r} from a second place that holds it, where a "
                "plan would give it no gradient, as recurrent layers do that are parametrized. Read it from the "
                "attribute where it is registered"
            )
        raise ExecutionError(
            f"{place}forward uses a tensor of shape {list(held.shape)} that requires a "
            "gradient, but is neither a parameter of the model nor an input: a plan would give it no gradient. "
            "Make it a parameter of the model (an attribute that is an nn.Parameter, an nn.ParameterList in place "
            "of a list), pass it as an input, or read it by .detach()"
        )


def _loaded(place: str, name: str) -> Any:
    """A class, without importing it: if nobody did, there is no object of it."""
    return getattr(sys.modules.get(place), name, ())


_TORCH: Any = torch._C
_OWN = ("torch.", "remat_explorer.")
_RAN = "remat_explorer"  # in parametrize's cache: a plan has run since the person entered `cached`
_CALLER = 7  # from where a warning is given to the call of the model


def require_plain_surroundings(model: nn.Module, tensors: Iterable[torch.Tensor] = ()) -> None:
    """Refuse modes, hooks and transforms that forward would go through, and that a plan goes around."""
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
    """Refuse a second call in one `torch.nn.utils.parametrize.cached`, where plain PyTorch has the same weights."""
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


_INSTEAD = (
    "return it from forward, or keep it in a buffer (register_buffer), which plans update; a count belongs in the "
    "training loop, and state that begins anew in each step is reset by forward itself"
)


_DRAW = "draw with torch.rand, torch.randn or torch.randint, which plans do anew in each step"


def _is_of_random_numbers(content: Snapshot) -> bool:
    kinds = (random.Random, np.random.Generator, np.random.RandomState)
    return content.kind == "state" and issubclass(content.value[0], kinds)


def attributes_after_forward(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], loss: Loss | None, changes: Changes
) -> Mapping[Place, Snapshot]:
    """What the attributes that forward changes hold in the end, if they come to rest in one pass, as caches do.

    What each pass leaves behind and none reads, such as attention maps, is there with the kind "left" and with what a
    pass left. A plan does not make it, of which a warning is given. Without ``changes`` of a traced pass nothing is
    run. An ExecutionError if an attribute would be stale in a step that a plan does, since a plan does not run forward.
    """
    _require_own_inputs(model, changes)
    changes = {place: change for place, change in changes.items() if not isinstance(place[0], InputEntry)}
    if not changes:
        return {}
    try:
        found = contextvars.copy_context().run(dry_run_forward, model, args, kwargs, loss)
    except Exception as error:  # whatever a person's model does without numbers
        raise ExecutionError(
            f"{_in_words(model, changes)}, and whether a second pass would change it again cannot be told "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). A plan does not run "
            "forward, so it could become stale. If it is a cache that the first pass fills, run the model once before "
            f"rematerialize; else {_INSTEAD}"
        ) from error
    if found.changed_every_pass:
        again = {place: changes.get(place, change) for place, change in found.changed_every_pass.items()}
        raise ExecutionError(
            f"{_in_words(model, again)}, in every pass anew. A plan does not run forward, so it would be stale: "
            f"{_DRAW if _is_of_random_numbers(next(iter(again.values()))[1]) else _INSTEAD}"
        )
    if found.changed_from_data:
        raise ExecutionError(
            f"{_in_words(model, found.changed_from_data)}, in the first pass alone, which depends on its inputs or "
            "computes something else than later ones. A plan is for all steps: run the model once before rematerialize"
        )
    new = {
        place: changes[place]
        for place in found.write_only
        if place in changes and not has_placeholder(changes[place][0])
    }
    if new:
        warnings.warn(
            f"{_in_words(model, new)}. A plan does not run forward: after its steps such attributes are not there, and "
            "to compute with them is an error. Return from forward what is needed",
            stacklevel=5,
        )
    return {**found.changed_once, **{place: Snapshot("left", after) for place, after in found.write_only.items()}}


def _require_own_inputs(model: nn.Module, changes: Changes) -> None:
    """Refuse what forward writes into containers of its caller, and warn where it returns them or takes out of them."""
    for place, change in changes.items():
        given = place[0]
        if not isinstance(given, InputEntry):
            continue
        if given.is_taken:
            what = f"{given.words} away" if change[1] == ABSENT else f"entries out of {given.words}"
            warnings.warn(
                f"forward takes {what}. A plan leaves its inputs as they are: after its steps it is still there",
                stacklevel=6,
            )
            continue
        words = _in_words(model, {place: change})
        if not given.is_returned:
            raise ExecutionError(
                f"{words}. A plan does not run forward, and its caller would not find it there: return it from forward"
            )
        warnings.warn(
            f"{words}. A plan leaves its inputs as they are: read this from what the model returns (beside a loss it "
            "is there with loss=rx.loss_elsewhere)",
            stacklevel=6,
        )


def _in_words(model: nn.Module, changes: Changes) -> str:
    (path, name), change = next(iter(changes.items()))
    what, before, after = innermost_difference("" if isinstance(path, Variable) else name, *change)
    others = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
    change = f"from {describe(before)} to {describe(after)}"
    if before.kind == after.kind == "state":
        change = f"{describe(before)} that is in another state then"
        change += "" if before.value[2] else " (this try has moved it on, too: make it anew)"
    if isinstance(path, Variable):
        at = f", at {what.removeprefix('.')}" if what else ""
        return f"forward or the loss changes {path.words}{at}{others}, {change}"
    kind = type(model.get_submodule(path)).__name__
    return (
        f"forward changes the attribute {what} of {f'{path!r} ({kind})' if path else f'the model ({kind})'}{others}, "
        f"{change}"
    )
