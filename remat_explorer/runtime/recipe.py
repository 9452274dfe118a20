"""From a model and inputs to code that trains it within a budget: capture, profile, solve, generate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remat_explorer.allocator import reserved_of
from remat_explorer.capture.joint.assumptions import Broken
from remat_explorer.capture.operations.program import Program
from remat_explorer.capture.profiling.profiling import profile
from remat_explorer.capture.step.attributes import Place
from remat_explorer.capture.step.contents import Content
from remat_explorer.capture.step.losses import Loss
from remat_explorer.capture.step.processes import Processes
from remat_explorer.capture.step.training_step import plain_inputs
from remat_explorer.capture.tracing import trace
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import ExecutionError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.quantities import exact_bytes
from remat_explorer.runtime.assumptions.agreement import digest_of_collectives, one_solution
from remat_explorer.runtime.assumptions.inputs import Calling, paths_of
from remat_explorer.runtime.assumptions.model_state import ModelState
from remat_explorer.runtime.assumptions.plannable import require_plannable, require_registered
from remat_explorer.runtime.assumptions.settling import settled_attributes
from remat_explorer.runtime.backward.retaining import SOLVES, retaining_peak, within
from remat_explorer.runtime.halves import Halves
from remat_explorer.runtime.signature import Signature
from remat_explorer.solution import Solution, capture_options_of
from remat_explorer.solvers import minimum_budget, solve
from remat_explorer.solvers.base import Progress
from remat_explorer.solvers.memory.minimum_budget import Budget
from remat_explorer.solvers.reserved import REQUESTED, RESERVED, explain_unfit


@dataclass(frozen=True, eq=False)
class Planned:
    """A solution, the code that executes it, and what it was made for.

    Attributes:
        signature, paths, calling: of the call that it was made for, what its inputs are called, and how they came.
        state: of the model.
        measured: whether the workspace of its operations was measured for these inputs, and not carried over from
            larger ones.
        processes: those that run it together, if the model is sharded.
    """

    signature: Signature
    paths: tuple[str, ...]
    calling: Calling
    state: ModelState
    solution: Solution
    halves: Halves
    measured: bool = True
    processes: Processes | None = None

    @cached_property
    def left(self) -> dict[Place, Content]:
        """Attributes in which a forward pass would have left tensors, with what it leaves there."""
        return self.state.left

    @cached_property
    def digest(self) -> int:
        """Of the collectives of its plan."""
        return digest_of_collectives(self.halves.plan, self.halves.program)

    def broken(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Broken | None:
        """What would be read out of these inputs, or out of buffers, that it was not made for, or None."""
        return self.halves.program.assumptions.broken(model, plain_inputs(args, kwargs))


@dataclass(frozen=True, eq=False)
class Captured:
    """A training step of a model for some inputs, traced once; no kernel has run.

    Attributes:
        settled: what the attributes that forward fills hold after it.
        retain_graph: whether its plans are for several backward passes.
        processes: those that hold the model together, if it is sharded.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Loss | None
    program: Program
    settled: Mapping[Place, Content]
    retain_graph: bool = False
    processes: Processes | None = None

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return next(self.model.parameters()).device

    def planned(self, solution: Solution, measured: bool = True) -> Planned:
        """The code of a solution of this step.

        Raises:
            ExecutionError: if its plan cannot be taken apart into a forward and a backward half.
        """
        assert solution.plan is not None
        assert self.program.reads is not None
        signature = Signature.of(self.args, self.kwargs, self.model)
        state = ModelState(self.model, self.program.reads, self.settled, self.loss)
        halves = Halves.of(solution.plan, self.program, self.device, self.retain_graph)
        paths, calling = paths_of(self.args, self.kwargs), Calling.of(self.model, self.args, self.kwargs)
        return Planned(signature, tuple(paths), calling, state, solution, halves, measured, self.processes)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How `remat_explorer.rematerialize` was asked to plan: its arguments, by the same names."""

    budget: Budget | None = None
    loss: Loss | None = None
    strategy: str = "optimal"
    solution: Solution | str | Path | None = None
    time_limit: float = 60.0
    solver: str = "highs"
    optimizer: str | None = None
    on_progress: Callable[[Progress], None] | None = None
    cache: bool = False
    budget_means: str = REQUESTED
    retain_graph: bool = False

    def plan(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], within: Budget | None = None
    ) -> Planned:
        """Plan a training step of ``model`` for these inputs.

        Args:
            within: a budget to solve for even if there is a solution, because the inputs are others.

        Raises:
            CaptureError, ExecutionError, SolutionError, QuantityError: as `remat_explorer.rematerialize`.
        """
        return self.plan_of(self.capture(model, args, kwargs), within)

    def plan_of(self, captured: Captured, within: Budget | None = None) -> Planned:
        """The same for a step that is traced already."""
        graph = self.profiled(captured)
        if within is None and self.solution is not None:
            solution = self._given(graph, self.solution)
        else:
            asked = self.budget if within is None else within
            solution = one_solution(captured.processes, graph, lambda: self._solved(graph, asked))
        self._require_schedule(solution)
        return captured.planned(solution)

    def profiled(self, captured: Captured) -> Graph:
        """The graph of a step with what its operations take where the model lies."""
        program, given = captured.program, (captured.model, captured.args, captured.kwargs, self.loss)
        return profile(program.graph, *given, device=str(captured.device), exact=False, program=program)

    def capture(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], like: Program | None = None
    ) -> Captured:
        """Trace a training step, which takes no memory and runs no kernels.

        Args:
            like: the same step with inputs of other sizes.

        Raises:
            CaptureError, ExecutionError: as `remat_explorer.rematerialize`.
        """
        require_plannable(model)
        program = trace(model, args, kwargs, self.loss, options=self._options(), like=like)
        require_registered(model, program)
        settled = settled_attributes(model, args, kwargs, self.loss, program.changes)
        processes = Processes.of(model)
        return Captured(model, args, kwargs, self.loss, program, settled, self.retain_graph, processes)

    def _options(self) -> CaptureOptions:
        """How the graph must be captured for its structure to be that of a given solution."""
        given = self.solution
        if given is not None:
            options = given.graph.options if isinstance(given, Solution) else capture_options_of(given)
            if options is not None:
                return options
        return CaptureOptions(optimizer=self.optimizer)

    def _given(self, graph: Graph, solution: Solution | str | Path) -> Solution:
        found = solution.on(graph) if isinstance(solution, Solution) else Solution.load_schedule(solution, graph)
        if self.budget_means == RESERVED and found.schedule and reserved_of(found.schedule) > found.budget:
            raise SolutionError(
                f"PyTorch's allocator is predicted to reserve {exact_bytes(reserved_of(found.schedule))} for the "
                f"solution, above its budget of {exact_bytes(found.budget)}; solve with budget_means={RESERVED!r}"
            )
        if self.retain_graph and found.plan and (needed := retaining_peak(found.plan)) > found.budget:
            raise SolutionError(
                f"with retain_graph=True the solution needs {exact_bytes(needed)}, above its budget of "
                f"{exact_bytes(found.budget)}; give a budget, and no solution"
            )
        return found

    def _solved(self, graph: Graph, budget: Budget | None) -> Solution:
        if budget is None:
            raise ExecutionError('there is nothing to plan with; give budget=..., such as "2 GiB", or solution=...')
        settings = {"on_progress": self.on_progress, "cache": self.cache, "budget_means": self.budget_means}
        if not self.retain_graph:
            return solve(graph, budget, self.strategy, self.time_limit, self.solver, **settings)

        def solve_at(asked: Budget) -> Solution:
            return solve(graph, asked, self.strategy, self.time_limit / SOLVES, self.solver, **settings)

        return within(graph, budget, solve_at)

    def _require_schedule(self, solution: Solution) -> None:
        if solution.schedule is not None:
            return
        smallest = minimum_budget(solution.graph)
        if solution.status == "infeasible":
            raise ExecutionError(smallest.explain_infeasible(solution.strategy, solution.budget))
        if self.budget_means == RESERVED:
            raise ExecutionError(explain_unfit(solution))
        raise ExecutionError(smallest.explain_unknown(solution.strategy, solution.budget, solution.limit))
