"""MONeT's Figure 6 on captured graphs: what each kind of implementations here brings alone, and all together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.monet.networks import NETWORKS, PUBLISHED, by_network, choice_graph, overhead_curves
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.solvers import ablation, checkpoint_all_peak
from remat_explorer.solvers.ablation.ablation_result import ALL, NONE, Ablation, called

SHARES: dict[Settings, tuple[float, ...]] = {"small": (0.8, 0.65), "full": (0.8, 0.65, 0.5, 0.4, 0.3)}
SECONDS = {"small": 1.0, "full": 20.0}
KINDS: dict[Settings, tuple[str, ...] | None] = {"small": ("masks", "output-activated", "chunks"), "full": None}


def figure_6_roofline(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """No kind, each alone, and all together, at every budget."""
    rows: list[dict[str, Any]] = []
    for name in NETWORKS[settings]:
        if cancelled():
            break
        progress(f"capturing {name}")
        graph = choice_graph(name, settings)
        peak = checkpoint_all_peak(graph)
        table = ablation(
            graph,
            [int(share * peak) for share in SHARES[settings]],
            KINDS[settings],
            time_limit=SECONDS[settings],
            on_progress=lambda done, name=name: progress(f"{name}: {done}"),
            cancelled=cancelled,
        )
        rows += rows_of(table)
    complete = {row["network"] for row in rows} == set(NETWORKS[settings]) and not cancelled()
    return outcome_of(rows, complete)


def rows_of(ablation: Ablation) -> list[dict[str, Any]]:
    """One row for each set of kinds and budget that was reached."""
    graph, peak = ablation.graph, checkpoint_all_peak(ablation.graph)
    rows: list[dict[str, Any]] = []
    for (kinds, budget), solution in ablation.solutions.items():
        overhead = None if solution.cost is None else solution.cost / graph.total_cost
        row = {"network": graph.name, "group": called(kinds, ablation.kinds), "share": round(budget / peak, 3)}
        row |= {"overhead": overhead, "peak": solution.peak, "gap": solution.gap}
        rows.append(row | {"status": str(solution.status)})
    return rows


def measured_before(details: Mapping[str, Any]) -> Outcome | None:
    """The outcome of an earlier measurement, or None where it holds nothing of the figure.

    Args:
        details: of the file that ``benchmarks/monet.py`` writes.
    """
    rows: list[dict[str, Any]] = []
    for name in PUBLISHED:
        for point in details.get(f"roofline/{name}", {}).get("figure6", {}).get("points", []):
            for group, entry in point["groups"].items():
                above = entry.get("overhead")  # the benchmark writes what comes on top
                row = {"network": name, "group": group, "share": point["share"]}
                row |= {"overhead": None if above is None else 1 + above}
                rows.append(row | {key: entry.get(key) for key in ("peak", "gap", "status")})
    return outcome_of(rows, complete=len({row["network"] for row in rows}) == len(PUBLISHED)) if rows else None


def outcome_of(rows: list[dict[str, Any]], complete: bool) -> Outcome:
    """The outcome of rows, one for each network, group and budget."""
    return overhead_curves(rows, "group", words, complete)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings = "full") -> str:
    """No kind, the best one, and all together where they bring most, network by network; see `Item.words`."""
    return by_network(rows, _sentence)


def _sentence(network: str, rows: Sequence[Mapping[str, Any]]) -> str:
    by_share: dict[float, dict[str, float]] = {}
    for row in rows:
        overhead = math.inf if row["overhead"] is None else row["overhead"]
        by_share.setdefault(row["share"], {})[row["group"]] = overhead
    told = {share: overheads for share, overheads in by_share.items() if overheads.get(ALL, math.inf) < math.inf}
    if not told:
        return f"{network}: no schedule at these budgets."
    share = max(told, key=lambda share: told[share].get(NONE, math.inf) - told[share][ALL])
    alone = {group: cost for group, cost in told[share].items() if group not in (NONE, ALL)}
    best = min(alone, key=lambda group: alone[group], default=NONE)
    words = [f"{group} {_told(told[share].get(group, math.inf))}" for group in (NONE, best, ALL)]
    if alone and math.isinf(alone[best]):
        words[1] = "no single kind has one"
    gap = next(row["gap"] for row in rows if (row["share"], row["group"]) == (share, ALL))
    words[-1] += " (no bound)" if gap is None else f" (gap {format_share(gap)})"
    return f"{network} at {share:.0%} of plain execution's memory: {', '.join(words)}."


def _told(overhead: float) -> str:
    return "no schedule" if math.isinf(overhead) else format_overhead(overhead)


ITEM = Item(
    key="monet-figure-6-by-a-roofline",
    paper="MONeT",
    place="Figure 6, by a roofline",
    title="ablation of this project's kinds of implementations",
    notebook="08_operator_implementations.ipynb",
    function="rx.ablation",
    test="tests/papers/test_items.py",
    published="without any choice it is generally slower than with one kind (appendix D); algorithms of convolutions "
    "and output-activated ones both matter, but MobileNet-V2 gains little from algorithms (appendix D); for "
    "memory-intensive networks intermediate-activated ones matter more (section 5); all together cost least at every "
    "memory (appendix D)",
    remark="By the kinds of implementations here, which are not the paper's groups. One of its groups is missing, "
    "algorithms of convolutions, since published rates cannot tell them apart. The memory is the one at which all "
    "kinds bring most; of single kinds the best is named.",
    compute=figure_6_roofline,
    words=words,
)
