"""Statements of the plan: those around the selected stage, and what is in memory at its peak, largest first."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from remat_explorer.allocator import predict_allocator
from remat_explorer.explanations import Memory, Mention, PeakRow, alive_at, statement_text
from remat_explorer.explorer.panels.side_panel import (
    Click,
    SidePanel,
    button,
    data,
    link,
    note,
    select,
    sentence,
    shown_stage,
    text,
)
from remat_explorer.figures import AnyPlan, pieces_of, rectangles_of
from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Compute
from remat_explorer.quantities import format_bytes

MAX_ROWS = 60  # rows
BEFORE, FULL, SHOWN = 3, 12, 60  # statements before the stage, that fill the height, and in all


class PlanPanel(SidePanel):
    """A window of the plan that follows the stage."""

    name, title = "plan", "The statements of the plan"
    traits = ("schedule", "stage", "value")

    def html(self) -> str:
        plan = self.state.shown_plan
        if plan is None:
            return note("Load a model, and this lists what its plan computes and frees.")
        return statements_html(plan, shown_stage(self.state), self.state.value)

    def scroll(self) -> str:
        return f"{self.name} {self.state.stage}"


class PeakPanel(SidePanel):
    """The rows of `alive_at` the plan's peak."""

    name, title = "peak", "What is in memory at the peak"
    traits = ("schedule", "value")

    def html(self) -> str:
        plan = self.state.shown_plan
        if plan is None:
            return note("Load a model, and this lists what is in memory at the peak.")
        if isinstance(plan, TransferPlan):
            host = f'<p class="quiet">Then {format_bytes(plan.host_peak)} at most are on the host (predicted).</p>'
            return memory_html(peak_of(plan), self.state.value, host)
        allocator = f'<p class="quiet">{text(str(predict_allocator(plan)))} (predicted).</p>'
        return memory_html(alive_at(plan), self.state.value, allocator)

    def clicked(self, click: Click) -> None:
        plan = self.state.shown_plan
        if click.action == "go" and plan is not None:
            memory = peak_of(plan) if isinstance(plan, TransferPlan) else alive_at(plan)
            largest = next((row.value for row in memory.rows if row.value is not None), None)
            click = Click(largest, memory.stage)
        select(self.state, click)


_ORIGINS = {"fetched": "back from the host", "recomputed": "computed again", "gradients": "a gradient"}


def peak_of(plan: TransferPlan) -> Memory:
    """What is on the device at the peak of a plan that sends values."""
    graph, during = plan.graph, plan.timeline.during
    at = int(during.argmax())
    running = plan.statements[at]
    rows: list[PeakRow] = []
    rectangles = rectangles_of(plan)
    for piece in pieces_of(plan, rectangles):
        if piece.begin <= at < piece.end and piece.kind != "resident":
            name = "workspace" if piece.value < 0 else graph.values[piece.value].name
            kind, value = ("workspace", None) if piece.value < 0 else ("value", piece.value)
            why = "only while it runs" if piece.value < 0 else _ORIGINS.get(piece.kind, "computed, and kept until here")
            rows.append(PeakRow(kind, name, value, int(rectangles.size[piece.rectangle]), (why,)))
    if graph.resident_bytes:
        words = ("parameters, inputs and buffers are always there",)
        rows.append(PeakRow("resident", "resident", None, graph.resident_bytes, words))
    rows.sort(key=lambda row: -row.bytes)
    return Memory(at, running.stage, plan.text(running), int(during[at]), tuple(rows))


def memory_html(memory: Memory, selected: int = -1, beside: str = "") -> str:
    """The heading, what stands beside it, and a bar by bytes for each row."""
    largest = max((row.bytes for row in memory.rows), default=1) or 1
    rows = "".join(_row_html(row, memory.stage, row.bytes / largest, selected) for row in memory.rows[:MAX_ROWS])
    hidden = memory.rows[MAX_ROWS:]
    more = ""
    if hidden:
        size = format_bytes(sum(row.bytes for row in hidden))
        more = f'<p class="quiet">{len(hidden)} more with {size} together.</p>'
    where = link(Mention(f"stage {memory.stage}", stage=memory.stage))
    go = button("Go to the peak", "go", "Select the stage of the peak, and the largest value in memory there")
    return (
        f'<p class="head"><b>{format_bytes(memory.total)}</b> at statement {memory.statement}, '
        f"{text(memory.text)}, {where} {go}</p>{beside}"
        f'<div class="bars roving">{rows}</div>{more}'
    )


def _row_html(row: PeakRow, stage: int, share: float, selected: int) -> str:
    chosen = " selected" if row.value is not None and row.value == selected else ""
    target = data(row.value, stage) if row.value is not None else ""
    name = link(Mention(row.name, row.value, stage)) if row.value is not None else text(row.name)
    return (
        f'<div class="row {row.kind}{chosen}"{target}><span class="bar" style="width:{100 * share:.1f}%"></span>'
        f'<span class="what">{name}</span><span class="bytes">{format_bytes(row.bytes)}</span>'
        f'<span class="why">{sentence(row.why)}</span></div>'
    )


def statements_html(plan: AnyPlan, stage: int, value: int = -1) -> str:
    """The statements from shortly before ``stage``, those of the stage marked, the plan's peak and a value named."""
    during = plan.timeline.during
    stages = [statement.stage for statement in plan.statements]
    inside, highest = bisect_left(stages, stage), int(during.argmax())
    start = inside - BEFORE if inside < len(stages) and stages[inside] == stage else 0
    start = max(0, min(start, len(plan.statements) - FULL))
    lines = []
    for i in range(start, min(start + SHOWN, len(plan.statements))):
        statement = plan.statements[i]
        kind = "free" if not isinstance(statement, Compute) else "first" if statement.first else "again"
        peak = " peak" if i == highest else ""
        own = _value_of(plan, statement)
        marks = f"{kind}{' selected' if statement.stage == stage else ''}{peak}{' own' if own == value else ''}"
        said = statement_text(plan, statement)
        lines.append(
            f'<tr class="{marks}"{data(own, statement.stage)}><td>{i}</td><td>t={statement.stage}</td>'
            f'<td class="what" title="{text(said)}">{link(Mention(said, own, statement.stage))}</td>'
            f"<td>{format_bytes(int(during[i]))}</td></tr>"
        )
    heading = f"<b>Plan</b>: {len(plan.statements)} statements, memory while each runs"
    return f'<div class="remat-plan"><p>{heading}</p><table class="roving">{"".join(lines)}</table></div>'


def _value_of(plan: AnyPlan, statement: Any) -> int | None:
    """The value that a statement is about: its first output, or what it frees."""
    if not isinstance(statement, Compute):
        return statement.value
    outputs = plan.graph.outputs(statement.operation, statement.implementation)
    return outputs[0] if outputs else None
