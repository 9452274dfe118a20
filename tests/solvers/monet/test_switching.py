"""Reruns in other implementations than the first run, and choices that cannot be as they are."""

from __future__ import annotations

import random

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.base import checkpoint_all
from remat_explorer.solvers.monet.selections import default_selection, make_consistent, restricted_to
from remat_explorer.solvers.monet.windows import switch_runs
from tests.solvers.monet.choice_graphs import random_graph


def normalized() -> Graph:
    """An operation that saves statistics, with which it runs again for a tenth of the cost."""
    values = (Value("x", 8), Value("y", 8), Value("s", 1), Value("z", 8), Value("g", 1), Value("w", 1, True))
    again = Implementation((0, 2), (1,), 1.0, name="with saved statistics")
    return Graph(
        "normalized",
        values,
        (
            operation("f", "forward", [], [0], 1.0),
            Operation("norm", "forward", (Implementation((0,), (1, 2), 10.0), again)),
            operation("h", "forward", [1], [3], 1.0),
            operation("loss", "backward", [3], [4], 1.0),
            operation("gradient", "backward", [0, 1, 2, 4], [5], 1.0),
        ),
    )


def test_a_rerun_takes_the_cheaper_implementation_and_the_first_run_does_not():
    graph = normalized()
    R = np.eye(5, dtype=int)
    R[4, 1] = 1
    schedule = Schedule(graph, R, np.zeros((5, 6), dtype=bool)).compact()
    assert not schedule.S[4, 2]
    switched = switch_runs(schedule, 2000)
    assert switched.S[4, 2]  # the statistics are small, so they stay in memory until then
    assert switched.R[1, 1] == 1
    assert switched.R[4, 1] == 2
    assert switched.cost == schedule.cost - 9
    assert switch_runs(schedule, Plan.of(schedule).peak) is schedule  # one byte is much there


@pytest.mark.parametrize("seed", range(30))
def test_switched_schedules_are_valid_and_within_the_budget(seed):
    graph = random_graph(seed, layers=4)
    plain = default_selection(graph)
    peak = checkpoint_all_peak(graph)
    for share in (0.8, 0.95, 1.0):
        found = solve(plain.graph, int(share * peak), threads=1).schedule
        if found is None:
            continue
        schedule = plain.lift(found)
        budget = Plan.of(schedule).peak
        switched = switch_runs(schedule, budget)
        assert check(graph, switched.R, switched.S, budget).cost <= schedule.cost
        assert switched is schedule or switched.cost < schedule.cost


def test_only_allowed_implementations_are_taken():
    graph = random_graph(4, layers=5)
    keep = checkpoint_all(graph)
    assert switch_runs(keep, checkpoint_all_peak(graph), [[1] for _ in graph.operations]) is keep


@pytest.mark.parametrize("seed", range(20))
def test_any_choice_can_be_made_consistent(seed):
    draw = random.Random(seed)
    graph = random_graph(seed, layers=6)
    for _ in range(20):
        choice = {
            k: draw.randint(1, len(node.implementations))
            for k, node in enumerate(graph.operations)
            if not node.optional
        }
        assert restricted_to(graph, make_consistent(graph, choice)).graph.n <= graph.n


def test_readers_that_go_back_to_their_defaults_take_producers_between_with_them():
    values = tuple(Value(name, 1) for name in ("x", "s", "y", "a", "b"))
    graph = Graph(
        "between",
        values,
        (
            Operation("p", "forward", (Implementation((), (0,), 1.0), Implementation((), (1,), 1.0, name="s"))),
            Operation("q", "forward", (Implementation((), (2,), 1.0), Implementation((), (), 1.0, name="none"))),
            Operation("u", "backward", (Implementation((0, 2), (3,), 1.0), Implementation((1,), (3,), 1.0, name="s"))),
            operation("w", "backward", [0, 3], [4], 1.0),
        ),
    )
    found = make_consistent(graph, {0: 2, 1: 2, 2: 2})
    assert restricted_to(graph, found).codes == (1, 1, 1, 1)
