"""The figure of each point of the live page's curve: in both themes, with the best points of the curve and with all."""

from __future__ import annotations

from typing import Any

import numpy as np

from remat_explorer.explorer.plots.plots_legend import OTHER_METHODS, OTHER_METHODS_MEAN, legend_html
from remat_explorer.explorer.plots.plots_scene import FIXED, HITS, PlotsScene
from remat_explorer.explorer.state.state import State
from remat_explorer.figures.palette import Theme
from remat_explorer.figures.tradeoff import points_of
from remat_explorer.report.contents import differences
from remat_explorer.solvers import Frontier

THEMES: tuple[Theme, ...] = ("light", "dark")
BUDGET_LINES = {"y": HITS - 1, "x": FIXED - 3}  # traces that follow the budget: over the timeline, through the curve


def figures(scene: PlotsScene, state: State) -> dict[str, Any]:
    """Plotly's figure of a state, and where it differs in the dark and with the points of other methods.

    Args:
        scene: draws the state.
        state: has a schedule and a budget.

    Returns:
        The figure, with the bytes of a unit on the axes of the budget's lines, and paths into it with what stands there
        otherwise: colours of the dark theme, points of other methods and the axes that have room for them.
    """
    light = _figure(scene, state, "light")
    others = {
        "dark": _figure(scene, state, "dark"),
        "methods": _figure(scene, state, "light", methods=True),
    }
    return {"figure": light} | {
        name: [[list(path), value] for path, value in differences(light, figure)] for name, figure in others.items()
    }


def _figure(scene: PlotsScene, state: State, theme: Theme, methods: bool = False) -> Any:
    with state.at_once():
        state.theme, state.methods = theme, methods
    traces, layout = scene.compose(state)
    at = {axis: traces[line][axis][:1] for axis, line in BUDGET_LINES.items()}  # nothing where all is of 0 bytes
    units = {axis: state.budget / place[0] if place and place[0] else 1.0 for axis, place in at.items()}
    return plain({"data": traces, "layout": {**layout, "meta": 0}, "units": units})


def curves(frontier: Frontier) -> dict[str, Any]:
    """What belongs to the points of the curve: their peaks in bytes by strategy, and the legend in both themes.

    Returns:
        "best" for the points that no other beats, and "every", or None where there are no others; and the words of the
        button that shows them.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> curves(Frontier(linear(8), (solve(linear(8), 4),)))["every"]
    >>> two = Frontier(linear(8), (solve(linear(8), 6), solve(linear(8), 8, "chen-sqrt-n")))
    >>> [curves(two)[name]["points"] for name in ("best", "every")]
    [{'optimal': [6], 'chen-sqrt-n': []}, {'optimal': [6], 'chen-sqrt-n': [6]}]
    """
    best, every = (
        {name: [point.peak for point in points_of(frontier, name, best_only)] for name in frontier.strategies}
        for best_only in (True, False)
    )

    def curve(points: dict[str, Any], best_only: bool) -> dict[str, Any]:
        return {"points": points, "legend": {theme: legend_html(frontier, theme, best_only) for theme in THEMES}}

    others = curve(every, False) if every != best else None
    return {"best": curve(best, True), "every": others, "words": [OTHER_METHODS, OTHER_METHODS_MEAN]}


def plain(entry: Any) -> Any:
    """Plotly's traces and layout as JSON has them; of the numbers in arrays, five digits are enough to draw.

    >>> plain({"y": np.array([1, 1 / 3]), "domain": (0, 1)})
    {'y': [1, 0.33333], 'domain': [0, 1]}
    """
    if isinstance(entry, dict):
        return {key: plain(part) for key, part in entry.items()}
    if isinstance(entry, list | tuple):
        return [plain(part) for part in entry]
    if not isinstance(entry, np.ndarray):
        return entry.item() if isinstance(entry, np.generic) else entry
    return [int(number) if number == int(number) else float(f"{number:.5g}") for number in entry.tolist()]
