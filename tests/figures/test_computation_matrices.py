"""R of several schedules: each cell as its schedule says, one panel for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remat_explorer.errors import ScheduleError
from remat_explorer.figures import computation_matrices
from remat_explorer.figures.schedule_heatmap import RECOMPUTE
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all, solve


def test_every_panel_shows_what_its_schedule_computes():
    tight = solve(linear(4), 4).schedule
    assert tight is not None
    figure: Any = computation_matrices([checkpoint_all(linear(4)), tight], ["kept", "tight"])
    kept, shown = (trace for trace in figure.data if trace.type == "heatmap")
    assert np.array_equal(kept.z > 0, np.eye(9, dtype=bool))
    assert np.array_equal(shown.z > 0, tight.R > 0)
    assert int((shown.z == RECOMPUTE).sum()) == tight.recomputations > 0
    assert [note.text for note in figure.layout.annotations] == ["kept", "tight"]


@pytest.mark.parametrize(("count", "titles"), [(0, []), (1, []), (1, ["a", "b"])])
def test_as_many_titles_as_schedules_are_needed(count, titles):
    with pytest.raises(ScheduleError, match=f"{count} schedules and {len(titles)} titles"):
        computation_matrices([checkpoint_all(linear(2))] * count, titles)
