"""Memory of one process, and the time of a step, of a model that `fully_shard` has sharded, with a plan and without.

    python benchmarks/fsdp.py
    python benchmarks/fsdp.py --blocks 6 --batch 4 --rounds 5

Two processes with gloo on one machine, one thread each, train blocks of GPT-2 between an embedding and a head, each
block sharded by itself: plain FSDP2, FSDP2 with a checkpoint around each block, and plans, one within the measured
peak of the checkpoints and one within the smallest budget. *Measured* is the larger of both processes' peaks, by a
meter of all allocations in a step, on top of parts, buffers and inputs; of ten steps it is the least without a
plan, where gloo's threads hold copies for a while, and the most with one. The time of a step is that of the slower
process, the median of the rounds, which all take in turn. *Equal*: losses and gradients are those of plain FSDP2 bit
for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ddp import Blocks, loaded
from report import publish
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.capture.sharding import local_part
from remat_explorer.plan import Compute
from remat_explorer.quantities import format_bytes, format_seconds

STEPS = 10  # that are metered
COLUMNS = ("contender", "budget", "predicted", "measured", "gathers", "step", "of plain", "equal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    case = f"blocks:{options.blocks}:{options.batch}"
    with tempfile.TemporaryDirectory() as folder:
        spawn(run, (case, options.rounds, folder), nprocs=2)
        found = [json.loads(Path(folder, f"found{rank}.json").read_text()) for rank in range(2)]
    rows, details = [], []
    for name, one in found[0].items():
        other = found[1][name]
        seconds = [max(pair) for pair in zip(one["seconds"], other["seconds"], strict=True)]
        measured = max(one["measured"], other["measured"])
        details.append({**one, "contender": name, "seconds": seconds, "measured": measured})
        known = [format_bytes(one[key]) if key in one else "" for key in ("budget", "predicted")]
        plain = statistics.median(details[0]["seconds"])
        median = statistics.median(seconds)
        equal = "yes" if one["equal"] and other["equal"] else "no"
        times = [format_seconds(median), f"{median / plain:.2f}", equal]
        rows.append([name, *known, format_bytes(measured), str(one.get("gathers", "")), *times])
    publish("fsdp", COLUMNS, rows, details, device="CPU", threads=1, case=case, processes=2)


def run(rank: int, case: str, rounds: int, folder: str) -> None:
    """One process: what it found goes into the folder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    _, args = loaded(case)
    args = tuple(torch.roll(tensor, rank, 0) for tensor in args)  # each has the same examples, in another order
    models: dict[str, nn.Module] = {"plain": sharded(case), "checkpoint per block": sharded(case, checkpoints=True)}
    found: dict[str, dict[str, Any]] = {name: {"measured": min(metered(one, args))} for name, one in models.items()}
    peaks = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(peaks, torch.tensor([found["checkpoint per block"]["measured"]]))
    for name, budget in (("plan at that peak", int(max(peaks))), ("smallest plan", "smallest")):
        made = rx.rematerialize(sharded(case), args, budget=budget, time_limit=20)
        solution = made.rematerialization.solution
        assert solution.plan is not None
        names = [node.name for node in solution.graph.operations]
        computed = [
            names[statement.operation] for statement in solution.plan.statements if isinstance(statement, Compute)
        ]
        gathers = sum(one.endswith("all_gather") for one in computed)
        models[name] = made
        found[name] = {"budget": solution.budget, "predicted": solution.peak, "gathers": gathers}
        found[name]["measured"] = max(metered(made, args))
    outcomes = {name: outcome(one, args) for name, one in models.items()}
    for name, (loss, gradients) in outcomes.items():
        expected, theirs = outcomes["plain"]
        pairs = zip(gradients, theirs, strict=True)
        found[name]["equal"] = loss == expected and all(torch.equal(mine, other) for mine, other in pairs)
        found[name]["seconds"] = []
    for _ in range(rounds):
        for name, one in models.items():
            forget(one)
            dist.barrier()
            begin = time.perf_counter()
            one(*args).backward()
            found[name]["seconds"].append(time.perf_counter() - begin)
    Path(folder, f"found{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # not by the way of gloo's destructor, which may wait for a thread that waits for Python's lock


def sharded(case: str, checkpoints: bool = False) -> nn.Module:
    """Blocks from a seed, sharded one by one, and then the rest."""
    model, _ = loaded(case)
    assert isinstance(model, Blocks)
    for number, block in enumerate(model.blocks):
        if checkpoints:
            block = checkpoint_wrapper(block)
            model.blocks[number] = block
        fully_shard(block)
    fully_shard(model)
    return model


def metered(model: nn.Module, args: tuple[torch.Tensor, ...]) -> list[int]:
    """The peaks of `STEPS` steps in bytes, parts, buffers and inputs included, after one that warms up."""
    outcome(model, args)
    forget(model)
    there = sum(t.untyped_storage().nbytes() for t in (*map(local_part, model.parameters()), *model.buffers(), *args))
    peaks = []
    for _ in range(STEPS):
        with CpuMeter() as meter, meter.section():
            model(*args).backward()
        forget(model)
        peaks.append(there + meter.readings[0].highest)
    return peaks


def outcome(model: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[float, list[torch.Tensor]]:
    """Loss and gradients of a step."""
    forget(model)
    torch.manual_seed(0)
    loss = model(*args)
    loss.backward()
    return loss.item(), [local_part(p.grad) for p in model.parameters() if p.grad is not None]


def forget(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None


if __name__ == "__main__":
    main()
