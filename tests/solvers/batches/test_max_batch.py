"""The largest batch: found schedules fit, bounds hold, and the networks of Checkmate's Figure 6 are settled."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.errors import GraphError, QuantityError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import max_batch, scale_batch
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.batches.batch_bound import BatchProblem, integral_batch_bound, relaxed_batch_bound
from remat_explorer.solvers.batches.batch_scaling import BatchScaling
from tests.solvers.orders_of_computations import least_cost


def true_batch(scaling: BatchScaling, memory: int, overhead_limit: str | float | None, most: int) -> int:
    """The largest batch up to ``most`` with an order of computations that fits and is cheap enough."""
    problem = BatchProblem(scaling, memory, overhead_limit)
    for batch in range(most, 0, -1):
        cost = least_cost(scaling.at(batch), memory)
        if problem.allows(cost, batch):
            return batch
    return 0


@pytest.mark.parametrize("name", ["VGG19", "MobileNet", "vgg_unet"])
def test_the_networks_of_figure_6_have_their_largest_batch_proven(name, data):
    graph = Graph.load(str(data / "graphs" / f"keras_{name}.json"))
    expected = json.loads((data.parents[1] / "reproduction" / "data" / "max_batch_16GB.json").read_text())[name]
    found = max_batch(graph, "16 GB")
    assert found.optimal
    assert found.batch == expected["batch_upper_bound"] >= expected["paper_checkmate"]
    assert found.schedule is not None
    checked = check(scale_batch(graph, found.batch), found.schedule.R, found.schedule.S, 16 * 10**9)
    assert checked.cost <= expected["cost_cap_batch1"] * found.batch
    assert (checked.cost, checked.peak) == (found.cost, found.peak)


@pytest.mark.parametrize("overhead_limit", ["one extra forward", 1.15, "40%", None])
def test_batches_found_are_attainable_and_bounds_are_valid_on_random_training_graphs(random_graph, overhead_limit):
    settled = 0
    for seed in range(6):
        graph = random_graph(seed, layers=3)
        memory = graph.resident_bytes + (9 + 3 * seed) * 10
        found = max_batch(graph, memory, overhead_limit, time_limit=3)
        scaling = BatchScaling.by_rule(graph)
        assert found.batch <= true_batch(scaling, memory, overhead_limit, found.upper_bound + 2) <= found.upper_bound
        settled += found.optimal
    assert settled >= 3


def test_bounds_are_valid_where_bytes_and_costs_have_parts_that_do_not_grow(overwriting_graph):
    for seed in range(6):
        small = overwriting_graph(seed, layers=3)
        random = np.random.default_rng(seed)
        once = {value.bytes: min(value.bytes, int(random.integers(0, 3))) for value in small.values}
        # equal sizes stay equal, as an overwritten value's and its successor's must
        values = (replace(value, bytes=3 * value.bytes - 2 * once[value.bytes]) for value in small.values)
        larger = replace(small, values=tuple(values), resident_bytes=small.resident_bytes + 2 * seed)
        scaling = BatchScaling.measured_from(small, larger, (1, 3))
        problem = BatchProblem(scaling, small.resident_bytes + 120, "one extra forward")
        bound = relaxed_batch_bound(problem, 40, Limits())
        truth = true_batch(scaling, problem.memory, problem.overhead_limit, 40)
        assert integral_batch_bound(problem, bound, Limits()).batch >= truth
        assert 40 >= bound.batch >= truth
        found = max_batch(small, problem.memory, larger=larger, batches=(1, 3), time_limit=3)
        assert found.batch <= truth <= found.upper_bound


def test_two_graphs_tell_what_grows_with_the_batch():
    small, large = linear(3), replace(scale_batch(linear(3), 4), resident_bytes=12)
    values = (replace(large.values[0], bytes=1), *large.values[1:])
    scaling = BatchScaling.measured_from(small, replace(large, values=values), (1, 4))
    assert [scaling.at(batch).value_bytes.tolist() for batch in (1, 4, 10)] == [[1] * 7, [1] + [4] * 6, [1] + [10] * 6]
    assert [scaling.at(batch).resident_bytes for batch in (1, 4, 10)] == [3, 12, 30]
    assert [scaling.at(batch).total_cost for batch in (1, 4, 10)] == [7, 28, 70]


def test_a_number_that_shrinks_as_the_batch_grows_is_taken_for_constant():
    scaling = BatchScaling.measured_from(scale_batch(linear(2), 3), linear(2), (1, 2))
    assert scaling.at(1).value_bytes.tolist() == scaling.at(9).value_bytes.tolist() == [1] * 5


def test_by_the_rule_parameters_and_persistent_values_are_counted_once(random_graph):
    graph = random_graph(3, layers=4)
    scaled = scale_batch(graph, 7)
    assert scaled.resident_bytes == graph.resident_bytes
    assert graph.persistent.any()
    assert (scaled.value_bytes == graph.value_bytes * np.where(graph.persistent, 1, 7)).all()
    assert scaled.total_cost == 7 * graph.total_cost


def test_a_memory_too_small_for_one_example_is_said_to_be():
    found = max_batch(linear(8), memory=2)
    assert (found.batch, found.upper_bound, found.schedule) == (0, 0, None)
    assert "not even one example fits into 2 B: 'v9' alone needs more" in str(found)


def test_without_a_limit_on_the_cost_the_largest_operation_bounds_the_batch():
    found = max_batch(linear(8), memory=31, overhead_limit=None)
    assert (found.batch, found.upper_bound, found.cost) == (10, 10, 450)


def test_a_function_of_the_batch_is_captured_again_at_the_batch_found():
    asked = []

    def capture(batch: int) -> Graph:
        asked.append(batch)
        extra = 0 if batch < 10 else 2 * batch  # which the two small batches do not show
        return replace(scale_batch(linear(8), batch), resident_bytes=extra)

    found = max_batch(capture, memory=100, time_limit=3)
    assert asked[:2] == [2, 4]
    assert found.batch in asked
    assert found.schedule is not None
    check(capture(found.batch), found.schedule.R, found.schedule.S, 100)
    assert found.batch == 14  # (100 - 2 * 14) // 14 = 5 values, which one extra forward pass allows for


@pytest.mark.parametrize("limit", ["two extra forwards", 0.9, "10", True, "-5%", "nan"])
def test_a_limit_that_cannot_be_read_is_quoted(limit):
    if limit == "10":
        assert max_batch(linear(4), 100, limit).batch > 0
        return
    with pytest.raises(QuantityError, match="is no limit on the overhead; write"):
        max_batch(linear(4), 100, limit)


def test_graphs_of_different_structure_are_refused_by_name():
    with pytest.raises(
        GraphError, match=r"has -2 operations compared with the other; graphs at batch 1 and 2 must differ"
    ):
        max_batch(linear(4), 100, larger=linear(5))
    with pytest.raises(GraphError, match="not two ascending batch sizes"):
        max_batch(linear(4), 100, larger=linear(4), batches=(2, 2))


def test_a_graph_that_does_not_grow_is_refused():
    with pytest.raises(GraphError, match="nothing of 'linear4' grows with the batch"):
        max_batch(linear(4), 100, larger=linear(4))


def test_once_cancelled_the_best_so_far_comes_back():
    found = max_batch(linear(8), 1000, cancelled=lambda: True)
    assert found.batch == found.checkpoint_all_batch == 100
    assert found.upper_bound == 333


def test_a_search_that_ends_before_the_first_linear_program_has_planned_for_larger_batches():
    doing: list[str] = []
    begun = "bounding from a few moments"
    found = max_batch(
        linear(8),
        1000,
        on_progress=lambda progress: doing.append(progress.doing),
        cancelled=lambda: any(words.startswith(begun) for words in doing),
    )
    assert found.checkpoint_all_batch == 100 < found.batch
    assert doing[-1].startswith("done")


def test_a_capture_that_would_end_after_the_limit_is_not_begun(monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr("remat_explorer.solvers.base.time.monotonic", lambda: now[0])
    asked = []

    def capture(batch: int) -> Graph:
        asked.append(batch)
        now[0] += 40.0
        return scale_batch(linear(8), batch)

    found = max_batch(capture, memory=1000, time_limit=100)
    assert asked == [2, 4]
    assert found.schedule is not None
