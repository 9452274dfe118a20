"""A lower bound on the cost of all joint schedules, and the implementations that it would choose.

Rounds of the few-moments relaxation with choices: moments are added where memory seems to be short, first for its
linear program, then with s and d binary. The best bound of all rounds stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import worst_operations
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.monet.choice_moments import ChoiceMoments
from remat_explorer.solvers.monet.condensed_choices import Tables

FIRST_MOMENTS = 6  # moments at first
_MOST_MOMENTS = 16  # no round follows the linear program with more moments than this
_MORE_INTEGRAL = 4  # by how many more the integral relaxation may have
_ADDED_MOMENTS = 2  # moments that a round adds, at most
_SHORT_OF_MEMORY = 1e-3  # share of the budget by which an estimate must exceed it for a moment to be added there
INTEGRAL_GAP = 1e-3  # relative gap of the integral relaxation: its bound counts, not its optimum


@dataclass(frozen=True)
class ChoiceBound:
    """What a round says.

    Attributes:
        bound: cost below which no schedule is; infinity if the budget is proven infeasible.
        moments: operations, ascending.
        d: by mandatory operation, the share of each way of its first run, by code.
        held: what is in memory at each moment, between 0 and 1, of shape (moments, groups).
        settled: whether no further moment seems to be short of memory.
    """

    bound: float
    moments: tuple[int, ...] = ()
    d: dict[int, dict[int, float]] = field(default_factory=dict)
    held: np.ndarray | None = None
    settled: bool = False

    def choice(self) -> dict[int, int]:
        """The way of each first run that has the largest share."""
        return {k: max(shares, key=lambda code: shares[code]) for k, shares in self.d.items()}


class RelaxationWithChoices:
    """The relaxation of one problem at one budget, round after round.

    Args:
        tables: of the problem.
        budget: bytes, resident bytes included.

    Attributes:
        best: the highest bound so far, and the last round that has a point.
    """

    _columns = 0  # of the last round's program

    def __init__(self, tables: Tables, budget: int) -> None:
        self.tables, self.budget = tables, budget
        self.moments: Sequence[int] = first_moments(tables, budget)
        self.best = ChoiceBound(tables.problem.least_cost)

    def improve(
        self, limits: Limits, integral: bool, incumbent: Schedule | None = None, columns: float = math.inf
    ) -> ChoiceBound:
        """Rounds until no moment is added, the bound meets the incumbent's cost, or the work or the time is used up.

        Args:
            limits: of all rounds.
            integral: whether first runs and what is held are binary.
            incumbent: the best schedule that is known.
            columns: of the programs of all rounds together; the round that reaches the number is the last one.
        """
        most = _MOST_MOMENTS + _MORE_INTEGRAL * integral
        while self.moments and not limits.over:
            relaxed = self._round(limits, integral)
            columns -= self._columns
            if relaxed is None:
                break
            last = relaxed if relaxed.held is not None else self.best
            self.best = replace(last, bound=max(self.best.bound, relaxed.bound))
            limits.tell("bounding from a few moments, with choices", incumbent, self.best.bound)
            if math.isinf(relaxed.bound) or relaxed.settled or len(self.moments) > most or columns <= 0:
                break
            if incumbent is not None and self.best.bound >= incumbent.cost * (1 - 1e-7):
                break
        return self.best

    def _round(self, limits: Limits, integral: bool) -> ChoiceBound | None:
        milp = Milp(limits.solver, limits.threads, relaxed=not integral)
        problem = self._problem(milp)
        if not problem.build(limits):
            return None
        self._columns = milp.columns
        outcome = milp.solve(limits.left, gap=self._gap(problem), cancelled=limits.cancelled)
        if outcome.status == "infeasible":
            return ChoiceBound(math.inf, tuple(self.moments))
        bound = self._bound(problem, outcome)
        if outcome.values is None:
            return ChoiceBound(bound, tuple(self.moments), settled=True)
        d, held = presence(problem, outcome.values)
        shortage = estimated_memory(problem, outcome.values, d, held) - self._memory(problem, outcome)
        added = worst_operations(shortage, list(self.moments), _ADDED_MOMENTS, _SHORT_OF_MEMORY * self.budget)
        relaxed = ChoiceBound(bound, tuple(self.moments), d, held, not added)
        self.moments = sorted({*self.moments, *added})
        return relaxed

    def _problem(self, milp: Milp) -> ChoiceMoments:
        return ChoiceMoments(self.tables, self.budget, list(self.moments), milp)

    def _gap(self, problem: ChoiceMoments) -> float:
        """How far a round's objective may be from its bound."""
        return INTEGRAL_GAP * self.tables.problem.graph.total_cost * problem.cost_scale

    def _bound(self, problem: ChoiceMoments, outcome: MilpOutcome) -> float:
        return max(problem.cost(outcome.bound), self.tables.problem.least_cost)

    def _memory(self, problem: ChoiceMoments, outcome: MilpOutcome) -> float:
        """Bytes above which memory is short at a round's point."""
        return float(self.budget)


def presence(problem: ChoiceMoments, values: np.ndarray) -> tuple[dict[int, dict[int, float]], np.ndarray]:
    """The shares of first runs' ways, and what is held at each moment, at a point."""
    extended = np.append(values, 1.0)  # so that column -1 reads 1
    d = {
        k: {code: float(extended[column]) for code, column in problem.d[k].items()}
        for k in problem.problem.graph.mandatory.tolist()
    }
    held = np.zeros((len(problem.moments), problem.problem.groups))
    for q in range(len(problem.moments)):
        for v, present in problem.during[q + 1].items():
            held[q, v] = min(1.0, present.at(values))
    return d, held


def first_moments(tables: Tables, budget: int, count: int = FIRST_MOMENTS) -> list[int]:
    """Up to ``count`` operations with the largest own needs, spread over where default execution exceeds the budget."""
    problem, graph = tables.problem, tables.problem.graph
    change = np.zeros(graph.n + 1)
    need = np.zeros(graph.n)
    last: dict[int, int] = {}
    for t, k in enumerate(graph.mandatory.tolist()):
        way = tables.first[k][0]
        last |= dict.fromkeys((*way.inputs, *way.outputs), k)
        change[k] += problem.bytes[list(way.outputs)].sum()
        need[k] = problem.base[t] + way.transient - way.credit
    for v, k in last.items():
        change[k + 1] -= problem.bytes[v]
    profile = np.cumsum(change)[:-1] + need
    over = graph.mandatory[profile[graph.mandatory] > budget]
    if not len(over):
        return [int(graph.mandatory[profile[graph.mandatory].argmax()])]
    own = np.zeros(graph.n)
    own[graph.mandatory] = problem.least_memory
    return sorted({int(part[own[part].argmax()]) for part in np.array_split(over, min(count, len(over)))})


def estimated_memory(
    problem: ChoiceMoments, values: np.ndarray, d: dict[int, dict[int, float]], held: np.ndarray
) -> np.ndarray:
    """A guess of the memory at every mandatory operation, from the moments around it; it only steers the search."""
    tables, condensed, moments = problem.tables, problem.problem, problem.moments
    graph, groups, producer = condensed.graph, condensed.groups, condensed.producer
    estimate = np.zeros(graph.n)
    ways = {k: [(way, d[k][way.code]) for way in tables.first[k] if way.code in d[k]] for k in d}
    for q in range(-1, len(moments)):
        start = moments[q] if q >= 0 else -1
        end = moments[q + 1] if q + 1 < len(moments) else graph.n
        at_end = held[q + 1] if q + 1 < len(moments) else np.zeros(groups)
        again, made = np.zeros(groups), np.zeros(groups)  # by runs again of what is old, by anything else
        for (k, code), column in problem.x[q + 1].items():
            outputs = list(problem._way(k, code).outputs)
            if k < start:
                again[outputs] = np.maximum(again[outputs], values[column])
            else:
                made[outputs] += values[column]
        for k in range(max(start, 0), min(end, graph.n)):
            for way, share in ways.get(k, ()):
                made[list(way.outputs)] += share
        needed = np.zeros(groups)
        for k in range(min(end, graph.n - 1), start, -1):
            if k not in ways:
                continue
            here = np.zeros(groups)
            for way, share in ways[k]:
                here[list(way.inputs)] += share
            if k < end:
                later = np.maximum(needed, at_end)
                old = producer <= start
                young = np.where(producer < k, np.minimum(later, np.clip(made, 0, 1)), 0.0)
                present = np.maximum(np.where(old, np.clip(np.maximum(later, here) - again, 0, 1), young), here)
                estimate[k] = condensed.base[graph.first_stage[k]] + present @ condensed.bytes
                for way, share in ways[k]:
                    after = later[way.overwritten] if way.credit else 1.0
                    estimate[k] += share * condensed.during(way) - way.credit * min(share, 1 - after)
            needed = np.maximum(needed, here)
    return estimate
