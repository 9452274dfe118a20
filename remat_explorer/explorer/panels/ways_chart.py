"""Workspace against time of the implementations of one operation, as an inline picture."""

from __future__ import annotations

from remat_explorer.explanations.wording import cost_text
from remat_explorer.explorer.panels.markup import text
from remat_explorer.figures.convolution_algorithms import Part, describe_algorithm
from remat_explorer.figures.implementation_images import implementation_colours
from remat_explorer.figures.palette import Theme
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes

WIDTH, HEIGHT = 134, 96
LEFT, RIGHT, TOP, BOTTOM = 38, 8, 18, 26  # margins
ROOM = 1.12  # of the largest number, up to which an axis goes


def ways_svg(graph: Graph, part: Part, theme: Theme = "light") -> str:
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
