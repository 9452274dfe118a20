"""The part of the matrices on the screen: first and last stage, first and last operation; () is everything."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets as t


def clip(zoom: Sequence[int], stages: int, operations: int) -> tuple[int, ...]:
    """``zoom`` inside the matrices, first before last; () where it shows everything.

    Raises:
        TraitError: if ``zoom`` is neither empty nor four whole numbers.

    >>> clip((80, 40, -3, 999), 354, 354), clip((0, 353, 0, 353), 354, 354), clip((), 354, 354)
    ((40, 80, 0, 353), (), ())
    """
    if len(zoom) == 0:
        return ()
    if len(zoom) != 4 or not all(isinstance(edge, int) and not isinstance(edge, bool) for edge in zoom):
        raise t.TraitError(
            f"{tuple(zoom)!r} is no part of the matrices; expected first and last stage, first and last operation, "
            "such as (40, 80, 40, 80), or () for everything"
        )
    part = (*_inside(zoom[0], zoom[1], stages), *_inside(zoom[2], zoom[3], operations))
    return () if part == (0, stages - 1, 0, operations - 1) else part


def _inside(first: int, last: int, count: int) -> tuple[int, int]:
    first, last = sorted((first, last))
    return max(0, min(first, count - 1)), max(0, min(last, count - 1))


def follow(first: int, last: int, position: int, count: int) -> tuple[int, int]:
    """The range ``first`` to ``last``, moved just so far that it contains ``position``, in 0 to ``count`` - 1.

    >>> follow(40, 80, 81, 354), follow(40, 80, 12, 354), follow(40, 80, 60, 354)
    ((41, 81), (12, 52), (40, 80))
    """
    by = min(0, position - first) + max(0, position - last)
    by = max(-first, min(by, count - 1 - last))
    return first + by, last + by
