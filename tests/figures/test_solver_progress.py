"""Incumbent and bound over time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from remat_explorer.figures import solver_progress
from remat_explorer.figures.solver_progress import gap_text

draw: Any = solver_progress


def moments(*rows: tuple[float, float | None, float | None]) -> Any:
    return [SimpleNamespace(seconds=seconds, cost=cost, lower_bound=bound) for seconds, cost, bound in rows]


HISTORY = moments((0.1, None, 100.0), (0.5, 150.0, 100.0), (2.0, 150.0, 110.0), (3.0, 125.0, 110.0))


def test_both_lines_are_overheads_at_the_times_of_their_changes_and_reach_the_end() -> None:
    best, bound = draw(HISTORY, 100.0).data
    assert (list(best.x), list(best.y)) == ([0.5, 3.0], pytest.approx([50.0, 25.0]))
    assert (list(bound.x), list(bound.y)) == ([0.1, 2.0, 3.0], pytest.approx([0.0, 10.0, 10.0]))


def test_the_gap_is_that_of_the_last_moment() -> None:
    figure = draw(HISTORY, 100.0)
    assert figure.layout.annotations[0].text == gap_text(HISTORY) == "gap 12.0 %"


@pytest.mark.parametrize(
    ("history", "said"),
    [
        (moments(), "Nothing has been found yet"),
        (moments((1.0, None, None)), "Nothing has been found yet"),
        (moments((1.0, 5.0, None)), "no bound proven yet"),
        (moments((1.0, None, 5.0)), "no schedule yet"),
    ],
)
def test_what_is_not_known_is_said(history: Any, said: str) -> None:
    figure = draw(history, 4.0, theme="dark")
    assert figure.layout.annotations[0].text == said
    assert len(figure.data) == 2
