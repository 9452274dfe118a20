"""The largest batch and the largest image: found schedules fit, bounds hold, and Checkmate's Figure 6 is settled."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.errors import GraphError, QuantityError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import max_batch, max_image, scale_batch
from remat_explorer.solvers.batches.batch_bound import BatchProblem, integral_batch_bound, relaxed_batch_bound
from remat_explorer.solvers.batches.batch_scaling import BatchScaling
from remat_explorer.solvers.batches.max_image import decide_fit
from remat_explorer.solvers.solver_interface import Limits
from tests.solvers.exhaustive import frontier_optimum
from tests.solvers.helpers import present


def true_batch(scaling: BatchScaling, memory: int, overhead_limit: str | float | None, most: int) -> int:
    """The largest batch up to ``most`` with an order of computations that fits and is cheap enough."""
    problem = BatchProblem(scaling, memory, overhead_limit)
    for batch in range(most, 0, -1):
        cost = frontier_optimum(scaling.at(batch), memory, splits=None)
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
    schedule = present(found.schedule)
    checked = check(scale_batch(graph, found.batch), schedule.R, schedule.S, 16 * 10**9)
    assert checked.cost <= expected["cost_cap_batch1"] * found.batch
    assert (checked.cost, checked.peak) == (found.cost, found.peak)


@pytest.mark.parametrize("overhead_limit", ["one extra forward", 1.15, "40%", None])
def test_batches_found_are_attainable_and_bounds_are_valid_on_random_training_graphs(random_graph, overhead_limit):
    settled = 0
    for seed in range(3):
        graph = random_graph(seed, layers=3)
        memory = graph.resident_bytes + (9 + 3 * seed) * 10
        found = max_batch(graph, memory, overhead_limit)
        scaling = BatchScaling.by_rule(graph)
        assert found.batch <= true_batch(scaling, memory, overhead_limit, found.upper_bound + 2) <= found.upper_bound
        settled += found.optimal
    assert settled >= 2


def test_bounds_are_valid_where_bytes_and_costs_have_parts_that_do_not_grow(overwriting_graph):
    for seed in range(3):
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
        found = max_batch(small, problem.memory, larger=larger, batches=(1, 3))
        assert found.batch <= truth <= found.upper_bound


def test_two_graphs_tell_what_grows_with_the_batch():
    small, large = linear(3), replace(scale_batch(linear(3), 4), resident_bytes=12)
    values = (replace(large.values[0], bytes=1), *large.values[1:])
    scaling = BatchScaling.measured_from(small, replace(large, values=values), (1, 4))
    assert [scaling.at(batch).value_bytes.tolist() for batch in (1, 4, 10)] == [[1] * 7, [1] + [4] * 6, [1] + [10] * 6]
    assert [scaling.at(batch).resident_bytes for batch in (1, 4, 10)] == [3, 12, 30]
    assert [scaling.at(batch).total_cost for batch in (1, 4, 10)] == [7, 28, 70]
    shrinking = BatchScaling.measured_from(scale_batch(linear(2), 3), linear(2), (1, 2))  # is taken for constant
    assert shrinking.at(1).value_bytes.tolist() == shrinking.at(9).value_bytes.tolist() == [1] * 5


def test_by_the_rule_parameters_and_persistent_values_are_counted_once(random_graph):
    graph = random_graph(3, layers=4)
    scaled = scale_batch(graph, 7)
    assert scaled.resident_bytes == graph.resident_bytes
    assert graph.persistent.any()
    assert (scaled.value_bytes == graph.value_bytes * np.where(graph.persistent, 1, 7)).all()
    assert scaled.total_cost == 7 * graph.total_cost


def test_the_largest_operation_bounds_the_batch_and_where_not_even_one_example_fits_it_is_said():
    found = max_batch(linear(8), memory=31, overhead_limit=None)
    assert (found.batch, found.upper_bound, found.cost) == (10, 10, 450)
    found = max_batch(linear(8), memory=2)
    assert (found.batch, found.upper_bound, found.schedule) == (0, 0, None)
    assert "not even one example fits into 2 B: 'v9' alone needs more" in str(found)
    found = max_image(of_side, memory=2, sides=range(1, 9))
    assert (found.side, found.upper_bound, found.schedule) == (0, 0, None)
    assert str(found) == "not even side 1 fits into 2 B"
    with pytest.raises(QuantityError, match=r"range\(0, 0\) names no image side"):
        max_image(of_side, memory=100, sides=range(0))


def test_a_function_of_the_batch_is_captured_again_at_the_batch_found():
    asked = []

    def capture(batch: int) -> Graph:
        asked.append(batch)
        extra = 0 if batch < 10 else 2 * batch  # which the two small batches do not show
        return replace(scale_batch(linear(8), batch), resident_bytes=extra)

    found = max_batch(capture, memory=100)
    assert asked[:2] == [2, 4]
    assert found.batch in asked
    schedule = present(found.schedule)
    check(capture(found.batch), schedule.R, schedule.S, 100)
    assert found.batch == 14  # (100 - 2 * 14) // 14 = 5 values, which one extra forward pass allows for


@pytest.mark.parametrize("limit", ["two extra forwards", 0.9, True, "-5%", "nan"])
def test_a_limit_that_cannot_be_read_is_quoted(limit):
    with pytest.raises(QuantityError, match="is no limit on the overhead; write"):
        max_batch(linear(4), 100, limit)


@pytest.mark.parametrize(
    ("larger", "options", "message"),
    [
        (linear(5), {}, "has -2 operations compared with the other; graphs at batch 1 and 2 must differ"),
        (linear(4), {"batches": (2, 2)}, "not two ascending batch sizes"),
        (linear(4), {}, "nothing of 'linear4' grows with the batch"),
    ],
)
def test_two_graphs_that_are_no_batches_of_one_model_are_refused_by_name(larger, options, message):
    with pytest.raises(GraphError, match=message):
        max_batch(linear(4), 100, larger=larger, **options)


def test_once_cancelled_the_best_so_far_comes_back():
    found = max_batch(linear(8), 1000, cancelled=lambda: True)
    assert (found.batch, found.checkpoint_all_batch, found.upper_bound) == (100, 100, 333)
    image = max_image(of_side, memory=2000, sides=range(1, 40), cancelled=lambda: True)
    assert (image.side, image.upper_bound, image.answers) == (0, None, {})
    doing: list[str] = []  # before the first linear program it has planned for larger batches
    found = max_batch(
        linear(8),
        1000,
        on_progress=lambda progress: doing.append(progress.doing),
        cancelled=lambda: any(words.startswith("bounding") for words in doing),
    )
    assert found.checkpoint_all_batch == 100 < found.batch
    assert doing[-1].startswith("done")


def test_a_capture_that_would_end_after_the_limit_is_not_begun(monkeypatch):
    clock, asked = time.monotonic, []
    now = [clock()]
    monkeypatch.setattr("remat_explorer.solvers.solver_interface.time.monotonic", lambda: now[0])

    def capture(size: int) -> Graph:
        asked.append(size)
        now[0] += 40.0 if asked == [size] else 30.0
        return scale_batch(linear(8), size)

    assert max_batch(capture, memory=1000, time_limit=85).schedule is not None
    assert asked == [2, 4]
    asked.clear()
    now[0] = clock()
    assert max_image(capture, memory=2000, sides=range(1, 400), time_limit=120).side == 4
    assert asked == [1, 2, 4]  # 20 seconds are left, and none took less than 30


def of_side(side: int) -> Graph:
    """A chain whose values have the pixels of a square image."""
    return scale_batch(linear(8), side * side)


def test_the_side_found_has_a_schedule_and_those_above_the_bound_a_proof():
    found = max_image(of_side, memory=2000, sides=range(1, 40))
    schedule = present(found.schedule)
    checked = check(of_side(found.side), schedule.R, schedule.S, 2000)
    assert found.cost_limit == 25 * found.side**2 >= checked.cost
    assert found.side == 20  # 5 values at cost 22 * 400; side 21 leaves room for 4 values, at cost 26 a value
    assert found.answers[present(found.upper_bound) + 1] == "infeasible"
    assert max(side for side, answer in found.answers.items() if answer == "feasible") == found.side


def test_only_the_sides_given_are_looked_at():
    asked = []

    def capture(side: int) -> Graph:
        asked.append(side)
        return of_side(side)

    found = max_image(capture, memory=2000, sides=[2, 3, 5, 7, 11], overhead_limit="10%")
    assert (found.side, found.upper_bound) == (11, None)
    assert "side 11, larger ones may fit" in str(found)
    assert set(asked) <= {2, 3, 5, 7, 11}
    assert len(asked) == len(set(asked))


def test_answers_agree_with_exhaustive_search_on_random_training_graphs(random_graph):
    told = 0
    for seed in range(4):
        graph = random_graph(seed, layers=3)
        for memory in range(graph.resident_bytes + 8, graph.resident_bytes + 30, 4):
            found = decide_fit(graph, memory, 1.2, Limits())
            fits = frontier_optimum(graph, memory, splits=None) <= 1.2 * graph.total_cost + 1e-9
            assert found.answer in ("unknown", "feasible" if fits else "infeasible")
            told += found.answer != "unknown"
    assert told >= 18
