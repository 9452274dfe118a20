"""Find operations by name, type, pass and size: "conv backward >10MiB"."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remat_explorer.errors import QuantityError
from remat_explorer.graph import Graph, Operation
from remat_explorer.quantities import parse_bytes

_SIZE = re.compile(r"(?<!\S)([<>]=?)\s*(\S*(?:\s+[KMGT]?i?B\b)?)", re.IGNORECASE)
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@dataclass(frozen=True)
class Conditions:
    """What a search asks for: every word, and every comparison with a number of bytes."""

    words: tuple[str, ...]
    sizes: tuple[tuple[Callable[[int, int], bool], int], ...]

    def __bool__(self) -> bool:
        return bool(self.words or self.sizes)


def parse(text: str) -> Conditions:
    """Words and sizes of a search.

    Raises:
        QuantityError: if no number of bytes follows ``>`` or ``<``.

    >>> parse("Conv backward > 10 MiB").words, parse(">1KiB").sizes[0][1]
    (('conv', 'backward'), 1024)
    """
    sizes = []
    for sign, size in _SIZE.findall(text):
        if not size:
            raise QuantityError(f'{text!r} compares with nothing; write a size behind {sign}, such as "{sign}10MiB"')
        sizes.append((_COMPARE[sign], parse_bytes(size)))
    return Conditions(tuple(_SIZE.sub(" ", text).casefold().split()), tuple(sizes))


def find(graph: Graph, words: str) -> tuple[int, ...]:
    """The operations, ascending, that every word of ``words`` describes.

    A word is part of the operation's name (which begins with its operator's), of the name of one of its
    implementations or of a value that it writes, or it is the pass, "forward" or "backward". ``>10MiB`` and ``<1KiB``
    compare the bytes of the operation's largest output. No words find nothing.

    Raises:
        QuantityError: if no number of bytes follows ``>`` or ``<``.

    >>> from remat_explorer.instances import linear
    >>> find(linear(2), "backward"), find(linear(2), "v1"), find(linear(2), ">=1B V1"), find(linear(2), " ")
    ((2, 3, 4), (1,), (1,), ())
    """
    asked = parse(words)
    if not asked:
        return ()
    return tuple(k for k, node in enumerate(graph.operations) if _describes(asked, graph, node))


def _describes(asked: Conditions, graph: Graph, node: Operation) -> bool:
    outputs = {v for way in node.implementations for v in way.outputs}
    largest = max((graph.values[v].bytes for v in outputs), default=0)
    if not all(compare(largest, size) for compare, size in asked.sizes):
        return False
    names = [node.name, node.phase, *(way.name for way in node.implementations if len(node.implementations) > 1)]
    names += [graph.values[v].name for v in outputs]
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
