"""Policies of PyTorch's own checkpoints, beside a checkpoint around every n-th layer and the optimum at the same peak.

    python benchmarks/policies.py
    python benchmarks/policies.py gpt2:2:4:64 llama:4:4:64 --time-limit 20

The budget of each row is the peak that is predicted for a checkpoint around every n-th layer. Both peaks are measured:
a step of plain PyTorch with what `policy --loader` prints, and no plan of ours. A policy that does not cost less than
every n-th layer, or takes 1 % more or less than is predicted, ends the benchmark. The optimum is what `solve` finds
within the budget, with its bound.

Costs are predicted from published rates of a CPU, over computing everything once; peaks are bytes that were asked for.
Neither depends on what else the machine does. Times do, and are not measured here. Models are those of transformers,
small; `gpt2-dropout` is GPT-2 as it is trained, with dropout.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from report import publish
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import exact_kernels, place
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.runtime.checkpoint_policy import Policy
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.peers.peer_comparison import Autograd, PeerBench
from remat_explorer.runtime.peers.policy_loader import apply_policy
from remat_explorer.solvers import Region, layers_of

CASES = ["llama:4:4:64", "gpt2:3:4:64", "gpt2-dropout:3:4:64"]
COLUMNS = ("model", "every n", "peak", "off", "cost", "policy: peak", "off", "cost", "optimum", "bound", "saved")
OFF = 0.01  # by how much a peak may differ from the predicted one


class Language(nn.Module):
    """A language model of transformers, small, with its loss."""

    def __init__(self, name: str, layers: int) -> None:
        super().__init__()
        common: dict[str, Any] = {"vocab_size": 256, "use_cache": False, "bos_token_id": 1, "eos_token_id": 2}
        if name == "llama":
            sizes = {"hidden_size": 64, "intermediate_size": 172, "num_attention_heads": 4, "num_key_value_heads": 2}
            self.inner = transformers.LlamaForCausalLM(
                transformers.LlamaConfig(num_hidden_layers=layers, **sizes, **common)
            )
        elif name in ("gpt2", "gpt2-dropout"):
            off = {} if name == "gpt2-dropout" else {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
            config = transformers.GPT2Config(n_embd=64, n_layer=layers, n_head=4, **off, **common)
            self.inner = transformers.GPT2LMHeadModel(config)
        else:
            raise SystemExit(f"no model {name!r}; known are llama, gpt2 and gpt2-dropout")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.inner(input_ids=tokens, labels=tokens).loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:LAYERS:BATCH:TOKENS")
    parser.add_argument("--time-limit", type=float, default=15.0, help="seconds of each solve, and of each search")
    options = parser.parse_args()
    rows, details = [], []
    for case in options.cases:
        model, args = load(case)
        graph = rx.capture(model, args, contract=False)
        layers = layers_of(graph)
        for n in range(1, len(layers) + 1):
            every = Policy(graph, 0, tuple((layer.name, Region(layer.operations)) for layer in layers[::n]))
            cost, budget = every.cost, every.peak
            solution = rx.solve(graph, budget, time_limit=options.time_limit)
            policy = rx.policy(solution, options.time_limit)
            if policy.cost >= cost:
                raise SystemExit(f"{case}: a policy of cost {policy.cost} at {budget} bytes, every {n} layers {cost}")
            peaks = [measured(model, args, graph, one) for one in (every, policy)]
            off = [peak / one.peak - 1 for peak, one in zip(peaks, (every, policy), strict=True)]
            if max(map(abs, off)) > OFF:
                raise SystemExit(f"{case}: peaks of {peaks} bytes, predicted {[every.peak, policy.peak]}")
            costs = [cost, policy.cost, solution.cost, solution.lower_bound]
            ratios = ["" if one is None else format_overhead(one / graph.total_cost) for one in costs]
            sizes = [(format_bytes(one.peak), f"{by:+.2%}") for one, by in zip((every, policy), off, strict=True)]
            saved = sum(len(region.saved) for _, region in policy.modules)
            rows.append([case, str(n), *sizes[0], ratios[0], *sizes[1], *ratios[1:], str(saved)])
            peaks_of_both = {"every_cost": cost, "every_measured_peak": peaks[0], "measured_peak": peaks[1]}
            details.append({"case": case, "every": n, **peaks_of_both, "policy": policy.to_document()})
            print(" | ".join(rows[-1]), flush=True)
    publish("policies", COLUMNS, rows, details, device="CPU", threads=torch.get_num_threads())


def load(case: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """The model of a case, and its inputs."""
    name, *numbers = case.split(":")
    layers, batch, tokens = map(int, numbers)
    torch.manual_seed(0)
    return Language(name, layers), (torch.randint(0, 256, (batch, tokens)),)


def measured(model: nn.Module, args: tuple[Any, ...], graph: Graph, policy: Policy) -> int:
    """Peak bytes of one step of plain PyTorch with the checkpoints of a policy."""
    changed = copy.deepcopy(model)
    with tempfile.TemporaryDirectory() as folder:
        apply_policy(changed, policy.save(Path(folder, "policy.json")))
    placed = place(changed, args, None, "cpu")
    with exact_kernels():
        training = Eager(placed, None)
        return PeerBench(placed, training, graph.resident_bytes).run(Autograd(training)).peak


if __name__ == "__main__":
    main()
