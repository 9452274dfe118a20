"""The largest batch within 16 GB at one extra forward pass, against Checkmate's Figure 6, on its own graphs.

    python benchmarks/max_batch.py --time-limit 60
    python benchmarks/max_batch.py FCN8        # one network anew; what is known of the others stays

Published batches are those of the paper (Jain et al., MLSys 2020) for its own method; seconds are those of this
process, after everything is loaded. The item checkmate-figure-6 of the papers is made from these results.

Where the largest batch is not proven, `optimal` searches at sizes between what is found and the upper bound: what the
cheapest schedule costs there, and what every schedule does, in multiples of computing everything once.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from report import RESULTS, publish

import remat_explorer as rx
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.solvers import max_batch, scale_batch
from reproduction.layer_graphs import BUILT, LAYERS, layer_graph, published_batches

NETWORKS = [*LAYERS, *BUILT]
BETWEEN = 5  # sizes that are looked at where the largest batch is not proven
COLUMNS = (
    "graph",
    "n",
    "published",
    "found",
    "upper bound",
    "proven",
    "without recomputation",
    "overhead",
    "peak",
    "seconds",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: all of {', '.join(NETWORKS)}")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--memory", default="16 GB")
    options = parser.parse_args()
    max_batch(rx.linear(4), 100)  # what is compiled or loaded on first use is not measured
    known = {entry["graph"]: entry for entry in read()}
    for name in options.networks or NETWORKS:
        entry = measured(name, options.memory, options.time_limit)
        known[entry["graph"]] = entry
        for size in entry["beyond"]:
            cost = "nothing" if size["cost"] is None else f"{size['cost']:.4f}"
            print(f"{name} at {size['batch']}: {cost} found, {size['bound']:.4f} proven, {size['limit']:.4f} allowed")
    details = [known[graph] for graph in sorted(known)]
    where = {"memory": options.memory, "overhead_limit": "one extra forward", "time_limit": options.time_limit}
    publish("max_batch", COLUMNS, [row_of(entry) for entry in details], details, **where)


def measured(name: str, memory: str, time_limit: float) -> dict[str, Any]:
    """What is found of one network."""
    graph = layer_graph(name)
    begun = time.process_time()
    found = max_batch(graph, memory, time_limit=time_limit)
    seconds = time.process_time() - begun
    entry = found.to_document() | {"graph": graph.name, "published": published_batches(name)["paper_checkmate"]}
    entry |= {"n": graph.n, "overhead": None if found.schedule is None else found.schedule.overhead}
    sizes = range(found.batch + 1, found.upper_bound + 1)
    assert found.cost_limit is not None
    limit = found.cost_limit / scale_batch(graph, max(found.batch, 1)).total_cost
    chosen = sorted({sizes[place * (len(sizes) - 1) // (BETWEEN - 1)] for place in range(BETWEEN)}) if sizes else []
    beyond = [costs_at(graph, batch, memory, time_limit) | {"limit": limit} for batch in chosen]
    return entry | {"processor_seconds": seconds, "beyond": beyond}


def costs_at(graph: rx.Graph, batch: int, memory: str, time_limit: float) -> dict[str, Any]:
    """What `optimal` finds and proves for a batch, in multiples of computing everything once."""
    scaled = scale_batch(graph, batch)
    solution = rx.solve(scaled, memory, time_limit=time_limit)
    cost = None if solution.cost is None else solution.cost / scaled.total_cost
    bound = 1.0 if solution.lower_bound is None else solution.lower_bound / scaled.total_cost
    return {"batch": batch, "cost": cost, "bound": bound}


def row_of(entry: dict[str, Any]) -> list[str]:
    """A line of the table."""
    row = [entry["graph"], str(entry["n"]), "" if entry["published"] is None else str(entry["published"])]
    row += [str(entry["batch"]), str(entry["upper_bound"]), "yes" if entry["optimal"] else "no"]
    row += [str(entry["checkpoint_all_batch"])]
    row += ["" if entry["overhead"] is None else format_overhead(entry["overhead"])]
    return [*row, "" if entry["peak"] is None else format_bytes(entry["peak"]), f"{entry['processor_seconds']:.2f}"]


def read() -> list[dict[str, Any]]:
    """What earlier runs have written."""
    path = RESULTS / "max_batch.json"
    return json.loads(path.read_text(encoding="utf-8"))["details"] if path.exists() else []


if __name__ == "__main__":
    main()
