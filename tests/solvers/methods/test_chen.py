"""Chen's methods: what is a chain, split points and segments; on chains its three kinds are one."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Phase, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import STRATEGIES, solve
from remat_explorer.solvers.methods.chen import (
    articulation_split_points,
    chain_points,
    every_sqrt_n,
    greedy,
    kept_values,
    linearized_points,
    require_chain,
    segment_sizes,
)
from tests.solvers.candidates import ON_CHAINS, candidates_of
from tests.solvers.drawn_chains import chains
from tests.solvers.drawn_settings import DRAWN


def graph_of(phases: str, reads: list[list[int]]) -> Graph:
    """A graph of unit operations, one value each; ``phases`` has f or b for each."""
    names: dict[str, Phase] = {"f": "forward", "b": "backward"}
    rows = enumerate(zip(phases, reads, strict=True))
    operations = tuple(operation(f"o{k}", names[phase], inputs, [k], 1) for k, (phase, inputs) in rows)
    return Graph("small", tuple(Value(f"v{k}", 1) for k in range(len(phases))), operations)


@DRAWN
@given(chains())
def test_the_three_kinds_of_split_points_give_the_same_schedules_on_chains(graph):
    for rule in ("sqrt-n", "greedy"):
        chen, *others = (
            [candidate.schedule.R for candidate in candidates_of(f"{kind}-{rule}", graph)]
            for kind in ("chen", "ap", "linearized")
        )
        for other in others:
            assert len(other) == len(chen)
            assert all(np.array_equal(a, b) for a, b in zip(chen, other, strict=True))


@DRAWN
@given(chains())
def test_no_operation_of_a_chain_runs_more_than_twice_in_a_schedule_of_segments(graph):
    for strategy in ("chen-sqrt-n", "chen-greedy"):
        for candidate in candidates_of(strategy, graph):
            assert (candidate.schedule.R > 0).sum(axis=0).max() <= 2
            check(graph, candidate.schedule.R, candidate.schedule.S)


@pytest.mark.parametrize(
    ("phases", "reads", "message"),
    [
        ("fffb", [[], [0], [0, 1], [2]], "forward operation 'o2' (number 2) reads from 'o0', 'o1'"),
        ("fffb", [[], [0], [], [2]], "forward operation 'o2' (number 2) reads from no operation"),
        ("fbfb", [[], [0], [0], [2]], "backward operation 'o1' (number 1) comes before the last forward operation"),
        ("fffb", [[], [0], [1], [0, 2]], "backward operation 'o3' (number 3) reads from the forward operations"),
        ("fffbb", [[], [0], [1], [0], [2, 3]], "reads what 'o2' wrote, after the backward pass has come down to 'o0'"),
    ],
)
def test_the_first_operation_that_breaks_a_chain_is_named(phases, reads, message):
    graph = graph_of(phases, reads)
    for strategy in ON_CHAINS:
        with pytest.raises(SolverError, match=re.escape(message) + "(?s:.*)use .*linearized"):
            solve(graph, "100%", strategy)


def test_captured_sequential_networks_are_chains_and_those_with_skips_are_not(captured):
    assert len(require_chain(captured("vgg16"), "another")) == 26
    assert len(require_chain(captured("mobilenet_v1"), "another")) == 58
    for name in ("unet", "resnet50", "densenet161", "gpt2"):
        with pytest.raises(SolverError, match="is no chain: forward operation"):
            require_chain(captured(name), "another")


def test_the_loss_is_no_checkpoint(captured):
    """What it reads would be recomputed at once, and the loss itself stays in memory anyway."""
    for name in ("vgg16", "mobilenet_v1"):
        graph = captured(name)
        loss = int((~graph.is_backward).sum()) - 1
        for points in (chain_points, articulation_split_points, linearized_points):
            assert points(graph) == list(range(loss))


def test_the_gradients_alone_are_backward_on_the_smallest_chain():
    assert [solve(linear(1), 10, strategy).cost for strategy in ON_CHAINS] == [3.0, 3.0, 3.0]


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
