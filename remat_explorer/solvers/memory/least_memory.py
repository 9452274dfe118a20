"""How little memory can do: the few-moments relaxation with memory as the objective and cost as a row.

The relaxation of `few_moments` asks for the least cost within a budget; here it asks, for a limit on the cost, for the
least factor z on what is there to be used. With s, x and the rows between moments as there, and for each moment t

    sum over v of M_v s[t,v] + (outputs and transient bytes of t) + base_t - offset_t <= z gain_t,
    sum over k of C_k x_k <= spare + growth z,

minimize z. With offset 0 and gain 1 byte, z is the peak, of every schedule that keeps to the limit on cost. Where gain
is what a memory leaves beside what does not depend on the batch, batch / z bounds the largest batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import (
    MomentsBound,
    MomentsProblem,
    estimated_memory,
    first_moments,
    worst_operations,
)
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.linear_expression import require_columns
from remat_explorer.solvers.milp import Milp

_MOST_INTEGRAL = 32  # moments of the integer program in the end, at most
_SHORT_OF_MEMORY = 1e-3  # share of the memory by which an estimate must exceed it for a moment to be added there


@dataclass(frozen=True)
class LeastMemorySettings:
    """How many moments there are."""

    first: int = 4  # moments at first
    most: int = 16  # moments of the linear program in the end, at most
    added: int = 3  # moments that a round adds, at most


LEAST_MEMORY = LeastMemorySettings()


@dataclass(frozen=True, eq=False)
class Allowance:
    """What may be used, as a line in z.

    Attributes:
        offset: bytes of each stage that are taken off its demand, float of shape (n,).
        gain: bytes that each stage may use per unit of z, float of shape (n,), above 0.
        spare: cost of recomputation that is allowed at z = 0; infinity for no limit.
        growth: cost of recomputation that is allowed per unit of z.
    """

    offset: np.ndarray
    gain: np.ndarray
    spare: float
    growth: float = 0.0


@dataclass(frozen=True)
class LeastFactor:
    """A lower bound on z, infinity if the limit on cost cannot be kept, and what the relaxation holds at it.

    Attributes:
        z: no schedule does with a smaller factor.
        relaxed: moments, s and x of the point that attains it, for guided walks; its ``bound`` is not a cost.
        settled: whether the last integer program was solved to its end.
    """

    z: float
    relaxed: MomentsBound
    settled: bool = False


class LeastMemoryProblem(MomentsProblem):
    """Columns and rows for chosen moments; column 0 is z, the objective, up to ``most``."""

    def __init__(
        self, condensed: Condensed, allowance: Allowance, moments: list[int], milp: Milp, most: float = math.inf
    ) -> None:
        super().__init__(condensed, structural_factor(condensed, allowance)[1], moments, milp)
        self.allowance, self.cost_scale = allowance, 0.0
        self.z = milp.column(cost=1.0, upper=most)

    def build(self, limits: Limits) -> bool:
        """Add everything; False if the time ran out before the end."""
        if not super().build(limits):
            return False
        allowance, costs = self.allowance, self.condensed.costs
        if math.isfinite(allowance.spare):
            unit = max(float(costs.max(initial=0.0)), abs(allowance.spare), 1e-300)
            again = [(-float(costs[k]) / unit, int(self.x[q, k])) for q, k in np.argwhere(self.x >= 0) if costs[k]]
            growth = (allowance.growth / unit, self.z)
            require_columns(self.milp, [*again, growth], ">", -allowance.spare / unit)
        return True

    def limit_memory(self, t: int, held: list[tuple[float, int]]) -> None:
        """What is ``held`` during the first run of t, in units, and what t itself needs is within z gain_t."""
        problem, allowance = self.condensed, self.allowance
        own = float(problem.base[t] + problem.output_bytes[t] + problem.transient[t] - allowance.offset[t])
        terms = [(-size, column) for size, column in held]
        gain = (float(allowance.gain[t]) / self.unit, self.z)
        require_columns(self.milp, [*terms, gain], ">", own / self.unit)


def structural_factor(condensed: Condensed, allowance: Allowance) -> tuple[float, int]:
    """The z below which some operation does not fit for itself alone, and the memory in bytes that it needs.

    >>> from remat_explorer.instances import linear
    >>> chain = Condensed.of(linear(8))
    >>> structural_factor(chain, Allowance(np.zeros(17), np.ones(17), 9.0))
    (3.0, 3)
    """
    own = condensed.operation_bytes
    factors = (own - allowance.offset) / allowance.gain
    k = int(factors.argmax())
    return float(factors[k]), int(own[k])


def least_factor(
    condensed: Condensed, allowance: Allowance, limits: Limits, settings: LeastMemorySettings = LEAST_MEMORY
) -> LeastFactor:
    """The best bound of the linear program, while moments are added where memory seems to be short.

    Args:
        condensed: n operations and their groups of values.
        allowance: what may be used at each z.
        limits: time and back end.
        settings: of the moments.

    >>> from remat_explorer.instances import linear
    >>> chain, peak = Condensed.of(linear(8)), Allowance(np.zeros(17), np.ones(17), spare=9.0)
    >>> round(least_factor(chain, peak, Limits()).z, 6)  # at cost 26; a peak of 4 can be attained
    3.6
    """
    z, budget = structural_factor(condensed, allowance)
    best = LeastFactor(z, MomentsBound(0.0))
    moments = first_moments(condensed, budget, settings.first)
    while moments and not limits.over:
        problem = LeastMemoryProblem(condensed, allowance, moments, Milp(limits.solver, limits.threads, relaxed=True))
        if not problem.build(limits):
            break
        outcome = problem.milp.solve(limits.left, cancelled=limits.cancelled)
        if outcome.status == "infeasible":
            return LeastFactor(math.inf, MomentsBound(0.0, tuple(moments)))
        if outcome.values is None:
            break
        if outcome.bound >= best.z or best.relaxed.s is None:
            best = LeastFactor(max(best.z, outcome.bound), _point(problem, outcome.values))
        shortage = estimated_memory(problem, outcome.values) - allowance.offset - outcome.bound * allowance.gain
        count = min(settings.added, settings.most - len(moments))
        added = worst_operations(shortage, moments, count, _SHORT_OF_MEMORY * budget)
        if not added:
            break
        moments = sorted({*moments, *added})
    return best


def integral_least_factor(
    condensed: Condensed,
    allowance: Allowance,
    start: LeastFactor,
    limits: Limits,
    most: float = math.inf,
    settings: LeastMemorySettings = LEAST_MEMORY,
) -> LeastFactor:
    """The bound with s binary, from the moments of ``start``, more of which are added between solves: slower, higher.

    Args:
        condensed: n operations and their groups of values.
        allowance: what may be used at each z.
        start: a bound, with its moments.
        limits: time and back end.
        most: a larger z is of no interest; where none up to here remains, the bound is infinity.
        settings: of the moments.
    """
    best, moments = start, list(start.relaxed.moments)
    budget = structural_factor(condensed, allowance)[1]
    while moments and not limits.over:
        problem = LeastMemoryProblem(condensed, allowance, moments, Milp(limits.solver, limits.threads), most)
        if not problem.build(limits):
            break
        outcome = problem.milp.solve(limits.left, cancelled=limits.cancelled)
        if outcome.status == "infeasible":
            return LeastFactor(math.inf, best.relaxed, settled=True)
        relaxed = best.relaxed if outcome.values is None else _point(problem, outcome.values)
        best = LeastFactor(max(best.z, outcome.bound), relaxed, outcome.status == "optimal")
        if outcome.values is None or not best.settled:
            break
        shortage = estimated_memory(problem, outcome.values) - allowance.offset - best.z * allowance.gain
        count = min(settings.added, _MOST_INTEGRAL - len(moments))
        added = worst_operations(shortage, moments, count, _SHORT_OF_MEMORY * budget)
        if not added:
            break
        moments = sorted({*moments, *added})
    return best


def _point(problem: LeastMemoryProblem, values: np.ndarray) -> MomentsBound:
    return MomentsBound(0.0, tuple(problem.moments), *problem.presence(values))
