"""A model whose training steps run by a plan, and that is otherwise the model that it was."""

from __future__ import annotations

import copy
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.step.nesting import tensors_in
from remat_explorer.capture.step.training_step import plain_inputs
from remat_explorer.documents import write_text
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.recipe import Planned, Recipe
from remat_explorer.runtime.signature import Signature
from remat_explorer.runtime.training_run import train
from remat_explorer.solution import Solution

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")


class Rematerialization:
    """What a rematerialized model does in a training step, found as its attribute ``rematerialization``.

    Args:
        model: the person's own; parameters, buffers and submodules are shared with it.
        recipe: how to plan.
        planned: the first plan.
        resolve: whether to plan anew for inputs that no plan was made for.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, planned: Planned, resolve: bool) -> None:
        self.model, self.recipe, self.resolve = model, recipe, resolve
        self.first, self.plans = planned, [planned]

    @property
    def solution(self) -> Solution:
        """The solution that ran last, or will run first."""
        return self.plans[-1].solution

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
            ExecutionError: if an input requires a gradient, or there is no plan for the inputs and none shall be made.
        """
        evaluating = self.first.signature.modes[0] and not self.model.training
        if evaluating or not torch.is_grad_enabled():
            return self._plain(args, kwargs)
        _require_no_gradients(tensors_in((args, kwargs)))
        planned = self._plan_for(args, kwargs)
        outputs = train(planned.halves, self.model, plain_inputs(args, kwargs))
        return planned.halves.program.returned.filled(outputs)

    def _plan_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned:
        now = Signature.of(self.model, args, kwargs)
        for place, planned in enumerate(self.plans):
            if planned.signature.matches(now):
                self.plans.append(self.plans.pop(place))
                return self.plans[-1]
        last = self.plans[-1].signature
        moved = last.home != now.home
        if not self.resolve and not moved:
            raise ExecutionError(
                f"{last.difference(now, self.model)}. Plans are static: pass inputs like those that it was made with "
                "(drop_last=True for a DataLoader), or rematerialize(..., resolve=True), which plans anew for others"
            )
        budget = self.first.solution.budget if self.recipe.budget is None else self.recipe.budget
        self.plans.append(self.recipe.plan(self.model, args, kwargs, within=None if moved else budget))
        return self.plans[-1]

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As the model itself does it, with its loss where there is one."""
        output = self.model(*args, **kwargs)
        return output if self.recipe.loss is None else self.recipe.loss(output)


class RematerializedModule(nn.Module):
    """Comes before the model's own class, and changes `forward` alone."""

    rematerialization: Rematerialization

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass, as `Rematerialization.run`."""
        self.rematerialization.model.training = self.training
        return self.rematerialization.run(args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> RematerializedModule:
        """A copy with parameters of its own that shares the plans."""
        mine = self.rematerialization
        theirs = Rematerialization(copy.deepcopy(mine.model, memo), mine.recipe, mine.first, mine.resolve)
        theirs.plans = list(mine.plans)
        return rematerialized(theirs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        name = type(self.rematerialization.model).__name__
        raise TypeError(
            f"a rematerialized {name} cannot be pickled: save its state_dict(), which has the names of {name}, and "
            "rematerialize again where it is loaded"
        )


def _require_no_gradients(tensors: list[torch.Tensor]) -> None:
    for place, tensor in enumerate(tensors):
        if tensor.requires_grad:
            raise ExecutionError(
                f"input tensor {place}, of shape {tuple(tensor.shape)}, requires a gradient, and a plan computes those "
                "of parameters only: pass tensor.detach(), or rematerialize the model together with what computes it"
            )


def rematerialized(rematerialization: Rematerialization) -> RematerializedModule:
    """The model of a `Rematerialization`, with its class, its attributes and its tensors, and another `forward`."""
    model = rematerialization.model
    kind = type(model)
    made = object.__new__(type(f"Rematerialized{kind.__name__}", (RematerializedModule, kind), {}))
    made.__dict__.update(model.__dict__)  # the same parameters, buffers and submodules, by the same names
    for hooks in _HOOKS:  # these run with the model, so they are in the plan
        made.__dict__[hooks] = OrderedDict()
    made.__dict__["rematerialization"] = rematerialization
    return made
