"""Chen's methods: checkpoints at split points of the forward pass, every sqrt(n)-th or greedily by bytes, and segments.

What lies between two checkpoints is a segment. It is dropped after the forward pass and recomputed from the checkpoint
before it when the backward pass reaches it; the last segment is kept. On a chain every operation runs at most twice.

*Split points* are, on a chain, all forward operations; articulation points of the undirected forward graph (AP); or all
forward operations in topological order, as if each read from the one before it (linearized). On a chain all are the
same. Where skip connections leave few articulation points, as in a U-Net, AP has little to choose from.

*Checkpoints* are every floor(sqrt(n))-th of the n split points, or (Algorithm 3) the first split point at which a
segment exceeds b bytes, for one b after the other: all that give different checkpoints, up to 40 of them.

*Segments* in graphs that are no chains may read from an earlier one past its checkpoint. What is then recomputed of the
earlier segment either stays until its last use, which never costs more than one more forward pass, or is dropped after
the stage unless that stage's operation reads from the earlier segment itself, which needs less memory but may recompute
often. Both are tried; on a chain they are the same.

A graph is a *chain* (`require_chain`) if

1. all forward operations come before all backward operations;
2. the forward operations are a path: each reads values of the one just before it, and of no other;
3. a backward operation reads values of at most two forward operations, neighbours on the path (what a layer read and
   what it wrote), beside the gradients of other backward operations, of which it may read any;
4. the backward operations go back along the path: none reads a value of an earlier forward operation than one that
   comes after it needs again, but for the layer in progress.

In numbers: with P(t) the positions on the path of the forward values that backward operation t reads,
max P(t) - min P(t) <= 1, and max P(t') <= min P(t) + 1 for t < t'. An operation may write several values, and a layer
may have several backward operations, as captured networks do.

Sources: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4 and Algorithm 3;
Jain et al., Checkmate (MLSys 2020), section 6.1, appendices B.1 and B.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.quantities import MOST_BYTES, format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support, whole_number, within_budget
from remat_explorer.solvers.methods.static_policy import schedule_of


def forward_operations(graph: Graph) -> list[int]:
    """Numbers of the forward operations, ascending.

    >>> from remat_explorer.instances import linear
    >>> forward_operations(linear(3))
    [0, 1, 2]
    """
    return [k for k in range(graph.n) if not graph.is_backward[k]]


def forward_positions(graph: Graph, k: int) -> list[int]:
    """Operations, ascending, whose forward values operation ``k`` reads."""
    producers = {int(graph.producer[v]) for v in graph.inputs(k)}
    return sorted(producer for producer in producers if not graph.is_backward[producer])


def require_chain(graph: Graph, instead: str) -> list[int]:
    """The path of forward operations.

    Args:
        instead: names of the strategies that take other graphs, for the message.

    Raises:
        SolverError: if the graph is no chain, naming the first operation that breaks the path.

    >>> from remat_explorer.instances import linear
    >>> require_chain(linear(3), "linearized-sqrt-n")
    [0, 1, 2]
    """
    path = forward_operations(graph)
    if not path:
        raise SolverError(f"{graph.name!r} is no chain: it has no forward operation. Use {instead}")
    for k in range(graph.n):
        broken = _forward_break(graph, k) if k < len(path) else _backward_break(graph, k)
        if broken:
            raise SolverError(
                f"{graph.name!r} is no chain: {broken}. This strategy is for chains of layers; use {instead}"
            )
    lowest = len(path)
    for k in range(len(path), graph.n):
        read = forward_positions(graph, k)
        if read and read[-1] > lowest + 1:
            late, done = graph.operations[read[-1]].name, graph.operations[lowest].name
            raise SolverError(
                f"{graph.name!r} is no chain: backward operation {graph.operations[k].name!r} (number {k}) reads what "
                f"{late!r} wrote, after the backward pass has come down to {done!r}. "
                f"This strategy is for chains of layers; use {instead}"
            )
        lowest = min(lowest, *read) if read else lowest
    return path


def _forward_break(graph: Graph, k: int) -> str | None:
    """Why operation ``k`` does not continue the path, or None."""
    name = graph.operations[k].name
    if graph.is_backward[k]:
        return f"backward operation {name!r} (number {k}) comes before the last forward operation"
    read = sorted({int(graph.producer[v]) for v in graph.inputs(k)})
    if read == ([k - 1] if k else []):
        return None
    given = ", ".join(repr(graph.operations[j].name) for j in read) or "no operation"
    expected = repr(graph.operations[k - 1].name) if k else "no operation"
    return f"forward operation {name!r} (number {k}) reads from {given}; a path needs it to read from {expected} alone"


def _backward_break(graph: Graph, k: int) -> str | None:
    """Why backward operation ``k`` reads too much of the path, or None."""
    read = forward_positions(graph, k)
    if not read or read[-1] - read[0] <= 1:
        return None
    given = ", ".join(repr(graph.operations[j].name) for j in read)
    return (
        f"backward operation {graph.operations[k].name!r} (number {k}) reads from the forward operations {given}; "
        "in a chain it reads from one, or from two neighbours"
    )


SplitPoints = Callable[[Graph], list[int]]
"""From a graph to the forward operations, ascending, whose outputs may be checkpoints."""


def chain_points(graph: Graph) -> list[int]:
    """Every forward operation of a chain (Chen et al., section 4)."""
    return _that_can_be_kept(graph, require_chain(graph, "ap-sqrt-n, ap-greedy or the linearized strategies instead"))


def articulation_split_points(graph: Graph) -> list[int]:
    """Articulation points of the undirected forward graph, and its two ends (Checkmate, appendix B.1).

    All that is computed after an articulation point follows from it alone, where it separates before from after. The
    first and the last forward operation have nothing beyond them to separate, but are split points of a chain, so they
    are split points here: on a chain the result is `chain_points`.

    >>> from remat_explorer.instances import linear
    >>> articulation_split_points(linear(4))
    [0, 1, 2, 3]
    """
    forward = forward_operations(graph)
    return _that_can_be_kept(graph, sorted({*graph.articulation_points(), *forward[:1], *forward[-1:]}))


def linearized_points(graph: Graph) -> list[int]:
    """Every forward operation, as if each read from the one before in topological order (Checkmate, appendix B.2)."""
    return _that_can_be_kept(graph, forward_operations(graph))


def kept_values(graph: Graph, k: int) -> list[int]:
    """Values of operation ``k`` that a checkpoint keeps: read by somebody, and not in memory to the end anyway."""
    return [v for v in graph.outputs(k) if graph.readers[v] and not graph.persistent[v]]


def _that_can_be_kept(graph: Graph, operations: list[int]) -> list[int]:
    """Those with an output to keep, less the loss: after it nothing is left to cut off.

    The loss is what writes a persistent value and is read by no forward operation.
    """

    def ends_the_forward_pass(k: int) -> bool:
        persistent = any(graph.persistent[v] for v in graph.outputs(k))
        read_on = any(not graph.is_backward[reader] for v in graph.outputs(k) for reader in graph.readers[v])
        return persistent and not read_on

    return [k for k in operations if kept_values(graph, k) and not ends_the_forward_pass(k)]


def _segment_candidates(graph: Graph, settings: Iterable[tuple[str, list[int]]]) -> Iterator[Candidate]:
    """The schedules of several choices of checkpoints, without repetitions."""
    seen: set[tuple[tuple[int, int, int], ...]] = set()
    for label, checkpoints in settings:
        stay, leave = (segment_schedule(graph, checkpoints, once) for once in (True, False))
        alike = stay.sequence == leave.sequence
        ways = [("", stay)] if alike else [(", recomputed once", stay), (", recomputed where missing", leave)]
        for way, schedule in ways:
            if schedule.sequence not in seen:
                seen.add(schedule.sequence)
                yield Candidate(schedule, label + way)


def segment_schedule(graph: Graph, checkpoints: list[int], once: bool = True) -> Schedule:
    """The schedule that keeps the checkpoints and recomputes what is between them.

    With ``once``, every recomputed value stays until its last use, not only those of the segments that the stage reads
    from.
    """
    kept = np.zeros(len(graph.values), dtype=bool)
    for k in checkpoints:
        kept[kept_values(graph, k)] = True
    # a checkpoint is the last operation of its segment
    segment = np.searchsorted(checkpoints, graph.producer, side="left")
    kept |= segment == len(checkpoints)

    def keep(t: int, retained: np.ndarray) -> np.ndarray:
        if not graph.is_backward[t]:
            return kept
        if once:
            return np.ones_like(kept)
        read = [int(np.searchsorted(checkpoints, k, side="left")) for k in forward_positions(graph, t)]
        return kept | retained | np.isin(segment, read)

    return schedule_of(graph, keep)


MOST_SETTINGS = 40  # segmentations that a search tries
DENSITY = 5  # values of b, for each of those, that are looked at where there are too many


def every_sqrt_n(points: list[int]) -> list[int]:
    """Checkpoints at the end of every run of floor(sqrt(n)) of the n split points."""
    length = max(1, math.isqrt(len(points)))
    return points[length - 1 :: length]


def greedy(graph: Graph, points: list[int], segment_bytes: int) -> list[int]:
    """Chen's Algorithm 3: a checkpoint at the first split point at which a segment exceeds b = ``segment_bytes``.

    b = 0 makes every split point with bytes a checkpoint, and b >= all bytes none.
    """
    return _cut(_bytes_up_to(graph, points), points, segment_bytes)[0]


def segment_sizes(graph: Graph, points: list[int], most: int = MOST_SETTINGS) -> list[int]:
    """Values of b for Algorithm 3, ascending: one for each segmentation that it can give, or ``most`` of them.

    Chen et al. search a few values around sqrt(xy), with x the bytes of all checkpoints and y those of the largest
    segment (section 4). Here the search covers every b: as long as b stays below the bytes of the smallest segment
    that a checkpoint closes, nothing changes, so that number is the next b. Where there are more than ``most`` such
    values, b goes from the smallest to all bytes in equal ratios, and ``most`` of the segmentations that this gives are
    taken, spread evenly.
    """
    upto = _bytes_up_to(graph, points)
    sizes = [0]
    while closed := _cut(upto, points, sizes[-1])[1]:
        sizes.append(min(closed))
        if len(sizes) > most:
            break
    else:
        return sizes
    ratios = np.geomspace(sizes[1], int(upto[-1]), DENSITY * most).round()
    distinct = {tuple(_cut(upto, points, int(size))[0]): int(size) for size in (0, *ratios[::-1])}
    ascending = sorted(distinct.values())
    return [ascending[i] for i in np.unique(np.linspace(0, len(ascending) - 1, most).round().astype(int))]


def _bytes_up_to(graph: Graph, points: list[int]) -> np.ndarray:
    """Bytes that the forward pass writes up to and with each split point, int64 of shape (points,)."""
    sizes = np.zeros(graph.n, dtype=np.int64)
    for k in forward_operations(graph):
        sizes[k] = graph.value_bytes[kept_values(graph, k)].sum()
    return np.cumsum(sizes)[points]


def _cut(upto: np.ndarray, points: list[int], segment_bytes: int) -> tuple[list[int], list[int]]:
    """Checkpoints of Algorithm 3, and the bytes of the segment that each one closes (its temp)."""
    checkpoints: list[int] = []
    closed: list[int] = []
    before = 0
    while True:
        i = int(np.searchsorted(upto, before + segment_bytes, side="right"))
        if i == len(points):
            return checkpoints, closed
        checkpoints.append(points[i])
        closed.append(int(upto[i]) - before)
        before = int(upto[i])


def _method(
    candidates: Callable[..., Iterator[Candidate]],
    summary: str,
    source: str,
    general_graphs: Support,
    symbol: str,
    knob: Knob | None = None,
) -> Method:
    return Method(
        within_budget(candidates),
        summary,
        source,
        general_graphs=general_graphs,
        cost_aware=Support.NO,
        memory_aware=Support.NO if knob is None else Support.PARTLY,
        knob=knob,
        candidates=candidates,
        background_sweep=BackgroundSweep.ALWAYS if knob is None else None,
        symbol=symbol,
    )


def _sqrt_n_method(split_points: SplitPoints, *row: Any) -> Method:
    """The method with these split points; its schedules are one, or two where segments read past each other's."""

    def candidates(graph: Graph) -> Iterator[Candidate]:
        checkpoints = every_sqrt_n(split_points(graph))
        return _segment_candidates(graph, [(f"{len(checkpoints)} checkpoints", checkpoints)])

    return _method(candidates, *row)


CHEN_SQRT_N = _sqrt_n_method(
    chain_points,
    "on a chain of n layers, a checkpoint after every sqrt(n) of them",
    "Chen et al. 2016, section 4",
    Support.NO,
    "triangle-right",
)
AP_SQRT_N = _sqrt_n_method(
    articulation_split_points,
    "chen-sqrt-n on the articulation points of the forward graph",
    "Jain et al. 2020, section 6.1 and appendix B.1",
    Support.PARTLY,
    "diamond-wide",
)
LINEARIZED_SQRT_N = _sqrt_n_method(
    linearized_points,
    "chen-sqrt-n on the forward operations in their order, as if they were a chain",
    "Jain et al. 2020, section 6.1 and appendix B.2",
    Support.YES,
    "bowtie",
)


def _greedy_method(split_points: SplitPoints, *row: Any) -> Method:
    """The method with these split points; its schedules go from the largest segments to the smallest."""

    def candidates(graph: Graph, segment_bytes: float | None = None) -> Iterator[Candidate]:
        points = split_points(graph)
        if segment_bytes is None:
            sizes = segment_sizes(graph, points)[::-1]
        else:
            sizes = [whole_number("segment_bytes", segment_bytes, 0, "bytes")]
        checkpoints = (
            (f"segments of {format_bytes(min(size, MOST_BYTES))}", greedy(graph, points, size)) for size in sizes
        )
        return _segment_candidates(graph, checkpoints)

    meaning = "b of Algorithm 3: bytes of forward values after which a segment ends"
    knob = Knob("segment_bytes", meaning, lambda graph: segment_sizes(graph, split_points(graph)))
    return _method(candidates, *row, knob=knob)


CHEN_GREEDY = _greedy_method(
    chain_points,
    "on a chain, a checkpoint whenever a segment exceeds b bytes; several b are tried",
    "Chen et al. 2016, section 4 and Algorithm 3",
    Support.NO,
    "diamond-tall",
)
AP_GREEDY = _greedy_method(
    articulation_split_points,
    "chen-greedy on the articulation points of the forward graph",
    "Jain et al. 2020, section 6.1 and appendix B.1",
    Support.PARTLY,
    "hourglass",
)
LINEARIZED_GREEDY = _greedy_method(
    linearized_points,
    "chen-greedy on the forward operations in their order, as if they were a chain",
    "Jain et al. 2020, section 6.1 and appendix B.2",
    Support.YES,
    "star-square",
)
