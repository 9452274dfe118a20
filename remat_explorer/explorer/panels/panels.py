"""The panel beside the plots: small tabs, the chosen panel, and a legend of terms, colours, controls and strategies."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from remat_explorer.explorer.panels.compare_panel import ComparePanel
from remat_explorer.explorer.panels.edit_panel import EditPanel
from remat_explorer.explorer.panels.execution_panel import ExecutionPanel
from remat_explorer.explorer.panels.explain_panel import ExplainPanel
from remat_explorer.explorer.panels.fit_panel import FitPanel
from remat_explorer.explorer.panels.implementation_panel import ImplementationPanel
from remat_explorer.explorer.panels.plan_panel import PeakPanel, PlanPanel
from remat_explorer.explorer.panels.side_panel import Clickable, colours, table, text
from remat_explorer.explorer.panels.solver_panel import SolverPanel
from remat_explorer.explorer.state.state import PANELS, State
from remat_explorer.solvers import STRATEGIES, table_one_row

TABS: dict[str, tuple[str, str]] = {
    "fit": (
        "Fit",
        "Whether a training step fits into a memory, with which optimizer, and how large it may be",
    ),
    "explain": (
        "Explain",
        "Why the selected value is or is not in memory in the selected stage, and which operation produces it",
    ),
    "plan": ("Plan", "What is computed and freed around the selected stage, statement by statement"),
    "peak": (
        "At the peak",
        "What is in memory where it is highest, largest first, and which operations need each value",
    ),
    "ways": ("Ways", "The implementations of the selected operation: time, workspace, and which of them run"),
    "solver": ("Solver", "Best schedule, lower bound and gap of the last solve, over time"),
    "compare": ("Compare", "This schedule compared with another one: cost, peak, and the cells that differ"),
    "edit": ("Edit", "Keep and drop values by hand, and see how far your schedule is from the best that is known"),
    "execution": ("Execution", "Predicted and measured memory, time and gradients of the last execution"),
}
LEGEND = "What the letters, colours and controls mean, and the strategies of Table 1"
TERMS: dict[str, str] = {
    "stage t": "A row of the matrices: stage t is the first to compute operation t, after whatever it computes again.",
    "R": "R[t, k] is set where stage t computes operation k: on the diagonal for the first time, left of it again.",
    "S": "S[t, v] is set where value v is kept in memory from stage t − 1 into stage t: a checkpoint.",
    "U": "U[t, k] is the memory in use while stage t computes operation k, with parameters, inputs and workspace.",
    "value": "One tensor's storage; views of it are the same value.",
    "statement": "A step of the plan: compute an operation, or free a value as soon as nothing needs it any more.",
    "resident": "Bytes that are always there: parameters, inputs and buffers.",
    "workspace": "Memory that an operation needs only while it runs.",
    "budget": "Bytes that memory may never exceed, resident bytes included.",
    "peak": "The highest memory along the plan; predicted until it is executed, then also measured.",
    "overhead": "Extra cost of recomputing, as a share of computing everything once.",
    "lower bound": "No schedule within the budget costs less than this; it is proven.",
    "gap": "Share of the best cost that the proof leaves open: (cost − lower bound) / cost; 0 means optimal.",
    "keep everything": "Checkpoint-all: the schedule that keeps every value until its last use, as PyTorch does.",
}
COLOURS: dict[str, tuple[str, str]] = {
    "blue": ("forward", "computed for the first time, in the forward pass"),
    "green": ("backward", "computed for the first time, in the backward pass"),
    "orange": ("recompute", "computed again; nothing else is orange"),
    "red": ("over", "memory above the budget; cells of U that nearly fill it are outlined"),
    "black": ("predicted", "predicted memory, and keeping everything"),
    "dark blue": ("kept", "kept in memory"),
    "pink": ("cursor", "the selected stage and value"),
}
CONTROLS: dict[str, str] = {
    "Model; More: Batch, Image": "The model to train and the size of its inputs; a change captures the graph again.",
    "Device": "Where costs are measured and schedules executed.",
    "Costs": "Measured on the device, or estimated from operations and bytes.",
    "Strategy": "The method that makes the schedule; see the table below.",
    "Solver, Limit": "The program that solves integer programs, and the seconds that a solve may take.",
    "Implementations": "Other ways to compute operations, among which a strategy may choose; a toggle for each kind.",
    "Budget": 'Bytes, "1.5 GiB", or "60%" of the peak of keeping everything; you can click the marks.',
    "Present": "Shows scenes of the model one after another, in large type; Page down goes on, Escape ends.",
    "Solve, Cancel, Execute": "Find a schedule; stop with the best one found; run it and measure.",
    "Edit": "Lets you keep and drop values in S by hand; what is computed again follows.",
    "Stage": "Moves through the stages; in the matrices, the arrow keys move stage and value.",
    "Model, tanks": "What is in memory at each computation, here and with keeping everything; the rim is the budget. "
    "The slider, comma and full stop go from one computation to the next; Space plays.",
}
VIEWS = (
    FitPanel,
    ExplainPanel,
    PlanPanel,
    PeakPanel,
    ImplementationPanel,
    SolverPanel,
    ComparePanel,
    EditPanel,
    ExecutionPanel,
)


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


def legend_html() -> str:
    """Terms, colours, controls, and Table 1 of the Checkmate paper with every strategy here.

    >>> "checkpoint-all" in legend_html()
    True
    """
    colours = [
        [f'<i class="swatch" style="background:var(--{name})"></i> {text(colour)}', text(meaning)]
        for colour, (name, meaning) in COLOURS.items()
    ]
    return "".join(
        [
            "<h4>Terms</h4>",
            table([[f"<b>{text(term)}</b>", text(meaning)] for term, meaning in TERMS.items()], kind="facts"),
            "<h4>Colours</h4>",
            table(colours, kind="facts"),
            "<h4>Controls</h4>",
            table([[f"<b>{text(name)}</b>", text(meaning)] for name, meaning in CONTROLS.items()], kind="facts"),
            "<h4>Strategies (Checkmate, Table 1)</h4>",
            table(_strategies(), ("strategy", "any graph", "costs", "memory", "what it does"), "strategies"),
        ]
    )


def _strategies() -> list[list[str]]:
    rows = []
    for name, method in STRATEGIES.items():
        line = table_one_row(method)
        aware = [text(entry) for entry in (line.general_graphs, line.cost_aware, line.memory_aware)]
        rows.append([f"<b>{text(name)}</b>", *aware, text(line.describe())])
    return rows
