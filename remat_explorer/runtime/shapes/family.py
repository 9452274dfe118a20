"""Calls whose inputs differ from those of a plan in nothing but their sizes, and the plans that serve them."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

from torch import nn

from remat_explorer.capture.joint.randomness import state_bytes
from remat_explorer.capture.profiling.storage_census import StorageCensus
from remat_explorer.capture.step.training_step import plain_inputs
from remat_explorer.errors import ExecutionError
from remat_explorer.quantities import exact_bytes, format_seconds
from remat_explorer.runtime.assumptions.differences import ANEW, difference_of_inputs, difference_of_models
from remat_explorer.runtime.assumptions.inputs import paths_of
from remat_explorer.runtime.assumptions.model_state import ModelState
from remat_explorer.runtime.recipe import Captured, Planned, Recipe
from remat_explorer.runtime.shapes.carrying import carried_over, keeping_everything
from remat_explorer.runtime.signature import Arguments, Layout, Signature, alike_but_for_sizes, with_gradients_of
from remat_explorer.solution import Solution
from remat_explorer.solvers.checkpoint_all import checkpoint_all_peak
from remat_explorer.solvers.memory.minimum_budget import Budget

_OTHERWISE = f"Pad the inputs to the planned size, or {ANEW}"
_LARGEST_FIRST = "Rematerialize with the largest inputs that there will be, from which all smaller ones follow"
MOST_CACHES = 8  # plans for other contents of what a model keeps; more are made if ``resolve`` is set
_CALLER = 9  # from where a warning is given to the call of the model


def differ_in_sizes(planned: Signature, now: Signature) -> bool:
    """Whether the inputs of two calls are alike but for the sizes and strides of tensors, which may be alike, too.

    Some may require no gradient now.

    >>> import torch
    >>> whole, part, flat = (Signature.of((x,), {}) for x in (torch.ones(4, 3), torch.ones(2, 5), torch.ones(12)))
    >>> differ_in_sizes(whole, part), differ_in_sizes(whole, flat)
    (True, False)
    """
    return (
        planned.nesting == now.nesting
        and len(planned.leaves) == len(now.leaves)
        and all(map(alike_but_for_sizes, planned.leaves, now.leaves))
    )


def covers(planned: Signature, now: Signature) -> bool:
    """Whether no dimension of an input is larger than in a plan's call, where they differ in sizes.

    >>> import torch
    >>> whole, part, other = (Signature.of((torch.ones(*size),), {}) for size in ((4, 3), (2, 3), (2, 5)))
    >>> covers(whole, part), covers(part, whole), covers(whole, other)
    (True, False, False)
    """
    layouts = ((a, b) for a, b in zip(planned.leaves, now.leaves, strict=True) if isinstance(a, Layout))
    return all(there >= here for a, b in layouts for there, here in zip(a.shape, b.shape, strict=True))


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """Plans of one model for inputs of several sizes.

    Attributes:
        recipe: how to plan.
        model: as it is now.
        plans: those that there are.
        limit: the budget of inputs that are planned anew.
        resolve: whether to search anew where a schedule cannot be carried over.
    """

    recipe: Recipe
    model: nn.Module
    plans: Sequence[Planned]
    limit: Budget
    resolve: bool

    def plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned | None:
        """A plan for inputs of other sizes than those of all plans, or None for inputs that differ in more than sizes.

        For smaller inputs the step is traced again, and the schedule of the larger ones is carried over. Where that is
        not possible, as a loop over time steps has fewer of them, the step is profiled, and nothing is recomputed if it
        fits so. Otherwise, for larger inputs, and where forward reads other truth values out of the inputs than in
        every plan, it is planned anew, with a warning, if there is a budget; bytes stay what they were.

        So it is, too, where the model keeps another tensor than it did, such as a mask for inputs of another size.

        Raises:
            ExecutionError: if a schedule cannot be carried over, and none shall be searched for; if none fits.
        """
        relatives = self._relatives(args, kwargs)
        if not relatives:
            return None
        larger = [(planned, called, now) for planned, called, now in relatives if covers(planned.signature, now)]
        if not larger:
            return self._of_larger(*relatives[-1])
        larger.sort(key=lambda one: _elements(one[0].signature))
        planned, called, now = larger[0]
        if not (self.resolve or planned.state.holds()):
            what, _ = difference_of_models(planned.state, planned.state.now())
            warnings.warn(f"{what}. The step is traced again for that", stacklevel=_CALLER - 1)
        captured = self.recipe.capture(self.model, *called, like=planned.halves.program)
        reading = captured.program.assumptions.truths
        alike = [one for one, _, _ in larger if one.halves.program.assumptions.truths == reading]
        planned = alike[0] if alike else planned
        try:
            made = captured.planned(self._carried_over(planned, captured), measured=False)
        except ExecutionError as error:
            made = self._of_other_operations(planned, called, now, captured, f"{error}", turned=not alike)
        return dataclasses.replace(made, calling=planned.calling)

    def _relatives(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Planned, Arguments, Signature]]:
        """Plans that were measured, for the model but for its caches, with the inputs as they are passed for each.

        Unless plans are made anew, these require the gradients that the plan gives, so that it can be carried over.
        """
        found = []
        for planned in self.plans:
            called = planned.calling.same_way(args, kwargs)
            now = Signature.of(*called, self.model)
            alike = differ_in_sizes(planned.signature, now) and planned.signature.surroundings == now.surroundings
            if alike and now.wants_less_than(planned.signature):
                alike, called = not self.resolve, with_gradients_of(planned.signature, *called)
            if planned.measured and alike and (planned.state.holds() or self._differs_in_caches(planned.state)):
                found.append((planned, called, now))
        return found

    def _differs_in_caches(self, state: ModelState) -> bool:
        """Whether a plan may be carried over to what the model keeps now; not where that changes again and again."""
        others = sum(not planned.state.holds() for planned in self.plans)
        return self.recipe.budget is not None and others < MOST_CACHES and state.differs_in_caches(state.now())

    def _difference(self, planned: Planned, called: Arguments, now: Signature) -> str:
        what, _ = difference_of_inputs(planned.signature, now, planned.paths, paths_of(*called))
        return what or difference_of_models(planned.state, planned.state.now())[0]

    def _carried_over(self, larger: Planned, captured: Captured) -> Solution:
        program = captured.program
        there = program.bind(self.model, plain_inputs(captured.args, captured.kwargs), tangents=False)
        resident = program.graph.resident_bytes + StorageCensus(program, captured.device).resident_difference(there)
        del there
        means, alone = self.recipe.budget_means, captured.processes is None
        retain = self.recipe.retain_graph
        state = state_bytes(captured.device.type)
        return carried_over(larger.solution, larger.halves.program, program, resident, means, alone, state, retain)

    def _keeping_everything(self, captured: Captured, budget: int) -> Solution | None:
        """The solution that recomputes nothing, with measured workspace, if it fits into the budget."""
        if checkpoint_all_peak(captured.program.graph) > budget:
            return None
        recipe = self.recipe
        return keeping_everything(recipe.profiled(captured), budget, recipe.budget_means, recipe.retain_graph)

    def _of_other_operations(
        self, planned: Planned, called: Arguments, now: Signature, captured: Captured, why: str, *, turned: bool
    ) -> Planned:
        budget = planned.solution.budget
        if (everything := self._keeping_everything(captured, budget)) is not None:
            return captured.planned(everything)
        what = f"{self._difference(planned, called, now)}. Its schedule does not serve here, since {why}"
        if self.recipe.budget is None and not self.resolve:
            raise ExecutionError(
                f"{what}, and keeping everything does not fit into the budget of {exact_bytes(budget)}. {_OTHERWISE}"
            ) from None
        if not self.resolve:
            what = f"for the first time, a step reads {captured.program.assumptions}" if turned else what
            warnings.warn(f"{what}. It is planned anew", stacklevel=_CALLER)
        return self.recipe.plan_of(captured, self.limit)

    def _of_larger(self, planned: Planned, called: Arguments, now: Signature) -> Planned:
        what = self._difference(planned, called, now)
        if self.recipe.budget is None and not self.resolve:
            raise ExecutionError(
                f"{what}, which is larger. {_LARGEST_FIRST}, or give budget=..., to plan anew within it"
            )
        begin = time.perf_counter()
        made = self.recipe.plan(self.model, *called, within=self.limit)
        seconds = format_seconds(time.perf_counter() - begin)
        warnings.warn(f"{what}, which is larger: planned anew, in {seconds}. {_LARGEST_FIRST}", stacklevel=_CALLER)
        return made


def _elements(signature: Signature) -> int:
    """How many numbers the input tensors have."""
    return sum(math.prod(leaf.shape) for leaf in signature.leaves if isinstance(leaf, Layout))
