"""The schedule that keeps everything is written down directly; that of the general rule is the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from tests.solvers.drawn_graphs import training_graphs


@given(training_graphs())
@settings(deadline=None)
def test_each_value_is_kept_up_to_its_last_read_as_compact_would(graph):
    found = checkpoint_all(graph)
    nothing = np.zeros((graph.stages, len(graph.values)), dtype=bool)
    compact = Schedule(graph, np.eye(graph.n)[graph.mandatory], nothing).compact()
    assert (found.R == compact.R).all()
    assert (found.S == compact.S).all()
    assert found.violation() is None
