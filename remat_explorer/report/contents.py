"""What a report is about: a solution, where its graph comes from, and what else is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from remat_explorer.graph import Graph
from remat_explorer.solution import Solution
from remat_explorer.solvers import Frontier, MinimumBudget, checkpoint_all_peak, minimum_budget
from remat_explorer.solvers.sweeps.joining import joined

if TYPE_CHECKING:
    from remat_explorer.runtime.measurement import Measurement


@dataclass(frozen=True)
class Origin:
    """Where a graph comes from, as far as that is known, for the set-up and the code of a report.

    Attributes:
        kind: a model of the zoo, a function of a file, a module in a notebook, or a graph without a model.
        model: its name in the zoo, ``file.py:function``, the module's class, or the graph's name.
        batch, image, sequence: sizes of the inputs, where they are known; an image is a side or (height, width).
        device: where costs were measured and the schedule executed, or "".
        costs: where costs come from, in words, or "".
    """

    kind: Literal["zoo", "file", "module", "graph"] = "graph"
    model: str = ""
    batch: int | None = None
    image: int | tuple[int, int] | None = None
    sequence: int | None = None
    device: str = ""
    costs: str = ""


@dataclass(frozen=True, eq=False)
class ReportContents:
    """Everything that the sections of a report are written from.

    Attributes:
        solution: what the report is about, with or without a schedule.
        measurement: of that solution, executed.
        frontier: the trade-off curve of its graph, as a sweep gave it.
        history: steps of the solve, each with seconds, cost and lower_bound.
        other: a solution to compare with.
        origin: where the graph comes from.
    """

    solution: Solution
    measurement: Measurement | None = None
    frontier: Frontier | None = None
    history: Sequence[Any] = ()
    other: Solution | None = None
    origin: Origin = Origin()

    @property
    def graph(self) -> Graph:
        """The graph that was scheduled."""
        return self.solution.graph

    @property
    def name(self) -> str:
        """The model's name, for titles and file names."""
        return self.graph.name

    @cached_property
    def curve(self) -> Frontier | None:
        """The trade-off curve with the solution on it, and with what its bound proves for the other points.

        A solution of a graph with choices may be that of some implementations only, and joins no curve of others.
        """
        frontier, solution = self.frontier, self.solution
        if frontier is None or frontier.graph is not solution.graph or solution.graph.has_choices:
            return frontier
        return joined(solution.graph, frontier, [solution])

    @cached_property
    def keep_all(self) -> int:
        """Peak of the schedule that keeps everything, bytes."""
        return checkpoint_all_peak(self.graph)

    @cached_property
    def smallest(self) -> MinimumBudget:
        """Between which budgets the graph starts to be feasible; some seconds of work for large graphs."""
        return minimum_budget(self.graph)

    def file_name(self, what: str) -> str:
        """A name for a file that is taken out of the report.

        >>> from remat_explorer.instances import linear
        >>> from remat_explorer.solvers import solve
        >>> ReportContents(solve(linear(8), 4)).file_name("graph")
        'linear8-graph.json'
        """
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in self.name)
        return f"{plain.strip('.') or 'model'}-{what}.json"
