"""A rematerialized model in real training loops ends with the weights of plain training, bit for bit."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import gradient_handover
from tests.runtime.two_processes import run_two
from tests.thorough import thorough_but

X, Y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))


def network() -> nn.Module:
    """A residual net with batch norm and dropout, without a loss."""
    return rx.models.load("residual_net", batch=8, image=16).module.get_submodule("model")


@pytest.fixture(scope="module")
def tightest() -> rx.Solution:
    """The schedule of the smallest feasible budget."""
    model = network()
    graph = rx.profile(rx.capture(model, (X,)), model, (X,), device="cpu", repeats=1)
    smallest = rx.minimum_budget(graph)
    assert smallest.known_feasible < 0.7 * smallest.checkpoint_all_peak
    solution = rx.solve(graph, smallest.known_feasible, time_limit=5)
    assert solution.schedule is not None
    assert solution.schedule.recomputations > 5
    return solution


Loop = Callable[[nn.Module, int], None]


def plainly(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(torch.randn_like(X)), Y).backward()
        optimizer.step()


def accumulating_and_clipping(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        functional.cross_entropy(model(torch.randn_like(X)), Y).backward()
        if step % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)


def scaling(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    for _ in range(steps):
        optimizer.zero_grad()
        scaler.scale(functional.cross_entropy(model(torch.randn_like(X)), Y)).backward()
        scaler.step(optimizer)
        scaler.update()


def evaluating_between(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        model.train()
        optimizer.zero_grad()
        functional.cross_entropy(model(torch.randn_like(X)), Y).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(torch.randn(3, 3, 16, 16))
        model(X[:1]).sum()
        model.train()
        with torch.no_grad():
            model(X)  # updates the running statistics, as in plain PyTorch


def two_forward_passes(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        first, second = model(torch.randn_like(X)), model(torch.randn_like(X))
        (functional.cross_entropy(first, Y) + functional.mse_loss(second, first.detach())).backward()
        optimizer.step()


def smaller_batches(model: nn.Module, steps: int) -> None:
    """What a DataLoader gives that does not drop its last batch; two sizes meet before one backward pass."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        for images, labels in DataLoader(TensorDataset(torch.randn(15, 3, 16, 16), Y.repeat(2)[:15]), batch_size=8):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        optimizer.zero_grad()
        (functional.cross_entropy(model(X), Y) + functional.cross_entropy(model(X[:1]), Y[:1])).backward()
        optimizer.step()


def gradients_by_hand(model: nn.Module, steps: int) -> None:
    parameters = list(model.parameters())
    for _ in range(steps):
        loss = functional.cross_entropy(model(torch.randn_like(X)), Y)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter -= 0.01 * gradient


LOOPS: dict[str, tuple[Loop, int]] = {
    "ten steps": (plainly, 10),
    "fifty steps": (plainly, 50),
    "accumulation and clipping": (accumulating_and_clipping, 6),
    "gradient scaler": (scaling, 5),
    "evaluation between steps": (evaluating_between, 4),
    "two forward passes before one backward pass": (two_forward_passes, 3),
    "smaller batches": (smaller_batches, 2),
    "torch.autograd.grad": (gradients_by_hand, 3),
}


@pytest.mark.parametrize("name", thorough_but(LOOPS, *(name for name in LOOPS if name != "fifty steps")))
def test_weights_buffers_and_random_state_end_equal(name, tightest):
    loop, steps = LOOPS[name]
    model = network()
    plain, trained = copy.deepcopy(model), rx.rematerialize(model, (X,), solution=tightest)
    before = copy.deepcopy(model.state_dict())
    states = []
    for one in (plain, trained):
        torch.manual_seed(3)
        loop(one, steps)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)
    assert trained.state_dict().keys() == plain.state_dict().keys()
    for key, content in plain.state_dict().items():
        assert torch.equal(content, trained.state_dict()[key]), key
    assert any(not torch.equal(content, before[key]) for key, content in plain.state_dict().items())


def test_steps_of_a_loop_keep_to_the_budget_with_any_smaller_batch(tightest):
    model = network()
    trained = rx.rematerialize(model, (X,), solution=tightest)
    for count in (8, 8, 7, 6, 4, 1):
        for parameter in model.parameters():
            parameter.grad = None
        planned = trained.rematerialization
        trained(X[:count])  # makes the plan, which may run kernels to be measured
        with CpuMeter() as meter, meter.section():
            output = trained(X[:count])
            output.backward(torch.ones_like(output))
        resident = planned.solution.graph.resident_bytes
        assert resident + meter.readings[0].highest <= (planned.solution.peak or 0) <= tightest.budget, count
        if count == 8:
            assert resident + meter.readings[0].highest >= 0.99 * tightest.peak
    assert len(planned.plans) == 5


def test_two_processes_of_distributed_data_parallel_end_with_the_weights_of_plain_training(tmp_path):
    """As with plain modules, each process wraps its own; gradients are averaged by hooks on the parameters."""
    run_two(distributed, tmp_path)
    plain, first, second = (torch.load(tmp_path / name, weights_only=True) for name in ("plain0", "remat0", "remat1"))
    for key, content in plain.items():
        assert torch.equal(content, first[key]), key
        if "running" not in key:  # each process has its own examples, so its own statistics
            assert torch.equal(content, second[key]), key
    for sent in (torch.load(tmp_path / f"sent{rank}", weights_only=True) for rank in range(2)):
        assert len(sent) > 2
        assert sent[0] < 0.3  # of the backward pass's operations, when the first bucket was sent
        assert sent == sorted(sent)


class Calls(TorchDispatchMode):
    """Counts operations, and notes how many there were when a bucket was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.sent: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def send(calls, bucket):
    """As DistributedDataParallel, which looks at annotations, sends a bucket by itself."""
    calls.sent.append(calls.count)
    return default_hooks.allreduce_hook(torch.distributed.group.WORLD, bucket)  # type: ignore[arg-type]


def distributed(rank: int, folder: str) -> None:
    """One process: the same loop, with the plain model and with the rematerialized one."""
    torch.set_num_threads(1)
    gradient_handover.MIN_SECONDS = 0.0  # what takes no time is handed over, too
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten())
    model.append(nn.Linear(8 * 14 * 14, 10))
    models: dict[str, Any] = {"plain": copy.deepcopy(model)}
    models["remat"] = rx.rematerialize(model, (X,), budget="95%", time_limit=5)
    calls, parallel = Calls(), nn.Module()
    for name, one in models.items():
        parallel = nn.parallel.DistributedDataParallel(one, bucket_cap_mb=1e-4)
        parallel.register_comm_hook(calls, send)
        torch.manual_seed(rank)
        plainly(parallel, 4)
        torch.save(parallel.module.state_dict(), f"{folder}/{name}{rank}")
    loss = functional.cross_entropy(parallel(X), Y)
    calls.sent.clear()
    with calls:
        loss.backward()
    torch.save([count / calls.count for count in calls.sent], f"{folder}/sent{rank}")
    Path(folder, f"done{rank}").touch()
    while not all(Path(folder, f"done{other}").exists() for other in range(2)):
        time.sleep(0.05)
    # not by the way of gloo's destructor, which may wait, while it holds Python's lock, for a thread that waits for the
    # lock (torch 2.13)
    os._exit(0)


def test_not_a_number_under_anomaly_detection_leads_to_the_operator():
    class Root(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (super().forward(x) * 0).sqrt().sum()

    model, x = Root(4, 4), torch.ones(3, 4)
    planned = rx.rematerialize(model, (x,), budget="100%")
    planned(x).backward()  # as plain PyTorch does without anomaly detection
    with torch.autograd.detect_anomaly():
        with pytest.raises(
            ExecutionError, match=r"'(weight|bias)' has NaN.*with the model that was given .*names the op"
        ):
            planned(x).backward()
        with pytest.raises(RuntimeError, match="MulBackward0"):
            model(x).backward()
