"""The rules that people type by hand, each with all its settings, as the schedules that PyTorch would run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.graph.operator_words import is_fused_attention, is_product
from remat_explorer.solvers.framework_rules.attention import attention_cores, attention_modules
from remat_explorer.solvers.framework_rules.layers import Layer, layers_of
from remat_explorer.solvers.framework_rules.regions import Region, region_candidates
from remat_explorer.solvers.method import Candidate

Finder = Callable[[Graph, Layer], tuple[tuple[int, ...], ...]]


def layer_counts(graph: Graph) -> tuple[int, ...]:
    """1 to the number of layers: what a sweep tries.

    >>> from remat_explorer.instances import linear
    >>> layer_counts(linear(9))
    (1, 2, 3)
    """
    return tuple(range(1, len(layers_of(graph)) + 1))


def full(graph: Graph) -> Iterator[Candidate]:
    """A checkpoint around every layer.

    >>> from remat_explorer.instances import linear
    >>> [candidate.schedule.cost for candidate in full(linear(9))]
    [19.0, 26.0]
    """
    return region_candidates(graph, [("every layer", [Region(layer.operations) for layer in layers_of(graph)])])


def every_n_layers(graph: Graph, every_n_layers: int | None = None) -> Iterator[Candidate]:
    """A checkpoint around layers 0, n, 2n and so on.

    Raises:
        SolverError: if n is no whole number of layers.

    >>> from remat_explorer.instances import linear
    >>> [candidate.label for candidate in every_n_layers(linear(9))]
    ['nothing recomputed', 'every_n_layers=3', 'every_n_layers=2', 'every_n_layers=1']
    """
    layers = layers_of(graph)
    counts = _counts("every_n_layers", every_n_layers, graph)
    return region_candidates(
        graph, ((f"every_n_layers={n}", [Region(layer.operations) for layer in layers[::n]]) for n in reversed(counts))
    )


def first_layers(graph: Graph, recompute_num_layers: int | None = None) -> Iterator[Candidate]:
    """A checkpoint around each of the first n layers, and none around the others.

    Raises:
        SolverError: if n is no whole number of layers.

    >>> from remat_explorer.instances import linear
    >>> [candidate.schedule.cost for candidate in first_layers(linear(9))]
    [19.0, 21.0, 23.0, 26.0]
    """
    layers = layers_of(graph)
    counts = _counts("recompute_num_layers", recompute_num_layers, graph)
    return region_candidates(
        graph, ((f"recompute_num_layers={n}", [Region(layer.operations) for layer in layers[:n]]) for n in counts)
    )


def around(finder: Finder, label: str) -> Callable[[Graph], Iterator[Candidate]]:
    """The rule with a checkpoint around what a finder finds in every layer.

    >>> from remat_explorer.instances import linear
    >>> [candidate.label for candidate in around(attention_cores, "attention")(linear(4))]  # which has none
    ['nothing recomputed']
    """

    def candidates(graph: Graph) -> Iterator[Candidate]:
        parts = [Region(part) for layer in layers_of(graph) for part in finder(graph, layer)]
        return region_candidates(graph, [(label, parts)])

    return candidates


attention_only = around(attention_modules, "attention of every layer")
attention_core_only = around(attention_cores, "attention core of every layer")


def save_second_matmul(graph: Graph) -> Iterator[Candidate]:
    """A checkpoint around every layer that saves its 1st, 3rd, 5th … product with weights, and fused attention.

    >>> from remat_explorer.instances import linear
    >>> [candidate.label for candidate in save_second_matmul(linear(4))]
    ['nothing recomputed', 'every second product saved']
    """
    regions = []
    for layer in layers_of(graph):
        products = [k for k in layer.operations if is_product(graph.operations[k].name)]
        attention = [k for k in layer.operations if is_fused_attention(graph.operations[k].name)]
        regions.append(Region(layer.operations, frozenset([*products[::2], *attention])))
    return region_candidates(graph, [("every second product saved", regions)])


def _counts(name: str, given: Any, graph: Graph) -> tuple[int, ...]:
    if given is None:
        return layer_counts(graph)
    most = max(1, len(layers_of(graph)))
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most:
        raise SolverError(
            f"{name} is {shown(given)}; expected a whole number from 1 to {most}, the layers that were found"
        )
    return (given,)
