"""Every rounded schedule is a point, the budget a line, the best known schedule a star."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remat_explorer.errors import GraphError
from remat_explorer.figures.rounding_scatter import rounding_scatter
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.methods.two_phase_rounding import Scatter, scatter, solve_linear_program

draw: Any = rounding_scatter
NOTHING = Scatter(np.array([]), np.array([], dtype=np.int64))


def test_points_are_overheads_and_peaks_of_the_draws(tight: Any) -> None:
    chain = linear(8)
    cloud = scatter(solve_linear_program(Condensed.of(chain), 4, Limits()), samples=30, seed=3)
    figure = draw(chain, cloud, Scatter(np.array([34.0]), np.array([5])), tight, budget=4)
    randomized, deterministic, optimal, budget = figure.data
    assert list(randomized.x) == cloud.peak.tolist()
    assert list(randomized.y) == pytest.approx((100 * (cloud.cost / 17 - 1)).tolist())
    assert (list(deterministic.x), list(deterministic.y)) == ([5.0], [100.0])
    assert (list(optimal.x), list(optimal.y)) == ([tight.peak], pytest.approx([100 * (26 / 17 - 1)]))
    assert list(budget.x) == [4.0, 4.0]
    assert budget.y[1] >= max(randomized.y)


def test_the_figure_has_the_same_traces_without_points(tight: Any) -> None:
    full = draw(linear(8), NOTHING, NOTHING, tight, budget=4, theme="dark")
    empty = draw(linear(8), NOTHING, NOTHING)
    assert [trace.visible for trace in full.data] == [False, False, True, True]
    assert [trace.visible for trace in empty.data] == [False] * 4


def test_a_graph_that_costs_nothing_is_refused() -> None:
    free = Graph("free", (Value("x", 1),), (operation("f", "forward", [], [0], 0),))
    with pytest.raises(GraphError, match="'free' costs nothing"):
        draw(free, NOTHING, NOTHING)
