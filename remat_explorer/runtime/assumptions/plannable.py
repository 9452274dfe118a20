"""Models that can be captured, but that no plan can train: each with what to do instead."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from remat_explorer.capture.captured_program import Program
from remat_explorer.capture.graph_assembly import TRAINED
from remat_explorer.capture.sharding import is_sharded, reshard, shard_groups
from remat_explorer.capture.training_step import unwrap
from remat_explorer.errors import ExecutionError


def require_plannable(model: nn.Module) -> None:
    """Refuse what goes around a model or replaces its tensors.

    Raises:
        CaptureError: as `shard_groups`.
        ExecutionError: what was met, and what to do.

    >>> require_plannable(nn.DataParallel(nn.ReLU()))
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ExecutionError: DataParallel goes around what rematerialize returns: \
DataParallel(rematerialize(model, ...))
    """
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
    """Refuse tensors that forward trains and that are not the model's: a plan would give them no gradient.

    Args:
        program: a trace of ``model``.

    Raises:
        ExecutionError: which parameter or tensor, and how to make it a part of the model.
    """
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
