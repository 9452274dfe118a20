"""What the runtime itself costs: the plan that keeps everything, beside plain PyTorch, in paired runs.

    python benchmarks/runtime_overhead.py
    python benchmarks/runtime_overhead.py resnet50:64:224 --device cuda

Each pair runs plain PyTorch and the rematerialized model right after one another, in turn first and second; the median
of the ratios is shown, with the quartiles. Both take whole training steps: loss, backward pass, gradients in ``.grad``.
`lstm` and `gru` are two layers from 128 to 256 channels on sequences, lstm:BATCH[:STEPS]; the target is an LSTM within
15 % of plain PyTorch on the CPU.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from report import publish

import remat_explorer as rx
from remat_explorer.quantities import format_seconds

CASES = [
    "mlp:8192",
    "vgg16:16:64",
    "resnet18:32:64",
    "mobilenet_v1:32:64",
    "unet:4:64",
    "residual_net:128:32",
    "lstm:32:64",
    "gru:32:64",
]
RECURRENT: dict[str, Callable[..., torch.nn.RNNBase]] = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
COLUMNS = ("model", "operations", "of 100 µs", "their share", "plain", "plan", "ratio", "quartiles")
LONG = 1e-4  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH[:IMAGE]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows, details = [], []
    for case in options.cases:
        module, args = loaded(case, options.device)
        graph = rx.profile(rx.capture(module, args), module, args, device=options.device)
        solution = rx.solve(graph, "100%", strategy="checkpoint-all")
        plain = copy.deepcopy(module)
        planned = rx.rematerialize(module, args, solution=solution)
        pairs = paired(plain, planned, args, options.pairs, options.device)
        ratios = sorted(mine / theirs for theirs, mine in pairs)
        low, median, high = statistics.quantiles(ratios, n=4)
        long = graph.costs >= LONG
        seconds = [statistics.median(column) for column in zip(*pairs, strict=True)]
        details.append({"case": case, "ratio": median, "quartiles": [low, high], "pairs": pairs})
        rows.append(
            [
                case,
                str(graph.n),
                str(int(long.sum())),
                f"{graph.costs[long].sum() / graph.total_cost:.0%}",
                *map(format_seconds, seconds),
                f"{100 * (median - 1):+.1f} %",
                f"{100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %",
            ]
        )
        print(" ".join(rows[-1]), flush=True)
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    publish(f"runtime_overhead_{options.device}", COLUMNS, rows, details, device=device, threads=options.threads)


class Sequences(torch.nn.Module):
    """Two recurrent layers and a loss."""

    def __init__(self, kind: Callable[..., torch.nn.RNNBase]) -> None:
        super().__init__()
        self.layers, self.head = kind(128, 256, num_layers=2), torch.nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0]).square().mean()


def loaded(case: str, device: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A model, and inputs of the sizes that a case names."""
    name, *sizes = case.split(":")
    batch, image = [*map(int, sizes), None][:2]
    if name in RECURRENT:
        return Sequences(RECURRENT[name]).to(device), (torch.randn(image or 64, batch or 1, 128, device=device),)
    model = rx.models.load(name, batch=batch, image=image, device=device)
    return model.module, model.args


def paired(
    plain: torch.nn.Module, planned: torch.nn.Module, args: tuple[torch.Tensor, ...], count: int, device: str
) -> list[tuple[float, float]]:
    """Seconds of plain PyTorch and of the plan, pair by pair, after two pairs that warm up."""
    pairs = []
    for number in range(count + 2):
        contenders = (plain, planned) if number % 2 else (planned, plain)
        seconds = {}
        for model in contenders:
            for parameter in model.parameters():
                parameter.grad = None
            synchronize(device)
            begin = time.perf_counter()
            model(*args).backward()
            synchronize(device)
            seconds[id(model)] = time.perf_counter() - begin
        pairs.append((seconds[id(plain)], seconds[id(planned)]))
    return pairs[2:]


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
