"""The names of the strategies over the trade-off curve: one line, so that nothing covers the points."""

from __future__ import annotations

import html

from remat_explorer.explorer.plots.mark_outlines import outline
from remat_explorer.explorer.state.strategy_choice import describe_strategy
from remat_explorer.figures.palette import Theme
from remat_explorer.figures.tradeoff import mark, points_of
from remat_explorer.solvers import Frontier

OTHER_METHODS = "Other methods"
OTHER_METHODS_MEAN = "Show the schedules of all strategies in the trade-off, not only the best ones"
MEANING = "Filled markers are proven optimal; it is proven that no schedule lies in the shaded region"


def legend_html(frontier: Frontier | None, theme: Theme, best_only: bool = False) -> str:
    """Shape, colour and name of each strategy that has a point, with ``best_only`` a best one; empty where none has.

    >>> legend_html(None, "light")
    ''
    """
    if frontier is None or not frontier.points:
        return ""
    shown = {name for name in frontier.strategies if points_of(frontier, name, best_only)}
    names = [name for name in frontier.strategies if name in shown]
    items = []
    for name in names:
        look = mark(name, theme)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline(look.shape))
        drawn = f'<svg viewBox="-6 -6 12 12"><polygon points="{points}" fill="{look.colour}"/></svg>'
        items.append(f"{drawn} {html.escape(describe_strategy(name))}")
    every = html.escape(f"{', '.join(names)}. {MEANING}", quote=True)
    return f'<div class="remat-marks" title="{every}">{" &nbsp; ".join([*items, "filled: proven optimal"])}</div>'
