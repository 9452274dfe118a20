"""`rx.compile` beside the plan that is interpreted and beside torch.compile: peaks, times and gradients on this device.

Each way trains the same step. The budget of ours is a share of the peak of plain PyTorch, or the smallest one where
nothing fits into that. Peaks are highest requested bytes during one step, resident bytes included.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._functorch import config

import remat_explorer as rx
from gpu_parts.memory import emptied
from gpu_parts.work import Work
from remat_explorer.capture import exact_kernels, seconds_of, torch_device
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.errors import RematError

MODELS = {"residual_net": (4096, 32, None), "gpt2": (4, None, 512), "unet": (4, 208, None)}
TINY_MODELS = {"mlp": (64, None, None)}
SHARE, SECONDS, RUNS = 0.75, 5.0, 5
HALF = "torch.compile, half of the activations"
OURS: dict[str, Callable[..., Any]] = {
    "rx.rematerialize": lambda model, args, budget: rx.rematerialize(model, args, budget=budget, time_limit=SECONDS),
    "rx.compile, one by one": lambda model, args, budget: rx.compile(model, budget, time_limit=SECONDS),
    "rx.compile, Inductor": lambda model, args, budget: rx.compile(
        model, budget, backend="inductor", time_limit=SECONDS
    ),
}
WAYS = ("plain PyTorch", *OURS, "torch.compile", HALF)


def run(work: Work) -> None:
    """Each way on each model."""
    models = TINY_MODELS if work.tiny else MODELS
    studies: dict[str, Study] = {}

    def measure(name: str) -> dict[str, Any]:
        model, _, way = name.partition(": ")
        if model not in studies:
            studies.clear()
            emptied(work.device)
            studies[model] = Study(model, models[model], work.device)
        return studies[model].measured(way)

    work.each([f"{model}: {way}" for model in models for way in WAYS], measure)


class Study:
    """A model that several ways train.

    Args:
        name, size: of the model: batch, pixels, tokens.
        device: where it runs.
    """

    def __init__(self, name: str, size: tuple[Any, ...], device: str) -> None:
        loaded = rx.models.load(name, *size, device=device)
        self.module, self.device = loaded.module.to(device), torch_device(device)
        self.args = tuple(tensor.to(device) for tensor in loaded.args)
        self.resident = sum(tensor.nbytes for tensor in (*self.module.parameters(), *self.module.buffers(), *self.args))
        self.plain = self._measured(self.module)
        self.reference = self._gradients()

    def measured(self, way: str) -> dict[str, Any]:
        """Peak, time and gradients of one way."""
        torch._dynamo.reset()
        begun = time.perf_counter()
        with config.patch(activation_memory_budget=0.5 if way == HALF else 1.0):
            model, entry = self._made(way)
        entry["seconds_to_start"] = time.perf_counter() - begun
        entry |= self._measured(model)
        if isinstance(entry.get("budget"), int):
            entry["within"] = entry["peak"] <= entry["budget"]
        pairs = zip(self._gradients(), self.reference, strict=True)
        entry["gradient_difference"] = max(float((mine - theirs).abs().max()) for mine, theirs in pairs)
        for graph in getattr(getattr(model, "backend", None), "graphs", []):
            entry |= {"predicted_peak": graph.predicted_peak, "fused_peak": graph.fused_peak, "turns": graph.turns}
        return entry

    def _made(self, way: str) -> tuple[Callable[..., torch.Tensor], dict[str, Any]]:
        """The model in one way, after a first step, and the budget that it was given."""
        if way not in OURS:
            model = self.module if way == "plain PyTorch" else torch.compile(self.module)
            self._step(model)
            return model, {}
        try:
            return self._started(way, int(SHARE * self.plain["peak"]))
        except (RematError, BackendCompilerFailed):  # there is no schedule for that
            return self._started(way, "smallest")

    def _started(self, way: str, budget: int | str) -> tuple[Callable[..., torch.Tensor], dict[str, Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a budget that is not kept is in the table
            model = OURS[way](self.module, self.args, budget)
            self._step(model)
        return model, {"budget": budget}

    def _step(self, model: Callable[..., torch.Tensor]) -> None:
        for parameter in self.module.parameters():
            parameter.grad = None
        model(*self.args).backward()

    def _gradients(self) -> list[torch.Tensor]:
        """Those of the last step."""
        return [parameter.grad.clone() for parameter in self.module.parameters() if parameter.grad is not None]

    def _measured(self, model: Callable[..., torch.Tensor]) -> dict[str, Any]:
        with exact_kernels():
            self._step(model)
            for parameter in self.module.parameters():
                parameter.grad = None
            emptied(str(self.device))
            with memory_meter(self.device) as meter, meter.section():
                self._step(model)
            seconds = [seconds_of(lambda: self._step(model), self.device) for _ in range(RUNS)]
        return {"peak": self.resident + meter.readings[0].highest, "seconds": statistics.median(seconds)}
