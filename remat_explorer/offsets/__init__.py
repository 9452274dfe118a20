"""Offsets: where each value of a plan lies in one block of memory, its arena.

This is dynamic storage allocation: a value is a rectangle, as long as it is in memory and as high as its bytes are
many. No two overlap, and the arena is to be as low as it can be; the most bytes at a time are a bound.

- `rectangles`: those of a plan
- `canonical_search`, `search_state`: first fit; offsets within a capacity, or the proof that there are none; compiled
- `placement`: both, for rectangles that are connected in time and then for all, with a clock
- `check`: what every arena passes before anyone sees it
"""

from remat_explorer.offsets.placement import (
    ALIGNMENT,
    Arena,
    load_offset_search,
    place,
    place_at_once,
    place_rectangles,
    predict_pool,
)
from remat_explorer.offsets.rectangles import Rectangles
