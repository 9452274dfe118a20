"""Operations and values by number or name."""

from __future__ import annotations

from collections.abc import Sequence

from remat_explorer.errors import UnknownNameError


def place_of(kind: str, given: int | str, names: Sequence[str]) -> int:
    """The number of something given by number or name.

    Args:
        kind: what it is, for the message: "value".
        given: its number or its name.
        names: all of them, in order.

    Raises:
        UnknownNameError: if there is no such name; near ones are listed.

    >>> place_of("value", "v1", ["v0", "v1"]), place_of("value", 0, ["v0", "v1"])
    (1, 0)
    """
    if isinstance(given, str):
        if given not in names:
            raise UnknownNameError(kind, given, names)
        return list(names).index(given)
    return given
