"""Settings of the search of `optimal`: how its work is divided between the steps."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.solvers.bounds.few_moments import FEW_MOMENTS, FewMomentsSettings
from remat_explorer.solvers.bounds.refinement import REFINEMENT, RESTRICTED, RefinementSettings, RestrictedSettings
from remat_explorer.solvers.search.planner import PLANNER, PlannerSettings


@dataclass(frozen=True)
class PlainSearchSettings:
    """How long each step of `plain_search` works, and on which problems.

    Work of the local search is counted in iterations of one to four microseconds, and that of the search over sets in
    sets of a quarter of a microsecond to a microsecond, so that a run to its end does the same every time.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Operations up to which sets of values in memory are searched.
    # No difference measured with 50 or 200.
    sets_up_to: int = 100
    # Sets that the first two of these searches look at, at most.
    # No difference measured with 10,000 or 40,000.
    brief_sets: int = 20_000
    # Operations up to which the third search over sets, a long one, follows the first bound.
    # With 20: linear16 gap +4.3 points, 0.01 % gap after 8.1 times the seconds. With 80: no difference.
    long_sets_up_to: int = 40
    # Sets that it looks at, at most.
    # With 1,000,000: linear16 gap +2.1 points, 0.01 % gap after 8.1 times the seconds. With 4,000,000: no difference.
    long_sets: int = 2_000_000
    # Iterations of the local search before the first bound for each operation.
    # With 75: no difference. With 300: keras_vgg_unet 2.8 % more, 0.01 % gap after 4.2 times the seconds.
    first_each: int = 150
    # Iterations of the local search before the first bound, at most.
    # No difference measured with 25,000 or 100,000.
    first: int = 50_000
    # Share of the time that is left, at most, for the few-moments relaxation.
    # No difference measured with 0.15 or 0.6.
    bounding: float = 0.3
    # Relative gap beyond which a path is bounded in reverse, and walks follow persistent checkpoints.
    wide: float = 0.02
    # Share of the time that is left, at most, for the program that finds them.
    checkpointing: float = 0.2
    # Operations up to which every stage is single from the beginning of the refinement.
    # No difference measured with 15 or 60.
    single_up_to: int = 30
    # Iterations of the local search in a round of the refinement, at least: so many for each operation,
    # No difference measured with 1500 or 6000.
    least_each: int = 3000
    # or this number, where that is less.
    # With 75,000: mobilenet_v1 0.01 % gap after 1.9 times the seconds. With 300,000: no difference.
    least: int = 150_000
    # Iterations in a round for each unit of the refinement's effort in the round before, so that neither waits long for
    # the other: this number divided by the operations,
    # No difference measured with 1500 or 6000.
    pace: int = 3000
    # but at least so many,
    # No difference measured with 1 or 6.
    least_pace: int = 3
    # and at most so many.
    # No difference measured with 4 or 16.
    most_pace: int = 8
    # Iterations of the local search in a round, at most.
    # No difference measured with 1,000,000 or 4,000,000.
    most: int = 2_000_000
    # Share of the time that is left, at most, for the integer program near a relaxation's point.
    # No difference measured with 0.15 or 0.6.
    restricting: float = 0.3
    # Of the parts.
    planner: PlannerSettings = PLANNER
    moments: FewMomentsSettings = FEW_MOMENTS
    refinement: RefinementSettings = REFINEMENT
    restricted: RestrictedSettings = RESTRICTED


PLAIN_SEARCH = PlainSearchSettings()
