"""Memory that runs out names the statement, and the process goes on; a process that is killed leaves files whole."""

import gc
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import OutOfMemoryError
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.thorough import thorough_but

X = torch.randn(64, 32)


class Greedy(torch.autograd.Function):
    """Runs out of memory in either pass while ``Greedy.left`` is 0, as an allocator would say it."""

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


@pytest.fixture(autouse=True)
def enough() -> Iterator[None]:
    yield
    Greedy.left = 1000


@pytest.fixture(scope="module")
def net() -> tuple[nn.Module, rx.Graph]:
    layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(4)))
    model = Made(lambda s, x: Greedy.apply(s.layers(x).tanh()).sum(), layers=layers)
    return model, rx.capture(model, (X,))


def tensors_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


WORDS = (
    r"memory ran out at 'compute .*greedy.*' \(statement \d+ of \d+, stage \d+\), where [\d.]+ KiB were predicted\. In "
    r"memory were [\d.]+ KiB of parameters, inputs and buffers, and '.*' 8.00 KiB, .*; solve with a smaller budget"
)


def test_a_training_step_names_the_statement_and_the_next_one_works(net):
    model, graph = net
    trained: Any = rx.rematerialize(model, (X,), solution=solution_of(random_schedule(graph, 0, 0.0, 0.0)))
    trained(X).backward()
    before = tensors_alive()
    for allowed in (0, 1):  # in the forward and in the backward pass
        Greedy.left = allowed
        with pytest.raises(OutOfMemoryError, match=WORDS) as caught:
            trained(X).backward()
        plan, place = trained.rematerialization.solution.plan, caught.value.statement
        assert "greedy" in graph.operations[plan.statements[place].operation].name
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        del caught
        assert tensors_alive() <= before
    Greedy.left = 1000
    trained(X).backward()
    model.zero_grad()


def measured(net: tuple[nn.Module, rx.Graph], schedule: rx.Schedule, short: Any) -> Any:
    """A measurement in which there is no memory while ``short`` holds of the parts that are done."""

    def refill(done: int, total: int) -> None:
        Greedy.left = 0 if short(done) else 1000

    refill(0, 0)
    return rx.measure(solution_of(schedule), net[0], (X,), device="cpu", repeats=1, on_progress=refill)


def test_a_measurement_goes_without_plain_pytorch_and_the_plan_that_keeps_everything_where_memory_is_short(net):
    found = measured(net, checkpoint_all(net[1]), lambda done: done == 2)
    assert found.eager is None
    assert found.equal is None
    assert found.sound
    assert "not compared: memory ran out in plain PyTorch" in str(found)
    assert found.checkpoint_all_seconds is not None
    found = measured(net, random_schedule(net[1], 0), lambda done: done in (2, 5))  # before each of the two
    assert found.eager is found.checkpoint_all_seconds is found.overhead is None
    assert "memory ran out in plain PyTorch" in found.missing
    assert "memory ran out at 'compute" in found.missing
    with pytest.raises(OutOfMemoryError, match=WORDS):
        measured(net, checkpoint_all(net[1]), lambda done: done == 1)


def test_a_profile_goes_along_a_lean_schedule_where_memory_is_short_or_says_where_it_ran_out(net):
    model, graph = net
    starts: list[int] = []

    def refill(done: int, total: int) -> None:
        starts.extend([total] * (done == 1))
        Greedy.left = 1000 if len(starts) > 1 else 0

    found = rx.profile(graph, model, (X,), device="cpu", repeats=1, refresh=True, on_progress=refill)
    assert starts[1] > starts[0] == 3 * graph.n  # the second one computes some operations again
    assert (found.costs > 1e-9).all()
    Greedy.left = 0
    with pytest.raises(OutOfMemoryError, match=r"memory ran out while profiling 'compute .*greedy'; use a smaller"):
        rx.profile(graph, model, (X,), device="cpu", repeats=1, refresh=True)


def test_a_true_shortage_of_the_cpu_is_explained_and_survived():
    script = """
        import resource, torch
        import remat_explorer as rx
        from remat_explorer.errors import OutOfMemoryError
        torch.set_num_threads(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), *(torch.nn.Tanh() for _ in range(9)))
        x = torch.randn(2**20, 8)  # 32 MiB for each layer
        trained = rx.rematerialize(model, (x,), budget="100%", strategy="checkpoint-all")
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
        try:
            trained(x).sum().backward()
        except OutOfMemoryError as error:
            print(error)
        print(float(model(x[:8]).sum().isfinite()))
    """
    run = [sys.executable, "-c", textwrap.dedent(script)]
    found = subprocess.run(run, capture_output=True, text=True, timeout=600, check=True)
    assert "memory ran out at 'compute " in found.stdout
    assert found.stdout.strip().endswith("1.0")


WORK = """
    import torch
    import remat_explorer as rx
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(6)))
    x = torch.randn(32, 16)
    while True:
        graph = rx.profile(rx.capture(model, (x,)), model, (x,), device="cpu", repeats=1, refresh=True)
        graph.save("graph.json")
        solution = rx.solve(graph, "100%", strategy="checkpoint-all")
        solution.save("schedule.json")
        rx.measure(solution, model, (x,), device="cpu", repeats=1).save_trace("trace.json")
        rx.rematerialize(model, (x,), solution=solution).rematerialization.save_source("step.py")
        print("once more", flush=True)
"""


@pytest.mark.parametrize("delay", thorough_but([0.2, 0.5, 0.9], 0.2))
def test_files_are_whole_whenever_the_process_is_killed(tmp_path, delay):
    cache = tmp_path / "cache"
    run, environment = [sys.executable, "-c", textwrap.dedent(WORK)], os.environ | {"REMAT_EXPLORER_CACHE": str(cache)}
    with subprocess.Popen(run, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"once more\n"
        time.sleep(delay)  # somewhere in what it does again and again
        process.kill()
    graph = rx.Graph.load(str(tmp_path / "graph.json"))
    assert rx.Solution.load_schedule(tmp_path / "schedule.json", graph).schedule is not None
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    compile((tmp_path / "step.py").read_text(), "step.py", "exec")
    profiles = [json.loads(path.read_text()) for path in cache.rglob("*.json") if not path.name.startswith(".")]
    assert {profile["format"] for profile in profiles} == {"remat-explorer/profile"}
