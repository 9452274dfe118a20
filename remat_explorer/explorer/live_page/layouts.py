"""Where the operations of the model stand in the live page, for each choice of folded blocks that it knows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from remat_explorer.explorer.model_graph.model_view import layout_of
from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import repeated_blocks

FEW = 4  # repeated blocks of which each choice is laid out


def layouts(graph: Graph) -> Iterator[tuple[tuple[int, ...], dict[str, Any], bytes]]:
    """The numbers of the folded blocks, and what `layout_of` says then.

    Of more than `FEW` blocks it is all of them, none, and each one alone folded or unfolded; without any, nothing.

    >>> from remat_explorer.instances import linear
    >>> [(numbers, layout["rows"]) for numbers, layout, _ in layouts(linear(8))]
    [((), 1), ((0,), 1)]
    """
    every = range(len(repeated_blocks(graph)))
    if not every:
        return
    if len(every) <= FEW:
        choices = [numbers for count in range(len(every) + 1) for numbers in combinations(every, count)]
    else:
        single = [tuple(i for i in every if i != number) for number in every]
        choices = [(), tuple(every), *((number,) for number in every), *single]
    for numbers in choices:
        yield (numbers, *layout_of(graph, numbers))
