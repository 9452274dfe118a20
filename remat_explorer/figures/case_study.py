"""A schedule beside others, layer by layer: where memory is saved, and what that costs.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), Figure 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.explanations import kept_bytes
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.layers import costs_of, layers_of
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.plain_text import in_figure
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


MOST_NAMES = 40  # of layers on an axis; of more the names are told by hovering
HEIGHT_OF_MEMORY, HEIGHT_OF_A_NAME, HEIGHT_BETWEEN, HEIGHT_OUTSIDE = 220, 22, 90, 130  # pixels
UNSEEN = 1e-9  # of the largest bar: what is smaller is an error of rounding


@dataclass(frozen=True, eq=False)
class CaseStudy:
    """What the case study shows of one schedule against others.

    Attributes:
        layers: names, in the order of the forward pass.
        memory: for each schedule, the one looked at first, its highest memory in each stage, bytes.
        saved: for each other schedule, bytes by layer that it leaves to the backward pass and the first does not.
        overhead: for each other schedule, cost by layer that the first takes more, as a share of one pass.
    """

    layers: tuple[str, ...]
    memory: Mapping[str, np.ndarray]
    saved: Mapping[str, np.ndarray]
    overhead: Mapping[str, np.ndarray]


def case_study_of(name: str, schedule: Schedule, others: Mapping[str, Schedule]) -> CaseStudy:
    """The numbers of a case study.

    Args:
        name: of the schedule that is looked at.
        schedule: what is looked at.
        others: what it is compared with, by name; frontier-advancing schedules of the same graph.

    Raises:
        ScheduleError: if another schedule is one of another graph.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> keep = solve(linear(8), "100%", "checkpoint-all").schedule
    >>> study = case_study_of("optimal", solve(linear(8), 4).schedule, {"eager": keep})
    >>> [int(line.max()) for line in study.memory.values()], float(study.overhead["eager"].sum().round(3))
    ([4, 10], 0.529)
    """
    graph = schedule.graph
    for other_name, other in others.items():
        if other.graph.structure != graph.structure:
            raise ScheduleError(f"{other_name!r} is a schedule of another graph, {other.graph.name!r}: compare on one")
    layers, total = layers_of(graph), graph.total_cost or 1.0
    mine, my_costs = layers.sums(kept_bytes(schedule)), layers.sums(costs_of(schedule))
    return CaseStudy(
        layers.names,
        {key: memory_in_stages(one) for key, one in {name: schedule, **others}.items()},
        {key: layers.sums(kept_bytes(other)) - mine for key, other in others.items()},
        {key: (my_costs - layers.sums(costs_of(other))) / total for key, other in others.items()},
    )


def memory_in_stages(schedule: Schedule) -> np.ndarray:
    """The highest memory of the plan in each stage, bytes, int64 of shape (stages,).

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> memory_in_stages(keep).tolist()
    [1, 2, 3]
    """
    timeline = Plan.of(schedule).timeline
    highest = np.zeros(schedule.stages, dtype=np.int64)
    np.maximum.at(highest, timeline.stage, timeline.during)
    return highest


def colours_of(names: list[str], theme: Theme = "light") -> dict[str, str]:
    """A colour for each schedule of a case study: the one looked at first, plain execution in grey.

    >>> colours_of(["here", "eager", "optimal"])
    {'here': '#0072B2', 'eager': '#B5B5B5', 'optimal': '#882255'}
    """
    colours = palette(theme)
    hues = iter([colours.kept, *colours.hues[1:]])
    return {name: colours.resident if name == "eager" else next(hues, colours.ink) for name in names}


def case_study(
    name: str,
    schedule: Schedule,
    others: Mapping[str, Schedule],
    budget: int | None = None,
    theme: Theme = "light",
) -> Figure:
    """Memory along the execution, and below it, for each layer that differs, memory saved and overhead.

    Lines that coincide stay visible, since the schedule looked at is a thin line on broad ones.

    Args:
        name, schedule, others: as for `case_study_of`; a schedule called "eager" is drawn in grey.
        budget: bytes, drawn as a line, or None.
        theme: ground of the figure, "light" or "dark".

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> keep = solve(linear(8), "100%", "checkpoint-all").schedule
    >>> figure = case_study("optimal", solve(linear(8), 4).schedule, {"eager": keep}, budget=4)
    >>> [(trace.type, trace.name) for trace in figure.data]
    [('scatter', 'eager'), ('scatter', 'optimal'), ('bar', 'against eager'), ('bar', 'against eager')]
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    study, colours = case_study_of(name, schedule, others), palette(theme)
    hues = colours_of(list(study.memory), theme)
    axis = ByteAxis.up_to(max(budget or 0, *(int(line.max()) for line in study.memory.values())))
    shown = differing(study)
    named = len(shown) <= MOST_NAMES
    heights = [
        HEIGHT_OF_MEMORY,
        max(HEIGHT_OF_MEMORY // 2, HEIGHT_OF_A_NAME * len(shown)) if named else 2 * HEIGHT_OF_MEMORY,
    ]
    layers = f"the {len(shown)} of {len(study.layers)} layers that differ"
    figure: Any = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[height / sum(heights) for height in heights],
        vertical_spacing=HEIGHT_BETWEEN / (sum(heights) + HEIGHT_BETWEEN),
        horizontal_spacing=0.04,
        shared_yaxes=True,
        subplot_titles=("", f"memory saved by {layers}", "overhead of each"),
    )
    for key in [*others, name]:
        line = study.memory[key]
        look = {"color": hues[key], "shape": "hv", "width": 2 if key == name else 5}
        trace = go.Scatter(x=np.arange(len(line)), y=line / axis.bytes, name=key, mode="lines", legendgroup=key)
        figure.add_trace(trace.update(line=look), 1, 1)
    if budget:
        figure.add_hline(budget / axis.bytes, line={"color": colours.budget, "dash": "dash"}, row=1, col=1)
    for column, amounts, scale in ((1, study.saved, 1 / axis.bytes), (2, study.overhead, 100.0)):
        for key, bars in amounts.items():
            bar = go.Bar(
                x=scale * bars[shown],
                y=[in_figure(study.layers[i]) for i in shown],
                orientation="h",
                name=f"against {key}",
                marker={"color": hues[key], "line": {"width": 0}},  # lines would cover thin bars
            )
            figure.add_trace(bar.update(legendgroup=key, showlegend=False), 2, column)
    figure.update_xaxes(gridcolor=colours.grid, zeroline=False).update_yaxes(gridcolor=colours.grid, zeroline=False)
    figure.update_xaxes(title_text="stage", row=1, col=1)
    figure.update_yaxes(title_text=f"highest in the stage ({axis.unit})", rangemode="tozero", row=1, col=1)
    for column, title in ((1, axis.unit), (2, "% of one pass")):
        figure.update_xaxes(title_text=title, zeroline=True, row=2, col=column)
        figure.update_yaxes(autorange="reversed", showticklabels=named and column == 1, row=2, col=column)
    figure.update_layout(
        title=in_figure(schedule.graph.name),
        height=sum(heights) + HEIGHT_BETWEEN + HEIGHT_OUTSIDE,
        margin={"t": 80, "b": HEIGHT_OUTSIDE - 80},
        bargap=0.2 if named else 0,
        **colours.look,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
    )
    return figure


def differing(study: CaseStudy) -> list[int]:
    """Numbers of the layers with a bar: something is saved or paid there.

    >>> import numpy as np
    >>> study = CaseStudy(("a", "b"), {}, {"eager": np.array([0, 4])}, {"eager": np.array([0.0, 0.1])})
    >>> differing(study)
    [1]
    """
    differs = np.zeros(len(study.layers), dtype=bool)
    for bars in (*study.saved.values(), *study.overhead.values()):
        differs |= np.abs(bars) > UNSEEN * np.abs(bars).max(initial=0.0)
    return np.flatnonzero(differs).tolist()
