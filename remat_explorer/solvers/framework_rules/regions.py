"""The schedule that PyTorch runs where parts of a model are wrapped in `torch.utils.checkpoint`.

A *region* is what one call of `checkpoint(..., use_reentrant=False)` wraps. Of its values only those that it hands on
stay after the forward pass, and those of operations that a selective policy saves. When the backward pass first needs
another one, the region runs again up to the last operation that is needed, but for the saved ones.

What differs from PyTorch: a value that a region hands on is read where it lies, while PyTorch computes it a second
time beside it; what nobody reads again is neither kept nor computed; an operation that is several calls of PyTorch is
saved as a whole.

Source: torch/utils/checkpoint.py (torch 2.13), `checkpoint` and `create_selective_checkpoint_contexts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.method import Candidate


@dataclass(frozen=True)
class Region:
    """What one checkpoint wraps.

    Attributes:
        operations: of the forward pass, ascending.
        saved: those of them whose values a selective policy keeps.
    """

    operations: tuple[int, ...]
    saved: frozenset[int] = frozenset()


def dropped_values(graph: Graph, region: Region) -> list[int]:
    """Values that a region does not keep: neither handed on nor saved, nor in memory to the end in any case.

    >>> from remat_explorer.instances import linear
    >>> dropped_values(linear(4), Region((0, 1, 2))), dropped_values(linear(4), Region((0, 1, 2), frozenset({0})))
    ([0, 1], [1])
    """
    inside = set(region.operations)

    def handed_on(v: int) -> bool:
        return any(k not in inside and not graph.is_backward[k] for k in graph.readers[v])

    produced = (v for k in region.operations if k not in region.saved for v in graph.outputs(k))
    return [v for v in produced if not graph.persistent[v] and not handed_on(v)]


def needed_values(graph: Graph, region: Region) -> list[int]:
    """Those of `dropped_values` that the backward pass reads: what the checkpoint saves the bytes of.

    >>> from remat_explorer.instances import linear
    >>> needed_values(linear(4), Region((0, 1, 2)))
    [0, 1]
    """
    return [v for v in dropped_values(graph, region) if any(graph.is_backward[k] for k in graph.readers[v])]


def second_run(graph: Graph, region: Region) -> tuple[int, tuple[int, ...]] | None:
    """The stage in which a region runs again, and its operations that do; None where nothing of it is needed.

    >>> from remat_explorer.instances import linear
    >>> second_run(linear(4), Region((0, 1, 2)))
    (7, (0, 1))
    """
    needed = needed_values(graph, region)
    if not needed:
        return None
    stage = min(k for v in needed for k in graph.readers[v] if graph.is_backward[k])
    last = min(max(int(graph.producer[v]) for v in needed), stage - 1)
    return stage, tuple(k for k in region.operations if k <= last and k not in region.saved)


def region_schedule(graph: Graph, regions: Iterable[Region]) -> Schedule:
    """The schedule that keeps everything outside of the regions, and what they keep.

    Args:
        graph: of operations with a single implementation.
        regions: without operations in common.

    >>> from remat_explorer.instances import linear
    >>> region_schedule(linear(4), [Region((0, 1, 2))]).cost  # 0 and 1 run again
    11.0
    """
    computed = [(k, k, 1) for k in range(graph.n)]
    for region in regions:
        if again := second_run(graph, region):
            stage, operations = again
            computed += [(stage, k, 1) for k in operations]
    return Schedule.leanest(graph, graph.n, Computations.of(computed))


def region_candidates(graph: Graph, settings: Iterable[tuple[str, Sequence[Region]]]) -> Iterator[Candidate]:
    """The different schedules of several settings, keeping everything before them.

    Args:
        graph: the training graph.
        settings: a label and the regions of each, in the order in which they are tried.

    Raises:
        SolverError: if an operation has several implementations.

    >>> from remat_explorer.instances import linear
    >>> [(one.label, one.schedule.cost) for one in region_candidates(linear(4), [("front", [Region((0, 1, 2))])])]
    [('nothing recomputed', 9.0), ('front', 11.0)]
    """
    Condensed.of(graph)  # which refuses operations with several implementations
    everything = checkpoint_all(graph)
    seen = {everything.sequence}
    yield Candidate(everything, "nothing recomputed")
    for label, regions in settings:
        schedule = region_schedule(graph, regions)
        if schedule.sequence not in seen:
            seen.add(schedule.sequence)
            yield Candidate(schedule, label)
