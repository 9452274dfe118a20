"""The methods of MONeT's evaluation, what each says of a budget, and what it knew when.

Checkmate-D and Checkmate-O are Checkmate on the default implementations, and on the fastest one of each operation that
reads and writes the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph
from remat_explorer.solvers import Progress, Solution, checkpoint_all_peak, default_selection, fastest_selection

CLOSE = (0.05, 0.01)  # of the best schedule, for solver times


@dataclass(frozen=True, eq=False)
class Way:
    """A method with the graph that it is given.

    Attributes:
        name: as in MONeT's evaluation.
        graph: what it schedules.
        strategy: key of `STRATEGIES`.
        options: of the strategy.
    """

    name: str
    graph: Graph
    strategy: str
    options: dict[str, Any] = field(default_factory=dict)

    def solve(self, budget: int, seconds: float, **more: Any) -> Solution | str:
        """The solution, or why there is none."""
        try:
            return rx.solve(self.graph, budget, self.strategy, seconds, **self.options, **more)
        except RematError as error:
            return str(error)


def ways_of(graph: Graph) -> dict[str, Way]:
    """The methods of the evaluation; without Checkmate-O where the default implementations are the fastest ones."""
    default, fastest = default_selection(graph), fastest_selection(graph)
    ways = (
        Way("checkmate-d", default.graph, "optimal"),
        *([Way("checkmate-o", fastest.graph, "optimal")] if fastest.codes != default.codes else []),
        Way("checkpoint-sequential", default.graph, "checkpoint-sequential"),
        Way("monet-paper", graph, "monet-paper"),
        Way("monet, exact", graph, "monet", {"implementations": "exact"}),
        Way("monet", graph, "monet"),
    )
    return {way.name: way for way in ways}


@dataclass
class Course:
    """What a solver knew when, in seconds since its start."""

    costs: list[tuple[float, float]] = field(default_factory=list)
    bounds: list[tuple[float, float]] = field(default_factory=list)
    word: str = ""

    @property
    def cost(self) -> float:
        """Of the best schedule."""
        return min((cost for _, cost in self.costs), default=math.inf)

    def hear(self, progress: Progress) -> None:
        if progress.cost is not None:
            self.costs.append((progress.seconds, progress.cost))
        if progress.lower_bound is not None:
            self.bounds.append((progress.seconds, progress.lower_bound))

    def end(self, found: Solution | str) -> None:
        """Take what the solution says beyond the last report."""
        if isinstance(found, str):
            self.word = found
            return
        self.word = str(found.status)
        self.costs += [(found.seconds, found.cost)] if found.cost is not None else []
        self.bounds += [(found.seconds, found.lower_bound)] if found.lower_bound is not None else []

    def milestones(self, best: float) -> dict[str, Any]:
        """When the schedule, and what is proven of it, came within each distance; None for never."""
        times: dict[str, Any] = {"status": self.word, "cost": None if math.isinf(self.cost) else self.cost}
        for close in CLOSE:
            near = [at for at, cost in self.costs if cost <= best * (1 + close)]
            times[f"within {close:g}"] = min(near, default=None)
            times[f"proven {close:g}"] = self.proven(close)
        return times

    def proven(self, close: float) -> float | None:
        """When it was proven that no schedule costs less by more than a share; None for never."""
        pairs = ((max(at, when), cost, bound) for at, cost in self.costs for when, bound in self.bounds)
        return min((at for at, cost, bound in pairs if cost - bound <= close * cost), default=None)


def entry_of(found: Solution | str, cost: float) -> dict[str, Any]:
    """What the file says of a solution."""
    if isinstance(found, str):
        return {"status": "refused", "word": found, "overhead": None}
    return {
        "status": str(found.status),
        "overhead": None if found.cost is None else found.cost / cost - 1,
        "peak": found.peak,
        "gap": found.gap,
        "seconds": found.seconds,
    }


def peak_beside(graph: Graph) -> int:
    """The peak of keeping everything where no output takes the place of an input, as PyTorch's autograd has it."""
    plain = default_selection(graph).graph
    operations = (replace(o, implementations=(replace(o.default, overwrites=None),)) for o in plain.operations)
    return checkpoint_all_peak(replace(plain, operations=tuple(operations)))
