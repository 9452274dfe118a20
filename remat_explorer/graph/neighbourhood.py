"""What an operation is, and where its inputs come from, in numbers that are compared quickly."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from remat_explorer.graph.graph import Graph
from remat_explorer.graph.parts import Operation


class Edge(NamedTuple):
    """An input of an operation: the value, the operation that writes it, and the how manieth of its outputs it is."""

    value: int
    producer: int
    slot: int


class Neighbourhood:
    """The forward pass of a graph as a sequence, and the inputs of all operations.

    ``kinds`` are equal for operations that are alike in all but costs, names and inputs. ``crossing`` counts the values
    that are written before each place and read from it on.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.forward = np.flatnonzero(~graph.is_backward)
        self.place = np.full(graph.n, -1)
        self.place[self.forward] = np.arange(len(self.forward))
        numbers: dict[Hashable, int] = {}
        self.kinds = [numbers.setdefault(_kind(graph, node), len(numbers)) for node in graph.operations]
        slot: dict[int, int] = {}
        for node in graph.operations:
            written = dict.fromkeys(v for way in node.implementations for v in way.outputs)
            slot.update((v, i) for i, v in enumerate(written))
        producer = graph.producer.tolist()
        self.inputs = [
            [Edge(v, producer[v], slot[v]) for way in node.implementations for v in way.inputs]
            for node in graph.operations
        ]
        self.written_at = [k if self.place[k] >= 0 else -1 for k in producer]
        place = self.place.tolist()
        self.forward_readers = [[k for k in readers if place[k] >= 0] for readers in graph.readers]
        self.crossing = self._crossing()

    def names(self, reach: int | None) -> np.ndarray:
        """Numbers of the forward pass: equal for operations of one kind whose inputs come from the same distances.

        Distances above ``reach`` are not told apart: what is far away may be read by all blocks alike; 0 tells kinds
        alone.
        """
        numbers: dict[Hashable, int] = {}
        names = []
        for place, k in enumerate(self.forward.tolist()):
            away = [(place - self.place[edge.producer], edge.slot) for edge in self.inputs[k]] if reach != 0 else []
            told = tuple((int(d), slot) if reach is None or d <= reach else None for d, slot in away)
            names.append(numbers.setdefault((self.kinds[k], told), len(numbers)))
        return np.array(names, dtype=np.int64)

    def stretch(self, place: int, period: int) -> tuple[int, int]:
        """The places around one that are periodic: from the first to behind the last; empty where it is not itself.

        Each of them but the last ``period`` is like the one a period later; these belong to it, too.
        """
        last = len(self.forward) - period
        if place >= last or not self._alike(place, period):
            return place, place
        begin, end = place, place + 1
        while begin > 0 and self._alike(begin - 1, period):
            begin -= 1
        while end < last and self._alike(end, period):
            end += 1
        return begin, end + period

    def _alike(self, place: int, period: int) -> bool:
        """Whether the inputs of a place come from as far away as those a period later, or are the very same values."""
        k, other = int(self.forward[place]), int(self.forward[place + period])
        if self.kinds[k] != self.kinds[other]:
            return False
        return all(
            a.value == b.value or (a.slot == b.slot and self.place[b.producer] - self.place[a.producer] == period)
            for a, b in zip(self.inputs[k], self.inputs[other], strict=True)
        )

    def earlier_starts(self, begin: int, period: int) -> list[int]:
        """Places less than a period before ``begin`` from which on a copy is like the next one, but for its entrance.

        What comes from in front of the copy may come from anywhere there.
        """
        starts, least = [], -1
        for place in range(begin - 1, max(-1, begin - period), -1):
            k, other = int(self.forward[place]), int(self.forward[place + period])
            if self.kinds[k] != self.kinds[other]:
                break
            for a, b in zip(self.inputs[k], self.inputs[other], strict=True):
                here, there = int(self.place[a.producer]), int(self.place[b.producer]) - period
                if a.value != b.value and (a.slot != b.slot or here != there):
                    least = max(least, here, there)  # both have to be in front of the copy
            if place > least:
                starts.append(place)
        return starts

    def _crossing(self) -> np.ndarray:
        change = np.zeros(len(self.forward) + 2, dtype=np.int64)
        for written, readers in zip(self.written_at, self.forward_readers, strict=True):
            if written >= 0 and readers:
                change[self.place[written] + 1] += 1
                change[self.place[readers[-1]] + 1] -= 1
        return change.cumsum()[:-1]


def _kind(graph: Graph, node: Operation) -> Hashable:
    ways = tuple(
        (
            len(way.inputs),
            tuple((graph.values[v].bytes, graph.values[v].persistent) for v in way.outputs),
            way.workspace,
            way.name,
            way.kinds,
            way.tolerance,
            -1 if way.overwrites is None else way.inputs.index(way.overwrites),
        )
        for way in node.implementations
    )
    return node.details.operator if node.details else "", node.phase, node.optional, ways
