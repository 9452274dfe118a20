"""Settings of the search of `monet`: how its time is divided between the steps."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.solvers.anytime.plain_search_settings import PLAIN_SEARCH, PlainSearchSettings
from remat_explorer.solvers.monet.relaxation_with_choices import RELAXATION, RelaxationSettings
from remat_explorer.solvers.monet.windows import WINDOWS, WindowSettings


@dataclass(frozen=True)
class JointSearchSettings:
    """How long each step of `joint_search` works; shares are those of the time that is left, at most.

    What other values change was measured by `benchmarks/search_settings.py`, on two small networks. On one of them runs
    with the same settings differ by 5 % of the cost, so smaller differences are not seen there.
    """

    # Stages times operations up to which the joint integer program is solved, without the steps for large problems.
    # Not measured: the benchmark leaves that program out.
    exact_up_to: int = 2500
    # The same up to which it is solved beside the search, once the integral relaxation has had its share.
    exact_beside: int = 12_000
    # Share for the search with default implementations.
    # No difference measured with 0.15 or 0.6.
    defaults: float = 0.3
    # Share for planning with one choice.
    # No difference measured with 0.05 or 0.2.
    planning: float = 0.1
    # Share for the relaxation's linear program.
    # No difference measured with 0.05 or 0.2.
    bounding: float = 0.1
    # Share for its first round, which ends as soon as it is solved: without it the best choices are not found.
    # At MONeT's sizes of ResNet-50 and GoogLeNet it is not ready after half a second.
    first_round: float = 0.5
    # Share for changes of the best choices.
    # No difference measured with 0.05 or 0.2.
    changing: float = 0.1
    # Changes of each of them that walks judge, at most.
    # No difference measured with 150 or 600.
    changes: int = 300
    # Share for the integral relaxation, and for what is searched beside it.
    # No difference measured between 0.2, 0.4 and 0.8, before the first round and the windows had shares.
    integral: float = 0.5
    # Relative distance from the cheapest schedule up to which another choice is searched on.
    # No difference measured with 0.01 or 0.04.
    close: float = 0.02
    # Budgets, in shares of the budget, for which the relaxation chooses as well. Neither these nor the settings of
    # choosing anew and of windows were measured yet.
    near_budgets: tuple[float, ...] = (0.85, 0.93, 1.07, 1.15)
    # Share for each of them.
    near_budget: float = 0.05
    # Share for choosing the implementations of the best schedules anew.
    choosing: float = 0.3
    # Of so many schedules,
    schedules: int = 6
    # each for this share of what is left of that, at most.
    schedule: float = 0.4
    # Share of one turn of searches with the best choices and windows.
    turn: float = 0.5
    # Of the windows.
    windows: WindowSettings = WINDOWS
    # Of the relaxation with choices.
    relaxation: RelaxationSettings = RELAXATION
    # Of planning and searching with one choice.
    plain: PlainSearchSettings = PLAIN_SEARCH


JOINT_SEARCH = JointSearchSettings()
