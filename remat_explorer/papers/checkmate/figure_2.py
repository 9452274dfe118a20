"""Checkmate's Figure 2 on a real graph: what each part of the system hands to the next one.

The forward and backward graph with its costs and bytes, the schedule that problem (9) has within the budget, the plan
of Algorithm 1, and the new training graph that the plan is: a node for each computation, repeated ones included.

Source: Jain et al., Checkmate (MLSys 2020), Figure 2 and section 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.papers.drawing import dressed
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import layer_graph
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all_peak, solve

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NETWORK, BATCH = "U-Net", 32
GB = 10**9
BUDGET = 11 * GB  # about half of what keeping everything takes
SECONDS: dict[Settings, float] = {"small": 5.0, "full": 60.0}
FORWARD, AGAIN, BACKWARD = "forward", "computed again", "backward"
HEIGHTS = {FORWARD: 2.0, AGAIN: 1.0, BACKWARD: 0.0}
BEND = 0.5  # of a line over the points between its ends


def figure_2(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """U-Net within about half of its memory: graph, schedule, plan, and the graph that is trained."""
    graph = layer_graph(NETWORK, BATCH)
    hear = heard(progress, f"{NETWORK} at {BUDGET // GB} GB")
    best = solve(graph, BUDGET, time_limit=SECONDS[settings], on_progress=hear, cancelled=cancelled)
    rows = [
        {"step": "training graph", "operations": graph.n, "edges": edges(graph), "peak": checkpoint_all_peak(graph)}
    ]
    if best.schedule is not None:
        rows += rows_of(best.schedule, best.gap)
    schedule = best.schedule
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(graph, schedule, rows), not cancelled())


def edges(graph: Graph) -> int:
    """Pairs of an operation and a value that it reads: E of section 4.1.

    >>> edges(layer_graph("VGG16"))
    87
    """
    return sum(len(graph.inputs(k)) for k in range(graph.n))


def rows_of(schedule: Schedule, gap: float | None) -> list[dict[str, Any]]:
    """The schedule, the plan and the new graph, a row each, and a row for each computation of the plan."""
    plan, graph = Plan.of(schedule), schedule.graph
    latest: dict[int, int] = {}  # of an operation: its last computation so far
    computations: list[dict[str, Any]] = []
    for statement, during in zip(plan.statements, plan.timeline.during, strict=True):
        if isinstance(statement, Compute):
            k = statement.operation
            reads = [latest[int(graph.producer[v])] for v in graph.inputs(k)]
            latest[k] = len(computations)
            row = {"computation": len(computations), "stage": statement.stage, "operation": k, "reads": reads}
            pass_ = BACKWARD if graph.is_backward[k] else FORWARD
            computations.append(row | {"drawn as": pass_ if statement.first else AGAIN, "memory": int(during)})
    repeated = sum(row["drawn as"] == AGAIN for row in computations)
    steps: list[dict[str, Any]] = [
        {"step": "schedule", "operations": graph.n, "repeated": repeated, "overhead": schedule.overhead, "gap": gap},
        {"step": "plan", "statements": len(plan.statements), "peak": plan.peak},
        {"step": "new training graph", "operations": len(computations)}
        | {"edges": sum(len(row["reads"]) for row in computations)},
    ]
    return steps + computations


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What goes from step to step; see `Item.words`."""
    steps = {row["step"]: row for row in rows if "step" in row}
    graph = steps["training graph"]
    told = (
        f"{NETWORK} at batch {BATCH}: a training graph of {graph['operations']} operations and {graph['edges']} edges, "
        f"which needs {graph['peak'] / GB:.1f} GB with everything kept"
    )
    if "plan" not in steps:
        return f"{told}; no schedule of {BUDGET // GB} GB was found in time."
    schedule, plan, new = (steps[name] for name in ("schedule", "plan", "new training graph"))
    proven = "no bound" if schedule["gap"] is None else f"gap {format_share(schedule['gap'])}"
    return (
        f"{told}; a schedule within {BUDGET // GB} GB costs {format_overhead(schedule['overhead'])} ({proven}) and "
        f"repeats {schedule['repeated']}; a plan of {plan['statements']} statements that peaks at "
        f"{plan['peak'] / GB:.1f} GB; a new training graph of {new['operations']} operations and {new['edges']} edges."
    )


def _draw(graph: Graph, schedule: Schedule | None, rows: Sequence[Mapping[str, Any]]) -> Figure:
    from plotly.subplots import make_subplots

    from remat_explorer.figures import computation_matrices

    titles = ["1. training graph", "2. schedule: R of (9)", "3. plan: memory in use", "4. new training graph"]
    figure = make_subplots(rows=2, cols=2, subplot_titles=titles, horizontal_spacing=0.13, vertical_spacing=0.16)
    once = [
        {"operation": k, "reads": [int(graph.producer[v]) for v in graph.inputs(k)]}
        | {"drawn as": BACKWARD if graph.is_backward[k] else FORWARD}
        for k in range(graph.n)
    ]
    _add_graph(figure, graph, once, 1, 1)
    if schedule is not None:
        matrix: Any = computation_matrices([schedule], [""]).data[0]
        figure.add_trace(matrix, row=1, col=2)
        computations = [row for row in rows if "computation" in row]
        _add_memory(figure, computations, 2, 1)
        _add_graph(figure, graph, computations, 2, 2)
    figure.update_yaxes(autorange="reversed", title_text="stage", row=1, col=2)
    figure.update_xaxes(title_text="operation", row=1, col=2)
    figure.update_xaxes(title_text="computation", row=2, col=1)
    figure.update_yaxes(title_text="GB", rangemode="tozero", row=2, col=1)
    dressed(figure, height=760)
    for column, line in ((1, 1), (2, 2)):
        figure.update_xaxes(title_text="layer", showgrid=False, row=line, col=column)
        drawn = {name: height for name, height in HEIGHTS.items() if line == 2 or name != AGAIN}
        ticks = {"tickvals": list(drawn.values()), "ticktext": list(drawn)}
        figure.update_yaxes(range=[-0.4, 2.8], showgrid=False, **ticks, row=line, col=column)
    return figure.update_layout(legend={"y": 1.06})


def _add_graph(figure: Any, graph: Graph, computations: Sequence[Mapping[str, Any]], line: int, column: int) -> None:
    """Every computation as a point over its layer, with a line from each that it reads; it bends over those between."""
    from remat_explorer.figures.palette import palette

    colours = palette("light")
    x = [min(row["operation"], graph.n - 1 - row["operation"]) for row in computations]
    y = [HEIGHTS[row["drawn as"]] for row in computations]
    across: list[float | None] = []
    up: list[float | None] = []
    for target, row in enumerate(computations):
        for source in row["reads"]:
            bent = y[source] == y[target] and abs(x[source] - x[target]) > 1
            across += [x[source], (x[source] + x[target]) / 2, x[target], None]
            up += [y[source], (y[source] + y[target]) / 2 + (BEND if bent else 0), y[target], None]
    look = {"color": colours.resident, "width": 1, "shape": "spline"}
    quiet = {"hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(x=across, y=up, mode="lines", line=look, **quiet, row=line, col=column)
    for name, colour in ((FORWARD, colours.forward), (AGAIN, colours.recompute), (BACKWARD, colours.backward)):
        mine = [i for i, row in enumerate(computations) if row["drawn as"] == name]
        figure.add_scatter(
            x=[x[i] for i in mine],
            y=[y[i] for i in mine],
            text=[graph.operations[computations[i]["operation"]].name for i in mine],
            mode="markers",
            marker={"color": colour, "size": 7},
            name=name,
            showlegend=line == 2,
            row=line,
            col=column,
        )


def _add_memory(figure: Any, computations: Sequence[Mapping[str, Any]], line: int, column: int) -> None:
    """Memory in use during each computation, and the budget."""
    from remat_explorer.figures.palette import palette

    colours = palette("light")
    memory = np.array([row["memory"] for row in computations]) / GB
    look = {"color": colours.predicted, "shape": "hvh", "width": 1.5}
    figure.add_scatter(y=memory, mode="lines", line=look, name="memory", showlegend=False, row=line, col=column)
    limit = {"color": colours.budget, "dash": "dash", "width": 1.5}
    ends = [0, len(memory) - 1]
    figure.add_scatter(x=ends, y=[BUDGET / GB] * 2, mode="lines", line=limit, name="budget", row=line, col=column)


ITEM = Item(
    key="checkmate-figure-2",
    paper="Checkmate",
    place="Figure 2",
    title="the parts of the system, and what each hands on",
    notebook="04_the_integer_program.ipynb",
    function="remat_explorer.papers.checkmate.figure_2.rows_of",
    test="tests/papers/test_items.py",
    published="the training graph is extracted, problem (9) solved, and the plan made a new static training graph "
    "(Figure 2, section 6.2)",
    remark="The paper's figure is a diagram without a network. This is U-Net's layer graph, with FLOPs in place of a "
    "profile, within about half of what keeping everything takes. Here a plan runs as generated Python or is "
    "interpreted, so the new graph is drawn, not built.",
    compute=figure_2,
    words=words,
)
