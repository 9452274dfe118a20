"""A graph at other batch sizes: which bytes and costs grow with the batch, and which are there once.

Every number of a graph is taken for a line in the batch, ``fixed + growth * batch``. With graphs of two batch sizes
both terms are measured. With one graph alone a rule tells them apart: values, workspace and costs are proportional to
the batch; resident bytes (parameters) and persistent values (parameter gradients, the loss, new buffer contents) do
not depend on it. The rule is that of Checkmate's section 6.4 (Jain et al., MLSys 2020). It takes inputs of the model,
which are resident, for constant, and gradients of a parameter that are added up for proportional; two graphs tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from remat_explorer.errors import GraphError
from remat_explorer.graph import Graph, Implementation, Operation

ROUNDING = 1e-6  # of a byte: what floating point may add to a whole number


@dataclass(frozen=True, eq=False)
class Lines:
    """``fixed + growth * batch`` for several numbers; both at least 0, float arrays of one shape."""

    fixed: np.ndarray
    growth: np.ndarray

    @staticmethod
    def proportional(numbers: np.ndarray, batch: int) -> Lines:
        """Lines through 0."""
        return Lines(np.zeros(len(numbers)), numbers / batch)

    @staticmethod
    def constant(numbers: np.ndarray) -> Lines:
        """Lines without growth."""
        return Lines(numbers.astype(float), np.zeros(len(numbers)))

    @staticmethod
    def through(small: np.ndarray, large: np.ndarray, batches: tuple[int, int]) -> Lines:
        """Lines through the numbers at two batch sizes.

        Where such a line would fall, or start below 0, it is constant or proportional instead, and exact at the larger
        batch only: nothing may shrink as the batch grows, or no bound would hold for every larger batch.
        """
        growth = np.clip((large - small) / (batches[1] - batches[0]), 0.0, large / batches[1])
        return Lines(large - growth * batches[1], growth)

    def at(self, batch: float) -> np.ndarray:
        """The numbers at a batch size."""
        return self.fixed + self.growth * batch

    def bytes_at(self, batch: int) -> list[int]:
        """The numbers at a batch size, rounded up to whole bytes."""
        return np.ceil(self.at(batch) - ROUNDING).astype(np.int64).tolist()


@dataclass(frozen=True, eq=False)
class BatchScaling:
    """One graph for every batch size.

    Attributes:
        graph: gives everything but bytes and costs.
        resident: the line of its resident bytes, shape (1,).
        values: lines of the values' bytes, shape (values,).
        workspace: lines of workspace, one for each implementation of each operation, in order.
        costs: lines of costs, in the same order.
        measured: whether two graphs told what grows, or the rule did.
    """

    graph: Graph
    resident: Lines
    values: Lines
    workspace: Lines
    costs: Lines
    measured: bool

    @staticmethod
    def by_rule(graph: Graph, batch: int = 1) -> BatchScaling:
        """What grows by the rule, of a graph that was captured at ``batch``."""
        kept = graph.value_bytes * graph.persistent
        values = Lines(kept.astype(float), (graph.value_bytes - kept) / batch)
        workspace, costs = _of_implementations(graph)
        return BatchScaling(
            graph,
            Lines.constant(np.array([graph.resident_bytes])),
            values,
            Lines.proportional(workspace, batch),
            Lines.proportional(costs, batch),
            measured=False,
        )

    @staticmethod
    def measured_from(small: Graph, large: Graph, batches: tuple[int, int]) -> BatchScaling:
        """What grows from graphs of one model at two batch sizes, ascending.

        Raises:
            GraphError: if the graphs differ in more than bytes and costs, naming where.
        """
        _require_same_structure(small, large, batches)
        pairs = [
            (np.array([small.resident_bytes]), np.array([large.resident_bytes])),
            (small.value_bytes, large.value_bytes),
            *zip(_of_implementations(small), _of_implementations(large), strict=True),
        ]
        lines = [Lines.through(first.astype(float), second.astype(float), batches) for first, second in pairs]
        return BatchScaling(large, *lines, measured=True)

    @property
    def proportional(self) -> bool:
        """Whether no value, workspace or cost that grows has a fixed part, so that bounds need no refinement."""
        mixed = (lines.fixed * lines.growth for lines in (self.values, self.workspace, self.costs))
        return not any(bool(product.any()) for product in mixed) and not self.costs.fixed.any()

    def at(self, batch: int) -> Graph:
        """The graph at ``batch``; 0 leaves what does not depend on the batch."""
        graph, sizes = self.graph, self.values.bytes_at(batch)
        workspace, costs = self.workspace.bytes_at(batch), self.costs.at(batch).tolist()
        values = tuple(replace(value, bytes=size) for value, size in zip(graph.values, sizes, strict=True))
        operations: list[Operation] = []
        i = 0
        for node in graph.operations:
            ways = []
            for way in node.implementations:
                ways.append(replace(way, workspace=workspace[i], cost=costs[i]))
                i += 1
            operations.append(replace(node, implementations=tuple(ways)))
        resident = self.resident.bytes_at(batch)[0]
        contents = {"values": values, "operations": tuple(operations), "resident_bytes": resident}
        return replace(graph, **contents, captured_structure=None)


def scale_batch(graph: Graph, factor: int) -> Graph:
    """``graph`` at ``factor`` times its batch size, by the rule: resident bytes and persistent values stay.

    Args:
        graph: the training graph.
        factor: at least 1.

    Raises:
        GraphError: if the factor is below 1.

    >>> from remat_explorer.instances import linear
    >>> [int(scale_batch(linear(4), factor).value_bytes.sum()) for factor in (1, 10)]
    [9, 90]
    """
    if factor < 1:
        raise GraphError(f"a batch cannot be {factor!r} times as large; give a factor of at least 1")
    return BatchScaling.by_rule(graph).at(factor)


def _of_implementations(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Workspace and cost of every implementation of every operation, in order."""
    ways = [way for node in graph.operations for way in node.implementations]
    return np.array([way.workspace for way in ways]), np.array([way.cost for way in ways], dtype=float)


def _places(way: Implementation) -> tuple[object, ...]:
    """What an implementation reads and writes, and where."""
    return way.inputs, way.outputs, way.overwrites, way.in_place


def _require_same_structure(small: Graph, large: Graph, batches: tuple[int, int]) -> None:
    hint = (
        f"graphs at batch {batches[0]} and {batches[1]} must differ in bytes and costs only, to tell what grows with "
        "the batch: capture both at larger batches, or give one graph alone"
    )
    if not 1 <= batches[0] < batches[1]:
        raise GraphError(f"batches {batches!r} are not two ascending batch sizes of at least 1")
    for count, kind in ((small.n - large.n, "operations"), (len(small.values) - len(large.values), "values")):
        if count:
            raise GraphError(f"the graph at batch {batches[0]} has {count:+} {kind} compared with the other; {hint}")
    for one, other in zip(small.operations, large.operations, strict=True):
        same = one.phase == other.phase and len(one.implementations) == len(other.implementations)
        for way, way_too in zip(one.implementations, other.implementations, strict=False):
            same &= _places(way) == _places(way_too)
        if not same:
            raise GraphError(f"operation {one.name!r} differs from {other.name!r}; {hint}")
    for value, value_too in zip(small.values, large.values, strict=True):
        if value.persistent != value_too.persistent:
            raise GraphError(f"value {value.name!r} is persistent at one batch size only; {hint}")
