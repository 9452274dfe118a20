"""A backward half that runs several times: what the forward half left for it stays until the last one is over."""

from __future__ import annotations

from collections.abc import Callable

import torch

from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.quantities import exact_bytes
from remat_explorer.runtime.backward.cut import cut_of
from remat_explorer.runtime.shortage import held_before
from remat_explorer.solution import Solution

SOLVES = 10  # at most


def retaining_peak(plan: Plan) -> int:
    """Predicted peak of a step in bytes, resident bytes included, where nothing that the forward half left is freed.

    Raises:
        ExecutionError: if the plan begins the backward pass before the forward pass is complete.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> plan = solve(linear(8), budget=4).plan
    >>> plan.peak, retaining_peak(plan)
    (4, 6)
    """
    cut, bytes_of = cut_of(plan), plan.graph.value_bytes.tolist()
    peak, left = plan.peak, set(held_before(plan, cut))
    held = plan.graph.resident_bytes + sum(bytes_of[value] for value in left)
    for statement in plan.statements[cut:]:
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


def within(budget: int, smallest: int, solve_at: Callable[[int], Solution]) -> Solution:
    """A solution whose `retaining_peak` keeps to a budget; its own budget is one of the ordinary peak.

    The budget is asked for first, then less in equal steps, until a schedule fits. That nothing cheaper fits is not
    proven.

    Args:
        budget: bytes.
        smallest: an ordinary peak below which no schedule is known.
        solve_at: solves for a budget of the ordinary peak.

    Raises:
        ExecutionError: if no such schedule is found, with the least that one needs that was.
    """
    least = 0
    for step in range(SOLVES):
        found = solve_at(budget - (budget - min(smallest, budget)) * step // (SOLVES - 1))
        if found.plan is None and not step:
            return found
        needed = retaining_peak(found.plan) if found.plan else least
        if found.plan and needed <= budget:
            return found
        least = min(least or needed, needed)
    raise ExecutionError(
        f"no schedule was found that keeps to {exact_bytes(budget)} with retain_graph=True, where what the forward "
        f"pass leaves stays until the last backward pass is over; the least that one needs is {exact_bytes(least)}"
    )


def graph_is_retained() -> bool:
    """Whether the backward pass under way was asked to keep its graph."""
    return torch._C._autograd._get_current_graph_task_keep_graph()  # type: ignore[attr-defined]
