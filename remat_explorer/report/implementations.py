"""Which implementations a schedule runs, where, and what they are; for graphs that leave a choice."""

from __future__ import annotations

from functools import partial

from remat_explorer.explanations.kinds import EXPLAINED, label_of
from remat_explorer.figures.schedules.implementation_images import Use, implementation_images, implementations_used
from remat_explorer.report.contents import ReportContents
from remat_explorer.report.drawing import drawing
from remat_explorer.report.html import paragraph, table

HEADS = ("kind", "what it does", "implementation", " operations", " runs", "results")


def implementations(contents: ReportContents) -> str:
    """R in the colours of kinds, and a table of what runs in another way than PyTorch's own."""
    schedule = contents.solution.schedule
    if schedule is None or not contents.graph.has_choices:
        return ""
    used = implementations_used(schedule)
    if not used:
        return paragraph("Every operation runs with PyTorch's own implementation, though others could be chosen.")
    words = "The solver also chose how to compute: what is not grey is not PyTorch's own implementation."
    picture = drawing(
        "ways", partial(implementation_images, schedule), "R in the colours of implementations", broad=True
    )
    under = '<p id="way" class="under" aria-live="polite">&nbsp;</p>'
    return paragraph(words) + picture + under + table(HEADS, map(_row, used))


def _row(use: Use) -> tuple[str, ...]:
    said = EXPLAINED[use.kind][1] if use.kind in EXPLAINED else ""
    results = "equal bit for bit" if use.tolerance == 0 else f"differ by at most {use.tolerance:.0e} of their size"
    return label_of(use.kind), said, use.name, str(use.operations), str(use.runs), results
