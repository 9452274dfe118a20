"""Modules of a captured model that a checkpoint may be put around, and what a selective policy may save in them.

A module is one if it is called once in a step, which a list of modules never is, if its operations follow each other in
the forward pass, if it is not the whole model, and if it has no batch normalization, which would update its statistics
again in the second run.

Of an operation that is several calls of PyTorch nothing can be saved: PyTorch saves calls, not operations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from remat_explorer.graph import Graph
from remat_explorer.graph.operator_words import BATCHED_PRODUCTS, PRODUCTS, is_fused_attention, is_random
from remat_explorer.once import once
from remat_explorer.solvers.framework_rules.autograd_order import autograd_order, second_run_of
from remat_explorer.solvers.framework_rules.layers import forward_operations
from remat_explorer.solvers.framework_rules.regions import Region, needed_values

_OF_DROPOUT = {"bernoulli", "div", "dropout", "empty_like", "mul", "native_dropout"}  # its calls, or one on a CPU
_PRODUCTS = PRODUCTS | BATCHED_PRODUCTS
_CALL = re.compile(r"= torch\.ops\.([\w.]+)\(")


@dataclass(frozen=True)
class ModuleRegion:
    """A module that a checkpoint may be put around.

    Attributes:
        module: its path.
        operations: of its forward pass, ascending.
        free: operations whose values stay in any case, since others read them, and that its backward pass reads, too.
    """

    module: str
    operations: tuple[int, ...]
    free: frozenset[int]


@once
def module_regions(graph: Graph) -> tuple[ModuleRegion, ...]:
    """All of them, outer modules before inner ones; none where a graph does not know its modules and calls.

    >>> from remat_explorer.instances import linear
    >>> module_regions(linear(4))
    ()
    """
    forward = forward_operations(graph)
    inside: dict[str, list[int]] = {}
    for place, k in enumerate(forward):
        details = graph.operations[k].details
        for module in details.around if details else ():
            inside.setdefault(module, []).append(place)
    found: dict[tuple[int, ...], ModuleRegion] = {}
    for module, places in sorted(inside.items(), key=lambda item: (item[0].count("."), item[1])):
        operations = tuple(forward[place] for place in places)
        follow = places[-1] - places[0] + 1 == len(places)
        known = all(calls_of(graph, k) for k in operations)
        if follow and known and not any("batch_norm" in graph.operations[k].name for k in operations):
            free = _free(graph, operations)
            if all(is_savable(graph, k) for k in free) and needed_values(graph, Region(operations, free)):
                found.setdefault(operations, ModuleRegion(module, operations, free))
    return tuple(found.values())


def calls_of(graph: Graph, k: int) -> list[str]:
    """The operators that an operation calls, as PyTorch prints them; none where they are not known."""
    details = graph.operations[k].details
    names = [_CALL.search(call) for call in details.calls] if details else []
    return [name.group(1) for name in names if name is not None]


def is_savable(graph: Graph, k: int) -> bool:
    """Whether a policy can save what an operation writes: it is one call, and told apart from others.

    That is, from those of dropout, and from what has no gradient, but for constants that the module makes itself.
    """
    calls, engine = calls_of(graph, k), autograd_order(graph)
    return (
        len(calls) == 1
        and (k in engine.differentiable or k in engine.constant)
        and not is_random(graph.operations[k].name)
        and not (_has_random(graph) and calls[0].split(".")[1] in _OF_DROPOUT)
    )


@once
def _has_random(graph: Graph) -> bool:
    return any(is_random(node.name) for node in graph.operations)


def is_random_region(graph: Graph, operations: tuple[int, ...]) -> bool:
    """Whether a second run needs the state of the random number generators as the first one found it."""
    return any(is_random(graph.operations[k].name) for k in operations)


def region_of(graph: Graph, module: ModuleRegion, saved: Set[int]) -> Region:
    """The region with those of its operations saved that would run again."""
    again = second_run_of(graph, Region(module.operations))
    return Region(module.operations, (module.free | saved) & frozenset(again.operations if again else ()))


def operator_list(graph: Graph, region: Region) -> dict[str, list[Any]]:
    """What tells a region's operators apart, as a policy file has it.

    Listed are products and attention, which a second look at the model finds again whatever surrounds them, and all
    calls of the operators of which one is saved; but nothing without a gradient, such as masks, of which PyTorch may
    compute more than was traced, unless one of these is saved.

    Returns:
        ``operators``, the calls in their order; ``saved``, the places among them of those that are saved; and
        ``constants``, operators of which those without a gradient are listed, too.
    """
    names = {calls_of(graph, k)[0] for k in region.saved}
    constants = {calls_of(graph, k)[0] for k in region.saved - autograd_order(graph).differentiable}
    listed = listed_calls(graph, region.operations, names, constants)
    saved = [place for place, (_, k) in enumerate(listed) if k in region.saved]
    return {"operators": [call for call, _ in listed], "saved": saved, "constants": sorted(constants)}


def listed_calls(
    graph: Graph, operations: Sequence[int], names: Set[str], constants: Set[str]
) -> list[tuple[str, int]]:
    """Calls that a policy lists of a module, with their operations, where operators with these names are saved."""
    differentiable = autograd_order(graph).differentiable

    def is_listed(call: str, k: int) -> bool:
        kind = call.split(".")[1]
        wanted = call in names or kind in _PRODUCTS or is_fused_attention(kind)
        return call in constants or (wanted and k in differentiable)

    return [(call, k) for k in operations for call in calls_of(graph, k) if is_listed(call, k)]


def _free(graph: Graph, operations: tuple[int, ...]) -> frozenset[int]:
    inside, maker = set(operations), autograd_order(graph).maker
    free = set[int]()
    for k in operations:
        for v in graph.outputs(k):
            on = any(r not in inside and not graph.is_backward[r] for r in graph.readers[v])
            if on and any(maker.get(r) in inside for r in graph.readers[v]):
                free.add(k)
    return frozenset(free)
