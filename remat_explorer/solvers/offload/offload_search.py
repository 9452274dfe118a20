"""The strategies `offload` and `offload-only`: an anytime search for plans that send values away, with a bound.

1. Computing everything once is returned if it fits. Where nothing can be sent, the problem is Checkmate's, and `optimal`
   answers.
2. `offload` begins with the schedule that `optimal` finds in a part of the time. It, plans that only send, and plans
   that do both are starts of the local search over renewals (`renewals`, `renewal_search`).
3. The local search cools down several times, each time from the best plan of a start or of all.
4. Beside it, bounds in the order of their price: computing once; a few moments with transfers (`transfer_moments`);
   of small graphs the integer program of half stages (`half_stages`).

No bound of Checkmate's problem is used: a fetch may be cheaper than any computation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.offload import (
    Event,
    TransferPlan,
    Transfers,
    TransferSolution,
    check_transfers,
    status_of,
)
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime import optimal
from remat_explorer.solvers.base import PROVEN, Limits, checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.condensed import Condensed, smallest_budget_with_stages
from remat_explorer.solvers.offload.half_stages import MOST_OPERATIONS, half_stage_bound
from remat_explorer.solvers.offload.renewal_search import begin_search, measure, random_state, search
from remat_explorer.solvers.offload.renewals import FETCH, LENGTH, NEVER, Copies, TransferState, members_of, set_renewals
from remat_explorer.solvers.offload.transfer_moments import transfer_moments_bound
from remat_explorer.solvers.search.compiled_state import FlatGraph

TRANSFER_STRATEGIES: dict[str, str] = {
    "offload": "keep, compute again, or send to the host: an anytime search with a bound",
    "offload-only": "keep or send to the host, and compute everything once: the same search without recomputation",
}
"""What each strategy with transfers does, by its name."""

_RECOMPUTING = 0.35  # share of the time for the schedule without transfers, and
_RECOMPUTING_SECONDS = 12.0  # at most
_CHUNK = 0.1  # seconds of moves between two looks at the clock
_COOLINGS = 6  # in the time that there is, for each start at least one
_HOT, _COLD = 2e-3, 1e-6  # temperatures as shares of the cost of computing once
_TRIES = 12  # repairs from nothing until a start is given up


def solve_with_transfers(graph: Graph, budget: int, strategy: str, transfers: Transfers, limits: Limits) -> TransferSolution:
    """The fastest plan that a strategy finds in time, checked; see the top of this file.

    Raises:
        UnknownNameError: if there is no such strategy.
        SolverError: if an operation has several implementations, or is optional.
    """
    if strategy not in TRANSFER_STRATEGIES:
        raise UnknownNameError("strategy with transfers", strategy, TRANSFER_STRATEGIES)
    condensed = Condensed.of(graph)
    found = _Found(graph, budget, transfers, limits)
    infeasible = budget < smallest_budget_with_stages(graph)
    if not infeasible:
        found.raise_bound(graph.total_cost)
        if checkpoint_all_peak(graph) <= budget:
            found.keep(TransferPlan.from_plan(Plan.of(checkpoint_all(graph)), transfers))
        elif transfers.possible:
            infeasible = _Search(condensed, budget, transfers, strategy, limits, found).run()
        elif strategy == "offload":
            answer = optimal.METHOD(graph, budget, limits)
            infeasible = answer.infeasible
            if answer.schedule is not None:
                found.keep(TransferPlan.from_plan(Plan.of(answer.schedule), transfers))
            found.raise_bound(answer.lower_bound or 0.0)
        else:
            infeasible = True  # everything is kept, or the plan would have to compute again
    infeasible = infeasible and found.plan is None
    cost = None if found.plan is None else found.plan.makespan
    bound = None if infeasible else found.bound if cost is None else min(found.bound, cost)
    status = status_of(cost, bound, infeasible)
    ended = limits.reached or "the end of its search"
    return TransferSolution(
        graph,
        transfers,
        strategy,
        status,
        budget,
        found.plan,
        bound,
        limits.elapsed,
        limits.solver if found.used_solver else "",
        "" if status.value in ("optimal", "infeasible") else ended,
    )


class _Found:
    """The best checked plan and the highest bound."""

    def __init__(self, graph: Graph, budget: int, transfers: Transfers, limits: Limits) -> None:
        self.graph, self.budget, self.transfers, self.limits = graph, budget, transfers, limits
        self.plan: TransferPlan | None = None
        self.bound, self.used_solver = 0.0, False

    @property
    def cost(self) -> float:
        return math.inf if self.plan is None else self.plan.makespan

    @property
    def proven(self) -> bool:
        return self.plan is not None and self.cost - self.bound <= PROVEN * self.cost

    def keep(self, plan: TransferPlan) -> bool:
        """Check a plan, and take it if it is faster; whether it was."""
        if plan.makespan >= self.cost:
            return False
        check_transfers(plan, self.budget, plan.makespan)
        self.plan = plan
        self.limits.tell(f"found a plan that takes {plan.makespan / (self.graph.total_cost or 1.0):.4f} times computing once")
        return True

    def raise_bound(self, bound: float) -> None:
        self.bound = max(self.bound, bound)


@dataclass
class _Chain:
    """A start of the local search with its best renewals."""

    runs: np.ndarray
    fetches: np.ndarray
    cost: float


class _Search:
    def __init__(
        self, condensed: Condensed, budget: int, transfers: Transfers, strategy: str, limits: Limits, found: _Found
    ) -> None:
        self.condensed, self.budget, self.transfers, self.limits, self.found = condensed, budget, transfers, limits, found
        self.graph, self.flat = condensed.graph, FlatGraph.of(condensed)
        self.copies = Copies.of(condensed, transfers)
        self.members = members_of(condensed)
        self.state = TransferState.empty(condensed.n, condensed.groups)
        self.random = random_state(condensed.n)
        self.may_run = strategy == "offload"
        self.chains: list[_Chain] = []

    @property
    def over(self) -> bool:
        return self.limits.over or self.found.proven

    def run(self) -> bool:
        """Search until the time is up or the plan is proven; whether it is proven that there is none."""
        with ThreadPoolExecutor(1) as beside:
            bounding: Future[bool] | None = None
            if self.limits.threads > 1:
                bounding = beside.submit(self._bound)
            self._start()
            infeasible = False
            if bounding is None and not self.over:
                infeasible = self._bound()
            self._cool()
            if bounding is not None:
                infeasible = bounding.result()
        return infeasible

    def _bound(self) -> bool:
        """Raise the bound; whether it is proven that there is no plan."""
        limits, small = self.limits, self.condensed.n <= MOST_OPERATIONS
        if not small:
            bound = transfer_moments_bound(self.condensed, self.budget, self.copies, self.may_run, limits.share(0.5))
            self.found.used_solver = True
            self.found.raise_bound(bound)
            return False
        bound = half_stage_bound(self.condensed, self.budget, self.copies, self.may_run, limits.share(0.8))
        self.found.used_solver = True
        if math.isinf(bound):
            return True
        self.found.raise_bound(bound)
        return False

    def _start(self) -> None:
        """The starts of the local search."""
        if self.may_run:
            seconds = min(_RECOMPUTING * self.limits.left, _RECOMPUTING_SECONDS)
            part = Limits(seconds, self.limits.solver, 1, lambda progress: None, self.limits.cancelled)
            answer = optimal.METHOD(self.graph, self.budget, part)
            if answer.schedule is not None:
                self.found.keep(TransferPlan.from_plan(Plan.of(answer.schedule), self.transfers))
                self._add(self._runs_of(answer.schedule), None)
        for may_run in (False, True) if self.may_run else (False,):
            for _ in range(_TRIES):
                if self.over:
                    return
                self._load(None, None)
                cost = begin_search(
                    self.flat, self.copies, self.state, self.random, self.budget, may_run, True
                )
                if cost < NEVER:
                    self._add(self.state.runs.copy(), self.state.fetches.copy())
                    break

    def _runs_of(self, schedule: Schedule) -> np.ndarray:
        runs = np.zeros((self.condensed.n, self.condensed.n), dtype=np.uint8)
        for t, k, _ in schedule.sequence:
            runs[t, k] = k != t
        return runs

    def _add(self, runs: np.ndarray | None, fetches: np.ndarray | None) -> None:
        """A chain with these renewals, if they fit."""
        self._load(runs, fetches)
        cost = float(measure(self.flat, self.copies, self.state, self.budget))
        if cost < NEVER:
            self.chains.append(_Chain(self.state.runs.copy(), self.state.fetches.copy(), cost))
            self.found.keep(self._plan())

    def _load(self, runs: np.ndarray | None, fetches: np.ndarray | None) -> None:
        set_renewals(self.state, runs, fetches)

    def _cool(self) -> None:
        """Cool each start down, then the best again and again."""
        if not self.chains:
            return
        begun, limits, once = time.monotonic(), self.limits, self.graph.total_cost or 1.0
        seconds = max(limits.left, 1e-3)
        rounds = max(_COOLINGS, 2 * len(self.chains))
        small = self.condensed.n <= MOST_OPERATIONS
        for turn in range(10**9):
            if self.over or (small and turn >= 40 * len(self.chains)):
                break
            order = sorted(self.chains, key=lambda chain: chain.cost)
            chain = self.chains[turn] if turn < len(self.chains) else order[(turn // 2) % len(order) if turn % 2 else 0]
            part = 0.05 if small else seconds / rounds
            hot = _HOT if turn < len(self.chains) else _HOT / (1 + turn % 4)
            if small:
                hot = 0.1 * (turn % 3)
            self._cool_once(chain, part, hot * once)
        del begun

    def _cool_once(self, chain: _Chain, seconds: float, hot: float) -> None:
        self._load(chain.runs, chain.fetches)
        costs = np.array([chain.cost, chain.cost])
        begun, moves = time.monotonic(), 20
        cold = _COLD * (self.graph.total_cost or 1.0)
        while not self.over and time.monotonic() - begun < seconds:
            passed = (time.monotonic() - begun) / seconds
            temperature = max(hot * (1 - passed) ** 2, cold)
            before = time.monotonic()
            search(
                self.flat, self.copies, self.state, self.random, self.budget, self.may_run, True, moves, temperature,
                costs, chain.runs, chain.fetches,
            )  # fmt: skip
            if costs[1] < chain.cost:
                chain.cost = float(costs[1])
            moves = int(min(max(10, moves * _CHUNK / max(time.monotonic() - before, 1e-4)), 100_000))
        self._load(chain.runs, chain.fetches)
        if measure(self.flat, self.copies, self.state, self.budget) < NEVER:
            self.found.keep(self._plan())

    def _plan(self) -> TransferPlan:
        """The plan of the renewals that were measured last."""
        state, events = self.state, list[Event]()
        for i in range(int(state.numbers[LENGTH])):
            t, k = int(state.stage[i]), int(state.operation[i])
            version = int(state.head[i])
            while version >= 0:
                events += [("fetch", t, v) for v in self.members[state.group[version]]]
                version = int(state.link[version])
            events.append(("compute", t, k))
            if k == t:
                for group in range(self.flat.output_start[k], self.flat.output_start[k + 1]):
                    if state.sent[group]:
                        events += [("send", t, v) for v in self.members[group]]
        return TransferPlan.from_events(self.graph, self.transfers, events, self.budget)
