"""PyTorch's checkpoint_sequential on a graph: a chain of blocks in segments, of which all but the last run twice.

`torch.utils.checkpoint.checkpoint_sequential(functions, segments, input)` cuts n functions into segments of
floor(n / segments), the last of which takes what remains. From the others only the inputs are kept. When the backward
pass first needs a value from within such a segment, the whole segment runs again, up to the last value that is needed.

Here a function is a block of the forward pass: a longest run of operations that is entered and left by one value, so
that a block may have branches inside. The loss is the end of the last block or blocks. A value that a segment hands on
to the next is in memory, so that the backward pass reads it there; PyTorch may compute it a second time beside it.

Sources: torch/utils/checkpoint.py, `checkpoint_sequential`, with ``use_reentrant=False``; Chen et al., Training deep
nets with sublinear memory cost (2016), section 4, for the idea.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import Candidate, Knob, Method, Support, cheapest_within
from remat_explorer.solvers.methods.regions import Region, region_schedule, single_value_stretches
from remat_explorer.solvers.solver_interface import Answer, Limits


def solve_checkpoint_sequential(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    """The cheapest of `checkpoint_sequential_candidates` whose peak fits into ``budget``; it proves no bound."""
    return cheapest_within(checkpoint_sequential_candidates(graph, **options), budget, limits)


def checkpoint_sequential_candidates(graph: Graph, segments: int | None = None) -> Iterator[Candidate]:
    """The schedules of checkpoint_sequential by their numbers of segments.

    Args:
        graph: of operations with a single implementation, the forward pass a chain of at least two blocks.
        segments: how many; None for each number that gives another schedule.

    Raises:
        SolverError: if the forward pass is no such chain, or cannot be cut into so many segments, or the graph has
            operations with several implementations.

    >>> from remat_explorer.instances import linear
    >>> [(one.label, one.schedule.cost) for one in checkpoint_sequential_candidates(linear(8), 2)]
    [('segments=2', 20.0)]
    """
    CondensedGraph.of(graph)  # which refuses operations with several implementations
    chain = single_value_stretches(graph)
    if len(chain) < 2:
        raise SolverError(
            f"the strategy 'checkpoint-sequential' is for chains of blocks, but no value cuts the forward pass of "
            f"{graph.name!r} in two"
        )
    if segments is None:
        return _different(graph, chain, segment_counts(graph))
    if isinstance(segments, bool) or not isinstance(segments, int) or not 1 <= segments <= len(chain):
        raise SolverError(
            f"segments is {shown(segments)}; expected a whole number from 1 to {len(chain)}, one per block"
        )
    return _different(graph, chain, (segments,))


def segment_counts(graph: Graph) -> tuple[int, ...]:
    """The numbers of segments that a sweep tries: all, up to one segment for each block."""
    return tuple(range(1, len(single_value_stretches(graph)) + 1))


def _sequential_schedule(graph: Graph, chain: Sequence[Sequence[int]], segments: int) -> Schedule:
    """The schedule that keeps the inputs of segments and all of the last one."""
    size = len(chain) // segments
    firsts = range(0, size * (segments - 1), size)
    parts = (tuple(k for block in chain[first : first + size] for k in block) for first in firsts)
    return region_schedule(graph, map(Region, parts))


def _different(graph: Graph, chain: list[list[int]], counts: Sequence[int]) -> Iterator[Candidate]:
    seen: set[tuple[tuple[int, int, int], ...]] = set()
    for segments in counts:
        schedule = _sequential_schedule(graph, chain, segments)
        if schedule.sequence not in seen:
            seen.add(schedule.sequence)
            yield Candidate(schedule, f"segments={segments}")


METHOD = Method(
    solve_checkpoint_sequential,
    "PyTorch's checkpoint_sequential: a chain of blocks in equal segments, of which all but the last run twice",
    "torch.utils.checkpoint; Chen et al. 2016, section 4",
    general_graphs=Support.PARTLY,
    cost_aware=Support.NO,
    memory_aware=Support.NO,
    knob=Knob("segments", "segments of the forward pass, from 1 to its number of blocks", segment_counts),
    candidates=checkpoint_sequential_candidates,
    symbol="star-diamond",
)
