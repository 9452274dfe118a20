"""A backward pass that runs several times: what the forward pass left for it stays until the last one is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.quantities import SMALLEST, exact_bytes, parse_budget
from remat_explorer.runtime.emitter import split_point
from remat_explorer.runtime.oom_errors import live_values_before
from remat_explorer.solvers import Budget, MinimumBudget, Solution, Status, checkpoint_all, is_smallest, minimum_budget

MAX_SOLVES = 11  # at most


def retaining_peak(plan: Plan) -> int:
    """Predicted peak of a step in bytes, resident bytes included, where nothing that the forward pass left is freed."""
    split, bytes_of = split_point(plan), plan.graph.value_bytes.tolist()
    peak, left = plan.peak, set(live_values_before(plan, split))
    held = plan.graph.resident_bytes + sum(bytes_of[value] for value in left)
    for statement in plan.statements[split:]:
        gone = statement.value if isinstance(statement, Free) else statement.overwrites
        if gone is not None and gone not in left:
            held -= bytes_of[gone]
        left.discard(gone)  # type: ignore[arg-type]
        if isinstance(statement, Compute):
            way = plan.graph.operations[statement.operation].implementations[statement.implementation - 1]
            held += sum(bytes_of[value] for value in way.outputs)
            peak = max(peak, held + way.workspace)
            held -= sum(bytes_of[value] for value in statement.drops)
    return peak


def solve_within(graph: Graph, budget: Budget, solve_at: Callable[[Budget], Solution]) -> Solution:
    """A solution whose `retaining_peak` keeps to a budget, which is then the solution's own.

    The budget is asked for first, as one of the ordinary peak, and then others, the same for every budget of a graph,
    from the largest down, until a schedule fits. That nothing cheaper fits is not proven. "60%" is of the
    `retaining_peak` of keeping everything, "smallest" the least of all schedules that are looked at; "40% of the way"
    begins at that of the schedule with the smallest ordinary peak.
    """
    most, known = retaining_peak(Plan.of(checkpoint_all(graph))), minimum_budget(graph)
    smallest = known.known_feasible
    limit = None if is_smallest(budget) else _bytes_of(budget, most, known)
    parts = MAX_SOLVES - 2  # beside the budget itself, and the smallest
    steps: list[Budget] = [smallest + (most - smallest) * part // parts for part in range(parts, 0, -1)]
    steps = [step for step in [*steps, SMALLEST] if limit is None or step == SMALLEST or step < limit]
    bound, found, least = None, None, []
    for step in steps if limit is None else [limit, *steps]:
        found = solve_at(step)
        bound = found.lower_bound if step == limit else bound
        if found.plan is None:
            continue
        needed = retaining_peak(found.plan)
        if limit is not None and needed <= limit:
            return found if step == limit else _at(found, limit, bound)
        if step != limit:  # what is named is found again when it is asked for
            least.append((needed if limit is None else max(needed, found.budget), found))
    if not least:
        assert found is not None  # something was solved for
        return found
    needed, found = min(least, key=lambda one: (one[0], one[1].budget))
    if limit is None:
        return _at(found, needed, None)
    raise ExecutionError(
        f"no schedule was found that keeps to {exact_bytes(limit)} with retain_graph=True, where what the forward "
        f"pass leaves stays until the last backward pass is over; the least that one needs is {exact_bytes(needed)}"
    )


def _bytes_of(budget: Budget, most: int, known: MinimumBudget) -> int:
    if isinstance(budget, MinimumBudget):
        return budget.known_feasible
    return parse_budget(budget, most, lambda: retaining_peak(Plan.of(known.schedule)))


def _at(solution: Solution, budget: int, bound: float | None) -> Solution:
    """The same schedule for a larger budget, at which it is not proven to be the cheapest."""
    return dataclasses.replace(solution, budget=budget, status=Status.FEASIBLE, lower_bound=bound)


def graph_is_retained() -> bool:
    """Whether the backward pass under way was asked to keep its graph."""
    return torch._C._autograd._get_current_graph_task_keep_graph()  # type: ignore[attr-defined]
