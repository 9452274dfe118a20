"""A learner's own R and S after an attempt, with the cell that breaks a rule in red, and memory beside the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.figures import schedule_heatmap
from remat_explorer.figures.palette import LIGHT
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def faulty_cell(graph: Graph, R: np.ndarray, S: np.ndarray) -> tuple[str, int, int] | None:
    """The first cell that breaks (1b), (1c) or (1d): "R" or "S", stage, and column; None if no cell does.

    >>> from remat_explorer.instances import linear
    >>> faulty_cell(linear(1), np.eye(3), np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0]]))
    ('R', 1, 1)
    """
    for t in range(graph.n):
        for i in np.flatnonzero(S[t]):
            maker = int(graph.producer[i])
            if t == 0 or not (S[t - 1, i] or R[t - 1, maker]):
                return "S", t, int(i)
        for k in np.flatnonzero(R[t]):
            if not all(S[t, i] or R[t, int(graph.producer[i])] for i in graph.inputs(int(k))):
                return "R", t, int(k)
    return None


def attempt(graph: Graph, R: np.ndarray, S: np.ndarray, budget: int) -> Figure:
    """R, S, and the most memory of each stage beside the budget.

    Args:
        graph: the training graph, with as many stages as operations.
        R: (stages, operations).
        S: (stages, values).
        budget: bytes.
    """
    schedule = Schedule(graph, R, S)
    figure = schedule_heatmap(schedule)
    wrong = faulty_cell(graph, np.asarray(R), np.asarray(S))
    if wrong:
        table, stage, column = wrong
        side = {"row": 1, "col": 1 if table == "R" else 2}
        box = {"x0": column - 0.5, "x1": column + 0.5, "y0": stage - 0.5, "y1": stage + 0.5}
        figure.add_shape(type="rect", fillcolor=LIGHT.over, line={"color": LIGHT.over, "width": 3}, **box, **side)
        title = f"{table}[{stage}, {column}], in red, breaks a rule"
    else:
        most = schedule.U.max(axis=1)
        over = [f"{stage} ({int(bytes_)})" for stage, bytes_ in enumerate(most) if bytes_ > budget]
        title = f"Stages above the budget of {budget} bytes: {', '.join(over) or 'none'}"
        colours = [LIGHT.over if bytes_ > budget else LIGHT.kept for bytes_ in most]
        bars = {"x": most, "y": np.arange(graph.n), "orientation": "h", "marker": {"color": colours}}
        figure.add_bar(**bars, xaxis="x3", yaxis="y3", name="memory", showlegend=False)
        figure.update_layout(
            xaxis={"domain": [0, 0.36]},
            xaxis2={"domain": [0.39, 0.75]},
            xaxis3={"domain": [0.8, 1], "anchor": "y3", "title": "most bytes in the stage", "rangemode": "tozero"},
            yaxis3={"anchor": "x3", "matches": "y", "showticklabels": False},
        )
        line = {"color": LIGHT.budget, "dash": "dash"}
        ends = {"x0": budget, "x1": budget, "y0": -0.5, "y1": graph.n - 0.5}
        figure.add_shape(type="line", xref="x3", yref="y3", line=line, **ends)
    return figure.update_layout(title=title)
