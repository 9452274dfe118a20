"""MONeT's Figure 4: the ablation at memory ratio 0.53, on what its authors measured on a P100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from remat_explorer.papers.drawing import bars
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.monet.modes import (
    CHOOSING,
    PUBLISHED,
    found_before,
    is_published,
    planned,
    rows_of,
    search,
    told,
)
from remat_explorer.papers.monet.networks import by_network
from remat_explorer.papers.p100 import MODES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NETWORKS: dict[Settings, tuple[str, ...]] = {"small": ("vgg16",), "full": ("resnet50", "googlenet", "vgg16")}
BUDGET = 8.0  # GiB, of which section 5 speaks; 0.53 of PyTorch's memory of ResNet-50
SECONDS = {"small": 1.5, "full": 60.0}


def figure_4(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Every mode on each network at 8 GiB."""
    networks = NETWORKS[settings]
    rows = rows_of(networks, [BUDGET], [BUDGET], search(SECONDS[settings], progress, cancelled))
    return outcome_of(rows, settings, complete=_is_complete(rows, settings) and not cancelled())


def measured_before(details: Mapping[str, Any]) -> Outcome:
    """The outcome of an earlier measurement.

    Args:
        details: of the file that ``benchmarks/monet_p100.py`` writes.
    """
    rows = rows_of(NETWORKS["full"], [BUDGET], [BUDGET], partial(found_before, details))
    return outcome_of(rows, "full", _is_complete(rows, "full"))


def _is_complete(rows: Sequence[Mapping[str, Any]], settings: Settings) -> bool:
    return sum(not is_published(row) for row in rows) == planned(NETWORKS[settings], [BUDGET])


def outcome_of(rows: list[dict[str, Any]], settings: Settings, complete: bool) -> Outcome:
    """The outcome of rows, one for each network, mode and source."""
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(rows), complete)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """Each mode's overhead, network by network; see `Item.words`."""
    networks = by_network(rows, lambda network, mine: f"{network}: {told(mine, BUDGET)}.")
    return f"At {BUDGET:g} GiB, costs measured on a P100, over the time of plain PyTorch. {networks}"


def _draw(rows: list[dict[str, Any]]) -> Figure:
    heights: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["overhead"] is not None:
            entry = heights.setdefault(row["network"], {"network": row["network"]})
            entry[row["group"]] = 100 * (row["overhead"] - 1)
    named = [(group, group + PUBLISHED) if mode in CHOOSING else (group,) for mode, group in MODES.items()]
    columns = {name: name for names in named for name in names}
    return bars(list(heights.values()), "network", columns, "overhead over PyTorch (%)")


ITEM = Item(
    key="monet-figure-4",
    paper="MONeT",
    place="Figure 4",
    title="ablation at memory ratio 0.53",
    notebook="08_operator_implementations.ipynb",
    function="rx.solve",
    test="tests/papers/test_p100.py",
    published="lowest compute overhead only when all optimizations are jointly optimized (Figure 4); at a budget of "
    "8 GiB, schedules without joint algorithms with algorithms chosen greedily afterwards (section 5); joint "
    "algorithms improve the time significantly in all cases (section 5)",
    remark="On the authors' own times and workspaces of a P100, with the time of plain PyTorch that their objectives "
    "and measured overheads imply. 8 GiB are 0.53 of PyTorch's memory of ResNet-50, 0.54 of GoogLeNet's and "
    "0.57 of VGG-16's. Their objectives, after up to a day, are over that time, too; of runs without joint algorithms "
    "no objective with the algorithms chosen afterwards is published. Gaps are of the search before that. Modes are "
    "not nested: conv-optimized has ReLU go backward from its output, too, and what is chosen after the search may "
    "reverse their order, as it does on U-Net in Figure 6.",
    compute=figure_4,
    words=words,
)
