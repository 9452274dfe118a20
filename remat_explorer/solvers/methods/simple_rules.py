"""Two rules that most codebases invent: drop what frees most bytes per second, and a knapsack of layers.

There is no single source: "bytes per second" is the order in which planners drop values first, and a knapsack of whole
layers what they turn to where the model is a list of layers. Neither knows what the backward pass holds while it
computes again, so that both are told a share of the saved bytes, not a peak: of all shares, the cheapest schedule that
keeps the budget is taken. *Saved* are the values of the forward pass that the backward pass reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support, within_budget
from remat_explorer.solvers.methods.regions import Region, layers_of, needed_values, region_candidates, second_run
from remat_explorer.solvers.methods.static_policy import schedule_of
from remat_explorer.solvers.solver_interface import checkpoint_all

SHARES = tuple((20 - i) / 20 for i in range(21))
STEPS = 1000  # of bytes that the knapsack tells apart; sizes are rounded down, so that all items fit into all bytes


def kept_shares(graph: Graph) -> tuple[float, ...]:
    """What a sweep tries: the same for each graph, from 1 down to 0."""
    return SHARES


def greedy_by_bytes_per_second(graph: Graph, kept_share: float | None = None) -> Iterator[Candidate]:
    """Saved values are dropped in the order of bytes by cost of their own operation, until the rest is small enough.

    Dropped values are computed again where they are missing, with all that they need, and then stay. ``kept_share`` is
    that of the saved bytes which may stay; None for all of `SHARES`.
    """
    CondensedGraph.of(graph)  # which refuses operations with several implementations
    shares = _shares(kept_share)
    everything = checkpoint_all(graph)
    yield Candidate(everything, "nothing recomputed")
    seen, saved = {everything.sequence}, _saved_values(graph)
    costs, sizes = graph.costs[graph.producer[saved]], graph.value_bytes[saved].astype(float)
    ratio = np.divide(sizes, costs, out=np.full(len(saved), np.inf), where=costs > 0)
    order = saved[np.argsort(-ratio, kind="stable")]
    left = sizes.sum() - np.cumsum(graph.value_bytes[order])  # bytes that stay once each of them is dropped, too
    for share in shares:
        dropped = int(np.searchsorted(-left, -share * sizes.sum())) + 1 if share < 1 else 0
        kept = np.zeros(len(graph.values), dtype=bool)
        kept[order[dropped:]] = True
        schedule = schedule_of(graph, lambda t, held, kept=kept: np.ones_like(kept) if graph.is_backward[t] else kept)
        if schedule.sequence not in seen:
            seen.add(schedule.sequence)
            yield Candidate(schedule, f"kept_share={share:g}")


def layer_knapsack(graph: Graph, kept_share: float | None = None) -> Iterator[Candidate]:
    """A checkpoint around every layer but those that a knapsack keeps: most seconds in a share of the saved bytes.

    ``kept_share`` is of the bytes that checkpoints around all layers would save; None for all of `SHARES`.
    """
    shares = _shares(kept_share)
    regions = [Region(layer.operations) for layer in layers_of(graph)]
    sizes = [int(graph.value_bytes[needed_values(graph, region)].sum()) for region in regions]
    runs = [second_run(graph, region) for region in regions]
    costs = [float(graph.costs[list(run[1])].sum()) if run else 0.0 for run in runs]

    def settings() -> Iterator[tuple[str, list[Region]]]:
        for share in shares:
            kept = knapsack(sizes, costs, share * sum(sizes))
            yield f"kept_share={share:g}", [region for i, region in enumerate(regions) if i not in kept]

    return region_candidates(graph, settings())


def knapsack(sizes: Sequence[int], gains: Sequence[float], capacity: float) -> set[int]:
    """Items of the largest gain whose sizes, rounded down to steps of a thousandth of all, fit into the capacity."""
    unit = max(1.0, sum(sizes) / STEPS)
    weights = [int(size // unit) for size in sizes]
    room = int(capacity // unit)
    best = np.zeros(room + 1)
    taken = np.zeros((len(sizes), room + 1), dtype=bool)
    for i, (weight, gain) in enumerate(zip(weights, gains, strict=True)):
        if weight <= room:
            better = best[: room + 1 - weight] + gain
            taken[i, weight:] = better > best[weight:]
            best[weight:] = np.maximum(best[weight:], better)
    chosen = set[int]()
    for i in reversed(range(len(sizes))):
        if taken[i, room]:
            chosen.add(i)
            room -= weights[i]
    return chosen


def _saved_values(graph: Graph) -> np.ndarray:
    """Values of the forward pass that the backward pass reads and that need not stay, ascending."""
    return np.array(
        [
            v
            for v, readers in enumerate(graph.readers)
            if not graph.is_backward[graph.producer[v]]
            and not graph.persistent[v]
            and any(graph.is_backward[k] for k in readers)
        ],
        dtype=np.int64,
    )


def _shares(given: float | None) -> tuple[float, ...]:
    if given is None:
        return SHARES
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise SolverError(f"kept_share is {shown(given)}; expected a share of the saved bytes, from 0 to 1")
    return (float(given),)


def _method(candidates: Callable[..., Iterator[Candidate]], summary: str, of: str, symbol: str) -> Method:
    return Method(
        within_budget(candidates),
        summary,
        "a rule that many codebases invent",
        general_graphs=Support.YES,
        cost_aware=Support.YES,
        memory_aware=Support.PARTLY,
        knob=Knob("kept_share", f"share that may stay of the bytes {of}, from 0 to 1", kept_shares),
        candidates=candidates,
        symbol=symbol,
        background_sweep=BackgroundSweep.NEVER,
    )


BYTES_PER_SECOND = _method(
    greedy_by_bytes_per_second,
    "drops the values that free most bytes per second of their own operation",
    "that the backward pass reads",
    "arrow-down",
)
LAYER_KNAPSACK = _method(
    layer_knapsack,
    "a checkpoint around every layer but those that a knapsack keeps",
    "that checkpoints around all layers save",
    "arrow-left",
)
