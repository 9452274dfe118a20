"""Upper bounds on the batch: no schedule of a larger batch fits into the memory at that cost.

Let B be a batch that no schedule exceeds, and b <= B one that some schedule attains. Where a value has ``a + m b``
bytes with a >= 0, it has at least b / B of its bytes at B, and so has everything else that grows. The memory at b,
multiplied by z = B / b, therefore says with sizes at B, and with base_t(0) for what does not grow,

    sum over v of M_v s[t,v] + (all else at B) - base_t(0) <= z (memory - base_t(0)),

and the cost of recomputation, likewise, that it is at most spare z + growth B. So the least z proves b <= B / z. Where
sizes are proportional to the batch once is enough; else the smaller B gives sharper sizes.

The least z comes from the few-moments relaxation with memory as the objective and cost as a row: with s, x and the rows
between moments as in `few_moments`, and for each moment t

    sum over v of M_v s[t,v] + (outputs and transient bytes of t) + base_t - offset_t <= z gain_t,
    sum over k of C_k x_k <= spare + growth z,

minimize z. With offset 0 and gain 1 byte, z is the peak, of every schedule that keeps to the limit on cost.

Source: section 6.4 of Checkmate (MLSys 2020), problem (9) with the batch as a variable and the limit (10) on the cost,
without the quadratic constraints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat_explorer.errors import GraphError, QuantityError, shown
from remat_explorer.solvers.batches.batch_scaling import BatchScaling
from remat_explorer.solvers.bounds.few_moments import (
    MomentsBound,
    MomentsProblem,
    estimated_memory,
    first_moments,
    solve_in_rounds,
)
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.linear_expression import require_columns
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.solver_interface import Limits

ONE_EXTRA_FORWARD = "one extra forward"
OverheadLimit = str | float | None
MOST = 1e6  # no schedule costs so many times as much as keeping everything
_PERCENT = re.compile(r"((?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+))\s*%")
_HINT = f'write "{ONE_EXTRA_FORWARD}", a ratio of at least 1 such as 1.3, or a percentage such as "10%"'


def allowed_recomputation(costs: np.ndarray, is_backward: np.ndarray, limit: OverheadLimit) -> float:
    """Cost beyond that of running every operation once.

    The limit is "one extra forward" (Checkmate, MLSys 2020, (10)), a ratio to keeping everything, a percentage on top
    of it, or None.
    """
    if limit is None:
        return math.inf
    if limit == ONE_EXTRA_FORWARD:
        return float(costs[~is_backward].sum())
    return _share(limit) * float(costs.sum())


def _share(limit: str | float) -> float:
    percent = isinstance(limit, str) and _PERCENT.fullmatch(limit.strip())
    try:
        share = math.nan if isinstance(limit, bool) else float(percent[1]) / 100 if percent else float(limit) - 1
    except (TypeError, ValueError, OverflowError):
        share = math.nan
    if not 0 <= share <= MOST:
        raise QuantityError(f"{shown(limit)} is no limit on the overhead; {_HINT}")
    return share


_MOST_INTEGRAL = 32  # moments of the integer program in the end, at most


@dataclass(frozen=True)
class LeastMemorySettings:
    """How many moments there are."""

    first: int = 4  # moments at first
    most: int = 16  # moments of the linear program in the end, at most
    added: int = 3  # moments that a round adds, at most


LEAST_MEMORY = LeastMemorySettings()


@dataclass(frozen=True, eq=False)
class Allowance:
    """What may be used, as a line in z."""

    offset: np.ndarray  # bytes of each stage that are taken off its demand, float of shape (n,)
    gain: np.ndarray  # bytes that each stage may use per unit of z, float of shape (n,), above 0
    spare: float  # cost of recomputation that is allowed at z = 0; infinity for no limit
    growth: float = 0.0  # cost of recomputation that is allowed per unit of z


@dataclass(frozen=True)
class LeastFactor:
    """A lower bound on z, infinity if the limit on cost cannot be kept, and what the relaxation holds at it."""

    z: float  # no schedule does with a smaller factor
    relaxed: MomentsBound  # at the point that attains it; its ``bound`` is not a cost
    settled: bool = False  # whether the last integer program was solved to its end


class LeastMemoryProblem(MomentsProblem):
    """Columns and rows for chosen moments; column 0 is z, the objective, up to ``most``."""

    def __init__(
        self, condensed: CondensedGraph, allowance: Allowance, moments: list[int], milp: Milp, most: float = math.inf
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

    def shortage(self, values: np.ndarray, z: float) -> np.ndarray:
        """Bytes that are estimated to be needed at each operation beyond what may be used at z."""
        return estimated_memory(self, values) - self.allowance.offset - z * self.allowance.gain


def structural_factor(condensed: CondensedGraph, allowance: Allowance) -> tuple[float, int]:
    """The z below which some operation does not fit for itself alone, and the memory in bytes that it needs."""
    own = condensed.operation_bytes
    factors = (own - allowance.offset) / allowance.gain
    k = int(factors.argmax())
    return float(factors[k]), int(own[k])


def least_factor(
    condensed: CondensedGraph, allowance: Allowance, limits: Limits, settings: LeastMemorySettings = LEAST_MEMORY
) -> LeastFactor:
    """The best bound of the linear program, while moments are added where memory seems to be short."""
    z, budget = structural_factor(condensed, allowance)
    best = LeastFactor(z, MomentsBound(0.0))
    for problem, outcome, _ in solve_in_rounds(
        first_moments(condensed, budget, settings.first),
        lambda moments: LeastMemoryProblem(
            condensed, allowance, moments, Milp(limits.solver, limits.threads, relaxed=True)
        ),
        limits,
        lambda problem, outcome, values: problem.shortage(values, outcome.bound),
        budget,
        settings.added,
        settings.most,
    ):
        if outcome.status == "infeasible":
            return LeastFactor(math.inf, MomentsBound(0.0, tuple(problem.moments)))
        if outcome.values is not None and (outcome.bound >= best.z or best.relaxed.s is None):
            best = LeastFactor(max(best.z, outcome.bound), _point(problem, outcome.values))
    return best


def integral_least_factor(
    condensed: CondensedGraph,
    allowance: Allowance,
    start: LeastFactor,
    limits: Limits,
    most: float = math.inf,
    settings: LeastMemorySettings = LEAST_MEMORY,
) -> LeastFactor:
    """The bound with s binary, from the moments of ``start``, which grow between solves: slower, higher.

    Where no z up to ``most`` remains, it is infinity.
    """
    best = start

    def shortage(problem: LeastMemoryProblem, outcome: MilpOutcome, values: np.ndarray) -> np.ndarray:
        return problem.shortage(values, max(best.z, outcome.bound))

    for problem, outcome, _ in solve_in_rounds(
        start.relaxed.moments,
        lambda moments: LeastMemoryProblem(condensed, allowance, moments, Milp(limits.solver, limits.threads), most),
        limits,
        shortage,
        structural_factor(condensed, allowance)[1],
        settings.added,
        _MOST_INTEGRAL,
    ):
        if outcome.status == "infeasible":
            return LeastFactor(math.inf, best.relaxed, settled=True)
        relaxed = best.relaxed if outcome.values is None else _point(problem, outcome.values)
        best = LeastFactor(max(best.z, outcome.bound), relaxed, outcome.status == "optimal")
        if not best.settled:
            break
    return best


def _point(problem: LeastMemoryProblem, values: np.ndarray) -> MomentsBound:
    return MomentsBound(0.0, tuple(problem.moments), *problem.presence(values))


CAUTION = 1e-6  # relative, on a factor that a solver computed: towards a weaker bound
REFINEMENTS = 3


@dataclass(frozen=True, eq=False)
class BatchProblem:
    """One graph at every batch size, a memory, and a limit on the cost.

    Attributes:
        scaling: what grows with the batch.
        memory: bytes, resident bytes included.
        overhead_limit: as for `allowed_recomputation`.
    """

    scaling: BatchScaling
    memory: int
    overhead_limit: OverheadLimit

    def spare_cost(self, batch: float) -> float:
        """Cost of recomputation that is allowed at ``batch``; a line in the batch, as the costs are."""
        costs = self.scaling.costs.at(batch)
        return allowed_recomputation(costs, self.scaling.graph.is_backward, self.overhead_limit)

    def allows(self, cost: float, batch: int) -> bool:
        """Whether a schedule's cost is within the limit at ``batch``, up to what adding up floats in any order does."""
        if math.isinf(cost):
            return False
        return cost <= (float(self.scaling.costs.at(batch).sum()) + self.spare_cost(batch)) * (1 + 1e-9)


def largest_operation_batch(problem: BatchProblem) -> tuple[int, int]:
    """The largest batch at which every operation fits for itself alone, and the operation that fits no larger one.

    Raises:
        GraphError: if nothing that an operation needs grows with the batch.

    >>> from remat_explorer.instances import linear
    >>> largest_operation_batch(BatchProblem(BatchScaling.by_rule(linear(8)), 31, None))
    (10, 9)
    """
    base = CondensedGraph.of(problem.scaling.at(0)).operation_bytes.astype(float)
    far = 2**20  # so that rounding to whole bytes does not show in the slope
    growth = (CondensedGraph.of(problem.scaling.at(far)).operation_bytes - base) / far
    if (base > problem.memory).any():
        return 0, int(base.argmax())
    if not growth.any():
        raise GraphError(f"nothing of {problem.scaling.graph.name!r} grows with the batch: every batch fits")
    batches = np.full(len(base), math.inf)
    np.divide(problem.memory - base, growth, out=batches, where=growth > 0)
    k = int(batches.argmin())
    return math.floor(batches[k] * (1 + 1e-12)), k


@dataclass(frozen=True)
class BatchBound:
    """No schedule has a larger batch, and what the relaxation holds at its bound, for guided walks."""

    batch: int
    factor: LeastFactor


Method = Callable[[CondensedGraph, Allowance, Limits], LeastFactor]


def relaxed_batch_bound(problem: BatchProblem, batch: int, limits: Limits) -> BatchBound:
    """The bound of the linear program, given that no schedule exceeds ``batch``, at least 1."""
    bound = BatchBound(batch, LeastFactor(1.0, MomentsBound(0.0)))
    for _ in range(REFINEMENTS):
        before = bound.batch
        condensed, allowance = _at(problem, before)
        factor = least_factor(condensed, allowance, limits)
        bound = BatchBound(min(before, _batch(before, factor.z)), factor)
        if problem.scaling.proportional or bound.batch in (0, before) or limits.over:
            break
    return bound


def integral_batch_bound(problem: BatchProblem, start: BatchBound, limits: Limits, least: int = 1) -> BatchBound:
    """The bound of the integer program at the moments of ``start``, whose batch must be at least 1.

    Batches below ``least`` are of no interest; the bound is ``least - 1`` where no other is left.
    """
    condensed, allowance = _at(problem, start.batch)
    unknown = LeastFactor(1.0, start.factor.relaxed)
    most = start.batch / least * (1 + CAUTION)
    factor = integral_least_factor(condensed, allowance, unknown, limits, most)
    return BatchBound(max(least - 1, min(start.batch, _batch(start.batch, factor.z))), factor)


def _at(problem: BatchProblem, batch: int) -> tuple[CondensedGraph, Allowance]:
    scaling = problem.scaling
    offset = CondensedGraph.of(scaling.at(0)).base.astype(float)
    gain = np.maximum(problem.memory - offset, 1.0)  # of stages that nothing but what is there once could fill, too
    fixed, whole = problem.spare_cost(0), problem.spare_cost(batch)
    # z multiplies what does not grow with the batch; the rest of the limit is there at every z
    spare, growth = (whole - fixed, fixed) if math.isfinite(whole) else (math.inf, 0.0)
    return CondensedGraph.of(scaling.at(batch)), Allowance(offset, gain, spare, growth)


def _batch(batch: int, z: float) -> int:
    return 0 if math.isinf(z) else math.floor(batch / z * (1 + CAUTION))
