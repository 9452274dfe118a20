"""Capture every model of the zoo at its published size, each in a process of its own.

    python benchmarks/capture.py
    python benchmarks/capture.py resnet50 resnet50:2048 --optimizer adam

"memory" is what capturing took at its highest, beyond the process with the model's parameters loaded. "features" are
the values of the forward pass that are no results, "peak" is that of keeping everything, parameters included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from report import publish

import remat_explorer as rx
from remat_explorer.quantities import format_bytes

COLUMNS = (
    "model", "size", "raw nodes", "operations", "values", "parameters", "features GB", "peak GB", "seconds", "memory"
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="MODEL[:BATCH]")
    parser.add_argument("--optimizer", help="count its state too: sgd, momentum or adam")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(capture_one(options.cases[0], options.optimizer)))
        return
    found = []
    for case in options.cases or [*rx.models.names(), "resnet50:2048"]:
        command = [sys.executable, __file__, case, "--one"]
        command += ["--optimizer", options.optimizer] if options.optimizer else []
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(case, f"{found[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    publish("capture", COLUMNS, [row(entry) for entry in found], found)


def capture_one(case: str, optimizer: str | None) -> dict[str, Any]:
    """Capture a model in this process."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from remat_explorer.capture import trace
    from remat_explorer.capture_options import CaptureOptions

    name, _, batch = case.partition(":")
    loaded = rx.models.load(name, int(batch) if batch else None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        args = loaded.make_args()
    before = resident_set("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the highest resident set so far
    start = time.perf_counter()
    program = trace(loaded.shapes, args, options=CaptureOptions(optimizer=optimizer))
    seconds = time.perf_counter() - start
    memory = resident_set("VmHWM") - before
    summary = program.graph.summary()
    uncontracted = trace(loaded.shapes, args, options=CaptureOptions(False, False))
    return {
        "model": name,
        "batch": loaded.batch,
        "image": loaded.image,
        "sequence": loaded.sequence,
        "raw_nodes": sum(node.op == "call_function" for node in uncontracted.module.graph.nodes),
        "operations": program.graph.n,
        "values": summary.values,
        "parameters": sum(parameter.numel() for parameter in loaded.module.parameters()),
        "resident_bytes": summary.resident_bytes,
        "feature_bytes": summary.feature_bytes,
        "checkpoint_all_peak": summary.peak,
        "seconds": seconds,
        "memory_bytes": memory,
        "threads": torch.get_num_threads(),
    }


def resident_set(entry: str) -> int:
    """Bytes of this process in memory: now (VmRSS), or at their highest (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(entry)))


def row(entry: dict[str, Any]) -> list[str]:
    size = f"{entry['batch']}"
    size += " x {} x {}".format(*entry["image"]) if entry["image"] else ""
    size += f" x {entry['sequence']} tokens" if entry["sequence"] else ""
    return [
        entry["model"],
        size,
        str(entry["raw_nodes"]),
        str(entry["operations"]),
        str(entry["values"]),
        f"{entry['parameters']:,}",
        f"{entry['feature_bytes'] / 1e9:.2f}",
        f"{entry['checkpoint_all_peak'] / 1e9:.2f}",
        f"{entry['seconds']:.1f}",
        format_bytes(entry["memory_bytes"]),
    ]


if __name__ == "__main__":
    main()
