"""The strategy `monet-paper`: MONeT's own restriction of the joint problem, as its paper writes it, for comparison.

Source: Shah et al., ICLR 2021, section 4 and appendix A.

Against the joint problem, MONeT's

* runs every backward operation once, and in the forward pass runs every forward operation once: recomputation is of
  forward operations in backward stages only, and what serves an implementation, such as a mask, is made in the forward
  pass beside the operation it belongs to, or in a backward stage;
* its (8): what backward operation k reads of the forward pass is recomputed in stage k, or is *still stored after* it,
  s^{k-1}; so no checkpoint is dropped in the stage of its last use, except that it may be computed there a second time,
  in its own place, only to satisfy (8);
* does not follow what recomputation keeps beside the checkpoints, its local memory L, but bounds it. From above it is
  what the forward pass has there: everything that operation i or a later forward operation reads. From below it is
  what operation i reads itself. The bound from above, appendix A's, gives schedules that fit; the one from below shows
  how much the bound from above costs at most.

The forward pass ends with the first operation of the backward phase, the loss. MONeT's program adds the bound of
local memory to what the backward operation reads of the same values, in some cases twice; here, as in the text, they
are a union. Bytes and costs are exact instead of rounded to units.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solvers.linear_expression import ZERO, LinearExpression
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, allowed_codes
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.solver_interface import Answer, Limits

LOCAL_MEMORY = ("upper", "lower")


def solve_monet_paper(
    graph: Graph,
    budget: int,
    limits: Limits,
    implementations: str | Collection[str] = "all",
    local_memory: str = "upper",
) -> Answer:
    """The cheapest schedule of MONeT's class: gradients are computed once, and nothing is recomputed before the loss.

    ``local_memory`` is the paper's bound of what recomputation keeps beside checkpoints, "upper" or "lower" (appendix
    A); with the lower one a solution may not fit, and then there is none. The lower bound holds for every schedule, not
    for this class alone.

    Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), section 4 and appendix A.
    """
    if local_memory not in LOCAL_MEMORY:
        raise SolverError(f"local_memory is {shown(local_memory)}; expected 'upper' or 'lower'")
    condensed = CondensedChoices.of(graph, allowed_codes(graph, implementations))
    problem = PaperProblem(
        condensed, budget, Milp(limits.solver, limits.threads, relaxed=True), local_memory == "upper"
    )
    least = condensed.least_cost
    limits.tell("building MONeT's problem", lower_bound=least)
    if not problem.build(limits):
        return Answer(None, least, solver=limits.solver)
    best, bound = problem.solve(limits, own_bound=False)
    if best is None and math.isinf(bound):
        return Answer(None, infeasible=True, solver=limits.solver)
    if best is not None and Plan.of(best).peak > budget:
        best = None
    limits.tell("done", best, least)
    return Answer(best, least, solver=limits.solver)


METHOD = Method(
    solve_monet_paper,
    "MONeT's own restriction: no gradient is recomputed, and what recomputation holds is bounded by what the "
    "forward pass holds there",
    "Shah et al. 2021, section 4 and appendix A",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("implementations", "local_memory"),
    choices=Support.YES,
    symbol="diamond",
)


class PaperProblem(JointProblem):
    """MONeT's problem for one graph and one budget, with local memory bounded ``from_above`` or else from below."""

    either = False  # (8) may ask for both

    def __init__(self, problem: CondensedChoices, budget: int, milp: Milp, from_above: bool = True) -> None:
        self.is_backward = after_the_loss(problem)
        super().__init__(problem, budget, milp, runs_again(problem))
        self.from_above = self.limits_all_memory = from_above
        self._local = [self._local_memory(k) for k in range(problem.graph.n)]

    def add_rules(self, t: int) -> None:
        """Rows (b), (c), and (8) of stage t."""
        super().add_rules(t)
        own = int(self.own[t])
        if not self.is_backward[own]:
            return
        for v in sorted({v for way, _ in self.delta[t, own] for v in way.inputs}):
            if self.is_backward[self.problem.producer[v]]:
                continue
            if (t + 1, v) not in self.S:
                self.S[t + 1, v] = LinearExpression.of(self.milp.column(integer=True))
                self._require_available(self.S[t + 1, v], t, v)
            self._require_available(self.use(t, own, v), t + 1, v, written=self.wr(t, v))

    def not_yet_written(self, t: int, v: int, k: int) -> LinearExpression:
        """As in the joint problem, but what k writes takes the place of what is retained."""
        replaced = self.problem.producer[v] == k and all(v in way.outputs for way, _ in self.delta[t, k])
        return ZERO if replaced else self.held(t, v)

    def local(self, t: int, k: int) -> list[int]:
        """Groups that count as alive while k runs in stage t, whether or not anything reads them later."""
        again = k != self.own[t] and self.is_backward[self.own[t]]
        return self._local[k] if self.from_above and again else []

    def readers_that_count(self, t: int, k: int, readers: list[int]) -> list[int]:
        """Of the readers that keep a value alive while k runs, those that the bound sees."""
        return readers if self.from_above else [u for u in readers if u in (k, self.own[t])]

    def _local_memory(self, k: int) -> list[int]:
        """L-bar of appendix A: what k or a later forward operation reads of earlier ones in the forward pass."""
        problem, graph = self.problem, self.problem.graph
        if self.is_backward[k]:
            return []
        read = {
            v
            for u in range(k, graph.n)
            if not self.is_backward[u] and not graph.operations[u].optional
            for v in problem.ways[u][0].inputs
        }
        return sorted(v for v in read if problem.producer[v] < k)


def after_the_loss(problem: CondensedChoices) -> np.ndarray:
    """Which operations come after the loss, the first operation of the backward phase, bool of shape (n,)."""
    after = problem.graph.is_backward.copy()
    after[np.flatnonzero(after)[:1]] = False
    return after


def runs_again(problem: CondensedChoices) -> np.ndarray:
    """Which operation may run in which stage beside the stage's own, bool of shape (T, n)."""
    graph = problem.graph
    optional = np.array([node.optional for node in graph.operations])
    after = after_the_loss(problem)
    backward_stage = after[graph.mandatory][:, None]
    beside = optional & (graph.first_stage == np.arange(graph.stages)[:, None])
    return (backward_stage & (~after | optional)) | beside
