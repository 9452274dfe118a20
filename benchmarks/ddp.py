"""DistributedDataParallel around a rematerialized model: when gradients are ready, and what a step takes.

    python benchmarks/ddp.py
    python benchmarks/ddp.py resnet18:16:64 --budget 95% --link 0.125

Two processes with gloo on one machine, one thread each, train plain PyTorch, the plan, and the plan with all gradients
handed over at its end, in turn. *Ready* is the share of the backward pass after which the first gradient, and half of
the gradients' bytes, are accumulated, without DistributedDataParallel. The time of a step is that of the slower
process, the median of the rounds; it is taken with gloo as it is, within one machine, and with a link between the
processes that carries so many GB/s in each direction: each bucket waits for that time, one after another, before gloo
sums it. *Waits* is what passes, with the link, between the last gradient of a process and the end of its backward pass;
other programs on the machine change it less than the time of a step. `blocks:COUNT:BATCH` are blocks of GPT-2 between
an embedding and a head.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from report import publish
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.models.gpt2 import GPT2Block
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.runtime import gradient_handover

CASES = ["blocks:2:8", "resnet18:16:64"]
COLUMNS = ("model", "contender", "handovers", "first ready", "half ready", "gloo", "with the link", "waits")
TOKENS = 64


class Blocks(nn.Module):
    """Blocks of GPT-2 between an embedding and a head, with a loss."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(1000, 768), nn.Linear(768, 1000)
        self.blocks = nn.Sequential(*(GPT2Block() for _ in range(count)))

    def forward(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(
            self.head(self.blocks(self.embedding(tokens))).flatten(0, 1), following.flatten()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH[:IMAGE]")
    parser.add_argument("--budget", default="smallest")
    parser.add_argument("--link", type=float, default=0.125, help="GB/s, by default those of a network of 1 Gbit/s")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows, details = [], []
    for case in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            spawn(run, (case, options.budget, options.link, options.rounds, folder), nprocs=2)
            found = [json.loads(Path(folder, f"found{rank}.json").read_text()) for rank in range(2)]
        size = format_bytes(found[0]["gradients"])
        for name in found[0]["steps"]:
            ready = found[0]["ready"][name]
            times: list[float] = []
            for link in found[0]["steps"][name]:
                pairs = list(zip(*(one["steps"][name][link] for one in found), strict=True))
                seconds, waits = ([max(both[place] for both in pair) for pair in pairs] for place in range(2))
                times += [statistics.median(seconds), *([statistics.median(waits)] if link != "none" else [])]
                entry = {"case": case, "contender": name, "link": link, "ready": ready}
                details.append({**entry, "seconds": seconds, "waits": waits})
            first, half = (f"{share:.0%}" for share in ready)
            count = found[0]["handovers"].get(name, "")
            rows.append([f"{case}, {size}", name, str(count), first, half, *map(format_seconds, times)])
            print(" ".join(rows[-1]), flush=True)
    publish("ddp", COLUMNS, rows, details, device="CPU", threads=1, budget=options.budget, link=options.link)


def run(rank: int, case: str, budget: str, link: float, rounds: int, folder: str) -> None:
    """One process: its times and shares go into the folder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    model, args = loaded(case)
    solution = None
    models: dict[str, nn.Module] = {"plain": model}
    counts: dict[str, int] = {}
    for name, least in (("plan", gradient_handover.MIN_SECONDS), ("plan, at its end", math.inf)):
        gradient_handover.MIN_SECONDS = least
        made = rx.rematerialize(loaded(case)[0], args, budget=None if solution else budget, solution=solution)
        made.load_state_dict(model.state_dict())
        solution = made.rematerialization.solution
        counts[name], models[name] = len(made.rematerialization.plans[0].code.handovers), made
    ready = {name: shares(one, args) for name, one in models.items()}
    steps: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in models}
    last = [0.0]
    for parameter in {parameter for one in models.values() for parameter in one.parameters()}:
        parameter.register_post_accumulate_grad_hook(lambda _: last.__setitem__(0, time.perf_counter()))
    for wire in ("none", f"{link} GB/s"):
        parallel = {name: nn.parallel.DistributedDataParallel(one) for name, one in models.items()}
        with ThreadPoolExecutor(1) as carrier:
            for one in parallel.values():
                if wire != "none":
                    one.register_comm_hook(None, sending(carrier, link * 1e9))
            for number in range(rounds + 2):  # two that warm up: buckets are made anew after the first
                for name, one in parallel.items():
                    for parameter in one.parameters():
                        parameter.grad = None
                    dist.barrier()
                    begin = time.perf_counter()
                    one(*args).backward()
                    end = time.perf_counter()
                    if number > 1:
                        steps[name].setdefault(wire, []).append((end - begin, end - last[0]))
    size = sum(parameter.nbytes for parameter in model.parameters())
    found = {"ready": ready, "steps": steps, "handovers": counts, "gradients": size}
    Path(folder, f"found{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # not by the way of gloo's destructor, which may wait for a thread that waits for Python's lock


def loaded(case: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model and inputs of the sizes that a case names, from a seed."""
    torch.manual_seed(0)
    name, *sizes = case.split(":")
    first, second = [*map(int, sizes), None][:2]
    if name == "blocks":
        tokens = torch.randint(0, 1000, (second or 1, TOKENS + 1))
        return Blocks(first or 1), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    net = rx.models.load(name, batch=first, image=second)
    return net.module, net.args


def shares(model: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[float, float]:
    """The shares of the backward pass's time after which the first gradient is there, and half of their bytes."""
    found = []
    for _ in range(5):
        moments: list[tuple[float, int]] = []

        def note(parameter: torch.Tensor, moments: list[tuple[float, int]] = moments) -> None:
            moments.append((time.perf_counter(), parameter.nbytes))
            parameter.grad = None

        handles = [parameter.register_post_accumulate_grad_hook(note) for parameter in model.parameters()]
        loss = model(*args)
        begin = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        for handle in handles:
            handle.remove()
        total, seen, half = sum(size for _, size in moments), 0, end
        for moment, size in moments:
            seen += size
            if 2 * seen >= total:
                half = moment
                break
        found.append(((moments[0][0] - begin) / (end - begin), (half - begin) / (end - begin)))
    first, halves = zip(*found, strict=True)
    return statistics.median(first), statistics.median(halves)


def sending(carrier: ThreadPoolExecutor, rate: float) -> Callable[..., Any]:
    """A hook that averages a bucket after the time that a link of so many bytes/s takes for it.

    A ring of two processes sends half of a bucket twice, so each direction carries its bytes once.
    """

    def send(_, bucket):
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        buffer = bucket.buffer()

        def carry() -> None:
            time.sleep(buffer.nbytes / rate)
            buffer.div_(2)
            dist.all_reduce(buffer)
            future.set_result(buffer)

        carrier.submit(carry)
        return future

    return send


if __name__ == "__main__":
    main()
