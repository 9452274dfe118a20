"""The person's own lines: which operations come from each, and what a schedule keeps and repeats of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.explanations.kept import kept_bytes
from remat_explorer.graph import Graph
from remat_explorer.once import once
from remat_explorer.schedule import Schedule

Line = tuple[str, str]  # path of the file, or "" where it is not known, and "net.py:42"


@dataclass(frozen=True)
class LineUse:
    """What a schedule does with the operations of a line.

    Attributes:
        kept: bytes of their values that the forward pass leaves to the backward pass.
        again: how many of their computations repeat an earlier one.
    """

    kept: int
    again: int


def line_of(graph: Graph, operation: int) -> Line | None:
    """The line that an operation comes from, or None."""
    details = graph.operations[operation].details
    if details is None or not details.line:
        return None
    return (details.source.path if details.source is not None else "", details.line)


@once
def lines_of(graph: Graph) -> dict[Line, int]:
    """The lines of a graph's operations, numbered in the order in which they first come."""
    numbers: dict[Line, int] = {}
    for k in range(graph.n):
        line = line_of(graph, k)
        if line is not None:
            numbers.setdefault(line, len(numbers))
    return numbers


@once
def uses_of_lines(schedule: Schedule) -> tuple[LineUse, ...]:
    """What the schedule does with each line, in the order of `lines_of`.

    >>> from dataclasses import replace
    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.operation_details import Details
    >>> chain = linear(1)
    >>> nodes = tuple(replace(node, details=Details(line="net.py:7")) for node in chain.operations)
    >>> uses_of_lines(Schedule(replace(chain, operations=nodes), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    (LineUse(kept=1, again=0),)
    """
    graph, numbers = schedule.graph, lines_of(schedule.graph)
    kept, again = np.zeros(len(numbers)), np.zeros(len(numbers), dtype=np.int64)
    of_operation, runs = kept_bytes(schedule), schedule.computations.counts(graph.n)
    for k in range(graph.n):
        line = line_of(graph, k)
        if line is not None:
            kept[numbers[line]] += of_operation[k]
            again[numbers[line]] += max(int(runs[k]) - 1, 0)
    return tuple(LineUse(int(size), int(count)) for size, count in zip(kept, again, strict=True))
