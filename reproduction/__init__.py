"""Figures, tables and numbers of both papers, regenerated with `remat_explorer`; in the repository, not in the package.

Read `item` first, then `items`, their list. A file of items is called by its paper and its subject; the graphs that
they run on are in `layer_graphs` and `p100`. `judge` compares every method with what is proven at its own peak, and
`arena_page` shows that; `transfer_map` shows where sending values to the host pays. `python -m reproduction` is the
command.

>>> from reproduction import ITEMS
>>> outcome = ITEMS["checkmate-appendix-a"].run("small")
>>> print(outcome.result)
Eight layers, budget 4: the optimum 26 over the linear programs' 22 with stages and 1.206107 without is 1.18 and 21.56.
"""

from reproduction.item import PAPERS, Item, Outcome
from reproduction.items import ITEMS, find_item, full_result

__all__ = ["ITEMS", "PAPERS", "Item", "Outcome", "find_item", "full_result"]
