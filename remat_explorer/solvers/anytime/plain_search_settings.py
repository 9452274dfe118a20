"""Settings of the search of `optimal`: how its work is divided between the steps."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.solvers.bounds.few_moments_settings import FEW_MOMENTS, FewMomentsSettings
from remat_explorer.solvers.bounds.refinement_settings import REFINEMENT, RefinementSettings
from remat_explorer.solvers.bounds.restricted import RESTRICTED, RestrictedSettings
from remat_explorer.solvers.search.planner import PLANNER, PlannerSettings


@dataclass(frozen=True)
class PlainSearchSettings:
    """How long each step of `plain_search` works, and on which problems.

    Work of the local search is counted in iterations of one to four microseconds, and that of the search over sets in
    sets of a quarter of a microsecond to a microsecond, so that a run to its end does the same every time.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Operations up to which sets of values in memory are searched.
    sets_up_to: int = 100
    # Sets that the first two of these searches look at, at most.
    brief_sets: int = 20_000
    # Operations up to which the third search over sets, a long one, follows the first bound.
    long_sets_up_to: int = 40
    # Sets that it looks at, at most.
    long_sets: int = 2_000_000
    # Seconds that must be left for it: it takes about one, and is not interrupted.
    long_seconds: float = 2.0
    # Iterations of the local search before the first bound for each operation.
    first_each: int = 150
    # Iterations of the local search before the first bound, at most.
    first: int = 50_000
    # Share of the time that is left, at most, for the few-moments relaxation.
    bounding: float = 0.3
    # Operations up to which every stage is single from the beginning of the refinement.
    single_up_to: int = 30
    # Iterations of the local search in a round of the refinement for each operation, at least.
    least_each: int = 3000
    # Iterations of the local search in a round above which neither of the two limits below asks for more.
    least: int = 150_000
    # Iterations for each unit of the refinement's effort in the round before, times the operations.
    pace: int = 3000
    # The same, not divided by the operations: at least,
    least_pace: int = 3
    # and at most.
    most_pace: int = 8
    # Iterations of the local search in a round, at most.
    most: int = 2_000_000
    # Share of the time that is left, at most, for the integer program near a relaxation's point.
    restricting: float = 0.3
    # Of the parts.
    planner: PlannerSettings = PLANNER
    moments: FewMomentsSettings = FEW_MOMENTS
    refinement: RefinementSettings = REFINEMENT
    restricted: RestrictedSettings = RESTRICTED


PLAIN_SEARCH = PlainSearchSettings()
