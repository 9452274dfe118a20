"""Small graphs with known optima, for teaching and for tests."""

from __future__ import annotations

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import GraphError, shown
from remat_explorer.graph import Graph, Value, operation

MOST_LAYERS = 100_000  # of a chain, which takes some seconds to be made


def linear(layers: int) -> Graph:
    """The chain of Checkmate's section 4.6: ``layers`` unit operations, a loss, and their gradients.

    Every cost and every size is 1; the graph has 2 layers + 1 operations. Gradient i reads the activation of its
    layer and the gradient before it.

    Raises:
        GraphError: if ``layers`` is below 1 or above `MOST_LAYERS`.

    >>> chain = linear(8)
    >>> chain.n, chain.inputs(9), chain.inputs(16)
    (17, (7, 8), (0, 15))
    """
    require_arguments(linear, locals())
    if layers < 1:
        raise GraphError(f"a chain of {shown(layers)} layers has no operations; give at least 1")
    if layers > MOST_LAYERS:
        raise GraphError(f"a chain of {shown(layers)} layers is too long; give at most {MOST_LAYERS}")
    layers = int(layers)  # those of NumPy, too
    n = 2 * layers + 1
    reads: list[list[int]] = [[k - 1] if k else [] for k in range(layers + 1)]
    reads += [[2 * layers - k, k - 1] for k in range(layers + 1, n)]
    return Graph(
        f"linear{layers}",
        tuple(Value(f"v{k}", 1) for k in range(n)),
        tuple(operation(f"v{k}", "forward" if k < layers else "backward", reads[k], [k], 1) for k in range(n)),
    )
