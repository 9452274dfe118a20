"""Dynamic Tensor Rematerialization: evict the value that is cheap to compute again, large and long unused.

Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, sections 2 and 4. Operations run in order. Where one
does not fit, the value in memory with the least score is evicted; where an input was evicted, what computes it runs
again first, and so on. The simulation knows what the paper's runtime knows: not what comes, but when the program has
let go of a value. Such a value is evicted at once ("eager eviction"); where it must come back for the sake of another,
it goes again as soon as that one is computed. Persistent values and resident bytes are never evicted.

A heuristic evicts the value with the least h = c / (m s): c is what its recomputation costs, m its bytes, s its
staleness, the time since it was last read or computed. The three differ in c:

* local: the cost of the operation that computes it;
* full: and of all operations of its evicted neighbourhood e*: the evicted values that must come back before it can be
  computed, and those that need it to come back;
* equivalence classes: e* without directions. Evicted values that are connected form a class, kept by union-find, with
  the sum of its costs; a value that comes back takes its cost out of its class, but does not split it.

The run on the whole graph is turned into a schedule:

* Where each stage of the run computes operations in ascending order, each once, the schedule is that run: R is what
  it computes, S what it holds between stages.
* Otherwise no rows of R say it. The schedule is then the one that holds the same values between stages and computes
  as little as that allows: never more than the run does, but in ascending order, which may need more memory. Where it
  needs more than the budget, the strategy has no schedule, although the run itself fitted.

A schedule frees a value after its last use, which the run could not know, so its peak is at most the run's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import BackgroundSweep, Method, Support
from remat_explorer.solvers.methods.two_phase_rounding import retained_values, schedule_of
from remat_explorer.solvers.solver_interface import Answer, Limits


class Neighbours:
    """Which groups of values are computed from which, and the cost of the operation that computes each."""

    def __init__(self, condensed: CondensedGraph) -> None:
        self.parents = [condensed.inputs[k] for k in condensed.producer]
        self.children = [tuple(u for k in readers for u in condensed.outputs[k]) for readers in condensed.readers]
        self.costs = condensed.costs[condensed.producer]


class _Score(Protocol):
    """The numerator of a heuristic, kept up to date by what is told to it."""

    def evicted(self, v: int) -> None:
        """Group v has left memory."""
        ...

    def returned(self, v: int) -> None:
        """Group v, which was evicted, is in memory again."""
        ...

    def costs(self, groups: np.ndarray) -> np.ndarray:
        """What the recomputation of each of these groups, which are in memory, would cost."""
        ...


class _LocalCost:
    """The cost of the operation alone."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._costs = neighbours.costs

    def evicted(self, v: int) -> None:
        """Nothing changes."""

    def returned(self, v: int) -> None:
        """Nothing changes."""

    def costs(self, groups: np.ndarray) -> np.ndarray:
        """See `_Score.costs`."""
        return self._costs[groups]


class _NeighbourhoodCost:
    """The cost of the operation and of the evicted neighbourhood e*."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._gone = np.zeros(len(neighbours.costs), dtype=bool)
        self._sums: np.ndarray | None = None

    def evicted(self, v: int) -> None:
        """See `_Score.evicted`."""
        self._gone[v], self._sums = True, None

    def returned(self, v: int) -> None:
        """See `_Score.returned`."""
        self._gone[v], self._sums = False, None

    def costs(self, groups: np.ndarray) -> np.ndarray:
        """See `_Score.costs`."""
        if self._sums is None:
            neighbours = self._neighbours
            before = self._reached(neighbours.parents, range(len(self._gone)))
            after = self._reached(neighbours.children, reversed(range(len(self._gone))))
            self._sums = neighbours.costs + (before | after) @ neighbours.costs
        return self._sums[groups]

    def _reached(self, steps, order) -> np.ndarray:
        """Which evicted groups each group reaches over evicted ones, bool of shape (groups, groups)."""
        reached = np.zeros((len(self._gone), len(self._gone)), dtype=bool)
        for v in order:  # groups are numbered in the order in which they are computed
            for u in steps[v]:
                if self._gone[u]:
                    reached[v] |= reached[u]
                    reached[v, u] = True
        return reached


class _ClassCost:
    """The cost of the operation and of the classes of evicted values that are next to it."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._costs = neighbours.costs
        self._beside = [set(a) | set(b) for a, b in zip(neighbours.parents, neighbours.children, strict=True)]
        self._gone: set[int] = set()
        from networkx.utils import UnionFind  # slow to load, and no other strategy needs it

        self._classes = UnionFind()
        self._place = list(range(len(self._costs)))  # a returned value gets a new place, so its class stays whole
        self._sums = dict(enumerate(self._costs.tolist()))
        self._places = len(self._costs)

    def evicted(self, v: int) -> None:
        """Join v and the classes beside it."""
        self._gone.add(v)
        roots = {self._classes[self._place[u]] for u in (v, *(self._beside[v] & self._gone))}
        total = sum(self._sums[root] for root in roots)
        self._classes.union(*(self._place[u] for u in (v, *(self._beside[v] & self._gone))))
        self._sums[self._classes[self._place[v]]] = total

    def returned(self, v: int) -> None:
        """Take the cost of v out of its class; what it connected stays connected."""
        self._gone.discard(v)
        self._sums[self._classes[self._place[v]]] -= float(self._costs[v])
        self._place[v] = self._places
        self._sums[self._places] = float(self._costs[v])
        self._places += 1

    def costs(self, groups: np.ndarray) -> np.ndarray:
        """See `_Score.costs`."""
        costs = np.empty(len(groups))
        for i, v in enumerate(groups.tolist()):
            roots = {self._classes[self._place[u]] for u in self._beside[v] & self._gone}
            costs[i] = self._costs[v] + sum(self._sums[root] for root in roots)
        return costs


HEURISTICS: dict[str, type[_LocalCost] | type[_NeighbourhoodCost] | type[_ClassCost]] = {
    "eq": _ClassCost,
    "full": _NeighbourhoodCost,
    "local": _LocalCost,
}


THRASHING = 20.0  # a run is given up once it costs, or counts, so many times what computing everything once does


@dataclass(frozen=True, eq=False)
class Trace:
    """What was run, stage by stage; stage t ends with the first run of operation t."""

    status: Literal["done", "out of memory", "thrashing", "stopped"]  # "stopped" where the time was up
    runs: tuple[tuple[int, ...], ...]  # for each stage its operations in the order in which they ran
    held: np.ndarray  # which groups are in memory when each stage begins, bool of shape (n, groups)
    evictions: int  # how often memory was short and a value was evicted for it

    @property
    def is_ascending(self) -> bool:
        """Whether each stage runs its operations in ascending order, each once, so that rows of R can say it."""
        return all(a < b for row in self.runs for a, b in pairwise(row))


def simulate(
    condensed: CondensedGraph, budget: int, heuristic: str = "eq", over: Callable[[], bool] = lambda: False
) -> Trace:
    """Run all operations once, and again where that is needed, within ``budget``.

    A group of values is evicted as one.
    """
    return _Simulation(condensed, budget, heuristic).run(over)


class _Simulation:
    """Memory at one moment of a run."""

    def __init__(self, condensed: CondensedGraph, budget: int, heuristic: str) -> None:
        self.condensed, self.budget = condensed, budget
        self.score = HEURISTICS[heuristic](Neighbours(condensed))
        groups = condensed.groups
        self.resident = np.zeros(groups, dtype=bool)
        self.computed = np.zeros(groups, dtype=bool)  # at least once
        self.dropped = np.zeros(groups, dtype=bool)  # by the program: no operation will run for the first time on it
        self.locks = np.zeros(groups, dtype=np.int64)  # operations that wait to read it
        self.accessed = np.zeros(groups)
        self.clock, self.held, self.count, self.evictions = 0.0, 0, 0, 0

    def run(self, over: Callable[[], bool]) -> Trace:
        """All stages."""
        condensed, n = self.condensed, self.condensed.n
        runs: list[tuple[int, ...]] = []
        held = np.zeros((n, condensed.groups), dtype=bool)
        status = "done"
        for t in range(n):
            if over():
                status = "stopped"
                break
            held[t] = self.resident
            row: list[int] = []
            status = self._stage(t, row)
            runs.append(tuple(row))
            if status != "done":
                break
        return Trace(status, tuple(runs), held, self.evictions)

    def _stage(self, t: int, row: list[int]) -> Literal["done", "out of memory", "thrashing"]:
        """Run t for the first time, and before it what it misses; the paper's recursion, on a stack of its own."""
        condensed, most_cost = self.condensed, THRASHING * self.condensed.graph.total_cost
        waiting = [(t, 0)]  # operations, each with the number of inputs that are there and locked
        while waiting:
            k, ready = waiting.pop()
            if ready < len(condensed.inputs[k]):
                v = condensed.inputs[k][ready]
                if self.resident[v]:
                    self.locks[v] += 1
                    waiting.append((k, ready + 1))
                    self._let_go(condensed.outputs[condensed.producer[v]])
                else:
                    waiting += [(k, ready), (int(condensed.producer[v]), 0)]
                continue
            if self.count > THRASHING * condensed.n or self.clock > most_cost:
                return "thrashing"
            if not self._make_room(t, k):
                return "out of memory"
            self._compute(t, k)
            row.append(k)
        return "done"

    def _make_room(self, t: int, k: int) -> bool:
        """Evict until k fits; False if nothing may be evicted any more."""
        condensed = self.condensed
        room = self.budget - int(condensed.base[t] + condensed.output_bytes[k] + condensed.transient[k])
        over = int(condensed.overwritten[k])
        if over >= 0 and self.locks[over] == 1 and (self.dropped[over] or condensed.readers[over][-1] == t == k):
            room += int(condensed.credit[k])  # its storage passes to the output
        while self.held > room:
            candidates = np.flatnonzero(self.resident & (self.locks == 0) & (condensed.bytes > 0))
            if not len(candidates):
                return False
            costs = self.score.costs(candidates)
            weight = condensed.bytes[candidates] * np.maximum(self.clock - self.accessed[candidates], 1e-12)
            self._evict(int(candidates[np.argmin(costs / weight)]))
            self.evictions += 1
        return True

    def _compute(self, t: int, k: int) -> None:
        condensed = self.condensed
        self.count += 1
        self.clock += float(condensed.costs[k])
        for v in condensed.outputs[k]:
            if not self.resident[v]:
                self.resident[v] = True
                self.held += int(condensed.bytes[v])
                if self.computed[v]:
                    self.score.returned(v)
                self.computed[v] = True
            self.accessed[v] = self.clock
        for v in condensed.inputs[k]:
            self.locks[v] -= 1
            self.accessed[v] = self.clock
            if k == t and condensed.readers[v][-1] == t:
                self.dropped[v] = True
        self._let_go(condensed.inputs[k])

    def _let_go(self, groups: tuple[int, ...]) -> None:
        """Eager eviction of those that the program has let go of and nothing waits for."""
        for v in groups:
            if self.resident[v] and self.dropped[v] and not self.locks[v]:
                self._evict(v)

    def _evict(self, v: int) -> None:
        self.resident[v] = False
        self.held -= int(self.condensed.bytes[v])
        self.score.evicted(v)


def solve_dtr(graph: Graph, budget: int, limits: Limits, heuristic: str = "eq") -> Answer:
    """Simulate Dynamic Tensor Rematerialization within the budget.

    ``heuristic`` is "eq" (classes of evicted values, the paper's own choice for its runtime), "full" (the exact evicted
    neighbourhood) or "local" (the operation alone). There is no schedule where the run ends without memory, thrashes,
    or no schedule says it within the budget.
    """
    if not isinstance(heuristic, str) or heuristic not in HEURISTICS:
        names = ", ".join(map(repr, HEURISTICS))
        raise SolverError(f"heuristic is {shown(heuristic)}; 'dtr' knows {names}")
    condensed = CondensedGraph.of(graph)
    trace = simulate(condensed, budget, heuristic, lambda: limits.over)
    if trace.status != "done":
        limits.tell(f"simulated Dynamic Tensor Rematerialization: {trace.status}", lower_bound=graph.total_cost)
        limit = limits.reached if trace.status == "stopped" else f"the simulated run: {trace.status}"
        return Answer(None, graph.total_cost, limit=limit)
    schedule = schedule_of_trace(condensed, trace)
    if Plan.of(schedule).peak > budget:
        limits.tell("the run repeats operations within stages; no schedule that holds the same values fits")
        return Answer(None, graph.total_cost)
    limits.tell("done", schedule, graph.total_cost)
    return Answer(schedule, graph.total_cost)


def schedule_of_trace(condensed: CondensedGraph, trace: Trace) -> Schedule:
    """The schedule of a complete run: the run itself where rows of R can say it, else what it holds between stages."""
    if not trace.is_ascending:
        return schedule_of(condensed, trace.held)
    R = np.zeros((condensed.n, condensed.n), dtype=bool)
    for t, row in enumerate(trace.runs):
        R[t, list(row)] = True
    return Schedule(condensed.graph, R, retained_values(condensed, trace.held))


METHOD = Method(
    solve_dtr,
    "a simulated run that evicts by cost, size and staleness, without knowing what comes next",
    "Kirisame et al. 2021, sections 2 and 4",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("heuristic",),
    background_sweep=BackgroundSweep.SMALL_GRAPHS,
    symbol="octagon",
)
