"""Schedules from what is kept: the least R, and the one that keeps everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_explorer.checker import check
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all
from remat_explorer.solvers.methods.chen import segment_schedule
from remat_explorer.solvers.methods.static_policy import schedule_of
from tests.solvers.candidates import candidates_of
from tests.solvers.drawn_graphs import training_graphs
from tests.solvers.drawn_settings import DRAWN


@given(training_graphs())
@settings(deadline=None)
def test_each_value_is_kept_up_to_its_last_read_as_compact_would(graph):
    found = checkpoint_all(graph)
    nothing = np.zeros((graph.stages, len(graph.values)), dtype=bool)
    compact = Schedule(graph, np.eye(graph.n)[graph.mandatory], nothing).compact()
    assert (found.R == compact.R).all()
    assert (found.S == compact.S).all()
    assert found.violation() is None


@DRAWN
@given(training_graphs(), st.randoms())
def test_every_recomputation_is_needed_by_what_is_kept_whatever_is_kept(graph, random):
    """R is minimal: without any single one of its recomputations the same S is no schedule."""
    values = len(graph.values)
    rows = np.array([[random.random() < 0.4 for _ in range(values)] for _ in range(graph.n)])
    schedule = schedule_of(graph, lambda t, retained: rows[t])
    check(graph, schedule.R, schedule.S)
    for t, k in np.argwhere(np.tril(schedule.R, -1)):
        fewer = schedule.R.copy()
        fewer[t, k] = 0
        assert Schedule(graph, fewer, schedule.S).violation() is not None


@DRAWN
@given(training_graphs())
def test_to_keep_everything_is_checkpoint_all(graph):
    kept = schedule_of(graph, lambda t, retained: np.ones(len(graph.values), dtype=bool))
    plain = checkpoint_all(graph)
    assert np.array_equal(kept.R, plain.R)
    assert np.array_equal(kept.S, plain.S)


@DRAWN
@given(training_graphs(), st.sets(st.integers(0, 3)))
def test_gradients_and_the_way_forward_are_never_recomputed(graph, checkpoints):
    forward = ~graph.is_backward
    for once in (True, False):
        R = segment_schedule(graph, sorted(checkpoints), once).R > 0
        assert not np.tril(R[forward], -1).any()
        assert R[:, ~forward].sum(axis=0).max() == 1


@DRAWN
@given(training_graphs(), st.sets(st.integers(0, 3)))
def test_kept_to_their_last_use_recomputed_values_cost_one_more_forward_pass_at_most(graph, checkpoints):
    R = segment_schedule(graph, sorted(checkpoints), once=True).R > 0
    assert R.sum(axis=0).max() <= 2
    assert R[:, sorted(checkpoints)].sum(axis=0).max(initial=1) == 1


def test_to_keep_nothing_recomputes_the_way_to_every_value_that_is_read(captured):
    graph = captured("vgg16")
    (found,) = candidates_of("checkpoint-last", graph)
    R = found.schedule.R > 0
    for t in np.flatnonzero(graph.is_backward):
        read = [int(graph.producer[v]) for v in graph.inputs(int(t)) if not graph.is_backward[graph.producer[v]]]
        before_it = max(read, default=-1) if t - 1 not in read else -1
        if t > int((~graph.is_backward).sum()):
            assert R[t, : before_it + 1].all()
            assert not R[t, before_it + 1 : t].any()


@pytest.mark.parametrize("once", [True, False])
def test_checkpoints_alone_outlive_the_forward_pass(captured, once):
    graph = captured("mobilenet_v1")
    schedule = segment_schedule(graph, [10, 30], once)
    first = int(graph.is_backward.argmax())
    kept = {int(k) for k in graph.producer[schedule.S[first] & ~graph.persistent]}
    assert {10, 30} <= kept
    assert all(k in (10, 30) or k > 30 for k in kept)
