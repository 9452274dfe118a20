"""Checkmate's Table 2: cost of the approximations over the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
NETWORKS: dict[Settings, tuple[str, ...]] = {"small": ("VGG16", "VGG19"), "full": tuple(PUBLISHED)}
FRACTIONS: dict[Settings, list[float]] = {"small": [0.1, 0.4, 0.7], "full": [0.05, 0.1, 0.2, 0.4, 0.7, 0.9]}
LIMITS = {"small": ApproximationLimits(5.0, 10.0), "full": ApproximationLimits(10.0, 100.0)}


def table_2(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Geometric means across budgets; the batch does not matter, as budgets grow with it."""
    rows: list[dict[str, Any]] = []
    for name in NETWORKS[settings]:
        if cancelled():
            break
        progress(f"{name}: the first budget")
        comparison = compare(layer_graph(name), FRACTIONS[settings], LIMITS[settings], progress, cancelled)
        rows += _rows(name, comparison)
    return outcome_of(rows, complete=len(rows) == len(NETWORKS[settings]) * len(METHODS) and not cancelled())


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
    parts = []
    for network in networks:
        means = {row["method"]: row for row in rows if row["network"] == network}
        parts.append(f"{network} {_mean(means[ROUNDING])} (first answer {_mean(means[FIRST])})")
    result = f"Two-phase rounding over the optimum, FLOP costs: {', '.join(parts)}." if parts else "Nothing was solved."
    return Outcome(result, tuple(rows), lambda: _draw(rows, networks), complete)


def _rows(network: str, comparison: ApproximationComparison) -> list[dict[str, Any]]:
    return [
        {"network": network, "method": method, "ratio": ratio.mean, "budgets with a schedule": len(ratio.found)}
        | {"budgets": len(comparison.points), "not in time": ratio.late, "refused": ratio.refused}
        | {"optimum proven": comparison.proven, "published": PUBLISHED[network].get(method)}
        for method, ratio in comparison.ratios.items()
    ]


def _mean(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return "none"
    return f"{row['ratio']:.3f} in {row['budgets with a schedule']} of {row['budgets']}"


def _draw(rows: list[dict[str, Any]], networks: list[str]) -> Figure:
    by_network = [
        {"network": name} | {row["method"]: row["ratio"] for row in rows if row["network"] == name} for name in networks
    ]
    figure = bars(by_network, "network", {method: method for method in METHODS}, "cost over the optimum")
    return figure.update_yaxes(range=[0.9, None])


ITEM = Item(
    key="checkmate-table-2",
    paper="Checkmate",
    place="Table 2",
    title="approximations over the optimum",
    notebook="05_heuristics_and_rounding.ipynb",
    function="rx.solve",
    test="tests/papers/test_items.py",
    published="two-phase rounding 1.06 (MobileNet), 1.01 (VGG16), 1.00 (VGG19), 1.03 (U-Net), 1.05 (ResNet-50)",
    remark="The paper does not print its budgets, so no mean can agree to the digit. Here pooling and concatenation "
    "cost nothing; the linear program keeps them by halves, and rounding drops them: few of U-Net's roundings fit.",
    compute=table_2,
)
