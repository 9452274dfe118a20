"""The panel beside what runs twice: four tabs, the rest behind "more", and what terms, colours and controls mean."""

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
    "explain": (
        "Why",
        "Why the selected value is or is not in memory in the selected stage, and which operation produces it",
    ),
    "peak": (
        "Peak",
        "What is in memory where it is highest, largest first, and which operations need each value",
    ),
    "compare": ("Compare", "This schedule compared with another one: cost, peak, and the cells that differ"),
    "execution": ("Run", "Predicted and measured memory, time and gradients of the last run"),
    "plan": ("Plan", "What is computed and freed around the selected stage, statement by statement"),
    "ways": ("Ways", "The implementations of the selected operation: time, workspace, and which of them run"),
    "solver": ("Solver", "Best schedule, lower bound and gap of the last solve, over time"),
    "fit": (
        "Fit",
        "Whether a training step fits into a memory, with which optimizer, and how large it may be",
    ),
    "edit": ("Edit", "Keep and drop values by hand, and see how far your schedule is from the best that is known"),
}
FIRST = 4  # panels with a tab; the others are behind "more"
TERMS_PANEL = "terms"
LEGEND = "Terms"
MORE = "Plan, ways, solver, fit, edit, and what terms, colours and controls mean"
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
    "keep everything": "The schedule that keeps every value until its last use, as PyTorch does (checkpoint-all).",
    "proven best": "No schedule within the budget costs less: cost and lower bound are equal.",
}
COLOURS: dict[str, tuple[str, str]] = {
    "blue": ("forward", "computed for the first time, in the forward pass"),
    "green": ("backward", "computed for the first time, in the backward pass"),
    "orange": ("recompute", "computed again; nothing else is orange"),
    "indigo": ("sent", "sent to the host, and back from it"),
    "red": ("over", "memory above the budget; cells of U that nearly fill it are outlined; computing waits for a copy"),
    "black": ("predicted", "predicted memory, and keeping everything"),
    "dark blue": ("kept", "kept in memory"),
    "pink": ("cursor", "the selected value; the stage is grey"),
}
CONTROLS: dict[str, str] = {
    "Model, batch": "What to train, and how many examples at once; a change captures the graph again.",
    "Curve": "The least extra time for each budget; drag along it. In the shadow no schedule lies: that is proven.",
    "Budget": 'Bytes, "1.5 GiB", or "60%" of the peak of keeping everything.',
    "Find the best": "Looks for the cheapest schedule within the budget, until it is proven, or you cancel.",
    "Run it": "Runs the schedule on the screen, and measures memory, time and gradients.",
    "Send away": "Lets values travel to the host, over a link or at a bandwidth; then a slider changes the bandwidth.",
    "⋯": "Strategy, limits, device, costs, implementations; other methods on the curve; present, and save.",
    "Runs twice": "What is computed again: point at a row to see it in every picture, click to select it.",
    "Stage": "Moves through the stages; in the pictures, the arrow keys move stage and value.",
    "Edit": "Keep and drop values in S by hand, in Matrices; what is computed again follows.",
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
        first, others = PANELS[:FIRST], PANELS[FIRST:]
        self.tabs = w.ToggleButtons(
            options=[(TABS[name][0], name) for name in first],
            tooltips=[TABS[name][1] for name in first],
            style={"button_width": "auto"},
        )
        entries = [("more", ""), *((TABS[name][0], name) for name in others), (LEGEND, TERMS_PANEL)]
        room = w.Layout(width="92px")
        self.others = w.Dropdown(options=entries, value="", description="More panels", tooltip=MORE, layout=room)
        self.others.add_class("remat-unlabelled")
        self._meanings = Clickable(lambda click: None, "What the terms mean")
        self._body = w.Box(layout=w.Layout(flex="1 1 0", min_height="0", width="100%"))
        bar = w.HBox([self.tabs, self.others])
        bar.add_class("remat-tabs")
        self.widget = w.VBox([bar, self._body])
        self.widget.add_class("remat-side")
        self.tabs.observe(self._choose, "value")
        self.others.observe(self._choose, "value")
        state.observe(self._show, ["panel", "legend", "theme"])
        self._show()

    def _choose(self, change: Any) -> None:
        chosen = change["new"]
        if chosen == TERMS_PANEL:
            self._state.legend = True
        elif chosen:
            self._state.legend = False
            self._state.panel = chosen

    def _show(self, change: Any = None) -> None:
        state = self._state
        chosen = TERMS_PANEL if state.legend else state.panel
        is_first = chosen in PANELS[:FIRST]
        self.tabs.value = chosen if is_first else None  # so that any tab leaves the others
        self.others.value = "" if is_first else chosen
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
