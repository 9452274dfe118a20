"""About the smallest budget of a graph with choices: what a few choices of implementations are known to fit into."""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.memory.minimum_budget import minimum_budget
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.monet.selections import consistent, restricted_to
from remat_explorer.solvers.monet.tables import Tables
from remat_explorer.solvers.monet.uniform_choices import lightest, smallest


def least_with_choices(graph: Graph, seconds: float) -> tuple[int, Schedule]:
    """A lower bound on the budget, and a schedule that needs little more, both of the joint problem.

    Args:
        graph: the training graph; operations may have several implementations, or be optional.
        seconds: wall time, at most.

    Returns:
        Bytes that some operation needs for itself whatever is chosen, resident bytes included, and the schedule.

    >>> from remat_explorer.instances import linear
    >>> bound, schedule = least_with_choices(linear(4), 2.0)
    >>> bound, Plan.of(schedule).peak
    (3, 3)
    """
    problem = CondensedChoices.of(graph)
    tables = Tables(problem)
    best = checkpoint_all(graph)
    for rule in (lightest, smallest):
        selection = restricted_to(graph, consistent(graph, rule(tables)))
        lifted = selection.lift(minimum_budget(selection.graph, seconds / 2).schedule)
        if Plan.of(lifted).peak < Plan.of(best).peak:
            best = lifted
    return int(problem.least_memory.max()), best
