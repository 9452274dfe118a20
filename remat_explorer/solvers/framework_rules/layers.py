"""The layers of a network that a framework wraps in checkpoints: by the modules of its code, else by its structure.

A *layer* is a run of forward operations. Looked for are, in this order,

1. members of numbered containers, "blocks.3" or "stages.1.0": where a captured graph knows the modules of its
   operations. Of containers within containers the inner ones are taken, if nearly all operations lie within them;
2. copies of a repeated block (`remat_explorer.graph.repeated_blocks`), if they hold half of the operations or more;
3. else the stretches of the forward pass that pass on a single value, in about sqrt(n) equal runs, as
   `checkpoint_sequential` is mostly used.

Members of a single operation, such as those of an `nn.Sequential` of convolutions, are no layers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import repeated_blocks
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.solvers.framework_rules.single_values import single_value_stretches

LEAST = 2  # operations of a layer, and layers of a group
HALF = 0.5
NEARLY_ALL = 0.9  # share of a container's operations that inner containers need to take its place


@dataclass(frozen=True)
class Layer:
    """A run of forward operations.

    Attributes:
        name: the module's path, or what else tells it apart.
        operations: ascending.
    """

    name: str
    operations: tuple[int, ...]


@memoize_by_identity
def layers_of(graph: Graph) -> tuple[Layer, ...]:
    """The layers in the order of the forward pass; none where it has fewer than two stretches.

    >>> from remat_explorer.instances import linear
    >>> [layer.operations for layer in layers_of(linear(9))]
    [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    """
    return _by_modules(graph) or _by_repetition(graph) or _by_stretches(graph)


def forward_operations(graph: Graph) -> list[int]:
    """Operations of the forward pass, ascending, that read nothing of the backward pass."""
    return [k for k, backward in enumerate(backward_operations(graph)) if not backward]


def backward_operations(graph: Graph) -> list[bool]:
    """Which operations are of the backward pass, or read what it writes.

    >>> from remat_explorer.instances import linear
    >>> backward_operations(linear(2))
    [False, False, True, True, True]
    """
    backward: list[bool] = []
    for k in range(graph.n):
        backward.append(bool(graph.is_backward[k]) or any(backward[graph.producer[v]] for v in graph.inputs(k)))
    return backward


def _by_modules(graph: Graph) -> tuple[Layer, ...]:
    """Members of numbered containers, by what their paths have in common but for the numbers."""
    patterns: dict[str, dict[str, list[int]]] = {}
    for k in forward_operations(graph):
        details = graph.operations[k].details
        parts = details.module.split(".") if details else []
        for i, part in enumerate(parts):
            if part.isdigit():
                member = ".".join(parts[: i + 1])
                patterns.setdefault(re.sub(r"\b\d+\b", "#", member), {}).setdefault(member, []).append(k)
    groups = [
        group
        for _, group in sorted(patterns.items(), key=lambda item: item[0].count("."))
        if len(group) >= LEAST and np.median([len(operations) for operations in group.values()]) >= LEAST
    ]
    taken: dict[int, str] = {}
    for group in groups:
        if not taken.keys() & {k for operations in group.values() for k in operations}:
            taken |= _members(_innermost(group, groups))
    return _runs(taken)


def _innermost(group: dict[str, list[int]], groups: Sequence[dict[str, list[int]]]) -> dict[str, list[int]]:
    """The group within this one that has nearly all of its operations, or this one."""
    own = _members(group)
    for inner in groups:
        within = _members(inner)
        if len(inner) > len(group) and within.keys() <= own.keys() and len(within) >= NEARLY_ALL * len(own):
            return _innermost(inner, groups)
    return group


def _members(group: dict[str, list[int]]) -> dict[int, str]:
    return {k: member for member, operations in group.items() for k in operations}


def _by_repetition(graph: Graph) -> tuple[Layer, ...]:
    own = set(forward_operations(graph))
    taken = {
        k: name
        for blocks in repeated_blocks(graph)
        for name, row in zip(blocks.names, blocks.forward.tolist(), strict=True)
        for k in row
        if len(row) >= LEAST and k in own
    }
    return _runs(taken) if len(taken) >= HALF * len(own) else ()


def _by_stretches(graph: Graph) -> tuple[Layer, ...]:
    """About sqrt(n) runs of the n stretches between single values; the last is longer where they do not divide."""
    stretches = single_value_stretches(graph)
    if len(stretches) < LEAST:
        return ()
    count = max(LEAST, round(len(stretches) ** 0.5))
    edges = [round(i * len(stretches) / count) for i in range(count + 1)]
    parts = [[k for stretch in stretches[a:b] for k in stretch] for a, b in pairwise(edges) if b > a]
    return tuple(Layer(f"stretch {i}", tuple(part)) for i, part in enumerate(parts))


def _runs(names: dict[int, str]) -> tuple[Layer, ...]:
    """Operations by what they belong to; a module that runs again after another one is a layer again."""
    found: list[tuple[str, list[int]]] = []
    for k in sorted(names):
        if not found or found[-1][0] != names[k]:
            found.append((names[k], []))
        found[-1][1].append(k)
    return tuple(Layer(name, tuple(operations)) for name, operations in found)
