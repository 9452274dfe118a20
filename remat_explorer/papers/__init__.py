"""Figures, tables and numbers of both papers, regenerated.

>>> from remat_explorer.papers import ITEMS
>>> outcome = ITEMS["checkmate-appendix-a"].run("small")
>>> print(outcome.result)
Eight layers, budget 4: the optimum 26 over the linear programs' 22 with stages and 1.206107 without is 1.18 and 21.56.
"""

from remat_explorer.papers.full_results import full_result
from remat_explorer.papers.item import PAPERS, Item, Outcome
from remat_explorer.papers.items import ITEMS, find_item

__all__ = ["ITEMS", "PAPERS", "Item", "Outcome", "find_item", "full_result"]
