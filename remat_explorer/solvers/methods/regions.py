"""What frameworks wrap in `torch.utils.checkpoint`: the layers of a network, and the schedule of wrapped regions.

A *layer* is a run of forward operations. `layers_of` looks for, in this order,

1. members of numbered containers, "blocks.3" or "stages.1.0": where a captured graph knows the modules of its
   operations. Of containers within containers the inner ones are taken, if nearly all operations lie within them;
2. copies of a repeated block (`remat_explorer.graph.repeated_blocks`), if they hold half of the operations or more;
3. else the stretches of the forward pass that pass on a single value, in about sqrt(n) equal runs, as
   `checkpoint_sequential` is mostly used.

Members of a single operation, such as those of an `nn.Sequential` of convolutions, are no layers.

A *region* is what one call of `checkpoint(..., use_reentrant=False)` wraps. Of its values only those that it hands on
stay after the forward pass, and those of operations that a selective policy saves. When the backward pass first needs
another one, the region runs again up to the last operation that is needed, but for the saved ones.

What differs from PyTorch: a value that a region hands on is read where it lies, while PyTorch computes it a second
time beside it; what nobody reads again is neither kept nor computed; an operation that is several calls of PyTorch is
saved as a whole.

Source: torch/utils/checkpoint.py (torch 2.13), `checkpoint` and `create_selective_checkpoint_contexts`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import repeated_blocks
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.offload import Event, TransferPlan, Transfers
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import Candidate
from remat_explorer.solvers.solver_interface import checkpoint_all


def single_value_stretches(graph: Graph) -> list[list[int]]:
    """The forward operations, ascending, as the longest chain of stretches that pass one value on to the next."""
    forward = np.flatnonzero(~graph.is_backward).tolist()
    last_read = [max((k for k in readers if not graph.is_backward[k]), default=-1) for readers in graph.readers]
    chain: list[list[int]] = [[]]
    passing: set[int] = set()  # values that a later forward operation reads
    for k in forward:
        chain[-1].append(k)
        passing |= set(graph.outputs(k))
        passing = {v for v in passing if last_read[v] > k}
        if len(passing) == 1 and k != forward[-1]:
            chain.append([])
    return [stretch for stretch in chain if stretch]


LEAST = 2  # operations of a layer, and layers of a group
HALF = 0.5
NEARLY_ALL = 0.9  # share of a container's operations that inner containers need to take its place


@dataclass(frozen=True)
class Layer:
    """A run of forward operations."""

    name: str  # the module's path, or what else tells it apart
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
    """Which operations are of the backward pass, or read what it writes."""
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
    """Values that a region does not keep: neither handed on nor saved, nor in memory to the end in any case."""
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
    """The stage in which a region runs again, and its operations that do; None where nothing of it is needed."""
    needed = needed_values(graph, region)
    if not needed:
        return None
    stage = min(k for v in needed for k in graph.readers[v] if graph.is_backward[k])
    last = min(max(int(graph.producer[v]) for v in needed), stage - 1)
    return stage, tuple(k for k in region.operations if k <= last and k not in region.saved)


def region_schedule(graph: Graph, regions: Iterable[Region]) -> Schedule:
    """The schedule that keeps everything outside of the regions, and what they keep."""
    computed = [(k, k, 1) for k in range(graph.n)]
    for region in regions:
        if again := second_run(graph, region):
            stage, operations = again
            computed += [(stage, k, 1) for k in operations]
    return Schedule.leanest(graph, graph.n, Computations.of(computed))


def region_candidates(graph: Graph, settings: Iterable[tuple[str, Sequence[Region]]]) -> Iterator[Candidate]:
    """The different schedules of several settings, keeping everything before them."""
    CondensedGraph.of(graph)  # which refuses operations with several implementations
    everything = checkpoint_all(graph)
    seen = {everything.sequence}
    yield Candidate(everything, "nothing recomputed")
    for label, regions in settings:
        schedule = region_schedule(graph, regions)
        if schedule.sequence not in seen:
            seen.add(schedule.sequence)
            yield Candidate(schedule, label)


def plan_with_sends(
    schedule: Schedule, transfers: Transfers, budget: int, away: Mapping[int, int]
) -> TransferPlan | None:
    """The plan of a schedule that also sends values: at once, and back before the backward operation of each.

    ``away`` has the operation before which a value shall be on its way back, at the latest where it is read. What the
    schedule computes again, or the backward pass does not read, is not sent. None if the host has no room.

    >>> from remat_explorer.instances import linear
    >>> graph = linear(3)
    >>> plan = plan_with_sends(checkpoint_all(graph), Transfers(1.0, 1.0), 4, {0: 5, 1: 4})
    >>> plan.sent_bytes, plan.peak, plan.makespan
    (2, 4, 7.0)
    """
    graph, sequence = schedule.graph, [(t, k) for t, k, _ in schedule.sequence]
    begins = next((i for i, (_, k) in enumerate(sequence) if graph.is_backward[k]), len(sequence))
    place: dict[int, int] = {}
    uses: dict[int, list[int]] = {v: [] for v in away}
    for i, (_, k) in enumerate(sequence):
        place.setdefault(k, i)
        for v in uses.keys() & graph.inputs(k):
            uses[v].append(i)
    fetches: dict[int, list[int]] = {}
    sent: set[int] = set()
    runs = Counter(k for _, k in sequence)
    for v, before in away.items():
        later = [i for i in uses[v] if i >= begins]
        last = max([place[int(graph.producer[v])], *(i for i in uses[v] if i < begins)])
        if later and runs[int(graph.producer[v])] == 1 and transfers.possible and later[0] > last + 1:
            fetches.setdefault(max(last + 1, begins, min(later[0], place[before])), []).append(v)
            sent.add(v)
    events: list[Event] = []
    for i, (t, k) in enumerate(sequence):
        events += [("fetch", t, v) for v in fetches.get(i, ())]
        events.append(("compute", t, k))
        events += [("send", t, v) for v in graph.outputs(k) if v in sent]
    try:
        return TransferPlan.from_events(graph, transfers, events, budget)
    except ScheduleError:
        return None


def first_backward_reads(graph: Graph, layers: Sequence[Layer]) -> list[int]:
    """Where the backward pass of each layer begins; the last operation for one that it does not read."""
    return [
        min(
            (k for o in layer.operations for v in graph.outputs(o) for k in graph.readers[v] if graph.is_backward[k]),
            default=graph.n - 1,
        )
        for layer in layers
    ]
