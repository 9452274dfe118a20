"""A rematerialized model in real training loops ends with the weights of plain training, bit for bit."""

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import gradient_handover
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import random_schedule, solution_of
from tests.runtime.step_outcomes import Operators
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


def cross_entropy(model: nn.Module) -> torch.Tensor:
    return functional.cross_entropy(model(torch.randn_like(X)), Y)


def sgd(model: nn.Module, momentum: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)


def plainly(model: nn.Module, steps: int) -> None:
    optimizer = sgd(model, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model).backward()
        optimizer.step()


def scaling(model: nn.Module, steps: int) -> None:
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    for _ in range(steps):
        optimizer.zero_grad()
        scaler.scale(cross_entropy(model)).backward()
        scaler.step(optimizer)
        scaler.update()


def evaluating_between(model: nn.Module, steps: int) -> None:
    for _ in range(steps):
        plainly(model, 1)
        model.eval()
        with torch.no_grad():
            model(torch.randn(3, 3, 16, 16))
        model(X[:1]).sum()
        model.train()
        with torch.no_grad():
            model(X)  # updates the running statistics, as in plain PyTorch


def smaller_batches(model: nn.Module, steps: int) -> None:
    """What a DataLoader gives that does not drop its last batch; two sizes meet before one backward pass."""
    optimizer = sgd(model)
    for _ in range(steps):
        for images, labels in DataLoader(TensorDataset(torch.randn(15, 3, 16, 16), Y.repeat(2)[:15]), batch_size=8):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        optimizer.zero_grad()
        (functional.cross_entropy(model(X), Y) + functional.cross_entropy(model(X[:1]), Y[:1])).backward()
        optimizer.step()


LOOPS: dict[str, tuple[Loop, int]] = {
    "fifty steps": (plainly, 50),
    "gradient scaler": (scaling, 5),
    "evaluation between steps": (evaluating_between, 3),
    "smaller batches": (smaller_batches, 2),
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
    for count in (8, 8, 7, 1):
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
    assert len(planned.plans) == 3


def test_two_processes_of_distributed_data_parallel_end_with_the_weights_of_plain_training(tmp_path):
    """As with plain modules, each process wraps its own; gradients are averaged by hooks on the parameters."""
    run_two(distributed, tmp_path)
    plain, first, second = (torch.load(tmp_path / name, weights_only=True) for name in ("plain0", "remat0", "remat1"))
    for key, content in plain.items():
        assert torch.equal(content, first[key]), key
        # each process has its own examples, so its own statistics
        assert "running" in key or torch.equal(content, second[key]), key
    for sent in (torch.load(tmp_path / f"sent{rank}", weights_only=True) for rank in range(2)):
        assert len(sent) > 2
        assert sent[0] < 0.3  # of the backward pass's operations, when the first bucket was sent
        assert sent == sorted(sent)


SENT: list[int] = []  # how many operators had run when a bucket was sent


def send(calls, bucket):
    """As DistributedDataParallel, which looks at annotations, sends a bucket by itself."""
    SENT.append(len(calls.ran))
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
    schedule = random_schedule(rx.capture(model, (X,)), 0, dropped=0.5, flipped=0.0)
    assert schedule.recomputations > 0
    models["remat"] = rx.rematerialize(model, (X,), solution=solution_of(schedule))
    calls, parallel = Operators(), nn.Module()
    for name, one in models.items():
        parallel = nn.parallel.DistributedDataParallel(one, bucket_cap_mb=1e-4)
        parallel.register_comm_hook(calls, send)
        torch.manual_seed(rank)
        plainly(parallel, 4)
        torch.save(parallel.module.state_dict(), f"{folder}/{name}{rank}")
    loss = functional.cross_entropy(parallel(X), Y)
    SENT.clear()
    with calls:
        loss.backward()
    torch.save([count / len(calls.ran) for count in SENT], f"{folder}/sent{rank}")
    torch.distributed.barrier()
    os._exit(0)  # not by the way of gloo's destructor, which may wait for a thread that waits for Python's lock


def test_not_a_number_under_anomaly_detection_leads_to_the_operator():
    model, x = Made(lambda self, x: (self.layer(x) * 0).sqrt().sum(), layer=nn.Linear(4, 4)), torch.ones(3, 4)
    planned = rx.rematerialize(model, (x,), budget="100%")
    planned(x).backward()  # as plain PyTorch does without anomaly detection
    words = r"'layer\.(weight|bias)' has NaN.*with the model that was given .*names the op"
    with torch.autograd.detect_anomaly():
        with pytest.raises(ExecutionError, match=words):
            planned(x).backward()
        with pytest.raises(RuntimeError, match="MulBackward0"):
            model(x).backward()
