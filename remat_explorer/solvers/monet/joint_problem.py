"""The joint problem: the cheapest schedule and implementation of every run, exactly, with memory rows as needed.

In memory while k runs in stage t are, beyond the stage's base and what the run itself adds, the groups with p(v) >= k
that are retained into the stage, and those with p(v) < k that are alive. A group is alive if a run from k on reads it
or if it is retained into stage t + 1,

    (d) L[t,v,k] >= use[t,u,v] for k <= u <= m_t,   L[t,v,k] >= S[t+1,v],

a maximum, so L is continuous, bounded from below, and chained from reader to reader. Memory is a row at (t, k),

    (e) sum_{p(v)<k} M_v L[t,v,k] + sum_{p(v)>=k} M_v S[t,v] + sum_l (sum_O M + W) delta[t,k,l] - credit <= B,

where the credit for an overwritten value a is M_a times a column that is at most delta[t,k,l], and at most 1 - L after
k: an output takes over the storage only where a dies (f). Rows (e) are added where a point violates them.

MONeT (Shah et al., ICLR 2021) has in place of L the local memory of (3), which appendix A bounds, and the unions of (5)
and (6), in full (10) and (11). (e) is its (4) for forward pass (1), backward pass (2) and recomputation (3). What a run
adds is times delta, so one row is both (12) and (13), and all rows are (14). (f) stands for (15) and (16); its product
takes two of the three rows of appendix F. What may run in place only has delta[t,k,l] <= 1 - L after k, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.linear_expression import ONE, LinearExpression, require_at_most, total
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.monet.joint_columns import JointColumns
from remat_explorer.solvers.monet.joint_memory import memory_at
from remat_explorer.solvers.monet.joint_point import joint_point, unbeaten_codes

TOLERANCE = 1e-6  # of the budget: below it a fractional point counts as within the budget
POINTS = 4  # memory rows that one round adds to a stage, at most


class JointProblem(JointColumns):
    """The whole problem for one graph and one budget.

    Args:
        problem: operations with their ways, and groups of values.
        budget: bytes, resident bytes included.
        milp: an empty problem, relaxed, to build into.
        allowed: which operation may run in which stage beside the stage's own, bool of shape (T, n); any if None.

    Attributes:
        points: the (stage, operation) whose memory row is in the problem.
        limits_all_memory: whether what fits the rows fits the budget.
    """

    def __init__(self, problem: CondensedChoices, budget: int, milp: Milp, allowed: np.ndarray | None = None) -> None:
        super().__init__(problem, milp, allowed)
        self.budget = budget
        self.unit = float(max(problem.bytes.max(initial=0), 1))
        self.points: set[tuple[int, int]] = set()
        self.L: dict[tuple[int, ...], LinearExpression] = {}
        self.limits_all_memory = True

    def build(self, limits: Limits) -> bool:
        """Add columns, rules, and the memory of first runs; False if the time ran out before the end."""
        for step in (self.add_stage, self.add_rules, self._keep_in_place, self._add_own_memory):
            for t in range(self.T):
                if limits.over:
                    return False
                step(t)
        return True

    def _keep_in_place(self, t: int) -> None:
        """What may run in place only does not where the value that it overwrites lives on."""
        for k in self.operations_in(t):
            for way, run in self.delta[t, k]:
                if way.in_place:
                    require_at_most(self.milp, run, ONE - self.alive_after(t, way.overwritten, k))

    def _add_own_memory(self, t: int) -> None:
        self.add_memory_row(t, int(self.own[t]))

    def add_memory_row(self, t: int, k: int) -> bool:
        """Limit the memory while operation k runs in stage t (e); False if that row is already there."""
        if (t, k) in self.points:
            return False
        self.points.add((t, k))
        problem, bytes_of = self.problem, self.problem.bytes
        parts = [part * (problem.during(way) / self.unit) for way, part in self.delta[t, k]]
        for v in np.flatnonzero((self.begun <= t) & (bytes_of > 0)).tolist():
            present = self._present(t, v, k) if problem.producer[v] < k else self.not_yet_written(t, v, k)
            parts.append(present * (float(bytes_of[v]) / self.unit))
        parts += [self._credit(t, k, *part) * -1.0 for part in self.delta[t, k] if part[0].credit]
        require_at_most(self.milp, total(parts), LinearExpression((self.budget - int(problem.base[t])) / self.unit))
        return True

    def _credit(self, t, k, way, part) -> LinearExpression:
        """What overwriting saves, in units: nothing where the value lives on after k."""
        after = self.alive_after(t, way.overwritten, k)
        size = way.credit / self.unit
        if part == ONE:
            return (ONE - after) * size
        taken = self._derived(min, part, ONE - after)
        require_at_most(self.milp, taken, part)
        require_at_most(self.milp, taken, ONE - after)
        return taken * size

    def _derived(self, of: Callable[..., float], one: LinearExpression, other: LinearExpression) -> LinearExpression:
        column = self.milp.column()
        self.derived.append((column, of, one, other))
        return LinearExpression.of(column)

    def alive(self, t: int, v: int, k: int) -> LinearExpression:
        """At least 1 if v, written before k, is read by k or later in stage t, or retained into the next."""
        return self._largest(t, v, [u for u in self.problem.readers[v] if u >= k and (t, u) in self.delta])

    def not_yet_written(self, t: int, v: int, k: int) -> LinearExpression:
        """Whether v, which k or a later operation writes, is in memory from earlier stages while k runs."""
        return self.held(t, v)

    def local(self, t: int, k: int) -> list[int]:
        """Groups that count as alive while k runs in stage t, whether or not anything reads them later."""
        return []

    def readers_that_count(self, t: int, k: int, readers: list[int]) -> list[int]:
        """Of the readers that keep a value alive while k runs, those that the bound sees."""
        return readers

    def _present(self, t: int, v: int, k: int) -> LinearExpression:
        readers = [u for u in self.problem.readers[v] if u >= k and (t, u) in self.delta]
        alive = self._largest(t, v, self.readers_that_count(t, k, readers))
        if alive == ONE or v not in self.local(t, k):
            return alive
        present = self._derived(max, alive, self.R(t, k))
        require_at_most(self.milp, alive, present)
        require_at_most(self.milp, self.R(t, k), present)
        return present

    def alive_after(self, t: int, v: int, k: int) -> LinearExpression:
        """The same once k has run."""
        return self.alive(t, v, k + 1)

    def _largest(self, t: int, v: int, readers: list[int]) -> LinearExpression:
        kept = self.held(t + 1, v)
        uses = [u for u in readers if not self.use(t, u, v).is_zero]
        if not uses:
            return kept
        if any(all(v in way.inputs for way, _ in self.delta[t, u]) for u in uses if u == self.own[t]):
            return ONE  # the stage's own operation reads it in every way
        key = (t, v, *uses)
        if key not in self.L:
            use, rest = self.use(t, uses[0], v), self._largest(t, v, uses[1:])
            if rest.is_zero:
                self.L[key] = use
            else:
                self.L[key] = largest = self._derived(max, use, rest)
                require_at_most(self.milp, use, largest)
                require_at_most(self.milp, rest, largest)
        return self.L[key]

    def add_violated(self, values: np.ndarray) -> int:
        """Add the rows of the points where memory exceeds the budget most in each stage, and return how many."""
        added = 0
        for t in range(self.T):
            U = memory_at(self, self.local, t, values)
            over = {k: u for k, u in U.items() if u > self.budget * (1 + TOLERANCE) and (t, k) not in self.points}
            for k in sorted(over, key=lambda k: -over[k])[:POINTS]:
                added += self.add_memory_row(t, k)
        return added

    def solve(
        self, limits: Limits, incumbent: Schedule | None = None, own_bound: bool = True
    ) -> tuple[Schedule | None, float]:
        """Rounds of the relaxation, then of the integer program, until no memory row is violated or the time is up.

        Args:
            limits: time, and whom to tell.
            incumbent: a schedule within the budget that is known already.
            own_bound: whether the bound holds for all schedules, and may be told.

        Returns:
            The cheapest schedule found, or ``incumbent``, and a lower bound on the cost, infinity if there is none.
        """
        best, bound = incumbent, self.problem.least_cost
        room = self.budget
        while not limits.over:
            outcome = self.milp.solve(limits.left, start=self._start(incumbent), cancelled=limits.cancelled)
            if room == self.budget:
                bound = max(bound, self._bound(outcome))
            limits.tell("solving the joint problem", best, bound if own_bound else self.problem.least_cost)
            if outcome.values is None:
                return best, bound
            if self.add_violated(outcome.values):
                continue
            if self.milp.relaxed:
                self.milp.require_integers()
                continue
            schedule = self.problem.schedule(self.codes(outcome.values))
            excess = Plan.of(schedule).peak - self.budget
            if excess <= 0 or not self.limits_all_memory:
                if best is None or schedule.cost < best.cost:
                    best = schedule
                return best, bound
            # the solver's tolerance is relative, so it may let through a few bytes too many: ask for that much less
            room = self.budget = self.budget - excess
            self.points.clear()
        return best, bound

    def _start(self, incumbent: Schedule | None) -> np.ndarray | None:
        """The known schedule as a point to begin with; None while the problem is relaxed, or where it is none."""
        if incumbent is None or self.milp.relaxed:
            return None
        R = unbeaten_codes(self.problem, incumbent.R)
        return None if R is None else joint_point(self, R)

    def _bound(self, outcome: MilpOutcome) -> float:
        return math.inf if outcome.status == "infeasible" else self.cost(outcome.bound)
