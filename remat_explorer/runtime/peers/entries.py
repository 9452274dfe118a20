"""What there is to compare on one model: contenders, and for what does not apply the reason."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from remat_explorer.capture.captured_program import Program
from remat_explorer.capture.model_placement import Placement
from remat_explorer.capture.trace_errors import first_line
from remat_explorer.capture.training_step import unwrap
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.peers.blocks import blocks_of, checkpointed_blocks
from remat_explorer.runtime.peers.contenders import Autograd, Contender, PlannedPeer
from remat_explorer.runtime.peers.peer_measurement import PeerMeasurement
from remat_explorer.runtime.peers.pytorch_budget import pytorch_budget_plan
from remat_explorer.runtime.peers.sequential import checkpointed_segments, segment_counts, trunk_of

Entry = Contender | PeerMeasurement
SOLVER = "dp"


def checkpoint_entries(training: Eager, model: nn.Module) -> list[Entry]:
    """`checkpoint_sequential` with several numbers of segments, and a checkpoint around each block."""
    model, entries = unwrap(model), []
    name, trunk = "checkpoint-sequential", trunk_of(model)
    if trunk is None:
        entries.append(PeerMeasurement(name, problem="the model has no nn.Sequential of several members"))
    else:
        for segments in segment_counts(len(trunk)):
            change = functools.partial(checkpointed_segments, trunk, segments)
            entries.append(Autograd(training, name, f"{segments} segments", change))
    name, blocks = "checkpoint-blocks", blocks_of(model)
    if not blocks:
        entries.append(
            PeerMeasurement(
                name,
                problem="the model has no repeated blocks: no nn.ModuleList or nn.Sequential with members of one class "
                "that have parameters and parts of their own",
            )
        )
    else:
        knob = f"{len(blocks)} × {type(blocks[0]).__name__}"
        entries.append(Autograd(training, name, knob, functools.partial(checkpointed_blocks, blocks)))
    return entries


def budget_entry(
    program: Program, placed: Placement, tensors: tuple[torch.Tensor, ...], budget: float, cancelled: Callable[[], bool]
) -> Entry:
    """PyTorch's activation memory budget, planned on the graph of ``program``."""
    name, knob = "pytorch-budget", f"budget {budget:g}, {SOLVER}"
    try:
        plan = pytorch_budget_plan(program, budget, SOLVER)
    except Exception as error:  # the partitioner is torch's own, and torch calls it experimental
        return PeerMeasurement(name, knob, problem=f"PyTorch's partitioner failed: {first_line(error).rstrip('.')}")
    return PlannedPeer(name, knob, plan, program, placed, tensors, cancelled)
