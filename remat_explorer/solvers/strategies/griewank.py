"""Griewank and Walther's REVOLVE on chains: the fewest recomputed forward steps for a number of slots.

The states of a chain are the network's input and what each forward operation writes; reversing a step means running the
backward operations that read the state it starts from. The input takes one slot, as in the source, though here it is
among the resident bytes. The forward operations of a schedule for c slots run t(l, c) times in all, l being their
number plus one; less often where no backward operation reads some of the states.

All states count the same, whatever their bytes, and all steps, whatever they cost; among choices that take equally
many steps the smaller state is stored. So the method is aware neither of costs nor of memory (Table 1), and its
schedules for c = 1, 2, ... slots are simply tried.

Source: Griewank and Walther, Algorithm 799: revolve (ACM Transactions on Mathematical Software 26, 2000).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.binomial import binomial_schedule
from remat_explorer.solvers.heuristics.chain import require_chain
from remat_explorer.solvers.heuristics.segmentation import MOST_SETTINGS, whole_number, within_budget
from remat_explorer.solvers.method import Candidate, Knob, Method, Support


def griewank(graph: Graph, slots: float | None = None) -> Iterator[Candidate]:
    """Optimal binomial schedules, from many slots to one.

    Args:
        graph: a chain.
        slots: number of states that are stored at a time, the network's input among them; None for every number, or 40
            of them in about equal ratios.

    Raises:
        SolverError: if the graph is no chain, or ``slots`` is no integer of at least 1.

    >>> from remat_explorer.instances import linear
    >>> [(found.label, found.schedule.cost) for found in griewank(linear(4))]
    [('4 slots', 9.0), ('3 slots', 10.0), ('2 slots', 11.0), ('1 slot', 15.0)]
    """
    numbers = slot_numbers(graph)[::-1]
    if slots is not None:
        numbers = [min(whole_number("slots", slots, 1, "states"), numbers[0])]
    for number in numbers:
        yield Candidate(binomial_schedule(graph, number), f"{number} slot{'s' if number > 1 else ''}")


def slot_numbers(graph: Graph) -> list[int]:
    """Numbers of slots that are tried, ascending: with the last of them nothing is recomputed.

    Raises:
        SolverError: if the graph is no chain.

    >>> from remat_explorer.instances import linear
    >>> slot_numbers(linear(4))
    [1, 2, 3, 4]
    """
    most = max(1, len(require_chain(graph, "linearized-sqrt-n or linearized-greedy instead")))
    if most <= MOST_SETTINGS:
        return list(range(1, most + 1))
    return sorted(set(map(int, np.geomspace(1, most, MOST_SETTINGS).round())))


METHOD = Method(
    within_budget(griewank),
    "REVOLVE: on a chain, the fewest recomputed layers for a number of slots",
    "Griewank and Walther 2000",
    general_graphs=Support.NO,
    cost_aware=Support.NO,
    memory_aware=Support.NO,
    knob=Knob("slots", "states stored at a time, the network's input among them", slot_numbers),
    candidates=griewank,
    symbol="triangle-left",
)
