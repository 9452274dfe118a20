"""The schedule and all that is drawn of it: matrices, memory, trade-off, model, comparison and search."""

from __future__ import annotations

from functools import partial

from remat_explorer.figures.compare import compare
from remat_explorer.figures.memory.memory_breakdown import memory_breakdown
from remat_explorer.figures.memory.memory_timeline import memory_timeline
from remat_explorer.figures.networks.model_graph import model_graph
from remat_explorer.figures.schedules.schedule_images import schedule_images
from remat_explorer.figures.solver_progress import solver_progress
from remat_explorer.figures.tradeoffs.tradeoff import tradeoff
from remat_explorer.report.contents import ReportContents
from remat_explorer.report.drawing import drawing
from remat_explorer.report.html import paragraph


def matrices(contents: ReportContents) -> str:
    """R, S and U, with a line that says what is under the pointer."""
    schedule = contents.solution.schedule
    if schedule is None:
        return ""
    words = (
        "Row t is stage t, in which operation t runs for the first time. R says what else runs in the stage, S which "
        "values are in memory when it begins, and U how much memory is in use while each operation runs."
    )
    picture = drawing(
        "matrices", partial(schedule_images, schedule), "The matrices R, S and U of the schedule", broad=True
    )
    return paragraph(words) + picture + '<p id="cell" class="under" aria-live="polite">&nbsp;</p>'


def timeline(contents: ReportContents) -> str:
    """Memory along the plan, predicted and measured, under the budget."""
    plan, solution = contents.solution.plan, contents.solution
    if plan is None:
        return ""
    words = "What is in memory while each computation of the plan runs. Parameters, inputs and buffers are resident."

    def draw(theme):
        return memory_timeline(plan, solution.budget, contents.measurement, theme=theme)

    return paragraph(words) + drawing("timeline", draw, "Memory along the plan")


def curve(contents: ReportContents) -> str:
    """The trade-off curve, where one is known."""
    frontier, solution, measurement = contents.curve, contents.solution, contents.measurement
    if frontier is None:
        return ""
    words = "Memory against overhead: filled points are proven to be optimal, open ones have a gap."

    def draw(theme):
        return tradeoff(frontier, solution.budget, solution, measurement, theme)

    return paragraph(words) + drawing("curve", draw, "Overhead against memory")


def model(contents: ReportContents) -> str:
    """The operations of the model, and what its memory is made of."""
    graph, schedule, plan = contents.graph, contents.solution.schedule, contents.solution.plan
    stage = None if plan is None else int(plan.timeline.stage[plan.timeline.peak_statement])
    words = "The forward pass runs along one rail and the backward pass along the other; larger boxes have more bytes."
    if stage is not None:
        words += f" Colours show what stage {stage}, which has the peak, computes and keeps."
    picture = drawing(
        "network", lambda theme: model_graph(graph, schedule, stage, theme), "The graph of the model", broad=True
    )
    return paragraph(words) + picture + drawing("breakdown", partial(memory_breakdown, [graph]), "Parts of the memory")


def comparison(contents: ReportContents) -> str:
    """The schedule beside another one, where there is one."""
    solution, other = contents.solution, contents.other
    if other is None or other.schedule is None or solution.schedule is None:
        return ""
    return drawing("two-schedules", lambda theme: compare(solution, other, theme), "Two schedules", broad=True)


def search(contents: ReportContents) -> str:
    """How the solver went, where that is known."""
    history = contents.history
    if not history:
        return ""
    cost = contents.graph.total_cost
    return drawing("progress", lambda theme: solver_progress(history, cost, theme), "Cost and bound over time")
