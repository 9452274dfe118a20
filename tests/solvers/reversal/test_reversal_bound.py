"""The bound of a path that is visited in reverse: REVOLVE's cost on unit chains, and never above an optimum."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings

from remat_explorer.graph import Graph, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.methods.griewank import binomial_within
from remat_explorer.solvers.reversal import reversal_bound as bound
from remat_explorer.solvers.reversal.reversal_bound import reversal_bound, visited_positions
from tests.solvers.drawn_blocks import residual_graphs
from tests.solvers.drawn_chains import chains
from tests.solvers.drawn_graphs import problems, training_graphs
from tests.solvers.drawn_settings import DRAWN
from tests.solvers.exhaustive import frontier_optimum
from tests.thorough import thorough_but


def test_on_unit_chains_it_is_what_revolve_costs():
    for layers in (2, 3, 5, 8, 13, 34, 60):
        chain = linear(layers)
        for budget in range(3, layers + 4):
            found = binomial_within(chain, budget)
            assert found is not None
            assert reversal_bound(Condensed.of(chain), budget) == found.cost, (layers, budget)
        assert math.isinf(reversal_bound(Condensed.of(chain), 2))


@pytest.mark.parametrize(("layers", "size", "budget"), [(200, 97, 73), (200, 97, 83), (60, 7, 12), (60, 7, 0)])
def test_the_unit_of_bytes_does_not_matter(layers, size, budget):
    chain = linear(layers)
    scaled = replace(chain, values=tuple(replace(value, bytes=size * value.bytes) for value in chain.values))
    proven = reversal_bound(Condensed.of(chain), budget)
    assert reversal_bound(Condensed.of(scaled), size * budget) == proven
    assert math.isinf(proven) == (budget == 0)


@pytest.mark.parametrize("graphs", thorough_but([300, 2000], 300))
@pytest.mark.parametrize("work", [bound.WORK, 40.0])
def test_it_is_never_above_an_optimum_of_residual_blocks(monkeypatch, work, graphs):
    monkeypatch.setattr(bound, "WORK", work)  # little of it makes slots large
    above = 0

    @settings(DRAWN, max_examples=graphs)
    @given(problems(residual_graphs()))
    def is_never_above(problem):
        nonlocal above
        graph, budget = problem
        proven = reversal_bound(Condensed.of(graph), budget)
        above += proven > graph.total_cost
        assert graph.total_cost <= proven <= frontier_optimum(graph, budget, splits=None) + 1e-9

    is_never_above()
    assert above > graphs / 5  # it says more than that every operation runs once


@DRAWN
@given(problems(training_graphs() | chains(5)))
def test_nor_of_other_graphs(problem):
    graph, budget = problem
    proven = reversal_bound(Condensed.of(graph), budget)
    assert graph.total_cost <= proven <= frontier_optimum(graph, budget, splits=None) + 1e-9


def blocks(count: int, beside: int) -> Graph:
    """A stem, and blocks of ``beside`` operations that read the block's input, and one that reads them all and it.

    Every operation costs 1, and every value has one byte. Back through a block go an operation that reads the gradient
    of its result, one that reads what the block's last operation read, and the sum of the two gradients.
    """
    values: list[Value] = []
    operations: list[Operation] = []

    def add(phase, reads: list[int]) -> int:
        values.append(Value(f"v{len(values)}", 1))
        operations.append(operation(f"o{len(operations)}", phase, sorted(reads), [len(values) - 1], 1))
        return len(values) - 1

    x, read = add("forward", []), []
    for _ in range(count):
        inner = [add("forward", [x]) for _ in range(beside)]
        read.append([x, *inner])
        x = add("forward", read[-1])
    gradient = add("backward", [x])
    for saved in reversed(read):
        inner = add("backward", [gradient])
        gradient = add("backward", [gradient, add("backward", [inner, *saved])])
    return Graph(f"{count} blocks", tuple(values), tuple(operations))


def test_operations_beside_each_other_run_again_together():
    positions = visited_positions(Condensed.of(blocks(3, beside=3)), 12, 100)
    assert [len(position.operations) for position in positions] == [1, 4, 4, 4]
    assert [position.visit.again for position in positions] == [1.0, 4.0, 4.0, 3.0]


def test_a_gradient_that_bypasses_a_block_stays_or_is_made_again_with_all_before_it():
    condensed = Condensed.of(blocks(4, beside=0))
    visits = [position.visit for position in visited_positions(condensed, 8, 100)]
    assert [(visit.operation, visit.bystander.bytes, visit.bystander.penalty) for visit in visits] == [
        (16, 1, 10.0),
        (13, 1, 7.0),
        (10, 1, 4.0),
        (7, 1, 1.0),
        (5, 0, 0.0),
    ]
    assert [visit.room for visit in visits] == [5, 5, 5, 5, 6]


def test_what_is_visited_in_the_order_of_the_forward_pass_need_not_run_again_in_reverse():
    values = tuple(Value(f"v{i}", 1) for i in range(10))
    forward = [operation(f"f{i}", "forward", [i - 1] if i else [], [i], 1) for i in range(5)]
    backward = [operation(f"b{i}", "backward", [4 + i, i] if i else [0], [5 + i], 1) for i in range(5)]
    graph = Graph("in order", values, (*forward, *backward))
    for budget in (3, 4, 5):
        visits = [position.visit.operation for position in visited_positions(Condensed.of(graph), budget, 100)]
        assert visits == sorted(visits, reverse=True)
        assert reversal_bound(Condensed.of(graph), budget) <= frontier_optimum(graph, budget, splits=None)


def test_it_ends_at_once_where_it_is_told_to():
    condensed = Condensed.of(linear(100))
    assert reversal_bound(condensed, 8) > condensed.graph.total_cost
    assert reversal_bound(condensed, 8, over=lambda: True) == condensed.graph.total_cost
