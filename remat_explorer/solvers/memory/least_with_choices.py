"""The smallest budget of a graph with choices of implementations, from below and from above.

1. Lower bound: the most that any operation needs for itself, each in the implementation that needs the least.
2. Upper bound: bisection of the budget with the planner on the plain graphs of a few choices: three by one rule for all
   operations, and what the few-moments relaxation would choose slightly above the lower bound.
3. Bisection of what is left by `monet`, which proves budgets infeasible on small graphs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.memory.least_plain import Least, Limiting, settle, smallest_schedule
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, Tables, allowed_codes
from remat_explorer.solvers.monet.relaxation_with_choices import RelaxationWithChoices
from remat_explorer.solvers.monet.selections import CandidateSelection, cheapest, lightest, smallest
from remat_explorer.solvers.strategies.monet import improve_monet

_PATIENCE = 0.2  # share of the time for each budget that `monet` tries


@dataclass(frozen=True)
class LeastWithChoicesSettings:
    """How the time is divided between the steps; shares are those of all of it, at most."""

    planning: float = 0.1  # share for planning with each choice
    relaxing: float = 0.1  # share for the relaxation, which makes one of the choices
    beyond: float = 1.02  # its budget, in lower bounds


LEAST_WITH_CHOICES = LeastWithChoicesSettings()


def least_with_choices(
    graph: Graph,
    seconds: float,
    implementations: str | Collection[str] = "all",
    schedule: Schedule | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    settings: LeastWithChoicesSettings = LEAST_WITH_CHOICES,
) -> Least:
    """The least memory of the joint problem, from below and from above.

    Args:
        graph: the training graph; operations may have several implementations, or be optional.
        seconds: wall time, at most.
        implementations: "all"; "exact"; or names or kinds of implementations. Defaults are always among them.
        schedule: a schedule of implementations that may be chosen, which need not be bettered, or None.
        cancelled: asked between steps.
        settings: how the time is divided.

    Raises:
        UnknownNameError, SolverError: if the graph has no such implementations.

    >>> from remat_explorer.instances import linear
    >>> found = least_with_choices(linear(4), 2.0)
    >>> found.lower_bound, Plan.of(found.schedule).peak
    (3, 3)
    """
    end = time.monotonic() + seconds
    codes = allowed_codes(graph, implementations)
    problem = CondensedChoices.of(graph, codes)
    limiting = limiting_operation(problem)
    bound, best = limiting.bytes, checkpoint_all(graph)
    if schedule is not None and Plan.of(schedule).peak < Plan.of(best).peak:
        best = schedule
    for choice in _choices(problem, Limits(settings.relaxing * seconds), settings.beyond):
        candidate = CandidateSelection.of(graph, choice, Plan.of(best).peak)
        if candidate is None or not candidate.keeps_to(codes) or time.monotonic() > end or cancelled():
            continue
        least = int(candidate.condensed.operation_bytes.max())
        share = min(settings.planning * seconds, end - time.monotonic())
        lifted = candidate.selection.lift(smallest_schedule(candidate.condensed, least, share, cancelled=cancelled))
        if Plan.of(lifted).peak < Plan.of(best).peak:
            best = lifted

    def solve(budget: int, limits: Limits) -> Answer:
        return improve_monet(graph, budget, Answer(None), limits, implementations)

    bound, best = settle(solve, bound, best, end, _PATIENCE * seconds, cancelled)
    return Least(bound, limiting, best)


def limiting_operation(problem: CondensedChoices) -> Limiting:
    """The operation that needs the most for itself in its own stage, whatever is chosen.

    >>> from remat_explorer.instances import linear
    >>> limiting_operation(CondensedChoices.of(linear(8))).bytes
    3
    """
    graph = problem.graph
    t = int(problem.least_memory.argmax())
    k = int(graph.mandatory[t])

    def needed(way) -> int:
        return int(problem.bytes[list(way.inputs)].sum()) + problem.during(way) - way.credit

    least = min(problem.ways[k], key=needed)
    made = graph.operations[k].implementations[least.code - 1]
    earlier = [v for v in range(len(graph.values)) if graph.persistent[v] and graph.producer[v] < k]
    values = tuple(sorted({*earlier, *made.inputs, *made.outputs} - {made.overwrites}))
    way = made.name if len(graph.operations[k].implementations) > 1 else ""
    return Limiting(int(problem.least_memory[t]), k, k, values, int(problem.base[t]), way)


def _choices(problem: CondensedChoices, limits: Limits, beyond: float) -> Iterator[Mapping[int, int]]:
    """Choices that may need little memory, the most promising first."""
    tables = Tables(problem)
    for rule in (lightest, smallest, cheapest):
        yield rule(tables)
    relaxation = RelaxationWithChoices(tables, int(beyond * problem.least_memory.max()))
    choice = relaxation.improve(limits, integral=False).choice()
    if choice:
        yield choice
