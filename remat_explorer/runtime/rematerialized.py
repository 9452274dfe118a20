"""A model whose training steps run by a plan, and that is otherwise the model that it was."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.step.nesting import tensors_in
from remat_explorer.capture.step.training_step import plain_inputs
from remat_explorer.documents import write_text
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.assumptions.differences import (
    difference_of_inputs,
    difference_of_models,
    difference_of_surroundings,
)
from remat_explorer.runtime.assumptions.inputs import paths_of
from remat_explorer.runtime.assumptions.plannable import require_plannable
from remat_explorer.runtime.recipe import Planned, Recipe
from remat_explorer.runtime.signature import Signature
from remat_explorer.runtime.training_run import train
from remat_explorer.solution import Solution

_OTHER_CONTENT = "Such inputs need a plan of their own: rematerialize(..., resolve=True) makes one, and keeps both"
_FLAGS = ("_is_full_backward_hook",)
_HOOKS = (
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_pre_hooks", "_backward_hooks", *_FLAGS),
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
)


class Rematerialization:
    """What a rematerialized model does in a training step, found as its attribute ``rematerialization``.

    Args:
        model: the person's own; parameters, buffers and submodules are shared with it.
        recipe: how to plan.
        planned: the first plan.
        resolve: whether to plan anew for inputs that no plan was made for, or after the model was changed.

    Attributes:
        plans: those that were made, in the order in which they last ran.
        training: whether the model was in training mode when the first plan was made.
        hooks: what was registered on the rematerialized model, which runs around a plan. Hooks of the model itself
            are part of it.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, planned: Planned, resolve: bool) -> None:
        self.model, self.recipe, self.resolve = model, recipe, resolve
        self.first, self.plans = planned, [planned]
        self.training = model.training
        self.hooks: dict[str, Any] = {name: None if name in _FLAGS else OrderedDict() for name in _HOOKS}

    @property
    def solution(self) -> Solution:
        """The solution that ran last, or will run first."""
        return self.plans[-1].solution

    @property
    def waiting_bytes(self) -> int:
        """What a forward pass by the plan of `solution` leaves in memory, its outputs included, for its backward pass.

        The budget is for one forward pass and its backward pass. Each other call of the model whose backward pass is
        still to come takes so much more.
        """
        return self.plans[-1].halves.left_bytes

    @property
    def source(self) -> str:
        """The Python that runs, forward and backward, with the plan's statements as comments."""
        return self.plans[-1].halves.source

    def save_source(self, path: str | Path) -> Path:
        """Write `source` to a file, atomically."""
        return write_text(path, self.source)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A forward pass: by a plan where gradients are wanted, else as the model itself does it.

        Raises:
            ExecutionError: if there is no plan for the inputs or for the model as it is now, and none shall be made.
        """
        if (self.training and not self.model.training) or not torch.is_grad_enabled():
            return self._plain(args, kwargs)
        planned = self._plan_for(args, kwargs)
        args, kwargs = planned.calling.same_way(args, kwargs)
        outputs = train(planned.halves, self.model, plain_inputs(args, kwargs), tensors_in((args, kwargs)))
        return planned.halves.program.returned.filled(outputs)

    def _plan_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned:
        broken = ""
        for planned, exactly in self._candidates():
            called = planned.calling.same_way(args, kwargs)
            fits = planned.signature.matches if exactly else planned.signature.serves_with_fewer
            if fits(Signature.of(*called)) and planned.state.holds():
                broken = planned.broken(self.model, *called)
                if not broken:
                    self.plans.remove(planned)
                    self.plans.append(planned)
                    return planned
        last = self.plans[-1].state
        moved = last.has_moved(last.now())
        if not self.resolve and not moved:
            what, advice = (broken, _OTHER_CONTENT) if broken else self._difference(args, kwargs)
            raise ExecutionError(f"{what}. {advice}")
        budget = self.first.solution.budget if self.recipe.budget is None else self.recipe.budget
        self.plans.append(self.recipe.plan(self.model, args, kwargs, within=None if moved else budget))
        return self.plans[-1]

    def _candidates(self) -> list[tuple[Planned, bool]]:
        """Every plan, the last one first; where none is made anew, they also serve inputs that need fewer gradients."""
        exactly = [(planned, True) for planned in reversed(self.plans)]
        return exactly if self.resolve else [*exactly, *((planned, False) for planned, _ in exactly)]

    def _difference(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
        """What the plan that ran last was not made for, and what to do."""
        planned = self.plans[-1]
        args, kwargs = planned.calling.same_way(args, kwargs)
        now = Signature.of(args, kwargs)
        if not planned.signature.takes(now):
            return difference_of_inputs(planned.signature, now, planned.paths, paths_of(args, kwargs))
        if planned.signature.surroundings != now.surroundings:
            return difference_of_surroundings(planned.signature, now)
        require_plannable(self.model)
        return difference_of_models(planned.state, planned.state.now())

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As the model itself does it, with its loss where there is one."""
        output = self.model(*args, **kwargs)
        return output if self.recipe.loss is None else self.recipe.loss(output)


class RematerializedModule(nn.Module):
    """Comes before the model's own class, and changes what a call does.

    It has the same ``__dict__`` as the model, so that an assignment to one is an assignment to the other: submodules,
    parameters, buffers, modes and plain attributes alike. Hooks that are registered on it are its own.
    """

    rematerialization: Rematerialization

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass, as `Rematerialization.run`, with the hooks that were registered here around it."""
        if any(self.rematerialization.hooks.values()):
            return self._call_impl(*args, **kwargs)
        return self.rematerialization.run(args, kwargs)

    @property
    def forward(self) -> Callable[..., Any]:  # type: ignore[override]
        """As the model's own, to look at; a call is that of the rematerialized model, without hooks around it."""
        run = self.rematerialization.run

        @functools.wraps(self.rematerialization.model.forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return run(args, kwargs)

        return forward

    @forward.setter
    def forward(self, value: Callable[..., Any]) -> None:
        self.__dict__["forward"] = value  # the model's, which the plan was made for

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":  # in this way torch registers parametrizations and shards
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
        model = copy.deepcopy(mine.model, memo)
        plans = [dataclasses.replace(planned, state=planned.state.of_copy(model)) for planned in mine.plans]
        theirs = Rematerialization(model, mine.recipe, mine.first, mine.resolve)
        theirs.plans, theirs.training = plans, mine.training
        theirs.hooks = copy.deepcopy(mine.hooks, memo)
        return rematerialized(theirs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        name = type(self.rematerialization.model).__name__
        raise TypeError(
            f"a rematerialized {name} cannot be pickled: save its state_dict(), which has the names of {name}, and "
            "rematerialize again where it is loaded"
        )


def _own(name: str) -> property:
    def get(module: RematerializedModule) -> Any:
        return module.rematerialization.hooks[name]

    def put(module: RematerializedModule, value: Any) -> None:
        module.rematerialization.hooks[name] = value

    return property(get, put)


for _name in _HOOKS:
    setattr(RematerializedModule, _name, _own(_name))


def rematerialized(rematerialization: Rematerialization) -> RematerializedModule:
    """The model of a `Rematerialization`, with its class, its attributes and its tensors, and another `forward`."""
    model = rematerialization.model
    kind = type(model)
    name = f"Rematerialized{kind.__name__}"
    made = object.__new__(type(name, (RematerializedModule, kind), {"rematerialization": rematerialization}))
    object.__setattr__(made, "__dict__", model.__dict__)
    return made
