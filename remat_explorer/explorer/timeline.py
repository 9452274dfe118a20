"""The memory timeline: the one plotly figure of the explorer, alive."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import ipywidgets as w

from remat_explorer.explorer.state import State
from remat_explorer.figures.holdings import Holdings, holdings
from remat_explorer.figures.memory_timeline import memory_timeline, stage_span
from remat_explorer.plan import Plan

HEIGHT, WIDTH = 212, 690


class TimelineView:
    """Keeps the figure and the state's schedule, measurement, budget, stage and theme together."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._parts_of: tuple[Plan, Holdings] | None = None
        self._figure: Any = None
        # The first touch of plotly costs seconds, so the figure comes with the first schedule.
        self.widget = w.Box(
            layout=w.Layout(flex="0 0 auto", width=f"{WIDTH}px", height=f"{HEIGHT}px", overflow="hidden")
        )
        state.observe(self._draw, ["schedule", "measurement", "budget", "theme"])
        state.observe(self._move, "stage")
        self._draw()

    def _parts(self, plan: Plan) -> Holdings:
        if self._parts_of is None or self._parts_of[0] is not plan:
            self._parts_of = (plan, holdings(plan))
        return self._parts_of[1]

    def _draw(self, change: Any = None) -> None:
        state, plan = self._state, self._state.plan
        if plan is None:
            return
        drawn: Any = memory_timeline(plan, state.budget or None, state.measurement, state.stage, state.theme)
        drawn.update_layout(
            height=HEIGHT,
            width=WIDTH,
            font_size=11,
            paper_bgcolor="rgba(0,0,0,0)",
            margin={"l": 56, "r": 8, "t": 24, "b": 34},
            legend={"font_size": 10, "itemwidth": 30},
        )
        drawn.data[-1].name = "budget"  # the field above has the number, and seven entries fit into one row
        drawn.update_xaxes(title_standoff=4)
        drawn.update_yaxes(title_standoff=6, nticks=6)
        if self._figure is None:
            self._figure = live_figure(drawn)
            self._figure.data[4].on_click(self._clicked)  # a click on the predicted line selects its stage
            self.widget.children = (self._figure,)
            return
        with self._figure.batch_update():
            for shown, new in zip(self._figure.data, drawn.data, strict=True):
                shown.update(new.to_plotly_json(), overwrite=False)
            self._figure.layout.update(drawn.layout.to_plotly_json())

    def _move(self, change: Any = None) -> None:
        plan = self._state.plan
        if plan is None or self._figure is None:
            return
        x0, x1 = stage_span(self._parts(plan), self._state.stage)
        with self._figure.batch_update():
            self._figure.layout.shapes[0].update(x0=x0, x1=x1)

    def _clicked(self, trace: Any, points: Any, selector: Any) -> None:
        plan = self._state.plan
        if plan is None or not points.point_inds:  # plotly also calls for sibling traces, with no points
            return
        stages = self._parts(plan).stage
        self._state.stage = int(stages[min(points.point_inds[0], len(stages) - 1)])


def live_figure(figure: Any) -> Any:
    """``figure`` as a widget that survives a reload of the page.

    plotly freezes `_widget_data` and `_widget_layout` when it constructs the widget, so that a page that is loaded
    again would show the figure as it was in the beginning; they are refreshed whenever the whole state is asked for.
    """
    from plotly.graph_objects import FigureWidget

    class LiveFigure(FigureWidget):
        def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
            if key is None and "_widget_data" in self._trait_values and getattr(self, "_layout_obj", None) is not None:
                self._trait_values["_widget_data"] = deepcopy(self._data)
                self._trait_values["_widget_layout"] = deepcopy(self._layout_obj._props)
            return super().get_state(key=key, drop_defaults=drop_defaults)

    live = LiveFigure(figure)
    live._config = {"displaylogo": False, "displayModeBar": False, "responsive": False}
    return live
