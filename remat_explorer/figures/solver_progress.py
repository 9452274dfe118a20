"""How a solve went: the cost of the best schedule and the proven bound over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.quantities import format_share
from remat_explorer.solvers import relative_gap

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NOTHING = "Nothing has been found yet"


class ReportedProgress(Protocol):
    """What a solve reported at one time."""

    @property
    def seconds(self) -> float:
        """Since the solve began."""
        ...

    @property
    def cost(self) -> float | None:
        """Of the best schedule; None while there is none."""
        ...

    @property
    def lower_bound(self) -> float | None:
        """No schedule costs less; None while nothing is proven."""
        ...


def solver_progress(history: Sequence[ReportedProgress], total_cost: float, theme: Theme = "light") -> Figure:
    """Incumbent and lower bound of a solve over time, as overheads; the space between them is the gap.

    The figure always has the same two traces.

    Args:
        history: what the solve reported, in order; it may be empty.
        total_cost: cost of computing every operation once, in the unit of the costs.
        theme: ground of the figure, "light" or "dark".

    >>> from types import SimpleNamespace as Moment
    >>> figure = solver_progress([Moment(seconds=1.0, cost=None, lower_bound=10.0)], 10.0)
    >>> [(trace.name, len(trace.x)) for trace in figure.data]
    [('best schedule', 0), ('lower bound', 1)]
    """
    from plotly import graph_objects as go

    colours = palette(theme)
    end = history[-1].seconds if history else 0.0
    line = {"shape": "hv", "width": 2}
    traces: list[dict[str, Any]] = []
    looks = (("best schedule", "cost", colours.kept), ("lower bound", "lower_bound", colours.budget))
    for name, key, colour in looks:
        x, y = _steps(history, key, total_cost, end)
        look = {"mode": "lines+markers", "line": {**line, "color": colour}, "marker": {"size": 5}}
        said = "%{y:.2f} % after %{x:.3g} s<extra>" + name + "</extra>"
        traces.append({"type": "scatter", "name": name, "x": x, "y": y, "hovertemplate": said, **look})
    figure = go.Figure(traces)
    figure.add_annotation(
        text=gap_text(history), showarrow=False, xref="paper", yref="paper", x=1, y=1, xanchor="right", yanchor="top"
    )
    figure.update_xaxes(title_text="seconds", gridcolor=colours.grid, zeroline=False, rangemode="tozero")
    figure.update_yaxes(title_text="overhead (%)", gridcolor=colours.grid, zeroline=False)
    figure.update_layout(
        height=280,
        margin={"l": 60, "r": 12, "t": 32, "b": 40},
        **colours.look,
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
    )
    return figure


def gap_text(history: Sequence[ReportedProgress]) -> str:
    """How far the best schedule may be from the optimum, in words.

    >>> gap_text([])
    'Nothing has been found yet'
    """
    if not history or (history[-1].cost is None and history[-1].lower_bound is None):
        return NOTHING
    gap = relative_gap(history[-1].cost, history[-1].lower_bound)
    if gap is None:
        return "no schedule yet" if history[-1].cost is None else "no bound proven yet"
    return f"gap {format_share(gap)}"


def _steps(
    history: Sequence[ReportedProgress], key: str, total_cost: float, end: float
) -> tuple[list[float], list[float]]:
    """Times and overheads in % at which a number changed, and its last value once more at the end."""
    x: list[float] = []
    y: list[float] = []
    for step in history:
        value = getattr(step, key)
        if value is None:
            continue
        overhead = 100 * (value / total_cost - 1) if total_cost else 0.0
        if not y or y[-1] != overhead:
            x.append(step.seconds)
            y.append(overhead)
    if x and x[-1] < end:
        x.append(end)
        y.append(y[-1])
    return x, y
