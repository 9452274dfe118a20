"""The trade-off curve grows: points of sweeps and of single solves join what is known of a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from remat_explorer.explorer.state.state import State
from remat_explorer.graph import Graph
from remat_explorer.solution import Solution
from remat_explorer.solvers.sweeps.frontier import extend_frontier
from remat_explorer.solvers.sweeps.own_points import OwnPoint


def join(
    state: State,
    graph: Graph,
    solutions: Iterable[Solution],
    own: Iterable[OwnPoint] = (),
    kinds: Collection[str] = (),
) -> None:
    """Let points join the state's trade-off curve, from any thread; those of a graph that was left are dropped.

    Args:
        state: whose curve grows; on a graph with choices it is that of the kinds chosen now.
        graph: of the points.
        solutions: as for `joined`.
        own: as for `joined`; these run default implementations.
        kinds: of implementations that the points' strategies were allowed to choose.
    """
    fresh, others = list(solutions), list(own)
    if graph.has_choices and state.graph is graph:
        state.answers.add(kinds, fresh)
    while state.graph is graph:
        before, chosen = state.frontier, state.kinds
        if graph.has_choices:  # anew: what is true of these kinds may not be of those before
            points = [*(before.own if before is not None else ()), *others]
            latest = {(point.strategy, point.budget, point.cost): point for point in points}
            after = extend_frontier(graph, None, state.answers.usable(chosen), latest.values())
        else:
            after = extend_frontier(graph, before, fresh, others)  # takes milliseconds, so not under the lock
        with state.lock:
            if state.graph is graph and state.frontier is before and state.kinds == chosen:
                state.frontier = after
                return
