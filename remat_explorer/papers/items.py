"""All items by key, in the papers' order."""

from __future__ import annotations

from remat_explorer.errors import UnknownNameError
from remat_explorer.papers import (
    checkmate_appendix_a,
    checkmate_figure_1,
    checkmate_figure_3,
    checkmate_figure_5,
    checkmate_figure_6,
    checkmate_figure_7,
    checkmate_figure_8,
    checkmate_section_4_6,
    checkmate_table_1,
    checkmate_table_2,
    monet_figure_3,
    monet_figure_4,
    monet_figure_5,
    monet_figure_6,
    monet_figure_7,
    monet_table_1,
)
from remat_explorer.papers.item import Item

ITEMS: dict[str, Item] = {
    item.key: item
    for item in (
        checkmate_figure_1.ITEM,
        checkmate_figure_3.ITEM,
        checkmate_table_1.ITEM,
        checkmate_section_4_6.ITEM,
        checkmate_table_2.ITEM,
        checkmate_figure_5.ITEM,
        checkmate_figure_6.ITEM,
        checkmate_figure_7.ITEM,
        checkmate_figure_8.ITEM,
        checkmate_appendix_a.ITEM,
        monet_table_1.ITEM,
        monet_figure_3.ITEM,
        monet_figure_4.ITEM,
        monet_figure_5.ITEM,
        monet_figure_6.ITEM,
        monet_figure_7.ITEM,
    )
}


def find_item(key: str) -> Item:
    """The item called ``key``.

    Raises:
        UnknownNameError: if there is none; near matches are listed.

    >>> find_item("monet-table-1").name
    'MONeT, Table 1'
    """
    if key not in ITEMS:
        raise UnknownNameError("item of the papers", key, ITEMS)
    return ITEMS[key]
