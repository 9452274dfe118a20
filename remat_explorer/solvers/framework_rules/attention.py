"""Where a network's attention is: its modules, and the core that multiplies activations by each other."""

from __future__ import annotations

import re

from remat_explorer.graph import Graph
from remat_explorer.graph.operator_words import is_any_product, is_fused_attention, is_softmax
from remat_explorer.solvers.framework_rules.layers import Layer

_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)


def attention_modules(graph: Graph, layer: Layer) -> tuple[tuple[int, ...], ...]:
    """Operations of each attention module within a layer, projections included; the cores where modules are unknown.

    A module is one if the word "attention" or "attn" is in its name, but for norms.

    >>> from remat_explorer.instances import linear
    >>> attention_modules(linear(4), Layer("front", (0, 1)))
    ()
    """
    found: dict[str, list[int]] = {}
    for k in layer.operations:
        details = graph.operations[k].details
        parts = details.module.split(".") if details else []
        named = [i for i, part in enumerate(parts) if _ATTENTION.search(part) and "norm" not in part.lower()]
        if named:
            found.setdefault(".".join(parts[: named[0] + 1]), []).append(k)
    return tuple(map(tuple, found.values())) or attention_cores(graph, layer)


def attention_cores(graph: Graph, layer: Layer) -> tuple[tuple[int, ...], ...]:
    """Operations of each attention core: one kernel, or from the product before a softmax to the one after it.

    >>> from remat_explorer.graph import Value, operation
    >>> steps = ["linear", "bmm", "softmax", "bmm (2)", "linear (2)"]
    >>> graph = Graph("attention", tuple(Value(name, 1) for name in steps),
    ...               tuple(operation(name, "forward", [k - 1] if k else [], [k], 1) for k, name in enumerate(steps)))
    >>> attention_cores(graph, Layer("all", (0, 1, 2, 3, 4)))
    ((1, 2, 3),)
    """
    inside, cores = set(layer.operations), list[tuple[int, ...]]()
    for k in layer.operations:
        name = graph.operations[k].name
        if is_fused_attention(name):
            cores.append((k,))
        elif is_softmax(name):
            before = _up_to_products(graph, k, inside, backwards=True)
            after = _up_to_products(graph, k, inside, backwards=False)
            ends = any(is_any_product(graph.operations[j].name) for j in before - {k})
            if ends and any(is_any_product(graph.operations[j].name) for j in after - {k}):
                cores.append(tuple(sorted(before | after)))
    return _without_common(cores)


def _up_to_products(graph: Graph, start: int, inside: set[int], backwards: bool) -> set[int]:
    """Operations that lead to ``start``, or that it leads to, up to the next products, which are included."""
    found, waiting = {start}, [start]
    while waiting:
        k = waiting.pop()
        if k != start and is_any_product(graph.operations[k].name):
            continue
        if backwards:
            near = {int(graph.producer[v]) for v in graph.inputs(k)}
        else:
            near = {reader for v in graph.outputs(k) for reader in graph.readers[v] if not graph.is_backward[reader]}
        fresh = (near & inside) - found
        found |= fresh
        waiting += fresh
    return found


def _without_common(cores: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Cores that share operations are one."""
    merged: list[set[int]] = []
    for core in map(set, cores):
        touching = [other for other in merged if other & core]
        merged = [other for other in merged if not other & core] + [core.union(*touching)]
    return tuple(tuple(sorted(core)) for core in merged)
