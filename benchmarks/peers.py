"""PyTorch's own ways to train in less memory, beside the schedule that is solved for each one's measured peak.

    python benchmarks/peers.py
    python benchmarks/peers.py resnet50:32:224 gpt2:8:512 --device cuda

A peer and our schedule share the budget: the peak that was measured for the peer. Costs are predicted from a profile,
over that of computing everything once. Times are measured, over that of plain PyTorch in the same run; those of the
peers and those of our schedule come from two runs, and on a busy machine differ by several per cent for that alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from report import publish

import remat_explorer as rx
from remat_explorer.models import LoadedModel
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.runtime import PeerMeasurement

# Small, but not so small that weights and their gradients alone decide the peak, as they do for transformers at any
# size that a CPU runs in a second.
CASES = ["mobilenet_v1:16:64", "residual_net:32:32", "resnet18:16:64", "vgg16:16:64"]
COLUMNS = ("model", "peer", "peak", "cost", "time", "gradients", "buffers", "ours: peak", "cost", "time", "status")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH[:PIXELS or TOKENS]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=10.0)
    options = parser.parse_args()
    rows, details = [], []
    for case in options.cases:
        loaded = load(case, options.device)
        peers = rx.compare_peers(loaded.module, loaded.args, device=options.device, repeats=options.repeats)
        graph = rx.profile(loaded.graph, loaded.module, loaded.args, device=options.device)
        ours: dict[int, dict[str, Any]] = {}
        for peer in peers:
            if peer.peak is not None and peer.peak not in ours:
                ours[peer.peak] = solved(graph, loaded, peer.peak, options)
            own = ours[peer.peak] if peer.peak is not None else None
            rows.append([case, peer.title, *cells(peer), *own_cells(own)])
            details.append({"case": case, "peer": peer.to_document(), "ours": own})
            print(" | ".join(rows[-1]), flush=True)
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    publish(f"peers_{options.device}", COLUMNS, rows, details, device=device, threads=torch.get_num_threads())


def load(case: str, device: str) -> LoadedModel:
    """The model of a case; its last number is that of pixels or tokens, whichever it takes."""
    name, batch, *length = case.split(":")
    number = int(length[0]) if length else None
    if rx.models.published_size(name).sequence:
        return rx.models.load(name, int(batch), sequence=number, device=device)
    return rx.models.load(name, int(batch), number, device=device)


def solved(graph: rx.Graph, loaded: LoadedModel, budget: int, options: argparse.Namespace) -> dict[str, Any]:
    """Our schedule for a budget, and what it measures."""
    solution = rx.solve(graph, budget, time_limit=options.time_limit)
    if solution.schedule is None:
        return {"budget": budget, "status": str(solution.status)}
    found = rx.measure(solution, loaded.module, loaded.args, device=options.device, repeats=options.repeats)
    return {
        "budget": budget,
        "status": str(solution.status),
        "measured_peak": found.peak,
        "predicted_overhead": found.predicted_overhead,
        "time_over_eager": found.seconds / found.eager.seconds if found.eager else None,
        "equal": found.equal,
    }


def cells(peer: PeerMeasurement) -> list[str]:
    """Peak, cost of a plan, time, gradients and buffers of a peer, or why there are none."""
    if peer.peak is None or peer.overhead is None:
        return [peer.problem or "", "", "", "", ""]
    equal = ["equal" if same else "DIFFER" for same in (peer.gradients_equal, peer.buffers_equal)]
    cost = format_overhead(peer.predicted_overhead) if peer.predicted_overhead else ""
    return [format_bytes(peer.peak), cost, format_overhead(peer.overhead), *equal]


def own_cells(own: dict[str, Any] | None) -> list[str]:
    """Peak, cost and time of our schedule, and its status."""
    if own is None:
        return ["", "", "", ""]
    if "measured_peak" not in own:
        return ["", "", "", own["status"]]
    overheads = [format_overhead(own[key]) if own[key] else "" for key in ("predicted_overhead", "time_over_eager")]
    return [format_bytes(own["measured_peak"]), *overheads, own["status"]]


if __name__ == "__main__":
    main()
