"""Upper bounds on the batch: no schedule of a larger batch fits into the memory at that cost.

Let B be a batch that no schedule exceeds, and b <= B one that some schedule attains. Where a value has ``a + m b``
bytes with a >= 0, it has at least b / B of its bytes at B, and so has everything else that grows. The memory at b,
multiplied by z = B / b, therefore says with sizes at B, and with base_t(0) for what does not grow,

    sum over v of M_v s[t,v] + (all else at B) - base_t(0) <= z (memory - base_t(0)),

and the cost of recomputation, likewise, that it is at most spare z + growth B. So the least z of `least_memory` proves
b <= B / z. Where sizes are proportional to the batch once is enough; else the smaller B gives sharper sizes.

Source: section 6.4 of Checkmate (MLSys 2020), problem (9) with the batch as a variable and the limit (10) on the cost,
without the quadratic constraints.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat_explorer.errors import GraphError
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.batches.batch_scaling import BatchScaling
from remat_explorer.solvers.batches.overhead_limit import OverheadLimit, allowed_recomputation
from remat_explorer.solvers.bounds.few_moments import MomentsBound
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.memory.least_memory import Allowance, LeastFactor, integral_least_factor, least_factor

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
    base = Condensed.of(problem.scaling.at(0)).operation_bytes.astype(float)
    far = 2**20  # so that rounding to whole bytes does not show in the slope
    growth = (Condensed.of(problem.scaling.at(far)).operation_bytes - base) / far
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


Method = Callable[[Condensed, Allowance, Limits], LeastFactor]


def relaxed_batch_bound(problem: BatchProblem, batch: int, limits: Limits) -> BatchBound:
    """The bound of the linear program, given that no schedule exceeds ``batch``, at least 1.

    >>> from remat_explorer.instances import linear
    >>> problem = BatchProblem(BatchScaling.by_rule(linear(8)), 1000, "one extra forward")
    >>> relaxed_batch_bound(problem, 333, Limits()).batch  # 200 can be attained
    269
    """
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

    Args:
        problem: the graph, the memory and the limit on the cost.
        start: a bound that is known, with its moments.
        limits: time and back end.
        least: smaller batches are of no interest; ``least - 1`` is the bound where no other is left.
    """
    condensed, allowance = _at(problem, start.batch)
    unknown = LeastFactor(1.0, start.factor.relaxed)
    most = start.batch / least * (1 + CAUTION)
    factor = integral_least_factor(condensed, allowance, unknown, limits, most)
    return BatchBound(max(least - 1, min(start.batch, _batch(start.batch, factor.z))), factor)


def _at(problem: BatchProblem, batch: int) -> tuple[Condensed, Allowance]:
    scaling = problem.scaling
    offset = Condensed.of(scaling.at(0)).base.astype(float)
    gain = np.maximum(problem.memory - offset, 1.0)  # of stages that nothing but what is there once could fill, too
    fixed, whole = problem.spare_cost(0), problem.spare_cost(batch)
    # z multiplies what does not grow with the batch; the rest of the limit is there at every z
    spare, growth = (whole - fixed, fixed) if math.isfinite(whole) else (math.inf, 0.0)
    return Condensed.of(scaling.at(batch)), Allowance(offset, gain, spare, growth)


def _batch(batch: int, z: float) -> int:
    return 0 if math.isinf(z) else math.floor(batch / z * (1 + CAUTION))
