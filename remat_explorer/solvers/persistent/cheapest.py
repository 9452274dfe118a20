"""The cheapest persistent schedule whose plan fits.

The dynamic program rounds sizes up and keeps the input of a block to the end, so its schedules need less than it says:
those for somewhat more memory are looked at, too, whose plans may fit nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.persistent.chain import Chain
from remat_explorer.solvers.persistent.persistent_program import PersistentProgram

SLOTS = 500  # the default of the tool rotor
BEYOND = 0.25  # share of the budget by which schedules may seem to exceed it


def cheapest_persistent(
    chain: Chain, budget: int, slots: int = SLOTS, over: Callable[[], bool] = lambda: False
) -> Schedule | None:
    """The schedule for the budget, or a cheaper one for more memory whose plan fits, by bisection.

    Args:
        chain: the graph's blocks.
        budget: bytes, resident bytes included.
        slots: memory is told apart in so many steps.
        over: whether to end with what was found.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.condensed import Condensed
    >>> from remat_explorer.solvers.persistent.chain import chain_of
    >>> cheapest_persistent(chain_of(Condensed.of(linear(8))), 6).cost
    21.0
    """
    program = PersistentProgram(chain, budget, slots, BEYOND)
    if not program.run(over):
        return None
    best: Schedule | None = None
    steps = program.steps()
    fits, exceeds = -1, len(steps)  # places in steps
    middle = 0  # the one for the budget comes first, where there is one
    while fits < middle < exceeds:
        schedule = chain.condensed.schedule(program.computed(steps[middle]))
        if Plan.of(schedule).peak <= budget:
            fits = middle
            if best is None or schedule.cost < best.cost:
                best = schedule
        else:
            exceeds = middle
        if over():
            break
        middle = (fits + exceeds) // 2
    return best
