"""The trade-off: overhead against peak memory, for every strategy, with what is proven about both.

A strategy always has the same shape and colour, whatever it is compared with. Traces are dictionaries, as plotly takes
them, so that a live figure can compare them. What is on the page decides what the axes show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.solvers import (
    STRATEGIES,
    Frontier,
    OwnPoint,
    Solution,
    Status,
    bound_at,
    method_of,
    rules_out_budget,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


LEAST = 2.0  # % of overhead that there is always room for
NEARLY = 1.25  # so far beyond it is drawn all the same where that shows every point
MANY = 4  # points from which on one alone, the dearest, does not say where the axis ends
BELOW = 0.25  # of the axis above 0 that there may be below it, for what was measured


class PlacedPoint(Protocol):
    """Something with a place in the figure: a solution, or what was measured of one."""

    @property
    def peak(self) -> int | None:
        """Bytes, resident bytes included; None where there is no schedule."""
        ...

    @property
    def overhead(self) -> float | None:
        """Cost or time as a ratio to computing everything once; None where it is not known."""
        ...


@dataclass(frozen=True)
class Extent:
    """Ranges of both axes.

    Attributes:
        axis: the unit of memory.
        left, right: bytes.
        bottom, top: overhead in %; what lies beyond is drawn at the edge.
    """

    axis: ByteAxis
    left: float
    right: float
    bottom: float
    top: float

    def place(self, placed: PlacedPoint | None) -> tuple[list[float], list[float]]:
        """Where something is drawn, as coordinates of no point or one.

        >>> Extent.around(None).place(None)
        ([], [])
        """
        if placed is None or placed.peak is None or placed.overhead is None:
            return [], []
        overhead = max(self.bottom, min(100 * (placed.overhead - 1), self.top))
        return [placed.peak / self.axis.bytes], [overhead]

    def edge(self, placed: PlacedPoint | None) -> str:
        """The edge at which something is drawn that lies beyond it: "upper", "lower", or "" where it is inside."""
        if placed is None or placed.overhead is None:
            return ""
        overhead = 100 * (placed.overhead - 1)
        return "upper" if overhead > self.top else "lower" if overhead < self.bottom else ""

    @staticmethod
    def around(
        frontier: Frontier | None, budget: int | None = None, *others: PlacedPoint | None, best_only: bool = False
    ) -> Extent:
        """Room for every point, the budget and others, with a margin.

        Some methods cost many times as much as the best and would press all others onto the axis; so the top is at
        most three times the dearest point that no other beats, and where there are many of these, that of the second
        dearest; a little more if that shows every point. A measured time may be anything: it makes little room below 0.

        Args:
            frontier: the curve, or None.
            budget: bytes, or None.
            others: what else is drawn.
            best_only: only points that no other beats are drawn.

        >>> Extent.around(None, 100).top
        2.0
        """
        best = frontier.nondominated() if frontier else ()
        points = best if best_only else frontier.points if frontier else ()
        memory = [float(point.peak or 0) for point in points]
        memory += [float(s.budget) for s in (frontier.solutions if frontier else ())]
        memory += [float(budget)] if budget else []
        memory += [float(placed.peak) for placed in others if placed is not None and placed.peak]
        percentages = [100 * (placed.overhead - 1) for placed in others if placed is not None and placed.overhead]
        every = overheads(points)
        top = 0.0
        if frontier is not None and len(every):
            dearest = np.sort(overheads(best))[-2 if len(best) >= MANY else -1]
            most = max(3 * dearest, LEAST)
            top = float(every.max() if every.max() <= NEARLY * most else most)
        elif percentages:
            top = max(percentages)
        left, right = (min(memory), max(memory)) if memory else (0.0, 1.0)
        margin = 0.05 * (right - left) or 0.05 * right
        top = max(top, LEAST)
        lowest = min([0.0, *every])
        bottom = min([lowest, *(max(overhead, lowest - BELOW * top) for overhead in percentages)]) - 0.06 * top
        return Extent(ByteAxis.up_to(right), left - margin, right + margin, float(bottom), top)

    def ranges(self) -> tuple[list[float], list[float]]:
        """Ranges of the memory axis, in its unit, and of the overhead axis, which shows a little more than the top."""
        x = [float(np.round(edge / self.axis.bytes, 6)) for edge in (self.left, self.right)]
        return x, [self.bottom, 1.08 * self.top]


SHAPES = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "x",
    "star",
    "pentagon",
    "hexagon",
    "triangle-left",
    "triangle-right",
    "diamond-tall",
    "diamond-wide",
    "hourglass",
    "bowtie",
    "star-square",
    "star-diamond",
    "hexagram",
    "octagon",
    "star-triangle-up",
    "star-triangle-down",
    "hexagon2",
    "triangle-ne",
    "triangle-se",
    "triangle-sw",
    "triangle-nw",
    "arrow-up",
    "arrow-down",
    "arrow-left",
    "arrow-right",
    "arrow",
    "arrow-wide",
    "square-x",
    "square-cross",
    "circle-x",
    "circle-cross",
    "diamond-x",
    "diamond-cross",
)

COLOURS_OF_THEIR_OWN = {"checkpoint-all": "predicted"}  # by their names in the palette


@dataclass(frozen=True)
class Mark:
    """A marker: plotly's name of its shape, and its colour as ``#rrggbb``."""

    shape: str
    colour: str


def mark(strategy: str, theme: Theme = "light") -> Mark:
    """The marker of a strategy; the shape alone tells it from every other registered one. Keeping everything is black.

    Args:
        strategy: a name in `remat_explorer.solvers.STRATEGIES`, or any other, which gets one that they leave.
        theme: ground of the figure.

    >>> mark("optimal").shape, mark("chen-greedy") == mark("chen-sqrt-n")
    ('circle', False)
    """
    if strategy in COLOURS_OF_THEIR_OWN:
        return Mark(_shape(strategy), getattr(palette(theme), COLOURS_OF_THEIR_OWN[strategy]))
    names, hues = list(STRATEGIES), palette(theme).hues
    place = names.index(strategy) if strategy in names else len(names)
    return Mark(_shape(strategy), hues[place % len(hues)])


def _shape(strategy: str) -> str:
    """The symbol of a strategy, or one of those that no other has."""
    symbols = {name: method.symbol if (method := method_of(name)) else "" for name in STRATEGIES}
    spare = [shape for shape in SHAPES if shape not in symbols.values()] or SHAPES
    without = [name for name, symbol in symbols.items() if not symbol]
    place = without.index(strategy) if strategy in without else len(without)
    return symbols.get(strategy) or spare[place % len(spare)]


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
    return max((solution.budget for solution in frontier.solutions if rules_out_budget(solution)), default=None)


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


Trace = dict[str, Any]
SIZE = 9
ARROWS = {"upper": "arrow-up", "lower": "arrow-down"}  # in place of a marker that lies beyond an edge
NO_DATA: tuple[float, ...] = ()


def curve_traces(
    frontier: Frontier | None, extent: Extent, theme: Theme = "light", best_only: bool = False
) -> list[Trace]:
    """What is proven, the line through the points that no other beats, and the points of each strategy.

    Args:
        frontier: what is known; None gives the first two without data, and no strategy.
        extent: what the figure shows.
        theme: ground of the figure.
        best_only: leave out the points that others beat.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> frontier = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (4, 6)))
    >>> [trace["name"] for trace in curve_traces(frontier, Extent.around(frontier))]
    ['proven: none below', 'best', 'optimal']
    """
    strategies = frontier.strategies if frontier else ()
    bound_x, bound_y = _proven_line(frontier, extent) if frontier else (NO_DATA, NO_DATA)
    best = frontier.nondominated() if frontier else ()
    colours = palette(theme)
    traces: list[Trace] = [
        {
            "name": "proven: none below",
            "x": bound_x,
            "y": bound_y,
            "mode": "lines",
            "line": {"width": 0.8, "color": colours.ink},
            "fill": "tozeroy",
            "fillcolor": "rgba(128,128,128,0.22)",
            "hoverinfo": "skip",
        },
        {
            "name": "best",
            "x": np.array([point.peak or 0 for point in best]) / extent.axis.bytes,
            "y": np.minimum(overheads(best), extent.top),
            "mode": "lines",
            "line": {"width": 1.5, "color": colours.ink, "shape": "hv"},
            "hoverinfo": "skip",
        },
    ]
    traces += [_strategy_trace(frontier, name, extent, theme, best_only) for name in strategies if frontier is not None]
    return [{"type": "scatter", "visible": True, **trace} for trace in traces]


def _strategy_trace(frontier: Frontier, strategy: str, extent: Extent, theme: Theme, best_only: bool) -> Trace:
    points, look = points_of(frontier, strategy, best_only), mark(strategy, theme)
    heights, beyond = overheads(points), "<br>(beyond the upper edge)"
    drawn = zip(symbols(points, look.shape), heights > extent.top, strict=True)
    shapes = ["arrow-up" if above else shape for shape, above in drawn]
    return {
        "name": strategy,
        "x": np.array([point.peak or 0 for point in points]) / extent.axis.bytes,
        "y": np.minimum(heights, extent.top),
        "mode": "markers",
        "marker": {
            "symbol": shapes or look.shape,
            "color": look.colour,
            "size": SIZE,
            "line": {"width": 1.2, "color": look.colour},
        },
        "cliponaxis": False,
        "text": [
            describe(point) + (beyond if y > extent.top else "") for point, y in zip(points, heights, strict=True)
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _proven_line(frontier: Frontier, extent: Extent) -> tuple[np.ndarray, np.ndarray]:
    """The edge of the region in which no schedule with stages exists, from left to right."""
    budgets, bounds = bound_steps(frontier)
    infeasible = largest_infeasible(frontier)
    if infeasible is not None:
        bounds = bounds[budgets > infeasible]
        budgets = budgets[budgets > infeasible]
        budgets, bounds = np.append(infeasible, budgets), np.append(2 * extent.top, bounds)
    if not len(budgets):
        return np.empty(0), np.empty(0)
    starts = np.append(extent.left, budgets[:-1])
    x = np.column_stack([starts, budgets]).ravel() / extent.axis.bytes
    return x, np.repeat(np.maximum(bounds, 0.0), 2)


def pointer_traces(
    extent: Extent,
    budget: int | None = None,
    selected: PlacedPoint | None = None,
    measurement: PlacedPoint | None = None,
    theme: Theme = "light",
) -> list[Trace]:
    """The budget as a vertical line, the measured point, and the ring around the selected one.

    >>> [trace["visible"] for trace in pointer_traces(Extent.around(None, 4), 4)]
    [True, False, False]
    """
    colours = palette(theme)
    x, (bottom, top) = [] if not budget else [budget / extent.axis.bytes] * 2, extent.ranges()[1]
    measured, ring = extent.place(measurement), extent.place(selected)
    edge = extent.edge(measurement)
    beyond = f"<br>(beyond the {edge} edge)" if edge else ""
    at = [] if measurement is None or measurement.overhead is None else [100 * (measurement.overhead - 1)]
    spread = getattr(measurement, "overhead_range", None) if measured[1] else None
    noisy = "<br>too noisy to compare" if getattr(measurement, "is_noisy", False) else ""
    ends = [[abs(100 * (end - 1) - y) for y in measured[1]] for end in spread or ()] or [[], []]
    said = "" if measurement is None or measurement.peak is None else format_bytes(measurement.peak)
    traces: list[Trace] = [
        {
            "name": f"budget {format_bytes(budget)}" if budget else "budget",
            "x": x,
            "y": [bottom, top][: len(x)],
            "mode": "lines",
            "line": {"width": 1.5, "dash": "dash", "color": colours.budget},
            "hoverinfo": "skip",
        },
        {
            "name": "measured",
            "x": measured[0],
            "y": measured[1],
            "mode": "markers",
            "marker": {
                "symbol": ARROWS.get(edge, "asterisk-open"),
                "size": 11,
                "color": colours.measured,
                "line": {"width": 2},
            },
            "text": [
                f"<b>measured</b><br>peak {said}<br>overhead {y:+.1f} %{beyond}{noisy}" for y in at[: len(measured[1])]
            ],
            "hovertemplate": "%{text}<extra></extra>",
            "error_y": {
                "type": "data",
                "symmetric": False,
                "arrayminus": ends[0],
                "array": ends[1],
                "thickness": 1.2,
                "width": 3,
                "color": colours.measured,
                "visible": bool(spread) and not edge,
            },
            "cliponaxis": False,
        },
        {
            "name": "selected",
            "x": ring[0],
            "y": ring[1],
            "mode": "markers",
            "marker": {"symbol": "circle-open", "size": 17, "color": colours.cursor, "line": {"width": 3}},
            "hoverinfo": "skip",
            "cliponaxis": False,
        },
    ]
    return [{"type": "scatter", "visible": bool(len(trace["x"])), **trace} for trace in traces]


NONE_FITS = "No strategy has a schedule within these budgets"


def tradeoff(
    frontier: Frontier,
    budget: int | None = None,
    selected: PlacedPoint | None = None,
    measurement: PlacedPoint | None = None,
    theme: Theme = "light",
) -> Figure:
    """Overhead against predicted peak of every schedule that a sweep found.

    The line runs through the points that no other beats; in the shaded region nothing exists, as far as that is proven.
    A filled marker is proven optimal for its budget, an open one has a gap or no bound. The figure has the same traces
    in the same order for the same strategies.

    Args:
        frontier: the sweep's result; it may be empty.
        budget: bytes, a vertical line, or None.
        selected: the solution with a ring around it, or None.
        measurement: measured peak and overhead of a solution, or None.
        theme: ground of the figure, "light" or "dark".

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> frontier = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (4, 6, 8)))
    >>> figure = tradeoff(frontier, budget=6, selected=frontier.best(6))
    >>> [trace.name for trace in figure.data if trace.visible]
    ['proven: none below', 'best', 'optimal', 'budget 6 B', 'selected']
    """
    from plotly import graph_objects as go

    extent = Extent.around(frontier, budget, selected, measurement)
    traces = curve_traces(frontier, extent, theme) + pointer_traces(extent, budget, selected, measurement, theme)
    colours, (x, y) = palette(theme), tradeoff_axes(extent, theme)
    figure = go.Figure(traces, {"xaxis": x, "yaxis": y})
    figure.update_layout(
        title=f"{in_figure(frontier.graph.name)}: overhead against peak memory (predicted)",
        height=420,
        margin={"t": 56, "b": 56},
        legend={"title": {"text": "filled: proven optimal"}},
        **colours.look,
        hovermode="closest",
        hoverlabel=colours.hover,
    )
    if not frontier.points:
        figure.add_annotation(text=NONE_FITS, showarrow=False, xref="x domain", yref="y domain", x=0.5, y=0.5)
    return figure


def tradeoff_axes(extent: Extent, theme: Theme = "light") -> tuple[dict[str, Any], dict[str, Any]]:
    """Both axes as plotly's layout takes them.

    >>> tradeoff_axes(Extent.around(None, 2**30))[0]["title"]["text"]
    'peak memory (GiB)'
    """
    look = {"gridcolor": palette(theme).grid, "zeroline": False}
    x, y = extent.ranges()
    return (
        {**look, "title": {"text": f"peak memory ({extent.axis.unit})"}, "range": x},
        {**look, "title": {"text": "overhead (%)"}, "range": y},
    )


def methods_by_budget(frontier: Frontier, top: float | None = None, theme: Theme = "light") -> Figure:
    """One marker for each method and budget: the cheapest schedule of that method that fits.

    Methods stand side by side above each budget, in the order of the legend, so that no marker hides another. A short
    line is the cheapest of all, and a method without a schedule that fits has a mark in the gray band above.

    Args:
        frontier: the sweep's result; its budgets and strategies are drawn.
        top: overhead in % where the band begins, None for room for every marker. What costs more is in the band, with
            its overhead.
        theme: ground of the figure.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> found = Frontier(linear(8), tuple(solve(linear(8), 5, name) for name in ("optimal", "chen-sqrt-n")))
    >>> [(trace.name, trace.customdata) for trace in methods_by_budget(found).data if trace.showlegend is False]
    [('optimal', ('+29.4 %',)), ('chen-sqrt-n', ('does not fit',))]
    """
    from plotly import graph_objects as go

    colours, names = palette(theme), frontier.strategies
    budgets = sorted({solution.budget for solution in frontier.solutions})
    cheapest: dict[tuple[str, int], float] = {}
    for name in names:
        for budget in budgets:
            fitting = [point for point in points_of(frontier, name) if (point.peak or 0) <= budget]
            if fitting:
                cheapest[name, budget] = float(overheads(fitting).min())
    known = [overhead for overhead in cheapest.values() if top is None or overhead <= top]
    edge = max(known, default=LEAST) * 1.08 if top is None else top
    figure = go.Figure()
    for number, name in enumerate(names):
        own, place = mark(name, theme), (number + 0.5) / len(names) - 0.5
        found = [cheapest.get((name, budget)) for budget in budgets]
        inside = [overhead is not None and overhead <= edge for overhead in found]
        figure.add_scatter(
            x=[at + 0.86 * place for at in range(len(budgets))],
            y=[overhead if fits else 1.09 * edge for overhead, fits in zip(found, inside, strict=True)],
            text=[
                "" if fits or overhead is None else f"{overhead:.0f}"
                for overhead, fits in zip(found, inside, strict=True)
            ],
            customdata=["does not fit" if overhead is None else f"{overhead:+.1f} %" for overhead in found],
            mode="markers+text",
            textposition="top center",
            marker={
                "symbol": [own.shape if overhead is not None else "x-thin-open" for overhead in found],
                "color": own.colour,
                "size": [SIZE + 2 if overhead is not None else SIZE - 3 for overhead in found],
                "opacity": 1,
            },
            hovertemplate=f"{name}: %{{customdata}}<extra></extra>",
            name=name,
            showlegend=False,
        )
        legend = {"symbol": own.shape, "color": own.colour, "size": SIZE + 2}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=legend, name=name)
    for at, budget in enumerate(budgets):
        if all_known := [overhead for (_, of), overhead in cheapest.items() if of == budget]:
            ends = {"x0": at - 0.45, "x1": at + 0.45, "y0": min(all_known), "y1": min(all_known)}
            figure.add_shape(type="line", line={"color": colours.ink, "width": 1.5}, layer="below", **ends)
        if at:
            figure.add_vline(x=at - 0.5, line={"color": colours.grid, "width": 2}, layer="below")
    figure.add_hrect(y0=edge, y1=1.2 * edge, fillcolor=colours.others, line_width=0, layer="below")
    words = "does not fit" if top is None else "does not fit (×), or costs more (%)"
    label = {"x": 1, "y": 1.2 * edge, "xref": "paper", "yanchor": "bottom", "xanchor": "right", "showarrow": False}
    figure.add_annotation(text=words, **label)
    ticks = {"tickvals": list(range(len(budgets))), "ticktext": [format_bytes(budget) for budget in budgets]}
    figure.update_xaxes(title="budget", range=[-0.5, len(budgets) - 0.5], showgrid=False, zeroline=False, **ticks)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, edge) if edge <= 8 * step)
    heights = {"tickvals": np.arange(0, edge, step), "range": [-0.06 * edge, 1.2 * edge]}
    figure.update_yaxes(title="overhead (%)", gridcolor=colours.grid, zeroline=False, **heights)
    figure.update_layout(title=in_figure(frontier.graph.name), height=440, margin={"t": 72, "b": 56}, **colours.look)
    return figure
