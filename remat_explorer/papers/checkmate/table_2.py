"""Checkmate's Table 2: cost of the approximations over the optimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.papers.checkmate.approximation import (
    FIRST,
    METHODS,
    ROUNDING,
    ApproximationComparison,
    ApproximationLimits,
    Ratios,
    compare,
    count,
)
from remat_explorer.papers.drawing import bars
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.layer_rules import moves_charged
from remat_explorer.papers.networks import LAYERS, layer_graph

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Jain et al., Checkmate (MLSys 2020), Table 2; None where the paper has no figure.
PUBLISHED: dict[str, dict[str, float | None]] = {
    "MobileNet": {"ap-sqrt-n": 1.14, "ap-greedy": 1.07, "griewank": 7.07, ROUNDING: 1.06},
    "VGG16": {"ap-sqrt-n": 1.28, "ap-greedy": 1.06, "griewank": 1.44, ROUNDING: 1.01},
    "VGG19": {"ap-sqrt-n": 1.54, "ap-greedy": 1.39, "griewank": 1.75, ROUNDING: 1.00},
    "U-Net": {"ap-sqrt-n": 1.27, "ap-greedy": 1.23, "griewank": None, ROUNDING: 1.03},
    "ResNet50": {"ap-sqrt-n": 1.20, "ap-greedy": 1.25, "griewank": None, ROUNDING: 1.05},
}
PAPERS_METHODS = ("ap-sqrt-n", "ap-greedy", "griewank", ROUNDING)  # its columns
NAMES: dict[str, str] = dict(
    zip(METHODS, ("AP √n", "AP greedy", "Griewank", "two-phase rounding", "'optimal', its first answer"), strict=True)
)
NETWORKS: dict[Settings, tuple[str, ...]] = {"small": ("VGG16", "VGG19"), "full": tuple(PUBLISHED)}
CHARGED: dict[Settings, tuple[str, ...]] = {"small": ("VGG16",), "full": tuple(PUBLISHED)}
FRACTIONS: dict[Settings, list[float]] = {"small": [0.1, 0.4, 0.7], "full": [0.05, 0.1, 0.2, 0.4, 0.7, 0.9]}
LIMITS = {"small": ApproximationLimits(5.0, 10.0), "full": ApproximationLimits(10.0, 300.0)}


def table_2(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Geometric means across budgets; the batch does not matter, as budgets grow with it."""
    return run(NETWORKS[settings], layer_graph, settings, progress, cancelled)


def table_2_moves_charged(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The same where pooling, padding and concatenation cost what they move."""
    return run(CHARGED[settings], lambda name: moves_charged(layer_graph(name)), settings, progress, cancelled)


def run(
    networks: Sequence[str],
    graph_of: Callable[[str], Graph],
    settings: Settings,
    progress: Tell,
    cancelled: Cancelled,
) -> Outcome:
    """Every method on each network, within the limits of the settings."""
    rows: list[dict[str, Any]] = []
    for name in networks:
        if cancelled():
            break
        progress(f"{name}: the first budget")
        comparison = compare(graph_of(name), FRACTIONS[settings], LIMITS[settings], progress, cancelled)
        rows += _rows(name, comparison)
    return outcome_of(rows, complete=len(rows) == len(networks) * len(METHODS) and not cancelled())


def measured_before(details: Sequence[dict[str, Any]]) -> Outcome:
    """The outcome of an earlier measurement.

    Args:
        details: of the file that ``benchmarks/approximation.py`` writes, one entry for each network.
    """
    names = {file: name for name, file in LAYERS.items()}
    rows: list[dict[str, Any]] = []
    for entry in details:
        ratios = {name: Ratios() for name in METHODS}
        for point in entry["points"]:
            count(ratios, point["costs"], point["cheapest"])
        rows += _rows(names[entry["graph"]], ApproximationComparison(entry["points"], ratios, entry["proven"]))
    return outcome_of(rows, complete=len(rows) == len(PUBLISHED) * len(METHODS))


def outcome_of(rows: list[dict[str, Any]], complete: bool) -> Outcome:
    """The outcome of rows, one for each network and method."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    return Outcome(words(rows, "full"), tuple(rows), lambda: _draw(rows, networks), complete)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The means of every method; see `Item.words`."""
    if not rows:
        return "Nothing was solved."
    parts = []
    for network in dict.fromkeys(row["network"] for row in rows):
        means = {row["method"]: row for row in rows if row["network"] == network}
        told = ", ".join(_mean(means[method]) for method in PAPERS_METHODS)
        proven = f"optimum proven at {means[FIRST]['optimum proven']} of {means[FIRST]['budgets']}"
        parts.append(f"{network} {told}; {NAMES[FIRST]}, {_mean(means[FIRST])} ({proven})")
    names = ", ".join(NAMES[method] for method in PAPERS_METHODS)
    return f"Cost over the cheapest known, in FLOPs, with the budgets that were met, {names}: {'. '.join(parts)}."


def _rows(network: str, comparison: ApproximationComparison) -> list[dict[str, Any]]:
    return [
        {"network": network, "method": method, "ratio": ratio.mean, "budgets with a schedule": len(ratio.found)}
        | {"budgets": len(comparison.points), "not in time": ratio.late, "refused": ratio.refused}
        | {"optimum proven": comparison.proven, "published": PUBLISHED[network].get(method)}
        for method, ratio in comparison.ratios.items()
    ]


def _mean(row: Mapping[str, Any]) -> str:
    late = f"{row['not in time']} not in time" if row["not in time"] else ""
    if row["ratio"] is None:
        return f"none ({late})" if late else "none"
    return f"{row['ratio']:.3f} at {row['budgets with a schedule']}{f' ({late})' if late else ''}"


def _draw(rows: list[dict[str, Any]], networks: list[str]) -> Figure:
    by_network = [
        {"network": name} | {row["method"]: row["ratio"] for row in rows if row["network"] == name} for name in networks
    ]
    figure = bars(by_network, "network", NAMES, "cost over the optimum")
    return figure.update_yaxes(range=[0.9, None])


ITEM = Item(
    key="checkmate-table-2",
    paper="Checkmate",
    place="Table 2",
    title="approximations over the optimum",
    notebook="05_heuristics_and_rounding.ipynb",
    function="rx.solve",
    test="tests/papers/test_items.py",
    published="AP √n, AP greedy, Griewank, two-phase rounding: MobileNet 1.14, 1.07, 7.07, 1.06, VGG16 1.28, 1.06, "
    "1.44, 1.01, VGG19 1.54, 1.39, 1.75, 1.00, U-Net 1.27, 1.23, none, 1.03, ResNet-50 1.20, 1.25, none, 1.05 (Table "
    "2); two-phase rounding at most 1.06 (section 6.5)",
    remark="The paper's ratios are in FLOPs, too, as section 6.5 says; by the authors' program they may be in a V100's "
    "milliseconds. The paper does not print its budgets, so means need not agree; two do. The order is another where "
    "Griewank is close to the optimum (VGG16, VGG19), and on U-Net and ResNet-50. Here pooling and concatenation cost "
    "nothing. On U-Net the linear program then keeps small fractions of many values, rounding drops them, and what is "
    "computed again needs more memory than there is: few roundings fit. Its linear program had 100 s for each budget. "
    "A mean is over the budgets that a method meets, so means of one row are over different ones.",
    compute=table_2,
    words=words,
)

ITEM_MOVES_CHARGED = Item(
    key="checkmate-table-2-moves-charged",
    paper="Checkmate",
    place="Table 2, moves charged",
    title="approximations over the optimum, where pooling and concatenation cost what they move",
    notebook="05_heuristics_and_rounding.ipynb",
    function="rx.solve",
    test="tests/papers/test_items.py",
    published=ITEM.published.partition("; ")[0],
    remark="One operation for each element that is read or written, added to the FLOPs, and twice that for the "
    "gradient. The linear program had 300 s for each budget in place of 100; all else is as in Table 2. The order of "
    "MobileNet's and U-Net's methods is the published one, that of VGG16's and VGG19's but for Griewank; on ResNet-50 "
    "AP greedy is ahead of AP √n, with means over different budgets.",
    compute=table_2_moves_charged,
    words=words,
)
