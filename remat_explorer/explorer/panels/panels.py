"""The panel beside the plots: small tabs, the chosen panel, and a legend."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from remat_explorer.explorer.panels.clickable import Clickable
from remat_explorer.explorer.panels.compare_panel import ComparePanel
from remat_explorer.explorer.panels.edit_panel import EditPanel
from remat_explorer.explorer.panels.execution_panel import ExecutionPanel
from remat_explorer.explorer.panels.explain_panel import ExplainPanel
from remat_explorer.explorer.panels.fit_panel import FitPanel
from remat_explorer.explorer.panels.help import LEGEND, TABS, legend_html
from remat_explorer.explorer.panels.markup import colours
from remat_explorer.explorer.panels.peak_panel import PeakPanel
from remat_explorer.explorer.panels.plan_panel import PlanPanel
from remat_explorer.explorer.panels.solver_panel import SolverPanel
from remat_explorer.explorer.panels.ways_panel import WaysPanel
from remat_explorer.explorer.state.state import PANELS, State

VIEWS = (FitPanel, ExplainPanel, PlanPanel, PeakPanel, WaysPanel, SolverPanel, ComparePanel, EditPanel, ExecutionPanel)


class Panels:
    """Keeps the tabs and the state's panel together, and shows the panel that is chosen."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.views = {kind.name: kind(state) for kind in VIEWS}
        self.tabs = w.ToggleButtons(
            options=[(TABS[name][0], name) for name in PANELS],
            tooltips=[TABS[name][1] for name in PANELS],
            style={"button_width": "auto"},
        )
        self.legend = w.ToggleButton(description="?", tooltip=LEGEND, layout=w.Layout(width="24px"))
        self._meanings = Clickable(lambda click: None, "What the terms mean")
        self._body = w.Box(layout=w.Layout(flex="1 1 0", min_height="0", width="100%"))
        bar = w.HBox([self.tabs, self.legend])
        bar.add_class("remat-tabs")
        self.widget = w.VBox([bar, self._body])
        self.widget.add_class("remat-side")
        self.tabs.observe(self._choose, "value")
        self.legend.observe(lambda change: setattr(state, "legend", change["new"]), "value")
        state.observe(self._show, ["panel", "legend", "theme"])
        self._show()

    def _choose(self, change: Any) -> None:
        if change["new"] is not None:
            self._state.legend = False
            self._state.panel = change["new"]

    def _show(self, change: Any = None) -> None:
        state = self._state
        self.legend.value = state.legend
        self.tabs.value = None if state.legend else state.panel  # so that any tab leaves the legend
        if state.legend:
            style = colours(state.theme)
            self._meanings.html = f'<div class="remat-panel legend" style="{style}">{legend_html()}</div>'
        shown = self._meanings if state.legend else self.views[state.panel].widget
        if self._body.children != (shown,):
            self._body.children = (shown,)
