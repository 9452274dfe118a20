"""Rules that people type: what runs again is what PyTorch runs again, and a budget is kept or there is no schedule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.graph.operator_words import is_product, words
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.methods.regions import layers_of
from remat_explorer.solvers.methods.simple_rules import knapsack
from remat_explorer.solvers.solution import Status
from tests.solvers.candidates import candidates_of

RULES = (
    "checkpoint-full",
    "checkpoint-every-n",
    "megatron-block",
    "megatron-selective",
    "checkpoint-attention",
    "save-second-matmul",
    "bytes-per-second",
    "layer-knapsack",
)


@pytest.fixture(scope="module")
def gpt2() -> Graph:
    return Graph.load(str(Path(__file__).parents[2] / "data" / "captured" / "gpt2.json"))


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
    ("strategy", "wraps"),
    [
        ("checkpoint-full", lambda i: True),
        ("checkpoint-every-n", lambda i: i % 4 == 0),
        ("megatron-block", lambda i: i < 4),
    ],
)
def test_what_runs_again_lies_in_the_layers_that_the_rule_wraps(gpt2, strategy, wraps):
    option = {"checkpoint-every-n": {"every_n_layers": 4}, "megatron-block": {"recompute_num_layers": 4}}
    *_, candidate = candidates_of(strategy, gpt2, **option.get(strategy, {}))
    layers = layers_of(gpt2)
    touched = {i for i, layer in enumerate(layers) if repeated(candidate.schedule) & set(layer.operations)}
    assert touched == {i for i in range(12) if wraps(i)}
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


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("checkpoint-every-n", {"every_n_layers": 0}, "every_n_layers is 0; expected a whole number from 1 to 3"),
        ("megatron-block", {"recompute_num_layers": 2.5}, "recompute_num_layers is 2.5"),
        ("layer-knapsack", {"kept_share": 2}, "kept_share is 2; expected a share"),
        ("bytes-per-second", {"kept_share": "all"}, "kept_share is 'all'"),
    ],
)
def test_a_wrong_setting_is_quoted(strategy, options, message):
    with pytest.raises(SolverError, match=message):
        solve(linear(9), 100, strategy, **options)


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


def test_without_bytes_per_second_told_apart_the_first_values_go_first():
    *_, candidate = candidates_of("bytes-per-second", linear(8), kept_share=0.5)
    assert repeated(candidate.schedule) == {0, 1, 2, 3}
