"""Sequences of requests with what PyTorch's caching allocator does, derived by hand from its rules.

Amounts are MiB, and bytes where they end with B. A step is "a = 3" (allocate), "free a" or "empty" (give cached
segments back). Behind it stand what is allocated and what is reserved then; ``places`` are the offsets of blocks from
the lowest address, at the end.
"""

from dataclasses import dataclass, field

from remat_explorer.allocator import AllocatorSettings

M = 1 << 20
PLAIN = AllocatorSettings()
EXPANDABLE = AllocatorSettings(expandable_segments=True)


@dataclass(frozen=True)
class Sequence:
    name: str
    steps: str
    settings: AllocatorSettings = PLAIN
    places: dict[str, str] = field(default_factory=dict)
    retries: int = 0


SEQUENCES = [
    # 512 is a multiple of 512 and stays; 513 rounds up to 1024. Both are split off the front of one 2 MiB segment.
    Sequence(
        "513 bytes are a block of 1024 bytes",
        "a = 512 B: 512 B, 2; b = 513 B: 1536 B, 2",
        places={"a": "0", "b": "512 B"},
    ),
    # 1 MiB is the largest small request: 2 MiB segment. The 1 MiB that is left serves the second one exactly.
    Sequence("1 MiB is small, and two of them fill a segment", "a = 1: 1, 2; b = 1: 2, 2", places={"a": "0", "b": "1"}),
    # 1 MiB + 1 rounds up to 1 MiB + 512, which is large. It is below 10 MiB: a segment of 20 MiB. What is free of it
    # does not serve a small request.
    Sequence(
        "one byte above 1 MiB is large, and small requests do not use the large pool",
        "a = 1 + 1 B: 1 + 512 B, 20; b = 512 B: 1 + 1024 B, 22",
    ),
    # 10 MiB - 512 is below 10 MiB: 20 MiB segment, of which 10 MiB + 512 are split off (more than 1 MiB).
    Sequence("just below 10 MiB takes 20 MiB", "a = 10 - 512 B: 10 - 512 B, 20"),
    # 10 MiB + 1 is a block of 10 MiB + 512 in a segment of 12 MiB. 2 MiB - 512 are left, more than 1 MiB: split off.
    # They serve 1.5 MiB; then 0.5 MiB - 512 would be left, not more than 1 MiB: b gets all 2 MiB - 512.
    Sequence(
        "10 MiB + 1 takes 12 MiB, and the rest is used",
        "a = 10 + 1 B: 10 + 512 B, 12; b = 1.5: 12, 12",
        places={"a": "0", "b": "10 + 512 B"},
    ),
    # A block of 11 MiB in a segment of 12 MiB leaves 1 MiB, which is not more than 1 MiB: a gets all 12 MiB. A block of
    # 11 MiB - 512 leaves 1 MiB + 512: split off.
    Sequence(
        "a rest of 1 MiB stays with a large block, and a larger one is split off",
        "a = 11: 12, 12; b = 11 - 512 B: 23 - 512 B, 24",
    ),
    # In the small pool 512 bytes are split off: 1 MiB and 1 MiB - 512 leave 512 bytes, which serve c.
    Sequence(
        "a rest of 512 bytes is split off in the small pool",
        "a = 1: 1, 2; b = 1 - 512 B: 2 - 512 B, 2; c = 100 B: 2, 2",
        places={"c": "2 - 512 B"},
    ),
    # Three neighbours of 6 MiB in one 20 MiB segment (2 MiB are left). Freed in the order a, c, b they join: with the
    # 2 MiB c is 8 MiB, with b in between all are 20 MiB, which serve 20 MiB.
    Sequence(
        "freed neighbours join on both sides",
        "a = 6: 6, 20; b = 6: 12, 20; c = 6: 18, 20; free a: 12, 20; free c: 6, 20; free b: 0, 20; d = 20: 20, 20",
        places={"d": "0"},
    ),
    # Free blocks of 40 MiB (first) and 14 MiB (second): 13 MiB fit both, and the smaller one serves them. Its rest of
    # 1 MiB is not split off. 14 MiB + 512 then fit the larger one only.
    Sequence(
        "the smallest block that is large enough serves",
        "a = 40: 40, 40; b = 14: 54, 54; free a: 14, 54; free b: 0, 54; c = 13: 14, 54; d = 14 + 512 B: 28 + 512 B, 54",
        places={"c": "40", "d": "0"},
    ),
    # Two free blocks of 12 MiB: the one with the lower address serves, whichever was freed last.
    Sequence(
        "of equal blocks the lowest address serves",
        "a = 12: 12, 12; b = 12: 24, 24; free a: 12, 24; free b: 0, 24; c = 12: 12, 24",
        places={"c": "0"},
    ),
    # Four blocks of 5 MiB fill a segment. Freeing the first and the third leaves 10 MiB, in two parts of 5: a request
    # of 10 MiB needs a segment of its own. 20 MiB are allocated, 30 reserved.
    Sequence(
        "free parts that are not neighbours do not serve",
        "a = 5: 5, 20; b = 5: 10, 20; c = 5: 15, 20; d = 5: 20, 20; free a: 15, 20; free c: 10, 20; e = 10: 20, 30",
    ),
    # Two segments that lie side by side are two: 12 MiB and 12 MiB free do not serve 24 MiB.
    Sequence("segments do not join", "a = 12: 12, 12; b = 12: 24, 24; free a: 12, 24; free b: 0, 24; c = 24: 24, 48"),
    # Only segments that are free as a whole go back: that of a does, that of b, of which 2 MiB are used, does not.
    Sequence("emptying the cache keeps segments in use", "a = 30: 30, 30; b = 2: 32, 50; free a: 2, 50; empty: 2, 20"),
    # The driver has 60 MiB. 40 are cached, and 30 MiB would be served from them; 50 MiB are not, and the driver has
    # 20 left. The cached segment goes back, and the second try gets 50 MiB.
    Sequence(
        "cached segments go back when the driver has too little",
        "a = 40: 40, 40; free a: 0, 40; b = 50: 50, 50",
        AllocatorSettings(capacity=60 * M),
        retries=1,
    ),
    # Blocks of at least 32 MiB are not split, nor given to smaller requests: 40 MiB are free, and 30 MiB come from
    # the driver. 36 MiB waste 4 MiB of it, less than 20: they get it whole.
    Sequence(
        "oversize blocks are neither split nor given to smaller requests",
        "a = 40: 40, 40; free a: 0, 40; b = 30: 30, 70; c = 36: 70, 70",
        AllocatorSettings(max_split_size=32 * M),
    ),
    # 60 MiB are free, and 40 MiB would waste 20 MiB of them, not less than 20: they come from the driver.
    Sequence(
        "an oversize request does not waste 20 MiB",
        "a = 60: 60, 60; free a: 0, 60; b = 40: 40, 100",
        AllocatorSettings(max_split_size=32 * M),
    ),
    # The driver has 100 MiB: 60 and 34 MiB are free, and it has 6. For 40 MiB the smallest oversize segment of at
    # least 40 MiB goes back, which is that of 60; that of 34 stays. There is no retry that empties the cache.
    Sequence(
        "one oversize segment goes back before all do",
        "a = 60: 60, 60; b = 34: 94, 94; free a: 34, 94; free b: 0, 94; c = 40: 40, 74",
        AllocatorSettings(max_split_size=32 * M, capacity=100 * M),
    ),
    # 1 MiB + 512 needs 1 granule of 20 MiB. 30 MiB do not fit into the 19 MiB - 512 behind it, which grow by a granule:
    # 31 MiB + 512 in all are less than 40 MiB. Nothing lies between the two.
    Sequence(
        "an expandable segment grows behind its free end",
        "a = 1 + 512 B: 1 + 512 B, 20; b = 30: 31 + 512 B, 40",
        EXPANDABLE,
        places={"a": "0", "b": "1 + 512 B"},
    ),
    # The small pool grows by 2 MiB. Behind a and b there are 1 MiB - 512 left of the first granule: c gets them, and
    # 512 bytes of a second one.
    Sequence(
        "the small pool grows by 2 MiB",
        "a = 1: 1, 2; b = 512 B: 1 + 512 B, 2; c = 1: 2 + 512 B, 4",
        EXPANDABLE,
        places={"c": "1 + 512 B"},
    ),
    # Rests of 512 bytes are split off in the large pool, too: 20 MiB - 512 leave 512.
    Sequence("expandable segments split off small rests", "a = 20 - 512 B: 20 - 512 B, 20", EXPANDABLE),
    # a is bytes 0 to 50 MiB, b 50 to 60: 3 granules. Free a, and empty the cache: granules 0-20 and 20-40 lie within
    # a and go back, 40-60 holds b. 30 MiB then go to the lowest addresses with room: 0 to 30 get 2 granules again.
    Sequence(
        "granules without use go back, and the lowest addresses get memory again",
        "a = 50: 50, 60; b = 10: 60, 60; free a: 10, 60; empty: 10, 20; c = 30: 40, 60",
        EXPANDABLE,
        places={"b": "50", "c": "0"},
    ),
    # The driver has 40 MiB. a has a granule of the large pool, b one of 2 MiB of the small pool, which is free then. c
    # needs another granule: 22 + 20 is too much. The free granule of the small pool goes back, and 20 + 20 is not.
    Sequence(
        "expandable granules go back when the driver has too little",
        "a = 20: 20, 20; b = 1: 21, 22; free b: 20, 22; c = 20: 40, 40",
        AllocatorSettings(expandable_segments=True, capacity=40 * M),
        retries=1,
    ),
]
