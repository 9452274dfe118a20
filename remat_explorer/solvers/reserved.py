"""A budget of reserved bytes: the cheapest schedule that is found for which PyTorch's allocator takes no more than it.

What the allocator reserves for a schedule is known only once there is a schedule, so the strategy is asked for several
budgets of requested bytes: at first for the whole budget, then for less by what the schedule reserved too much, and
then in the widest gap between what was asked for, above the largest budget that fits: below it nothing is cheaper.
Every schedule that the strategy tells of on its
way is looked at.

Reserved bytes are never below requested bytes, so the lower bound of the first question, and that a budget is
infeasible, hold for the second, too. More is not proven: fewer requested bytes may reserve more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from remat_explorer.allocator import reserved_of
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.plan import Plan
from remat_explorer.quantities import SMALLEST, exact_bytes, format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import PROVEN, Answer, Limits, Progress
from remat_explorer.solvers.solution import Solution

REQUESTED, RESERVED = "requested", "reserved"
MEANINGS = (REQUESTED, RESERVED)
MOST_SOLVES = 12
STEP = 1 / 512  # share of the budget by which budgets of requested bytes differ at least


def require_meaning(meaning: str, budget: object = None) -> str:
    """``meaning``, if a budget can mean that.

    Raises:
        UnknownNameError: if it is none of `MEANINGS`.
        QuantityError: if the smallest budget is asked for in reserved bytes, which is not known.

    >>> require_meaning("reserved", "2 GiB")
    'reserved'
    """
    if meaning not in MEANINGS:
        raise UnknownNameError("meaning of a budget", meaning, MEANINGS)
    if meaning == RESERVED and isinstance(budget, str) and budget.strip().lower() == SMALLEST:
        raise QuantityError(
            f'the budget "{SMALLEST}" is known for requested bytes only; give the reserved ones as a number of bytes'
        )
    return meaning


def explain_unfit(solution: Solution) -> str:
    """Why there is no schedule whose reserved bytes fit, and what to do, in words."""
    ended = f" before it was ended by {solution.limit}" if solution.limit else ""
    return (
        f"{solution.strategy!r} found no schedule for which PyTorch's allocator reserves at most "
        f"{exact_bytes(solution.budget)}{ended}; give more, a larger time limit, or expandable segments "
        "(PYTORCH_ALLOC_CONF=expandable_segments:True), which waste less"
    )


def within_reserved(
    budget: int, limits: Limits, solve_at: Callable[[int, Limits], Answer], smallest: int = 0
) -> Answer:
    """The best answer whose schedule reserves at most ``budget`` bytes; at most `MOST_SOLVES` solves share the time.

    Args:
        budget: reserved bytes, as predicted for the allocator's settings in this process.
        limits: of all solves together; only schedules that fit are reported.
        solve_at: answers for a budget of requested bytes, within limits.
        smallest: no budget below it is worth asking for.
    """
    found, step = _Found(budget, limits), max(2, round(budget * STEP))
    asked, below, tried = budget, smallest - 1, [budget + 1]
    solves, solver, ended = 0, "", ""
    while solves < MOST_SOLVES:
        solves += 1
        answer = solve_at(asked, found.heard(limits.share(1 / 3 if tried[1:] else 1 / 2), asked, solves == 1))
        if solves == 1:
            if answer.infeasible:
                return answer
            found.bound, solver, ended = answer.lower_bound, answer.solver, answer.limit
        tried.append(asked)
        if answer.schedule is None or found.offer(answer.schedule):
            below = max(below, asked)  # what is cheaper needs more
        wide, asked = _widest(sorted({below, *(point for point in tried if point > below)}))
        if limits.over or found.proven or wide <= step:
            break
        lowest = min(tried)
        if lowest - below > 8 * step and answer.schedule is not None:  # nothing that was asked for has fitted
            less = Plan.peak_of(answer.schedule) - (reserved_of(answer.schedule) - budget)
            asked = less if below < less < lowest - step else (below + lowest) // 2
    limit = ended if solves == 1 and found.best is not None else ""
    limit = limit or limits.reached or f"the end of {solves} solves for budgets of requested bytes"
    if found.best is None and found.least is not None:
        limit += f", in which the least reserved bytes of a schedule were {format_bytes(found.least)}"
    return Answer(found.best, found.bound, solver=solver, limit=limit)


def _widest(points: list[int]) -> tuple[int, int]:
    """The width and the middle of the widest gap between points in ascending order.

    >>> _widest([0, 10, 40, 50])
    (30, 25)
    """
    return max((right - left, (left + right) // 2) for left, right in pairwise(points))


class _Found:
    """The cheapest schedule that fits, among those that were offered, and the bound.

    Attributes:
        bound: of the first question; it holds for every schedule that fits.
        least: the fewest reserved bytes of any schedule.
    """

    def __init__(self, budget: int, limits: Limits) -> None:
        self.best: Schedule | None = None
        self.bound: float | None = None
        self.least: int | None = None
        self._budget, self._limits = budget, limits

    @property
    def proven(self) -> bool:
        """Whether nothing that fits can be cheaper."""
        return self.best is not None and self.bound is not None and self.best.cost * (1 - PROVEN) <= self.bound

    def offer(self, schedule: Schedule) -> bool:
        """Take a schedule that fits and is cheaper; whether it fits."""
        reserved = reserved_of(schedule)
        self.least = reserved if self.least is None else min(self.least, reserved)
        fits = reserved <= self._budget
        if fits and (self.best is None or schedule.cost < self.best.cost):
            self.best = schedule
        return fits

    def heard(self, limits: Limits, asked: int, first: bool) -> Limits:
        """``limits``, which report what fits, and the bound of the first question, in place of everything."""

        def report(progress: Progress) -> None:
            if progress.schedule is not None:
                self.offer(progress.schedule)
            if first and progress.lower_bound is not None:
                self.bound = max(progress.lower_bound, self.bound or progress.lower_bound)
            doing = f"{progress.doing}, at {format_bytes(asked)} requested"
            limits.report(replace(progress, doing=doing, schedule=self.best, lower_bound=self.bound))

        return replace(limits, report=report)
