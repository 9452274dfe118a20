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
    # No difference measured with 0.002 or 0.008.
    close: float = 0.004
    # Seconds for the few-moments relaxation that guides walks, at most.
    # No difference measured with 1 or 4.
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
    # No difference measured with 0.025 or 0.1.
    planning: float = 0.05
    # Share for asking the relaxation what it would choose within a budget.
    # No difference measured with 0.075 or 0.3.
    relaxing: float = 0.15
    # Changes of the best choice that walks judge in an attempt, at most.
    # No difference measured with 100 or 400.
    changes: int = 200
    # Relative distance of budgets from which on the relaxation is asked again.
    # No difference measured with 0.005 or 0.02.
    apart: float = 0.01
    # Of the descent of each choice.
    descent: DescentSettings = DescentSettings()


@dataclass(frozen=True)
class ClimbSettings:
    """Of `climb`: changes of a choice that walks judge slightly below the least known peak.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # By how much the budget is below that peak at first, relative.
    # No difference measured with 0.01 or 0.04.
    first_step: float = 0.02
    # The smallest such step.
    # No difference measured with 0.002 or 0.008.
    last_step: float = 0.004
    # Changes that are judged at one budget, at most.
    # No difference measured with 75 or 300.
    changes: int = 150
    # Budgets without a gain at the smallest step after which the climb ends.
    # No difference measured with 2 or 8.
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
    # No difference measured with 0.075 or 0.3.
    bounding: float = 0.15
    # Share for its integer program.
    # No difference measured with 0.15 or 0.6.
    proving: float = 0.3
    # Share for falling budgets before choices by rules.
    # No difference measured with 0.125 or 0.5.
    falling: float = 0.25
    # Share for changes of the best choice.
    # No difference measured with 0.15 or 0.6.
    climbing: float = 0.3
    # By how much a budget is below the known peak at first, relative.
    # No difference measured with 0.025 or 0.1.
    first_step: float = 0.05
    # Factor on the step after a budget that was reached.
    # No difference measured with 0.65 or 2.6.
    longer: float = 1.3
    # Step below which searches become longer.
    # No difference measured with 0.002 or 0.008.
    last_step: float = 0.004
    # Step with which longer searches begin.
    # No difference measured with 0.01 or 0.04.
    again: float = 0.02
    # Iterations of the local search in an attempt at first.
    # No difference measured with 30,000 or 120,000.
    iterations: int = 60_000
    # Factor on them where the step has become small.
    # No difference measured with 1 or 6.
    patience: int = 3
    # Iterations beyond which the search has ended.
    # No difference measured with 1,000,000 or 4,000,000.
    most_iterations: int = 2_000_000
    # Of the relaxation with choices.
    relaxation: RelaxationSettings = RELAXATION
    # Of the choices that are tried, and of the climb between them.
    candidates: CandidatesSettings = CandidatesSettings()
    climb: ClimbSettings = ClimbSettings()


MEMORY_SEARCH = MemorySearchSettings()
