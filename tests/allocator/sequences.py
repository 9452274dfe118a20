"""Sequences of requests with what PyTorch's caching allocator does, derived by hand from its rules.

A step is ``"a = 3 MiB"`` (allocate), ``"free a"`` or ``"empty"`` (give cached segments back). Behind it stand the bytes
that are allocated and reserved then; ``places`` are the offsets of blocks from the lowest address, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_explorer.allocator import AllocatorSettings

K, M = 1 << 10, 1 << 20
PLAIN = AllocatorSettings()
EXPANDABLE = AllocatorSettings(expandable_segments=True)


@dataclass(frozen=True)
class Sequence:
    """Steps, each with allocated and reserved bytes after it."""

    name: str
    steps: list[tuple[str, int, int]]
    settings: AllocatorSettings = PLAIN
    places: dict[str, int] = field(default_factory=dict)
    retries: int = 0


SEQUENCES = [
    # 1 byte rounds up to 512. The small pool takes a segment of 2 MiB.
    Sequence("one byte is a block of 512 bytes", [("a = 1", 512, 2 * M)]),
    # 512 is a multiple of 512 and stays; 513 rounds up to 1024. Both are split off the front of one 2 MiB segment.
    Sequence(
        "513 bytes are a block of 1024 bytes",
        [("a = 512", 512, 2 * M), ("b = 513", 1536, 2 * M)],
        places={"a": 0, "b": 512},
    ),
    # 1 MiB is the largest small request: 2 MiB segment. The 1 MiB that is left serves the second one exactly.
    Sequence(
        "1 MiB is small, and two of them fill a segment",
        [("a = 1 MiB", M, 2 * M), ("b = 1 MiB", 2 * M, 2 * M)],
        places={"a": 0, "b": M},
    ),
    # 1 MiB + 1 rounds up to 1 MiB + 512, which is large. It is below 10 MiB: a segment of 20 MiB.
    Sequence("one byte above 1 MiB is large", [("a = 1 MiB + 1", M + 512, 20 * M)]),
    # A free block of the large pool, here 18 MiB, does not serve a small request.
    Sequence(
        "small requests do not use the large pool",
        [("a = 2 MiB", 2 * M, 20 * M), ("b = 512", 2 * M + 512, 22 * M)],
    ),
    # 10 MiB - 512 is below 10 MiB: 20 MiB segment, of which 10 MiB + 512 are split off (more than 1 MiB).
    Sequence("just below 10 MiB takes 20 MiB", [("a = 10 MiB - 512", 10 * M - 512, 20 * M)]),
    # 10 MiB is not below 10 MiB: rounded up to a multiple of 2 MiB, which it is.
    Sequence("10 MiB takes 10 MiB", [("a = 10 MiB", 10 * M, 10 * M)]),
    # 10 MiB + 1 is a block of 10 MiB + 512 in a segment of 12 MiB. 2 MiB - 512 are left, more than 1 MiB: split off.
    # They serve 1.5 MiB; then 0.5 MiB - 512 would be left, not more than 1 MiB: b gets all 2 MiB - 512.
    Sequence(
        "10 MiB + 1 takes 12 MiB, and the rest is used",
        [("a = 10 MiB + 1", 10 * M + 512, 12 * M), ("b = 1536 KiB", 12 * M, 12 * M)],
        places={"a": 0, "b": 10 * M + 512},
    ),
    # A block of 11 MiB in a segment of 12 MiB leaves 1 MiB, which is not more than 1 MiB: a gets all 12 MiB.
    Sequence("a rest of 1 MiB stays with a large block", [("a = 11 MiB", 12 * M, 12 * M)]),
    # A block of 11 MiB - 512 leaves 1 MiB + 512: split off.
    Sequence("a rest above 1 MiB is split off", [("a = 11 MiB - 512", 11 * M - 512, 12 * M)]),
    # In the small pool 512 bytes are split off: 1 MiB and 1 MiB - 512 leave 512 bytes, which serve c.
    Sequence(
        "a rest of 512 bytes is split off in the small pool",
        [("a = 1 MiB", M, 2 * M), ("b = 1 MiB - 512", 2 * M - 512, 2 * M), ("c = 100", 2 * M, 2 * M)],
        places={"c": 2 * M - 512},
    ),
    # What is freed is kept, and serves the next request of the size without the driver.
    Sequence(
        "a freed block is used again",
        [("a = 30 MiB", 30 * M, 30 * M), ("free a", 0, 30 * M), ("b = 30 MiB", 30 * M, 30 * M)],
        places={"b": 0},
    ),
    # A free block of 30 MiB serves 12 MiB: 18 MiB are split off, and serve c. Both from one segment.
    Sequence(
        "a larger cached block is split",
        [
            ("a = 30 MiB", 30 * M, 30 * M),
            ("free a", 0, 30 * M),
            ("b = 12 MiB", 12 * M, 30 * M),
            ("c = 18 MiB", 30 * M, 30 * M),
        ],
        places={"b": 0, "c": 12 * M},
    ),
    # Three neighbours of 6 MiB in one 20 MiB segment (2 MiB are left). Freed in the order a, c, b they join: with the
    # 2 MiB c is 8 MiB, with b in between all are 20 MiB, which serve 20 MiB.
    Sequence(
        "freed neighbours join on both sides",
        [
            ("a = 6 MiB", 6 * M, 20 * M),
            ("b = 6 MiB", 12 * M, 20 * M),
            ("c = 6 MiB", 18 * M, 20 * M),
            ("free a", 12 * M, 20 * M),
            ("free c", 6 * M, 20 * M),
            ("free b", 0, 20 * M),
            ("d = 20 MiB", 20 * M, 20 * M),
        ],
        places={"d": 0},
    ),
    # Free blocks of 40 MiB (first) and 14 MiB (second): 13 MiB fit both, and the smaller one serves them. Its rest of
    # 1 MiB is not split off. 14 MiB + 512 then fit the larger one only.
    Sequence(
        "the smallest block that is large enough serves",
        [
            ("a = 40 MiB", 40 * M, 40 * M),
            ("b = 14 MiB", 54 * M, 54 * M),
            ("free a", 14 * M, 54 * M),
            ("free b", 0, 54 * M),
            ("c = 13 MiB", 14 * M, 54 * M),
            ("d = 14 MiB + 512", 28 * M + 512, 54 * M),
        ],
        places={"c": 40 * M, "d": 0},
    ),
    # Two free blocks of 12 MiB: the one with the lower address serves, whichever was freed last.
    Sequence(
        "of equal blocks the lowest address serves",
        [
            ("a = 12 MiB", 12 * M, 12 * M),
            ("b = 12 MiB", 24 * M, 24 * M),
            ("free a", 12 * M, 24 * M),
            ("free b", 0, 24 * M),
            ("c = 12 MiB", 12 * M, 24 * M),
        ],
        places={"c": 0},
    ),
    # Four blocks of 5 MiB fill a segment. Freeing the first and the third leaves 10 MiB, in two parts of 5: a request
    # of 10 MiB needs a segment of its own. 20 MiB are allocated, 30 reserved.
    Sequence(
        "free parts that are not neighbours do not serve",
        [
            ("a = 5 MiB", 5 * M, 20 * M),
            ("b = 5 MiB", 10 * M, 20 * M),
            ("c = 5 MiB", 15 * M, 20 * M),
            ("d = 5 MiB", 20 * M, 20 * M),
            ("free a", 15 * M, 20 * M),
            ("free c", 10 * M, 20 * M),
            ("e = 10 MiB", 20 * M, 30 * M),
        ],
    ),
    # Two segments that lie side by side are two: 12 MiB and 12 MiB free do not serve 24 MiB.
    Sequence(
        "segments do not join",
        [
            ("a = 12 MiB", 12 * M, 12 * M),
            ("b = 12 MiB", 24 * M, 24 * M),
            ("free a", 12 * M, 24 * M),
            ("free b", 0, 24 * M),
            ("c = 24 MiB", 24 * M, 48 * M),
        ],
    ),
    # Only segments that are free as a whole go back: that of a does, that of b, of which 2 MiB are used, does not.
    Sequence(
        "emptying the cache keeps segments in use",
        [
            ("a = 30 MiB", 30 * M, 30 * M),
            ("b = 2 MiB", 32 * M, 50 * M),
            ("free a", 2 * M, 50 * M),
            ("empty", 2 * M, 20 * M),
        ],
    ),
    # The driver has 60 MiB. 40 are cached, and 30 MiB would be served from them; 50 MiB are not, and the driver has
    # 20 left. The cached segment goes back, and the second try gets 50 MiB.
    Sequence(
        "cached segments go back when the driver has too little",
        [("a = 40 MiB", 40 * M, 40 * M), ("free a", 0, 40 * M), ("b = 50 MiB", 50 * M, 50 * M)],
        AllocatorSettings(capacity=60 * M),
        retries=1,
    ),
    # Blocks of at least 32 MiB are not split, nor given to smaller requests: 40 MiB are free, and 30 MiB come from
    # the driver. 36 MiB waste 4 MiB of it, less than 20: they get it whole.
    Sequence(
        "oversize blocks are neither split nor given to smaller requests",
        [
            ("a = 40 MiB", 40 * M, 40 * M),
            ("free a", 0, 40 * M),
            ("b = 30 MiB", 30 * M, 70 * M),
            ("c = 36 MiB", 70 * M, 70 * M),
        ],
        AllocatorSettings(max_split_size=32 * M),
    ),
    # 60 MiB are free, and 40 MiB would waste 20 MiB of them, not less than 20: they come from the driver.
    Sequence(
        "an oversize request does not waste 20 MiB",
        [("a = 60 MiB", 60 * M, 60 * M), ("free a", 0, 60 * M), ("b = 40 MiB", 40 * M, 100 * M)],
        AllocatorSettings(max_split_size=32 * M),
    ),
    # The driver has 100 MiB: 60 and 34 MiB are free, and it has 6. For 40 MiB the smallest oversize segment of at
    # least 40 MiB goes back, which is that of 60; that of 34 stays. There is no retry that empties the cache.
    Sequence(
        "one oversize segment goes back before all do",
        [
            ("a = 60 MiB", 60 * M, 60 * M),
            ("b = 34 MiB", 94 * M, 94 * M),
            ("free a", 34 * M, 94 * M),
            ("free b", 0, 94 * M),
            ("c = 40 MiB", 40 * M, 74 * M),
        ],
        AllocatorSettings(max_split_size=32 * M, capacity=100 * M),
    ),
    # 1 MiB + 512 needs 1 granule of 20 MiB. 30 MiB do not fit into the 19 MiB - 512 behind it, which grow by a granule:
    # 31 MiB + 512 in all are less than 40 MiB. Nothing lies between the two.
    Sequence(
        "an expandable segment grows behind its free end",
        [("a = 1 MiB + 512", M + 512, 20 * M), ("b = 30 MiB", 31 * M + 512, 40 * M)],
        EXPANDABLE,
        places={"a": 0, "b": M + 512},
    ),
    # The small pool grows by 2 MiB. Behind a and b there are 1 MiB - 512 left of the first granule: c gets them, and
    # 512 bytes of a second one.
    Sequence(
        "the small pool grows by 2 MiB",
        [("a = 1 MiB", M, 2 * M), ("b = 512", M + 512, 2 * M), ("c = 1 MiB", 2 * M + 512, 4 * M)],
        EXPANDABLE,
        places={"c": M + 512},
    ),
    # Rests of 512 bytes are split off in the large pool, too: 20 MiB - 512 leave 512.
    Sequence(
        "expandable segments split off small rests",
        [("a = 20 MiB - 512", 20 * M - 512, 20 * M)],
        EXPANDABLE,
    ),
    # a and c (5 MiB each) are free, and d ends where the granule does. 10 MiB get a granule behind it, from 20 MiB on.
    Sequence(
        "free parts that are not neighbours do not serve in an expandable segment either",
        [
            ("a = 5 MiB", 5 * M, 20 * M),
            ("b = 5 MiB", 10 * M, 20 * M),
            ("c = 5 MiB", 15 * M, 20 * M),
            ("d = 5 MiB", 20 * M, 20 * M),
            ("free a", 15 * M, 20 * M),
            ("free c", 10 * M, 20 * M),
            ("e = 10 MiB", 20 * M, 40 * M),
        ],
        EXPANDABLE,
        places={"e": 20 * M},
    ),
    # a is bytes 0 to 50 MiB, b 50 to 60: 3 granules. Free a, and empty the cache: granules 0-20 and 20-40 lie within
    # a and go back, 40-60 holds b. 30 MiB then go to the lowest addresses with room: 0 to 30 get 2 granules again.
    Sequence(
        "granules without use go back, and the lowest addresses get memory again",
        [
            ("a = 50 MiB", 50 * M, 60 * M),
            ("b = 10 MiB", 60 * M, 60 * M),
            ("free a", 10 * M, 60 * M),
            ("empty", 10 * M, 20 * M),
            ("c = 30 MiB", 40 * M, 60 * M),
        ],
        EXPANDABLE,
        places={"b": 50 * M, "c": 0},
    ),
    # The driver has 40 MiB. a has a granule of the large pool, b one of 2 MiB of the small pool, which is free then. c
    # needs another granule: 22 + 20 is too much. The free granule of the small pool goes back, and 20 + 20 is not.
    Sequence(
        "expandable granules go back when the driver has too little",
        [
            ("a = 20 MiB", 20 * M, 20 * M),
            ("b = 1 MiB", 21 * M, 22 * M),
            ("free b", 20 * M, 22 * M),
            ("c = 20 MiB", 40 * M, 40 * M),
        ],
        AllocatorSettings(expandable_segments=True, capacity=40 * M),
        retries=1,
    ),
]
