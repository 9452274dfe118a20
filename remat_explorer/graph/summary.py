"""What a training graph holds, in a few numbers: how much computes, how much is there to save, what always stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.graph.parts import Contents
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes


@dataclass(frozen=True)
class Summary:
    """Counts and sums over a graph. Sums say how much there is, not how much is held at once: that is the peak.

    Attributes:
        name: of the graph.
        forward, backward: operations in each pass, optional ones included.
        values: storages that operations write, in any implementation.
        resident_bytes: parameters, inputs and buffers, there before the first operation. A graph does not tell them
            apart.
        feature_bytes: forward values of default implementations that may be freed and computed again, Checkmate's
            features (Jain et al., MLSys 2020, Figure 3).
        gradient_bytes: backward values that stay to the end, the gradients of the parameters.
        kept_bytes: forward values that stay to the end: the loss, and new contents of buffers.
        workspace_bytes: the largest workspace of an operation's default implementation.
        peak: bytes that checkpoint-all needs, everything included: each operation once, each value freed after its
            last use, or overwritten by it.
        cost: of running every operation once.
        unit: of costs, as `cost_unit` has it.
    """

    name: str
    forward: int
    backward: int
    values: int
    resident_bytes: int
    feature_bytes: int
    gradient_bytes: int
    kept_bytes: int
    workspace_bytes: int
    peak: int
    cost: float
    unit: str

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{one_line(self.name)}: {self.forward + self.backward} operations ({self.forward} forward, "
                f"{self.backward} backward), {self.values} values",
                f"checkpoint-all needs {format_bytes(self.peak)} and costs {self.cost:.6g}{self.unit}",
                f"resident (parameters, inputs, buffers) {format_bytes(self.resident_bytes)}, "
                f"features {format_bytes(self.feature_bytes)}, "
                f"parameter gradients {format_bytes(self.gradient_bytes)}, "
                f"largest workspace {format_bytes(self.workspace_bytes)}",
            ]
        )


def summary_of(graph: Contents) -> Summary:
    """See `Graph.summary`."""
    sizes, persistent = graph.value_bytes, graph.persistent
    backward = graph.is_backward[graph.producer]
    written = np.zeros(len(graph.values), dtype=bool)  # by plain execution
    for node in graph.operations:
        written[list(() if node.optional else node.default.outputs)] = True
    return Summary(
        graph.name,
        int((~graph.is_backward).sum()),
        int(graph.is_backward.sum()),
        len(graph.values),
        graph.resident_bytes,
        int(sizes[~backward & ~persistent & written].sum()),
        int(sizes[backward & persistent].sum()),
        int(sizes[~backward & persistent].sum()),
        max(node.default.workspace for node in graph.operations if not node.optional),
        _peak(graph),
        graph.total_cost,
        cost_unit(graph),
    )


@memoize_by_identity
def cost_unit(graph: Contents) -> str:
    """What follows a cost of a graph in text: " s", or nothing where costs are the whole units of a teaching graph.

    >>> from remat_explorer.instances import linear
    >>> cost_unit(linear(3))
    ''
    """
    costs = graph.costs
    return "" if (costs == costs.round()).all() and (costs > 0).any() else " s"


def _peak(graph: Contents) -> int:
    """Highest memory when each default implementation runs once.

    The plan's timeline gives the same number, but plans are made from graphs and so must not be known here.
    """
    n = len(graph.operations)
    change = np.zeros(n + 1, dtype=np.int64)  # change[k]: bytes that appear with k less those freed before it
    last_use: dict[int, int] = {}
    for k, node in enumerate(graph.operations):
        if node.optional:
            continue
        last_use |= dict.fromkeys((*node.default.inputs, *node.default.outputs), k)
        change[k] += graph.value_bytes[list(node.default.outputs)].sum()
    for v, k in last_use.items():
        if not graph.persistent[v]:
            change[k + 1] -= graph.value_bytes[v]
    extra = np.array([0 if node.optional else node.default.workspace for node in graph.operations])
    for k, node in enumerate(graph.operations):
        if not node.optional and node.default.overwrites is not None and last_use[node.default.overwrites] == k:
            extra[k] -= graph.values[node.default.overwrites].bytes
    return graph.resident_bytes + int((change[:-1].cumsum() + extra).max())
