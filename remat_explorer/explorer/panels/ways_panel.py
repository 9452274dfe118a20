"""The implementations of the selected operation: workspace against time, which of them run, and why."""

from __future__ import annotations

from remat_explorer.explanations.choices import explain_choice, label_of
from remat_explorer.explanations.wording import cost_text
from remat_explorer.explorer.panels.markup import note, table, text
from remat_explorer.explorer.panels.side_panel import SidePanel, shown_stage
from remat_explorer.explorer.panels.ways_chart import ways_svg
from remat_explorer.figures.convolution_algorithms import Algorithm, is_convolution, parts_of
from remat_explorer.figures.implementation_images import implementation_colours
from remat_explorer.figures.palette import Theme
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule

NO_CHOICES = (
    "Every operation has one implementation here. Choose “exact” or “all” under Implementations, above, to see those "
    "of the selected operation."
)


class WaysPanel(SidePanel):
    """The selected operation's implementations; of a convolution, those of its gradients, too."""

    name, title = "ways", "Implementations of the selected operation"
    traits = ("schedule", "stage", "value")

    def html(self) -> str:
        state, schedule = self.state, self.state.schedule
        if schedule is None or not schedule.graph.has_choices:
            return note(NO_CHOICES)
        graph = schedule.graph
        operation = int(graph.producer[min(state.value, len(graph.values) - 1)])
        return ways_html(schedule, operation, shown_stage(state), state.theme)

    def scroll(self) -> str:
        return f"{self.name} {self.state.value}"


def ways_html(schedule: Schedule, operation: int, stage: int, theme: Theme = "light") -> str:
    """Name, choice, chart and table of an operation."""
    graph, node = schedule.graph, schedule.graph.operations[operation]
    choice = explain_choice(schedule, operation, stage)
    lines = [f'<p class="head"><b>{text(node.name)}</b> <span class="quiet">{node.phase} pass</span></p>']
    if choice is None:
        runs = "has one implementation" if len(node.implementations) == 1 else "does not run in this schedule"
        lines.append(f'<p class="quiet">This operation {runs}.</p>')
    else:
        lines.append(f"<p>In stage {choice.stage} <b>{text(choice.name)}</b>: {text(choice.sentence)}.</p>")
    parts = parts_of(schedule, operation)
    if len(node.implementations) > 1 or is_convolution(graph, operation):
        lines.append(f'<div class="ways-charts">{"".join(ways_svg(graph, part, theme) for part in parts)}</div>')
    for part in parts:
        if len(part.algorithms) > 1:
            head = (text(part.title), "kind", "time", "workspace", "runs")
            lines.append(table(_rows(graph, part.algorithms, theme), head, "ways"))
    return "".join(lines)


def _rows(graph: Graph, algorithms: tuple[Algorithm, ...], theme: Theme) -> list[list[str]]:
    hues = implementation_colours((one.kind for one in algorithms), theme)
    rows = []
    for one in algorithms:
        name = f"<b>{text(one.name)}</b>" if one.runs else text(one.name)
        rows.append(
            [
                f'<i class="swatch" style="background:{hues[one.kind]}"></i> {name}',
                text(label_of(one.kind)),
                text(cost_text(graph, one.cost).removeprefix("cost ")),
                text(format_bytes(one.workspace)) if one.workspace else "none",
                f"{one.runs} ×" if one.runs else "–",
            ]
        )
    return rows
