"""Points of a sweep that were solved before, and points kept for the next time, in the cache of `solve`.

A point counts as a search with the seconds that the sweep gives to a point on average. What is kept of a strategy is
what it proved itself: a bound that another strategy lent is no answer of this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remat_explorer.graph import Graph
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.cache import Question, load_solution, store_solution
from remat_explorer.solvers.sweeps.sharing import shared

Point = tuple[str, int]  # strategy and budget in bytes


class KeptPoints:
    """What the cache has and gets of a sweep.

    Args:
        graph: the training graph.
        solver: the back end.
        time_limit: seconds for each point, on average.
        threads: of the back end.

    Attributes:
        taken: points that were found in the cache.

    >>> from remat_explorer.instances import linear
    >>> KeptPoints(linear(8), "highs", 1.0, 1).load("guessing", 4) is None
    True
    """

    def __init__(self, graph: Graph, solver: str, time_limit: float, threads: int) -> None:
        self.graph, self.solver, self.time_limit, self.threads = graph, solver, time_limit, threads
        self.taken: set[Point] = set()

    def load(self, strategy: str, budget: int) -> Solution | None:
        """A kept answer that is as good as a new one, checked again, or None."""
        solution = load_solution(self._question(strategy, budget))
        if solution is not None:
            self.taken.add((strategy, budget))
        return solution

    def store(self, solutions: Sequence[Solution], lost: Iterable[Point], ended: bool) -> list[str]:
        """Keep the points that are new; returns sentences on why some could not be kept.

        Args:
            solutions: each with what was found for it alone.
            lost: points whose search had no result; nothing but a proof is kept of them.
            ended: whether the sweep had all of its time; else a point counts with the time it had.
        """
        problems: dict[str, None] = {}
        gone = set(lost)
        for name in dict.fromkeys(solution.strategy for solution in solutions):
            for solution in shared([s for s in solutions if s.strategy == name]):
                point = (name, solution.budget)
                proven = solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
                if point in self.taken or (point in gone and not proven):
                    continue
                question = self._question(*point)
                question = question if ended or proven else question.within(solution.seconds)
                problems[store_solution(question, solution)] = None
        return [problem for problem in problems if problem]

    def _question(self, strategy: str, budget: int) -> Question:
        return Question(self.graph, budget, strategy, self.solver, self.time_limit, self.threads)
