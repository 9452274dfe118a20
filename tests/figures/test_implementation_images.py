"""Which implementation runs where: colours of R, and the number of runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explanations.choices import kinds_in
from remat_explorer.figures.implementation_images import (
    DARK,
    LIGHT,
    Use,
    implementation_images,
    implementations_used,
    kinds_run,
)
from remat_explorer.figures.schedule_images import MARKS, PIXELS, legend_squares
from tests.figures.choices import chain_with_choices


@pytest.fixture(scope="module")
def schedule() -> Any:
    return rx.solve(chain_with_choices(), 3600, "monet", time_limit=20).schedule


def test_cells_are_of_the_kind_of_what_runs(schedule: Any) -> None:
    names, cells = ("", *kinds_in(schedule.graph)), kinds_run(schedule)
    assert ((cells == 0) == (schedule.R == 0)).all()
    shown = {names[cells[stage, k] - 1] for stage, k in zip(*np.nonzero(schedule.R == 2), strict=True)}
    assert shown == {"masks", "algorithms"}
    assert set(cells[:, 2]) <= {0, 1 + names.index("masks")}  # what makes the mask is of the kind of what reads it


def test_uses_are_counted_by_kind_and_name(schedule: Any) -> None:
    assert implementations_used(schedule) == [
        Use("masks", "from bits", operations=1, runs=1, tolerance=0.0),
        Use("masks", "make mask", operations=1, runs=1, tolerance=0.0),
        Use("algorithms", "native", operations=1, runs=1, tolerance=1e-6),
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bars_and_legend_say_what_runs(theme: Any, schedule: Any) -> None:
    figure: Any = implementation_images(schedule, theme)
    known = LIGHT if theme == "light" else DARK
    picture, bars, *squares = figure.data
    assert picture.type == "image"
    assert list(bars.y) == ["default", "masks", "algorithms"]
    assert sum(bars.x) == len(schedule.sequence)
    assert list(bars.marker.color) == [known[kind] for kind in ("", "masks", "algorithms")]
    assert [(one.name, one.marker.color) for one in squares] == list(zip(bars.y, bars.marker.color, strict=True))


def test_single_cells_of_large_matrices_are_marked_unless_there_are_too_many() -> None:
    diagonal = np.eye(PIXELS + 1, dtype=np.uint8)
    marked = legend_squares(diagonal, [(1, "computed", "#000000"), (2, "again", "#ff0000")])
    assert [len(square.x) for square in marked] == [PIXELS + 1, 0]
    full = np.ones((PIXELS + 1, MARKS // PIXELS + 1), dtype=np.uint8)
    for cells in (full, np.eye(3)):
        assert [square.x[0] for square in legend_squares(cells, [(1, "computed", "#000000")])] == [None]
