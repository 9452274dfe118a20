"""The schedule, and the memory along its plan."""

from __future__ import annotations

from functools import partial

from remat_explorer.figures.memory_timeline import memory_timeline
from remat_explorer.figures.schedule_images import schedule_images
from remat_explorer.report.contents import Contents
from remat_explorer.report.drawing import drawing
from remat_explorer.report.html import paragraph


def matrices(contents: Contents) -> str:
    """R, S and U, with a line that says what is under the pointer."""
    schedule = contents.solution.schedule
    if schedule is None:
        return ""
    words = (
        "Row t is stage t, in which operation t runs for the first time. R says what else runs in the stage, S which "
        "values are in memory when it begins, and U how much memory is in use while each operation runs."
    )
    picture = drawing("matrices", partial(schedule_images, schedule), "The matrices R, S and U of the schedule")
    return paragraph(words) + picture + '<p id="cell" class="under" aria-live="polite">&nbsp;</p>'


def timeline(contents: Contents) -> str:
    """Memory along the plan, predicted and measured, under the budget."""
    plan, solution = contents.solution.plan, contents.solution
    if plan is None:
        return ""
    words = "What is in memory while each computation of the plan runs. Resident are parameters, inputs and buffers."

    def draw(theme):
        return memory_timeline(plan, solution.budget, contents.measurement, theme=theme)

    return paragraph(words) + drawing("timeline", draw, "Memory along the plan")
