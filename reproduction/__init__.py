"""Figures, tables and numbers of both papers, regenerated.

>>> from reproduction import ITEMS
>>> outcome = ITEMS["checkmate-appendix-a"].run("small")
>>> print(outcome.result)
Eight layers, budget 4: the optimum 26 over the linear programs' 22 with stages and 1.206107 without is 1.18 and 21.56.
"""

from reproduction.item import PAPERS, Item, Outcome
from reproduction.items import ITEMS, find_item, full_result

__all__ = ["ITEMS", "PAPERS", "Item", "Outcome", "find_item", "full_result"]
