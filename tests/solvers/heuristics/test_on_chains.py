"""What is a chain, and that Chen's, the articulation point and the linearized methods are one on chains."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Phase, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import solve
from remat_explorer.solvers.heuristics.chain import require_chain
from remat_explorer.solvers.heuristics.segmentation import (
    articulation_split_points,
    chain_points,
    linearized_points,
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
