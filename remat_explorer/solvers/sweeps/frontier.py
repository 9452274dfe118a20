"""What a sweep found: memory against cost, point by point, and what is proven about it.

Sweep file, version 1: JSON, a list of points, each schedule as what it runs in each stage.

The matrices of a solution file would make this one large: a captured network has thousands of values, a sweep dozens of
points, and S follows from R.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.documents import read_json, write_json
from remat_explorer.entry_checks import (
    Table,
    as_it_is,
    read_document,
    read_entry,
    require_arguments,
    require_list,
    require_text,
)
from remat_explorer.errors import ScheduleError, SolutionError, shown
from remat_explorer.graph import Graph, cost_unit
from remat_explorer.plain_text import one_line
from remat_explorer.plan import Plan
from remat_explorer.quantities import exact_bytes, format_bytes, format_overhead, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import LIMIT, SUMMARY, SolutionSummary, read_seconds
from remat_explorer.solvers.memory.minimum_budget import budget_of
from remat_explorer.solvers.registry import STRATEGIES
from remat_explorer.solvers.solution import Solution, Status, pack_runs, require_unrefuted, unpack_runs
from remat_explorer.solvers.solver_interface import PROVEN, least_cost
from remat_explorer.solvers.sweeps.own_points import (
    OwnPoint,
    assess_schedule,
    best_within,
    bound_at,
    merge_solutions,
    share_best,
    with_bounds,
)

FORMAT, VERSION = "remat-explorer/sweep", 1
_FILE: Table = {"graph": as_it_is, "seconds": read_seconds, "points": require_list}
_POINT: Table = {**SUMMARY, "message": require_text, "runs": as_it_is}


def point_entry(solution: Solution, message: str = "", with_runs: bool = True) -> dict[str, Any]:
    """A point as a JSON object, or what is said of it without its schedule."""
    entry: dict[str, Any] = {
        "strategy": solution.strategy,
        "status": str(solution.status),
        "budget": solution.budget,
        "cost": solution.cost,
        "peak": solution.peak,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "seconds": solution.seconds,
        "solver": solution.solver,
        "message": message,
        **({"limit": solution.limit} if solution.limit else {}),
    }
    if with_runs:
        entry["runs"] = None if solution.schedule is None else pack_runs(solution.schedule)
    return entry


def read_point(entry: Any, where: str, graph: Graph) -> tuple[Solution, str]:
    """The point of such an object, its schedule checked again, and its message."""
    read = read_entry(entry, where, SolutionError, _POINT, LIMIT)
    return _solution(read, where, graph), read["message"]


def _own_points(entries: list[Any], graph: Graph) -> tuple[OwnPoint, ...]:
    points = []
    for i, entry in enumerate(entries):
        where = f"own_points[{i}]"
        read = read_entry(entry, where, SolutionError, {**_POINT, "label": require_text}, LIMIT)
        solution = _solution(read, where, graph)
        if solution.peak != solution.budget:
            raise SolutionError(f"{where}.budget is {exact_bytes(solution.budget)}, which is not its peak")
        points.append(OwnPoint.of(solution, read["label"]))
    return tuple(points)


def _solution(read: dict[str, Any], where: str, graph: Graph) -> Solution:
    claims = SolutionSummary.of(read)
    schedule = None if read["runs"] is None else _checked(read, where, graph)
    solution = Solution.claimed(claims, graph, schedule)
    claims.require_true(solution.cost, solution.peak, where)
    return solution


def require_graph(entry: Any, what: str, graph: Graph) -> None:
    """Refuse a file that is about another graph."""
    read = read_entry(entry, "graph", SolutionError, {"name": as_it_is, "sha256": as_it_is})
    if read["sha256"] != graph.sha256:
        name = shown(read["name"])
        raise SolutionError(f"this {what} is for another graph, {name}, than the one given, {graph.name!r}")


def _checked(point: dict[str, Any], where: str, graph: Graph) -> Schedule:
    unpacked = unpack_runs(point["runs"], graph, SolutionError)
    try:
        return check_schedule(unpacked, point["budget"]).schedule
    except ScheduleError as error:
        raise SolutionError(f"the schedule of {where} is refused: {error}") from None


COLUMNS = ("strategy", "budget", "peak", "cost", "overhead", "gap", "status")


@dataclass(frozen=True, eq=False)
class Frontier:
    """The trade-off curve of one graph.

    Attributes:
        graph: the graph that was scheduled.
        solutions: one per strategy and budget, strategies in the order asked for, budgets ascending.
        messages: why a point has no schedule, or that its search was lost, by (strategy, budget).
        seconds: wall time of the whole sweep.
        own: the schedules of methods that do not ask for the budget, each where it falls, by peak.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solve import solve
    >>> frontier = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (4, 6, 8)))
    >>> [(point.peak, point.cost) for point in frontier.nondominated()]
    [(4, 26.0), (6, 21.0), (8, 19.0)]
    >>> best = frontier.best(7)
    >>> best.cost, best.lower_bound, str(best.status)
    (21.0, 19.0, 'feasible')
    """

    graph: Graph
    solutions: tuple[Solution, ...]
    messages: Mapping[tuple[str, int], str] = field(default_factory=dict)
    seconds: float = 0.0
    own: tuple[OwnPoint, ...] = ()

    @property
    def points(self) -> tuple[Solution, ...]:
        """All that have a schedule, methods' own points among them, by budget, then by cost."""
        points = [s for s in (*self.solutions, *self.own) if s.schedule is not None]
        return tuple(sorted(points, key=lambda s: (s.budget, s.cost)))

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies that were compared, in the order asked for; then those of which only own points are left."""
        return tuple(dict.fromkeys(point.strategy for point in (*self.solutions, *self.own)))

    def own_points(self, strategy: str) -> tuple[OwnPoint, ...]:
        """The curve of a method that does not ask for the budget: its schedules with their labels, by peak.

        Args:
            strategy: one of `strategies`; others than such a method have none.

        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from remat_explorer.instances import linear
        >>> from remat_explorer.solvers.sweeps.sweep_run import sweep
        >>> frontier = sweep(linear(4), [4], ["griewank"], ThreadPoolExecutor(1))
        >>> [(point.peak, point.cost, point.label) for point in frontier.own_points("griewank")]
        [(3, 15.0, '1 slot'), (4, 11.0, '2 slots'), (5, 10.0, '3 slots'), (6, 9.0, '4 slots')]
        """
        require_arguments(Frontier.own_points, locals())
        return tuple(point for point in self.own if point.strategy == strategy)

    def nondominated(self) -> tuple[Solution, ...]:
        """The points that no other beats in peak and cost at once, by peak; of equal ones the first strategy's."""
        chosen: list[Solution] = []
        place = {name: i for i, name in enumerate(self.strategies)}
        ordered = sorted(self.points, key=lambda s: (s.peak, s.cost, place[s.strategy], s.budget))
        for point in ordered:
            if not chosen or (point.cost or 0.0) < (chosen[-1].cost or 0.0):
                chosen.append(point)
        return tuple(chosen)

    def scheduled(self) -> list[tuple[Schedule, int]]:
        """Schedule and peak in bytes of the `nondominated` points."""
        return [(s.schedule, s.peak) for s in self.nondominated() if s.schedule is not None and s.peak is not None]

    def best(self, budget: str | int | float) -> Solution | None:
        """The cheapest schedule within ``budget``, whichever point found it, or None if none of them fits.

        Its lower bound is the best that was proven for this budget or a larger one; a schedule that computes everything
        once, as cheaply as can be, needs no proof.

        Raises:
            QuantityError: if the budget cannot be read.
        """
        require_arguments(Frontier.best, locals())
        budget_bytes = budget_of(self.graph, budget)
        cheapest = best_within(budget_bytes, self.points)
        if cheapest is None or cheapest.schedule is None:
            return None
        bound = bound_at(budget_bytes, self.solutions) if cheapest.schedule.is_frontier_advancing else None
        least = least_cost(self.graph)
        if cheapest.schedule.cost <= least * (1 + PROVEN):
            bound = least
        return assess_schedule(cheapest, budget_bytes, cheapest.schedule, bound)

    def save(self, path: str | Path) -> Path:
        """Write the sweep file atomically."""
        require_arguments(Frontier.save, locals())
        return write_json(path, self.to_document())

    @staticmethod
    def load(path: str | Path, graph: Graph) -> Frontier:
        """Read a sweep file of ``graph``; every schedule in it is checked again.

        Raises:
            SolutionError: if the file is no sweep, belongs to another graph, or says of a schedule what is not so.
        """
        require_arguments(Frontier.load, locals())
        document = read_json(path, SolutionError)
        try:
            return Frontier.from_document(document, graph)
        except SolutionError as error:
            raise SolutionError(f"{one_line(str(path))}: {error}") from None

    def to_document(self, with_runs: bool = True) -> dict[str, Any]:
        """The sweep file as a JSON object, version 1, or what it says without the schedules.

        >>> from remat_explorer.instances import linear
        >>> Frontier(linear(2), ()).to_document()["points"]
        []
        """
        points = [point_entry(s, self.messages.get((s.strategy, s.budget), ""), with_runs) for s in self.solutions]
        own_points = [point_entry(point, "", with_runs) | {"label": point.label} for point in self.own]
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": {"name": self.graph.name, "sha256": self.graph.sha256},
            "seconds": self.seconds,
            "points": points,
        } | ({"own_points": own_points} if own_points else {})

    @staticmethod
    def from_document(document: Any, graph: Graph) -> Frontier:
        """The sweep of a parsed sweep file, every schedule checked again.

        Raises:
            SolutionError: as `load`.
        """
        read = read_document(document, FORMAT, VERSION, SolutionError, _FILE, {"own_points": require_list})
        require_graph(read["graph"], "sweep", graph)
        solutions: list[Solution] = []
        messages: dict[tuple[str, int], str] = {}
        for i, point in enumerate(read["points"]):
            solution, message = read_point(point, f"points[{i}]", graph)
            solutions.append(solution)
            if message:
                messages[solution.strategy, solution.budget] = message
        own = _own_points(read.get("own_points", []), graph)
        claimed = [(f"points[{i}]", solution) for i, solution in enumerate(solutions)]
        require_unrefuted(graph, claimed, [point.schedule for point in own if point.schedule is not None])
        return Frontier(graph, tuple(solutions), messages, read["seconds"], own)

    def __str__(self) -> str:
        rows = [COLUMNS, *map(_row, self.solutions)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = [f"{row[0]:<{widths[0]}}", *(f"{row[i]:>{widths[i]}}" for i in range(1, 6)), row[6]]
            lines.append("  ".join(cells).rstrip())
        curves = [_describe(own) for own in map(self.own_points, self.strategies) if own]
        return "\n".join([*lines, *curves, *map(one_line, dict.fromkeys(self.messages.values()))])


def _describe(own: Sequence[OwnPoint]) -> str:
    """A method's own curve in one line."""
    least, most = format_bytes(own[0].budget), format_bytes(own[-1].budget)
    name, several = one_line(own[0].strategy), "s" if len(own) > 1 else ""
    return f"{name} by itself: {len(own)} schedule{several}, peaks {least} to {most}"


def _row(solution: Solution) -> tuple[str, ...]:
    has_schedule = solution.schedule is not None and solution.peak is not None
    return (
        one_line(solution.strategy),
        format_bytes(solution.budget),
        format_bytes(solution.peak) if has_schedule and solution.peak is not None else "",
        f"{solution.cost:.6g}{cost_unit(solution.graph)}" if solution.cost is not None else "",
        format_overhead(solution.overhead) if solution.overhead is not None else "",
        format_share(solution.gap) if solution.gap is not None else "",
        "proven best" if solution.status is Status.OPTIMAL else str(solution.status),
    )


def extend_frontier(
    graph: Graph, frontier: Frontier | None, solutions: Iterable[Solution], own: Iterable[OwnPoint] = ()
) -> Frontier:
    """A trade-off curve with more points; better schedules and higher bounds replace what was known.

    Args:
        frontier: what is known of it, or None.
        solutions: checked, of any strategies and budgets.
        own: schedules of methods that do not ask for the budget; they replace earlier ones of the same methods.

    Returns:
        All points, each with the best that any can give it; the plans that `Frontier.best` looks at are made.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solve import solve
    >>> small = extend_frontier(linear(8), None, [solve(linear(8), 4)])
    >>> both = extend_frontier(linear(8), small, [solve(linear(8), 6)])
    >>> [(point.budget, point.cost) for point in both.points], both.best(7).cost
    ([(4, 26.0), (6, 21.0)], 21.0)
    """
    best = {} if frontier is None else {(s.strategy, s.budget): s for s in frontier.solutions}
    for new in solutions:
        old = best.get((new.strategy, new.budget))
        if old is not None and old is not new:
            # the points of a sweep come again and again, each time with all the seconds that were spent on them
            seconds = max(old.seconds, new.seconds)
            best[new.strategy, new.budget] = dataclasses.replace(merge_solutions(old, new), seconds=seconds)
        elif new.schedule is not None or new.lower_bound is not None or new.status is Status.INFEASIBLE:
            best[new.strategy, new.budget] = new
    place = {name: i for i, name in enumerate(STRATEGIES)}
    for solution in best.values():
        _prime(solution)
    ordered = sorted(best.values(), key=lambda s: (place.get(s.strategy, len(place)), s.strategy, s.budget))
    points = share_best(ordered)
    fresh = list(own)
    anew = {point.strategy for point in fresh}
    kept = [] if frontier is None else [point for point in frontier.own if point.strategy not in anew]
    seconds = max((s.seconds for s in points), default=0.0)
    made = Frontier(graph, tuple(points), {}, seconds, tuple(with_bounds([*kept, *fresh], points)))
    for point in (*made.solutions, *made.nondominated()):
        _prime(point)
    return made


def _prime(point: Solution) -> None:
    """Make the plan of a point, unless it was made before, so that it need not be made when the point is shown."""
    if point.schedule is not None:
        Plan.peak_of(point.schedule)
