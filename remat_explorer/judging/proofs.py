"""What is proven of a graph at the peaks of others' schedules: our schedule there, and a lower bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from remat_explorer.graph import Graph
from remat_explorer.judging.contenders import OURS
from remat_explorer.judging.verdict import Verdict
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers import sweep
from remat_explorer.solvers.sweeps.frontier import Frontier
from remat_explorer.solvers.sweeps.own_points import bound_at


class Proofs:
    """Our answers of one graph, each budget solved once.

    A schedule within a budget fits every larger one, and a bound at a budget holds for every smaller one: both are
    used, never the other way round.

    Args:
        graph: the training graph.
        seconds: of our search at each peak, on average.
        cancelled: asked between steps.
    """

    def __init__(self, graph: Graph, seconds: float, cancelled: Callable[[], bool] | None = None) -> None:
        self.graph = graph
        self._seconds, self._cancelled = seconds, cancelled
        self._known: dict[int, Solution] = {}

    def learn(self, peaks: Iterable[int]) -> None:
        """Solve for the peaks that are not known yet, in this process, with one linear program for all."""
        new = sorted(set(peaks) - self._known.keys())
        if not new:
            return
        with ThreadPoolExecutor(1) as thread:
            frontier = sweep(
                self.graph, new, OURS, thread, time_limit=self._seconds, workers=1, cancelled=self._cancelled
            )
        self._known |= {solution.budget: solution for solution in frontier.solutions}

    def beside(self, verdict: Verdict) -> Verdict:
        """A verdict with what is proven at its peak.

        >>> from remat_explorer.instances import linear
        >>> proofs = Proofs(linear(8), seconds=5.0)
        >>> found = proofs.beside(Verdict("linear8", "by hand", 6, 17.0, cost=22.0, peak=6))
        >>> found.ours, found.bound, found.status, round(found.at_most, 3)
        (21.0, 21.0, 'optimal', 0.048)
        """
        if verdict.peak is None:
            return verdict
        self.learn([verdict.peak])
        frontier = Frontier(self.graph, tuple(self._known[budget] for budget in sorted(self._known)))
        ours = frontier.best(verdict.peak)
        if ours is None:
            here = self._known.get(verdict.peak)
            status = str(here.status) if here is not None else str(Status.UNKNOWN)
            return replace(verdict, bound=bound_at(verdict.peak, frontier.solutions), status=status)
        return replace(verdict, bound=ours.lower_bound, ours=ours.cost, ours_peak=ours.peak, status=str(ours.status))
