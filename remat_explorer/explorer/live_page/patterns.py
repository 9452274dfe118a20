"""Texts that differ in their numbers alone, written once, with their numbers in columns, which compress best."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

NUMBER = re.compile(r"(?<!\d)(0|[1-9]\d{0,14})(?!\d)")  # as a browser writes it, too, and that it holds exactly
GAP = "\ue002"  # a character that no text of a model has a use for


def differences(numbers: Iterable[int]) -> list[int]:
    """Each number less the one before it; of numbers that grow evenly little remains.

    >>> differences([5, 7, 9, 9])
    [5, 2, 2, 0]
    """
    before, found = 0, []
    for number in numbers:
        found.append(number - before)
        before = number
    return found


def columns(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Rows of the same length as columns of `differences`; none where there are no rows.

    >>> columns([(0, 3), (602, 5), (603, 6)])
    [[0, 602, 1], [3, 2, 1]]
    """
    return [differences(column) for column in zip(*rows, strict=True)]


def patterns(texts: Iterable[str]) -> dict[str, Any]:
    """Texts as patterns with gaps, which the page fills again.

    Returns:
        The patterns; for each text the number of its pattern; and for each pattern the numbers in its gaps, one column
        for each gap, one row for each text in their order.

    >>> found = patterns(["stage 3 of 8", "stage 5 of 8", "runs once"])
    >>> [pattern.split(GAP) for pattern in found["patterns"]], found["which"], found["columns"]
    ([['stage ', ' of ', ''], ['runs once']], [0, 0, 1], [[[3, 2], [8, 0]], []])
    """
    numbers: dict[str, int] = {}
    which: list[int] = []
    rows: dict[int, list[list[int]]] = defaultdict(list)
    for text in texts:
        parts = NUMBER.split(text.replace(GAP, ""))
        pattern = numbers.setdefault(GAP.join(parts[::2]), len(numbers))
        which.append(pattern)
        rows[pattern].append([int(part) for part in parts[1::2]])
    return {
        "patterns": list(numbers),
        "which": which,
        "columns": [columns(rows[pattern]) for pattern in range(len(numbers))],
    }
