"""Settings of the search of `monet`: how its work is divided between the steps."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.solvers.anytime.plain_search_settings import PLAIN_SEARCH, PlainSearchSettings
from remat_explorer.solvers.monet.relaxation_with_choices import RELAXATION, RelaxationSettings
from remat_explorer.solvers.monet.windows import WINDOWS, WindowSettings


@dataclass(frozen=True)
class JointSearchSettings:
    """How much each step of `joint_search` works, counted, so that a slower machine finds the same, only later.

    What other values change was measured by `benchmarks/search_settings.py`, on two small networks. On one of them runs
    with the same settings differ by 5 % of the cost, so smaller differences are not seen there.
    """

    # Stages times operations up to which the joint integer program is solved, without the steps for large problems.
    # Not measured: the benchmark leaves that program out.
    exact_up_to: int = 2500
    # The same up to which it is solved beside the search, once the integral relaxation has had its share.
    exact_beside: int = 12_000
    # Rounds of the search with default implementations. None of the counts from here on was measured with other values.
    defaults: int = 4
    # Columns of the relaxation's linear programs together; the one that reaches the number is the last.
    bounding: int = 60_000
    # Changes of each of the best choices that walks judge, at most,
    changes: int = 300
    # and how many changes times operations: a walk of more operations takes longer.
    changing: int = 60_000
    # Share of the time for the integral relaxation, at most: it proves, and what is found does not come from it.
    integral: float = 0.5
    # Relative distance from the cheapest schedule up to which another choice is searched on.
    # No difference measured with 0.01 or 0.04.
    close: float = 0.02
    # Budgets, in shares of the budget, for which the relaxation chooses as well.
    near_budgets: tuple[float, ...] = (0.85, 0.93, 1.07, 1.15)
    # Columns of the linear programs for each of them, as above.
    near_budget: int = 30_000
    # Schedules whose implementations are chosen anew, the best ones.
    schedules: int = 6
    # Windows of one turn, each limited by its own settings,
    windows_each: int = 12
    # and rounds of the first search on with one of the best choices; each later one has twice as many.
    rounds: int = 2
    # Turns before a proof, where no second thread takes them beside it.
    turns: int = 3
    # Of the windows.
    windows: WindowSettings = WINDOWS
    # Of the relaxation with choices.
    relaxation: RelaxationSettings = RELAXATION
    # Of planning and searching with one choice.
    plain: PlainSearchSettings = PLAIN_SEARCH


JOINT_SEARCH = JointSearchSettings()
