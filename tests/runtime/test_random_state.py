"""The state of CUDA's generator is its seed and its offset; a stand-in plays the generator here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.plan import Plan
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter
from remat_explorer.runtime.random_state import generator_state, set_generator_state
from tests.capture.cuda_stand_in import GPU

LARGEST = 2**64 - 1


class Philox:
    """Seed and offset, with the rules of PyTorch's generator for CUDA."""

    def __init__(self) -> None:
        self.seed, self.offset = LARGEST, 0
        self.calls: list[str] = []

    def initial_seed(self) -> int:
        return self.seed

    def manual_seed(self, seed: int) -> None:
        self.calls.append("manual_seed")
        self.seed, self.offset = seed, 0

    def get_offset(self) -> int:
        self.calls.append("get_offset")
        return self.offset

    def set_offset(self, offset: int) -> None:
        assert type(offset) is int
        assert offset % 4 == 0
        self.calls.append("set_offset")
        self.offset = offset


def refused(*given: object) -> None:
    raise AssertionError("the device is waited for")


@pytest.fixture
def philox(monkeypatch: pytest.MonkeyPatch) -> Philox:
    generator = Philox()
    monkeypatch.setattr(torch.cuda, "default_generators", (generator,))
    for name in ("get_rng_state", "set_rng_state", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, refused)
    return generator


def test_a_state_is_gone_back_to_by_its_offset(philox: Philox):
    philox.offset = 8
    before = generator_state(GPU)
    philox.offset = 400
    assert not np.array_equal(before, generator_state(GPU))
    set_generator_state(before, GPU)
    assert (philox.seed, philox.offset) == (LARGEST, 8)
    assert "manual_seed" not in philox.calls
    assert np.array_equal(before, generator_state(GPU))


def test_a_seed_that_was_set_in_between_is_taken_back_too(philox: Philox):
    philox.offset = 8
    before = generator_state(GPU)
    philox.manual_seed(5)
    set_generator_state(before, GPU)
    assert (philox.seed, philox.offset) == (LARGEST, 8)


@pytest.mark.parametrize("generated", [True, False], ids=["generated code", "interpreter"])
def test_a_step_reads_offsets_for_operations_that_run_again_and_nothing_else(philox: Philox, generated: bool):
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.5)), torch.ones(4, 8)
    program = trace(model, (x,))
    names = [node.name for node in program.graph.operations]
    first = next(k for k, name in enumerate(names) if "dropout" in name)
    order = [(t, k, 1) for t in range(program.graph.n) for k in ([first, t] if t == program.graph.n - 1 else [t])]
    plan = Plan.from_sequence(program.graph, order)
    assert sum("dropout" in name for name in names) >= 2
    run = generate(plan, program, GPU) if generated else Interpreter(plan, program, GPU)
    philox.calls.clear()
    run.run(program.bind(model, (x,)))
    wanted = ["get_offset", "get_offset", "set_offset", "set_offset"]
    more = sum("dropout" in node.name and node.phase == "forward" for node in program.graph.operations) - 1
    assert philox.calls == wanted if generated else philox.calls == ["get_offset"] * more + wanted


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_a_gpu_the_same_numbers_are_drawn_again():
    torch.cuda.manual_seed(3)
    before = generator_state(GPU)
    first = torch.rand(1000, device=GPU)
    torch.cuda.manual_seed(4)
    set_generator_state(before, GPU)
    assert torch.equal(torch.rand(1000, device=GPU), first)
    whole = torch.cuda.get_rng_state(GPU).numpy()
    assert np.array_equal(whole.view(np.uint64), generator_state(GPU))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_a_gpu_a_step_without_repeated_random_operations_can_be_captured_in_a_cuda_graph():
    model, x = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).cuda(), torch.ones(256, 64, device="cuda")
    trained = rx.rematerialize(model, (x,), budget="100%", time_limit=1, loss=lambda y: y.square().mean())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        trained(x).backward()
    torch.cuda.current_stream().wait_stream(side)
    trained.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        trained(x).backward()
    graph.replay()
    found = [parameter.grad for parameter in trained.parameters()]
    plain = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
    for mine, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(mine, theirs)
