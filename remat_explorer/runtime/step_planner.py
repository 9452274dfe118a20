"""From a model and inputs to code that trains it within a budget: capture, profile, solve, generate.

`StepPlanner.plan` gives a `TrainingPlan`, whose solution may be a `TransferSolution`. Of processes that hold a sharded
model the first one searches, and the others take its answer (`solve_on_first_process`); a step runs only if all have
the same collectives (`agree_on_plan`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from remat_explorer import errors
from remat_explorer.allocator import reserved_of
from remat_explorer.capture import (
    COLLECTIVES,
    FAILED,
    SOLUTION,
    STEP,
    BrokenAssumption,
    DisagreementError,
    Loss,
    Place,
    ProcessGroup,
    Program,
    Snapshot,
    detached_inputs,
    profile,
    trace,
)
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.documents import to_json
from remat_explorer.errors import ExecutionError, ScheduleError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.offload import TransferPlan, Transfers, TransferSolution, check_transfers
from remat_explorer.plan import Compute
from remat_explorer.quantities import exact_bytes
from remat_explorer.runtime.call_signature import CallingConvention, Signature, paths_of
from remat_explorer.runtime.copies import AnyPlan, Tier
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.model_state import ModelState
from remat_explorer.runtime.preconditions import attributes_after_forward, require_plannable, require_registered
from remat_explorer.runtime.retain_graph import MAX_SOLVES, retaining_peak, solve_within
from remat_explorer.solvers import (
    REQUESTED,
    RESERVED,
    Budget,
    Progress,
    Solution,
    Status,
    capture_options_of,
    explain_unfit,
    minimum_budget,
    solve,
)

AnySolution = Solution | TransferSolution


@dataclass(frozen=True, eq=False)
class StepPlanner:
    """How `remat_explorer.rematerialize` was asked to plan: its arguments, by the same names."""

    budget: Budget | None = None
    loss: Loss | None = None
    strategy: str = "optimal"
    solution: AnySolution | str | Path | None = None
    time_limit: float = 60.0
    solver: str = "highs"
    optimizer: str | None = None
    on_progress: Callable[[Progress], None] | None = None
    cache: bool = False
    budget_means: str = REQUESTED
    retain_graph: bool = False
    transfers: Transfers | None = None
    tier: Tier = field(default_factory=Tier)

    def plan(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], within: Budget | None = None
    ) -> TrainingPlan:
        """Plan a training step; ``within`` is a budget to solve for even if there is a solution, of other inputs."""
        return self.plan_captured(self.capture(model, args, kwargs), within)

    def plan_captured(self, captured: CapturedStep, within: Budget | None = None) -> TrainingPlan:
        """The same for a step that is traced already."""
        graph = self.profile_captured(captured)
        if within is None and self.solution is not None:
            solution = self._checked_solution(graph, self.solution)
        else:
            asked = self.budget if within is None else within
            solution = solve_on_first_process(captured.processes, graph, lambda: self._solve(graph, asked))
        self._require_schedule(solution)
        return captured.plan_with(solution)

    def profile_captured(self, captured: CapturedStep) -> Graph:
        """The graph of a step with what its operations take where the model lies."""
        program, given = captured.program, (captured.model, captured.args, captured.kwargs, self.loss)
        return profile(program.graph, *given, device=str(captured.device), exact=False, program=program)

    def capture(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], like: Program | None = None
    ) -> CapturedStep:
        """Trace a training step, without memory or kernels; ``like`` is the same with inputs of other sizes."""
        require_plannable(model)
        program = trace(model, args, kwargs, self.loss, options=self._options(), like=like)
        require_registered(model, program)
        settled = attributes_after_forward(model, args, kwargs, self.loss, program.changes)
        processes = ProcessGroup.of(model)
        if self.transfers is not None and processes is not None:
            raise ExecutionError(
                "the model is sharded (fully_shard), and no plan for it sends values to the host; leave offload=... out"
            )
        return CapturedStep(model, args, kwargs, self.loss, program, settled, self.retain_graph, processes, self.tier)

    def _options(self) -> CaptureOptions:
        """How the graph must be captured for its structure to be that of a given solution."""
        given = self.solution
        if given is not None:
            if isinstance(given, AnySolution):
                options = given.graph.options
            else:
                sending = TransferSolution.options_in(given)
                options = sending[1] if sending else capture_options_of(given)
            if options is not None:
                return options
        return CaptureOptions(optimizer=self.optimizer)

    def _checked_solution(self, graph: Graph, solution: AnySolution | str | Path) -> AnySolution:
        if isinstance(solution, TransferSolution):
            if solution.graph.structure != graph.structure:
                name = solution.graph.name
                raise SolutionError(f"this plan is for another graph, {name!r}, than the one given, {graph.name!r}")
            return solution if solution.plan is None else transfers_on(graph, solution)
        if self.transfers is not None and not isinstance(solution, Solution):
            return TransferSolution.load_plan(solution, graph)
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

    def _solve(self, graph: Graph, budget: Budget | None) -> AnySolution:
        if budget is None:
            raise ExecutionError('there is nothing to plan with; give budget=..., such as "2 GiB", or solution=...')
        if self.transfers is not None:
            asked = (graph, budget, self.strategy, self.time_limit, self.solver)
            return solve(*asked, on_progress=self.on_progress, transfers=self.transfers)
        settings = {"on_progress": self.on_progress, "cache": self.cache, "budget_means": self.budget_means}
        if not self.retain_graph:
            return solve(graph, budget, self.strategy, self.time_limit, self.solver, **settings)

        def solve_at(asked: Budget) -> Solution:
            return solve(graph, asked, self.strategy, self.time_limit / MAX_SOLVES, self.solver, **settings)

        return solve_within(graph, budget, solve_at)

    def _require_schedule(self, solution: AnySolution) -> None:
        if solution.plan is not None:
            return
        if isinstance(solution, TransferSolution):
            raise ExecutionError(f"no plan was found that sends values and fits: {solution}; give a larger budget")
        smallest = minimum_budget(solution.graph)
        if solution.status == "infeasible":
            raise ExecutionError(smallest.explain_infeasible(solution.strategy, solution.budget))
        if self.budget_means == RESERVED:
            raise ExecutionError(explain_unfit(solution))
        raise ExecutionError(smallest.explain_unknown(solution.strategy, solution.budget, solution.limit))


@dataclass(frozen=True, eq=False)
class CapturedStep:
    """A training step of a model for some inputs, traced once; no kernel has run."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Loss | None
    program: Program
    settled: Mapping[Place, Snapshot]  # what the attributes that forward fills hold after it
    retain_graph: bool = False  # whether its plans are for several backward passes
    processes: ProcessGroup | None = None  # those that hold the model together, if it is sharded
    tier: Tier = field(default_factory=Tier)  # where its plans send values

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return next(self.model.parameters()).device

    def plan_with(self, solution: AnySolution, measured: bool = True) -> TrainingPlan:
        """The code of a solution; an ExecutionError if its plan cannot be parted into a forward and a backward pass."""
        assert solution.plan is not None
        assert self.program.reads is not None
        signature = Signature.of(self.args, self.kwargs, self.model)
        state = ModelState(self.model, self.program.reads, self.settled, self.loss)
        code = ForwardBackward.of(solution.plan, self.program, self.device, self.retain_graph, self.tier)
        paths, convention = paths_of(self.args, self.kwargs), CallingConvention.of(self.model, self.args, self.kwargs)
        return TrainingPlan(signature, tuple(paths), convention, state, solution, code, measured, self.processes)


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """A solution, the code that executes it, and what it was made for."""

    signature: Signature  # of the call that it was made for
    paths: tuple[str, ...]  # what the inputs of that call are called
    convention: CallingConvention  # how they came
    state: ModelState  # of the model
    solution: AnySolution
    code: ForwardBackward
    measured: bool = True  # whether workspace was measured for these inputs, not for larger ones
    processes: ProcessGroup | None = None  # those that run it together, if the model is sharded

    @cached_property
    def left_tensors(self) -> dict[Place, Snapshot]:
        """Attributes in which a forward pass would have left tensors, with what it leaves there."""
        return self.state.left_tensors

    @cached_property
    def digest(self) -> int:
        """Of the collectives of its plan."""
        return collectives_digest(self.code.plan, self.code.program)

    def broken_assumption(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> BrokenAssumption | None:
        """What would be read out of these inputs, or out of buffers, that it was not made for, or None."""
        return self.code.program.assumptions.broken(model, detached_inputs(args, kwargs))


_Plan = TypeVar("_Plan")


def transfers_on(graph: Graph, solution: TransferSolution) -> TransferSolution:
    """The plan of a solution for another profile of its step, or for smaller inputs; nothing is proven about it there.

    Raises:
        SolutionError: if its plan is not one of this graph within the solution's budget.
    """
    assert solution.plan is not None
    if len(graph.values) != len(solution.graph.values) or graph.n != solution.graph.n:
        raise SolutionError(f"this plan is for another graph, {solution.graph.name!r}, than the one given")
    try:
        plan = check_transfers(TransferPlan(graph, solution.transfers, solution.plan.statements), solution.budget).plan
    except ScheduleError as error:
        raise SolutionError(f"the plan does not serve this model: {error}") from None
    return replace(solution, graph=graph, plan=plan, status=Status.FEASIBLE, lower_bound=None)


def solve_on_first_process(
    processes: ProcessGroup | None, graph: Graph, search: Callable[[], AnySolution]
) -> AnySolution:
    """What ``search`` gives on the first process, checked again on each; here, if there is only one.

    ``graph`` is the same on each process, and each raises what ``search`` has raised on the first one.
    """
    if processes is None:
        return search()
    found, error = None, None
    if processes.rank == 0:
        try:
            found = search()
        except Exception as raised:  # the others wait for an answer
            error = raised
    entry = {
        "graph": graph.sha256,
        "solution": None if found is None else json.loads(to_json(found.to_document())),
        "error": None if error is None else [type(error).__name__, str(error)],
    }
    told = processes.told(SOLUTION, entry)
    processes.require_same([one["graph"] for one in told], "other costs or sizes of a step")
    if error is not None:
        raise error
    if told[0]["error"] is not None:
        name, text = told[0]["error"]
        raise getattr(errors, name, ExecutionError)(text)
    return found or Solution.from_document(told[0]["solution"], graph)


def collectives_digest(plan: AnyPlan, program: Program) -> int:
    """A number that two plans share if they have the same collectives in the same order; never 0."""
    order = []
    for statement in plan.statements:
        if isinstance(statement, Compute):
            calls = program.body(statement).calls
            sent = [str(call.target) for call in calls if call.target in COLLECTIVES]
            order += [[plan.graph.operations[statement.operation].name, *sent]] if sent else []
    return 1 + int.from_bytes(hashlib.sha256(json.dumps(order).encode()).digest()[:7], "big")


def agree_on_plan(processes: ProcessGroup, planning: Callable[[], _Plan], digest: Callable[[_Plan], int]) -> _Plan:
    """The plan of a step, after every process has found one with the same collectives in the same order.

    A DisagreementError on every process if another one has no plan, or one with other collectives.
    """
    try:
        planned = planning()
    except DisagreementError:  # which all of them have met
        raise
    except Exception:  # whatever a person's model does while it is traced
        with contextlib.suppress(DisagreementError):
            processes.numbers(FAILED, 0)
        raise
    processes.require_same(processes.numbers(STEP, digest(planned)), "a plan with other collectives")
    return planned
