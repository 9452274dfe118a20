"""The smallest budgets: one that no schedule can beat, and one for which a schedule is known."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.checkpoint_all import checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.planner import plan_schedule

CLOSE = 0.005  # the search ends when the smallest feasible budget is known to half a percent


@dataclass(frozen=True)
class MinimumBudget:
    """Between which budgets a graph starts to be feasible; all bytes include the resident ones.

    Attributes:
        lower_bound: bytes that the largest single operation needs; no schedule fits into less.
        operation: index of that operation.
        name: its name.
        values: ids of the values that must be in memory while it runs, its outputs included, and without the one
            that an output may take the place of.
        fixed: bytes of ``lower_bound`` that are there whatever is scheduled: resident bytes, and results (parameter
            gradients, the loss) of earlier operations.
        known_feasible: the smallest budget in bytes for which a schedule is known.
        schedule: that schedule.
        checkpoint_all_peak: bytes that keeping everything takes.
    """

    lower_bound: int
    operation: int
    name: str
    values: tuple[int, ...]
    fixed: int
    known_feasible: int
    schedule: Schedule
    checkpoint_all_peak: int

    def explain(self) -> str:
        """What limits the budget, and the smallest budget worth trying, in words."""
        share = math.ceil(1000 * self.known_feasible / self.checkpoint_all_peak) / 10
        return (
            f"{self.name!r} alone needs {_both(self.lower_bound)} while it runs, {format_bytes(self.fixed)} of it for "
            "parameters, inputs and results that are there whatever is scheduled: no schedule fits into less. The "
            f"smallest budget worth trying is {_both(self.known_feasible)}, {share:g}% of keeping everything; a "
            "schedule for it is known"
        )


def largest_operation(graph: Graph) -> tuple[int, int]:
    """The operation that needs the most memory for itself, and its bytes; no schedule has a lower peak.

    >>> from remat_explorer.instances import linear
    >>> largest_operation(linear(8))
    (9, 3)
    """
    needed = Condensed.of(graph).operation_bytes
    k = int(needed.argmax())
    return k, int(needed[k])


def minimum_budget(graph: Graph, seconds: float = 3.0) -> MinimumBudget:
    """The smallest budgets of ``graph``.

    Args:
        graph: the training graph, one implementation per operation.
        seconds: wall time for the search for the smallest budget with a known schedule.

    Raises:
        SolverError: if an operation has several implementations.

    >>> from remat_explorer.instances import linear
    >>> found = minimum_budget(linear(8))
    >>> found.lower_bound, found.known_feasible, found.schedule.cost
    (3, 3, 45.0)
    """
    k, lower_bound = largest_operation(graph)
    condensed = Condensed.of(graph)
    schedule = _smallest_schedule(condensed, lower_bound, seconds)
    return MinimumBudget(
        lower_bound,
        k,
        graph.operations[k].name,
        _alive(graph, k),
        int(condensed.base[k]),
        Plan.of(schedule).peak,
        schedule,
        checkpoint_all_peak(graph),
    )


def _alive(graph: Graph, k: int) -> tuple[int, ...]:
    """Values in memory while k runs: its own, but what it overwrites, and the persistent ones of earlier operations."""
    earlier = [v for v in range(len(graph.values)) if graph.persistent[v] and graph.producer[v] < k]
    return tuple(sorted({*earlier, *graph.inputs(k), *graph.outputs(k)} - {graph.operations[k].default.overwrites}))


def _smallest_schedule(condensed: Condensed, lower_bound: int, seconds: float) -> Schedule:
    """Bisection with the planner, from the lower bound up to checkpoint-all."""
    end = time.monotonic() + seconds
    best = checkpoint_all(condensed.graph)
    high, low = Plan.of(best).peak, lower_bound
    trial = low
    while high > low and time.monotonic() < end:
        found = plan_schedule(condensed, trial, min(end - time.monotonic(), seconds / 4))
        if found is None:
            low = trial + 1
        else:
            best, high = found, Plan.of(found).peak
        if high - low <= CLOSE * high and trial > lower_bound:
            break
        trial = (low + high) // 2
    return best


def _both(count: int) -> str:
    return f"{format_bytes(count)} ({count} bytes)"
