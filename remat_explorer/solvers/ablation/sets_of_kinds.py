"""Sets of kinds of implementations that an ablation compares, and their names.

A *set* is a tuple of kinds in the order of the ablation; the empty one allows default implementations only.
"""

from __future__ import annotations

Kinds = tuple[str, ...]
NONE, ALL = "none", "all"


def sets_of(kinds: Kinds) -> tuple[Kinds, ...]:
    """No kind, each alone, and all together, each set once.

    >>> sets_of(("masks", "lean")), sets_of(())
    (((), ('masks',), ('lean',), ('masks', 'lean')), ((),))
    """
    return tuple(dict.fromkeys([(), *((kind,) for kind in kinds), kinds]))


def called(kinds: Kinds, every: Kinds) -> str:
    """What a set of kinds is called among all kinds.

    >>> called((), ("masks", "lean")), called(("masks", "lean"), ("masks", "lean")), called(("lean",), ("lean",))
    ('none', 'all', 'lean')
    """
    return NONE if not kinds else ALL if kinds == every and len(kinds) > 1 else ", ".join(kinds)
