"""Settings of the search for the least memory at a limited cost."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.solvers.bounds.few_moments_settings import FEW_MOMENTS, FewMomentsSettings
from remat_explorer.solvers.monet.relaxation_with_choices import RELAXATION, RelaxationSettings
from remat_explorer.solvers.search.local_search import LOCAL_SEARCH, LocalSearchSettings


@dataclass(frozen=True)
class DescentSettings:
    """Of `MemoryDescent`: schedules of one choice of implementations.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Relative width at which bisection with walks ends.
    close: float = 0.004
    # Seconds for the few-moments relaxation that guides walks, at most.
    bounding: float = 2.0
    # Of that relaxation.
    moments: FewMomentsSettings = FEW_MOMENTS
    # Of the local search.
    local: LocalSearchSettings = LOCAL_SEARCH


@dataclass(frozen=True)
class CandidatesSettings:
    """Of `MemoryCandidates`: which choices are tried next; shares are those of the time that is left, at most.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Share for planning with one choice.
    planning: float = 0.05
    # Share for asking the relaxation what it would choose within a budget.
    relaxing: float = 0.15
    # Changes of the best choice that walks judge in an attempt, at most.
    changes: int = 200
    # Relative distance of budgets from which on the relaxation is asked again.
    apart: float = 0.01
    # Of the descent of each choice.
    descent: DescentSettings = DescentSettings()


@dataclass(frozen=True)
class ClimbSettings:
    """Of `climb`: changes of a choice that walks judge slightly below the least known peak.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # By how much the budget is below that peak at first, relative.
    first_step: float = 0.02
    # The smallest such step.
    last_step: float = 0.004
    # Changes that are judged at one budget, at most.
    changes: int = 150
    # Budgets without a gain at the smallest step after which the climb ends.
    patience: int = 4


@dataclass(frozen=True)
class MemorySearchSettings:
    """Of `MemorySearch`; shares are those of the time that is left, at most.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Stages times operations up to which the joint integer program settles what is left.
    # Not measured: the benchmark leaves that program out.
    exact_up_to: int = 2500
    # Share for the relaxation's linear program.
    bounding: float = 0.15
    # Share for its integer program.
    proving: float = 0.3
    # Share for falling budgets before choices by rules.
    falling: float = 0.25
    # Share for changes of the best choice.
    climbing: float = 0.3
    # By how much a budget is below the known peak at first, relative.
    first_step: float = 0.05
    # Factor on the step after a budget that was reached.
    longer: float = 1.3
    # Step below which searches become longer.
    last_step: float = 0.004
    # Step with which longer searches begin.
    again: float = 0.02
    # Iterations of the local search in an attempt at first.
    iterations: int = 60_000
    # Factor on them where the step has become small.
    patience: int = 3
    # Iterations beyond which the search has ended.
    most_iterations: int = 2_000_000
    # Of the relaxation with choices.
    relaxation: RelaxationSettings = RELAXATION
    # Of the choices that are tried, and of the climb between them.
    candidates: CandidatesSettings = CandidatesSettings()
    climb: ClimbSettings = ClimbSettings()


MEMORY_SEARCH = MemorySearchSettings()
