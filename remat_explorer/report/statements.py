"""The plan: every statement, to open and to search."""

from __future__ import annotations

from remat_explorer.plan import Compute, Plan
from remat_explorer.report.contents import ReportContents
from remat_explorer.report.html import data, paragraph

FREE, COMPUTE, RECOMPUTE = range(3)


def statements(contents: ReportContents) -> str:
    """A closed list; the page's script fills it from numbers and the names of the graph."""
    plan = contents.solution.plan
    if plan is None:
        return ""
    words = f"{len(plan.statements)} statements, with the predicted memory while each one runs."
    return (
        paragraph(words)
        + '<details id="plan"><summary>Show the statements</summary><label>Search <input type="search" '
        'placeholder="recompute, a name, stage 12"></label> <span class="under"></span>'
        '<div class="wide tall" tabindex="0" role="region" aria-label="Statements">'
        '<table><thead><tr><th class="number">#</th><th class="number">stage</th><th>statement</th>'
        '<th class="number">memory</th></tr></thead><tbody></tbody></table></div></details>'
        + data("plan-data", rows(plan))
    )


def rows(plan: Plan) -> list[tuple[int, ...]]:
    """The statements as numbers: stage, kind, operation or value, and bytes.

    Behind them, where they are not the default, the number of the implementation and the value that is overwritten.

    >>> from remat_explorer.instances import linear
    >>> rows(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))[:2]
    [(0, 1, 0, 1), (1, 1, 1, 2)]
    """
    table: list[tuple[int, ...]] = []
    for statement, during in zip(plan.statements, plan.timeline.during.tolist(), strict=True):
        if isinstance(statement, Compute):
            kind = COMPUTE if statement.first else RECOMPUTE
            code, over = statement.implementation, statement.overwrites
            more = (code,) if over is None else (code, over)
            table.append((statement.stage, kind, statement.operation, during, *(more if more != (1,) else ())))
        else:
            table.append((statement.stage, FREE, statement.value, during))
    return table
