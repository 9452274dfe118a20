"""Branch and bound as it happens: every linear program, what becomes of it, and the tree as an animation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from remat_explorer.figures import Palette, Theme, player
from remat_explorer.figures.palette import palette

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


WHOLE = 1e-6  # a variable this close to a whole number is one

Fate = Literal["branched", "schedule", "no better", "infeasible", "left open"]


@dataclass(frozen=True)
class Node:
    """One linear program.

    Attributes:
        number: in the order in which they are solved, from 0.
        parent: number of the node that was branched, None for the root.
        fixed: what is fixed here beyond the parent, such as "R[5,2] = 1".
        bound: optimum of the linear program, rounded up where costs are whole; infinity if it is infeasible.
        fate: "branched" on a fraction, a "schedule" that is better than all before, "no better" than one that is
            known, "infeasible", or "left open" at the limit.
        incumbent: cost of the best schedule after this node, infinity if there is none yet.
        proven: lower bound on the cost of every schedule after this node.
    """

    number: int
    parent: int | None
    fixed: str
    bound: float
    fate: Fate
    incumbent: float
    proven: float


def branch_and_bound(
    model: Any, choices: Mapping[str, Any], most: int = 200, whole_costs: bool = True
) -> tuple[Node, ...]:
    """Solve a program of python-mip by branching on the first choice that is a fraction.

    Until there is a schedule, the deepest node comes next, and of its two the one with zero, since a good schedule has
    few ones. From then on the node of the least bound comes next.

    Args:
        model: minimizes; its bounds of the choices are changed here and set back at the end.
        choices: the variables of zeros and ones, by name, in the order in which they are branched on.
        most: linear programs to be solved.
        whole_costs: whether every schedule costs a whole number, so that bounds may be rounded up.

    Returns:
        The nodes in the order in which they were solved.

    >>> import mip
    >>> model = mip.Model(solver_name=mip.HIGHS)
    >>> model.verbose = 0
    >>> x = [model.add_var(var_type=mip.BINARY) for _ in range(3)]
    >>> model += 2 * mip.xsum(x) >= 3
    >>> model.objective = mip.minimize(mip.xsum(x))
    >>> nodes = branch_and_bound(model, {f"x{i}": one for i, one in enumerate(x)})
    >>> nodes[0].bound, nodes[-1].incumbent, nodes[-1].proven
    (2.0, 2.0, 2.0)
    """
    nodes: list[Node] = []
    waiting: list[tuple[float, int | None, dict[str, int]]] = [(-math.inf, None, {})]
    incumbent = math.inf
    try:
        while waiting and len(nodes) < most:
            diving = math.isinf(incumbent)
            waiting.sort(key=lambda one, diving=diving: (0.0 if diving else one[0], -len(one[2])))
            _, parent, fixed = waiting.pop(0)
            bound, fractions = _relaxed(model, choices, fixed, whole_costs)
            fate: Fate = "branched"
            if math.isinf(bound):
                fate = "infeasible"
            elif bound >= incumbent:
                fate = "no better"
            elif not fractions:
                fate, incumbent = "schedule", bound
                waiting = [one for one in waiting if one[0] < incumbent]
            else:
                waiting += [(bound, len(nodes), {**fixed, fractions[0]: value}) for value in (0, 1)]
            last = next(reversed(fixed.items()), None)
            told = f"{last[0]} = {last[1]}" if last else ""
            proven = min([incumbent, *(one[0] for one in waiting)])
            nodes.append(Node(len(nodes), parent, told, bound, fate, incumbent, proven))
    finally:
        for choice in choices.values():
            choice.lb, choice.ub = 0, 1
    left = {parent for _, parent, _ in waiting}
    return tuple(replace(node, fate="left open") if node.number in left else node for node in nodes)


def _relaxed(
    model: Any, choices: Mapping[str, Any], fixed: Mapping[str, int], whole_costs: bool
) -> tuple[float, list[str]]:
    """Optimum of the linear program with some choices fixed, and the choices that are fractions."""
    import mip

    for name, choice in choices.items():
        choice.lb, choice.ub = (fixed[name], fixed[name]) if name in fixed else (0, 1)
    if model.optimize(relax=True) is not mip.OptimizationStatus.OPTIMAL:
        return math.inf, []
    found = {name: choice.x for name, choice in choices.items()}
    cost = float(model.objective_value)
    bound = float(math.ceil(cost - WHOLE)) if whole_costs else cost
    return bound, [name for name, x in found.items() if abs(x - round(x)) > WHOLE]


FILLED: tuple[Fate, ...] = ("schedule", "infeasible")  # circles with light writing
TREE = "the tree (white: split further; blue: a schedule; gray: no better; red: infeasible)"


def search_tree(nodes: Sequence[Node], theme: Theme = "light") -> Figure:
    """Every linear program as a frame: the tree so far, each node with its bound, and both lines so far.

    Args:
        nodes: of `branch_and_bound`, at least one.
        theme: ground of the figure, "light" or "dark".

    >>> node = Node(0, None, "", 26.0, "schedule", 26.0, 26.0)
    >>> search_tree([node]).frames[0].layout.title.text
    'The linear program: a schedule of cost 26. Best known 26, proven 26.'
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    colours, places = palette(theme), _places(nodes)
    drawn = [_drawn(nodes[: last + 1], places, colours) for last in range(len(nodes))]
    frames = [
        go.Frame(data=traces, name=str(node.number + 1), layout={"title": {"text": describe_node(node)}})
        for traces, node in zip(drawn, nodes, strict=True)
    ]
    figure: Any = make_subplots(2, 1, row_heights=[0.78, 0.22], vertical_spacing=0.09, subplot_titles=(TREE, "cost"))
    for place, trace in enumerate(drawn[-1]):
        figure.add_trace(trace, 1 if place < 2 else 2, 1)
    figure.frames = frames
    figure.update_xaxes(visible=False, range=[-0.7, max(x for x, _ in places) + 0.7], row=1, col=1)
    figure.update_yaxes(visible=False, range=[min(y for _, y in places) - 0.6, 0.6], row=1, col=1)
    figure.update_xaxes(
        title_text="linear programs solved", range=[0.5, len(nodes) + 0.5], gridcolor=colours.grid, row=2, col=1
    )
    known = [cost for node in nodes for cost in (node.incumbent, node.proven) if math.isfinite(cost)]
    figure.update_yaxes(
        range=[min(known) - 0.5, max(known) + 0.5],
        dtick=max(1, round((max(known) - min(known)) / 6)),
        gridcolor=colours.grid,
        row=2,
        col=1,
    )
    rows = 1 + round(-min(y for _, y in places))
    controls = player([str(node.number + 1) for node in nodes], "linear program ", 900, 1.1, colours)
    controls["sliders"][0] |= {"active": len(nodes) - 1, "pad": {"t": 45}}
    figure.update_layout(
        title={"text": describe_node(nodes[-1]), "y": 0.98, "yanchor": "top"},
        height=300 + 30 * rows,
        **colours.look,
        legend={"x": 1, "xanchor": "right", "y": 1.06, "yanchor": "bottom", "orientation": "h"},
        margin={"t": 120},
        **controls,
    )
    return figure


def describe_node(node: Node) -> str:
    """What happened at a node, as a sentence, and what is known after it.

    >>> describe_node(Node(3, 1, "R[5,2] = 1", 27.0, "no better", 26.0, 24.0))
    'R[5,2] = 1: at least 27, no better than what is known. Best known 26, proven 24.'
    """
    ends = {
        "branched": f"at least {node.bound:g}, with fractions: branch",
        "left open": f"at least {node.bound:g}, with fractions: left open",
        "schedule": f"a schedule of cost {node.bound:g}",
        "no better": f"at least {node.bound:g}, no better than what is known",
        "infeasible": "infeasible",
    }
    known = f"{node.incumbent:g}" if math.isfinite(node.incumbent) else "none"
    return f"{node.fixed or 'The linear program'}: {ends[node.fate]}. Best known {known}, proven {node.proven:g}."


def _drawn(nodes: Sequence[Node], places: Sequence[tuple[float, float]], colours: Palette) -> list[dict[str, Any]]:
    fills: dict[Fate, str] = {
        "branched": colours.ground,
        "left open": colours.ground,
        "schedule": colours.kept,
        "no better": colours.resident,
        "infeasible": colours.over,
    }
    edges_x: list[float | None] = []
    edges_y: list[float | None] = []
    for node in nodes:
        if node.parent is not None:
            (x, y), (above_x, above_y) = places[node.number], places[node.parent]
            edges_x += [above_x, x, None]
            edges_y += [above_y, y, None]
    edges = {"type": "scatter", "x": edges_x, "y": edges_y, "mode": "lines", "line": {"color": colours.ink, "width": 1}}
    circles = {
        "type": "scatter",
        "x": [places[node.number][0] for node in nodes],
        "y": [places[node.number][1] for node in nodes],
        "text": [f"{node.bound:g}" if math.isfinite(node.bound) else "\u00d7" for node in nodes],
        "textfont": {"size": 11, "color": [colours.ground if node.fate in FILLED else colours.ink for node in nodes]},
        "hovertext": [describe_node(node) for node in nodes],
        "hoverinfo": "text",
        "mode": "markers+text",
        "cliponaxis": False,
        "marker": {
            "size": 22,
            "color": [fills[node.fate] for node in nodes],
            "line": {"color": colours.ink, "width": [3 if node is nodes[-1] else 1 for node in nodes]},
        },
    }
    numbers = [node.number + 1 for node in nodes]
    best = [node.incumbent if math.isfinite(node.incumbent) else None for node in nodes]
    step = {"type": "scatter", "x": numbers, "mode": "lines+markers", "xaxis": "x2", "yaxis": "y2"}
    return [
        {**edges, "hoverinfo": "skip", "showlegend": False},
        {**circles, "showlegend": False},
        {**step, "y": best, "name": "best schedule", "line": {"color": colours.kept, "shape": "hv"}},
        {
            **step,
            "y": [node.proven for node in nodes],
            "name": "proven",
            "line": {"color": colours.budget, "shape": "hv"},
        },
    ]


def _places(nodes: Sequence[Node]) -> list[tuple[float, float]]:
    """Leaves side by side, a node in the middle above its own, a row for each depth."""
    below: dict[int, list[int]] = {node.number: [] for node in nodes}
    depth = [0.0] * len(nodes)
    for node in nodes:
        if node.parent is not None:
            below[node.parent].append(node.number)
            depth[node.number] = depth[node.parent] - 1
    across = [0.0] * len(nodes)
    leaves = 0
    walk = [0]
    while walk:
        number = walk.pop()
        walk += sorted(below[number], reverse=True)
        if not below[number]:
            across[number], leaves = float(leaves), leaves + 1
    for number in reversed(range(len(nodes))):  # a node is solved after the one above it
        if below[number]:
            across[number] = sum(across[one] for one in below[number]) / len(below[number])
    return list(zip(across, depth, strict=True))
