"""Graphs in which every operation has one implementation, made from a graph with choices, and their schedules.

Checkmate has no choices: MONeT's evaluation times its schedules in two ways (Shah et al., ICLR 2021, section 5).
*Checkmate-D* runs default convolution algorithms, *Checkmate-O* the fastest ones, put in afterwards. Here each is a
graph of its own: of `default_selection`, and of `fastest_selection`, which has for each operation the fastest
implementation that reads and writes the same, and is solved with its costs and workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.monet.codes import Codes
from remat_explorer.solvers.monet.in_place import elsewhere


@dataclass(frozen=True, eq=False)
class Selection:
    """A graph without choices, and what its operations are in the graph that it was made of.

    Its implementations may run anywhere: where one of them may run in place only, `lift` puts another in its place.

    Attributes:
        graph: one implementation per operation, none optional.
        origin: the graph with choices.
        operations: for each operation of ``graph`` its number in ``origin``.
        codes: for each operation of ``graph`` the number, from 1, of its implementation in ``origin``.
    """

    graph: Graph
    origin: Graph
    operations: tuple[int, ...]
    codes: tuple[int, ...]

    def lift(self, schedule: Schedule, codes: Codes | None = None) -> Schedule:
        """The same runs on the graph with choices.

        The stage of an operation that is optional there becomes part of the next stage; operations that run in both
        run once, in ascending order, so memory may differ from that of ``schedule``. Where an implementation runs that
        may do so in place only, and its input lives on, another one takes its place.

        Args:
            schedule: of ``graph``.
            codes: the implementations of the graph with choices that may be chosen; all if None.
        """
        R = np.zeros((self.origin.stages, self.origin.n), dtype=np.int64)
        stages = self.origin.first_stage[list(self.operations)]
        for t, i, _ in schedule.sequence:
            R[stages[t], self.operations[i]] = self.codes[i]
        S = np.zeros((len(R), len(self.origin.values)), dtype=bool)
        return elsewhere(Schedule(self.origin, R, S), codes).compact()

    def lower(self, schedule: Schedule) -> Schedule:
        """The runs of a schedule of the graph with choices, here in the implementations of this selection.

        Optional operations run in their own stages alone. The schedule need not be executable: these implementations
        may read what the others did not.
        """
        ours = np.array([i for i, k in enumerate(self.operations) if not self.origin.operations[k].optional])
        theirs = np.array(self.operations)[ours]
        R = np.eye(self.graph.n, dtype=np.int64)
        R[np.ix_(ours, ours)] = schedule.R[np.ix_(self.origin.first_stage[theirs], theirs)] > 0
        return Schedule(self.graph, R, np.zeros((self.graph.n, len(self.graph.values)), dtype=bool)).compact()


def restricted_to(graph: Graph, choice: Mapping[int, int]) -> Selection:
    """The graph with one implementation per operation, and the optional operations that these need.

    Args:
        graph: the training graph.
        choice: numbers, from 1, of implementations by operation; the default's where there is none.

    Raises:
        SolverError: if an operation has no such implementation, or a chosen one reads what no chosen one writes.

    >>> from remat_explorer.instances import linear
    >>> restricted_to(linear(2), {}).graph == linear(2)
    True
    """
    codes = {}
    for k, node in enumerate(graph.operations):
        codes[k] = choice.get(k, 1)
        if not 1 <= codes[k] <= len(node.implementations):
            raise SolverError(
                f"operation {node.name!r} has no implementation {codes[k]!r}; they are 1 to {len(node.implementations)}"
            )
    chosen = {k: node.implementations[codes[k] - 1] for k, node in enumerate(graph.operations)}
    needed: set[int] = set()
    kept: list[int] = []
    for k in range(graph.n - 1, -1, -1):
        if not graph.operations[k].optional or not needed.isdisjoint(chosen[k].outputs):
            kept.insert(0, k)
            needed.update(chosen[k].inputs)
    written = sorted({v for k in kept for v in chosen[k].outputs})
    number = {v: i for i, v in enumerate(written)}
    operations = []
    for k in kept:
        node, way = graph.operations[k], chosen[k]
        for v in way.inputs:
            if v not in number:
                raise SolverError(
                    f"implementation {way.name!r} of {node.name!r} reads {graph.values[v].name!r}, which the chosen "
                    f"implementation of {graph.operations[int(graph.producer[v])].name!r} does not write"
                )
        operations.append(Operation(node.name, node.phase, (_renumbered(way, number),), details=node.details))
    values: tuple[Value, ...] = tuple(graph.values[v] for v in written)
    plain = Graph(graph.name, values, tuple(operations), graph.resident_bytes, graph.options)
    return Selection(plain, graph, tuple(kept), tuple(codes[k] for k in kept))


def default_selection(graph: Graph) -> Selection:
    """Checkmate-D: the default implementation of every operation.

    >>> from remat_explorer.instances import linear
    >>> default_selection(linear(2)).codes
    (1, 1, 1, 1, 1)
    """
    return restricted_to(graph, {})


def fastest_selection(graph: Graph) -> Selection:
    """Checkmate-O: for every operation the fastest implementation that reads and writes what the default does."""
    choice = {}
    for k, node in enumerate(graph.operations):
        alike = [
            code
            for code, way in enumerate(node.implementations, 1)
            if (set(way.inputs), set(way.outputs)) == (set(node.default.inputs), set(node.default.outputs))
            and not way.in_place
        ]
        choice[k] = min(alike, key=lambda code: node.implementations[code - 1].cost)
    return restricted_to(graph, choice)


def consistent(graph: Graph, choice: Mapping[int, int], codes: Codes | None = None) -> dict[int, int]:
    """The choice, changed where it is needed so that what chosen implementations read is written.

    A producer whose chosen implementation does not write what a reader's reads takes its cheapest one that does; if
    none writes everything, or the reader cannot be served, the reader takes its default.

    Args:
        graph: the training graph.
        choice: numbers, from 1, of implementations by operation; the default's where there is none.
        codes: the implementations of each operation that may be chosen, defaults among them; all if None.
    """
    chosen = dict(choice)
    while (
        refused := _settle(graph, chosen, codes)
    ) is not None:  # with their defaults, its readers may read other values
        for u in [u for u in chosen if u > refused]:
            if any(graph.producer[v] == refused for v in graph.operations[u].implementations[chosen[u] - 1].inputs):
                del chosen[u]
        chosen.pop(refused, None)
    return chosen


def _settle(graph: Graph, chosen: dict[int, int], codes: Codes | None) -> int | None:
    """Change producers so that they write what is read; the operation none of whose implementations does, or None."""
    needed: set[int] = set()
    readers: dict[int, list[int]] = {}
    for k in range(graph.n - 1, -1, -1):
        node = graph.operations[k]
        ways = node.implementations
        reads = {v for way in ways for v in way.outputs if v in needed}
        if node.optional:
            if reads:
                chosen.setdefault(k, 1)
            if k not in chosen:
                continue
        elif not reads.issubset(ways[chosen.get(k, 1) - 1].outputs):
            able = [code for code, way in enumerate(ways, 1) if reads.issubset(way.outputs)]
            able = able if codes is None else [code for code in able if code in codes[k]]
            if able:
                chosen[k] = min(able, key=lambda code: (ways[code - 1].cost, code))
            elif k in chosen or any(u in chosen for v in reads for u in readers[v]):
                return k
        inputs = ways[chosen.get(k, 1) - 1].inputs
        needed.update(inputs)
        for v in inputs:
            readers.setdefault(v, []).append(k)
    return None


def _renumbered(way: Implementation, number: Mapping[int, int]) -> Implementation:
    return replace(
        way,
        inputs=tuple(number[v] for v in way.inputs),
        outputs=tuple(number[v] for v in way.outputs),
        overwrites=None if way.overwrites is None else number[way.overwrites],
        in_place=False,
    )
