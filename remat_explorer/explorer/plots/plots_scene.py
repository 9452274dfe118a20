"""What the explorer's figure shows of a state: traces and layout; what is dear to compute is kept while it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat_explorer.explorer.plots.plots_layout import arrange
from remat_explorer.explorer.state.state import State
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.memory_stack import LAYERS, Stack, stack
from remat_explorer.figures.memory_timeline import (
    Hits,
    Reach,
    hit_trace,
    hits,
    layer_traces,
    line_traces,
    measured_bytes,
)
from remat_explorer.figures.tradeoff import Extent, curve_traces, pointer_traces, points_of
from remat_explorer.solution import Solution
from remat_explorer.solvers import Frontier

HITS = len(LAYERS) + 4  # index of the trace that can be pointed at: behind the layers and four lines
FIXED = HITS + 1 + 2 + 3  # traces that are always there; the strategies' come behind them
Trace = dict[str, Any]


@dataclass(frozen=True)
class Spot:
    """Where the schedule on the screen is: peak in bytes, cost as a ratio to computing everything once."""

    peak: int
    overhead: float


class PlotsScene:
    """Traces and layout of one state after another."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._layers: Stack | None = None
        self._hits: Hits | None = None
        self._frontier: Frontier | None = None
        self._best_only = True

    def compose(self, state: State) -> tuple[list[Trace], dict[str, Any]]:
        """Traces and layout for a state that has a schedule."""
        plan, schedule, theme = state.plan, state.schedule, state.theme
        assert plan is not None
        assert schedule is not None
        budget, frontier = state.shown_budget or None, state.frontier
        other_plan = state.other.plan if state.other else None
        layers = self._keep("layers", (plan,), lambda: stack(plan))
        other = self._keep("other", (other_plan,), lambda: stack(other_plan) if other_plan else None)
        measurement = state.measurement
        measured = self._keep("measured", (layers, measurement), lambda: measured_bytes(layers, measurement))
        reach = Reach.of(layers, budget, measured, other)
        places = self._keep("hits", (layers, reach.top), lambda: hits(layers, reach.top))
        self._layers, self._hits, self._frontier = layers, places, frontier
        timeline = [
            *self._keep("stack", (layers, reach.axis, theme), lambda: layer_traces(layers, reach.axis, theme)),
            *line_traces(layers, reach.axis, budget, measured, other, theme),
            self._keep("said", (places, reach.axis, measured), lambda: hit_trace(layers, places, reach.axis, measured)),
        ]
        spot = Spot(plan.peak, schedule.overhead)
        self._best_only = best_only = not state.methods
        extent = Extent.around(frontier, budget, spot, measurement, best_only=best_only)
        asked = (frontier, extent, theme, best_only)
        curve = self._keep("curve", asked, lambda: curve_traces(*asked))
        if frontier is not None and frontier.points:
            pointers = pointer_traces(extent, budget, spot, measurement, theme)
        else:
            pointers = pointer_traces(extent, theme=theme)
        timeline[HITS - 1]["name"] = "budget"  # the field above has the number, and the names fit into one row
        right = {"xaxis": "x2", "yaxis": "y2"}
        traces = [{**trace, **right, "legend": "legend"} for trace in timeline[: len(LAYERS)]]
        traces += [{**trace, **right, "legend": "legend2"} for trace in timeline[len(LAYERS) :]]
        left = {"xaxis": "x", "yaxis": "y"}
        traces += [{**trace, **left, "showlegend": False} for trace in (*curve[:2], *pointers, *curve[2:])]
        return traces, arrange(frontier, extent, reach, theme)

    def span(self, stage: int) -> tuple[float, float]:
        """Where a stage is on the timeline that is drawn."""
        return self._layers.span(stage) if self._layers else (0.0, 0.0)

    @property
    def places(self) -> int:
        """How many places of the timeline can be pointed at."""
        return len(self._hits.x) if self._hits else 0

    def pointed(self, place: int) -> int:
        """The stage of a place on the timeline."""
        assert self._layers is not None
        assert self._hits is not None
        return self._hits.stage(self._layers, min(place, len(self._hits.x) - 1))

    def solution(self, strategy: str, point: int) -> Solution | None:
        """The solution that a point of the trade-off curve stands for."""
        points = points_of(self._frontier, strategy, self._best_only) if self._frontier else ()
        return points[point] if point < len(points) else None

    def _keep(self, name: str, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """What was computed last time if nothing that it depends on has changed."""
        kept = self._kept.get(name)
        if kept is None or not all(_same(old, new) for old, new in zip(kept[0], key, strict=True)):
            kept = self._kept[name] = (key, compute())
        return kept[1]


def _same(old: Any, new: Any) -> bool:
    """Plans and arrays are the same when they are one; small things when they are equal."""
    return old is new or (isinstance(new, str | float | Extent | ByteAxis) and old == new)
