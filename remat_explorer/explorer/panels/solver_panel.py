"""The solver as it works: best schedule, lower bound and gap over time."""

from __future__ import annotations

from typing import Any

from remat_explorer.explorer.panels.markup import note, table, text
from remat_explorer.explorer.panels.progress_chart import progress_svg
from remat_explorer.explorer.panels.side_panel import SidePanel
from remat_explorer.explorer.state.state import State
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.solution import relative_gap

BEFORE = "Press Solve to see how the best schedule and the lower bound meet."


class SolverPanel(SidePanel):
    """The history of the last solve, and what came of it."""

    name, title = "solver", "Progress of the solver"
    traits = ("history", "busy", "answer", "graph", "status")

    def html(self) -> str:
        return solver_html(self.state)

    def _changed(self, change: Any) -> None:
        if change["name"] == "status" and self.state.busy != "solving":
            return
        super()._changed(change)


def solver_html(state: State) -> str:
    """The chart, the figures it ends with, and the phase or the outcome."""
    graph, history, answer, solving = state.graph, state.history, state.answer, state.busy == "solving"
    if graph is None or not (history or answer or solving):
        return note(BEFORE)
    costs = [moment.cost for moment in history if moment.cost is not None]
    bounds = [moment.lower_bound for moment in history if moment.lower_bound is not None]
    cost, bound = (min(costs) if costs else None), (max(bounds) if bounds else None)
    seconds = history[-1].seconds if history else 0.0
    if answer is not None and not solving:
        cost, bound, seconds = answer.cost, answer.lower_bound, answer.seconds
    gap = relative_gap(cost, bound)
    total = graph.total_cost
    figures = [
        ['<i class="key incumbent"></i>best schedule', _overhead(cost, total)],
        ['<i class="key bound"></i>lower bound', _overhead(bound, total)],
        ["gap", "not known yet" if gap is None else format_share(gap)],
        ["time", format_seconds(seconds)],
    ]
    rows = [[*figures[0], *figures[1]], [*figures[2], *figures[3]]]
    chart = progress_svg(history, total, seconds) or note("No schedule and no bound were reported on the way.")
    return f'<p class="head">{_phase(state, solving)}</p>{chart}{table(rows, kind="figures")}'


def _phase(state: State, solving: bool) -> str:
    if solving:
        return text(state.status)
    answer = state.answer
    if answer is None:
        return "<b>The last solve</b>"
    solver = f", {answer.solver}" if answer.solver else ""
    within = f"{text(answer.strategy + solver)}, within {format_bytes(answer.budget)}"
    return f"<b>{text(str(answer.status).capitalize())}</b>: {within}"


def _overhead(cost: float | None, total: float) -> str:
    if cost is None:
        return "none yet"
    return format_overhead(cost / total if total else 1.0)
