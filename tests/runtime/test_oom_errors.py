"""Running out of memory: the statement, what was alive, the prediction; and the process goes on."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.plan import Compute
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of

X = torch.randn(64, 32)


class Greedy(torch.autograd.Function):
    """Runs out of memory in its backward pass while ``Greedy.left`` is 0, as an allocator would say it."""

    left = 1000

    @staticmethod
    def forward(ctx, x):
        return _greedy(x)

    @staticmethod
    def backward(ctx, *gradients):
        return _greedy(gradients[0])


@torch.library.custom_op("remat_explorer_tests::greedy", mutates_args=())
def _greedy(x: torch.Tensor) -> torch.Tensor:
    Greedy.left -= 1
    if Greedy.left < 0:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return x.clone()


@_greedy.register_fake
def _(x):
    return torch.empty_like(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Greedy.apply(self.layers(x).tanh()).sum()  # type: ignore[union-attr]


@pytest.fixture
def greedy():
    Greedy.left = 1000
    yield Greedy
    Greedy.left = 1000


def tensors_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


WORDS = (
    r"memory ran out at 'compute .*greedy.*' \(statement \d+ of \d+, stage \d+\), where [\d.]+ KiB were predicted\. In "
    r"memory were [\d.]+ KiB of parameters, inputs and buffers, and '.*' 8.00 KiB, .*; solve with a smaller budget"
)


def test_a_training_step_names_the_statement_and_the_next_one_works(greedy):
    model = Net()
    solution = solution_of(random_schedule(rx.capture(model, (X,)), 0, 0.0, 0.0))
    trained = rx.rematerialize(model, (X,), solution=solution)
    trained(X).backward()
    before = tensors_alive()
    for allowed in (0, 1):  # in the forward and in the backward pass
        greedy.left = allowed
        with pytest.raises(OutOfMemoryError, match=WORDS) as caught:
            trained(X).backward()
        plan, place = trained.rematerialization.solution.plan, caught.value.statement
        assert plan is not None
        assert place is not None
        statement = plan.statements[place]
        assert isinstance(statement, Compute)
        assert "greedy" in plan.graph.operations[statement.operation].name
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        del caught
        assert tensors_alive() <= before
    greedy.left = 1000
    trained(X).backward()


def test_a_measurement_goes_without_plain_pytorch_where_memory_does_not_hold_it(greedy):
    model = Net()
    graph = rx.capture(model, (X,))
    greedy.left = 0
    calls = []

    def refill(done: int, total: int) -> None:
        calls.append(done)
        greedy.left = 1000 if done >= 2 else 0

    found = rx.measure(solution_of(checkpoint_all(graph)), model, (X,), device="cpu", repeats=1, on_progress=refill)
    assert found.eager is None
    assert found.equal is None
    assert found.sound
    assert "not compared: memory ran out in plain PyTorch" in str(found)
    assert found.checkpoint_all_seconds is not None
    assert calls == sorted(calls)


def test_a_measurement_goes_without_the_plan_that_keeps_everything_too(greedy):
    model = Net()
    graph = rx.capture(model, (X,))

    def refill(done: int, total: int) -> None:
        greedy.left = 0 if done in (1, 5) else 1000  # before plain PyTorch, and before everything is kept

    found = rx.measure(solution_of(random_schedule(graph, 0)), model, (X,), device="cpu", repeats=1, on_progress=refill)
    assert found.eager is found.checkpoint_all_seconds is found.overhead is None
    assert found.seconds > 0
    assert "memory ran out in plain PyTorch" in found.missing
    assert "memory ran out at 'compute" in found.missing


def test_a_measurement_names_the_statement_of_the_plan(greedy):
    model = Net()
    graph = rx.capture(model, (X,))

    def empty(done: int, total: int) -> None:
        greedy.left = 0 if done == 2 else 1000

    with pytest.raises(OutOfMemoryError, match=WORDS):
        rx.measure(solution_of(checkpoint_all(graph)), model, (X,), device="cpu", repeats=1, on_progress=empty)


def test_a_true_shortage_of_the_cpu_is_explained_and_survived():
    script = """
        import resource, torch
        import remat_explorer as rx
        from remat_explorer.errors import OutOfMemoryError
        torch.set_num_threads(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), *(torch.nn.Tanh() for _ in range(14)))
        x = torch.randn(2**20, 8)  # 32 MiB for each layer
        solution = rx.solve(rx.capture(model, (x,)), "100%", strategy="checkpoint-all")
        trained = rx.rematerialize(model, (x,), solution=solution)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
        try:
            trained(x).sum().backward()
        except OutOfMemoryError as error:
            print(error)
        print(float(model(x[:8]).sum().isfinite()))
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300, check=True
    )
    assert "memory ran out at 'compute " in found.stdout
    assert found.stdout.strip().endswith("1.0")


def test_a_profile_goes_along_a_lean_schedule_where_memory_does_not_hold_everything(greedy):
    model = Net()
    graph, starts = rx.capture(model, (X,)), []

    def refill(done: int, total: int) -> None:
        starts.extend([total] * (done == 1))
        greedy.left = 1000 if len(starts) > 1 else 0

    found = rx.profile(graph, model, (X,), device="cpu", repeats=1, refresh=True, on_progress=refill)
    assert starts[1] > starts[0] == 3 * graph.n  # the second one computes some operations again
    assert (found.costs > 1e-9).all()


def test_a_profile_that_fails_in_any_case_says_where(greedy):
    model = Net()
    graph = rx.capture(model, (X,))
    greedy.left = 0
    with pytest.raises(OutOfMemoryError, match=r"memory ran out while profiling 'compute .*greedy'; use a smaller"):
        rx.profile(graph, model, (X,), device="cpu", repeats=1, refresh=True)
