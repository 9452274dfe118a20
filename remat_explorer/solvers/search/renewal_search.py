"""Local search over sets of renewals: change some at random, and where bytes are then short, renew more; compiled.

Each move takes away renewals, adds one, or exchanges runs for fetches. Where the result exceeds the budget, `repair`
looks at the worst moment: a group that is not used there can leave in the gap around it, and then needs a renewal at
its next read. The price of a run is its cost; that of a fetch is a share of the time of its copies, drawn anew for each
move, since how much of them is hidden depends on everything else. What is no worse, or little so while the temperature
is high, is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from remat_explorer.machine_code import counting_nothing, entry
from remat_explorer.offload import Event, Fetch, TransferPlan, Transfers
from remat_explorer.plan import Compute
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.search.annealing import below, uniform
from remat_explorer.solvers.search.compiled_state import FlatGraph
from remat_explorer.solvers.search.renewals import (
    AGAIN,
    FETCHED,
    LENGTH,
    LOGGED,
    NEVER,
    RUN,
    VERSIONS,
    WORST,
    Copies,
    TransferState,
    change,
    clock,
    lay_out,
    members_of,
    set_renewals,
    take_back,
    tidy,
)

REPAIRS = 400  # renewals that one repair adds, at most, where there is no plan yet
FEW_REPAIRS = 24  # after a move
WINDOW = 12  # renewals that one move takes away, at most


@counting_nothing
def repair(graph, copies, state, random, budget, may_run, may_fetch, most, limit):
    """Add renewals until the budget is kept; False if none helps, or computing alone takes more than ``limit``."""
    n, numbers = len(graph.costs), state.numbers
    share = uniform(random)
    share = share * share
    for _ in range(most):
        over = lay_out(graph, copies, state, budget)
        if over < 0 or state.when[numbers[LENGTH]] > limit:
            return False
        if over == 0:
            return True
        worst = numbers[WORST]
        stage, now = state.stage[worst], state.operation[worst]
        best, best_what, best_stage = -1.0, -1, -1
        look_ahead(graph, state, worst)
        for version in range(numbers[VERSIONS]):
            if state.begin[version] >= worst or state.end[version] <= worst:
                continue
            v = state.group[version]
            if state.ahead[v] < 0:
                continue
            t = state.stage[state.ahead[v]]
            in_stage = t == stage and is_read(graph, state, v, worst)
            freed = float(min(graph.bytes[v], over)) + 1e-9
            k = graph.producer[v]
            if may_run and not state.runs[t, k] and k < t and not (t == stage and k < now):
                price = graph.costs[k] + 1e-12
                score = freed / price * (0.3 + uniform(random))
                if score > best:
                    best, best_what, best_stage = score, k, t
            if may_fetch and not state.fetches[t, v] and k < t and not in_stage:
                price = share * (copies.back[v] + copies.out[v]) + 1e-12
                score = freed / price * (0.3 + uniform(random))
                if score > best:
                    best, best_what, best_stage = score, n + v, t
        if best_what < 0:
            return False
        change(state, best_stage, best_what)
    return False


@counting_nothing
def look_ahead(graph, state, worst):
    """Of each group the next run that reads it behind a run; -1 for what that run itself reads, or nobody reads."""
    for v in range(len(graph.bytes)):
        state.ahead[v] = -1
    for i in range(state.numbers[LENGTH] - 1, worst - 1, -1):
        k = state.operation[i]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            state.ahead[graph.inputs[j]] = i if i > worst else -1


@counting_nothing
def is_read(graph, state, v, place):
    """Whether a run of the same stage reads group v, up to that place."""
    i = place
    while i >= 0 and state.stage[i] == state.stage[place]:
        k = state.operation[i]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            if graph.inputs[j] == v:
                return True
        i -= 1
    return False


@counting_nothing
def next_read(graph, state, v, after, last):
    """The first run behind another that reads group v, or -1."""
    for i in range(after + 1, last + 1):
        k = state.operation[i]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            if graph.inputs[j] == v:
                return i
    return -1


@counting_nothing
def remove_run(graph, state, place, instead):
    """Run no more what runs again at a place of the sequence; its outputs are fetched if ``instead`` says so."""
    n = len(graph.costs)
    k, t = state.operation[place], state.stage[place]
    if not state.runs[t, k]:
        return
    change(state, t, k)
    if not instead:
        return
    for version in range(state.numbers[VERSIONS]):
        v = state.group[version]
        if state.begin[version] == place and state.kind[version] == RUN and state.read[version] >= 0:
            at = state.stage[state.read[version]]
            if not state.fetches[at, v] and k < at:
                change(state, at, n + v)


@counting_nothing
def remove_fetch(graph, state, version, instead):
    """Fetch a version no more; its producer runs again if ``instead`` says so."""
    n = len(graph.costs)
    v, t = state.group[version], state.stage[state.begin[version]]
    if not state.fetches[t, v]:
        return
    change(state, t, n + v)
    k = graph.producer[v]
    if instead and k < t and not state.runs[t, k]:
        change(state, t, k)


@counting_nothing
def move(graph, state, random, may_run, may_fetch):
    """Change some renewals at random; what comes of it is for `repair` to say."""
    n, numbers = len(graph.costs), state.numbers
    runs, fetches = numbers[AGAIN], numbers[FETCHED]
    kind = uniform(random)
    many = 1
    if uniform(random) < 0.5:
        many = 1 + below(random, 1 + below(random, WINDOW))
    if kind < 0.3 and runs and may_fetch:
        i = below(random, runs)
        for j in range(i, min(i + many, runs)):
            remove_run(graph, state, state.again[j], True)
    elif kind < 0.45 and fetches and may_run:
        i = below(random, fetches)
        for j in range(i, min(i + many, fetches)):
            remove_fetch(graph, state, state.fetched[j], True)
    elif kind < 0.65 and runs:
        i = below(random, runs)
        for j in range(i, min(i + many, runs)):
            remove_run(graph, state, state.again[j], False)
    elif kind < 0.8 and fetches:
        i = below(random, fetches)
        for j in range(i, min(i + many, fetches)):
            remove_fetch(graph, state, state.fetched[j], False)
    elif kind < 0.85 and runs and may_run:
        shift(graph, state, random)
    else:
        for _ in range(min(many, 4)):
            version = below(random, numbers[VERSIONS])
            v = state.group[version]
            if state.end[version] <= state.begin[version]:
                continue
            after = state.begin[version] + below(random, state.end[version] - state.begin[version])
            place = next_read(graph, state, v, after, state.end[version])
            t, k = state.stage[place], graph.producer[v]
            if place < 0 or k >= t:
                continue
            in_stage = state.stage[after] == t and is_read(graph, state, v, after)
            if may_fetch and not in_stage and not state.fetches[t, v] and (not may_run or uniform(random) < 0.6):
                change(state, t, n + v)
            elif may_run and not state.runs[t, k]:
                change(state, t, k)


@counting_nothing
def shift(graph, state, random):
    """Run something again in another stage nearby."""
    n = len(graph.costs)
    place = state.again[below(random, state.numbers[AGAIN])]
    k, t = state.operation[place], state.stage[place]
    reach = 1 + int(2.0 ** (5 * uniform(random)))
    other = t - reach + below(random, 2 * reach + 1)
    if other > k and other < n and not state.runs[other, k]:
        change(state, t, k)
        change(state, other, k)


@entry
def begin_search(graph, copies, state, random, budget, may_run, may_fetch):
    """Renew until the budget is kept; the makespan, or a larger number than any."""
    state.numbers[LOGGED] = 0
    if repair(graph, copies, state, random, budget, may_run, may_fetch, REPAIRS + 4 * len(graph.costs), NEVER):
        tidy(state)
        state.numbers[LOGGED] = 0
        lay_out(graph, copies, state, budget)
        return clock(graph, copies, state, budget)
    take_back(state)
    return NEVER


@entry
def search(
    graph, copies, state, random, budget, may_run, may_fetch, moves, temperature, costs, best_runs, best_fetches
):
    """Make moves; ``costs`` is the present makespan and the best, whose renewals are in ``best_runs`` and so on."""
    state.numbers[LOGGED] = 0
    lay_out(graph, copies, state, budget)
    for _ in range(moves):
        move(graph, state, random, may_run, may_fetch)
        if state.numbers[LOGGED] == 0:
            continue
        most = costs[0] - temperature * math.log(uniform(random) + 1e-300)
        makespan = NEVER
        if repair(graph, copies, state, random, budget, may_run, may_fetch, FEW_REPAIRS, most):
            tidy(state)
            makespan = clock(graph, copies, state, budget)
        if makespan <= most and state.numbers[LOGGED] < len(state.log):
            costs[0] = makespan
            state.numbers[LOGGED] = 0
            if makespan < costs[1] * (1 - 1e-12):
                costs[1] = makespan
                for t in range(len(graph.costs)):
                    for k in range(len(graph.costs)):
                        best_runs[t, k] = state.runs[t, k]
                    for v in range(len(graph.bytes)):
                        best_fetches[t, v] = state.fetches[t, v]
        else:
            take_back(state)
            lay_out(graph, copies, state, budget)
    return costs[1]


@entry
def measure(graph, copies, state, budget):
    """The makespan of the renewals as they are, with the places of copies left in ``state``; NEVER if over budget."""
    if lay_out(graph, copies, state, budget) != 0:
        return NEVER
    return clock(graph, copies, state, budget)


@dataclass
class Chain:
    """Renewals that the search goes on from, and their makespan."""

    runs: np.ndarray
    fetches: np.ndarray
    cost: float


class Renewals:
    """The local search over renewals of one graph within one budget; seeded, so the same moves give the same plan.

    >>> from remat_explorer.instances import linear
    >>> renewals = Renewals(CondensedGraph.of(linear(3)), 3, Transfers(1.0, 1.0))
    >>> chain = renewals.begin(may_run=True)
    >>> renewals.improve(chain, 2000, 0.5)
    >>> chain.cost, renewals.plan(chain).makespan
    (9.0, 9.0)
    """

    def __init__(self, condensed: CondensedGraph, budget: int, transfers: Transfers) -> None:
        self.condensed, self.budget, self.transfers = condensed, budget, transfers
        self.flat, self.copies = FlatGraph.of(condensed), Copies.of(condensed, transfers)
        self.members = members_of(condensed)
        self.state = TransferState.empty(condensed.n, condensed.groups)
        self.random = np.array([condensed.n], dtype=np.uint64)

    def begin(self, may_run: bool) -> Chain | None:
        """Renewals that keep the budget, found by one repair of none; None if it fails."""
        set_renewals(self.state, None, None)
        cost = begin_search(self.flat, self.copies, self.state, self.random, self.budget, may_run, self.copies.possible)
        return Chain(self.state.runs.copy(), self.state.fetches.copy(), cost) if cost < NEVER else None

    def of_plan(self, plan: TransferPlan) -> Chain | None:
        """The renewals of a plan, each fetch where it is first read; None if they exceed the budget."""
        chain = Chain(np.zeros_like(self.state.runs), np.zeros_like(self.state.fetches), NEVER)
        group_of = {v: group for group, values in enumerate(self.members) for v in values}
        unread = set[int]()
        for one in plan.statements:
            if isinstance(one, Fetch):
                unread.add(one.value)
            elif isinstance(one, Compute):
                chain.runs[one.stage, one.operation] = not one.first
                for v in unread.intersection(self.condensed.graph.inputs(one.operation)):
                    unread.remove(v)
                    chain.fetches[one.stage, group_of[v]] = 1
        chain.cost = self._measure(chain)
        return chain if chain.cost < NEVER else None

    def improve(self, chain: Chain, moves: int, temperature: float, may_run: bool = True) -> None:
        """Make moves from a chain's renewals, which become the best that were met."""
        self.load(chain)
        self.go_on(chain, np.array([chain.cost, chain.cost]), moves, temperature, may_run)

    def load(self, chain: Chain) -> None:
        """Let `go_on` begin with a chain's renewals."""
        set_renewals(self.state, chain.runs, chain.fetches)

    def go_on(self, chain: Chain, costs: np.ndarray, moves: int, temperature: float, may_run: bool) -> None:
        """`improve` from where the last moves ended; ``costs`` is the makespan there, and the best."""
        chain.cost = float(
            search(
                self.flat,
                self.copies,
                self.state,
                self.random,
                self.budget,
                may_run,
                self.copies.possible,
                moves,
                temperature,
                costs,
                chain.runs,
                chain.fetches,
            )
        )

    def plan(self, chain: Chain) -> TransferPlan:
        """The plan of a chain."""
        self._measure(chain)
        state, events = self.state, list[Event]()
        for i in range(int(state.numbers[LENGTH])):
            t, k = int(state.stage[i]), int(state.operation[i])
            version = int(state.head[i])
            while version >= 0:
                events += [("fetch", t, v) for v in self.members[state.group[version]]]
                version = int(state.link[version])
            events += self._sends(int(state.send_before[i]), t)
            events.append(("compute", t, k))
            events += self._sends(int(state.send_head[i]), t)
        return TransferPlan.from_events(self.condensed.graph, self.transfers, events, self.budget)

    def _sends(self, group: int, stage: int) -> Iterator[Event]:
        while group >= 0:
            yield from (("send", stage, v) for v in self.members[group])
            group = int(self.state.send_link[group])

    def _measure(self, chain: Chain) -> float:
        self.load(chain)
        return float(measure(self.flat, self.copies, self.state, self.budget))
