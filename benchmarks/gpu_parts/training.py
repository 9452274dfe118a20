"""Training with `rx.rematerialize` beside plain PyTorch: ten steps of SGD, each with the same seed in both.

Plain PyTorch trains twice: where its own losses differ between two runs, a kernel of the device gives other results
from run to run, and ours cannot be equal to both.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import remat_explorer as rx
from gpu_parts.memory import emptied
from gpu_parts.work import Work
from remat_explorer.capture import exact_kernels, seconds_of, torch_device
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.errors import RematError

MODELS = {"resnet18": (64, 224, None), "gpt2": (4, None, 512)}
TINY_MODELS = {"residual_net": (4, 32, None)}
SHARE, SECONDS, STEPS, RATE = 0.6, 5.0, 10, 1e-3


def run(work: Work) -> None:
    """Model after model."""
    models = TINY_MODELS if work.tiny else MODELS
    work.each(list(models), lambda name: trained(name, (*models[name],), work.device))


def trained(name: str, size: tuple[Any, ...], device: str) -> dict[str, Any]:
    """Losses, peaks and times of ten steps in plain PyTorch, again in plain PyTorch, and within a budget."""
    loaded = rx.models.load(name, *size, device=device)
    args = tuple(tensor.to(device) for tensor in loaded.args)
    models = [loaded.module.to(device), copy.deepcopy(loaded.module), copy.deepcopy(loaded.module)]
    resident = sum(t.nbytes for t in (*loaded.module.parameters(), *loaded.module.buffers(), *args))
    with exact_kernels():
        plain = ten_steps(models[0], models[0], args, resident, device)
        again = ten_steps(models[1], models[1], args, resident, device)
        planned = within(models[2], args, int(SHARE * plain["peak"]))
        ours = ten_steps(planned, models[2], args, resident, device)
    solution = planned.rematerialization.solution
    pairs = zip(models[0].parameters(), models[2].parameters(), strict=True)
    emptied(device)
    return {
        "size": str(rx.models.Size(loaded.batch, loaded.image, loaded.sequence)),
        "plain": plain,
        "again": again,
        "ours": ours | {"budget": solution.budget, "predicted": solution.peak},
        "parameters_equal": all(torch.equal(mine, theirs) for theirs, mine in pairs),
    }


def within(model: nn.Module, args: tuple[Any, ...], budget: int) -> Any:
    """The model in a budget of bytes, or in the smallest one where that is larger."""
    try:
        return rx.rematerialize(model, args, budget=budget, time_limit=SECONDS)
    except RematError:
        return rx.rematerialize(model, args, budget="smallest", time_limit=SECONDS)


def ten_steps(
    call: Callable[..., torch.Tensor], model: nn.Module, args: tuple[Any, ...], resident: int, device: str
) -> dict[str, Any]:
    """Train ``model`` through ``call``; the peak is that of forward and backward pass, resident bytes included."""
    optimizer, target = torch.optim.SGD(model.parameters(), RATE), torch_device(device)
    losses: list[float] = []
    seconds: list[float] = []

    def step() -> torch.Tensor:
        loss = call(*args)
        loss.backward()
        return loss.detach()

    for index in range(STEPS):
        optimizer.zero_grad()
        torch.manual_seed(index)
        emptied(device)
        if index == STEPS - 1:  # metered, so not timed
            with memory_meter(target) as meter, meter.section():
                loss = step()
            losses.append(loss.item())
        else:
            seconds.append(seconds_of(lambda: losses.append(step().item()), target))
        optimizer.step()
    peak = resident + meter.readings[0].highest
    return {"losses": losses, "peak": peak, "seconds": statistics.median(seconds[1:])}
