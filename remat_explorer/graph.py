"""The training graph: operations that read and write values.

A *value* is one storage (views fold into it). An *operation* has one or more implementations; each reads some
values, writes some values, costs time and needs workspace while it runs. Checkmate's graphs (Jain et al., MLSys
2020, section 4.1) are the special case of one implementation and one output per operation.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import GraphError

Phase = Literal["forward", "backward"]
MOST_IMPLEMENTATIONS = 9  # one digit per operation in the solution file


@dataclass(frozen=True)
class Value:
    """One storage: its bytes, and whether it stays from its first computation to the end."""

    name: str
    bytes: int
    persistent: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.bytes, bool) or not isinstance(self.bytes, int) or self.bytes < 0:
            raise GraphError(f"value {self.name!r} has bytes {self.bytes!r}; expected an integer of at least 0")


@dataclass(frozen=True)
class Implementation:
    """One way to run an operation: value ids read and written, cost (seconds or FLOPs), workspace bytes."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    cost: float
    workspace: int = 0
    name: str = "default"


@dataclass(frozen=True)
class Operation:
    """A node of the training graph, in the forward or the backward pass."""

    name: str
    phase: Phase
    implementations: tuple[Implementation, ...]

    @property
    def default(self) -> Implementation:
        """The first implementation: the one that plain execution uses."""
        return self.implementations[0]


def operation(
    name: str, phase: Phase, inputs: Iterable[int], outputs: Iterable[int], cost: float, workspace: int = 0
) -> Operation:
    """An operation with a single implementation."""
    return Operation(name, phase, (Implementation(tuple(inputs), tuple(outputs), cost, workspace),))


@dataclass(frozen=True)
class Graph:
    """Operations in topological order, the values between them, and the bytes that are always there.

    ``options`` tell how a captured graph was made; its schedules run on a model that is captured the same way.

    Raises:
        GraphError: if a value has no producer or several, is read before it can be produced (a cycle), or a size or
            cost is negative; the message names the operation or value.

    >>> graph = Graph("pair", (Value("x", 4), Value("y", 8)),
    ...               (operation("f", "forward", [], [0], 1.0), operation("g", "forward", [0], [1], 2.0)))
    >>> graph.n, graph.inputs(1), graph.readers[0], graph.total_cost
    (2, (0,), (1,), 3.0)
    """

    name: str
    values: tuple[Value, ...]
    operations: tuple[Operation, ...]
    resident_bytes: int = 0
    options: CaptureOptions | None = None

    def __post_init__(self) -> None:
        if isinstance(self.resident_bytes, bool) or not isinstance(self.resident_bytes, int) or self.resident_bytes < 0:
            raise GraphError(f"resident_bytes is {self.resident_bytes!r}; expected an integer of at least 0")
        if not self.operations:
            raise GraphError(f"graph {self.name!r} has no operations")
        for k, node in enumerate(self.operations):
            self._check_operation(k, node)
        self._check_values()

    def _check_operation(self, k: int, node: Operation) -> None:
        if node.phase not in ("forward", "backward"):
            raise GraphError(f"operation {node.name!r} has phase {node.phase!r}; expected 'forward' or 'backward'")
        if not 1 <= len(node.implementations) <= MOST_IMPLEMENTATIONS:
            raise GraphError(
                f"operation {node.name!r} has {len(node.implementations)} implementations; expected 1 to 9"
            )
        for way in node.implementations:
            if not math.isfinite(way.cost) or way.cost < 0:
                raise GraphError(f"operation {node.name!r} has cost {way.cost!r}; expected a number of at least 0")
            if isinstance(way.workspace, bool) or not isinstance(way.workspace, int) or way.workspace < 0:
                raise GraphError(
                    f"operation {node.name!r} has workspace {way.workspace!r}; expected bytes of at least 0"
                )
            for v in (*way.inputs, *way.outputs):
                if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < len(self.values):
                    raise GraphError(f"operation {node.name!r} names value {v!r}; ids are 0 to {len(self.values) - 1}")
            if len(set(way.inputs)) < len(way.inputs) or len(set(way.outputs)) < len(way.outputs):
                raise GraphError(f"operation {node.name!r} lists a value twice: {way.inputs} -> {way.outputs}")

    def _check_values(self) -> None:
        producer: dict[int, int] = {}
        for k, node in enumerate(self.operations):
            for v in {v for way in node.implementations for v in way.outputs}:
                if v in producer:
                    first = self.operations[producer[v]].name
                    raise GraphError(f"value {self.values[v].name!r} is produced by {first!r} and by {node.name!r}")
                producer[v] = k
        for v, value in enumerate(self.values):
            if v not in producer:
                raise GraphError(f"value {value.name!r} is produced by no operation")
        for k, node in enumerate(self.operations):
            for v in {v for way in node.implementations for v in way.inputs}:
                if producer[v] >= k:
                    late = self.operations[producer[v]].name
                    raise GraphError(
                        f"operation {node.name!r} (number {k}) reads {self.values[v].name!r}, which {late!r} "
                        f"(number {producer[v]}) produces: a cycle, or operations that are not in topological order"
                    )

    @property
    def n(self) -> int:
        """Number of operations, which is also the number of stages."""
        return len(self.operations)

    def inputs(self, k: int, code: int = 1) -> tuple[int, ...]:
        """Value ids that implementation ``code`` (1 is the default) of operation ``k`` reads."""
        return self.operations[k].implementations[code - 1].inputs

    def outputs(self, k: int, code: int = 1) -> tuple[int, ...]:
        """Value ids that implementation ``code`` of operation ``k`` writes."""
        return self.operations[k].implementations[code - 1].outputs

    @cached_property
    def value_bytes(self) -> np.ndarray:
        """M: bytes of each value, int64 of shape (values,)."""
        return np.array([value.bytes for value in self.values], dtype=np.int64)

    @cached_property
    def persistent(self) -> np.ndarray:
        """Which values stay once computed, bool of shape (values,)."""
        return np.array([value.persistent for value in self.values], dtype=bool)

    @cached_property
    def producer(self) -> np.ndarray:
        """The operation that writes each value, int of shape (values,)."""
        producer = np.empty(len(self.values), dtype=np.int64)
        for k, node in enumerate(self.operations):
            for way in node.implementations:
                producer[list(way.outputs)] = k
        return producer

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each value the operations, ascending, that read it in any implementation."""
        readers: list[set[int]] = [set() for _ in self.values]
        for k, node in enumerate(self.operations):
            for way in node.implementations:
                for v in way.inputs:
                    readers[v].add(k)
        return tuple(tuple(sorted(r)) for r in readers)

    @cached_property
    def costs(self) -> np.ndarray:
        """C: cost of each operation's default implementation, float of shape (n,)."""
        return np.array([node.default.cost for node in self.operations], dtype=float)

    @cached_property
    def is_backward(self) -> np.ndarray:
        """Which operations belong to the backward pass, bool of shape (n,)."""
        return np.array([node.phase == "backward" for node in self.operations])

    @cached_property
    def has_choices(self) -> bool:
        """Whether any operation has more than one implementation."""
        return any(len(node.implementations) > 1 for node in self.operations)

    @cached_property
    def total_cost(self) -> float:
        """Cost of running every operation once: what checkpoint-all costs."""
        return float(self.costs.sum())

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of the graph's canonical file, for matching solutions to graphs."""
        from remat_explorer.graph_file import dump_graph

        return hashlib.sha256(dump_graph(self).encode()).hexdigest()

    def save(self, path: str) -> None:
        """Write the graph file, version 1."""
        from remat_explorer.graph_file import save_graph

        save_graph(self, path)

    @staticmethod
    def load(path: str) -> Graph:
        """Read a graph file, version 1.

        Raises:
            GraphError: if the file is not a graph; the offending entry is quoted.
        """
        from remat_explorer.graph_file import load_graph

        return load_graph(path)

    def names(self, values: Sequence[int]) -> str:
        """Names of values, for messages."""
        return ", ".join(repr(self.values[v].name) for v in values)
