"""Schedules for the bundle: captured without a GPU, priced by the rates of the nearest device, and solved here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from gpu_parts.costs import PRICED, RATES
from gpu_parts.models import is_built, load
from gpu_parts.schedules import SOLVED, file_of, read_bundled, solve_share, write_bundled
from remat_explorer.graph import Graph


def captured(name: str, tiny: bool, device: str) -> tuple[Graph, str]:
    """The graph of a model with the kernels of the device where it will run, and the size in words."""
    kernels = "cuda" if device == "cuda" else None
    if not is_built(name):
        loaded = load(name, "cpu", tiny)
        return loaded.graph(device=RATES, kernels=kernels), loaded.size
    with FakeTensorMode(allow_non_fake_inputs=True):  # gigabytes of weights are not allocated
        loaded = load(name, "cpu", tiny)
        inputs = loaded.args
    return rx.capture(loaded.module, inputs, device=RATES, kernels=kernels), loaded.size


def solve_model(bundle: Path, name: str, tiny: bool, time_limit: float, device: str) -> str:
    """Solve what the bundle lacks of a model, write it, and say how it went."""
    graph, size = captured(name, tiny, device)
    known: dict[str, Any] = read_bundled(bundle, name) or {}
    if (known.get("structure"), known.get("rates")) != (graph.structure, PRICED):
        known = {"model": name, "size": size, "structure": graph.structure, "rates": PRICED, "solutions": {}}
    statuses = []
    for share in SOLVED:
        if share not in known["solutions"]:
            found, _ = solve_share(graph, share, time_limit)
            known["solutions"][share] = found.to_document()
            write_bundled(file_of(bundle, name), known)
        statuses.append(f"{share} {known['solutions'][share]['status']}")
    return f"{graph.n} operations, {', '.join(statuses)}"
