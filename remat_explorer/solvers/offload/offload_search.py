"""The strategies `offload` and `offload-only`: an anytime search for plans that send values away, with a bound.

1. Computing everything once is returned if it fits. Where nothing can be sent, the problem is Checkmate's, and
   `optimal` answers.
2. `offload` begins with the schedule that `optimal` finds in a part of the time. It, plans that only send, plans that
   do both, and the fastest that is known are starts of the local search over renewals (`renewals`, `renewal_search`).
3. The local search cools down again and again, each time from the best plan of a start or of all, and for longer. How
   long is counted in moves, so the time limit decides where this ends, but not which plans there are on the way.
4. Beside it, bounds in the order of their price: computing once; a few moments with transfers (`transfer_moments`), as
   linear and as integer programs; of small graphs the integer program of half stages (`half_stages`).

`torchtitan-offload` and `offload-layer-inputs` are what others do: rules, of whose plans the fastest that fits is
taken.

No bound of Checkmate's problem is used: a fetch may be cheaper than any computation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from remat_explorer.errors import ScheduleError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.offload import (
    TransferPlan,
    Transfers,
    TransferSolution,
    best_known,
    check_transfers,
    known_bound,
    status_of,
)
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_overhead
from remat_explorer.solution_summary import Status
from remat_explorer.solvers.anytime_search import optimal
from remat_explorer.solvers.condensed_graph import CondensedGraph, one_by_one, smallest_budget_with_stages
from remat_explorer.solvers.methods.hand_written_rules import send_layer_inputs
from remat_explorer.solvers.methods.torchtitan import three_way_plans
from remat_explorer.solvers.offload.half_stages import MOST_OPERATIONS, half_stage_bound
from remat_explorer.solvers.offload.transfer_moments import transfer_moments_bound
from remat_explorer.solvers.search.renewal_search import Chain, Renewals
from remat_explorer.solvers.search.renewals import Copies
from remat_explorer.solvers.solver_interface import (
    PROVEN,
    TRANSFER_STRATEGIES,
    Limits,
    checkpoint_all,
    checkpoint_all_peak,
)

_RECOMPUTING = 0.35  # share of the time for the schedule without transfers, and
_RECOMPUTING_SECONDS = 12.0  # at most
_BOUNDING_BESIDE, _BOUNDING_FIRST = 0.95, 0.5  # shares of the time for bounds, in a thread of their own and without
_MOVES, _MOVES_EXPONENT = 2.4e7, 1.3  # moves of the first cooling, times n ** exponent: about a second
_LONGER = 1.3  # factor from one cooling to the next
_CHUNKS = 100  # of a cooling, between which the temperature falls and somebody may stop it
_HOT, _COLD = (3e-3, 1e-2, 1e-3, 5e-3), 1e-6  # temperatures as shares of the cost of computing once, in turns
_SMALL_COOLINGS, _SMALL_MOVES, _SMALL_CHUNKS, _SMALL_HOT = 40, 2000, 20, 0.1  # the same of small graphs, for each start
_SAME = 1e-12  # relative difference of two makespans that only the order of additions explains
REFUTED = 1e-6  # relative excess of a bound over a makespan beyond which no rounding explains it
_TRIES, _SMALL_TRIES = 12, 400  # repairs from nothing until a start is given up, and for small graphs


def solve_with_transfers(
    graph: Graph,
    budget: int,
    strategy: str,
    transfers: Transfers,
    limits: Limits,
    known: Iterable[TransferSolution] = (),
) -> TransferSolution:
    """The fastest plan that a strategy finds in time, checked; see the top of this file.

    A strategy that searches takes no longer than the fastest of the answers that are ``known`` of this graph, with any
    budget and transfers.

    Raises:
        UnknownNameError: if there is no such strategy.
        SolverError: if an operation has several implementations, or is optional.
    """
    if strategy not in TRANSFER_STRATEGIES:
        raise UnknownNameError("strategy with transfers", strategy, TRANSFER_STRATEGIES)
    condensed = CondensedGraph.of(graph)
    if graph.n <= MOST_OPERATIONS:
        condensed = one_by_one(condensed)
    found = _Found(graph, budget, transfers, limits)
    infeasible = budget < smallest_budget_with_stages(graph)
    if not infeasible:
        found.raise_bound(graph.total_cost)
        found.begin(strategy, known)
        if checkpoint_all_peak(graph) <= budget:
            found.keep(TransferPlan.from_plan(Plan.of(checkpoint_all(graph)), transfers))
        elif strategy in _RULES:
            for plan in _RULES[strategy](graph, budget, transfers):
                if plan.peak <= budget:
                    found.keep(plan)
                if limits.over:
                    break
        elif transfers.possible:
            infeasible = _Search(condensed, budget, transfers, strategy, limits, found).run()
        elif TRANSFER_STRATEGIES[strategy].recomputes:
            answer = optimal.METHOD(graph, budget, limits)
            infeasible = answer.infeasible
            if answer.schedule is not None:
                found.keep(TransferPlan.from_plan(Plan.of(answer.schedule), transfers))
            found.raise_bound(answer.lower_bound or 0.0)
        else:
            infeasible = True  # everything is kept, or the plan would have to compute again
    infeasible = infeasible and found.plan is None
    cost = None if found.plan is None else found.plan.makespan
    if cost is not None and found.bound > cost * (1 + REFUTED):
        raise ScheduleError(f"no plan is said to take less than {found.bound:.6g}, but one takes {cost:.6g}")
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
        "" if status in (Status.OPTIMAL, Status.INFEASIBLE) else ended,
    )


_RULES: dict[str, Callable[[Graph, int, Transfers], Iterator[TransferPlan]]] = {
    "torchtitan-offload": three_way_plans,
    "offload-layer-inputs": send_layer_inputs,
}


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

    def begin(self, strategy: str, known: Iterable[TransferSolution]) -> None:
        """Take what is known already, if the strategy may."""
        of_all = TRANSFER_STRATEGIES[strategy]
        known = [one for one in known if of_all.searches and (of_all.recomputes or _computes_once(one))]
        best = best_known(known, self.budget, self.transfers, strategy)
        if best is not None and best.plan is not None:
            self.keep(best.plan)
        self.raise_bound(known_bound(known, self.budget, self.transfers, strategy))

    def keep(self, plan: TransferPlan) -> bool:
        """Check a plan, and take it if it is faster; whether it was."""
        if plan.makespan >= self.cost * (1 - _SAME):
            return False
        check_transfers(plan, self.budget, plan.makespan)
        self.plan = plan
        self.limits.tell(f"found a plan, overhead {format_overhead(plan.makespan / (self.graph.total_cost or 1.0))}")
        return True

    def raise_bound(self, bound: float) -> None:
        self.bound = max(self.bound, bound)


def _computes_once(solution: TransferSolution) -> bool:
    statements = () if solution.plan is None else solution.plan.statements
    return all(one.first for one in statements if isinstance(one, Compute))


class _Search:
    def __init__(
        self, condensed: CondensedGraph, budget: int, transfers: Transfers, strategy: str, limits: Limits, found: _Found
    ) -> None:
        self.condensed, self.budget, self.transfers = condensed, budget, transfers
        self.limits, self.found = limits, found
        self.graph, self.renewals = condensed.graph, Renewals(condensed, budget, transfers)
        self.may_run = TRANSFER_STRATEGIES[strategy].recomputes
        self.chains: list[Chain] = []
        self.sending: Chain | None = (
            None  # one that computes nothing again, so that it ends no worse than `offload-only`
        )

    @property
    def over(self) -> bool:
        return self.limits.over or self.found.proven

    def run(self) -> bool:
        """Search until the time is up or the plan is proven; whether it is proven that there is none."""
        if self.found.proven:
            return False
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
        limits = self.limits.share(_BOUNDING_BESIDE if self.limits.threads > 1 else _BOUNDING_FIRST)
        single = one_by_one(self.condensed)  # or it is no bound
        bound_of = half_stage_bound if single.n <= MOST_OPERATIONS else transfer_moments_bound
        bound = bound_of(single, self.budget, Copies.of(single, self.transfers), self.may_run, limits)
        self.found.used_solver = True
        if math.isinf(bound):
            return True
        self.found.raise_bound(bound)
        return False

    def _start(self) -> None:
        """The starts of the local search."""
        known = self.found.plan
        if self.may_run:
            seconds = min(_RECOMPUTING * self.limits.left, _RECOMPUTING_SECONDS)
            part = Limits(seconds, self.limits.solver, 1, lambda progress: None, self.limits.cancelled)
            answer = optimal.METHOD(self.graph, self.budget, part)
            if answer.schedule is not None:
                plan = TransferPlan.from_plan(Plan.of(answer.schedule), self.transfers)
                self.found.keep(plan)
                self._add(self.renewals.of_plan(plan))
        if known is not None:
            self._add(self.renewals.of_plan(known))
        for may_run in (False, True) if self.may_run else (False,):
            for _ in range(_SMALL_TRIES if self.condensed.n <= MOST_OPERATIONS else _TRIES):
                if self.over:
                    return
                chain = self.renewals.begin(may_run)
                if chain is not None:
                    self._add(chain)
                    if not may_run:
                        self.sending = chain
                        if self.condensed.n <= MOST_OPERATIONS:
                            self._add(Chain(chain.runs.copy(), chain.fetches.copy(), chain.cost))
                    break

    def _add(self, chain: Chain | None) -> None:
        """Take a start, if it fits."""
        if chain is not None:
            self.chains.append(chain)
            self.found.keep(self.renewals.plan(chain))

    def _cool(self) -> None:
        """Cool each start down, then the best of all and another in turns."""
        if not self.chains:
            return
        small, n = self.condensed.n <= MOST_OPERATIONS, self.condensed.n
        most = _SMALL_COOLINGS * len(self.chains) if small else math.inf
        moves, turn = _MOVES / n**_MOVES_EXPONENT, 0
        while not self.over and turn < most:
            order = sorted(self.chains, key=lambda chain: chain.cost)
            chain = self.chains[turn] if turn < len(self.chains) else order[(turn // 2) % len(order) * (turn % 2)]
            if small:
                self._cool_once(chain, _SMALL_MOVES // _SMALL_CHUNKS, _SMALL_CHUNKS, _SMALL_HOT * (turn % 3))
            else:
                self._cool_once(chain, math.ceil(moves / _CHUNKS), _CHUNKS, _HOT[turn % len(_HOT)])
                moves *= _LONGER
            if turn == len(self.chains) - 1 and not small:
                self.sending = None  # each start has had its turn
            turn += 1

    def _cool_once(self, chain: Chain, moves: int, chunks: int, hot: float) -> None:
        """So many chunks of moves, each colder than the one before."""
        once, before = self.graph.total_cost or 1.0, chain.cost
        costs = np.array([chain.cost, chain.cost])
        may_run = self.may_run and chain is not self.sending
        self.renewals.load(chain)
        for chunk in range(chunks):
            if self.over or chain.cost - self.found.bound <= PROVEN * chain.cost:
                break
            temperature = max(hot * (1 - chunk / chunks) ** 2, _COLD) * once
            self.renewals.go_on(chain, costs, moves, temperature, may_run)
        if chain.cost < before:
            self.found.keep(self.renewals.plan(chain))
