"""The rules that people type by hand, as strategies: of the settings of each, the cheapest that keeps the budget.

Each is the schedule that PyTorch would run on the layers that are found (`remat_explorer.solvers.methods.regions`).
Where no setting keeps the budget there is no schedule.

Sources: transformers 5.23, `gradient_checkpointing_enable` and its ``every_n_layers`` (pull request 48200): the layers
whose number n divides, from 0. Megatron-LM: ``--recompute-granularity`` full with ``--recompute-method`` block, and
selective, for which Korthikanti et al., Reducing activation recomputation in large transformer models (MLSys 2023),
section 5. torchtitan: selective activation checkpointing by operators, which saves the results of operators that are
compute intensive but for every second matrix product; products of two activations run again. That rule is about matrix
products with weights. Here convolutions count as such, too, so that it says something about networks of convolutions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph, is_any_product, is_fused_attention, is_product, is_softmax
from remat_explorer.offload import TransferPlan, Transfers
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support, within_budget
from remat_explorer.solvers.methods.regions import (
    Layer,
    Region,
    first_backward_reads,
    layers_of,
    plan_with_sends,
    region_candidates,
    region_schedule,
)

_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)


def attention_modules(graph: Graph, layer: Layer) -> tuple[tuple[int, ...], ...]:
    """Operations of each attention module within a layer, projections included; the cores where modules are unknown.

    A module is one if the word "attention" or "attn" is in its name, but for norms.
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
    """Operations of each attention core: one kernel, or from the product before a softmax to the one after it."""
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


Finder = Callable[[Graph, Layer], tuple[tuple[int, ...], ...]]


def layer_counts(graph: Graph) -> tuple[int, ...]:
    """1 to the number of layers: what a sweep tries."""
    return tuple(range(1, len(layers_of(graph)) + 1))


def full(graph: Graph) -> Iterator[Candidate]:
    """A checkpoint around every layer."""
    return region_candidates(graph, [("every layer", [Region(layer.operations) for layer in layers_of(graph)])])


def every_n_layers(graph: Graph, every_n_layers: int | None = None) -> Iterator[Candidate]:
    """A checkpoint around layers 0, n, 2n and so on."""
    layers = layers_of(graph)
    counts = _counts("every_n_layers", every_n_layers, graph)
    return region_candidates(
        graph, ((f"every_n_layers={n}", [Region(layer.operations) for layer in layers[::n]]) for n in reversed(counts))
    )


def first_layers(graph: Graph, recompute_num_layers: int | None = None) -> Iterator[Candidate]:
    """A checkpoint around each of the first n layers, and none around the others."""
    layers = layers_of(graph)
    counts = _counts("recompute_num_layers", recompute_num_layers, graph)
    return region_candidates(
        graph, ((f"recompute_num_layers={n}", [Region(layer.operations) for layer in layers[:n]]) for n in counts)
    )


def send_layer_inputs(graph: Graph, budget: int, transfers: Transfers) -> Iterator[TransferPlan]:
    """A checkpoint around every layer, and the inputs of layers 0, n, 2n and so on sent to the host, for each n.

    They are fetched while the layer behind is differentiated. DeepSpeed's ``cpu_checkpointing`` is that with n = 1.
    """
    layers = layers_of(graph)
    schedule = region_schedule(graph, [Region(layer.operations) for layer in layers])
    begins = [*first_backward_reads(graph, layers), int(np.argmax(graph.is_backward))]
    for n in range(len(layers), 0, -1):
        away: dict[int, int] = {}
        for i, layer in reversed([*enumerate(layers)][::n]):
            inside = set(layer.operations)
            for v in {v for k in layer.operations for v in graph.inputs(k)}:
                if int(graph.producer[v]) not in inside and not graph.persistent[v]:
                    away.setdefault(v, begins[i + 1])
        plan = plan_with_sends(schedule, transfers, budget, away)
        if plan is not None:
            yield plan


def around(finder: Finder, label: str) -> Callable[[Graph], Iterator[Candidate]]:
    """The rule with a checkpoint around what a finder finds in every layer."""

    def candidates(graph: Graph) -> Iterator[Candidate]:
        parts = [Region(part) for layer in layers_of(graph) for part in finder(graph, layer)]
        return region_candidates(graph, [(label, parts)])

    return candidates


attention_only = around(attention_modules, "attention of every layer")
attention_core_only = around(attention_cores, "attention core of every layer")


def save_second_matmul(graph: Graph) -> Iterator[Candidate]:
    """A checkpoint around every layer that saves its 1st, 3rd, 5th … product with weights, and fused attention."""
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


def _method(
    candidates: Callable[..., Iterator[Candidate]], summary: str, source: str, symbol: str, knob: Knob | None = None
) -> Method:
    return Method(
        within_budget(candidates),
        summary,
        source,
        general_graphs=Support.YES,
        cost_aware=Support.NO,
        memory_aware=Support.NO,
        knob=knob,
        candidates=candidates,
        symbol=symbol,
        background_sweep=BackgroundSweep.NEVER,
    )


FULL = _method(
    full,
    "a checkpoint around every layer",
    "gradient_checkpointing_enable of transformers, and the full mode of most frameworks",
    "triangle-ne",
)
EVERY_N = _method(
    every_n_layers,
    "a checkpoint around every n-th layer",
    "transformers, gradient_checkpointing_enable(every_n_layers=...)",
    "triangle-se",
    Knob("every_n_layers", "one in how many layers is checkpointed", layer_counts),
)
FIRST = _method(
    first_layers,
    "a checkpoint around each of the first n layers",
    "Megatron-LM, --recompute-method block",
    "triangle-sw",
    Knob("recompute_num_layers", "how many layers are checkpointed, from the first on", layer_counts),
)
ATTENTION = _method(
    attention_only,
    "a checkpoint around the attention of every layer, projections included",
    "typed by hand",
    "triangle-nw",
)
SELECTIVE = _method(
    attention_core_only,
    "a checkpoint around the core of every attention: large values that are cheap to compute again",
    "Korthikanti et al. 2023, section 5; Megatron-LM, --recompute-granularity selective",
    "hexagon2",
)
SECOND_MATMUL = _method(
    save_second_matmul,
    "a checkpoint around every layer that saves every second matrix product and fused attention",
    "torchtitan, selective activation checkpointing by operators",
    "arrow-up",
)
