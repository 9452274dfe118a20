"""What is in memory where it is highest, largest first, and for whom each value is kept."""

from __future__ import annotations

from remat_explorer.allocator import predict_allocator
from remat_explorer.explanations import Memory, Mention, PeakRow, alive_at
from remat_explorer.explorer.panels.clickable import Click
from remat_explorer.explorer.panels.markup import button, data, link, note, sentence, text
from remat_explorer.explorer.panels.side_panel import SidePanel, select
from remat_explorer.quantities import format_bytes

SHOWN = 60  # rows


class PeakPanel(SidePanel):
    """The rows of `alive_at` the plan's peak."""

    name, title = "peak", "What is in memory at the peak"
    traits = ("schedule", "value")

    def html(self) -> str:
        plan = self.state.plan
        if plan is None:
            return note("Load a model, and this lists what is in memory at the peak.")
        allocator = f'<p class="quiet">{text(str(predict_allocator(plan)))} (predicted).</p>'
        return memory_html(alive_at(plan), self.state.value, allocator)

    def clicked(self, click: Click) -> None:
        if click.action == "go" and self.state.plan is not None:
            memory = alive_at(self.state.plan)
            largest = next((row.value for row in memory.rows if row.value is not None), None)
            click = Click(largest, memory.stage)
        select(self.state, click)


def memory_html(memory: Memory, selected: int = -1, beside: str = "") -> str:
    """The heading, what stands beside it, and a bar by bytes for each row."""
    largest = max((row.bytes for row in memory.rows), default=1) or 1
    rows = "".join(_row_html(row, memory.stage, row.bytes / largest, selected) for row in memory.rows[:SHOWN])
    hidden = memory.rows[SHOWN:]
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
