"""What it takes to start training by a plan: the first time, the second, and when a smaller batch comes.

    python benchmarks/starting.py
    python benchmarks/starting.py gpt2:4:64 --threads 2

A case is MODEL:BATCH[:SIZE], of images or in tokens; `llama` is a small one of transformers. Each line is made by
three processes with one cache folder: "first" rematerializes with nothing kept, "capture" is `remat_explorer.capture`
by itself, and "second" rematerializes with profile, schedule and smallest budget kept; its target is 1.5 times the
capture. Loading packages and weights is in none of them. Seconds are those of the processor, with one thread those
that a person waits for on an idle machine; searching ends by the clock, so that "first" has what it may take.

Then the second process trains a step with one example less, half of them, one, and half the tokens. "new shape" is the
longest that one of them took above its second step, with a target of 2 s; "profiled" the same of those whose operators
differ, which run some steps to be measured. For the others a profile says how many operations need more workspace than
with the whole batch, which a plan assumes of none, and whether the peak stays below the predicted one all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from report import publish

import remat_explorer as rx
from remat_explorer.cache_folder import cache_folder
from remat_explorer.plan import Plan

CASES = ["residual_net:32:32", "resnet50:4:96", "llama:8:64", "gpt2:4:32"]
COLUMNS = (
    "model", "operations", "first s", "capture s", "second s", "ratio", "new shape s", "profiled s", "workspace"
)  # fmt: skip
Inputs = dict[str, torch.Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH[:SIZE]")
    parser.add_argument("--budget", default="smallest")
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        torch.set_num_threads(options.threads)
        print(json.dumps(part(options.part, options.cases[0], options.budget, options.time_limit)))
        return
    rows, details = [], []
    for case in options.cases:
        found: dict[str, Any] = {"case": case}
        with tempfile.TemporaryDirectory() as folder:
            for name in ("first", "capture", "second"):
                command = [sys.executable, __file__, case, "--part", name, "--budget", options.budget]
                command += ["--time-limit", str(options.time_limit), "--threads", str(options.threads)]
                environment = {"NUMBA_CACHE_DIR": str(cache_folder())} | os.environ  # compiled once on a machine
                environment |= {"REMAT_EXPLORER_CACHE": folder}
                found |= json.loads(subprocess.run(command, check=True, stdout=-1, env=environment).stdout)
        details.append(found)
        rows.append(row(found))
        print(*rows[-1], flush=True)
    publish("starting", COLUMNS, rows, details, threads=options.threads, budget=options.budget)


def part(name: str, case: str, budget: str, time_limit: float) -> dict[str, Any]:
    """What one process measures."""
    model, inputs = loaded(case)
    begin = time.process_time()
    if name == "capture":
        graph = rx.capture(model, (), inputs)
        return {"capture": time.process_time() - begin, "operations": graph.n}
    trained = rx.rematerialize(model, (), inputs, budget=budget, time_limit=time_limit, cache=True)
    seconds = time.process_time() - begin
    return {name: seconds} if name == "first" else {name: seconds, "shapes": list(shapes(trained, inputs))}


def shapes(trained: Any, inputs: Inputs) -> Iterator[dict[str, Any]]:
    """What each smaller shape took, how it was planned, and what it needs."""
    planned = trained.rematerialization
    whole = planned.solution.graph
    for smaller in smaller_ones(inputs):
        seconds = [step(trained, smaller) for _ in range(2)]
        solution, measured = planned.solution, planned.plans[-1].measured
        graph = rx.profile(rx.capture(planned.model, (), smaller), planned.model, (), smaller)
        pairs = () if measured else zip(whole.operations, graph.operations, strict=True)
        more = [b.default.workspace - a.default.workspace for a, b in pairs]
        peak = solution.peak if measured else Plan.peak_of(solution.schedule.on(graph))
        yield {
            "shape": {name: list(tensor.shape) for name, tensor in smaller.items()},
            "seconds": seconds[0] - seconds[1],
            "carried": not measured,
            "more_workspace": sum(size > 0 for size in more),
            "most_more": max(0, *more, 0),
            "peak": solution.peak,
            "peak_measured": peak,
        }


def step(model: Any, inputs: Inputs) -> float:
    """Seconds of the processor for a training step."""
    for parameter in model.parameters():
        parameter.grad = None
    begin = time.process_time()
    model(**inputs).loss.backward()
    return time.process_time() - begin


def smaller_ones(inputs: Inputs) -> list[Inputs]:
    """One example less, half of them, one, and half the tokens."""
    count = min(len(tensor) for tensor in inputs.values())
    found = [{name: tensor[:n] for name, tensor in inputs.items()} for n in dict.fromkeys((count - 1, count // 2, 1))]
    if all(tensor.dim() == 2 for tensor in inputs.values()):
        found.append({name: tensor[:, : tensor.shape[1] // 2].contiguous() for name, tensor in inputs.items()})
    return found


class WithLoss(torch.nn.Module):
    """A model of the zoo with inputs by name, and its loss as transformers return one."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, **inputs: torch.Tensor) -> Any:
        from transformers.modeling_outputs import CausalLMOutput

        return CausalLMOutput(loss=self.module(*inputs.values()))


def loaded(case: str) -> tuple[torch.nn.Module, Inputs]:
    """A model with its loss, and inputs by name."""
    warnings.simplefilter("ignore")
    name, batch, *sizes = case.split(":")
    size = int(sizes[0]) if sizes else None
    if name == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM

        width: dict[str, Any] = {
            "hidden_size": 64,
            "intermediate_size": 176,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        }
        words = torch.randint(3, 500, (int(batch), size or 64))
        inputs = {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words}
        return LlamaForCausalLM(LlamaConfig(vocab_size=512, **width)), inputs
    sized: dict[str, Any] = {"sequence": size} if name in ("gpt2", "bert") else {"image": size}
    model = rx.models.load(name, batch=int(batch), **sized)
    return WithLoss(model.module), {f"input_{place}": tensor for place, tensor in enumerate(model.args)}


def longest(seconds: list[float]) -> str:
    """The most of several, and of how many."""
    return f"{max(seconds):.1f} ({len(seconds)})" if seconds else ""


def row(found: dict[str, Any]) -> list[str]:
    each = found["shapes"]
    within = all(one["peak_measured"] <= one["peak"] for one in each)
    more = max(one["more_workspace"] for one in each)
    return [
        found["case"],
        str(found["operations"]),
        *(f"{found[name]:.1f}" for name in ("first", "capture", "second")),
        f"{found['second'] / found['capture']:.2f}",
        *(longest([one["seconds"] for one in each if one["carried"] is carried]) for carried in (True, False)),
        f"more in up to {more}, peaks {'kept' if within else 'not kept'}" if more else "never more",
    ]


if __name__ == "__main__":
    main()
