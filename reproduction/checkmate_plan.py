"""Checkmate's Figures 2 and 4 on real graphs: what each part of the system hands on, and what is freed when.

Figure 2: the forward and backward graph with its costs and bytes, the schedule that problem (9) has within the budget,
the plan of Algorithm 1, and the new training graph that the plan is: a node for each computation, repeated ones too.

Figure 4: FREE[t,i,k] of (5) is 1 where operation k runs in stage t, value i is not kept for the next stage, and no
later operation of the stage reads it. Theorem 4.1 says that no value is freed twice; without the last factor of (5) it
is.

Source: Jain et al., Checkmate (MLSys 2020), Figure 2, sections 4.4 and 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES, checkpoint_all_peak, solve
from reproduction.drawing import dressed
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, progress_listener
from reproduction.layer_graphs import layer_graph

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


NETWORK, BATCH = "U-Net", 32
GB = 10**9
BUDGET = 11 * GB  # about half of what keeping everything takes
FIGURE_2_SECONDS: dict[Settings, float] = {"small": 5.0, "full": 60.0}
FORWARD, AGAIN, BACKWARD = "forward", "computed again", "backward"
HEIGHTS = {FORWARD: 2.0, AGAIN: 1.0, BACKWARD: 0.0}
BEND = 0.5  # of a line over the points between its ends


def figure_2(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """U-Net within about half of its memory: graph, schedule, plan, and the graph that is trained."""
    graph = layer_graph(NETWORK, BATCH)
    hear = progress_listener(progress, f"{NETWORK} at {BUDGET // GB} GB")
    best = solve(graph, BUDGET, time_limit=FIGURE_2_SECONDS[settings], on_progress=hear, cancelled=cancelled)
    rows = [
        {"step": "training graph", "operations": graph.n, "edges": edges(graph), "peak": checkpoint_all_peak(graph)}
    ]
    if best.schedule is not None:
        rows += rows_of(best.schedule, best.gap)
    schedule = best.schedule
    return Outcome(
        figure_2_words(rows, settings), tuple(rows), lambda: _draw_figure_2(graph, schedule, rows), not cancelled()
    )


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


def figure_2_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
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


def _draw_figure_2(graph: Graph, schedule: Schedule | None, rows: Sequence[Mapping[str, Any]]) -> Figure:
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


FIGURE_2 = Item(
    key="checkmate-figure-2",
    paper="Checkmate",
    place="Figure 2",
    title="the parts of the system, and what each hands on",
    notebook="04_the_integer_program.ipynb",
    function="reproduction.checkmate_plan.rows_of",
    test="tests/reproduction/test_items.py",
    published="the training graph is extracted, problem (9) solved, and the plan made a new static training graph "
    "(Figure 2, section 6.2)",
    remark="The paper's figure is a diagram without a network. This is U-Net's layer graph, with FLOPs in place of a "
    "profile, within about half of what keeping everything takes. Here a plan runs as generated Python or is "
    "interpreted, so the new graph is drawn, not built.",
    compute=figure_2,
    words=figure_2_words,
)


NETWORKS: dict[Settings, tuple[str, ...]] = {"small": ("U-Net",), "full": ("U-Net", "SegNet", "ResNet50")}
SHOWN = "U-Net"  # the network that is drawn
SCHEDULE = "checkpoint-last"  # every stage computes all that it needs, so that there is much to free


def figure_4(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """One stage of U-Net statement by statement, and (5) counted over all stages of each network."""
    steps: list[dict[str, Any]] = []
    counts: list[dict[str, Any]] = []
    candidates = STRATEGIES[SCHEDULE].candidates
    assert candidates is not None
    for name in NETWORKS[settings]:
        if cancelled():
            break
        progress(f"{name}: counting what is freed")
        schedule = next(iter(candidates(layer_graph(name, BATCH)))).schedule
        counts.append(count_of(name, schedule))
        if name == SHOWN:
            steps = steps_of(schedule, telling_stage(schedule))
    rows = [*counts, *steps]
    return Outcome(
        figure_4_words(rows, settings),
        tuple(rows),
        lambda: _draw_figure_4(steps),
        len(counts) == len(NETWORKS[settings]),
    )


def frees(schedule: Schedule, last_factor: bool = True) -> np.ndarray:
    """FREE of (5) for values and the operations that read them, bool of shape (stages, values, n).

    Args:
        schedule: of a graph with one implementation for each operation.
        last_factor: whether a value stays where a later operation of the stage reads it.

    >>> candidates = STRATEGIES["checkpoint-last"].candidates(layer_graph("U-Net"))
    >>> schedule = next(iter(candidates)).schedule
    >>> [int(frees(schedule, last).sum(axis=2).max()) for last in (True, False)]
    [1, 3]
    """
    graph, R = schedule.graph, schedule.R > 0
    kept = np.vstack([schedule.S[1:] > 0, np.zeros((1, len(graph.values)), dtype=bool)])
    FREE = np.zeros((schedule.stages, len(graph.values), graph.n), dtype=bool)
    for i, readers in enumerate(graph.readers):
        for k in readers:
            FREE[:, i, k] = R[:, k] & ~kept[:, i]
            if last_factor:
                FREE[:, i, k] &= ~R[:, [j for j in readers if j > k]].any(axis=1)
    return FREE


def count_of(network: str, schedule: Schedule) -> dict[str, Any]:
    """How often each value is freed in a stage at most, by (5) and without its last factor."""
    by_factor = [frees(schedule, last).sum(axis=2) for last in (True, False)]
    row = {"network": network, "stages times values": int(by_factor[0].size), "freed": int(by_factor[0].sum())}
    row |= {"times at most": int(by_factor[0].max()), "without the last factor": int(by_factor[1].max())}
    return row | {"freed twice without it": int((by_factor[1] > 1).sum())}


def telling_stage(schedule: Schedule) -> int:
    """The shortest stage with an operation after which one input is freed and another waits for a later operation."""
    FREE, graph, R = frees(schedule), schedule.graph, schedule.R > 0
    kept = np.vstack([schedule.S[1:] > 0, np.zeros((1, len(graph.values)), dtype=bool)])
    told = np.zeros(schedule.stages, dtype=bool)
    for k in range(graph.n):
        freed = FREE[:, list(graph.inputs(k)), k]
        waits = ~freed & ~kept[:, list(graph.inputs(k))]
        told |= R[:, k] & freed.any(axis=1) & waits.any(axis=1)
    return int(np.where(told, R.sum(axis=1), graph.n + 1).argmin())


def steps_of(schedule: Schedule, t: int) -> list[dict[str, Any]]:
    """One row for each operation that a stage computes: U[t,k], what is freed after it, and which inputs stay."""
    graph, FREE = schedule.graph, frees(schedule)[t]
    rows = []
    for k in np.flatnonzero(schedule.R[t]).tolist():
        freed = [i for i in graph.inputs(k) if FREE[i, k]]
        stay = [i for i in graph.inputs(k) if not FREE[i, k]]
        row = {"network": SHOWN, "stage": t, "operation": graph.operations[k].name, "U": int(schedule.U[t, k])}
        row |= {"freed bytes": int(graph.value_bytes[freed].sum()), "freed": graph.names(freed)}
        rows.append(row | {"stays": graph.names(stay)})
    return rows


def figure_4_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The operation after which one input goes and another stays, and Theorem 4.1 in numbers; see `Item.words`."""
    steps, counts = [row for row in rows if "operation" in row], [row for row in rows if "stages times values" in row]
    told = []
    if both := [row for row in steps if row["freed"] and row["stays"]]:
        row = both[0]
        told.append(
            f"{SHOWN} at batch {BATCH}, stage {row['stage']}: {row['operation']} runs with {row['U'] / GB:.2f} GB in "
            f"use; after it {row['freed']} ({row['freed bytes'] / GB:.2f} GB) can be freed, {row['stays']} cannot."
        )
    for row in counts:
        told.append(
            f"{row['network']}: of {row['stages times values']} pairs of stage and value (5) frees {row['freed']}, "
            f"at most {row['times at most']} time each; without its last factor {row['freed twice without it']} would "
            f"be freed again."
        )
    return " ".join(told) or "No network was reached before the run was cancelled."


def _draw_figure_4(steps: Sequence[Mapping[str, Any]]) -> Figure:
    from plotly import graph_objects as go

    from remat_explorer.figures.palette import palette

    colours = palette("light")
    names = [row["operation"] for row in steps]
    left = [(row["U"] - row["freed bytes"]) / GB for row in steps]
    freed = [row["freed bytes"] / GB for row in steps]
    figure = go.Figure()
    figure.add_bar(x=names, y=left, name="still in use after it", marker_color=colours.hues[0])
    figure.add_bar(
        x=names,
        y=freed,
        name="freed after it",
        marker={"color": colours.ground, "line": {"color": colours.hues[0], "width": 2}, "pattern": {"shape": "/"}},
        text=[row["freed"].replace("'", "").replace(", ", ",<br>") for row in steps],
        textposition="outside",
        textangle=0,
        constraintext="none",
        cliponaxis=False,
    )
    stage = f" of stage {steps[0]['stage']} of {SHOWN}" if steps else ""
    figure.update_xaxes(type="category", title_text=f"operations{stage}, in order")
    figure.update_yaxes(title_text="memory in use while it runs (GB)")
    figure.update_layout(barmode="stack")
    return dressed(figure)


FIGURE_4 = Item(
    key="checkmate-figure-4",
    paper="Checkmate",
    place="Figure 4",
    title="what can be freed after an operation, and Theorem 4.1",
    notebook="04_the_integer_program.ipynb",
    function="reproduction.checkmate_plan.frees",
    test="tests/reproduction/test_items.py",
    published="after an operation those of its dependencies can be freed that no later operation reads (Figure 4); "
    "no value is freed twice in a stage (section 4.4)",
    remark="The paper's figure is a diagram; this is a stage of the schedule that keeps nothing between stages but "
    "what it must. The bars are U, in which a checkpoint that the stage does not read stays to its end. Values of "
    "U-Net are called v0, v1 and so on, as the operations that write them.",
    compute=figure_4,
    words=figure_4_words,
)
