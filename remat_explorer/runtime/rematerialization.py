"""What a rematerialized model does in a training step: which plan runs, and when another is made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from types import MethodType
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch._compile import _disable_dynamo

from remat_explorer.capture.joint.assumptions import Broken
from remat_explorer.capture.step.left_behind import leave
from remat_explorer.capture.step.nesting import tensors_in
from remat_explorer.capture.step.sharding import reshard, shard_groups
from remat_explorer.capture.step.training_step import plain_inputs
from remat_explorer.documents import write_text
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.assumptions.agreement import together
from remat_explorer.runtime.assumptions.differences import (
    difference_of_inputs,
    difference_of_models,
    difference_of_surroundings,
)
from remat_explorer.runtime.assumptions.inputs import paths_of
from remat_explorer.runtime.assumptions.plannable import require_plannable
from remat_explorer.runtime.assumptions.surroundings import require_first_call, require_plain_surroundings
from remat_explorer.runtime.loops.asked import GOES_AROUND, Asked
from remat_explorer.runtime.loops.beginning import Example, with_counts_as_tensors
from remat_explorer.runtime.loops.hooks import no_hooks
from remat_explorer.runtime.recipe import Planned, Recipe
from remat_explorer.runtime.shapes.family import Family, differ_in_sizes
from remat_explorer.runtime.signature import Arguments, Signature, with_gradients_of
from remat_explorer.runtime.training_run import TrainingRun, train
from remat_explorer.solution import Solution
from remat_explorer.solvers.memory.minimum_budget import Budget, is_relative, is_smallest

MOST_TURNS = 8  # plans that are made at most where truth values are read: more are made if ``resolve`` is set
MOST_SIZES = 64  # plans carried over to other sizes that are kept; each takes some MiB of the host's memory
_CALLER = 7  # from where a warning is given to the call of the model
_OTHER_CONTENT = "Such inputs need a plan of their own: rematerialize(..., resolve=True) makes one, and keeps both"
_COUNTS = (
    "Forward changes this buffer, so that steps to come read yet others. Compute with it as a tensor, as in "
    "`queue.index_copy_(0, (self.at + torch.arange(n)) % size, new)`; give BatchNorm a number as momentum; where few "
    "numbers come again and again, rematerialize(..., resolve=True) keeps a plan for each"
)


class Rematerialization:
    """What a rematerialized model does in a training step, found as its attribute ``rematerialization``.

    Args:
        model: the person's own; parameters, buffers and submodules are shared with it.
        recipe: how to plan.
        planned: the first plan.
        resolve: whether to plan anew for inputs that no plan serves, or after the model was changed.
        example: what the first plan was made for; kept until a plan has run.

    Attributes:
        plans: those that were made, in the order in which they last ran.
        training: whether the model was in training mode when the first plan was made, or ran.
        hooks: what was registered on the rematerialized model, which runs around a plan. Hooks of the model itself
            are part of it.
        assigned: what was assigned to ``forward`` of the rematerialized model, which is called in its place; or None.
        replaced: forwards of the model that such a function has taken the place of, by what loops got for them.
        calls: how many forward passes there were.
        begun: whether a plan has run.
        runs: passes by plans that somebody holds.
    """

    def __init__(
        self, model: nn.Module, recipe: Recipe, planned: Planned, resolve: bool, example: Example | None = None
    ) -> None:
        self.example = example
        self.model, self.recipe, self.resolve = model, recipe, resolve
        self.first, self.plans = planned, [planned]
        self.training = model.training
        self.hooks: dict[str, Any] = no_hooks()
        self.assigned: Callable[..., Any] | None = None
        self.replaced: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.calls, self.begun = 0, False
        self.runs: WeakSet[TrainingRun] = WeakSet()
        self._told = False
        self._asked = Asked()
        self._is_of_another = False  # whether the first plan is of a forward that has been replaced since

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

    @_disable_dynamo  # inside of what torch.compile traces, a plan runs as it is
    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A forward pass: by a plan where gradients are wanted, else as the model itself does it.

        None are wanted in evaluation mode, where they are switched off, and where neither a parameter nor an input
        requires one, as in a network that is frozen while another one is trained.

        Raises:
            ExecutionError: if there is no plan for the inputs or for the model as it is now, and none shall be made.
        """
        self.calls += 1
        self._asked.reached()
        evaluating = (self.training and not self.model.training) or not torch.is_grad_enabled()
        if evaluating or not self._wants_gradients(args, kwargs):
            require_first_call(self.model, planned=False)
            return self._plain(args, kwargs)
        require_plain_surroundings(self.model, tensors_in((args, kwargs)))
        require_first_call(self.model, planned=True)
        if self.plans[-1].processes is not None:
            reshard(self.model)
            shard_groups(self.model)  # which refuses what may have been switched since
        kwargs = with_counts_as_tensors(kwargs)
        processes = self.plans[-1].processes
        if processes is None:
            planned = self._plan_for(args, kwargs)
        else:
            planned = together(processes, lambda: self._plan_for(args, kwargs), attrgetter("digest"))
        if not self.begun:
            self.begun, self.training = True, self.model.training
        args, kwargs = planned.calling.same_way(args, kwargs)
        if not self._told and any(run.is_waiting for run in self.runs):
            self._tell_of_several_calls(planned)
        tensors = tensors_in((args, kwargs))
        outputs = train(planned.halves, self.model, plain_inputs(args, kwargs), tensors, self.runs.add)
        if planned.left:
            leave(self.model, planned.left)
        return planned.halves.program.returned.filled(outputs)

    def goes_through_plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether what is assigned to ``forward`` calls the one that it got when it is called with these inputs."""
        return self.assigned is None or self._asked.goes_through(self.assigned, self.model, args, kwargs)

    def replace_forward(self, rematerialized: nn.Module) -> None:
        """Plan what is assigned to ``forward`` in place of the model's own, which it does not call in training.

        Args:
            rematerialized: the model whose attribute this is.

        Raises:
            ExecutionError: if a plan has run already, or was given, so that none can be made.
        """
        if self.begun or self.recipe.budget is None:
            raise ExecutionError(GOES_AROUND)
        assigned, own = self.assigned, self.model.forward
        assert assigned is not None
        of_it = isinstance(assigned, MethodType) and assigned.__self__ is rematerialized
        vars(self.model)["forward"] = MethodType(assigned.__func__, self.model) if of_it else assigned
        self.assigned = None
        self.replaced[type(rematerialized).__dict__["forward"].renew(self.model)] = own
        self._is_of_another = True

    def _wants_gradients(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a parameter or an input requires a gradient."""
        return self.plans[-1].state.is_trained() or any(
            tensor.requires_grad
            for tensors in (self.model.parameters(), tensors_in((args, kwargs)), self.model.buffers())
            for tensor in tensors
        )

    def _plan_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned:
        if not self.begun:
            self._begin(args, kwargs)
        planned, broken = self._plan_at_hand(args, kwargs)
        if planned is not None:
            self.plans.remove(planned)
        else:
            planned = self._new_plan(args, kwargs, broken)
        self.plans.append(planned)
        self._forget_unused()
        return planned

    def _plan_at_hand(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Planned | None, Broken | None]:
        """A plan that serves these inputs, if there is one; else what one would read out of them otherwise."""
        broken: Broken | None = None
        called, now, calling = (args, kwargs), None, None
        for planned, exactly in self._candidates():
            if now is None or planned.calling is not calling:  # plans of one family share it
                calling, called = planned.calling, planned.calling.same_way(args, kwargs)
                now = Signature.of(*called, self.model)
            fits = planned.signature.matches(now)
            if not exactly:
                fits = not fits and planned.signature.serves_with_fewer(now)  # each plan is read for once
            if fits and planned.state.holds():
                broken = planned.broken(self.model, *called)
                if not broken:
                    return planned, None
        return None, broken

    def _forget_unused(self) -> None:
        """Drop the longest unused of the plans that were carried over to other sizes, where these are many."""
        carried_over = [planned for planned in self.plans if not planned.measured]
        for planned in carried_over[: max(0, len(carried_over) - MOST_SIZES)]:
            self.plans.remove(planned)

    def _new_plan(self, args: tuple[Any, ...], kwargs: dict[str, Any], broken: Broken | None) -> Planned:
        last = self.plans[-1].state
        if last.has_moved(last.now()):
            return self.recipe.plan(self.model, *self._with_gradients(args, kwargs))
        limit = self._limit()
        if self.resolve or not broken:
            family = Family(self.recipe, self.model, self.plans, limit, self.resolve)
            if (planned := family.plan(args, kwargs)) is not None:
                return planned
        if broken is not None and self._may_turn(broken):
            warnings.warn(f"{broken}. It is planned anew, once, and both plans are kept", stacklevel=_CALLER)
            return self.recipe.plan(self.model, *self._with_gradients(args, kwargs), within=limit)
        if not self.resolve:
            what, advice = (broken, self._advice_on(broken)) if broken else self._difference(args, kwargs)
            raise ExecutionError(f"{what}. {advice}")
        return self.recipe.plan(self.model, args, kwargs, within=self.recipe.budget or limit)

    def _limit(self) -> Budget:
        """The budget of what is planned anew: the bytes of the first plan, unless they were for another type or device.

        The smallest budget is that of each step.
        """
        asked, state = self.recipe.budget, self.first.state
        if is_smallest(asked) or (is_relative(asked) and state.lies_elsewhere(state.now())):
            return asked  # type: ignore[return-value]
        return self.first.solution.budget

    def _with_gradients(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The inputs, of which those require a gradient that do so in the first plan; not where each has its own."""
        called = self.first.calling.same_way(args, kwargs)
        return (args, kwargs) if self.resolve else with_gradients_of(self.first.signature, *called)

    def _tell_of_several_calls(self, planned: Planned) -> None:
        """Warn, once, where one backward pass through several calls would give other digits than plain PyTorch."""
        autocast = planned.signature.autocast
        if autocast.types and autocast.keeps_casts:
            low = str(autocast.types[0][1]).removeprefix("torch.")
            what = f"if both calls are in one torch.autocast, plain PyTorch adds the gradients of a weight in {low}"
            advice = "Give each call a torch.autocast of its own, or cache_enabled=False; or call"
        elif name := planned.halves.summed:
            what = f"one pass uses {name!r} several times, and plain PyTorch adds its gradients in another order"
            advice = "Call"
        else:
            return
        self._told = True
        warnings.warn(
            f"the model is called before the backward pass of an earlier call. If one backward pass goes through both, "
            f"gradients may differ from plain PyTorch's as sums that are rounded do: {what}. {advice} backward() for "
            "each call, or the model once for all inputs",
            stacklevel=_CALLER - 1,
        )

    def _may_turn(self, broken: Broken) -> bool:
        """Whether it is planned for the other of two truth values without being asked to."""
        made = sum(planned.measured for planned in self.plans)  # not those that were carried over to other sizes
        return not self.resolve and broken.is_truth and self.recipe.budget is not None and made < MOST_TURNS

    def _advice_on(self, broken: Broken) -> str:
        """What to do where another number is read."""
        results = self.plans[-1].halves.program.results
        changed = {result.name for result in results if result.kind == "buffer"}
        return _COUNTS if broken.buffers & changed else _OTHER_CONTENT

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before the first step: plan anew where the loop has set up something since.

        It may have added parameters, such as adapters, but taken none away.
        """
        example, self.example = self.example, None
        if self._is_of_another:
            self._is_of_another = False
            self._plan_first(*((example and example.in_the_loop(args, kwargs)) or (args, kwargs)))
            return
        state, now = self.first.state, self.first.state.now()
        if example is None or self.resolve or self.recipe.budget is None or state.has_moved(now):
            return
        called = self.first.calling.same_way(args, kwargs)
        signature = Signature.of(*called, self.model)
        alike = differ_in_sizes(self.first.signature, signature)
        if alike and self.first.signature.surroundings == signature.surroundings and state.matches(now):
            return
        inputs = example.in_the_loop(*called) or example.in_the_loop(args, kwargs)  # without what has its default
        if inputs is None and state.lies_elsewhere(now):
            inputs = self._with_gradients(*called)
        if state.shapes.keys() <= now.shapes.keys() and inputs is not None:
            self._plan_first(*inputs)

    def _plan_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.first = self.recipe.plan(self.model, args, kwargs)
        self.plans = [self.first]

    def _candidates(self) -> list[tuple[Planned, bool]]:
        """Every plan, the last one first; where none is made anew, they also serve inputs that need fewer gradients."""
        exactly = [(planned, True) for planned in reversed(self.plans)]
        return exactly if self.resolve else [*exactly, *((planned, False) for planned, _ in exactly)]

    def _difference(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
        """What the plan that ran last was not made for, and what to do."""
        planned = self.plans[-1]
        args, kwargs = planned.calling.same_way(args, kwargs)
        now, state = Signature.of(args, kwargs, self.model), planned.state.now()
        if planned.state.lies_elsewhere(state):  # then so do the inputs
            return difference_of_models(planned.state, state)
        if not differ_in_sizes(planned.signature, now):
            return difference_of_inputs(planned.signature, now, planned.paths, paths_of(args, kwargs))
        if planned.signature.surroundings != now.surroundings:
            return difference_of_surroundings(planned.signature, now)
        require_plannable(self.model)
        return difference_of_models(planned.state, state)

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As the model itself does it, with its loss where there is one."""
        output = self.model(*args, **kwargs)
        return output if self.recipe.loss is None else self.recipe.loss(output)
