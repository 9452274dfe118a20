"""Does sending pay? Networks on four GPUs with six bandwidths: which choice is best, and what is proven.

    python benchmarks/offload_map.py                 (measures what results/offload_map.json does not have yet)
    python benchmarks/offload_map.py --minutes 4.5   (the same, and begins no more rows then)
    python benchmarks/offload_map.py --table         (measures nothing: the table of docs/offload.md, and a summary)

Costs are predicted from published rates, as `rx.capture(..., device="A100")` has them. Networks of images are in
float32, with TF32 where the GPU has it; transformers are in bfloat16, on the P100 in float32. A copy takes 10 µs and
its bytes at the bandwidth, each way. A budget is Bop + f (peak - Bop), the largest operation and a share of what lies
between it and keeping everything. Sending alone has a second of search, the others four; a plan counts at all higher
bandwidths, too, and a bound at all lower ones (`reproduction.transfer_map`, which draws the map). No GPU has run these
plans. Of all rows, those of vgg16, mobilenet_v2, resnet50, unet and vit at f = 0.2 have been measured.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill as fill_lines
from typing import Any

import numpy as np
from report import RESULTS, fill, narrow_table, write

import remat_explorer as rx
from remat_explorer.graph import Graph
from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak, largest_operation
from remat_explorer.solvers.search.compilation import warm_up
from reproduction.transfer_map import BOTH, RECOMPUTE, WORTH, Cell, cells_of, summary

IMAGES: dict[str, dict[str, Any]] = {"vgg16": {}, "mobilenet_v2": {}, "resnet50": {}, "unet": {}}
TEXTS: dict[str, dict[str, Any]] = {
    "vit": {"batch": 64},
    "bert": {"batch": 32},
    "gpt2": {"batch": 16},
    "llama3.2_1b": {"sequence": 4096, "layers": 8},
}
NETWORKS = IMAGES | TEXTS
DEVICES = ("P100", "RTX4090", "A100", "H100")
SHARES = (0.2, 0.5)
BANDWIDTHS = (8, 16, 32, 64, 128, 450)  # GB/s: PCIe 3 with 8 lanes, with 16, PCIe 4, 5, 6, and NVLink-C2C
LATENCY = 10e-6
SECONDS = {"recompute": 4.0, "send": 1.0, "both": 4.0}
NOTHING = 1e-4  # relative difference that counts as none
PAGE = Path(__file__).parents[1] / "docs" / "offload.md"
BEGINS, ENDS = "<!-- map: python benchmarks/offload_map.py --table -->", "<!-- end of the map -->"
CAPTION = (
    "Overhead of recomputing in %, of both, and (≥) their bound where above 0, on GPUs with a link that they are sold "
    "with (GH200: the costs of H100):"
)
NATURAL = {  # a link that one buys such a GPU with
    "P100, 16": ("P100", 16),
    "RTX 4090, 32": ("RTX4090", 32),
    "A100, 32": ("A100", 32),
    "H100, 64": ("H100", 64),
    "GH200, 450": ("H100", 450),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true", help="write the table from the results that are there")
    options = parser.parse_args()
    if options.table:
        cells = cells_of(known())
        text = f"{answer([cell for cell in cells if cell.f == SHARES[0]])}\n\n{CAPTION}\n\n"
        fill(PAGE, BEGINS, ENDS, text + narrow_table(("network", *NATURAL), table_rows(cells)))
        print(summary(cells))
        return
    ends = time.monotonic() + 60 * options.minutes
    warm_up()
    details = known()
    have = {key(entry) for entry in details}
    graphs: dict[tuple[str, str], Graph] = {}
    for name, device, f in problems():
        if (name, device, f) in have:
            continue
        if time.monotonic() > ends:
            return
        if (name, device) not in graphs:
            graphs = {(name, device): captured(name, device)}
        details.append({"network": name, "device": device, "f": f, **measured(graphs[name, device], f)})
        keep(details)
        print(*row_of(details[-1]), flush=True)
    for entry in details:  # of an earlier version of this file
        if "excess" not in entry["cells"][0] and time.monotonic() < ends:
            add_excess(captured(entry["network"], entry["device"]), entry["budget"], entry["cells"])
            keep(details)


def problems() -> Iterator[tuple[str, str, float]]:
    """Each network on each device at each budget."""
    for f in SHARES:
        for name in NETWORKS:
            for device in DEVICES:
                yield name, device, f


def captured(name: str, device: str) -> Graph:
    """The training graph of a network with a device's costs, made without weights."""
    precision = "bfloat16" if name in TEXTS and device != "P100" else "float32"
    return rx.models.load(name, device="cuda", costs=device, precision=precision, **NETWORKS[name]).graph


def measured(graph: Graph, f: float) -> dict[str, Any]:
    """What each choice alone and both take at each bandwidth; overheads are ratios to computing everything once."""
    peak, least, once = checkpoint_all_peak(graph), largest_operation(graph)[1], graph.total_cost
    budget = int(least + f * (peak - least))
    plain = rx.solve(graph, budget, time_limit=SECONDS["recompute"], threads=1)
    cells: list[dict[str, Any]] = []
    for bandwidth in BANDWIDTHS:
        transfers = rx.Transfers(bandwidth * 1e9, bandwidth * 1e9, LATENCY)
        cell: dict[str, Any] = {"bandwidth": bandwidth}
        for choice, strategy in (("send", "offload-only"), ("both", "offload")):
            before = cells[-1][choice] if cells else None
            if before is not None and before["overhead"] is not None and before["overhead"] < 1 + NOTHING:
                cell[choice] = {**before, "seconds": 0.0}
            elif choice == "both" and (cell["send"]["overhead"] or 2) < 1 + NOTHING:
                cell[choice] = {**cell["send"], "seconds": 0.0}
            else:
                found = rx.solve(graph, budget, strategy, SECONDS[choice], transfers=transfers, threads=1)
                cell[choice] = {
                    "overhead": found.overhead,
                    "bound": None if found.lower_bound is None else found.lower_bound / once,
                    "sent_gb": None if found.plan is None else found.plan.sent_bytes / 1e9,
                    "status": str(found.status),
                    "seconds": found.seconds,
                }
        cells.append(cell)
    add_excess(graph, budget, cells)
    return {
        "operations": graph.n,
        "step_seconds": once,
        "peak": peak,
        "budget": budget,
        "recompute": plain.overhead,
        "recompute_bound": None if plain.lower_bound is None else plain.lower_bound / once,
        "recompute_status": str(plain.status),
        "cells": cells,
    }


def answer(cells: list[Cell]) -> str:
    """What the map says, in three points."""
    pcie = [cell for cell in cells if cell.bandwidth in (32, 64) and None not in (cell.recompute, cell.send)]
    slower = sum((cell.send or 0.0) > (cell.recompute or 0.0) for cell in pcie)
    together = [cell for cell in pcie if cell.choice == BOTH]
    proven = sum(cell.proven for cell in together)
    saved = {b: sorted(c.saved[0] for c in cells if c.bandwidth == b and c.saved) for b in BANDWIDTHS}
    middle = {b: f"{ones[len(ones) // 2]:.1f}" for b, ones in saved.items()}
    fast = [cell for cell in cells if cell.bandwidth == BANDWIDTHS[-1]]
    alone = sum(cell.choice != BOTH and cell.choice != RECOMPUTE for cell in fast)
    slow = [cell for cell in cells if cell.bandwidth == BANDWIDTHS[0]]
    idle = sum(cell.choice == RECOMPUTE for cell in slow)
    gaps = sorted(cell.both - cell.bound for cell in pcie if cell.both is not None)
    points = (
        f"Over PCIe 4 or 5 sending alone takes longer than recomputing alone in {slower} of {len(pcie)} cases. Both "
        f"together take at least {WORTH} % of a step less than either in {len(together)}; bounds prove it in {proven}.",
        f"Beside recomputing, the link saves a proven {middle[8]} % of a step in the median at 8 GB/s, {middle[32]} % "
        f"at 32, {middle[64]} % at 64 and {middle[450]} % at 450, where sending alone is as good within {WORTH} % in "
        f"{alone} of {len(fast)}.",
        f"At 8 GB/s it saves less than {WORTH} % in {idle} of {len(slow)}. Over PCIe 4 or 5 bounds leave "
        f"{gaps[len(gaps) // 2]:.1f} points open in the median, {gaps[-1]:.1f} at most: better plans may exist.",
    )
    return "\n".join(fill_lines(f"- {point}", 150, subsequent_indent="  ") for point in points)


def table_rows(cells: list[Cell]) -> list[list[str]]:
    """For each network, what recomputing costs, what both cost, and the bound, on each device with its own link."""
    at = {(c.network, c.device, c.bandwidth): c for c in cells if c.f == SHARES[0]}
    rows = []
    for name in dict.fromkeys(cell.network for cell in cells):
        found = [at.get((name, *place)) for place in NATURAL.values()]
        rows.append([name, *("" if cell is None else _told(cell) for cell in found)])
    return rows


def _told(cell: Cell) -> str:
    alone, both = ("none" if x is None else f"{x:.1f}" for x in (cell.recompute, cell.both))
    return f"{alone} → {both}" + (f" (≥ {cell.bound:.1f})" if cell.bound >= 0.05 else "")


def add_excess(graph: Graph, budget: int, cells: list[dict[str, Any]]) -> None:
    """What every plan takes that computes nothing again, by its bytes alone.

    At the end of each operation, what everything kept has above the budget was sent before, and is fetched after.
    """
    kept = TransferPlan.from_plan(Plan.of(checkpoint_all(graph)), rx.Transfers(0, 0)).timeline
    once = graph.total_cost
    for cell in cells:
        travel = np.maximum(kept.during - budget, 0) / (cell["bandwidth"] * 1e9)
        waits = np.maximum(travel - kept.end, 0) + np.maximum(travel - (once - kept.end), 0)
        cell["excess"] = 1 + float(waits.max()) / once


def known() -> list[dict[str, Any]]:
    path = RESULTS / "offload_map.json"
    return json.loads(path.read_text())["details"] if path.exists() else []


def key(entry: dict[str, Any]) -> tuple[str, str, float]:
    return entry["network"], entry["device"], entry["f"]


def row_of(entry: dict[str, Any]) -> list[str]:
    def ratio(value: float | None) -> str:
        return "none" if value is None else f"{100 * (value - 1):.1f}"

    cells = [
        f"{ratio(cell['send']['overhead'])}/{ratio(cell['both']['overhead'])}>={ratio(cell['both']['bound'])}"
        for cell in entry["cells"]
    ]
    recompute = f"{ratio(entry['recompute'])}>={ratio(entry['recompute_bound'])}"
    return [
        entry["network"],
        entry["device"],
        f"{entry['f']:g}",
        f"{entry['budget'] / entry['peak']:.2f}",
        recompute,
        *cells,
    ]


def keep(details: list[dict[str, Any]]) -> Path:
    order = list(problems())
    details.sort(key=lambda entry: order.index(key(entry)))
    columns = ("network", "device", "f", "share", "recompute", *(f"{bandwidth} GB/s" for bandwidth in BANDWIDTHS))
    return write("offload_map", columns, [row_of(entry) for entry in details], details, seconds=SECONDS)


if __name__ == "__main__":
    main()
