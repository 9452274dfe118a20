"""Every peer on one model: whatever else trains it in less memory, measured as our plans are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.operations.program import Program
from remat_explorer.capture.profiling.profiling import profile
from remat_explorer.capture.step.losses import Loss
from remat_explorer.capture.step.placement import Placed, exact_kernels, place
from remat_explorer.capture.tracing import trace
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.entry_checks import Repeats, require_arguments
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.min_cut_partitioner import require_share
from remat_explorer.runtime.peers.contenders import Autograd
from remat_explorer.runtime.peers.entries import budget_entry, checkpoint_entries
from remat_explorer.runtime.peers.peer_bench import PeerBench
from remat_explorer.runtime.peers.peer_measurement import PeerMeasurement
from remat_explorer.runtime.peers.progress import PeerProgress
from remat_explorer.runtime.peers.turns import measured_in_turn

AS_PYTORCH_HAS_IT = CaptureOptions(contract=False, split_convolution_backward=False)


def compare_peers(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str | torch.device | None = None,
    repeats: Repeats = 3,
    budgets: Sequence[float] = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0),
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[PeerMeasurement, ...]:
    """Train one step in each way that PyTorch itself offers, and measure memory, time and results.

    The ways, each from the same buffers and random state, with the same meter and kernels:

    - eager: plain PyTorch, which keeps everything.
    - checkpoint-sequential: `torch.utils.checkpoint.checkpoint_sequential` on the model's largest `nn.Sequential`, in
      2, about √n and n segments.
    - checkpoint-blocks: `torch.utils.checkpoint.checkpoint` around each of the model's repeated blocks.
    - pytorch-budget: what the partitioner of `torch.compile` chooses under `activation_memory_budget`, as a plan on
      the graph that it sees, executed as our plans are. This budget is no bound of the peak.

    Checkpoints run batch normalization twice, and so update its buffers twice: ``buffers_equal`` tells. Model, inputs
    and random state are left as they are.

    Args:
        model, args, kwargs, loss: as for `capture`.
        device: "cpu", "cuda", or "auto" for CUDA where there is one; None for where the model lies.
        repeats: timed runs of each way, taken in turn.
        budgets: activation memory budgets of PyTorch, each a share from 0 to 1.
        on_progress: called with steps done and in total.
        cancelled: asked between runs, and before each statement of a plan.

    Returns:
        One measurement for each way and setting; one that does not apply, or failed, has its ``problem``.

    Raises:
        CaptureError: if the model cannot be captured as a static graph.
        ExecutionError: if there is no such device, a budget is out of range, or it was cancelled.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> found = compare_peers(model, (torch.ones(16, 4),), device="cpu", repeats=1, budgets=[0.5])
    >>> [(peer.title, peer.gradients_equal) for peer in found]  # doctest: +NORMALIZE_WHITESPACE
    [('eager', True), ('checkpoint-sequential (2 segments)', True), ('checkpoint-sequential (3 segments)', True),
     ('checkpoint-blocks', None), ('pytorch-budget (budget 0.5, dp)', True)]
    """
    require_arguments(compare_peers, locals())
    for budget in budgets:
        require_share(budget)
    placed = place(model, args, kwargs, device)
    repeats = max(1, repeats)
    devices = [placed.device] if placed.device.type == "cuda" else []
    with torch.inference_mode(False), exact_kernels(), torch.random.fork_rng(devices):
        training = Eager(placed, loss)
        entries = checkpoint_entries(training, placed.model)
        ways = 1 + len(entries) + len(budgets)
        progress = PeerProgress(2 + len(budgets) + ways * (1 + repeats), on_progress, cancelled)
        program, profiled = _captured(placed, loss, progress)
        progress.advance()
        for budget in budgets:
            entries.append(budget_entry(program, placed, training.tensors, budget, cancelled))
            progress.advance()
        bench = PeerBench(placed, training, program.graph.resident_bytes)
        measurements = measured_in_turn(bench, Autograd(training), entries, repeats, progress)
    if profiled:
        return tuple(measurements)
    return tuple(dataclasses.replace(peer, predicted_peak=None, predicted_overhead=None) for peer in measurements)


def _captured(placed: Placed, loss: Loss | None, progress: PeerProgress) -> tuple[Program, bool]:
    """The program with every call an operation, and whether it could be profiled, which keeps everything in memory."""
    program = trace(placed.model, placed.args, placed.kwargs, loss, options=AS_PYTORCH_HAS_IT)
    progress.advance()
    try:
        graph = profile(
            program.graph,
            placed.model,
            placed.args,
            placed.kwargs,
            loss,
            str(placed.device),
            repeats=1,
            on_progress=lambda done, total: None,
            cancelled=progress.cancelled,
        )
    except ExecutionError:
        progress.stop()
        return program, False
    return dataclasses.replace(program, graph=graph), True
