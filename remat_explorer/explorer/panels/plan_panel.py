"""The statements of the plan around the selected stage, with the memory at each."""

from __future__ import annotations

from remat_explorer.explanations import Mention
from remat_explorer.explanations.choices import statement_text
from remat_explorer.explorer.panels.markup import data, link, note, text
from remat_explorer.explorer.panels.side_panel import SidePanel, shown_stage
from remat_explorer.plan import Compute, Plan, Statement
from remat_explorer.quantities import format_bytes

BEFORE, FULL, SHOWN = 3, 12, 60  # statements before the stage, that fill the height, and in all


class PlanPanel(SidePanel):
    """A window of the plan that follows the stage."""

    name, title = "plan", "The statements of the plan"
    traits = ("schedule", "stage", "value")

    def html(self) -> str:
        plan = self.state.plan
        if plan is None:
            return note("Load a model, and this lists what its plan computes and frees.")
        return statements_html(plan, shown_stage(self.state), self.state.value)

    def scroll(self) -> str:
        return f"{self.name} {self.state.stage}"


def statements_html(plan: Plan, stage: int, value: int = -1) -> str:
    """The statements from shortly before ``stage``, those of the stage marked, the plan's peak and a value named."""
    timeline = plan.timeline
    inside = int(timeline.stage.searchsorted(stage))
    start = inside - BEFORE if inside < len(timeline.stage) and timeline.stage[inside] == stage else 0
    start = max(0, min(start, len(plan.statements) - FULL))
    lines = []
    for i in range(start, min(start + SHOWN, len(plan.statements))):
        statement = plan.statements[i]
        kind = "free" if not isinstance(statement, Compute) else "first" if statement.first else "again"
        peak = " peak" if i == timeline.peak_statement else ""
        own = _value_of(plan, statement)
        marks = f"{kind}{' selected' if statement.stage == stage else ''}{peak}{' own' if own == value else ''}"
        said = statement_text(plan, statement)
        lines.append(
            f'<tr class="{marks}"{data(own, statement.stage)}><td>{i}</td><td>t={statement.stage}</td>'
            f'<td class="what" title="{text(said)}">{link(Mention(said, own, statement.stage))}</td>'
            f"<td>{format_bytes(int(timeline.during[i]))}</td></tr>"
        )
    heading = f"<b>Plan</b>: {len(plan.statements)} statements, memory while each runs"
    return f'<div class="remat-plan"><p>{heading}</p><table class="roving">{"".join(lines)}</table></div>'


def _value_of(plan: Plan, statement: Statement) -> int | None:
    """The value that a statement is about: its first output, or what it frees."""
    if not isinstance(statement, Compute):
        return statement.value
    outputs = plan.graph.outputs(statement.operation, statement.implementation)
    return outputs[0] if outputs else None
