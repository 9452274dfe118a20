"""The implementations of the selected operation: workspace against time, which of them run, and why."""

from __future__ import annotations

from remat_explorer.explanations import cost_text, explain_choice, label_of
from remat_explorer.explorer.panels.side_panel import SidePanel, note, shown_stage, table, text
from remat_explorer.figures import (
    Algorithm,
    Part,
    Theme,
    describe_algorithm,
    implementation_colours,
    is_convolution,
    parts_of,
)
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule

WIDTH, HEIGHT = 134, 96
LEFT, RIGHT, TOP, BOTTOM = 38, 8, 18, 26  # margins
ROOM = 1.12  # of the largest number, up to which an axis goes
NO_CHOICES = (
    "Every operation has one implementation here. Choose “exact” or “all” under Implementations, above, to see those "
    "of the selected operation."
)


class ImplementationPanel(SidePanel):
    """The selected operation's implementations; of a convolution, those of its gradients, too."""

    name, title = "ways", "Implementations of the selected operation"
    traits = ("schedule", "stage", "value")

    def html(self) -> str:
        state, schedule = self.state, self.state.schedule
        if schedule is None or not schedule.graph.has_choices:
            return note(NO_CHOICES)
        graph = schedule.graph
        operation = int(graph.producer[min(state.value, len(graph.values) - 1)])
        return implementations_html(schedule, operation, shown_stage(state), state.theme)

    def scroll(self) -> str:
        return f"{self.name} {self.state.value}"


def implementations_svg(graph: Graph, part: Part, theme: Theme = "light") -> str:
    """A point for each implementation; those that run are filled and ringed.

    Args:
        graph: whose costs they are.
        part: the operation.
        theme: ground of the page.
    """
    hues = implementation_colours((one.kind for one in part.algorithms), theme)
    widest = ROOM * (max(one.workspace for one in part.algorithms) or 1)
    longest = ROOM * (max(one.cost for one in part.algorithms) or 1.0)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    most, slowest = max(one.workspace for one in part.algorithms), max(one.cost for one in part.algorithms)
    longest_text = cost_text(graph, slowest).removeprefix("cost ")
    marks = [
        f'<text class="title" x="{LEFT - 30}" y="11">{text(part.title)}</text>',
        f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>',
        f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{bottom}"/>',
        f'<text x="{right}" y="{HEIGHT - 15}" text-anchor="end">{format_bytes(most) if most else ""}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 15}">0 B</text>',
        f'<text x="{LEFT - 3}" y="{TOP + 8}" text-anchor="end">{text(longest_text)}</text>',
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 3}" text-anchor="middle">workspace</text>',
    ]
    for one in sorted(part.algorithms, key=lambda one: one.runs > 0):
        x = LEFT + (right - LEFT) * one.workspace / widest
        y = bottom - (bottom - TOP) * one.cost / longest
        hue = hues[one.kind]
        look = f'class="chosen" fill="{hue}"' if one.runs else f'fill="none" stroke="{hue}"'
        marks.append(
            f'<circle {look} cx="{x:.1f}" cy="{y:.1f}" r="{5 if one.runs else 3.5}">'
            f"<title>{text(describe_algorithm(one))}</title></circle>"
        )
    said = "; ".join(describe_algorithm(one) for one in part.algorithms)
    return (
        f'<svg class="ways-chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{text(part.title)}, time against workspace: {text(said)}">{"".join(marks)}</svg>'
    )


def implementations_html(schedule: Schedule, operation: int, stage: int, theme: Theme = "light") -> str:
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
        lines.append(
            f'<div class="ways-charts">{"".join(implementations_svg(graph, part, theme) for part in parts)}</div>'
        )
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
