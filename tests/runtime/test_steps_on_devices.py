"""What a step asks of its device: waits, states of CUDA's generator, and a cap; stand-ins play the device."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import input_assumptions, trace
from remat_explorer.capture.implementations.masks import mask_bytes, pack
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Plan
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter
from remat_explorer.runtime.plan_runner import MARGIN, hard_cap
from remat_explorer.runtime.random_state import generator_state, set_generator_state
from tests.capture.cuda_stand_in import GPU, SEGMENT, gpu
from tests.runtime.kinds_of_models import Made
from tests.runtime.step_outcomes import Operators
from tests.thorough import thorough

aten = torch.ops.aten
WAITING = (
    *(aten._local_scalar_dense, aten.item, aten.is_nonzero, aten.equal, aten.allclose),
    *(aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim, aten.unique_consecutive),
)
__all__ = ["gpu"]
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")


def made(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The models whose steps are watched, with their inputs."""
    if name == "residual net":
        net = rx.models.load("residual_net", batch=2, image=16)
        return net.module, net.args
    blocks = (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2))
    net = nn.Sequential(nn.Embedding(20, 32), *blocks, nn.Linear(32, 20))
    model = Made(lambda s, words, next: functional.cross_entropy(s.net(words).flatten(0, 1), next.flatten()), net=net)
    return model, (torch.arange(16).view(2, 8), torch.arange(1, 17).view(2, 8))


class Waiting(Operators):
    """Collects the calls for which a host waits for its device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_mask = func.overloadpacket in (aten.index, aten.index_put) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if func.overloadpacket in WAITING or by_mask:
            self.found.append(str(func))
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.fixture
def on_a_device(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The CPU is taken for a device that Python has to wait for; how many numbers come with each transfer."""
    transfers: list[int] = []
    plain = input_assumptions.numbers_of

    def counted(tensors: Any) -> list[Any]:
        transfers.append(len(tensors))
        return plain(tensors)

    monkeypatch.setattr(input_assumptions, "needs_synchronization", lambda tensor: True)
    monkeypatch.setattr(input_assumptions, "numbers_of", counted)
    return transfers


@pytest.mark.parametrize("name", [thorough("transformer"), "residual net"])
def test_a_step_waits_for_nothing(name):
    model, args = made(name)
    trained: Any = rx.rematerialize(model, args, budget="smallest", time_limit=1)
    assert trained.rematerialization.solution.schedule.recomputations > 0
    trained(*args).backward()
    with Waiting() as waiting:
        trained(*args).backward()
        assert waiting.found == []
        assert len(waiting.ran) > 100
        bool(torch.ones(2).sum() > 1)  # which are seen
        torch.ones(3)[torch.tensor([True, False, True])]
    assert waiting.found == ["aten._local_scalar_dense.default", "aten.index.Tensor"]


def reads(self: Any, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Reads two numbers and a truth value, the second number by the first."""
    longest = int(lengths.max())
    second = int(lengths[:longest].sum())
    if bool((x[:, :longest] > 100).any()):
        raise ValueError("too large")
    return self.layer(x[:, :longest]).square().mean() / second


def test_all_numbers_that_a_step_reads_come_with_one_transfer_and_the_first_other_one_is_named(on_a_device):
    model, x, lengths = Made(reads, layer=nn.Linear(4, 4)), torch.ones(2, 6, 4), torch.tensor([2, 5])
    trained = rx.rematerialize(model, (x, lengths), budget="120%", time_limit=1)
    del on_a_device[:]
    loss = trained(x, lengths)
    assert on_a_device == [3]
    assert torch.equal(loss, model(x, lengths))
    for others, found in (([2, 4], "4 is"), ([5, 5], "10 is"), ([7, 9], "9 is")):
        del on_a_device[:]
        with pytest.raises(ExecutionError, match=f"{found} read out of input 1"):
            trained(x, torch.tensor(others))
        assert len(on_a_device) == 1


def test_a_number_comes_before_the_size_that_follows_from_it(on_a_device):
    def sized(self: Any, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        most = int(labels.max())
        rows = (labels >= most - 1).nonzero()[:, 0]
        return functional.relu(self.layer(x)[rows]).sum()

    model, x = Made(sized, layer=nn.Linear(4, 4)), torch.ones(4, 4)
    trained = rx.rematerialize(model, (x, torch.tensor([1, 2, 3, 3])), budget="120%", time_limit=1)
    trained(x, torch.tensor([2, 0, 3, 3])).backward()
    with pytest.raises(ExecutionError, match="9 is read out of input 1"):
        trained(x, torch.tensor([1, 2, 3, 9]))
    with pytest.raises(ExecutionError, match=r"a result of shape \[1, 1\] is read out of input 1"):
        trained(x, torch.tensor([1, 1, 3, 0]))


def test_numbers_that_come_together_are_those_that_come_alone():
    usual = torch.tensor(True), torch.tensor([-(2**40)]), torch.tensor([[0.1]]), torch.tensor(0.1, dtype=torch.float64)
    rare = torch.tensor(1 + 2j).conj(), torch.tensor(-3, dtype=torch.int8), torch.tensor(1.5, dtype=torch.bfloat16)
    for tensors in (usual, rare):
        assert input_assumptions.numbers_of(tensors) == [tensor.item() for tensor in tensors]


def test_masks_of_any_length_are_packed_without_a_list():
    """For which a device would have to be waited for; the meta device gives none."""
    pack(torch.ones(13, dtype=torch.bool, device="meta"), torch.empty(mask_bytes(13), dtype=torch.uint8, device="meta"))


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("name", ["transformer", "residual net"])
def test_on_a_gpu_a_step_synchronizes_nowhere(name):
    model, args = made(name)
    model, args = model.cuda(), tuple(tensor.cuda() for tensor in args)
    trained = rx.rematerialize(model, args, budget="smallest", time_limit=1)
    trained(*args).backward()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        trained(*args).backward()
    finally:
        torch.cuda.set_sync_debug_mode(before)


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
        assert (type(offset), offset % 4) == (int, 0)
        self.calls.append("set_offset")
        self.offset = offset


@pytest.fixture
def philox(monkeypatch: pytest.MonkeyPatch) -> Philox:
    generator = Philox()
    monkeypatch.setattr(torch.cuda, "default_generators", (generator,))
    for name in ("get_rng_state", "set_rng_state", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, None)  # would wait for the device
    return generator


def test_a_state_is_gone_back_to_by_its_offset_and_by_its_seed_where_that_is_another(philox):
    philox.offset = 8
    before = generator_state(GPU)
    philox.offset = 400
    assert not np.array_equal(before, generator_state(GPU))
    set_generator_state(before, GPU)
    assert "manual_seed" not in philox.calls
    assert np.array_equal(before, generator_state(GPU))
    philox.manual_seed(5)
    set_generator_state(before, GPU)
    assert (philox.seed, philox.offset) == (LARGEST, 8)


@pytest.mark.parametrize("generated", [True, False], ids=["generated code", "interpreter"])
def test_a_step_reads_offsets_for_operations_that_run_again_and_nothing_else(philox, generated):
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.5)), torch.ones(4, 8)
    program = trace(model, (x,))
    last = program.graph.n - 1
    drawing = [k for k, node in enumerate(program.graph.operations) if "dropout" in node.name]
    order = [(t, k, 1) for t in range(last + 1) for k in ([drawing[0], t] if t == last else [t])]
    plan = Plan.from_sequence(program.graph, order)
    run = generate(plan, program, GPU) if generated else Interpreter(plan, program, GPU)
    philox.calls.clear()
    run.run(program.bind(model, (x,)))
    forward = [k for k in drawing if program.graph.operations[k].phase == "forward"]
    more = 0 if generated else len(forward) - 1
    assert len(forward) >= 2
    assert philox.calls == ["get_offset"] * more + ["get_offset", "get_offset", "set_offset", "set_offset"]


@pytest.mark.gpu
@on_a_gpu
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


def test_more_than_the_room_is_refused_and_the_fraction_that_was_set_holds_if_it_allows_less_and_is_set_again(gpu):
    gpu.take(3 * SEGMENT)
    with hard_cap(GPU, 5 * SEGMENT):
        gpu.free(gpu.take(5 * SEGMENT))
        with pytest.raises(torch.OutOfMemoryError):
            gpu.take(5 * SEGMENT + MARGIN + 1)
    gpu.free(gpu.take(50 * SEGMENT))  # is cached, and no room
    with pytest.raises(torch.OutOfMemoryError), hard_cap(GPU, SEGMENT):
        gpu.take(50 * SEGMENT)
    assert gpu.fraction == 1.0
    gpu.fraction = 0.5
    with hard_cap(GPU, SEGMENT):
        outer = gpu.fraction
        assert outer == pytest.approx((4 * SEGMENT + MARGIN) / gpu.total)
        with hard_cap(GPU, 100 * SEGMENT):
            assert gpu.fraction == outer
    assert gpu.fraction == 0.5
