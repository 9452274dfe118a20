"""torchtitan's two levels: memory at every position, layers alike solved once, and nothing random computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.graph.operator_words import is_random
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.base import checkpoint_all
from remat_explorer.solvers.methods.regions import layers_of
from remat_explorer.solvers.methods.torchtitan import KNAPSACK, TwoLevels, greedy_choice
from tests.solvers.candidates import candidates_of

STRATEGIES = ("torchtitan-greedy", "torchtitan-two-level")


@pytest.fixture(scope="module")
def gpt2() -> Graph:
    return Graph.load(str(Path(__file__).parents[2] / "data" / "captured" / "gpt2.json"))


@pytest.mark.parametrize("budget_share", [0.9, 0.75, 0.6])
def test_at_every_position_of_the_backward_pass_the_outer_program_keeps_the_budget(gpt2, budget_share):
    levels, budget = TwoLevels(gpt2, greedy_choice), budget_share * checkpoint_all_peak(gpt2)
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


def test_a_budget_that_is_too_small_for_the_outer_program_drops_all_that_may_be_dropped(gpt2):
    levels = TwoLevels(gpt2, greedy_choice)
    assert levels.kept_shares(0.01 * checkpoint_all_peak(gpt2)) == [0.0] * 12
    assert all(levels.recomputed(layer, 0.0) == set(layer.operations) for layer in levels.layers)


def test_layers_alike_are_solved_once(gpt2):
    asked = []

    def counted(sizes, costs, room):
        asked.append(room)
        return greedy_choice(sizes, costs, room)

    TwoLevels(gpt2, counted).schedule(0.7 * checkpoint_all_peak(gpt2))
    assert len(asked) < len(layers_of(gpt2)) / 2
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_random_and_nothing_outside_of_layers_is_computed_again(gpt2, strategy):
    inside = {k for layer in layers_of(gpt2) for k in layer.operations}
    for candidate in candidates_of(strategy, gpt2)[1:4]:
        again = {k for t, k, _ in candidate.schedule.sequence if t != k}
        assert again
        assert again <= inside
        assert not any(is_random(gpt2.operations[k]) for k in again)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_smaller_budget_is_told_where_the_schedule_for_the_budget_exceeds_it(gpt2, strategy):
    peaks = {c.label: Plan.of(c.schedule).peak for c in candidates_of(strategy, gpt2)}
    for share in (0.9, 0.7, 0.6):
        budget = int(share * checkpoint_all_peak(gpt2))
        solution = solve(gpt2, budget, strategy)
        assert (solution.schedule is None) == (min(peaks.values()) > budget)
        assert solution.peak is None or solution.peak <= budget


def test_the_greedy_choice_is_never_better_than_the_knapsack_where_sizes_are_whole_steps():
    random = np.random.default_rng(5)
    for _ in range(20):
        sizes, costs = random.integers(1, 30, 9).tolist(), random.random(9).tolist()
        room = int(random.integers(0, sum(sizes)))
        gains = [sum(costs[i] for i in choose(sizes, costs, room)) for choose in (greedy_choice, KNAPSACK)]
        assert gains[0] <= gains[1] + 1e-12


@pytest.mark.parametrize("share", [0, 2, "all"])
def test_a_wrong_share_is_quoted(share):
    with pytest.raises(SolverError, match="memory_budget is"):
        solve(linear(9), 10, "torchtitan-greedy", memory_budget=share)
