"""Checkmate's Figure 4 on a real graph: what is in use while each operation of a stage runs, and what is freed then.

FREE[t,i,k] of (5) is 1 where operation k runs in stage t, value i is not kept for the next stage, and no later
operation of the stage reads it. Theorem 4.1 says that no value is freed twice; without the last factor of (5) it is.

Source: Jain et al., Checkmate (MLSys 2020), section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.papers.drawing import dressed
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import layer_graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NETWORKS: dict[Settings, tuple[str, ...]] = {"small": ("U-Net",), "full": ("U-Net", "SegNet", "ResNet50")}
SHOWN, BATCH = "U-Net", 32  # the network that is drawn
SCHEDULE = "checkpoint-last"  # every stage computes all that it needs, so that there is much to free
GB = 10**9


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
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(steps), len(counts) == len(NETWORKS[settings]))


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


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
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


def _draw(steps: Sequence[Mapping[str, Any]]) -> Figure:
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


ITEM = Item(
    key="checkmate-figure-4",
    paper="Checkmate",
    place="Figure 4",
    title="what can be freed after an operation, and Theorem 4.1",
    notebook="04_the_integer_program.ipynb",
    function="remat_explorer.papers.checkmate.figure_4.frees",
    test="tests/papers/test_items.py",
    published="after an operation those of its dependencies can be freed that no later operation reads (Figure 4); "
    "no value is freed twice in a stage (section 4.4)",
    remark="The paper's figure is a diagram; this is a stage of the schedule that keeps nothing between stages but "
    "what it must. The bars are U, in which a checkpoint that the stage does not read stays to its end. Values of "
    "U-Net are called v0, v1 and so on, as the operations that write them.",
    compute=figure_4,
    words=words,
)
