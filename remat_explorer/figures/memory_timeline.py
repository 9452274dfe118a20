"""Memory along a plan: what it is made of, predicted and measured, under the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.holdings import Holdings, holdings
from remat_explorer.figures.palette import Palette, Theme, palette
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LAYERS = ("resident", "kept", "temporaries", "gradients")


class Measured(Protocol):
    """The part of a measurement that is drawn."""

    @property
    def during(self) -> np.ndarray:
        """Highest memory while each statement runs, total bytes."""
        ...


def memory_timeline(
    plan: Plan,
    budget: int | None = None,
    measurement: Measured | None = None,
    stage: int | None = None,
    theme: Theme = "light",
) -> Figure:
    """Memory while each computation of ``plan`` runs, stacked by kind, resident bytes included.

    The figure always has the same traces in the same order, so that a live figure can take over their data.

    Args:
        plan: c computations.
        budget: bytes, drawn as a line, or None.
        measurement: measured bytes per statement of the plan, or None.
        stage: the stage to highlight, or None.
        theme: ground of the figure, "light" or "dark".

    >>> import numpy as np
    >>> from remat_explorer.instances import linear
    >>> figure = memory_timeline(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]), budget=4)
    >>> [trace.name for trace in figure.data if trace.visible]
    ['resident', 'kept', 'temporaries', 'gradients', 'predicted', 'budget 4 B']
    """
    from plotly import graph_objects as go

    colours, parts = palette(theme), holdings(plan)
    measured = None if measurement is None else np.asarray(measurement.during)[parts.statement]
    largest = max(int(parts.total.max()), budget or 0, 0 if measured is None else int(measured.max()))
    axis = ByteAxis.up_to(largest)
    figure = go.Figure()
    _add_layers(figure, parts, axis, colours)
    _add_lines(figure, plan, parts, axis, colours, budget, measured)
    span = stage_span(parts, stage)
    figure.add_vrect(*span, fillcolor=colours.cursor, opacity=0.35, line_width=0, layer="above")
    figure.update_xaxes(
        title_text="computation", range=[0, len(parts.stage)], gridcolor=colours.grid, zeroline=False, tickformat="d"
    )
    figure.update_yaxes(
        title_text=f"memory ({axis.unit})",
        range=[0, 1.08 * largest / axis.bytes],
        gridcolor=colours.grid,
        zeroline=False,
    )
    figure.update_layout(
        height=320,
        margin={"l": 60, "r": 12, "t": 32, "b": 40},
        paper_bgcolor=colours.ground,
        plot_bgcolor=colours.empty,
        font_color=colours.ink,
        hovermode="x",
        hoverlabel={"bgcolor": colours.ground, "font_color": colours.ink},
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "traceorder": "normal"},
    )
    return figure


def stage_span(parts: Holdings, stage: int | None) -> tuple[float, float]:
    """Where a stage's computations begin and end on the timeline's axis; (0, 0) when it has none."""
    inside = np.flatnonzero(parts.stage == stage)
    return (float(inside[0]), float(inside[-1] + 1)) if len(inside) else (0.0, 0.0)


def _steps(counts: np.ndarray, axis: ByteAxis) -> np.ndarray:
    """One more point than computations, so that the last step has a width, too."""
    return np.append(counts, counts[-1:]) / axis.bytes


def _add_layers(figure: Figure, parts: Holdings, axis: ByteAxis, colours: Palette) -> None:
    x = np.arange(len(parts.stage) + 1)
    for name in LAYERS:
        figure.add_scatter(
            x=x,
            y=_steps(getattr(parts, name), axis),
            name=name,
            visible=True,
            stackgroup="memory",
            mode="lines",
            line={"width": 0, "shape": "hv"},
            fillcolor=getattr(colours, name),
            hoverinfo="skip",
        )


def _add_lines(
    figure: Figure,
    plan: Plan,
    parts: Holdings,
    axis: ByteAxis,
    colours: Palette,
    budget: int | None,
    measured: np.ndarray | None,
) -> None:
    x = np.arange(len(parts.stage) + 1)
    texts = _descriptions(plan, parts)
    line: dict[str, Any] = {"shape": "hv", "width": 1.2}
    figure.add_scatter(
        x=x,
        y=_steps(parts.total, axis),
        name="predicted",
        visible=True,
        mode="lines",
        line={**line, "color": colours.predicted},
        text=[*texts, texts[-1]],
        hovertemplate="%{text}<extra></extra>",
    )
    figure.add_scatter(
        x=[] if measured is None else x,
        y=[] if measured is None else _steps(measured, axis),
        name="measured",
        visible=measured is not None,
        mode="lines",
        line={**line, "color": colours.measured, "width": 1.8, "dash": "dot"},
        text=[] if measured is None else [format_bytes(count) for count in (*measured, measured[-1])],
        hovertemplate="measured %{text}<extra></extra>",
    )
    figure.add_scatter(
        x=[] if budget is None else [0, len(parts.stage)],
        y=[] if budget is None else [budget / axis.bytes] * 2,
        name="budget" if budget is None else f"budget {format_bytes(budget)}",
        visible=budget is not None,
        mode="lines",
        line={"color": colours.budget, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )


def _descriptions(plan: Plan, parts: Holdings) -> list[str]:
    computations = [statement for statement in plan.statements if isinstance(statement, Compute)]
    return [
        f"stage {statement.stage}: {plan.text(statement)}<br>predicted {format_bytes(int(total))}"
        for statement, total in zip(computations, parts.total, strict=True)
    ]
