"""A trade-off curve grows: better schedules and higher bounds replace what was known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.strategies.registry import STRATEGIES
from remat_explorer.solvers.sweeps.frontier import Frontier
from remat_explorer.solvers.sweeps.own_points import OwnPoint, with_bounds
from remat_explorer.solvers.sweeps.sharing import merged, shared


def joined(
    graph: Graph, frontier: Frontier | None, solutions: Iterable[Solution], own: Iterable[OwnPoint] = ()
) -> Frontier:
    """A trade-off curve with more points; better schedules and higher bounds replace what was known.

    Args:
        graph: the training graph.
        frontier: what is known of it, or None.
        solutions: checked, of any strategies and budgets.
        own: schedules of methods that do not ask for the budget; they replace earlier ones of the same methods.

    Returns:
        All points, each with the best that any can give it; the plans that `Frontier.best` looks at are made.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solve import solve
    >>> small = joined(linear(8), None, [solve(linear(8), 4)])
    >>> both = joined(linear(8), small, [solve(linear(8), 6)])
    >>> [(point.budget, point.cost) for point in both.points], both.best(7).cost
    ([(4, 26.0), (6, 21.0)], 21.0)
    """
    best = {} if frontier is None else {(s.strategy, s.budget): s for s in frontier.solutions}
    for new in solutions:
        old = best.get((new.strategy, new.budget))
        if old is not None and old is not new:
            best[new.strategy, new.budget] = _better(old, new)
        elif new.schedule is not None or new.lower_bound is not None or new.status is Status.INFEASIBLE:
            best[new.strategy, new.budget] = new
    place = {name: i for i, name in enumerate(STRATEGIES)}
    for solution in best.values():
        _prime(solution)
    ordered = sorted(best.values(), key=lambda s: (place.get(s.strategy, len(place)), s.strategy, s.budget))
    points = shared(ordered)
    fresh = list(own)
    anew = {point.strategy for point in fresh}
    kept = [] if frontier is None else [point for point in frontier.own if point.strategy not in anew]
    seconds = max((s.seconds for s in points), default=0.0)
    made = Frontier(graph, tuple(points), {}, seconds, tuple(with_bounds([*kept, *fresh], points)))
    for point in (*made.solutions, *made.nondominated()):
        _prime(point)
    return made


def _better(old: Solution, new: Solution) -> Solution:
    """What two answers to the same question say together."""
    # the points of a sweep come again and again, each time with all the seconds that were spent on them
    return dataclasses.replace(merged(old, new), seconds=max(old.seconds, new.seconds))


def _prime(point: Solution) -> None:
    """Make the plan of a point, unless it was made before, so that it need not be made when the point is shown."""
    if point.schedule is not None:
        Plan.peak_of(point.schedule)
