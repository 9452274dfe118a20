"""The bytes below which no schedule fits, as far as each operation by itself tells; no search is needed."""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.solvers.condensed import Condensed


def largest_operation(graph: Graph) -> tuple[int, int]:
    """The operation that needs the most memory for itself, and its bytes: no schedule with stages needs less.

    >>> from remat_explorer.instances import linear
    >>> largest_operation(linear(8))
    (9, 3)
    """
    needed = Condensed.of(graph).operation_bytes
    k = int(needed.argmax())
    return k, int(needed[k])


def smallest_budget_with_stages(graph: Graph) -> int:
    """Bytes below which no schedule with stages fits; resident bytes where operations have several implementations.

    >>> from remat_explorer.instances import linear
    >>> smallest_budget_with_stages(linear(8))
    3
    """
    return graph.resident_bytes if graph.has_choices else largest_operation(graph)[1]


def smallest_budget_without_stages(graph: Graph) -> int:
    """The same without stages: the persistent outputs of earlier operations may still be to come, and do not count.

    >>> from remat_explorer.instances import linear
    >>> smallest_budget_without_stages(linear(8))
    3
    """
    if graph.has_choices:
        return graph.resident_bytes
    condensed = Condensed.of(graph)
    return int((condensed.operation_bytes - condensed.base).max()) + graph.resident_bytes
