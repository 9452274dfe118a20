"""Naive rounding of both R* and S*, an exhibit: hardly any draw is a schedule, and none is repaired.

Two-phase rounding exists because of this. R and S are tied together by (1b) and (1c); rounded apart from each other,
some operation misses an input nearly always, and where none does the memory is likely to be too little.

Source: Jain et al., Checkmate (MLSys 2020), section 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.rounding.linear_program import FractionalSchedule
from remat_explorer.solvers.rounding.two_phase import values_of


@dataclass(frozen=True)
class NaiveRounding:
    """How often naive rounding is feasible.

    Attributes:
        samples: draws of R and S.
        correct: draws that keep rules (1b) to (1e).
        feasible: draws that keep the rules and fit into the budget.
        nearest_correct: whether rounding everything to the nearest integer keeps the rules.
        nearest_feasible: whether it fits into the budget as well.
    """

    samples: int
    correct: int
    feasible: int
    nearest_correct: bool
    nearest_feasible: bool


def naive_rounding(relaxed: FractionalSchedule, budget: int, samples: int = 1000, seed: int = 0) -> NaiveRounding:
    """Round every entry of R* and S* by itself, up with the probability that the entry is.

    Args:
        relaxed: a solved linear program.
        budget: bytes that a draw may take, resident bytes included.
        samples: how many draws.
        seed: of the random numbers.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.base import Limits
    >>> from remat_explorer.solvers.rounding.linear_program import solve_linear_program
    >>> chain = Condensed.of(linear(8))
    >>> naive_rounding(solve_linear_program(chain, 4, Limits()), 4, samples=100).feasible
    0
    """
    random = np.random.default_rng(seed)
    condensed, correct, feasible = relaxed.condensed, 0, 0
    for _ in range(samples):
        R = random.random(relaxed.R.shape) < relaxed.R
        S = random.random(relaxed.S.shape) < relaxed.S
        if keeps_rules(condensed, R, S):
            correct += 1
            feasible += _peak(condensed, R, S) <= budget
    R, S = relaxed.R > 0.5, relaxed.S > 0.5
    nearest = keeps_rules(condensed, R, S)
    return NaiveRounding(samples, correct, feasible, nearest, nearest and _peak(condensed, R, S) <= budget)


def keeps_rules(condensed: Condensed, R: np.ndarray, S: np.ndarray) -> bool:
    """Whether R and S keep rules (1b) to (1e).

    Args:
        condensed: n operations and g groups of values.
        R: bool of shape (n, n).
        S: of groups, bool of shape (n, g).
    """
    there = R[:, condensed.producer] | S
    if S[:1].any() or (S[1:] & ~there[:-1]).any():  # (1d), (1c)
        return False
    if not R.diagonal().all():  # (1e), in stages (8a)
        return False
    # (1b): what is read in a stage is there in the stage; (t, k) counts inputs of k that are missing
    return not (R & (~there @ condensed.reads.T)).any()


def _peak(condensed: Condensed, R: np.ndarray, S: np.ndarray) -> int:
    return Plan.of(Schedule(condensed.graph, R, values_of(condensed, S))).peak
