"""The ablation: overhead against the budget for each kind of implementations, none, and all together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Palette, Theme, palette
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.solvers import Ablation, Kinds, Solution, Status, kinds_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star", "cross", "x")
ALIKE = 5e-4  # overheads closer than that are one curve to the eye
NOTHING = "No set of kinds has a schedule within these budgets"


def ablation(found: Ablation, theme: Theme = "light") -> Figure:
    """Overhead of each set of kinds at each budget, and on the lower edge the smallest budget known of each.

    A filled marker is proven optimal, an open one has a gap or no bound. Kinds that change nothing by themselves are in
    the legend, and hidden behind the dotted line of default implementations until they are asked for there.

    Args:
        found: the ablation's result.
        theme: ground of the figure, "light" or "dark".

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import ablation as run
    >>> figure = ablation(run(linear(8), [4, 6]))
    >>> [(trace.name, trace.x) for trace in figure.data]
    [('none', (4.0, 6.0)), ('smallest budgets', (3.0,))]
    """
    from plotly import graph_objects as go

    colours, peaks = palette(theme), [*found.budgets, *(least.known_feasible for least in found.smallest.values())]
    axis = ByteAxis.up_to(max(peaks, default=0))
    plain = _overheads(found, ())
    traces = [_trace(found, kinds, place, plain, axis, colours) for place, kinds in enumerate(found.sets)]
    figure = go.Figure([*traces, _smallest(found, traces, axis)])
    look = {"gridcolor": colours.grid, "zeroline": False}
    figure.update_layout(
        title=f"{in_figure(found.graph.name)}: what each kind of implementations is worth",
        height=420,
        margin={"t": 56, "b": 56},
        legend={"title": {"text": "kinds; filled: proven optimal"}},
        **colours.look,
        hovermode="closest",
        hoverlabel=colours.hover,
        xaxis={**look, "title": {"text": f"memory budget ({axis.unit})"}},
        yaxis={**look, "title": {"text": "overhead (%)"}},
    )
    if not any(trace["x"] for trace in traces):
        figure.add_annotation(text=NOTHING, showarrow=False, xref="x domain", yref="y domain", x=0.5, y=0.5)
    return figure


def _trace(
    ablation: Ablation, kinds: Kinds, place: int, plain: dict[int, float], axis: ByteAxis, colours: Palette
) -> dict[str, Any]:
    overheads, name = _overheads(ablation, kinds), kinds_name(kinds, ablation.kinds)
    solutions = {solution.budget: solution for solution in ablation.curve(kinds)}
    proven = {budget: solution.status is Status.OPTIMAL for budget, solution in solutions.items()}
    colour = colours.ink if not kinds else colours.hues[(place - 1) % len(colours.hues)]
    together = bool(kinds) and kinds == ablation.kinds
    if together:
        colour = colours.kept
    symbol = "circle" if together or not kinds else SYMBOLS[place % len(SYMBOLS)]
    alike = overheads.keys() == plain.keys() and all(abs(overheads[size] - plain[size]) < ALIKE for size in plain)
    hidden = bool(kinds) and not together and alike and bool(plain)
    return {
        "type": "scatter",
        "name": f"{name} (as none)" if hidden else name,
        "x": [float(axis.scaled(size)) for size in overheads],
        "y": [100 * (overhead - 1) for overhead in overheads.values()],
        "mode": "lines+markers",
        "visible": "legendonly" if hidden else True,
        "line": {
            "color": colour,
            "width": 3.0 if together else 1.5,
            "dash": "dot" if not kinds else "dash" if place > len(colours.hues) and not together else "solid",
        },
        "marker": {
            "symbol": [symbol if proven[size] else f"{symbol}-open" for size in overheads],
            "size": 8,
            "color": colour,
        },
        "text": [_described(name, size, overheads[size], solutions[size]) for size in overheads],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _smallest(ablation: Ablation, traces: list[dict[str, Any]], axis: ByteAxis) -> dict[str, Any]:
    """Where the schedules of each set begin, in the colour of its line."""
    lowest = min((y for trace in traces for y in trace["y"]), default=0.0)
    smallest = [
        (kinds, ablation.smallest[kinds], i) for i, kinds in enumerate(ablation.sets) if kinds in ablation.smallest
    ]
    return {
        "type": "scatter",
        "name": "smallest budgets",
        "x": [float(axis.scaled(least.known_feasible)) for _, least, _ in smallest],
        "y": [min(lowest, 0.0)] * len(smallest),
        "mode": "markers",
        "marker": {
            "symbol": "line-ns-open",
            "size": 14,
            "line": {"width": 2},
            "color": [traces[i]["line"]["color"] for _, _, i in smallest],
        },
        "text": [
            f"<b>{kinds_name(kinds, ablation.kinds)}</b> from {format_bytes(least.known_feasible)} on<br>"
            f"nothing fits into less than {format_bytes(least.lower_bound)}"
            for kinds, least, _ in smallest
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _overheads(ablation: Ablation, kinds: Kinds) -> dict[int, float]:
    """Overhead by budget, ascending, where a schedule is known."""
    return {s.budget: s.schedule.overhead for s in ablation.curve(kinds) if s.schedule is not None}


def _described(name: str, size: int, overhead: float, solution: Solution) -> str:
    heading = f"<b>{name}</b> within {format_bytes(size)}: {format_overhead(overhead)}"
    proven = "no bound proven" if solution.gap is None else f"gap {format_share(solution.gap)}"
    return f"{heading}<br>{solution.status}, {proven}"
