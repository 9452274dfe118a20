"""REVOLVE on chains: the fewest recomputed forward steps for a number of slots, and a lower bound of that kind.

The states of a chain are the network's input and what each forward operation writes; reversing a step means running the
backward operations that read the state it starts from. The input takes one slot, as in the source, though here it is
among the resident bytes. The forward operations of a schedule for c slots run t(l, c) times in all, l being their
number plus one; less often where no backward operation reads some of the states.

All states count the same, whatever their bytes, and all steps, whatever they cost; among choices that take equally
many steps the smaller state is stored. So the method is aware neither of costs nor of memory (Table 1), and its
schedules for c = 1, 2, ... slots are simply tried.

Which states to store, and when:

There are l steps from state 0 to state l, and c slots for states, of which state 0 takes one. To reverse a step its
first state is needed; going back, from the last step to the first, states that are not stored are computed again from
the stored ones. With beta(c, r) = C(c + r, c), and r the smallest number with l <= beta(c, r), the fewest forward steps
are

    t(l, c) = r l - beta(c + 1, r - 1)                                       (1)

and a state m is an optimal one to store next, in a slot of c - 1, if (both parts then need no more than r repetitions,
and no fewer than they must)

    max(beta(c, r - 2), l - beta(c - 1, r)) <= m <= min(beta(c, r - 1), l - beta(c - 1, r - 1)).      (2)

Source: Griewank and Walther, Algorithm 799: revolve (ACM Transactions on Mathematical Software 26, 2000).

`binomial_bound` is a bound for chains at small budgets, in closed form: how often layers must run again so that a step
can be reversed.

*The chain in a graph.* Forward operations f_0, f_1, ..., where each reads a value of the one before it, and a thread of
backward operations, where each reads a value of the one before it, too. Some of the thread's operations *visit* the
chain: they read values of f_m, each visit of a smaller m than the visit before. Whatever computes the thread's last
operation has, traced back, one run of each of its operations, in order; so the chain is visited in order, however often
gradients are computed again. Only values of f_m that f_{m+1} or a visit reads are looked at: m is *stored* while one of
them is in memory, and f_m is *placed* when it runs while m is not stored, for which m - 1 must be stored.

*Lemma.* Let K positions be visited, at most c >= 1 positions up to m be stored at each visit of m, and let no position
be placed more than r times. Then K <= beta(c, r) - 1, with beta(c, r) = C(c + r, c).

*Proof*, by induction on c and r. A position without a visit is left out first: merged with the one below it, which is
then stored while either is, placed no more often than that was, and visited where that was; position 0 can be left out
without more, since what is above it then needs nothing. For r = 0 nothing is visited. For c = 1, a visit of m finds
nothing stored below m, so position 0 is placed again for each visit: K <= r. Else call i *covered* if, from its first
placing until its visit, a position up to i is stored at all times.

Where no position is covered, the last one is not: at some time before all visits every position was placed and none is
stored. What follows visits all of them, and places each at most r - 1 times: K <= beta(c, r - 1) - 1. Else let i be the
smallest covered position. Positions above i are placed after i was, and visited before i is, so that one of the c is
taken up to i: there are at most beta(c - 1, r) - 1 of them. Position i - 1 is not covered: at some time after its first
placing and before its visit no position below i is stored, though each was placed. What follows visits all of them, and
places each at most r - 1 times: there are at most beta(c, r - 1) - 1. Together with i,
K <= beta(c - 1, r) + beta(c, r - 1) - 1 = beta(c, r) - 1.

*Bound.* Positions that are placed more often than r times can be left out in the same way, so at most beta(c, r) - 1 of
the K positions run r times or fewer. At least K + 1 - beta(c, r) run more often than r times, for every r >= 1, and the
smallest costs of so many are added to what every operation costs once. For unit costs and sizes that is t(l, c) of
REVOLVE with l = K + 1, which its schedules attain.

Source: the recurrence is that of Griewank, Achieving logarithmic growth of temporal and spatial complexity in reverse
automatic differentiation (Optimization Methods and Software 1, 1992), where steps are not stored in between and
gradients never run again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import Candidate, Knob, Method, Support, whole_number, within_budget
from remat_explorer.solvers.methods.chen import MOST_SETTINGS, forward_positions, kept_values, require_chain
from remat_explorer.solvers.methods.static_policy import schedule_of
from remat_explorer.solvers.solver_interface import MOST_COMPUTATIONS


def repetitions(steps: int, slots: int) -> int:
    """r: the smallest number of repetitions with which ``slots`` slots reverse ``steps`` steps."""
    r = 0
    while beta(slots, r) < steps:
        r += 1
    return r


def forward_steps(steps: int, slots: int) -> int:
    """t(l, c) of (1): forward steps that the reversal of ``steps`` steps needs beside the reversed steps' own.

    Args:
        steps: l, at least 1.
        slots: c, at least 1; one is for state 0.

    >>> forward_steps(10, 3), forward_steps(10, 1), forward_steps(10, 10)
    (15, 45, 9)
    """
    r = repetitions(steps, slots)
    return r * steps - (beta(slots + 1, r - 1) if r else 0)


def stored_states(steps: int, slots: int, sizes: Sequence[int] | None = None) -> np.ndarray:
    """Which states an optimal schedule has in its slots while it reverses each step.

    Entry (i, m), bool of shape (l, l), tells whether state m is stored while step i is reversed. Among the choices that
    (2) leaves, which cost the same number of steps, the smallest state by ``sizes`` is stored, and of equally small
    ones the last.

    >>> stored_states(4, 2).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0]]
    """
    stored = np.zeros((steps, steps), dtype=bool)
    stored[:, 0] = True
    parts = [(0, steps, slots)]  # reverse the steps from the first to before the second, whose first state is stored
    while parts:
        first, end, free = parts.pop()
        if end - first == 1 or free == 1:
            continue
        choices = _optimal_splits(end - first, free)
        m = first + min(choices, key=lambda m: (sizes[first + m] if sizes else 0, -m))
        stored[m:end, m] = True
        parts += [(m, end, free - 1), (first, m, free)]
    return stored


def _optimal_splits(steps: int, slots: int) -> range:
    """The states m of (2), for at least 2 steps and 2 slots."""
    r = repetitions(steps, slots)
    least = max(beta(slots, r - 2), steps - beta(slots - 1, r), 1)
    most = min(beta(slots, r - 1), steps - beta(slots - 1, r - 1))
    return range(least, most + 1)


def beta(slots: int, repetitions: int) -> int:
    """beta(c, r) = C(c + r, c): steps that c slots reverse with r repetitions; 0 where r < 0."""
    return math.comb(slots + repetitions, slots) if repetitions >= 0 else 0


def binomial_bound(condensed: CondensedGraph, budget: int) -> float:
    """A cost that no schedule of a chain is below; of other graphs, what every operation costs once.

    That is of everything that computes the graph, gradients computed again and orders of any kind included; infinity
    where a visit exceeds the budget by itself.
    """
    memoize_by_identity = condensed.graph.total_cost
    path, visiting = _visited_chain(condensed)
    if not visiting:
        return memoize_by_identity
    stored = _most_stored(condensed, path, visiting, budget)
    if stored < 1:
        return float("inf")
    costs = np.sort(condensed.costs[[path[m] for m in visiting]]).cumsum()
    bound, r = memoize_by_identity, 1
    while (again := len(visiting) + 1 - beta(stored, r)) > 0:
        bound += float(costs[again - 1])
        r += 1
    return bound


@memoize_by_identity
def _visited_chain(condensed: CondensedGraph) -> tuple[list[int], dict[int, list[int]]]:
    """The chain, and what visits its positions; the same at every budget."""
    path = _path(condensed)
    return path, _visits(condensed, path)


def _path(condensed: CondensedGraph) -> list[int]:
    """f_0, f_1, ... of a chain whose operations pass on what has to be stored; of other graphs nothing."""
    try:
        path = require_chain(condensed.graph, "")
    except SolverError:  # no chain
        return []
    passed = all(path[m - 1] in condensed.producer[list(condensed.inputs[k])] for m, k in enumerate(path) if m)
    return path if passed else []


@dataclass(frozen=True)
class _Thread:
    """A thread of backward operations up to one of them: its visits so far, and which operation came before."""

    visited: int  # number of positions that it visits
    lowest: int  # the last one of them; of none, the length of the path
    visits: int | None = None  # the position that this operation visits, or None
    before: int | None = None


def _visits(condensed: CondensedGraph, path: list[int]) -> dict[int, list[int]]:
    """Visited positions, and the operations that visit each, of a thread with the most positions."""
    position = {k: m for m, k in enumerate(path)}
    threads: dict[int | None, _Thread] = {None: _Thread(0, len(path))}
    for k in range(len(path), condensed.n):
        producers = [int(condensed.producer[v]) for v in condensed.inputs[k]]
        before = max((j for j in producers if j in threads), key=lambda j: threads[j].visited, default=None)
        visited, lowest = threads[before].visited, threads[before].lowest
        visits = max((m for j in producers if (m := position.get(j, lowest + 1)) <= lowest), default=None)
        if visits is None:
            threads[k] = _Thread(visited, lowest, None, before)
        else:
            threads[k] = _Thread(visited + (visits < lowest), visits, visits, before)
    visiting: dict[int, list[int]] = {}
    last = max(threads, key=lambda k: threads[k].visited)
    while last is not None:
        if (m := threads[last].visits) is not None:
            visiting.setdefault(m, []).append(last)
        last = threads[last].before
    return visiting


def _most_stored(condensed: CondensedGraph, path: list[int], visiting: dict[int, list[int]], budget: int) -> int:
    """c: the most positions up to m that can be stored at a visit of m; 0 where a visit exceeds the budget.

    Where several operations visit m, the one that leaves the least room counts.
    """
    used = {*path, *(k for operations in visiting.values() for k in operations)}
    position = {k: m for m, k in enumerate(path)}
    smallest_first = np.sort([_smallest(condensed, k, used) for k in path]).cumsum()

    def stored(m: int, k: int) -> int:
        room = budget - int(condensed.operation_bytes[k])
        read = {i for v in condensed.inputs[k] if (i := position.get(int(condensed.producer[v]), m)) < m}
        others = int(np.searchsorted(smallest_first, room, side="right"))
        return 1 + len(read) + min(others, m - len(read)) if room >= 0 else 0

    least = [min(stored(m, k) for k in operations) for m, operations in visiting.items()]
    return max(least) if all(least) else 0


def _smallest(condensed: CondensedGraph, k: int, used: set[int]) -> int:
    """Bytes of the smallest group of operation k that the path or a visit reads."""
    looked_at = [v for v in condensed.outputs[k] if used.intersection(condensed.readers[v])]
    return min((int(condensed.bytes[v]) for v in looked_at), default=0)


def binomial_schedule(graph: Graph, slots: int) -> Schedule:
    """The schedule of a chain that stores at most ``slots`` states while it reverses a step.

    Beside the slots there are the values of the layer whose backward operations run: they stay until those are done.

    >>> from remat_explorer.instances import linear
    >>> binomial_schedule(linear(8), 3).cost
    22.0
    """
    forward = int((~graph.is_backward).sum())
    sizes = [0] + [int(graph.value_bytes[kept_values(graph, k)].sum()) for k in range(forward)]
    stored = stored_states(forward + 1, slots, sizes)[:, 1:]  # of shape (steps, forward): without the input
    reversing = _first_state_needed(graph, forward)
    of_forward = ~graph.is_backward[graph.producer]
    position = np.where(of_forward, graph.producer, 0)

    def keep(t: int, retained: np.ndarray) -> np.ndarray:
        state = int(reversing[t])
        return of_forward & (stored[state + 1][position] | (position >= state))

    return schedule_of(graph, keep)


def _first_state_needed(graph: Graph, forward: int) -> np.ndarray:
    """For each stage the earliest position that the backward pass has read from, int of shape (n,).

    Stages before the first such operation look ahead to it: what they leave in memory is what it starts from.
    """
    lowest = np.full(graph.n, forward, dtype=np.int64)
    for t in np.flatnonzero(graph.is_backward):
        lowest[t] = min(forward_positions(graph, int(t)), default=forward)
    lowest = np.minimum.accumulate(lowest)
    first = lowest[lowest < forward][:1]
    lowest[lowest == forward] = first[0] if len(first) else forward - 1
    return lowest


def binomial_within(graph: Graph, budget: int, over: Callable[[], bool] = lambda: False) -> Schedule | None:
    """The schedule with the most slots whose plan fits: more slots recompute less and hold more.

    From about log2 of the steps on, with which no step is run often, numbers are doubled until one does not fit; then
    it is bisected. The smallest numbers, whose schedules are very long, are looked at only where nothing else fits, and
    those with more than `MOST_COMPUTATIONS` steps not at all.
    """
    best: Schedule | None = None
    most = int((~graph.is_backward).sum())
    fits = fewest_slots(most) - 1
    exceeds, slots = most + 1, min(max(most.bit_length(), fits + 1), most)
    while exceeds - fits > 1 and not over():
        schedule = binomial_schedule(graph, slots)
        if Plan.of(schedule).peak <= budget:
            best, fits = schedule, slots
        else:
            exceeds = slots
        slots = (fits + exceeds) // 2 if exceeds <= most else min(2 * fits, most)
    return best


def fewest_slots(layers: int) -> int:
    """How many slots a schedule of at most `MOST_COMPUTATIONS` forward steps must have."""
    every = range(1, layers + 1)
    return next((slots for slots in every if forward_steps(layers + 1, slots) <= MOST_COMPUTATIONS), layers + 1)


def griewank(graph: Graph, slots: float | None = None) -> Iterator[Candidate]:
    """Optimal binomial schedules, from many slots to one.

    ``slots`` states are stored at a time, the network's input among them; None tries every number, or 40 of them in
    about equal ratios.
    """
    numbers = slot_numbers(graph)[::-1]
    if slots is not None:
        numbers = [min(whole_number("slots", slots, 1, "states"), numbers[0])]
    for number in numbers:
        yield Candidate(binomial_schedule(graph, number), f"{number} slot{'s' if number > 1 else ''}")


def slot_numbers(graph: Graph) -> list[int]:
    """Numbers of slots that are tried, ascending: with the last of them nothing is recomputed."""
    most = max(1, len(require_chain(graph, "linearized-sqrt-n or linearized-greedy instead")))
    if most <= MOST_SETTINGS:
        return list(range(1, most + 1))
    return sorted(set(map(int, np.geomspace(1, most, MOST_SETTINGS).round())))


METHOD = Method(
    within_budget(griewank),
    "REVOLVE: on a chain, the fewest recomputed layers for a number of values stored at a time (slots)",
    "Griewank and Walther 2000",
    general_graphs=Support.NO,
    cost_aware=Support.NO,
    memory_aware=Support.NO,
    knob=Knob("slots", "states stored at a time, the network's input among them", slot_numbers),
    candidates=griewank,
    symbol="triangle-left",
)
