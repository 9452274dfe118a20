"""What is in memory where the plan needs the most."""

from __future__ import annotations

from remat_explorer.explanations import alive_at
from remat_explorer.quantities import format_bytes, format_share
from remat_explorer.report.contents import ReportContents
from remat_explorer.report.html import paragraph, table

SHOWN = 30  # rows; the rest is counted


def peak(contents: ReportContents) -> str:
    """What is alive at the peak, largest first, and why."""
    plan = contents.solution.plan
    if plan is None:
        return ""
    memory = alive_at(plan)
    values = sum(row.kind == "value" for row in memory.rows)
    words = (
        f"The plan needs most memory, {format_bytes(memory.total)}, at statement {memory.statement}, {memory.text!r} "
        f"in stage {memory.stage}, with {values} value{'' if values == 1 else 's'} in memory."
    )
    rows = [
        (row.name, format_bytes(row.bytes), format_share(row.bytes / max(memory.total, 1)), row.reason)
        for row in memory.rows
    ]
    left = paragraph(f"… and {len(rows) - SHOWN} more, none of them larger.") if len(rows) > SHOWN else ""
    return paragraph(words) + table(["in memory", " bytes", " share", "why"], rows[:SHOWN]) + left
