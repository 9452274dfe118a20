"""Stages split into parts: where an operation must run twice in a stage, and where that is cheaper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.figures import memory_heatmap, memory_timeline, schedule_heatmap
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import relax, solve
from remat_explorer.solvers.relaxation import Relaxation
from remat_explorer.solvers.solution import Solution, Status
from tests.solvers.exhaustive import frontier_optimum


def one_source(keepsake: bool = False) -> Graph:
    """x and y from one source, an operation that floods the memory, and their sum.

    Computing x fits only without the source, and y needs the source again, both after the flood. With a keepsake, which
    costs a lot, there is one byte to spare, and the question is who gets it.
    """
    names, sizes = ["source", "a", "x", "b", "y"], [2, 2, 1, 2, 1]
    steps = [
        operation("source", "forward", [], [0], 1),
        operation("a", "forward", [0], [1], 1),
        operation("x", "forward", [1], [2], 1, workspace=1),
        operation("b", "forward", [0], [3], 1),
        operation("y", "forward", [3], [4], 1, workspace=1),
    ]

    def add(name: str, reads: list[int], cost: float = 1, workspace: int = 0) -> int:
        steps.append(operation(name, "forward", reads, [len(names)], cost, workspace))
        names.append(name)
        sizes.append(1)
        return len(names) - 1

    kept = [add("keepsake", [], cost=20)] if keepsake else []
    add("flood", [], workspace=4)
    total = add("sum", [2, 4])
    if kept:
        add("end", [*kept, total])
    values = tuple(Value(name, size) for name, size in zip(names, sizes, strict=True))
    return Graph("one source", values, tuple(steps))


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_two_parts_of_a_stage_find_a_schedule_where_whole_stages_have_none(solver):
    graph = one_source()
    assert math.isinf(frontier_optimum(graph, 5))
    assert solve(graph, 5, "checkmate-ilp", solver=solver).status == Status.INFEASIBLE
    assert solve(graph, 5, "optimal", solver=solver).status == Status.INFEASIBLE
    split = solve(graph, 5, "checkmate-ilp", solver=solver, splits=2)
    optimum = frontier_optimum(graph, 5, splits=2)
    assert (split.status, split.cost, split.lower_bound) == (Status.OPTIMAL, optimum, optimum)
    assert split.schedule is not None
    last_stage = split.schedule.R[-2:]
    assert last_stage[:, 0].tolist() == [1, 1]  # the source, twice


def in_place() -> Graph:
    """The end of a backward pass: the last gradient takes over the storage of the one before, and reads x, too."""
    return Graph(
        "in place",
        tuple(Value(name, size) for name, size in (("x", 2), ("d", 2), ("m", 2), ("weight", 0), ("e", 2))),
        (
            operation("x", "forward", [], [0], 1),
            operation("d", "backward", [], [1], 1),
            operation("m", "backward", [1], [2], 1),
            operation("weight", "backward", [0, 1], [3], 1),
            operation("e", "backward", [0, 2], [4], 1, overwrites=2),
        ),
    )


def test_two_parts_of_a_stage_recompute_in_an_order_that_one_part_cannot():
    """m and then x, because d must go before x comes; nothing runs twice in that stage."""
    graph = in_place()
    assert math.isinf(frontier_optimum(graph, 4))
    assert solve(graph, 4, "checkmate-ilp").status == Status.INFEASIBLE
    split = solve(graph, 4, "checkmate-ilp", splits=2)
    assert (split.status, split.cost) == (Status.OPTIMAL, frontier_optimum(graph, 4, splits=2))
    assert split.schedule is not None
    assert split.schedule.R[-2:].tolist() == [[0, 0, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_two_parts_of_a_stage_can_be_cheaper_and_more_parts_need_not_be():
    graph = one_source(keepsake=True)
    costs = [solve(graph, 6, "checkmate-ilp", splits=splits).cost for splits in (1, 2, 3)]
    assert costs == [frontier_optimum(graph, 6, splits) for splits in (1, 2, 3)]
    assert frontier_optimum(graph, 6) > frontier_optimum(graph, 6, splits=2) == frontier_optimum(graph, 6, splits=None)


def test_on_a_chain_splitting_changes_nothing_but_the_number_of_rows():
    whole, split = (solve(linear(4), 3, "checkmate-ilp", splits=splits) for splits in (1, 2))
    assert (whole.cost, split.cost) == (15, 15)
    assert whole.schedule is not None
    assert split.schedule is not None
    assert (whole.schedule.stages, split.schedule.stages) == (9, 18)
    assert whole.schedule.is_frontier_advancing
    assert not split.schedule.is_frontier_advancing


def test_a_split_schedule_is_checked_saved_planned_and_drawn_like_any_other(tmp_path):
    graph = one_source()
    solution = solve(graph, 5, "checkmate-ilp", splits=2)
    assert solution.schedule is not None
    assert solution.plan is not None
    found = check(graph, solution.schedule.R, solution.schedule.S, 5)
    assert (found.cost, found.peak) == (solution.cost, solution.peak)
    assert max(statement.stage for statement in solution.plan.statements) == 2 * graph.n - 1
    loaded = Solution.load(solution.save(tmp_path / "solution.json"), graph)
    assert loaded.schedule is not None
    assert np.array_equal(loaded.schedule.R, solution.schedule.R)
    assert np.array_equal(loaded.schedule.S, solution.schedule.S)
    for draw in (schedule_heatmap, memory_heatmap):
        figure: Any = draw(solution.schedule)
        assert np.shape(figure.data[0].z) == (2 * graph.n, graph.n)
    assert memory_timeline(solution.plan).data


def test_relaxations_of_split_stages_are_bounds_and_show_their_rows():
    graph = one_source(keepsake=True)
    relaxed = Relaxation.of(graph, 6, splits=2)
    assert relaxed.bound == relax(graph, 6, splits=2) <= frontier_optimum(graph, 6, splits=2) + 1e-6
    assert relaxed.R is not None
    assert relaxed.S is not None
    assert relaxed.R.shape == (2 * graph.n, graph.n)
    assert relaxed.S.shape == (2 * graph.n, len(graph.values))
    assert (relaxed.R * graph.costs).sum() == pytest.approx(relaxed.bound)


@pytest.mark.parametrize("splits", [0, -1, 1.5, True, "2"])
def test_a_number_of_parts_that_is_none_is_quoted(splits):
    with pytest.raises(SolverError, match=f"splits is {splits!r}; expected a whole number from 1 to 100"):
        solve(linear(2), 4, "checkmate-ilp", splits=splits)


@pytest.mark.parametrize("strategy", ["optimal", "checkpoint-all", "checkmate-unpartitioned"])
def test_strategies_that_do_not_split_stages_say_so(strategy):
    with pytest.raises(SolverError, match=f"'{strategy}' has no option 'splits'"):
        solve(linear(2), 4, strategy, splits=2)


def test_formulations_that_do_not_split_stages_say_so():
    with pytest.raises(SolverError, match="the formulation 'optimal' does not split stages"):
        relax(linear(2), 4, "optimal", splits=2)
