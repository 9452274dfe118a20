"""The statements of the plan around the selected stage, with the memory at each."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as w
import numpy as np

from remat_explorer.explorer.state import State
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes

BEFORE, FULL, SHOWN = 3, 12, 60  # statements before the stage, that fill the height, and in all


class PlanView:
    """A window of the plan that follows the stage."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = w.HTML(layout=w.Layout(flex="1 1 0", min_width="300px", height="212px", margin="0"))
        state.observe(self._draw, ["schedule", "stage"])
        self._draw()

    def _draw(self, change: Any = None) -> None:
        plan = self._state.plan
        self.widget.value = "" if plan is None else statements_html(plan, self._state.stage)


def statements_html(plan: Plan, stage: int) -> str:
    """The statements from shortly before ``stage``, those of the stage marked, the plan's peak named."""
    timeline = plan.timeline
    inside = np.flatnonzero(timeline.stage == stage)
    start = int(inside[0]) - BEFORE if len(inside) else 0
    start = max(0, min(start, len(plan.statements) - FULL))
    lines = []
    for i in range(start, min(start + SHOWN, len(plan.statements))):
        statement = plan.statements[i]
        kind = "free" if not isinstance(statement, Compute) else "first" if statement.first else "again"
        peak = " peak" if i == timeline.peak_statement else ""
        marks = f"{kind}{' selected' if statement.stage == stage else ''}{peak}"
        lines.append(
            f'<tr class="{marks}"><td>{i}</td><td>t={statement.stage}</td>'
            f'<td class="what" title="{html.escape(plan.text(statement), quote=True)}">'
            f"{html.escape(plan.text(statement))}</td>"
            f"<td>{format_bytes(int(timeline.during[i]))}</td></tr>"
        )
    heading = f"<b>Plan</b>: {len(plan.statements)} statements, memory while each runs"
    return f'<div class="remat-plan"><p>{heading}</p><div><table>{"".join(lines)}</table></div></div>'
