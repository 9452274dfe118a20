"""The solver as it works: best schedule, lower bound and gap over time, as figures and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remat_explorer.explorer.panels.side_panel import SidePanel, note, table, text
from remat_explorer.explorer.state.state import HistoryPoint, State
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.solvers import Status, relative_gap

WIDTH, HEIGHT = 380, 112
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 8, 18  # margins
Step = tuple[float, float]  # seconds, overhead as a ratio
BEFORE = "Press Find the best to see how the best schedule and the lower bound meet."


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


def progress_svg(history: Sequence[HistoryPoint], total_cost: float, now: float = 0.0) -> str:
    """An inline SVG: incumbent and bound as steps over time, as overheads; "" where nothing is known yet.

    Args:
        history: what the solve reported, in order.
        total_cost: cost of computing everything once.
        now: seconds up to which the last step goes on, if later than the last moment.
    """
    incumbents = _steps(history, "cost", total_cost)
    bounds = _steps(history, "lower_bound", total_cost)
    levels = [level for _, level in incumbents + bounds]
    if not levels:
        return ""
    end = max([now, *(moment.seconds for moment in history)]) or 1.0
    low, high = min(levels), max(levels)
    pad = 0.08 * (high - low) or 0.01
    low, high = low - pad, high + pad

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / end

    def y(level: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - level) / (high - low)

    parts = [
        f'<line class="axis" x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH - RIGHT}" y2="{HEIGHT - BOTTOM}"/>',
        f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{HEIGHT - BOTTOM}"/>',
        f'<text x="{LEFT}" y="{HEIGHT - 5}">0 s</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" text-anchor="end">{format_seconds(end)}</text>',
    ]
    for level in dict.fromkeys((max(levels), min(levels))):
        parts.append(f'<text x="{LEFT - 4}" y="{y(level) + 4:.1f}" text-anchor="end">{format_overhead(level)}</text>')
    for kind, steps in (("bound", bounds), ("incumbent", incumbents)):
        if steps:
            points = " ".join(f"{x(seconds):.1f},{y(level):.1f}" for seconds, level in corners(steps, end))
            parts.append(f'<polyline class="{kind}" points="{points}"/>')
            parts.append(f'<circle class="{kind}" cx="{x(end):.1f}" cy="{y(steps[-1][1]):.1f}" r="2.5"/>')
    return (
        f'<svg class="closing-in" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Overhead of the best schedule and of the lower bound over time">{"".join(parts)}</svg>'
    )


def corners(steps: Sequence[Step], end: float) -> list[Step]:
    """The corners of a staircase that holds each level until the next step, the last one until ``end``.

    >>> corners([(0.0, 3.0), (2.0, 1.0)], 5.0)
    [(0.0, 3.0), (2.0, 3.0), (2.0, 1.0), (5.0, 1.0)]
    """
    staircase: list[Step] = []
    for seconds, level in steps:
        if staircase:
            staircase.append((seconds, staircase[-1][1]))
        staircase.append((seconds, level))
    return [*staircase, (end, staircase[-1][1])] if staircase else []


def _steps(history: Sequence[HistoryPoint], name: str, total_cost: float) -> list[Step]:
    """The moments at which a level changes."""
    steps: list[Step] = []
    for moment in history:
        cost = getattr(moment, name)
        level = None if cost is None else cost / total_cost if total_cost else 1.0
        if level is not None and (not steps or steps[-1][1] != level):
            steps.append((moment.seconds, level))
    return steps


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
    status = "Proven best" if answer.status is Status.OPTIMAL else str(answer.status).capitalize()
    return f"<b>{text(status)}</b>: {within}"


def _overhead(cost: float | None, total: float) -> str:
    if cost is None:
        return "none yet"
    return format_overhead(cost / total if total else 1.0)
