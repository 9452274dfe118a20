"""Answers to exercises are judged by value, and a wrong one is not given the right one."""

from dataclasses import replace

import numpy as np
import pytest

from remat_explorer.exercises import UNANSWERED, schedule_verdict, verdict
from remat_explorer.instances import linear
from remat_explorer.solvers.base import checkpoint_all


def test_no_answer_is_not_a_wrong_one():
    assert verdict(None, 0) == UNANSWERED


@pytest.mark.parametrize(
    ("mine", "right"),
    [(0, 0), (26 / 22, 1.1818181818), (" Stage ", "stage"), ([3, 1, 2], (1, 2, 3)), (set(), []), (True, 1)],
)
def test_the_same_answer_in_other_clothes_is_right(mine, right):
    assert verdict(mine, right).startswith("Right: ")


@pytest.mark.parametrize(
    ("mine", "right"),
    [(1.18, 26 / 22), ("stages", "stage"), ([1, 2], [1, 2, 3]), ([1, 2, 4], [1, 2, 3]), (3, [3]), ([3], 3), ("3", [3])],
)
def test_another_answer_is_wrong_and_the_hint_is_all_that_is_said(mine, right):
    said = verdict(mine, right, "look again")
    assert said.startswith("Not ")
    assert said.endswith("Hint: look again.")


def test_an_answer_in_another_form_is_told_the_form():
    assert verdict("0,1,2", [0, 1, 2]) == "Not 0,1,2. Write several answers, such as [1, 2]."
    assert verdict([3], 3, "how many?") == "Not 3. Write one answer, not several. Hint: how many?"
    assert verdict([], [1, 2]) == "There are some."


def test_a_rounded_answer_is_right_where_that_is_allowed():
    assert verdict(1.18, 26 / 22, tolerance=0.01) == "Right: 1.18182."


def test_a_schedule_is_right_only_if_it_keeps_the_rules_fits_and_is_cheap_enough():
    chain = linear(1)
    R, S = np.eye(3, dtype=int), np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    assert schedule_verdict(chain, R, S, 3, 3) == "Right: cost 3, peak 3 B."
    assert schedule_verdict(chain, R, S, 2, 3) == (
        "Not yet: stage 2 needs 3 B, above the budget of 2 B; at 'compute v2' v0, v1, v2 are in memory."
    )
    assert "costs 3; 2 is enough" in schedule_verdict(chain, R, S, 3, 2)
    S[2, 0] = 0
    assert "input 'v0' is neither computed nor retained" in schedule_verdict(chain, R, S, 3, 3)


def test_costs_of_captured_graphs_are_said_in_seconds_and_of_many_values_the_first() -> None:
    chain = linear(8)
    measured = replace(
        chain,
        operations=tuple(
            replace(node, implementations=(replace(node.default, cost=0.004),)) for node in chain.operations
        ),
    )
    keep = checkpoint_all(measured)
    assert schedule_verdict(measured, keep.R, keep.S, 10, 1) == "Right: cost 68 ms, peak 10 B."
    assert "costs 68 ms; 64 ms is enough" in schedule_verdict(measured, keep.R, keep.S, 10, 0.064)
    assert "costs 0.068; 0.0679999 is enough" in schedule_verdict(measured, keep.R, keep.S, 10, 0.0679999)
    large = checkpoint_all(linear(20))
    assert "v11 and 10 more are in memory" in schedule_verdict(linear(20), large.R, large.S, 5, 100)
