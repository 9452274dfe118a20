"""The largest batch within 16 GB at one extra forward pass, against Checkmate's Figure 6, on its own graphs.

    python benchmarks/max_batch.py /path/to/graphs --time-limit 60

The folder holds keras_*.json; by default the graphs of the tests are taken. Published batches are those of the paper
(Jain et al., MLSys 2020) for its own method; seconds are those of this process, after everything is loaded.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from report import publish

import remat_explorer as rx
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.solvers import max_batch

TESTS = Path(__file__).parents[1] / "tests" / "data"
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=TESTS / "graphs")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--memory", default="16 GB")
    options = parser.parse_args()
    published = json.loads((TESTS / "max_batch_16GB.json").read_text())
    max_batch(rx.linear(4), 100)  # what is compiled or loaded on first use is not measured
    rows, details = [], []
    for path in sorted(options.folder.glob("keras_*.json")):
        graph = rx.Graph.load(str(path))
        begun = time.process_time()
        found = max_batch(graph, options.memory, time_limit=options.time_limit)
        seconds = time.process_time() - begun
        paper = published.get(path.stem.removeprefix("keras_"), {}).get("paper_checkmate")
        overhead = "" if found.schedule is None else format_overhead(found.schedule.overhead)
        row = [graph.name, str(graph.n), "" if paper is None else str(paper), str(found.batch), str(found.upper_bound)]
        row += ["yes" if found.optimal else "no", str(found.checkpoint_all_batch), overhead]
        rows.append([*row, "" if found.peak is None else format_bytes(found.peak), f"{seconds:.2f}"])
        details.append(found.to_document() | {"graph": graph.name, "published": paper, "processor_seconds": seconds})
    where = {"memory": options.memory, "overhead_limit": "one extra forward", "time_limit": options.time_limit}
    publish("max_batch", COLUMNS, rows, details, **where)


if __name__ == "__main__":
    main()
