"""A model whose training steps run by a plan, and that is otherwise the model that it was."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.loops.asked import GOES_AROUND
from remat_explorer.runtime.loops.forward import Forward
from remat_explorer.runtime.loops.hooks import with_hooks_of_its_own
from remat_explorer.runtime.loops.training_step import NAME as TRAINING_STEP
from remat_explorer.runtime.loops.training_step import with_its_plan
from remat_explorer.runtime.rematerialization import Rematerialization

_SHARDING = "_get_fsdp_state"


@with_hooks_of_its_own
class RematerializedModule(nn.Module):
    """Comes before the model's own class, and changes what a call does.

    It has the same ``__dict__`` as the model, so that an assignment to one is an assignment to the other: submodules,
    parameters, buffers, modes and plain attributes alike. Hooks that are registered on it are its own, and so is what
    is assigned to ``forward``. Its class has the model's name, by which libraries know models.
    """

    rematerialization: Rematerialization

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass, as `Rematerialization.run`, with the hooks that were registered here around it."""
        mine = self.rematerialization
        if mine.assigned is None:
            return self._call_impl(*args, **kwargs) if any(mine.hooks.values()) else mine.run(args, kwargs)
        if not (self.training and torch.is_grad_enabled()):
            return self._call_impl(*args, **kwargs)
        if not mine.goes_through_plan(args, kwargs):
            mine.replace_forward(self)
            return self(*args, **kwargs)  # by the plan
        before = mine.calls
        output = self._call_impl(*args, **kwargs)
        if mine.calls == before:  # it has gone through it with other inputs
            raise ExecutionError(GOES_AROUND)
        return output

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":  # in this way torch registers parametrizations and shards
            if value.__name__.startswith("FSDP"):
                raise ExecutionError(
                    "a plan gathers parameters itself, so it is made for a model that is sharded already: call "
                    "fully_shard for the model and its parts first, and then rematerialize it"
                )
            raise ExecutionError(
                f"a rematerialized model cannot become a {value.__name__}: do that to the model before rematerialize"
            )
        super().__setattr__(name, value)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Refused.

        Raises:
            ExecutionError: always.
        """
        raise ExecutionError("the plan replaces what torch.compile would run; train with it as it is")

    def __deepcopy__(self, memo: dict[int, Any]) -> RematerializedModule:
        """A copy with parameters of its own that shares the plans."""
        mine = self.rematerialization
        theirs = copy.copy(mine)
        made = memo[id(self)] = _without_attributes(theirs)  # the model's attributes may lead back here
        theirs.model, theirs.runs = copy.deepcopy(mine.model, memo), WeakSet()
        object.__setattr__(made, "__dict__", theirs.model.__dict__)
        states = [planned.state.of_copy(theirs.model) for planned in mine.plans]
        pairs = zip(mine.plans, states, strict=True)
        theirs.plans = [dataclasses.replace(planned, state=state) for planned, state in pairs]
        theirs.hooks, theirs.assigned = copy.deepcopy((mine.hooks, mine.assigned), memo)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        model = self.rematerialization.model
        name = type(model).__name__
        warnings.warn(
            f"a rematerialized {name} is pickled as the {name} that it was, without its plan: rematerialize again "
            "where it is loaded",
            stacklevel=2,
        )
        return model.__reduce_ex__(protocol)


def rematerialized(rematerialization: Rematerialization) -> RematerializedModule:
    """The model of a `Rematerialization`, with its class, its attributes and its tensors, and another `forward`."""
    made = _without_attributes(rematerialization)
    object.__setattr__(made, "__dict__", rematerialization.model.__dict__)
    return made


def _without_attributes(rematerialization: Rematerialization) -> RematerializedModule:
    kind = type(rematerialization.model)
    own = {"rematerialization": rematerialization, "forward": Forward(rematerialization.model)}
    own["__class__"] = property(lambda _: kind)  # as which it is pickled
    own |= {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    if callable(state := getattr(rematerialization.model, _SHARDING, None)):  # torch knows the model by its identity
        own[_SHARDING] = lambda _: state()
    if callable(method := getattr(kind, TRAINING_STEP, None)):
        own[TRAINING_STEP] = with_its_plan(method)
    return object.__new__(type(kind.__name__, (RematerializedModule, kind), own))
