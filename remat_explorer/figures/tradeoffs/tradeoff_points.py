"""What the trade-off figure shows: the points of each strategy, the line through the best, and what is proven."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers import Frontier
from remat_explorer.solvers.sweeps.own_points import OwnPoint
from remat_explorer.solvers.sweeps.sharing import bound_at, proves_infeasible


def points_of(frontier: Frontier, strategy: str, best_only: bool = False) -> tuple[Solution, ...]:
    """The schedules of a strategy, its own points among them, by peak; each peak and cost once.

    A schedule that is the answer for several budgets is shown for the smallest of them, for which most is proven. With
    ``best_only`` those that another schedule beats or equals, of whichever strategy, are left out.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> frontier = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (4, 5, 10, 12)))
    >>> [(point.budget, point.peak, point.cost) for point in points_of(frontier, "optimal")]
    [(4, 4, 26.0), (5, 5, 22.0), (10, 10, 17.0)]
    """
    best = {(point.strategy, point.peak, point.cost) for point in frontier.nondominated()} if best_only else None
    chosen: dict[tuple[int, float], Solution] = {}
    for point in sorted(frontier.points, key=lambda point: (point.budget, not isinstance(point, OwnPoint))):
        if point.strategy != strategy or point.peak is None or point.cost is None:
            continue
        if best is None or (strategy, point.peak, point.cost) in best:
            chosen.setdefault((point.peak, point.cost), point)
    return tuple(chosen[place] for place in sorted(chosen))


def overheads(points: Iterable[Solution]) -> np.ndarray:
    """Overhead of each point over computing everything once, in %, float64."""
    return np.array([100 * ((point.overhead or 1.0) - 1) for point in points])


def bound_steps(frontier: Frontier) -> tuple[np.ndarray, np.ndarray]:
    """Below which overhead no schedule with stages exists, by budget.

    Returns:
        Budgets in bytes, ascending, and overheads in %: up to budgets[i] and from budgets[i - 1] on, nothing costs less
        than overheads[i]. Both are empty where nothing is proven.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> budgets, bounds = bound_steps(Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (4, 6))))
    >>> budgets.tolist(), bounds.round(1).tolist()
    ([4, 6], [52.9, 23.5])
    """
    total, steps = frontier.graph.total_cost, []
    for budget in sorted({solution.budget for solution in frontier.solutions}):
        bound = bound_at(budget, frontier.solutions)
        if bound is not None and total:
            steps.append((budget, 100 * (bound / total - 1)))
    budgets, bounds = zip(*steps, strict=True) if steps else ((), ())
    return np.array(budgets, dtype=np.int64), np.array(bounds, dtype=np.float64)


def largest_infeasible(frontier: Frontier) -> int | None:
    """The largest budget in bytes within which no schedule with stages exists, or None where none is known."""
    return max((solution.budget for solution in frontier.solutions if proves_infeasible(solution)), default=None)


def describe(point: Solution) -> str:
    """What the hover says of a point, as HTML of a few lines.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> describe(solve(linear(8), 4))
    '<b>optimal</b>, proven<br>budget 4 B<br>predicted peak 4 B<br>overhead +52.9 %<br>gap 0 %'
    """
    proven = point.status is Status.OPTIMAL
    label = point.label if isinstance(point, OwnPoint) else ""
    return "<br>".join(
        [
            f"<b>{point.strategy}</b>{f' ({label})' if label else ''}, {'proven' if proven else point.status}",
            f"budget {format_bytes(point.budget)}",
            f"predicted peak {format_bytes(point.peak or 0)}",
            f"overhead {format_overhead(point.overhead or 1.0)}",
            "no bound proven" if point.gap is None else f"gap {format_share(point.gap)}",
        ]
    )


def symbols(points: Sequence[Solution], shape: str) -> list[str]:
    """The shape for each point: filled where it is proven optimal, open otherwise."""
    return [shape if point.status is Status.OPTIMAL else f"{shape}-open" for point in points]
