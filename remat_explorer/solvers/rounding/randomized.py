"""Randomized two-phase rounding: S is drawn, R is the least that it allows; every draw is a correct schedule.

Source: Jain et al., Checkmate (MLSys 2020), appendix D and Figure 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.rounding.linear_program import FractionalSchedule
from remat_explorer.solvers.rounding.two_phase import schedule_of


@dataclass(frozen=True, eq=False)
class Sample:
    """One draw.

    Attributes:
        schedule: correct, of any peak.
        cost: in the unit of the graph's costs.
        peak: bytes of its plan, resident bytes included.
    """

    schedule: Schedule
    cost: float
    peak: int


@dataclass(frozen=True, eq=False)
class Scatter:
    """All draws of one linear program as two columns, for a scatter plot.

    Attributes:
        cost: float of shape (samples,), in the unit of the graph's costs.
        peak: bytes of the plans, resident bytes included, int64 of shape (samples,).
    """

    cost: np.ndarray
    peak: np.ndarray


def draw_samples(relaxed: FractionalSchedule, samples: int, seed: int) -> Iterator[Sample]:
    """Schedules whose S[t,i] is 1 with the probability S*[t,i], each entry by itself, and whose R is minimal.

    Args:
        relaxed: a solved linear program.
        samples: how many.
        seed: of the random numbers; the same seed draws the same samples.
    """
    random = np.random.default_rng(seed)
    for _ in range(samples):
        S = random.random(relaxed.S.shape) < relaxed.S
        schedule = schedule_of(relaxed.condensed, S)
        yield Sample(schedule, schedule.cost, Plan.of(schedule).peak)


def scatter(
    relaxed: FractionalSchedule, samples: int = 100, seed: int = 0, over: Callable[[], bool] = lambda: False
) -> Scatter:
    """Cost and peak of every draw, within the budget or not: what Figure 8 of the paper shows.

    Args:
        relaxed: a solved linear program.
        samples: how many.
        seed: of the random numbers.
        over: asked between draws; once True, those so far are returned.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.base import Limits
    >>> from remat_explorer.solvers.condensed import Condensed
    >>> from remat_explorer.solvers.rounding.linear_program import solve_linear_program
    >>> cloud = scatter(solve_linear_program(Condensed.of(linear(8)), 4, Limits()), samples=20)
    >>> cloud.cost.shape, bool((cloud.cost >= 17).all())
    ((20,), True)
    """
    cost, peak = [], []
    for sample in draw_samples(relaxed, samples, seed):
        cost.append(sample.cost)
        peak.append(sample.peak)
        if over():
            break
    return Scatter(np.array(cost, dtype=float), np.array(peak, dtype=np.int64))
