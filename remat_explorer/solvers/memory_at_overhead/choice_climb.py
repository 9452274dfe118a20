"""Choices of implementations that do with less memory at a limited cost, by changes that walks judge.

Memory at a limited cost stays the same under most changes; the cost of the cheapest walk within a budget slightly below
what is known does not. So changes are kept where that cost falls, and once it is within the limit, the budget falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.memory_at_overhead.memory_settings import MEMORY_SEARCH, ClimbSettings
from remat_explorer.solvers.monet.choice_search import ChoiceSearch
from remat_explorer.solvers.monet.codes import Codes
from remat_explorer.solvers.monet.tables import Tables


def climb(
    tables: Tables,
    choice: Mapping[int, int],
    most_cost: float,
    codes: Codes | None,
    peak: Callable[[Mapping[int, int], Schedule | None], int],
    over: Callable[[], bool],
    settings: ClimbSettings = MEMORY_SEARCH.climb,
) -> dict[int, int]:
    """The choice after changes with which walks need less memory, or at least cost less.

    Args:
        tables: of the problem.
        choice: numbers, from 1, of implementations by operation.
        most_cost: limit on the cost, in the graph's unit.
        codes: the implementations of each operation that may be chosen, defaults among them; all if None.
        peak: plans with a choice, takes in a schedule of it that is within the limit, if there is one, and says the
            least peak in bytes that is known with any.
        over: asked between changes; once True the climb ends.
        settings: of steps and changes.
    """
    chosen, least, step, seed, failures = dict(choice), peak(choice, None), settings.first_step, 0, 0
    while not over() and failures < settings.patience:
        seed += 1
        search = ChoiceSearch(tables, chosen, seed, codes)
        search.lower(int(least * (1 - step)))
        before = search.cost
        search.improve(settings.changes, most_cost, over)
        chosen = search.choice
        lowered = least
        if search.cost <= most_cost:
            plain = search.schedule()
            lowered = peak(chosen, search.selection.lift(plain) if search.selection and plain else None)
        if lowered < least:
            least, failures = lowered, 0
            continue
        failures += step == settings.last_step and search.cost >= before
        step = max(step / 2, settings.last_step)
    return chosen
