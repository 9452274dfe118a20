"""What a training step asks the device for and waits: nothing, but for what the model itself reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import remat_explorer as rx
from remat_explorer.capture import input_assumptions
from remat_explorer.capture.implementations.masks import mask_bytes, pack
from remat_explorer.errors import ExecutionError
from remat_explorer.models.gpt2 import GPT2Block

aten = torch.ops.aten
WAITING = (
    *(aten._local_scalar_dense, aten.item, aten.is_nonzero, aten.equal, aten.allclose),
    *(aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim, aten.unique_consecutive),
)


class Words(nn.Module):
    """Two blocks of GPT-2 between an embedding and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks, self.head = nn.Embedding(20, 768), nn.ModuleList(), nn.Linear(768, 20)
        self.blocks.extend(GPT2Block() for _ in range(2))

    def forward(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), following.flatten())


def made(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The models whose steps are watched, with their inputs."""
    if name == "gpt2":
        return Words(), (torch.arange(16).view(2, 8), torch.arange(1, 17).view(2, 8))
    net = rx.models.load("residual_net", batch=2, image=16)
    return net.module, net.args


class Waiting(TorchDispatchMode):
    """Collects the calls for which a host waits for its device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        by_mask = func.overloadpacket in (aten.index, aten.index_put) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if func.overloadpacket in WAITING or by_mask:
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


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


@pytest.mark.parametrize("name", ["gpt2", "residual_net"])
def test_a_step_waits_for_nothing(name):
    model, args = made(name)
    trained: Any = rx.rematerialize(model, args, budget="smallest", time_limit=1)
    assert trained.rematerialization.solution.schedule.recomputations > 0
    trained(*args).backward()
    with Waiting() as waiting:
        trained(*args).backward()
    assert waiting.found == []
    assert waiting.calls > 100


def test_the_counter_sees_what_waits():
    with Waiting() as waiting:
        bool(torch.ones(2).sum() > 1)
        torch.ones(3)[torch.tensor([True, False, True])]
    assert waiting.found == ["aten._local_scalar_dense.default", "aten.index.Tensor"]


class Reads(nn.Module):
    """Reads two numbers and a truth value, the second number by the first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        longest = int(lengths.max())
        second = int(lengths[:longest].sum())
        if bool((x[:, :longest] > 100).any()):
            raise ValueError("too large")
        return self.layer(x[:, :longest]).square().mean() / second


def test_all_numbers_that_a_step_reads_come_with_one_transfer(on_a_device):
    model, x, lengths = Reads(), torch.ones(2, 6, 4), torch.tensor([2, 5])
    trained = rx.rematerialize(model, (x, lengths), budget="120%", time_limit=1)
    del on_a_device[:]
    loss = trained(x, lengths)
    assert on_a_device == [3]
    assert torch.equal(loss, model(x, lengths))


@pytest.mark.parametrize(
    ("lengths", "found"),
    [([2, 4], "4 is read out of input 1"), ([5, 5], "10 is read out of input 1"), ([7, 9], "9 is read out of input 1")],
)
def test_the_first_number_that_is_another_one_is_named(on_a_device, lengths, found):
    x = torch.ones(2, 6, 4)
    trained = rx.rematerialize(Reads(), (x, torch.tensor([2, 5])), budget="120%", time_limit=1)
    del on_a_device[:]
    with pytest.raises(ExecutionError, match=found):
        trained(x, torch.tensor(lengths))
    assert len(on_a_device) == 1


def test_a_number_comes_before_the_size_that_follows_from_it(on_a_device):
    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            most = int(labels.max())
            rows = (labels >= most - 1).nonzero()[:, 0]
            return functional.relu(self.layer(x)[rows]).sum()

    x = torch.ones(4, 4)
    trained = rx.rematerialize(Sized(), (x, torch.tensor([1, 2, 3, 3])), budget="120%", time_limit=1)
    trained(x, torch.tensor([2, 0, 3, 3])).backward()
    with pytest.raises(ExecutionError, match="9 is read out of input 1"):
        trained(x, torch.tensor([1, 2, 3, 9]))
    with pytest.raises(ExecutionError, match=r"a result of shape \[1, 1\] is read out of input 1"):
        trained(x, torch.tensor([1, 1, 3, 0]))


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.tensor(True), torch.tensor([-(2**40)]), torch.tensor([[0.1]]), torch.tensor(0.1, dtype=torch.float64)],
        [torch.tensor(1 + 2j).conj(), torch.tensor(-3, dtype=torch.int8), torch.tensor(1.5, dtype=torch.bfloat16)],
    ],
    ids=["usual types", "rare types"],
)
def test_numbers_that_come_together_are_those_that_come_alone(tensors):
    assert input_assumptions.numbers_of(tensors) == [tensor.item() for tensor in tensors]


@pytest.mark.parametrize("entries", [1, 7, 8, 13])
def test_masks_of_any_length_are_packed_without_a_list(entries):
    """The meta device gives no list, and no numbers: the whole bytes of a longer mask have them."""
    pack(torch.ones(entries, dtype=torch.bool, device="meta"), torch.empty(mask_bytes(entries), device="meta").byte())
    mask = torch.arange(entries) % 3 == 0
    packed, wanted = (torch.empty(mask_bytes(entries), dtype=torch.uint8) for _ in range(2))
    pack(mask, wanted)
    pack(functional.pad(mask, (0, -entries % 8)), packed)
    assert torch.equal(packed, wanted)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("name", ["gpt2", "residual_net"])
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
