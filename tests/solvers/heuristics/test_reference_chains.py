"""Chen's methods and the two ends of the trade-off, against the baselines that Checkmate's authors published."""

from __future__ import annotations

import pytest

from remat_explorer.checker import check
from remat_explorer.instances import linear
from tests.solvers.candidates import candidates_of

METHODS = {
    "checkpoint_last_node": ("checkpoint-last",),
    "chen_sqrtn": ("chen-sqrt-n", "ap-sqrt-n", "linearized-sqrt-n"),
    "chen_greedy": ("chen-greedy", "ap-greedy", "linearized-greedy"),
}


@pytest.mark.parametrize("method", METHODS)
def test_costs_equal_those_of_the_reference_and_peaks_are_at_most_those(reference, method):
    entries = [entry for entry in reference("baselines_linear.json") if entry["method"] == method]
    assert len(entries) >= 4
    for entry in entries:
        graph = linear(int(entry["graph"].removeprefix("linear")))
        options = {} if entry["segment_mem"] is None else {"segment_bytes": entry["segment_mem"]}
        for strategy in METHODS[method]:
            (candidate,) = candidates_of(strategy, graph, **options)
            found = check(graph, candidate.schedule.R, candidate.schedule.S)
            assert found.cost == entry["cost"], entry
            assert found.peak <= entry["peak"], entry
