"""What is in memory where the plan needs the most."""

from __future__ import annotations

from remat_explorer.quantities import format_bytes
from remat_explorer.report.alive import described
from remat_explorer.report.contents import Contents
from remat_explorer.report.html import paragraph, table

SHOWN = 30  # rows; the rest is counted


def peak(contents: Contents) -> str:
    """The values alive at the peak, largest first, and for whom each one waits."""
    plan = contents.solution.plan
    if plan is None:
        return ""
    at = plan.timeline.peak_statement
    rows = described(plan, at)
    words = (
        f"The plan needs the most, {format_bytes(plan.peak)}, at statement {at}, {plan.text(plan.statements[at])!r} in "
        f"stage {plan.statements[at].stage}: {format_bytes(contents.graph.resident_bytes)} resident, and "
        f"{len(rows)} value{'' if len(rows) == 1 else 's'}."
    )
    left = paragraph(f"… and {len(rows) - SHOWN} more, none of them larger.") if len(rows) > SHOWN else ""
    return paragraph(words) + table(["value", " bytes", " share", "why it is in memory"], rows[:SHOWN]) + left
