"""The largest image side whose training step fits into a memory, at a limited overhead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from remat_explorer.checker import CheckedSchedule, check_schedule
from remat_explorer.entry_checks import Count, Seconds, Threads, require_arguments
from remat_explorer.errors import QuantityError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_overhead, parse_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.batches.batch_bound import ONE_EXTRA_FORWARD, OverheadLimit, allowed_recomputation
from remat_explorer.solvers.bounds.few_moments import MomentsBound, few_moments_bound, guides, integral_moments_bound
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.milp import backend
from remat_explorer.solvers.search.planner import guided_schedule, load_search, plan_schedule
from remat_explorer.solvers.solver_interface import Limits, Progress

EXACT = 1e-9  # relative: what adding up costs in another order may change
CAUTION = 1e-6  # relative, on a bound that a solver computed
PLANNING, RELAXING = 0.3, 0.5  # shares of the time that is left, at most


@dataclass(frozen=True)
class Fit:
    """An answer.

    Attributes:
        answer: "feasible" with a checked schedule, "infeasible" with a proof, or "unknown".
        checked: the schedule, as the checker found it; None unless feasible.
        cost_limit: that the schedule keeps to, infinity for none.
    """

    answer: Literal["feasible", "infeasible", "unknown"]
    checked: CheckedSchedule | None
    cost_limit: float


def decide_fit(graph: Graph, memory: int, overhead_limit: OverheadLimit, limits: Limits) -> Fit:
    """Decide for one graph."""
    limit = graph.total_cost + allowed_recomputation(graph.costs, graph.is_backward, overhead_limit)
    condensed = CondensedGraph.of(graph)
    impossible, unknown = Fit("infeasible", None, limit), Fit("unknown", None, limit)

    def is_cheap(schedule: Schedule | None) -> bool:
        return schedule is not None and schedule.cost <= limit * (1 + EXACT)

    if condensed.operation_bytes.max() > memory:
        return impossible
    schedule, relaxed = plan_schedule(condensed, memory, PLANNING * limits.left, limits.cancelled), MomentsBound(0.0)
    for integral in (False, True):
        if is_cheap(schedule):
            break
        if limits.over:
            return unknown
        if integral:
            relaxed = integral_moments_bound(condensed, memory, relaxed, limits)
        else:
            relaxed = few_moments_bound(condensed, memory, limits.share(RELAXING))
        if math.isinf(relaxed.bound) or relaxed.bound > limit * (1 + CAUTION):
            return impossible
        schedule = guided_schedule(condensed, memory, guides(condensed, relaxed), lambda: limits.over)
    if schedule is None or not is_cheap(schedule):
        return unknown
    return Fit("feasible", check_schedule(schedule.on(graph), memory), limit)


EACH = 0.2  # share of the time that is left for one side, at most


@dataclass(frozen=True)
class MaxImage:
    """The largest side found, its schedule, and what was answered on the way.

    Attributes:
        side: pixels; 0 if no schedule is known for any side.
        upper_bound: the next smaller side to one that is proven not to fit, 0 if that is the smallest; None if
            nothing was proven.
        schedule: for the graph at ``side``, checked; None if none is known.
        memory: bytes that were given, resident bytes included.
        cost: of the schedule, or None.
        cost_limit: that the schedule keeps to, infinity for none; None without a schedule.
        peak: bytes of the schedule's plan, or None.
        answers: for each side that was looked at, ascending: "feasible", "infeasible" (proven) or "unknown".
        seconds: wall time.
        solver: the back end of the bounds.
    """

    side: int
    upper_bound: int | None
    schedule: Schedule | None
    memory: int
    cost: float | None
    cost_limit: float | None
    peak: int | None
    answers: dict[int, str]
    seconds: float
    solver: str = "highs"

    @property
    def optimal(self) -> bool:
        """Whether the next side is proven not to fit."""
        return self.side == self.upper_bound

    def to_document(self) -> dict[str, Any]:
        """Everything but the schedule, for JSON."""
        names = ("side", "upper_bound", "optimal", "memory", "cost", "peak", "seconds", "solver")
        limit = None if self.cost_limit is None or self.cost_limit == float("inf") else self.cost_limit
        answers = {str(side): answer for side, answer in self.answers.items()}
        return {name: getattr(self, name) for name in names} | {"cost_limit": limit, "answers": answers}

    def __str__(self) -> str:
        if self.upper_bound == 0:
            return f"not even side {min(self.answers)} fits into {format_bytes(self.memory)}"
        if self.upper_bound is None:
            proof = "larger ones may fit"
        else:
            proof = "proven to be the largest" if self.optimal else f"at most {self.upper_bound} can fit"
        if self.schedule is None or self.peak is None:
            return f"no schedule found for {format_bytes(self.memory)}; {proof}"
        overhead = format_overhead(self.schedule.overhead)
        return (
            f"side {self.side}, {proof}; peak {format_bytes(self.peak)} of {format_bytes(self.memory)}, "
            f"overhead {overhead}"
        )


def max_image(
    capture: Callable[[int], Graph],
    memory: str | int | float,
    overhead_limit: OverheadLimit = ONE_EXTRA_FORWARD,
    sides: Sequence[Count] = range(32, 8193, 32),
    time_limit: Seconds = 120.0,
    solver: str = "highs",
    threads: Threads = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> MaxImage:
    """The largest of some image sides that some schedule trains within ``memory`` at a limited overhead.

    Sides are doubled until one does not fit, then bisected. Each is answered by a schedule, by a proof that there is
    none, or not at all; a side that is proven not to fit is taken to rule out every larger one, as it does wherever
    memory and cost grow with the image.

    Args:
        capture: from a side to its graph, such as ``lambda side: rx.models.load("vgg16", batch=8, image=side).graph``.
        memory: bytes, or "16 GB" (10 ** 9 bytes each) or "16 GiB"; everything counts, parameters included.
        overhead_limit: as for `max_batch`.
        sides: ascending; None but these are looked at.
        time_limit: seconds of wall time. No capture is interrupted, and none is begun that would end too late, by the
            shortest one so far.
        solver: a key of `BACKENDS`.
        threads: threads of the solver.
        on_progress: called in this thread with each `Progress`.
        cancelled: asked between sides; once True the best so far is returned.

    Raises:
        QuantityError: if the memory or the limit cannot be read, or there is no side to look at.
        UnknownNameError: if there is no such solver.
        SolverError: if the solver fails, or a graph has operations with several implementations.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.batches.batch_scaling import scale_batch
    >>> found = max_image(lambda side: scale_batch(linear(8), side * side), memory=2000, sides=range(1, 40))
    >>> found.side, found.upper_bound, found.answers[23]
    (20, 22, 'infeasible')
    """
    require_arguments(max_image, locals())
    if not sides:
        raise QuantityError(f"{sides!r} names no image side; give ascending sides such as range(32, 8193, 32)")
    backend(solver)
    load_search(on_progress)
    limits = Limits(time_limit, solver, threads, on_progress, cancelled)
    return _SideSearch(capture, parse_bytes(memory), overhead_limit, sides, limits).run()


class _SideSearch:
    """Answers so far, by the place of a side in ``sides``."""

    def __init__(
        self,
        capture: Callable[[int], Graph],
        memory: int,
        overhead_limit: OverheadLimit,
        sides: Sequence[int],
        limits: Limits,
    ) -> None:
        self.capture, self.memory, self.overhead_limit = capture, memory, overhead_limit
        self.sides, self.limits = sides, limits
        self.fits: dict[int, Fit] = {}
        self.best = -1
        self.impossible = len(sides)
        self.seconds = 0.0  # of the shortest capture: later ones take no less, but the first one loads modules

    def run(self) -> MaxImage:
        end = self._double()
        self._bisect(end, lambda place: self._answer(place) == "feasible")
        self._bisect(self.impossible, lambda place: self._answer(place) != "infeasible")  # for the bound
        largest = self.fits[self.best] if self.best >= 0 else None
        checked = None if largest is None else largest.checked
        proven = self.impossible < len(self.sides)
        return MaxImage(
            self.sides[self.best] if self.best >= 0 else 0,
            (self.sides[self.impossible - 1] if self.impossible else 0) if proven else None,
            None if checked is None else checked.schedule,
            self.memory,
            None if checked is None else checked.cost,
            None if largest is None else largest.cost_limit,
            None if checked is None else checked.peak,
            {self.sides[place]: self.fits[place].answer for place in sorted(self.fits)},
            self.limits.elapsed,
            self.limits.solver,
        )

    @property
    def _over(self) -> bool:
        """Whether there is no time for another side."""
        return self.limits.over or self.limits.left < self.seconds

    def _double(self) -> int:
        """The first place tried that did not fit, or the number of sides."""
        place, ahead = 0, 1
        while place < len(self.sides):
            if self._over or self._answer(place) != "feasible":
                return place
            place, ahead = min(place + ahead, max(len(self.sides) - 1, place + 1)), 2 * ahead
        return place

    def _bisect(self, high: int, upward: Callable[[int], bool]) -> None:
        """From the best place to ``high``, which are answered: go up where ``upward`` says so, else down."""
        low = self.best
        while high - low > 1 and not self._over:
            middle = (low + high) // 2
            if upward(middle):
                low = max(middle, self.best)
            else:
                high = middle

    def _answer(self, place: int) -> str:
        if place not in self.fits:
            side = self.sides[place]
            self.limits.tell(f"capturing side {side}")
            begun = self.limits.elapsed
            graph = self.capture(side)
            took = self.limits.elapsed - begun
            self.seconds = min(self.seconds, took) if self.fits else took
            self.limits.tell(f"deciding side {side}")
            self.fits[place] = answered = decide_fit(graph, self.memory, self.overhead_limit, self.limits.share(EACH))
            if answered.answer == "feasible":
                self.best = max(self.best, place)
            elif answered.answer == "infeasible":
                self.impossible = min(self.impossible, place)
        return self.fits[place].answer
