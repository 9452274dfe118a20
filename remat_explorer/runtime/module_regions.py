"""Modules of a captured model that a checkpoint may be put around, and what a selective policy may save in them.

A module is one if it is called once in a step, which a list of modules never is, if its operations follow each other in
the forward pass, if it is not the whole model, and if it has no batch normalization, which would update its statistics
again in the second run, nor writes to a buffer itself.

Where the step is at hand that the graph was captured from, it runs once, to see the operators as a policy meets them:
PyTorch may run others than were traced, as for dropout, or run them in place, and such operators cannot be saved.

Of an operation that is several calls of PyTorch nothing can be saved: PyTorch saves calls, not operations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from remat_explorer.graph import BATCHED_PRODUCTS, PRODUCTS, Graph, is_fused_attention, is_random
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.runtime.autograd_order import ObservedModule, autograd_order, second_run_of
from remat_explorer.runtime.peers.policy_check import observed_modules
from remat_explorer.solvers import Region, forward_operations, needed_values

_CAST = "aten._to_copy.default"  # autocast keeps some, so that a second run has more of them than the first
_OF_DROPOUT = {"bernoulli", "div", "dropout", "empty_like", "mul", "native_dropout"}  # its calls, or one on a CPU
_PRODUCTS = PRODUCTS | BATCHED_PRODUCTS
_CALL = re.compile(r"= torch\.ops\.([\w.]+)\(")


@dataclass(frozen=True)
class ModuleRegion:
    """A module that a checkpoint may be put around."""

    module: str  # its path
    operations: tuple[int, ...]  # of its forward pass, ascending
    free: frozenset[int]  # operations whose values stay for others, and that its backward pass reads, too
    savable: frozenset[int]  # operations of which a policy can save what they write


@memoize_by_identity
def module_regions(graph: Graph) -> tuple[ModuleRegion, ...]:
    """All of them, outer modules before inner ones; none where a graph does not know its modules and calls."""
    forward = forward_operations(graph)
    inside: dict[str, list[int]] = {}
    for place, k in enumerate(forward):
        details = graph.operations[k].details
        for module in details.around if details else ():
            inside.setdefault(module, []).append(place)
    observed = _observed(graph, list(inside)) if inside else None
    found: dict[tuple[int, ...], ModuleRegion] = {}
    for module, places in sorted(inside.items(), key=lambda item: (item[0].count("."), item[1])):
        operations = tuple(forward[place] for place in places)
        follow = places[-1] - places[0] + 1 == len(places)
        known = all(calls_of(graph, k) for k in operations)
        if follow and known and not any("batch_norm" in graph.operations[k].name for k in operations):
            seen = None if observed is None else observed.get(module)
            free, savable = _free(graph, operations), _savable(graph, operations, seen)
            fits = observed is None or _is_as_traced(graph, operations, seen)
            if fits and free <= savable and needed_values(graph, Region(operations, free)):
                found.setdefault(operations, ModuleRegion(module, operations, free, savable))
    return tuple(found.values())


def _observed(graph: Graph, modules: list[str]) -> dict[str, ObservedModule] | None:
    """What these modules do in the step that the graph was captured from; None where it does not run here."""
    if graph.example is None:
        return None
    return observed_modules(graph, modules)


def _is_as_traced(graph: Graph, operations: tuple[int, ...], seen: ObservedModule | None) -> bool:
    """Whether a module that ran leaves its state alone, and has the operators that every policy of it lists."""
    return seen is not None and not seen.changes_state and _is_same_list(graph, operations, seen, set(), set())


def _savable(graph: Graph, operations: tuple[int, ...], seen: ObservedModule | None) -> frozenset[int]:
    """Operations of a module of which a policy can save what they write."""
    able = {k for k in operations if is_savable(graph, k)}
    if seen is None:
        random = any(is_random(node) for node in graph.operations)
        return frozenset(k for k in able if not (random and calls_of(graph, k)[0].split(".")[1] in _OF_DROPOUT))
    for name in {calls_of(graph, k)[0] for k in able}:
        own = [k for k in operations if name in calls_of(graph, k)]
        for constants in ({name}, set[str]()):
            places = [k for k in own if constants or k in autograd_order(graph).differentiable]
            calls = [call for call in seen.calls if call.name == name and (constants or call.has_gradient)]
            if _is_same_list(graph, operations, seen, {name}, constants):
                able -= {k for k, call in zip(places, calls, strict=True) if not call.is_savable}
            else:
                able -= {k for k in own if constants == set() or k not in autograd_order(graph).differentiable}
    return frozenset(able)


def _is_same_list(
    graph: Graph, operations: tuple[int, ...], seen: ObservedModule, names: Set[str], constants: Set[str]
) -> bool:
    """Whether PyTorch itself runs the calls that a policy lists of a module where it saves some of these names."""
    called = [
        call.name
        for call in seen.calls
        if call.name in constants or (call.has_gradient and (call.name in names or _is_always_listed(call.name)))
    ]
    return called == [call for call, _ in listed_calls(graph, operations, names, constants)]


def calls_of(graph: Graph, k: int) -> list[str]:
    """The operators that an operation calls, as PyTorch prints them; none where they are not known."""
    details = graph.operations[k].details
    names = [_CALL.search(call) for call in details.calls] if details else []
    return [name.group(1) for name in names if name is not None]


def is_savable(graph: Graph, k: int) -> bool:
    """Whether a policy may save what an operation writes: it is one call, and draws no random numbers.

    What has no gradient is not told apart from others, but for constants that the module makes itself. Where PyTorch
    itself runs other calls, or in place, is another question: `ModuleRegion.savable`.
    """
    calls, engine = calls_of(graph, k), autograd_order(graph)
    known = len(calls) == 1 and calls[0] != _CAST
    return known and (k in engine.differentiable or k in engine.constant) and not is_random(graph.operations[k])


def is_random_region(graph: Graph, operations: tuple[int, ...]) -> bool:
    """Whether a second run needs the state of the random number generators as the first one found it."""
    return any(is_random(graph.operations[k]) for k in operations)


def region_of(graph: Graph, module: ModuleRegion, saved: Set[int]) -> Region:
    """The region with those of its operations saved that would run again."""
    again = second_run_of(graph, Region(module.operations))
    kept = module.free | (saved & module.savable)
    return Region(module.operations, kept & frozenset(again.operations if again else ()))


def operator_list(graph: Graph, region: Region) -> dict[str, list[Any]]:
    """What tells a region's operators apart, as a policy file has it.

    Listed are products and attention, which a second look at the model finds again whatever surrounds them, and all
    calls of the operators of which one is saved; but nothing without a gradient, such as masks, of which PyTorch may
    compute more than was traced, unless one of these is saved. ``operators`` are the calls in their order, ``saved``
    the places among them of those that are saved, ``constants`` the operators of which those without a gradient are
    listed.
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
        return call in constants or ((call in names or _is_always_listed(call)) and k in differentiable)

    return [(call, k) for k in operations for call in calls_of(graph, k) if is_listed(call, k)]


def _is_always_listed(call: str) -> bool:
    kind = call.split(".")[1]
    return kind in _PRODUCTS or is_fused_attention(kind)


def _free(graph: Graph, operations: tuple[int, ...]) -> frozenset[int]:
    inside, maker = set(operations), autograd_order(graph).maker
    free = set[int]()
    for k in operations:
        for v in graph.outputs(k):
            on = any(r not in inside and not graph.is_backward[r] for r in graph.readers[v])
            if on and any(maker.get(r) in inside for r in graph.readers[v]):
                free.add(k)
    return frozenset(free)
