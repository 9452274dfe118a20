"""The training graph: operations that read and write values.

A *value* is one storage (views fold into it). An *operation* has one or more implementations; each reads some
values, writes some values, costs time and needs workspace while it runs. Checkmate's graphs (Jain et al., MLSys
2020, section 4.1) are the special case of one implementation and one output per operation.

Operations are *mandatory*, and then each has a stage of its own, or *optional*: these only make what some
implementation reads, such as a mask of bits, and a schedule runs them in any stage, several times, or never. Plain
execution runs every mandatory operation once in its default implementation, and no optional one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.capture_options import KINDS, CaptureOptions
from remat_explorer.documents import read_json
from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import GraphError
from remat_explorer.graph.file import dump_graph, parse_graph, save_graph
from remat_explorer.graph.parts import Contents, Operation, Value
from remat_explorer.graph.rules import check_graph
from remat_explorer.graph.summary import Summary, summary_of
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes

if TYPE_CHECKING:
    import networkx


def to_networkx(graph: Contents) -> networkx.DiGraph:
    """See `Graph.to_networkx`. Attributes are plain numbers and words, which every file format of networkx takes."""
    import networkx  # a tenth of a second, which only those who ask for it pay

    view = networkx.DiGraph(name=graph.name, resident_bytes=graph.resident_bytes)
    for k, node in enumerate(graph.operations):
        view.add_node(
            ("operation", k),
            bipartite=0,
            name=node.name,
            phase=node.phase,
            cost=float(node.default.cost),
            workspace=node.default.workspace,
            implementations=len(node.implementations),
        )
    for v, value in enumerate(graph.values):
        phase = graph.operations[int(graph.producer[v])].phase
        view.add_node(
            ("value", v),
            bipartite=1,
            name=value.name,
            phase=phase,
            bytes=value.bytes,
            persistent=value.persistent,
        )
    for k, node in enumerate(graph.operations):
        for way in reversed(node.implementations):  # the default last: its word on a shared edge stands
            default = way is node.default
            view.add_edges_from(((("value", v), ("operation", k)) for v in way.inputs), default=default)
            view.add_edges_from(((("operation", k), ("value", v)) for v in way.outputs), default=default)
    return view


def articulation_points(graph: Contents) -> tuple[int, ...]:
    """See `Graph.articulation_points`."""
    import networkx

    forward = networkx.Graph()
    forward.add_nodes_from(k for k, backward in enumerate(graph.is_backward) if not backward)
    for v, readers in enumerate(graph.readers):
        maker = int(graph.producer[v])
        forward.add_edges_from((maker, reader) for reader in readers if maker in forward and reader in forward)
    return tuple(sorted(networkx.articulation_points(forward)))


@dataclass(frozen=True)
class Graph:
    """Operations in topological order, the values between them, and the bytes that are always there.

    ``options`` tell how a captured graph was made; its schedules run on a model that is captured the same way.
    ``captured_structure`` is the structure as captured, where a profile found other storages. ``example`` is the step
    that it was captured from, where each call is an operation; no file has it.

    Raises:
        GraphError: if a value has no producer or several, is read before it can be produced (a cycle), or a size or
            cost is negative; the message names the operation or value.

    >>> from remat_explorer.graph import operation
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
    captured_structure: str | None = None
    example: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_arguments(Graph.__init__, vars(self), but=("name", "resident_bytes"))
        check_graph(self)

    def __repr__(self) -> str:
        resident = format_bytes(self.resident_bytes)
        return f"Graph({self.name!r}, {self.n:,} operations, {len(self.values):,} values, {resident} resident)"

    @property
    def n(self) -> int:
        """Number of operations; where none is optional, the number of stages, too."""
        return len(self.operations)

    @cached_property
    def mandatory(self) -> np.ndarray:
        """m: the operation that stage t runs for the first time, ascending, int of shape (stages,).

        >>> from remat_explorer.instances import linear
        >>> linear(1).mandatory.tolist()
        [0, 1, 2]
        """
        return np.array([k for k, node in enumerate(self.operations) if not node.optional], dtype=np.int64)

    @property
    def stages(self) -> int:
        """T: number of stages of a frontier-advancing schedule."""
        return len(self.mandatory)

    @cached_property
    def first_stage(self) -> np.ndarray:
        """The first stage in which each operation may run, int of shape (n,); for a mandatory one it is its own."""
        return np.searchsorted(self.mandatory, np.arange(self.n))

    def inputs(self, k: int, code: int = 1) -> tuple[int, ...]:
        """Value ids that implementation ``code`` (1 is the default) of operation ``k`` reads."""
        return self.operations[k].implementations[code - 1].inputs

    def outputs(self, k: int, code: int = 1) -> tuple[int, ...]:
        """Value ids that implementation ``code`` of operation ``k`` writes."""
        return self.operations[k].implementations[code - 1].outputs

    def heir(self, k: int, code: int = 1) -> int | None:
        """The output of implementation ``code`` of operation ``k`` that takes over the storage of what it overwrites.

        It is the first output with as many bytes, one that need not persist before one that must.
        """
        way = self.operations[k].implementations[code - 1]
        if way.overwrites is None:
            return None
        fitting = [v for v in way.outputs if self.values[v].bytes == self.values[way.overwrites].bytes]
        return min(fitting, key=lambda v: self.values[v].persistent, default=None)

    @cached_property
    def runs_in_place(self) -> bool:
        """Whether some implementation may run in place only."""
        return any(way.in_place for node in self.operations for way in node.implementations)

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
        """Whether any operation has more than one implementation, or need not run at all."""
        return any(len(node.implementations) > 1 or node.optional for node in self.operations)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that implementations are of: those that capture knows in the order of `KINDS`, then any others.

        >>> from remat_explorer.instances import linear
        >>> linear(2).kinds
        ()
        """
        kinds = {kind for node in self.operations for way in node.implementations for kind in way.kinds}
        return (*(kind for kind in KINDS if kind in kinds), *sorted(kinds.difference(KINDS)))

    @cached_property
    def total_cost(self) -> float:
        """Cost of running every mandatory operation once, in its default implementation: what checkpoint-all costs."""
        return float(self.costs[self.mandatory].sum())

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of the graph's canonical file, for matching solutions to graphs."""
        return hashlib.sha256(dump_graph(self).encode()).hexdigest()

    @cached_property
    def structure(self) -> str:
        """Fingerprint of what a schedule needs, as captured: all but the graph's name, costs, workspace and kinds."""
        if self.captured_structure is not None:
            return self.captured_structure
        ways: dict[str, Any] = {"cost": 0.0, "workspace": 0, "kinds": ()}
        operations = tuple(
            replace(node, implementations=tuple(replace(way, **ways) for way in node.implementations))
            for node in self.operations
        )
        bare = replace(self, name="", operations=operations, options=None)
        return hashlib.sha256(dump_graph(bare).encode()).hexdigest()

    def summary(self) -> Summary:
        """Counts, bytes and cost of the graph, and the peak of keeping everything; printed, three lines.

        >>> from remat_explorer.instances import linear
        >>> linear(8).summary().peak
        10
        """
        return summary_of(self)

    def to_networkx(self) -> networkx.DiGraph:
        """The graph as a bipartite `networkx.DiGraph`, from operations to the values they write and to their readers.

        Nodes are ``("operation", k)`` with name, phase, cost, workspace (of the default implementation) and the number
        of implementations, and ``("value", v)`` with name, phase (its producer's), bytes and persistent;
        ``bipartite`` is 0 for operations and 1 for values. An edge's ``default`` says whether the default
        implementation reads or writes that value; the view itself has the graph's name and resident_bytes.

        >>> from remat_explorer.instances import linear
        >>> view = linear(2).to_networkx()
        >>> view.nodes["value", 1]["bytes"], sorted(view.successors(("value", 1)))
        (1, [('operation', 2), ('operation', 3)])
        """
        return to_networkx(self)

    def articulation_points(self) -> tuple[int, ...]:
        """Numbers, ascending, of the forward operations whose removal cuts the undirected forward graph apart.

        They are where sqrt(n) and greedy checkpointing cut a graph that is no chain (Checkmate, Jain et al., MLSys
        2020, appendix B). Two forward operations are neighbours if one reads what the other writes.

        >>> from remat_explorer.instances import linear
        >>> linear(5).articulation_points()
        (1, 2, 3)
        """
        return articulation_points(self)

    def save(self, path: str | Path) -> None:
        """Write the graph file, version 1."""
        require_arguments(Graph.save, locals())
        save_graph(self, path)

    @staticmethod
    def load(path: str | Path) -> Graph:
        """Read a graph file, version 1.

        Raises:
            GraphError: if the file is not a graph; the offending entry is quoted.
        """
        require_arguments(Graph.load, locals())
        document = read_json(path, GraphError)
        try:
            return Graph.from_document(document)
        except GraphError as error:
            raise GraphError(f"{one_line(str(path))}: {error}") from None

    @staticmethod
    def from_document(document: Any) -> Graph:
        """The graph of a parsed graph file.

        Raises:
            GraphError: naming what is missing, unknown or impossible, with the entry quoted.

        >>> import json
        >>> from remat_explorer.instances import linear
        >>> Graph.from_document(json.loads(dump_graph(linear(2)))) == linear(2)
        True
        """
        return Graph(*parse_graph(document))

    def names(self, values: Sequence[int]) -> str:
        """Names of values, for messages."""
        require_arguments(Graph.names, locals())
        return ", ".join(repr(self.values[v].name) for v in values)
