"""MONeT's Figure 6: the ablation over memory, by the modes of its program, on what was measured on a P100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.monet.modes import (
    CHOOSING,
    PUBLISHED,
    against_published,
    found_before,
    is_published,
    planned,
    rows_of,
    search,
    told,
)
from remat_explorer.papers.monet.networks import by_network, overhead_curves, panels
from remat_explorer.papers.p100 import MODES
from remat_explorer.papers.p100 import NETWORKS as BATCHES
from remat_explorer.quantities import format_share

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NETWORKS: dict[Settings, tuple[str, ...]] = {"small": ("vgg16",), "full": tuple(BATCHES)}
BUDGETS = (10.0, 9.0, 8.0, 7.0, 6.0, 5.5, 5.0)  # GiB, of the published runs
SEARCHED: dict[Settings, tuple[float, ...]] = {"small": (10.0, 8.0), "full": (10.0, 8.0, 6.0)}
SECONDS = {"small": 1.0, "full": 60.0}
TOLD = 8.0


def figure_6(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Every mode on each network, at the published budgets and at those that are searched here."""
    networks, searched = NETWORKS[settings], SEARCHED[settings]
    rows = rows_of(networks, BUDGETS, searched, search(SECONDS[settings], progress, cancelled))
    return outcome_of(rows, complete=_is_complete(rows, settings) and not cancelled())


def measured_before(details: Mapping[str, Any]) -> Outcome:
    """The outcome of an earlier measurement.

    Args:
        details: of the file that ``benchmarks/monet_p100.py`` writes.
    """
    rows = rows_of(NETWORKS["full"], BUDGETS, SEARCHED["full"], partial(found_before, details))
    return outcome_of(rows, _is_complete(rows, "full"))


def _is_complete(rows: Sequence[Mapping[str, Any]], settings: Settings) -> bool:
    return sum(not is_published(row) for row in rows) == planned(NETWORKS[settings], SEARCHED[settings])


def outcome_of(rows: list[dict[str, Any]], complete: bool) -> Outcome:
    """The outcome of rows, one for each network, mode, budget and source."""
    outcome = overhead_curves(rows, "group", words, complete)
    return replace(outcome, draw=lambda: _draw(outcome.rows))


def words(rows: Sequence[Mapping[str, Any]], settings: Settings = "full") -> str:
    """Each mode's overhead at 8 GiB, network by network, and all costs beside the published ones; see `Item.words`."""
    networks = by_network(rows, lambda network, mine: f"{network}: {told(mine, TOLD)}.")
    choosing = {MODES[mode] for mode in CHOOSING}
    parts = []
    for modes, chosen in (("without joint algorithms", False), ("with them", True)):
        good, count, worst = against_published(rows, lambda group, chosen=chosen: (group in choosing) == chosen)
        if count:
            above = "" if good == count else f", at most {format_share(worst)} more at the others"
            parts.append(
                f"{modes} what is found here costs at most the published objective in {good} of {count} runs{above}"
            )
    budgets = sorted({row["budget GiB"] for row in rows if not is_published(row)}, reverse=True)
    searched, beside = ", ".join(f"{budget:g}" for budget in budgets), "; ".join(parts)
    return f"At {TOLD:g} GiB, over plain PyTorch's time on a P100. {networks} At {searched} GiB: {beside}."


def _draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel for each network: a colour for each mode, dotted where it is the published run."""
    from remat_explorer.figures.palette import palette

    hues = dict(zip(MODES.values(), palette("light").hues, strict=False))
    drawn = [row for row in rows if row["overhead"] is not None]
    networks = list(dict.fromkeys(row["network"] for row in drawn))
    titles = {"x_title": "memory (% of PyTorch's)", "y_title": "overhead over PyTorch (%)"}
    figure: Any = panels(drawn, networks, by="group", x="memory in %", y="overhead in %", **titles)
    for trace in figure.data:
        name = str(trace.name)
        look = {"color": hues[name.removesuffix(PUBLISHED)], "dash": "dot" if name.endswith(PUBLISHED) else "solid"}
        trace.update(line=look, marker={"color": look["color"], "size": 7})
    return figure


ITEM = Item(
    key="monet-figure-6",
    paper="MONeT",
    place="Figure 6",
    title="ablation by the modes of its program",
    notebook="08_operator_implementations.ipynb",
    function="rx.solve",
    test="tests/papers/test_p100.py",
    published="without any choice it is generally slower than with one kind (appendix D); algorithms of convolutions "
    "and output-activated ones both matter, but MobileNet-V2 gains little from algorithms (appendix D); "
    "intermediate-activated ones reach memory on VGG-16 that no others reach (appendix D); all together cost least at "
    "every memory (appendix D)",
    remark="As Figure 4, at 10, 8 and 6 GiB, beside the published runs at all their budgets, with 60 s for each "
    "search in place of up to a day. The problem here is wider than theirs: gradients may run again, and what a "
    "recomputation holds is not bounded from above. MobileNet-V2 has no intermediate-activated ones "
    "(appendix D).",
    compute=figure_6,
    words=words,
)
