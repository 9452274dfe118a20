"""Plans for smaller batches and shorter sequences, without a search: the schedule that was found for larger ones.

`SizeVariants.plan` serves calls whose inputs differ from those of a plan in nothing but their sizes;
`carry_over_schedule` carries a schedule over to the same step with smaller inputs, where the checker looks at it again.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from remat_explorer.allocator import reserved_of
from remat_explorer.capture import Profile, Program, StorageCensus, detached_inputs, name_of_call, state_bytes
from remat_explorer.checker import check_schedule
from remat_explorer.errors import ExecutionError, ScheduleError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.offload import TransferSolution
from remat_explorer.plan import Plan
from remat_explorer.quantities import exact_bytes, format_seconds
from remat_explorer.runtime.call_signature import (
    Arguments,
    Layout,
    Signature,
    differs_only_in_sizes,
    paths_of,
    with_gradients_of,
)
from remat_explorer.runtime.model_state import ModelState
from remat_explorer.runtime.plan_mismatch import ANEW, difference_of_inputs, difference_of_models
from remat_explorer.runtime.retain_graph import retaining_peak
from remat_explorer.runtime.step_planner import AnySolution, CapturedStep, StepPlanner, TrainingPlan, transfers_on
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import REQUESTED, RESERVED, Budget, Solution, Status, checkpoint_all, checkpoint_all_peak

MAX_CACHE_VARIANTS = 8  # plans for other contents of what a model keeps; more are made if ``resolve`` is set
_PAD_ADVICE = f"Pad the inputs to the planned size, or {ANEW}"
_LARGEST_FIRST = "Rematerialize with the largest inputs that there will be, from which all smaller ones follow"
_CALLER = 9  # from where a warning is given to the call of the model


@dataclasses.dataclass(frozen=True, eq=False)
class SizeVariants:
    """Plans of one model for inputs of several sizes."""

    planner: StepPlanner
    model: nn.Module  # as it is now
    plans: Sequence[TrainingPlan]
    limit: Budget  # the budget of inputs that are planned anew
    resolve: bool  # whether to search anew where a schedule cannot be carried over

    def plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TrainingPlan | None:
        """A plan for inputs of other sizes than those of all plans, or None for inputs that differ in more than sizes.

        For smaller inputs the step is traced again, and the schedule of the larger ones is carried over. Where that is
        not possible, as a loop over time steps has fewer of them, the step is profiled, and nothing is recomputed if it
        fits so. Otherwise, for larger inputs, and where forward reads other truth values out of the inputs than in
        every plan, it is planned anew, with a warning, if there is a budget; bytes stay what they were.

        So it is, too, where the model keeps another tensor than it did, such as a mask for inputs of another size.
        """
        similar = self._similar_plans(args, kwargs)
        if not similar:
            return None
        larger = [(planned, called, now) for planned, called, now in similar if covers(planned.signature, now)]
        if not larger:
            return self._plan_larger(*similar[-1])
        larger.sort(key=lambda one: _input_elements(one[0].signature))
        planned, called, now = larger[0]
        if not (self.resolve or planned.state.is_unchanged()):
            what, _ = difference_of_models(planned.state, planned.state.current())
            warnings.warn(f"{what}. The step is traced again for that", stacklevel=_CALLER - 1)
        captured = self.planner.capture(self.model, *called, like=planned.code.program)
        reading = captured.program.assumptions.truths
        alike = [one for one, _, _ in larger if one.code.program.assumptions.truths == reading]
        planned = alike[0] if alike else planned
        try:
            made = captured.plan_with(self._carry_over(planned, captured), measured=False)
        except ExecutionError as error:
            made = self._plan_other_operations(planned, called, now, captured, f"{error}", turned=not alike)
        return dataclasses.replace(made, convention=planned.convention)

    def _similar_plans(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[TrainingPlan, Arguments, Signature]]:
        """Plans that were measured, for the model but for its caches, with the inputs as they are passed for each.

        Unless plans are made anew, these require the gradients that the plan gives, so that it can be carried over.
        """
        found = []
        for planned in self.plans:
            called = planned.convention.apply(args, kwargs)
            now = Signature.of(*called, self.model)
            alike = differ_only_in_sizes(planned.signature, now) and planned.signature.surroundings == now.surroundings
            if alike and now.wants_less_than(planned.signature):
                alike, called = not self.resolve, with_gradients_of(planned.signature, *called)
            if planned.measured and alike and (planned.state.is_unchanged() or self._differs_in_caches(planned.state)):
                found.append((planned, called, now))
        return found

    def _differs_in_caches(self, state: ModelState) -> bool:
        """Whether a plan may be carried over to what the model keeps now; not where that changes again and again."""
        others = sum(not planned.state.is_unchanged() for planned in self.plans)
        return (
            self.planner.budget is not None and others < MAX_CACHE_VARIANTS and state.differs_in_caches(state.current())
        )

    def _difference(self, planned: TrainingPlan, called: Arguments, now: Signature) -> str:
        what, _ = difference_of_inputs(planned.signature, now, planned.paths, paths_of(*called))
        return what or difference_of_models(planned.state, planned.state.current())[0]

    def _carry_over(self, larger: TrainingPlan, captured: CapturedStep) -> AnySolution:
        program = captured.program
        there = program.bind(self.model, detached_inputs(captured.args, captured.kwargs), tangents=False)
        resident = program.graph.resident_bytes + StorageCensus(program, captured.device).resident_difference(there)
        del there
        means, alone = self.planner.budget_means, captured.processes is None
        retain = self.planner.retain_graph
        state = state_bytes(captured.device.type)
        return carry_over_schedule(larger.solution, larger.code.program, program, resident, means, alone, state, retain)

    def _checkpoint_all(self, captured: CapturedStep, budget: int) -> Solution | None:
        """The solution that recomputes nothing, with measured workspace, if it fits into the budget."""
        if checkpoint_all_peak(captured.program.graph) > budget:
            return None
        planner = self.planner
        return checkpoint_all_within(
            planner.profile_captured(captured), budget, planner.budget_means, planner.retain_graph
        )

    def _plan_other_operations(
        self,
        planned: TrainingPlan,
        called: Arguments,
        now: Signature,
        captured: CapturedStep,
        why: str,
        *,
        turned: bool,
    ) -> TrainingPlan:
        budget = planned.solution.budget
        if (everything := self._checkpoint_all(captured, budget)) is not None:
            return captured.plan_with(everything)
        what = f"{self._difference(planned, called, now)}. Its schedule does not serve here, since {why}"
        if self.planner.budget is None and not self.resolve:
            raise ExecutionError(
                f"{what}, and keeping everything does not fit into the budget of {exact_bytes(budget)}. {_PAD_ADVICE}"
            ) from None
        if not self.resolve:
            what = f"for the first time, a step reads {captured.program.assumptions}" if turned else what
            warnings.warn(f"{what}. It is planned anew", stacklevel=_CALLER)
        return self.planner.plan_captured(captured, self.limit)

    def _plan_larger(self, planned: TrainingPlan, called: Arguments, now: Signature) -> TrainingPlan:
        what = self._difference(planned, called, now)
        if self.planner.budget is None and not self.resolve:
            raise ExecutionError(
                f"{what}, which is larger. {_LARGEST_FIRST}, or give budget=..., to plan anew within it"
            )
        begin = time.perf_counter()
        made = self.planner.plan(self.model, *called, within=self.limit)
        seconds = format_seconds(time.perf_counter() - begin)
        warnings.warn(f"{what}, which is larger: planned anew, in {seconds}. {_LARGEST_FIRST}", stacklevel=_CALLER)
        return made


def _input_elements(signature: Signature) -> int:
    """How many numbers the input tensors have."""
    return sum(math.prod(leaf.shape) for leaf in signature.leaves if isinstance(leaf, Layout))


def differ_only_in_sizes(planned: Signature, now: Signature) -> bool:
    """Whether the inputs of two calls are alike but for the sizes and strides of tensors, which may be alike, too.

    Some may require no gradient now.
    """
    return (
        planned.nesting == now.nesting
        and len(planned.leaves) == len(now.leaves)
        and all(map(differs_only_in_sizes, planned.leaves, now.leaves))
    )


def covers(planned: Signature, now: Signature) -> bool:
    """Whether no dimension of an input is larger than in a plan's call, where they differ in sizes."""
    layouts = ((a, b) for a, b in zip(planned.leaves, now.leaves, strict=True) if isinstance(a, Layout))
    return all(there >= here for a, b in layouts for there, here in zip(a.shape, b.shape, strict=True))


def carry_over_schedule(
    solution: AnySolution,
    larger: Program,
    smaller: Program,
    resident_bytes: int,
    budget_means: str,
    alone: bool = True,
    state: int = 0,
    retain: bool = False,
) -> AnySolution:
    """A solution within the same budget for a step with smaller inputs: its schedule, or nothing recomputed.

    The two programs must have the same operations with the same dependencies, and no value may be larger, so that every
    rule that the schedule keeps for the one is kept for the other. The checker looks at it all the same, with the sizes
    of the smaller step. Where keeping everything fits into the budget, that is the answer if ``alone``, since it costs
    no more; other processes, whose inputs may be larger, would wait for what this one does not gather again.

    What is taken over and not measured: an operation is assumed to need at most the workspace that was measured for its
    larger inputs, an output to take over a storage only if it does so there, and a storage that was found to be larger
    than predicted to be no larger now. Costs stay those that were measured there, so only their shares mean something,
    and nothing is proven about them. A plan that sends values is carried over in the same way. ``resident_bytes`` are
    there before the smaller step begins, and ``state`` is the bytes of a generator's state.
    """
    require_same_operations(larger, smaller)
    states = [state if body.random else 0 for body in smaller.bodies]
    graph = transfer_profile(solution.graph, larger.graph, smaller.graph, resident_bytes, states)
    everything = checkpoint_all_within(graph, solution.budget, budget_means, retain) if alone else None
    if isinstance(solution, TransferSolution):
        try:
            return everything or transfers_on(graph, solution)
        except SolutionError as error:
            raise ExecutionError(str(error)) from None
    assert solution.schedule is not None
    if everything is not None and everything.schedule and everything.schedule.cost <= solution.schedule.cost:
        return everything
    try:
        schedule = check_schedule(solution.schedule.on(graph), solution.budget).schedule
    except ScheduleError as error:
        raise ExecutionError(f"it is refused for these inputs: {error}") from None
    if retain and (most := _required_bytes(schedule, REQUESTED, retain)) > solution.budget:
        raise ExecutionError(
            f"with what is retained it needs {exact_bytes(most)}, above the budget of {exact_bytes(solution.budget)}"
        )
    if (most := _required_bytes(schedule, budget_means)) > solution.budget:
        raise ExecutionError(
            f"PyTorch's allocator is predicted to reserve {exact_bytes(most)} for it, above the budget of "
            f"{exact_bytes(solution.budget)}"
        )
    return Solution(graph, solution.strategy, Status.FEASIBLE, solution.budget, schedule, None, solution.seconds)


def checkpoint_all_within(graph: Graph, budget: int, budget_means: str, retain: bool = False) -> Solution | None:
    """The solution that recomputes nothing, if it fits into a budget; nothing is searched for."""
    schedule = checkpoint_all(graph)
    if _required_bytes(schedule, budget_means, retain) > budget:
        return None
    schedule = check_schedule(schedule, budget).schedule
    return Solution(graph, "checkpoint-all", Status.FEASIBLE, budget, schedule, None, 0.0)


def _required_bytes(schedule: Schedule, budget_means: str, retain: bool = False) -> int:
    """The bytes of a schedule that are held against its budget."""
    retained = retaining_peak(Plan.of(schedule)) if retain else 0
    return max(retained, reserved_of(schedule) if budget_means == RESERVED else Plan.peak_of(schedule))


def require_same_operations(larger: Program, smaller: Program) -> None:
    """Refuse a step with other operations, or with a value that is larger, naming the first."""
    for mine, theirs in zip(_operations(larger), _operations(smaller), strict=False):
        if mine[0] != theirs[0]:
            raise ExecutionError(f"the model computes {theirs[0]!r} where it computed {mine[0]!r} there")
        if mine != theirs:
            raise ExecutionError(f"{theirs[0]!r} has other operators or inputs than there")
    if larger.graph.n != smaller.graph.n:
        raise ExecutionError(f"the model has {smaller.graph.n} operations where it had {larger.graph.n} there")
    for mine, theirs in zip(larger.graph.values, smaller.graph.values, strict=True):
        if theirs.bytes > mine.bytes or theirs.persistent != mine.persistent:
            raise ExecutionError(
                f"{theirs.name!r} takes {exact_bytes(theirs.bytes)} where it took {exact_bytes(mine.bytes)} there"
            )


def _operations(program: Program) -> Iterator[tuple[Any, ...]]:
    """What must be the same: names, operators, and what is read and written."""
    for node, body in zip(program.graph.operations, program.bodies, strict=True):
        ways = tuple((way.name, way.inputs, way.outputs) for way in node.implementations)
        yield node.name, node.phase, node.optional, ways, tuple(map(name_of_call, body.calls)), body.random


def transfer_profile(
    measured: Graph, larger: Graph, smaller: Graph, resident_bytes: int, states: Sequence[int] = ()
) -> Graph:
    """The graph of a smaller step with what was measured for a larger one, operation by operation.

    ``states`` has for each operation the bytes of a generator's state that is read before it runs, or 0; smaller
    outputs leave less room for it.
    """
    sizes = tuple(
        small.bytes if real.bytes == large.bytes else max(small.bytes, real.bytes)
        for real, large, small in zip(measured.values, larger.values, smaller.values, strict=True)
    )
    pairs = [
        (*pair, state)
        for node, other, state in zip(measured.operations, smaller.operations, states or [0] * smaller.n, strict=True)
        for pair in zip(node.implementations, other.implementations, strict=True)
    ]
    takes_over = (
        real.overwrites is not None
        and real.overwrites == way.overwrites
        and sizes[real.overwrites] in [sizes[v] for v in way.outputs]
        for real, way, _ in pairs
    )
    grown = [
        sum(sizes[v] for v in way.outputs) - (0 if real.overwrites is None else sizes[real.overwrites])
        for real, way, _ in pairs
    ]
    workspace = tuple(
        max(real.workspace, state and state - more) for (real, _, state), more in zip(pairs, grown, strict=True)
    )
    costs = tuple(float(real.cost) for real, _, _ in pairs)
    return Profile(costs, workspace, tuple(takes_over), sizes, resident_bytes).of(smaller)
