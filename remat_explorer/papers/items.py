"""All items by key, in the papers' order."""

from __future__ import annotations

from remat_explorer.errors import UnknownNameError
from remat_explorer.papers.checkmate import (
    appendix_a,
    appendix_c,
    figure_1,
    figure_2,
    figure_3,
    figure_4,
    figure_5,
    figure_6,
    figure_7,
    figure_8,
    section_4_6,
    section_5_1,
    table_1,
    table_2,
    talk,
)
from remat_explorer.papers.item import Item
from remat_explorer.papers.monet import figure_3 as monet_figure_3
from remat_explorer.papers.monet import figure_3_roofline as monet_figure_3_roofline
from remat_explorer.papers.monet import figure_4 as monet_figure_4
from remat_explorer.papers.monet import figure_5 as monet_figure_5
from remat_explorer.papers.monet import figure_6 as monet_figure_6
from remat_explorer.papers.monet import figure_6_roofline as monet_figure_6_roofline
from remat_explorer.papers.monet import figure_7 as monet_figure_7
from remat_explorer.papers.monet import solver_time as monet_solver_time
from remat_explorer.papers.monet import table_1 as monet_table_1

ITEMS: dict[str, Item] = {
    item.key: item
    for item in (
        figure_1.ITEM,
        figure_2.ITEM,
        figure_3.ITEM,
        table_1.ITEM,
        figure_4.ITEM,
        section_4_6.ITEM,
        section_5_1.ITEM,
        table_2.ITEM,
        table_2.ITEM_MOVES_CHARGED,
        figure_5.ITEM,
        figure_6.ITEM,
        figure_7.ITEM,
        figure_8.ITEM,
        appendix_a.ITEM,
        appendix_c.ITEM,
        talk.ITEM,
        monet_table_1.ITEM,
        monet_figure_3.ITEM,
        monet_figure_3_roofline.ITEM,
        monet_solver_time.ITEM,
        monet_figure_4.ITEM,
        monet_figure_5.ITEM,
        monet_figure_6.ITEM,
        monet_figure_6_roofline.ITEM,
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
