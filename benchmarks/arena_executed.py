"""What runs in the arena: schedules of the methods and PyTorch's own ways, and its memory budget beside ours."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch._functorch import config

import remat_explorer as rx
from remat_explorer.capture import exact_kernels, place
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph
from remat_explorer.models.decoder import reported_llama
from remat_explorer.runtime import PeerMeasurement
from remat_explorer.runtime.comparison import FinalState, compare
from remat_explorer.runtime.plan_runner import PlanRunner
from remat_explorer.solvers import checkpoint_all_peak
from reproduction.judge import Contender

SHARES = [round(0.05 * i, 2) for i in range(1, 13)]  # PyTorch's settings in the report, and on to 0.6
BUDGET = 0.7  # of the checkpoint-all peak, for schedules that run


def dropout_chain() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Layers with dropout and batch normalization: what runs again draws the same masks, or is wrong."""
    torch.manual_seed(0)
    block = [(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.3)) for _ in range(8)]
    return nn.Sequential(*(layer for layers in block for layer in layers)), (torch.randn(1024, 256),)


def mean_square(output: torch.Tensor) -> torch.Tensor:
    """A loss for modules that return none."""
    return output.square().mean()


def executed(methods: Iterable[Contender], seconds: float, repeats: int) -> Iterator[dict[str, Any]]:
    """Every method's schedule within `BUDGET`, run on the chain, and PyTorch's own ways, with one meter."""
    module, args = dropout_chain()
    name = "chain with dropout"
    graph = rx.profile(rx.capture(module, args, loss=mean_square), module, args, loss=mean_square)
    budget = int(BUDGET * checkpoint_all_peak(graph))
    for method in [Contender("optimal", "optimal"), *methods]:
        try:
            solution = rx.solve(graph, budget, method.strategy, seconds, threads=1, **dict(method.options))
        except RematError:  # the method is not for this graph, or not installed
            continue
        if solution.schedule is None:
            continue
        found = rx.measure(solution, module, args, loss=mean_square, repeats=repeats)
        comparison = found.eager.comparison if found.eager else None
        yield {
            "model": name,
            "method": method.name,
            "budget": budget,
            "measured_peak": found.peak,
            "time_over_eager": found.seconds / found.eager.seconds if found.eager else None,
            "gradients_equal": comparison.gradients_equal if comparison else None,
            "buffers_equal": comparison.buffers_equal if comparison else None,
        }
    for peer in rx.compare_peers(module, args, loss=mean_square, repeats=repeats, budgets=(0.5,)):
        if peer.peak is not None:
            yield {"model": name, "budget": None, "method": f"PyTorch: {peer.title}"} | _of_peer(peer)
    yield {"model": name, "budget": None} | compiled(module, args, 0.1)


def _of_peer(peer: PeerMeasurement) -> dict[str, Any]:
    return {
        "measured_peak": peer.peak,
        "time_over_eager": peer.overhead,
        "gradients_equal": peer.gradients_equal,
        "buffers_equal": peer.buffers_equal,
    }


def compiled(module: nn.Module, args: tuple[torch.Tensor, ...], share: float) -> dict[str, Any]:
    """Gradients and buffers of torch.compile under its memory budget, from the same random state as eager's."""

    def once(run: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        module.load_state_dict(before)
        module.zero_grad()
        torch.manual_seed(1)
        mean_square(run(*args)).backward()
        grads = [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]
        return grads, [buffer.clone() for buffer in module.buffers()]

    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    plain = once(module)
    torch._dynamo.reset()
    with config.patch(activation_memory_budget=share):
        found = once(torch.compile(module, backend="aot_eager"))
    same = [all(map(torch.equal, a, b)) for a, b in zip(plain, found, strict=True)]
    return {
        "method": f"PyTorch: torch.compile (aot_eager, activation_memory_budget {share:g})",
        "measured_peak": None,
        "time_over_eager": None,
        "gradients_equal": same[0],
        "buffers_equal": same[1],
    }


def reported(layers: int, tokens: int, seconds: float) -> list[dict[str, Any]]:
    """PyTorch's measured peaks under its budget, and ours under the same shares of what can be saved, in one run."""
    module, args = reported_llama(layers, tokens)
    peers = rx.compare_peers(module, args, repeats=1, budgets=SHARES)
    graph = rx.profile(rx.capture(module, args), module, args, repeats=1)
    budgets = budgets_of(graph)
    frontier = rx.sweep(graph, budgets, time_limit=seconds, workers=1)
    rows, reference = [], None
    by_share = {peer.knob: peer for peer in peers if peer.name == "pytorch-budget"}
    for share, budget in zip(SHARES, budgets, strict=True):
        best = frontier.best(budget)
        ours, equal = None, None
        if best is not None:
            ours, equal, reference = metered(best, module, args, reference)
        peer = by_share[f"budget {share:g}, dp"]
        rows.append(
            {
                "share": share,
                "torch": peer.peak,
                "torch_overhead": peer.predicted_overhead,
                "budget": budget,
                "ours": ours,
                "ours_overhead": best and best.overhead,
                "status": best and str(best.status),
                "equal": equal,
                "resident": graph.resident_bytes,
            }
        )
    return rows


def metered(
    solution: rx.Solution, module: nn.Module, args: tuple[torch.Tensor, ...], reference: FinalState | None
) -> tuple[int, bool, FinalState]:
    """Measured peak of a schedule, whether its results are eager's bit for bit, and eager's, run once for all.

    `remat_explorer.measure` runs a step ten times, to time it; this one runs it twice.
    """
    with exact_kernels(), torch.random.fork_rng(devices=[]):
        bench = PlanRunner(solution, place(module, args, None, "cpu"), None, lambda: False)
        if reference is None:
            reference = bench.eager_run()[1]
            bench.start.rewind()
        during, _, final, _ = bench.metered_run(False)
        return int(during.max()), compare(final, reference, dict(module.named_buffers())).equal, reference


def budgets_of(graph: Graph) -> list[int]:
    """The shares of what lies between the smallest budget with a known schedule and keeping everything."""
    smallest, largest = rx.minimum_budget(graph).known_feasible, checkpoint_all_peak(graph)
    return [int(smallest + share * (largest - smallest)) for share in SHARES]


def wrong(rows: list[dict[str, Any]]) -> list[str]:
    """Where ours is not monotone, above its budget, or not equal to eager."""
    said = [f"setting {row['share']}: no schedule" for row in rows if row["ours"] is None]
    known = [row for row in rows if row["ours"] is not None]
    above = [row for row in known if row["ours"] > row["budget"]]
    said += [f"setting {row['share']}: {row['ours']} of {row['budget']} bytes" for row in above]
    said += [f"setting {row['share']}: results differ" for row in known if row["equal"] is False]
    rising = itertools.pairwise(known)
    said += [f"settings {a['share']} and {b['share']}: the peak falls" for a, b in rising if b["ours"] < a["ours"]]
    return said
