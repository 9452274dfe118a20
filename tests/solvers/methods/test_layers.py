"""Rules over layers, torchtitan's levels and checkpoint_sequential: what runs again, and budgets that are kept."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from remat_explorer.checker import check_schedule
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.graph.operator_words import is_product, is_random, words
from remat_explorer.instances import linear
from remat_explorer.operation_details import Details
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.methods.checkpoint_sequential import (
    checkpoint_sequential_candidates,
    single_value_stretches,
)
from remat_explorer.solvers.methods.hand_written_rules import attention_cores, attention_modules
from remat_explorer.solvers.methods.regions import forward_operations, layers_of
from remat_explorer.solvers.methods.simple_rules import knapsack
from remat_explorer.solvers.methods.torchtitan import TwoLevels, greedy_choice
from remat_explorer.solvers.solver_interface import checkpoint_all
from tests.solvers.candidates import candidates_of
from tests.solvers.helpers import simple_graph


def in_modules(graph: Graph, names: dict[int, str]) -> Graph:
    """A graph whose operations are in modules, by their numbers."""
    rows = enumerate(graph.operations)
    nodes = (dataclasses.replace(node, details=Details(module=names.get(k, ""))) for k, node in rows)
    return dataclasses.replace(graph, operations=tuple(nodes))


def named(graph: Graph) -> Graph:
    """GPT-2 with the modules that it has in its code."""
    modules = {}
    for i, layer in enumerate(layers_of(graph)):
        for place, k in enumerate(layer.operations):
            part = "attention.inner.0" if 1 <= place <= 13 else "attention_norm" if place == 0 else "feed_forward"
            modules[k] = f"transformer.h.{i}.{part}"
    return in_modules(graph, modules)


def test_the_blocks_of_gpt2_are_its_layers_with_and_without_names(gpt2):
    found = layers_of(gpt2)
    assert [len(layer.operations) for layer in found] == [22] * 12
    layers = layers_of(named(gpt2))
    assert [layer.name for layer in layers] == [f"transformer.h.{i}" for i in range(12)]
    assert [layer.operations for layer in layers] == [layer.operations for layer in found]


def test_a_sequence_of_single_operations_is_cut_into_about_sqrt_n_runs_that_hold_all_of_it(captured):
    graph = captured("mobilenet_v1")
    layers = layers_of(graph)
    assert 4 <= len(layers) <= 9
    assert [k for layer in layers for k in layer.operations] == forward_operations(graph)


def test_layers_are_the_containers_that_hold_nearly_everything_and_a_module_that_runs_twice_is_two():
    graph = linear(30)
    inner = {k: f"stages.{k // 10}.{k % 10 // 2}" for k in range(20)} | dict.fromkeys((20, 21, 22), "merge.0")
    layers = layers_of(in_modules(graph, inner | dict.fromkeys((24, 25, 26), "merge.1")))
    stages = [f"stages.{i}.{j}" for i in range(2) for j in range(5)]
    assert [layer.name for layer in layers] == [*stages, "merge.0", "merge.1"]
    graph = linear(12)
    experts = {k: f"layers.{k // 6}.experts.{k % 6 // 2}" for k in range(12) if k % 6 < 4}
    attention = {k: f"layers.{k // 6}.attention" for k in range(12) if k % 6 >= 4}
    assert [layer.name for layer in layers_of(in_modules(graph, experts | attention))] == ["layers.0", "layers.1"]
    twice = in_modules(graph, {k: f"blocks.{k // 3 % 2}" for k in range(12)})
    assert [layer.name for layer in layers_of(twice)] == ["blocks.0", "blocks.1"] * 2
    assert layers_of(linear(1)) == ()


def test_the_core_of_attention_begins_and_ends_with_a_product_and_is_part_of_its_module(gpt2):
    graph = named(gpt2)
    layer = layers_of(graph)[3]
    (module,) = attention_modules(graph, layer)
    (core,) = attention_cores(graph, layer)
    names = [graph.operations[k].name for k in core]
    assert names[0].startswith("bmm")
    assert names[-1].startswith("bmm")
    assert any("softmax" in name for name in names)
    assert set(core) < set(module) < set(layer.operations)
    assert module == layer.operations[1:14]
    bare = layers_of(gpt2)[3]
    assert attention_modules(gpt2, bare) == attention_cores(gpt2, bare) == (core,)


RULES = ("checkpoint-full", "checkpoint-every-n", "megatron-block", "megatron-selective")
RULES += ("checkpoint-attention", "save-second-matmul", "bytes-per-second", "layer-knapsack")


@pytest.fixture(scope="module")
def gpt2(captured) -> Graph:
    return captured("gpt2")


def repeated(schedule: Schedule) -> set[int]:
    return {k for t, k, _ in schedule.sequence if t != k}


@pytest.mark.parametrize("strategy", RULES)
def test_the_cheapest_setting_that_keeps_the_budget_is_taken_and_none_where_none_does(gpt2, strategy):
    points = [(Plan.of(c.schedule).peak, c.schedule.cost) for c in candidates_of(strategy, gpt2)]
    budget = (min(points)[0] + checkpoint_all_peak(gpt2)) // 2
    assert solve(gpt2, budget, strategy).cost == min(cost for peak, cost in points if peak <= budget)
    missed = solve(gpt2, min(points)[0] - 1, strategy)
    assert (missed.status, missed.limit) == (Status.UNKNOWN, "the method, none of whose schedules fits")


@pytest.mark.parametrize(
    ("strategy", "options", "wrapped"),
    [
        ("checkpoint-full", {}, range(12)),
        ("checkpoint-every-n", {"every_n_layers": 4}, range(0, 12, 4)),
        ("megatron-block", {"recompute_num_layers": 4}, range(4)),
    ],
)
def test_what_runs_again_lies_in_the_layers_that_the_rule_wraps(gpt2, strategy, options, wrapped):
    *_, candidate = candidates_of(strategy, gpt2, **options)
    layers = layers_of(gpt2)
    touched = {i for i, layer in enumerate(layers) if repeated(candidate.schedule) & set(layer.operations)}
    assert touched == {*wrapped}
    assert repeated(candidate.schedule) <= {k for layer in layers for k in layer.operations}


def test_selective_recomputation_repeats_attention_and_no_product_with_weights(gpt2):
    *_, candidate = candidates_of("megatron-selective", gpt2)
    again = Counter(words(gpt2.operations[k].name)[0] for k in repeated(candidate.schedule))
    assert again["bmm"] == 12  # the second product of each core is handed on
    assert again["_safe_softmax"] == 12
    assert again["addmm"] == 0


def test_every_second_product_of_a_layer_is_saved(gpt2):
    *_, candidate = candidates_of("save-second-matmul", gpt2)
    for layer in layers_of(gpt2):
        products = [k for k in layer.operations if is_product(gpt2.operations[k].name)]
        again = [k in repeated(candidate.schedule) for k in products]
        assert again == [False, True, False, True]


def test_the_knapsack_is_as_good_as_trying_all_sets():
    random = np.random.default_rng(3)
    for _ in range(20):
        sizes, gains = random.integers(1, 40, 8).tolist(), random.random(8).tolist()
        capacity = float(random.integers(0, sum(sizes)))
        sets = [[i for i in range(8) if bits >> i & 1] for bits in range(256)]
        fitting = [sum(gains[i] for i in one) for one in sets if sum(sizes[i] for i in one) <= capacity]
        chosen = knapsack(sizes, gains, capacity)
        assert sum(sizes[i] for i in chosen) <= capacity
        assert sum(gains[i] for i in chosen) == pytest.approx(max(fitting))


TORCHTITAN = ("torchtitan-greedy", "torchtitan-two-level")


def test_at_every_position_of_the_backward_pass_the_outer_program_keeps_the_budget(gpt2):
    levels, budget = TwoLevels(gpt2, greedy_choice), 0.6 * checkpoint_all_peak(gpt2)
    shares = levels.kept_shares(budget)
    during = checkpoint_all(gpt2).held.during
    for p in np.flatnonzero(gpt2.is_backward):
        freed = sum(
            (1 - share) * sum(layer.sizes)
            for layer, share in zip(levels.layers, shares, strict=True)
            if layer.begins > p
        )
        assert during[p] - freed <= budget * (1 + 1e-6)
    assert 0 < sum(shares) < len(shares)


@pytest.mark.parametrize("strategy", TORCHTITAN)
def test_nothing_random_and_nothing_outside_of_layers_is_computed_again(gpt2, strategy):
    inside = {k for layer in layers_of(gpt2) for k in layer.operations}
    for candidate in candidates_of(strategy, gpt2)[1:4]:
        again = repeated(candidate.schedule)
        assert again
        assert again <= inside
        assert not any(is_random(gpt2.operations[k]) for k in again)


@pytest.mark.parametrize("strategy", TORCHTITAN)
def test_a_smaller_budget_is_told_where_the_schedule_for_the_budget_exceeds_it(gpt2, strategy):
    peaks = {c.label: Plan.of(c.schedule).peak for c in candidates_of(strategy, gpt2)}
    for share in (0.9, 0.7, 0.6):
        budget = int(share * checkpoint_all_peak(gpt2))
        solution = solve(gpt2, budget, strategy)
        assert (solution.schedule is None) == (min(peaks.values()) > budget)
        assert solution.peak is None or solution.peak <= budget


@pytest.mark.parametrize("segments", [1, 2, 3, 8])
def test_of_each_segment_but_the_last_all_but_what_it_hands_on_runs_once_more(segments):
    size = 8 // segments
    (candidate,) = checkpoint_sequential_candidates(linear(8), segments)
    assert repeated(candidate.schedule) == {k for k in range(size * (segments - 1)) if (k + 1) % size}
    assert check_schedule(candidate.schedule).cost == 17 + len(repeated(candidate.schedule))


def test_segments_of_a_captured_model_pass_the_checker_and_save_memory(captured):
    graph = captured("resnet50")
    assert sum(len(block) > 1 for block in single_value_stretches(graph)) == 16  # its residual blocks
    candidates = list(checkpoint_sequential_candidates(graph))
    peaks = [check_schedule(one.schedule).peak for one in candidates]
    assert candidates[0].schedule.cost == pytest.approx(graph.total_cost)
    assert min(peaks) < 0.9 * peaks[0]
    forward = graph.costs[~graph.is_backward].sum()
    assert all(one.schedule.cost <= graph.total_cost + forward for one in candidates)


def test_a_graph_that_no_value_cuts_is_refused_by_name():
    with pytest.raises(SolverError, match="no value cuts the forward pass of 'lone' in two"):
        solve(simple_graph([[]], name="lone"), 10, "checkpoint-sequential")
