"""A schedule within a budget in milliseconds: walks, repair where they fail, and a short local search.

1. Computing everything once is returned if it fits.
2. Walks with a few exponents of the eviction score; the cheapest that comes to the end is the beginning of step 4.
3. If none does, repair: the walk is repeated with weights that grow on what the stage that got stuck read and
   recomputed, so that these values stay in memory longer; at first without recomputing gradients, then with it.
4. One cooling of simulated annealing from there. If there is no schedule yet, several, which begin with walks in a
   larger budget where none comes to the end within this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.search.local_search import (
    LOCAL_SEARCH,
    Conflict,
    Guide,
    LocalSearch,
    LocalSearchSettings,
    Walks,
    if_within,
)
from remat_explorer.solvers.solver_interface import Progress, checkpoint_all


def load_search(report: Callable[[Progress], None] = lambda progress: None) -> None:
    """Load the planner's machine code, or compile it, which is done once on a machine.

    Args:
        report: called with a `Progress` if it must be compiled.

    >>> load_search()
    """
    from remat_explorer.solvers.search.compilation import warm_up  # imports the compiler

    warm_up(lambda doing: report(Progress(0.0, doing)))


# exponents of recomputation cost, bytes, and distance to the next use in the eviction score
EXPONENTS = ((1, 1, 1), (0.5, 1, 1), (1, 1, 0), (1, 0.7, 0.7), (1, 1, 0.5), (1, 0.5, 1), (1, 1, 2), (0.5, 0.5, 0.5))
REPAIR_EXPONENTS = ((1, 1, 1), (0.5, 1, 1), (1, 1, 0.3))
GUIDED_EXPONENTS = ((1, 1, 1), (0.5, 1, 1), (1, 1, 0.5), (1, 1, 0))


_TINY = 10  # operations up to which `cheapest_walk` makes few walks: they give a good enough limit to another search
_FEW_WALKS = 2  # how many it makes then
REPAIRS = 20  # walks with growing weights, for each of the exponents, until one comes to the end
_REPAIR_STEP = 0.5  # what the logarithm of a weight grows by after a conflict
_COOLINGS = 4  # of local search for any schedule, where no walk found one


def plan_schedule(
    condensed: CondensedGraph,
    budget: int,
    seconds: float = 2.0,
    cancelled: Callable[[], bool] = lambda: False,
    settings: LocalSearchSettings = LOCAL_SEARCH,
) -> Schedule | None:
    """A schedule whose peak is within ``budget``, or None if none was found.

    Checkpoint-all is returned wherever it fits, so a budget of at least its peak always has a schedule.

    Args:
        seconds: no new step begins after this time.
        cancelled: asked between steps; once True the best so far is returned.
        settings: of the local search from the cheapest walk.
    """
    end = time.monotonic() + seconds

    def over() -> bool:
        return time.monotonic() > end or cancelled()

    best = if_within(checkpoint_all(condensed.graph), budget)
    if best is not None or budget < condensed.operation_bytes.max():
        return best
    walks = Walks(condensed, budget)
    best = _best_walk(walks, EXPONENTS, [_unguided(condensed)], over) or _repair(walks, over)
    search = LocalSearch(condensed, budget, settings=settings)
    search.offer(best)
    best = search.run(search.first_cooling, over)
    while best is None and search.coolings < _COOLINGS and not over():
        best = search.run(search.first_cooling, over)
    return best


def first_within(
    condensed: CondensedGraph, budget: int, over: Callable[[], bool], repairs: int = REPAIRS
) -> Schedule | None:
    """The schedule of the first walk that comes to the end within ``budget``, whatever it costs, or None.

    For each of the exponents there are at most ``repairs`` walks with growing weights.
    """
    walks, unguided = Walks(condensed, budget), _unguided(condensed)
    for exponents in EXPONENTS:
        if over():
            return None
        walked = walks.walk(exponents, unguided)
        if walked.complete and (schedule := walks.better(None, walked.computations)) is not None:
            return schedule
    return _repair(walks, over, repairs)


def cheapest_walk(condensed: CondensedGraph, budget: int) -> Computations | None:
    """What the cheapest of a few walks computes, before any annealing and unchecked; None if none comes to the end."""
    if budget < condensed.operation_bytes.max():
        return None
    exponents = EXPONENTS if condensed.n > _TINY else EXPONENTS[:_FEW_WALKS]
    walks = _walks(Walks(condensed, budget), exponents, [_unguided(condensed)], lambda: False)
    return walks[-1] if walks else None


def guided_schedule(
    condensed: CondensedGraph,
    budget: int,
    guides: list[Guide],
    over: Callable[[], bool],
    settings: LocalSearchSettings = LOCAL_SEARCH,
) -> Schedule | None:
    """The cheapest schedule of walks that keep what guides say, annealed for a moment, or None."""
    best = _best_walk(Walks(condensed, budget), GUIDED_EXPONENTS, guides, over)
    search = LocalSearch(condensed, budget, settings=settings)
    search.offer(best)
    return search.run(search.first_cooling, over) if best is not None else None


def _best_walk(
    walks: Walks, exponents: tuple[tuple[float, float, float], ...], guides: list[Guide], over: Callable[[], bool]
) -> Schedule | None:
    """The cheapest schedule of walks with each of the exponents and each of the weights."""
    cheaper = _walks(walks, exponents, guides, over)
    # a schedule takes longer to make and check than a walk, so only the cheapest is made, and others if it is refused
    return next((best for best in map(partial(walks.better, None), reversed(cheaper)) if best is not None), None)


def _walks(
    walks: Walks, exponents: tuple[tuple[float, float, float], ...], guides: list[Guide], over: Callable[[], bool]
) -> list[Computations]:
    """What each walk that is cheaper than those before it computes, with each of the exponents and of the weights."""
    cheaper: list[Computations] = []
    least, costs = np.inf, walks.condensed.costs
    for powers, guide in [(powers, guide) for guide in guides for powers in exponents]:
        if over():
            break
        walked = walks.walk(powers, guide, most_cost=least)
        cost = float((walked.computations.counts(len(costs)) - 1) @ costs)
        if walked.complete and cost < least:
            least = cost
            cheaper.append(walked.computations)
    return cheaper


def _unguided(condensed: CondensedGraph) -> Guide:
    return Guide.everywhere(np.zeros(condensed.groups), condensed.n)


def _repair(walks: Walks, over: Callable[[], bool], repairs: int = REPAIRS) -> Schedule | None:
    """Walks with conflict-driven weights, first without, then with recomputed gradients."""
    groups = walks.condensed.groups
    random = np.random.default_rng(0)
    for any_operation in (False, True):
        for exponents in REPAIR_EXPONENTS:
            logarithms = np.zeros(groups)
            for _ in range(repairs):
                if over():
                    return None
                walked = walks.walk(exponents, Guide.everywhere(logarithms, walks.condensed.n), any_operation)
                if walked.conflict is None:
                    schedule = walks.better(None, walked.computations)
                    if schedule is not None:
                        return schedule
                    break
                _raise_weights(walks.condensed, logarithms, walked.conflict, _REPAIR_STEP)
                if random.random() < 0.3:  # out of a cycle of conflicts
                    logarithms += 0.1 * random.normal(size=groups)
    return None


def _raise_weights(condensed: CondensedGraph, logarithms: np.ndarray, conflict: Conflict, step: float) -> None:
    """Keep longer what the stuck stage read or had to recompute."""
    logarithms[list(condensed.inputs[conflict.stage])] += 2 * step
    for position, k in enumerate(conflict.running[:-1]):
        if k >= conflict.operation:
            logarithms[list(condensed.outputs[k])] += step * (0.5 + position / len(conflict.running))
