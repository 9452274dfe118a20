"""Where one is in a graph: the computation of a step, the part of the matrices on the screen, operations that a search
finds, repeated blocks that are folded, and numbers of what is given by name.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import traitlets as t

from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.graph import Graph, Operation, RepeatedBlocks
from remat_explorer.graph.repeated_blocks import repeated_blocks
from remat_explorer.quantities import parse_bytes
from remat_explorer.schedule import Schedule

_SIZE = re.compile(r"(?<!\S)([<>]=?)\s*(\S*(?:\s+[KMGT]?i?B\b)?)", re.IGNORECASE)
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
MIN_FOLDED_OPERATIONS = 400  # operations from which on repeated blocks are folded at first


def nearest_computation(schedule: Schedule, computation: int) -> int:
    """The nearest computation that there is, from 0 on."""
    return min(max(0, computation), max(0, len(schedule.sequence) - 1))


def stage_of_computation(schedule: Schedule, computation: int) -> int:
    """The stage of a computation.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    >>> stage_of_computation(keep, 2), last_computation(keep, 1)
    (2, 1)
    """
    return schedule.sequence[nearest_computation(schedule, computation)][0] if schedule.sequence else 0


def last_computation(schedule: Schedule, stage: int) -> int:
    """The last computation of a stage; where it has none, that of the stages before it."""
    runs = int(np.searchsorted(schedule.computations.stage, stage + 1))
    return max(0, runs - 1)


def clip_zoom(zoom: Sequence[int], stages: int, operations: int) -> tuple[int, ...]:
    """``zoom`` inside the matrices, first before last; () where it shows everything.

    Raises:
        TraitError: if ``zoom`` is neither empty nor four whole numbers.

    >>> clip_zoom((80, 40, -3, 999), 354, 354), clip_zoom((0, 353, 0, 353), 354, 354), clip_zoom((), 354, 354)
    ((40, 80, 0, 353), (), ())
    """
    if len(zoom) == 0:
        return ()
    if len(zoom) != 4 or not all(isinstance(edge, int) and not isinstance(edge, bool) for edge in zoom):
        raise t.TraitError(
            f"{tuple(zoom)!r} is no part of the matrices; expected first and last stage, first and last operation, "
            "such as (40, 80, 40, 80), or () for everything"
        )
    part = (*_clip_range(zoom[0], zoom[1], stages), *_clip_range(zoom[2], zoom[3], operations))
    return () if part == (0, stages - 1, 0, operations - 1) else part


def _clip_range(first: int, last: int, count: int) -> tuple[int, int]:
    first, last = sorted((first, last))
    return max(0, min(first, count - 1)), max(0, min(last, count - 1))


def scroll_to(first: int, last: int, position: int, count: int) -> tuple[int, int]:
    """The range ``first`` to ``last``, moved just so far that it contains ``position``, in 0 to ``count`` - 1.

    >>> scroll_to(40, 80, 81, 354), scroll_to(40, 80, 12, 354), scroll_to(40, 80, 60, 354)
    ((41, 81), (12, 52), (40, 80))
    """
    by = min(0, position - first) + max(0, position - last)
    by = max(-first, min(by, count - 1 - last))
    return first + by, last + by


@dataclass(frozen=True)
class SearchConditions:
    """What a search asks for: every word, and every comparison with a number of bytes."""

    words: tuple[str, ...]
    sizes: tuple[tuple[Callable[[int, int], bool], int], ...]

    def __bool__(self) -> bool:
        return bool(self.words or self.sizes)


def parse_search(text: str) -> SearchConditions:
    """Words and sizes of a search.

    Raises:
        QuantityError: if no number of bytes follows ``>`` or ``<``.

    >>> parse_search("Conv backward > 10 MiB").words, parse_search(">1KiB").sizes[0][1]
    (('conv', 'backward'), 1024)
    """
    sizes = []
    for sign, size in _SIZE.findall(text):
        if not size:
            raise QuantityError(f'{text!r} compares with nothing; write a size behind {sign}, such as "{sign}10MiB"')
        sizes.append((_COMPARE[sign], parse_bytes(size)))
    return SearchConditions(tuple(_SIZE.sub(" ", text).casefold().split()), tuple(sizes))


def find_operations(graph: Graph, words: str, schedule: Schedule | None = None) -> tuple[int, ...]:
    """The operations, ascending, that every word of ``words`` describes.

    A word is part of the operation's name (which begins with its operator's), of the name of one of its
    implementations or of a value that it writes, or it is the pass, "forward" or "backward". "recomputed" finds what
    ``schedule`` runs more than once. ``>10MiB`` and ``<1KiB`` compare the bytes of the operation's largest output. No
    words find nothing.

    Raises:
        QuantityError: if no number of bytes follows ``>`` or ``<``.

    >>> from remat_explorer.instances import linear
    >>> [find_operations(linear(2), text) for text in ("backward", "v1", ">=1B V1", " ")]
    [(2, 3, 4), (1,), (1,), ()]
    """
    asked = parse_search(words)
    if not asked:
        return ()
    again = schedule.repeated_operations if schedule is not None else {}
    return tuple(k for k, node in enumerate(graph.operations) if _describes(asked, graph, node, k in again))


def _describes(asked: SearchConditions, graph: Graph, node: Operation, runs_again: bool) -> bool:
    outputs = {v for way in node.implementations for v in way.outputs}
    largest = max((graph.values[v].bytes for v in outputs), default=0)
    if not all(compare(largest, size) for compare, size in asked.sizes):
        return False
    names = [node.name, node.phase, *(way.name for way in node.implementations if len(node.implementations) > 1)]
    names += [graph.values[v].name for v in outputs] + (["recomputed"] if runs_again else [])
    text = "\n".join(names).casefold()
    return all(word in text for word in asked.words)


def next_found(operations: Sequence[int], current: int, by: int) -> int | None:
    """The one of ``operations`` that comes after ``current`` (``by`` 1) or before it (-1), going round at the ends.

    >>> next_found((3, 7, 9), 7, 1), next_found((3, 7, 9), 7, -1), next_found((3, 7, 9), 9, 1), next_found((), 9, 1)
    (9, 3, 3, None)
    """
    if not operations:
        return None
    at = bisect_right(operations, current) if by > 0 else bisect_left(operations, current) - 1
    return operations[at % len(operations)]


class Folding(t.HasTraits):
    """What is folded, as traits; the graph is that of `State`.

    >>> import remat_explorer as rx
    >>> from remat_explorer.explorer.state.state import State
    >>> state = State(graph=rx.linear(8))
    >>> state.blocks[0].copies, state.folded
    (7, ())
    >>> state.fold()
    >>> state.folded, state.operation_shown(5)
    ((0,), 1)
    >>> state.unfold(0)
    >>> state.folded, state.operation_shown(5)
    ((), 5)
    """

    folded: Any = t.Tuple(default_value=(), help="Numbers of the repeated blocks of which one copy stands for all.")

    @property
    def blocks(self) -> tuple[RepeatedBlocks, ...]:
        """The blocks that the graph repeats, in the order of the forward pass."""
        graph: Graph | None = getattr(self, "graph", None)
        return () if graph is None else repeated_blocks(graph)

    def fold(self, *numbers: int) -> None:
        """Fold some of `blocks`, or all of them."""
        self.folded = tuple(sorted({*self.folded, *(numbers or range(len(self.blocks)))}))

    def unfold(self, *numbers: int) -> None:
        """Unfold some of `blocks`, or all of them."""
        self.folded = tuple(number for number in self.folded if numbers and number not in numbers)

    def operation_shown(self, k: int) -> int:
        """The operation that stands for ``k``: itself, unless it is folded away."""
        for number in self.folded:
            place = np.argwhere(self.blocks[number].operations == k)
            if len(place):
                return int(self.blocks[number].operations[0, place[0, 1]])
        return k

    def stage_shown(self, stage: int) -> int:
        """The stage that stands for one of a frontier-advancing schedule."""
        own = self.graph.mandatory if self.folded else ()  # pyright: ignore[reportAttributeAccessIssue]
        if not 0 <= stage < len(own):
            return stage
        return int(np.searchsorted(own, self.operation_shown(int(own[stage]))))

    @t.observe("graph")
    def _fold_at_first(self, change: Any) -> None:
        graph = change["new"]
        many = graph is not None and graph.n >= MIN_FOLDED_OPERATIONS
        self.folded = tuple(range(len(self.blocks))) if many else ()

    @t.validate("folded")
    def _blocks_known(self, proposal: Any) -> tuple[int, ...]:
        wanted, known = tuple(proposal["value"]), len(self.blocks)
        if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < known for i in wanted):
            there = f"numbers from 0 to {known - 1}" if known else "none, as this graph repeats no block"
            raise t.TraitError(f"{wanted!r} are no repeated blocks; there are {there}")
        return tuple(sorted(set(wanted)))


def resolve_index(kind: str, given: int | str, names: Sequence[str]) -> int:
    """The number of something given by number or name.

    Args:
        kind: what it is, for the message: "value".
        given: its number or its name.
        names: all of them, in order.

    Raises:
        UnknownNameError: if there is no such name; near ones are listed.

    >>> resolve_index("value", "v1", ["v0", "v1"]), resolve_index("value", 0, ["v0", "v1"])
    (1, 0)
    """
    if isinstance(given, str):
        if given not in names:
            raise UnknownNameError(kind, given, names)
        return list(names).index(given)
    return given
