"""Plans: frees as early as possible, and a checker that finds what is wrong with one."""

import dataclasses

import numpy as np
import pytest

from remat_explorer.checker import check, replay
from remat_explorer.errors import ScheduleError
from remat_explorer.instances import linear
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.schedule import Schedule

EVERYTHING = [(k, k, 1) for k in range(5)]


def random_schedule(layers: int, seed: int) -> Schedule:
    """Values retained at random, and the fewest recomputations that make it valid."""
    graph, rng = linear(layers), np.random.default_rng(seed)
    n = graph.n
    R, S = np.eye(n, dtype=int), np.tril(rng.random((n, n)) < 0.4, -1).astype(int)
    for t in range(n):
        for k in range(t, -1, -1):
            if t + 1 < n and S[t + 1, k] and not S[t, k]:
                R[t, k] = 1
            if R[t, k]:
                for v in graph.inputs(k):
                    R[t, v] |= not S[t, v]
    return Schedule(graph, R, S)


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_never_peaks_above_U_and_replays_to_its_own_prediction(seed):
    schedule = random_schedule(6, seed)
    found = check(schedule.graph, schedule.R, schedule.S)
    assert replay(found.plan) == (schedule.cost, found.plan.timeline.peak)
    assert found.peak <= found.U_peak
    compact = schedule.compact()
    assert check(compact.graph, compact.R, compact.S).peak <= found.peak
    assert compact.cost <= schedule.cost


def test_a_value_is_freed_right_after_its_last_use():
    plan = Plan.from_sequence(linear(2), EVERYTHING)
    frees = {s.value: i for i, s in enumerate(plan.statements) if isinstance(s, Free)}
    computes = {s.operation: i for i, s in enumerate(plan.statements) if isinstance(s, Compute)}
    assert frees[0] > computes[4]
    assert computes[3] < frees[1] < computes[4]
    assert plan.timeline.after[-1] == 0


def test_the_timeline_counts_outputs_before_it_frees_inputs():
    timeline = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]).timeline
    assert timeline.during.tolist() == [1, 2, 3, 3, 2, 1]
    assert timeline.after.tolist() == [1, 2, 3, 2, 1, 0]
    assert timeline.peak_statement == 2


def test_a_recomputation_replaces_the_version_before_it():
    plan = Plan.from_sequence(linear(2), [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 0, 1), (4, 4, 1)])
    kinds = [(s.operation, s.first) if isinstance(s, Compute) else -s.value for s in plan.statements]
    assert kinds.index(0) < kinds.index((0, False))  # v0 is freed before it is computed again
    assert plan.text(plan.statements[0]) == "compute v0"


def test_a_sequence_that_reads_what_was_never_computed_is_refused():
    with pytest.raises(ScheduleError, match="statement 1 computes 'v2' but its input 'v1' was never computed"):
        Plan.from_sequence(linear(2), [(0, 0, 1), (1, 2, 1)])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda s: s[1:], "without 'v0' in memory"),
        (lambda s: (*s, Free(4, 0)), "frees 'v0', which is not held"),
        (lambda s: s[:-1], "never frees"),
        (lambda s: (s[0], *s), "overwrites 'v0', which is still held"),
        (lambda s: (dataclasses.replace(s[0], first=False), *s[1:]), "mislabels the first run of 'v0'"),
    ],
)
def test_the_checker_finds_a_broken_plan(broken, message):
    plan = Plan.from_sequence(linear(2), EVERYTHING)
    with pytest.raises(ScheduleError, match=message):
        replay(Plan(plan.graph, broken(plan.statements)))
