"""The modules of a network as PyTorch's planners count them, and what a step that keeps everything holds for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.solvers.framework_rules.layers import forward_operations, layers_of
from remat_explorer.solvers.framework_rules.regions import Region, dropped_values

ROOT = "model"


@dataclass(frozen=True)
class Module:
    """A module of the forward pass.

    Attributes:
        name: its path from the root, "model.blocks.0".
        operations: ascending, those of the modules within included.
        is_leaf: whether there is no module within.
    """

    name: str
    operations: tuple[int, ...]
    is_leaf: bool

    @property
    def depth(self) -> int:
        """Names in its path."""
        return self.name.count(".")


def modules_of(graph: Graph) -> tuple[Module, ...]:
    """The modules of a graph, each before those within it; the root and the layers where modules are unknown.

    Containers of layers alone have no forward pass, and are none.

    >>> from remat_explorer.instances import linear
    >>> [(module.name, module.is_leaf) for module in modules_of(linear(4))]
    [('model', False), ('model.layer 0', False), ('model.layer 1', False)]
    """
    forward = forward_operations(graph)
    details = {k: graph.operations[k].details for k in forward}
    paths = {k: found.module.split(".") if found and found.module else [] for k, found in details.items()}
    if not any(paths.values()):
        layers = [Module(f"{ROOT}.layer {i}", one.operations, False) for i, one in enumerate(layers_of(graph))]
        return (Module(ROOT, tuple(forward), not layers), *layers)
    held: dict[tuple[str, ...], list[int]] = {}
    for k, path in paths.items():
        for depth in range(len(path) + 1):
            held.setdefault(tuple(path[:depth]), []).append(k)
    within = {path: [other for other in held if other[:-1] == path and other != path] for path in held}
    found = [
        Module(".".join((ROOT, *path)), tuple(operations), not within[path])
        for path, operations in held.items()
        if not path or not _is_list(within[path], within, held[path], paths)
    ]
    return tuple(sorted(found, key=lambda module: (module.operations[0], module.depth)))


def _is_list(
    members: Sequence[tuple[str, ...]],
    within: dict[tuple[str, ...], list[tuple[str, ...]]],
    operations: Iterable[int],
    paths: dict[int, list[str]],
) -> bool:
    """Whether a module is a list of modules that have others within, and does nothing itself."""
    does_something = any(len(paths[k]) < len(member) for member in members for k in operations)
    return bool(members) and not does_something and all(m[-1].isdigit() and within[m] for m in members)


@dataclass(frozen=True, eq=False)
class ModuleMemory:
    """Bytes of each operation of a step that keeps everything, int64 of shape (n,).

    Attributes:
        saved: forward values up to and with an operation that the backward pass reads.
        temporary: gradients and workspace while an operation of the backward pass runs.
        stays: values that stay to the end, from operations before it.
    """

    graph: Graph
    saved: np.ndarray
    temporary: np.ndarray
    stays: np.ndarray

    @staticmethod
    def of(graph: Graph) -> ModuleMemory:
        """Those of a graph of operations with a single implementation."""
        saved, temporary, stays = (np.zeros(graph.n, dtype=np.int64) for _ in range(3))
        held = np.zeros(graph.n + 1, dtype=np.int64)
        for v, readers in enumerate(graph.readers):
            k, size = int(graph.producer[v]), int(graph.value_bytes[v])
            if graph.persistent[v]:
                stays[k + 1 :] += size
            elif graph.is_backward[k]:
                held[k] += size
                held[max(readers, default=k) + 1] -= size
            elif any(graph.is_backward[reader] for reader in readers):
                saved[k:] += size
        workspace = np.array([node.default.workspace for node in graph.operations], dtype=np.int64)
        temporary = np.cumsum(held[:-1]) + workspace
        return ModuleMemory(graph, saved, np.where(graph.is_backward, temporary, 0), stays)

    def backward(self, module: Module) -> list[int]:
        """Operations of the backward pass that read a value of a module that the module drops when it is checkpointed.

        A module without such values has the place of what reads its last value.
        """
        graph = self.graph
        inside = set(dropped_values(graph, Region(module.operations)))
        read = [v for k in module.operations for v in graph.outputs(k)]
        for values in (inside, read):
            found = sorted({k for v in values for k in graph.readers[v] if graph.is_backward[k]})
            if found:
                return found
        return []
