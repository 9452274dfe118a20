"""The few-moments relaxation: a lower bound in a fraction of a second, valid for every frontier-advancing schedule.

In: a graph and a budget. Out: a lower bound on the cost, and the point that attains it, which guides walks.

1. Choose a few *moments* t_1 < ... < t_K, first runs of operations where memory is short.
2. Variables, for each moment: s, which groups are in memory, and x, which earlier operations run again before the next
   moment. Of the input that t_q may overwrite, s says whether it is in memory afterwards.
3. An operation that runs again needs each input in its interval: in memory at the start, or computed again in it. The
   same holds for what first runs read, and for what is in memory at the next moment.
4. Memory is limited at the moments only, and operations since the last moment run again for free. So no schedule is
   cut off, and the program's optimum is a bound.
5. Solve the linear program; estimate the memory between the moments; add moments where it exceeds the budget most; and
   repeat until there are none, or enough. The best bound of all rounds stands.
6. `guides` makes guides for walks of what the point holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.bounds.merged_stages import largest_apart, last_use
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.linear_expression import ABSENT, PRESENT, require_columns
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.search.local_search import Guide
from remat_explorer.solvers.solver_interface import Limits

# Share of the budget below which a value is taken to be in memory for nothing, which is still a relaxation
ALWAYS_KEPT = 1e-4
_MOST_MOMENTS = 12  # moments in the end, at most
_SHORT_OF_MEMORY = 1e-3  # share of the budget by which an estimate must exceed it for a moment to be added there


class Program(Protocol):
    """A relaxation for chosen moments, ascending operations, in a back end."""

    moments: list[int]
    milp: Milp

    def build(self, limits: Limits) -> bool:
        """Add everything; False if the time ran out before the end."""
        ...


P = TypeVar("P", bound=Program)


def solve_in_rounds(
    moments: Sequence[int],
    program: Callable[[list[int]], P],
    limits: Limits,
    shortage: Callable[[P, MilpOutcome, np.ndarray], np.ndarray],
    memory: int,
    added: int,
    most: int | None = None,
    gap: Callable[[P], float] = lambda program: 0.0,
) -> Iterator[tuple[P, MilpOutcome, list[int]]]:
    """Each round's program, what it says, and the moments that follow: added are those where memory is shortest.

    The last round is that whose point has no such moment, or that has no point. ``shortage`` estimates the bytes that
    are short at each operation; a moment is added where they exceed a thousandth of the memory. Up to its ``gap`` a
    program counts as solved.
    """
    moments = list(moments)
    while moments and not limits.over:
        problem = program(moments)
        if not problem.build(limits):
            break
        outcome = problem.milp.solve(limits.left, gap=gap(problem), cancelled=limits.cancelled)
        worst: list[int] = []
        if outcome.values is not None:
            count = added if most is None else min(added, most - len(moments))
            short = shortage(problem, outcome, outcome.values)
            short[moments] = -math.inf
            worst = largest_apart(short, count, _SHORT_OF_MEMORY * memory, apart=2)
        moments = sorted({*moments, *worst})
        yield problem, outcome, moments
        if not worst:
            break


@dataclass(frozen=True)
class FewMomentsSettings:
    """How many moments there are, and what is too small to count."""

    first: int = 4  # moments at first
    added: int = 2  # moments that a round adds, at most


FEW_MOMENTS = FewMomentsSettings()


def first_moments(condensed: CondensedGraph, budget: int, count: int = FEW_MOMENTS.first) -> list[int]:
    """Up to ``count`` operations with the largest needs of their own, spread over where checkpoint-all is too much."""
    over = np.flatnonzero(_keep_everything(condensed) > budget)
    if not len(over):
        return []
    own = condensed.operation_bytes - condensed.base
    return sorted({int(part[own[part].argmax()]) for part in np.array_split(over, min(count, len(over)))})


def _keep_everything(condensed: CondensedGraph) -> np.ndarray:
    """Memory of checkpoint-all while each operation runs, bytes of shape (n,)."""
    change = np.zeros(condensed.n + 1)
    for v, size in enumerate(condensed.bytes):
        change[condensed.producer[v]] += size
        change[condensed.readers[v][-1] + 1] -= size
    last = np.array([v >= 0 and condensed.readers[v][-1] == k for k, v in enumerate(condensed.overwritten)])
    return np.cumsum(change)[:-1] + condensed.base + condensed.transient - condensed.credit * last


@dataclass(frozen=True)
class MomentsBound:
    """A lower bound on the cost (infinity: proven infeasible), the moments that gave it, and what they hold."""

    bound: float
    moments: tuple[int, ...] = ()
    s: np.ndarray | None = None  # in memory at each moment, between 0 and 1, of shape (moments, groups), or None
    x: np.ndarray | None = None  # what runs again after each moment, of shape (moments, n)


class MomentsProblem:
    """Columns and rows of the relaxation for chosen moments."""

    def __init__(self, condensed: CondensedGraph, budget: int, moments: list[int], milp: Milp) -> None:
        self.condensed, self.moments, self.milp = condensed, moments, milp
        total = condensed.graph.total_cost
        self.cost_scale = condensed.n / total if total else 1.0
        self.sizes = np.where(condensed.bytes < ALWAYS_KEPT * budget, 0, condensed.bytes)
        self.budget, self.unit = budget, float(max(self.sizes.max(initial=0), 1))
        self.last_use = last_use(condensed)
        self.s = np.full((len(moments), condensed.groups), ABSENT)
        self.x = np.full((len(moments), condensed.n), ABSENT)
        self.memory_rows: list[int] = []

    def build(self, limits: Limits) -> bool:
        """Add everything; False if the time ran out before the end."""
        last = len(self.moments)
        for q in range(last):
            self._add_moment(q)
        for q in range(last):
            self._add_interval(q, q + 1, self.x[q])
            if q < last - 1:  # the rest of the run as one interval: what is read in it is paid for once
                self._add_interval(q, last, self._ever_after(q))
            if limits.over:
                return False
        return True

    def _add_moment(self, q: int) -> None:
        problem, t = self.condensed, self.moments[q]
        for v in np.flatnonzero((problem.producer < t) & (self.last_use > t)).tolist():
            self.s[q, v] = self.milp.column(integer=True) if self.sizes[v] else PRESENT
        overwritten = int(problem.overwritten[t])
        credit = int(problem.credit[t]) if overwritten >= 0 and self.sizes[overwritten] else 0
        after = int(self.s[q, overwritten]) if credit else ABSENT
        self.s[q, list(problem.inputs[t])] = PRESENT
        for k in range(t):
            if any(self.last_use[v] > t for v in problem.outputs[k]):
                self.x[q, k] = self.milp.column(cost=problem.costs[k] * self.cost_scale)
        held = [(int(self.sizes[v]) / self.unit, int(self.s[q, v])) for v in np.flatnonzero(self.s[q] != ABSENT)]
        if credit:
            self.s[q, overwritten] = after
            held += [(-credit / self.unit, PRESENT), (credit / self.unit, after)]
        self.limit_memory(t, held)

    def limit_memory(self, t: int, held: list[tuple[float, int]]) -> None:
        """What is ``held`` during the first run of t, in units, and what t itself needs is within the budget."""
        problem = self.condensed
        room = self.budget - int(problem.base[t] + problem.output_bytes[t] + problem.transient[t])
        terms = [(-size, column) for size, column in held]
        self.memory_rows.append(require_columns(self.milp, terms, ">", -room / self.unit))

    def _ever_after(self, q: int) -> np.ndarray:
        """Columns for "runs again at any time after moment q": at most the sum over the intervals, and at most 1."""
        ever = np.full(self.condensed.n, ABSENT)
        for k in np.flatnonzero(self.x[q] != ABSENT).tolist():
            ever[k] = self.milp.column()
            terms = [(-1.0, ever[k]), *((1.0, column) for column in self.x[q:, k])]
            require_columns(self.milp, terms, ">")
        return ever

    def _add_interval(self, a: int, b: int, again: np.ndarray) -> None:
        """What must hold from moment a to moment b, where ``again`` are the columns of what runs again."""
        problem, start = self.condensed, self.moments[a]
        end = self.moments[b] if b < len(self.moments) else problem.n - 1
        read = problem.read_from(start + 1, end) & (problem.producer < start)
        for v in np.flatnonzero(read).tolist():
            require_columns(self.milp, self._had(a, v, again), ">", 1.0)
        for k in np.flatnonzero(again != ABSENT).tolist():
            for u in problem.inputs[k]:
                require_columns(self.milp, [(-1.0, again[k]), *self._had(a, u, again)], ">")
        if b < len(self.moments):
            for v in np.flatnonzero((self.s[b] != ABSENT) & (problem.producer < start) & ~read).tolist():
                require_columns(self.milp, [(-1.0, self.s[b, v]), *self._had(a, v, again)], ">")

    def _had(self, a: int, v: int, again: np.ndarray) -> list[tuple[float, int]]:
        return [(1.0, int(self.s[a, v])), (1.0, int(again[self.condensed.producer[v]]))]

    def bound(self, outcome: MilpOutcome) -> float:
        """Lower bound on the cost, in the graph's unit."""
        return float(self.condensed.graph.total_cost + max(outcome.bound, 0.0) / self.cost_scale)

    def presence(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """s (moments, groups) and x (moments, n) at a point."""
        extended = np.concatenate([values, [1.0, 0.0]])  # so that columns -2 and -1 read 1 and 0
        return extended[self.s], extended[self.x]

    def bound_at(self, outcome: MilpOutcome) -> MomentsBound:
        """The bound, and the point that attains it."""
        assert outcome.values is not None
        return MomentsBound(self.bound(outcome), tuple(self.moments), *self.presence(outcome.values))


def few_moments_bound(
    condensed: CondensedGraph,
    budget: int,
    limits: Limits,
    incumbent: Schedule | None = None,
    settings: FewMomentsSettings = FEW_MOMENTS,
) -> MomentsBound:
    """The best bound of the relaxation's linear program, while moments are added where memory seems to be short."""
    best = MomentsBound(condensed.graph.total_cost)
    for problem, outcome, _ in solve_in_rounds(
        first_moments(condensed, budget, settings.first),
        lambda moments: MomentsProblem(condensed, budget, moments, Milp(limits.solver, limits.threads, relaxed=True)),
        limits,
        lambda problem, _, values: estimated_memory(problem, values) - budget,
        budget,
        settings.added,
        _MOST_MOMENTS,
    ):
        if outcome.status == "infeasible":
            return MomentsBound(math.inf)
        if outcome.values is not None and problem.bound(outcome) >= best.bound:
            best = problem.bound_at(outcome)
            limits.tell("bounding from a few moments", incumbent, best.bound)
    return best


def integral_moments_bound(condensed: CondensedGraph, budget: int, start: MomentsBound, limits: Limits) -> MomentsBound:
    """The bound at the moments of ``start`` with s binary: slower, and often equal to the optimum."""
    problem = MomentsProblem(condensed, budget, list(start.moments), Milp(limits.solver, limits.threads))
    if not start.moments or not problem.build(limits):
        return start
    outcome = problem.milp.solve(limits.left, cancelled=limits.cancelled)
    if outcome.status == "infeasible":
        return MomentsBound(math.inf)
    bound = max(start.bound, problem.bound(outcome))
    return replace(start if outcome.values is None else problem.bound_at(outcome), bound=bound)


def estimated_memory(problem: MomentsProblem, values: np.ndarray) -> np.ndarray:
    """A guess of the memory at every operation, from what the moments around it hold; it only steers the search."""
    condensed, moments = problem.condensed, problem.moments
    s, x = problem.presence(values)
    own = condensed.base + condensed.output_bytes + condensed.transient
    estimate = own.astype(float)
    nothing = np.zeros(condensed.groups)
    for q in range(-1, len(moments)):
        start = moments[q] if q >= 0 else -1
        end = moments[q + 1] if q + 1 < len(moments) else condensed.n
        at_end = s[q + 1] if q + 1 < len(moments) else nothing
        again = x[q][condensed.producer] if q >= 0 else nothing
        needed = at_end.copy()
        for t in range(min(end, condensed.n - 1), start, -1):
            if condensed.credit[t]:
                estimate[t] -= condensed.credit[t] * (1 - needed[condensed.overwritten[t]])
            needed[list(condensed.inputs[t])] = 1.0
            if t < end:
                old = condensed.producer <= start
                here = np.where(old, np.clip(needed - again, 0, 1), np.where(condensed.producer < t, needed, 0))
                here[list(condensed.inputs[t])] = 1.0
                estimate[t] += here @ condensed.bytes
    return estimate


STRENGTHS = (3.0, 30.0)  # factor on the score of what the relaxation holds, and its inverse on what it does not


def guides(condensed: CondensedGraph, relaxed: MomentsBound) -> list[Guide]:
    """Guides for walks towards what the relaxation has in memory at the next moment.

    A value that is held now and read before the next moment is kept, too; one that the relaxation computes again in the
    interval is left to the score. There is one guide per strength, and none without a solution.
    """
    if relaxed.s is None or relaxed.x is None:
        return []
    moments, last = relaxed.moments, len(relaxed.moments)
    held = np.zeros((last + 1, condensed.groups))  # a row for the stages up to each moment, one for those after all
    neutral = np.zeros((last + 1, condensed.groups), dtype=bool)
    row = np.searchsorted(np.array(moments), np.arange(condensed.n), side="right")
    for q in range(-1, last):
        start = moments[q] if q >= 0 else 0
        end = moments[q + 1] if q + 1 < last else condensed.n
        if q + 1 < last:
            held[q + 1] = relaxed.s[q + 1]
            held[q + 1, list(condensed.inputs[end])] = 1.0  # even what it overwrites
            neutral[q + 1] |= condensed.producer >= end  # the next moment says nothing about what comes after it
        if q >= 0:
            read = condensed.read_from(start, end)
            held[q + 1] = np.maximum(held[q + 1], relaxed.s[q] * read)
            neutral[q + 1] |= (relaxed.x[q][condensed.producer] > 0.5) & (held[q + 1] < 0.5)
    held[neutral] = 0.5
    return guides_to(held, row)


def guides_to(held: np.ndarray, row: np.ndarray) -> list[Guide]:
    """Guides towards what is held, between 0 and 1, of shape (rows, groups), where each stage has its row."""
    return [Guide(np.log(strength) * (2 * held - 1), row) for strength in STRENGTHS]
