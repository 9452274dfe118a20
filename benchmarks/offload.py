"""Keep, compute again, or send to the host: what each choice alone and all together take, and what is proven.

    python benchmarks/offload.py
    python benchmarks/offload.py --cases unet-r8-0.2 gpt2-r1-0.2    (measures these again, and keeps the others)
    python benchmarks/offload.py --rules                            (of what is kept, the rules of others alone)

Copies take 10 µs and their bytes at 25 GB/s each way. At the rate r1, costs are those of the files (10 TFLOP/s); at r8,
arithmetic is eight times as fast, and what is bound by memory is not. A budget is Bop + f (peak - Bop): the largest
operation, and a share of what lies between it and keeping everything. Ratios are to computing everything once. Times
are predicted; no GPU has run these plans. Target: `offload` is never worse than either choice alone.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from report import RESULTS, publish

import remat_explorer as rx
from remat_explorer.graph import Graph
from remat_explorer.solvers import checkpoint_all_peak, largest_operation
from remat_explorer.solvers.search.compilation import warm_up

DATA = Path(__file__).parents[1] / "tests" / "data" / "captured"
SHARES = {"gpt2": (0.5, 0.2), "unet": (0.5, 0.2, 0.05), "vgg16": (0.5, 0.2)}
CASES = {f"{name}-{rate}-{f}": (name, rate, f) for rate in ("r1", "r8") for name in SHARES for f in SHARES[name]}
TRANSFERS = rx.Transfers(out=25e9, back=25e9, latency=10e-6)
BANDWIDTH, LAUNCH = 1.5e12, 5e-6  # bytes per second and seconds per operation, as the files' costs have them
COLUMNS = (
    *("case", "share of peak", "recompute", "offload only", "both", "bound", "gap", "GB sent", "seconds"),
    *("torchtitan-offload", "offload-layer-inputs"),
)
RULES = COLUMNS[-2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--rules", action="store_true")
    options = parser.parse_args()
    kept = RESULTS / "offload.json"
    known = json.loads(kept.read_text())["details"] if kept.exists() else []
    if options.rules:
        options.cases = []
    details = [entry for entry in known if entry["case"] not in options.cases]
    warm_up()
    if options.rules:
        details = [entry | of_rules(graph_of(*CASES[entry["case"]][:2]), entry["budget"]) for entry in details]
    for case in options.cases:
        details.append({"case": case, **measured(*CASES[case], options.time_limit)})
        print(*row_of(details[-1]), flush=True)
    details.sort(key=lambda entry: list(CASES).index(entry["case"]))
    publish("offload", COLUMNS, [row_of(entry) for entry in details], details, time_limit=options.time_limit)


def measured(name: str, rate: str, f: float, limit: float) -> dict[str, Any]:
    """What the three strategies find within a budget."""
    graph = graph_of(name, rate)
    peak, least = checkpoint_all_peak(graph), largest_operation(graph)[1]
    budget = int(least + f * (peak - least))
    plain = rx.solve(graph, budget, time_limit=limit)
    sent = rx.solve(graph, budget, "offload-only", limit / 3, transfers=TRANSFERS)
    both = rx.solve(graph, budget, "offload", limit, transfers=TRANSFERS)
    assert both.plan is not None
    assert both.lower_bound is not None
    return {
        "budget": budget,
        "share": budget / peak,
        "recompute": plain.overhead,
        "recompute_status": str(plain.status),
        "offload_only": sent.overhead,
        "both": both.overhead,
        "bound": both.lower_bound / graph.total_cost,
        "sent_gb": both.plan.sent_bytes / 1e9,
        "seconds": both.seconds,
    } | of_rules(graph, budget)


def of_rules(graph: Graph, budget: int) -> dict[str, Any]:
    """What the rules of others take, None where none of their plans fits."""
    return {rule: rx.solve(graph, budget, rule, transfers=TRANSFERS).overhead for rule in RULES}


def graph_of(name: str, rate: str) -> Graph:
    """A captured graph with the costs of a rate."""
    graph = Graph.load(str(DATA / f"{name}.json"))
    return graph if rate == "r1" else faster(graph, 8.0)


def faster(graph: Graph, times: float) -> Graph:
    """The graph with faster arithmetic; what takes as long as its bytes take is as it was."""

    def cost(k: int) -> float:
        way = graph.operations[k].default
        moved = sum(graph.values[v].bytes for v in {*way.inputs, *way.outputs}) + way.workspace
        memory, whole = moved / BANDWIDTH, way.cost - LAUNCH
        return (max(whole / times, memory) if whole > 1.02 * memory else whole) + LAUNCH

    ways = [(replace(node.default, cost=cost(k)),) for k, node in enumerate(graph.operations)]
    pairs = zip(graph.operations, ways, strict=True)
    return replace(graph, operations=tuple(replace(node, implementations=way) for node, way in pairs))


def row_of(entry: dict[str, Any]) -> list[str]:
    """One line of the table; * where the schedule without transfers is not proven."""

    def ratio(key: str) -> str:
        return "none" if entry[key] is None else f"{entry[key]:.4f}"

    star = "" if entry["recompute_status"] == "optimal" else "*"
    gap = f"{100 * (entry['both'] - entry['bound']) / entry['both']:.1f} %"
    shares = [f"{100 * entry['share']:.0f} %", ratio("recompute") + star, ratio("offload_only"), ratio("both")]
    return [
        entry["case"],
        *shares,
        ratio("bound"),
        gap,
        f"{entry['sent_gb']:.2f}",
        f"{entry['seconds']:.1f}",
        *map(ratio, RULES),
    ]


if __name__ == "__main__":
    main()
