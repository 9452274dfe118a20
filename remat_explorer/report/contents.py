"""What a report is about (a solution, where its graph comes from, what else is known), and a figure in its page.

A figure is drawn for light ground, with what is different on dark ground.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from remat_explorer.figures import Theme
from remat_explorer.graph import Graph
from remat_explorer.report.html import data
from remat_explorer.solvers import (
    Frontier,
    MinimumBudget,
    Solution,
    checkpoint_all_peak,
    extend_frontier,
    minimum_budget,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from remat_explorer.runtime import Measurement


Path = tuple[str | int, ...]


def drawing(identity: str, draw: Callable[[Theme], Figure], label: str, broad: bool = False) -> str:
    """A place for a figure, and its data in both themes.

    Args:
        identity: of the place, unique in the page.
        draw: makes the figure for a theme.
        label: what the figure shows, for those who do not see it.
        broad: whether it needs more width than a phone has, and is moved under its frame there.
    """
    light, dark = (json.loads(str(_without_template(draw(theme)).to_json())) for theme in ("light", "dark"))
    entry = {"light": light, "dark": [[list(path), value] for path, value in differences(light, dark)]}
    height = light["layout"].get("height", 400)
    said = escape(label)
    place = f'<div class="figure" id="{identity}" role="group" aria-label="{said}" style="min-height:{height}px"></div>'
    place = f'<div class="frame{" broad" if broad else ""}">{place}</div>'
    return place + data(f"{identity}-data", entry)


def differences(old: Any, new: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Where two JSON values differ: paths into the old one, and what stands there in the new one.

    >>> list(differences({"a": [1, {"b": 2}], "c": 3}, {"a": [1, {"b": 5}], "c": 3}))
    [(('a', 1, 'b'), 5)]
    """
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from differences(old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*path, i))
    elif old != new:
        yield path, new


def _without_template(figure: Figure) -> Figure:
    """plotly's standard template is several kilobytes in every figure, and the figures set what they show."""
    figure.update_layout(template="none")
    return figure


@runtime_checkable
class Step(Protocol):
    """A step of a solve: seconds since it began, cost of the best schedule, lower bound; None where unknown."""

    @property
    def seconds(self) -> float: ...

    @property
    def cost(self) -> float | None: ...

    @property
    def lower_bound(self) -> float | None: ...


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
    history: Sequence[Step] = ()
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
        return extend_frontier(solution.graph, frontier, [solution])

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
