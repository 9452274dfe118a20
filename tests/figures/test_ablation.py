"""The ablation figure: a line for each set of kinds, honest marks, and colours that stay apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remat_explorer.figures import ablation as figure_of
from remat_explorer.figures.palette import palette
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.solvers import Ablation, ablation
from remat_explorer.solvers.solution import Status

draw: Any = figure_of
X, MASK, LOSS, G = range(4)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A gradient that reads x, an eighth of it, or nothing; and one kind that serves nothing."""
    gradient = (
        Implementation((LOSS, X), (G,), 2.0),
        Implementation((LOSS, MASK), (G,), 2.5, name="bits", kinds=("masks",)),
        Implementation((LOSS,), (G,), 4.0, name="replay", kinds=("replay",)),
        Implementation((LOSS, X), (G,), 9.0, name="slow", kinds=("algorithms",)),
    )
    values = Value("x", 80), Value("mask", 10), Value("loss", 40), Value("g", 40, persistent=True)
    operations = (
        operation("x", "forward", [], [X], 1.0),
        Operation("mask", "forward", (Implementation((X,), (MASK,), 0.5),), optional=True),
        operation("loss", "backward", [X], [LOSS], 1.0),
        Operation("g", "backward", gradient),
    )
    return Graph("masked", values, operations)


@pytest.fixture(scope="module")
def found(graph: Graph) -> Ablation:
    return ablation(graph, [110, 130, 160], time_limit=60)


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_every_set_has_a_line_through_its_overheads(found: Ablation) -> None:
    lines = traces(draw(found))
    for kinds, name in (("none", "none"), ("masks", "masks"), ("replay", "replay"), ("all", "all")):
        known = [s for s in found.curve(kinds) if s.schedule is not None]
        assert list(lines[name].x) == [s.budget for s in known]
        assert list(lines[name].y) == pytest.approx([100 * ((s.overhead or 0.0) - 1) for s in known])
    assert len(lines["none"].x) < len(lines["all"].x)


def test_kinds_that_change_nothing_are_hidden_and_say_so(found: Ablation) -> None:
    lines = traces(draw(found))
    assert lines["algorithms (as none)"].visible == "legendonly"
    assert lines["masks"].visible is True


def test_proven_points_are_filled_and_others_open(found: Ablation) -> None:
    assert not any("open" in symbol for symbol in traces(draw(found))["all"].marker.symbol)
    doubtful = {key: replace(s, status=Status.FEASIBLE, lower_bound=None) for key, s in found.solutions.items()}
    figure = draw(replace(found, solutions=doubtful))
    assert all(symbol.endswith("-open") for symbol in traces(figure)["all"].marker.symbol)
    assert "no bound proven" in traces(figure)["all"].text[0]


def test_the_smallest_budget_of_each_set_is_marked_in_its_colour(found: Ablation) -> None:
    lines = traces(draw(found))
    marks = lines["smallest budgets"]
    assert list(marks.x) == [found.smallest_budget(kinds).known_feasible for kinds in found.sets]
    assert marks.marker.color[-1] == lines["all"].line.color
    assert marks.x[-1] < marks.x[0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_differ_in_colour_or_dash_on_either_ground(found: Ablation, theme: Any) -> None:
    figure = draw(found, theme)
    looks = [(t.line.color, t.line.dash, t.marker.symbol[0]) for t in figure.data[:-1] if t.marker.symbol]
    assert len(set(looks)) == len(looks)
    assert figure.layout.paper_bgcolor == palette(theme).ground
    assert not {t.line.color for t in figure.data[:-1]} & {palette(theme).ground, palette(theme).empty}


def test_without_any_schedule_the_figure_says_so(graph: Graph) -> None:
    nothing = draw(ablation(graph, [1], time_limit=10, cancelled=lambda: True))
    assert "No set of kinds" in nothing.layout.annotations[0].text
