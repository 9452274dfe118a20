"""Which split points become checkpoints, and which segment sizes the search tries."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import STRATEGIES, solve
from remat_explorer.solvers.heuristics.segmentation import (
    articulation_split_points,
    chain_points,
    every_sqrt_n,
    greedy,
    kept_values,
    linearized_points,
    segment_sizes,
)
from tests.solvers.candidates import candidates_of
from tests.solvers.drawn_chains import chains
from tests.solvers.drawn_settings import DRAWN

GREEDY = ("chen-greedy", "ap-greedy", "linearized-greedy")


def algorithm_3(graph: Graph, points: list[int], budget: int) -> list[int]:
    """Chen's Algorithm 3, line by line."""
    checkpoints, temp = [], 0
    for k in range(graph.n):
        if graph.is_backward[k]:
            continue
        temp += sum(graph.values[v].bytes for v in kept_values(graph, k))
        if k in points and temp > budget:
            checkpoints.append(k)
            temp = 0
    return checkpoints


def branching_graph() -> Graph:
    """A stem, two branches that are summed, a head and a loss, with one gradient each; the sum is written in place."""
    reads = [[], [0], [1], [1], [2, 3], [4], [5]]
    sizes = [4, 4, 6, 6, 6, 2, 1]
    values = [Value(f"v{k}", size, persistent=k == 6) for k, size in enumerate(sizes)]
    operations = [
        operation(f"o{k}", "forward", inputs, [k], 2, overwrites=2 if k == 4 else None)
        for k, inputs in enumerate(reads)
    ]
    for k in reversed(range(6)):
        gradient = len(values)
        values.append(Value(f"gradient{k}", sizes[k]))
        operations.append(operation(f"b{k}", "backward", sorted({k, gradient - 1} - {6}), [gradient], 3))
    return Graph("branches", tuple(values), tuple(operations))


@DRAWN
@given(chains(), st.integers(0, 40), st.sets(st.integers(0, 8)))
def test_the_greedy_rule_is_algorithm_3(graph, budget, chosen):
    points = [k for k in chain_points(graph) if k in chosen]
    assert greedy(graph, points, budget) == algorithm_3(graph, points, budget)


@DRAWN
@given(chains())
def test_the_search_finds_every_segmentation_of_a_short_chain(graph):
    points = chain_points(graph)
    total = sum(value.bytes for value in graph.values)
    every = {tuple(algorithm_3(graph, points, budget)) for budget in range(total + 1)}
    assert {tuple(greedy(graph, points, size)) for size in segment_sizes(graph, points, most=1000)} == every


def test_the_search_over_a_large_network_is_bounded_and_reaches_both_ends(captured):
    for name in ("mobilenet_v1", "densenet161", "gpt2"):
        graph = captured(name)
        points = linearized_points(graph)
        found = [tuple(greedy(graph, points, size)) for size in segment_sizes(graph, points)]
        assert 30 <= len(found) <= 40
        assert len(set(found)) == len(found)
        assert found[0] == tuple(points)
        assert found[-1] == ()


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 9, 10, 50])
def test_segments_of_the_square_root_have_floor_of_sqrt_n_points(number):
    points = list(range(100, 100 + number))
    ends = [-1, *(points.index(k) for k in every_sqrt_n(points))]
    lengths = {b - a for a, b in pairwise(ends)}
    assert lengths == ({max(1, int(number**0.5))} if number else set())
    assert len(points) - 1 - ends[-1] < max(1, int(number**0.5))


def test_articulation_points_and_both_ends_are_split_points_but_not_the_loss():
    graph = branching_graph()
    assert graph.articulation_points() == (1, 4, 5)
    assert articulation_split_points(graph) == [0, 1, 4, 5]
    assert linearized_points(graph) == [0, 1, 2, 3, 4, 5]


def test_a_branch_is_recomputed_from_the_articulation_point_before_it():
    (found,) = candidates_of("ap-greedy", branching_graph(), segment_bytes=17)
    assert greedy(branching_graph(), articulation_split_points(branching_graph()), 17) == [4]
    assert (found.schedule.R > 0).sum(axis=0).tolist()[:7] == [2, 2, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("strategy", GREEDY)
@pytest.mark.parametrize("given", [-1, 2.5, "8", None.__class__, float("inf")])
def test_segment_bytes_that_are_no_bytes_are_refused(strategy, given):
    with pytest.raises(SolverError, match=r"segment_bytes is .*give a whole number of bytes, at least 0"):
        solve(linear(4), 10, strategy, segment_bytes=given)


@pytest.mark.parametrize("strategy", GREEDY)
def test_the_values_of_the_knob_cover_what_the_method_tries_by_itself(strategy):
    graph, knob = linear(12), STRATEGIES[strategy].knob
    assert knob is not None
    costs = [found.schedule.cost for found in candidates_of(strategy, graph)]
    single = [solve(graph, 100, strategy, segment_bytes=value).cost for value in knob.values(graph)]
    assert set(single) == set(costs)


def test_a_segment_size_chooses_one_schedule_and_no_other_option_is_taken():
    free, chosen = solve(linear(8), 10, "ap-greedy"), solve(linear(8), 10, "ap-greedy", segment_bytes=3)
    assert (free.cost, chosen.cost) == (17.0, 23.0)
    with pytest.raises(SolverError, match="'ap-greedy' has no option 'slots'; its options: segment_bytes"):
        solve(linear(8), 10, "ap-greedy", slots=2)
