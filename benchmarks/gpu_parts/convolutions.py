"""cuDNN's plans on three convolutions: time and workspace of every implementation, and a schedule that chooses.

The schedule is solved for a budget between keeping everything and the most that an implementation takes, so that the
choice matters; it is executed beside plain PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import remat_explorer as rx
from gpu_parts.memory import emptied, quiet
from gpu_parts.schedules import packed_graph
from gpu_parts.work import Work
from remat_explorer.capture import torch_device
from remat_explorer.capture.implementations import cudnn_plans

CONVOLUTIONS = {  # channels in, channels out, kernel, stride, pixels, batch: of ResNet-50
    "3 x 3, 64 to 64 channels at 56 pixels": (64, 64, 3, 1, 56, 128),
    "1 x 1, 256 to 64 channels at 56 pixels": (256, 64, 1, 1, 56, 128),
    "3 x 3 with stride 2, 128 to 128 channels at 56 pixels": (128, 128, 3, 2, 56, 128),
}
SECONDS = 5.0


def run(work: Work) -> None:
    """Convolution after convolution."""
    work.each(list(CONVOLUTIONS), lambda name: measured(CONVOLUTIONS[name], work))


def mean(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def measured(sizes: tuple[int, ...], work: Work) -> dict[str, Any]:
    """Every implementation of a convolution and its gradients, and the schedule that is chosen and executed."""
    before, after, kernel, stride, side, batch = sizes
    if work.tiny:
        before, after, side, batch = 8, 8, 16, 2
    target = torch_device(work.device)
    layers = nn.Conv2d(before, before, 1), nn.ReLU(), nn.Conv2d(before, after, kernel, stride, kernel // 2), nn.ReLU()
    module = nn.Sequential(*layers).to(target)
    args = (torch.randn(batch, before, side, side, device=target),)
    graph = rx.capture(module, args, loss=mean, implementations="all")
    graph = rx.profile(graph, module, args, loss=mean, device=work.device, on_progress=quiet)
    rows = [
        {"part": node.name, "implementation": way.name, "kind": ", ".join(way.kinds)}
        | {"seconds": way.cost, "workspace": way.workspace}
        for node in graph.operations
        if len(node.implementations) > 1
        for way in node.implementations
    ]
    entry = {
        "graph": packed_graph(graph),
        "cudnn": cudnn_plans.why_not(target) or "available",
        "of cuDNN": sum(row["implementation"].startswith("cuDNN ") for row in rows),
        "rows": rows,
    }
    found = rx.solve(graph, "90%", "monet", time_limit=SECONDS)
    if found.schedule is None:
        found = rx.solve(graph, "100%", "monet", time_limit=SECONDS)
    ours = rx.measure(found, module, args, loss=mean, device=work.device).to_document()
    emptied(work.device)
    return entry | {"ours": ours}
