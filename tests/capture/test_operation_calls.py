"""Batch normalization by cuDNN's operators, with kernels for the CPU in their place, and what asks for them."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import operation_calls
from tests.runtime.kinds_of_models import Made

aten = torch.ops.aten

X = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each of cuDNN's operators is called; kernels of PyTorch's own compute what they give."""
    counted: Counter[str] = Counter()

    def forward(source, weight, bias, mean, variance, training, momentum, epsilon):
        counted["forward"] += 1
        made = aten.native_batch_norm.default(source, weight, bias, mean, variance, training, momentum, epsilon)
        return *made, source.new_empty(0, dtype=torch.uint8)

    def backward(source, gradient, weight, running_mean, running_variance, mean, deviation, epsilon, reserve):
        counted["backward"] += 1
        assert reserve.numel() == 0
        assert gradient.is_contiguous()
        given = gradient, source, weight, running_mean, running_variance, mean, deviation
        return aten.native_batch_norm_backward.default(*given, True, epsilon, [True, True, True])

    library = torch.library.Library("aten", "IMPL")
    library.impl("cudnn_batch_norm", forward, "CPU")
    library.impl("cudnn_batch_norm_backward", backward, "CPU")
    monkeypatch.setattr(operation_calls, "is_by_cudnn", lambda *given: given[1] is not None and given[2] is not None)
    yield counted
    library._destroy()


def network(**options: Any) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, **options), nn.ReLU(), nn.Conv2d(4, 4, 3))


def mean_of_squares(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {  # with runs of cuDNN forward and backward
    "training": (network, 1, 1),
    "cumulative": (lambda: network(momentum=None), 1, 1),
    "without running statistics": (lambda: network(track_running_stats=False), 1, 1),
    "evaluation": (lambda: network().eval(), 1, 0),  # its gradients are PyTorch's own
    "without weights": (lambda: network(affine=False), 0, 0),  # which cuDNN needs
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_plan_runs_cudnns_batch_normalization_where_plain_pytorch_would(calls, kind):
    make, forward, backward = NETWORKS[kind]
    model = make()
    graph = rx.capture(model, (X,), loss=mean_of_squares)
    measured = rx.measure(rx.solve(graph, "100%", "checkpoint-all"), model, (X,), loss=mean_of_squares, repeats=1)
    assert measured.equal
    assert (calls["forward"] > 0) == forward
    assert calls["backward"] == calls["forward"] * backward


@pytest.mark.parametrize(
    ("backend", "reserved", "training", "expected"),
    [("Cudnn", 0, True, True), ("Cudnn", 64, True, False), ("Cudnn", 64, False, True), ("Native", 0, True, False)],
)
def test_cudnn_is_asked_and_what_it_reserves_is_left_to_pytorch(monkeypatch, backend, reserved, training, expected):
    asked: list[Any] = []

    def chosen(*given: Any) -> Any:
        asked.append(given)
        return getattr(type(operation_calls.BY_CUDNN), backend)

    monkeypatch.setattr(torch._C, "_select_batch_norm_backend", chosen)
    monkeypatch.setattr(torch._C, "_get_cudnn_batch_norm_reserve_space_size", lambda source, training: reserved)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with torch._subclasses.FakeTensorMode():
        x, w = torch.empty(2, 3, 4, 4, device="cuda"), torch.empty(3, device="cuda")
    assert operation_calls.is_by_cudnn(x, w, w, None, None, training, 1e-5) == expected
    assert all(isinstance(tensor, torch.Tensor) for tensor in asked[0][:5]) == training
    assert not operation_calls.is_by_cudnn(X, w, w, w, w, True, 1e-5)  # on the CPU


def in_last(model: nn.Module, x: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    anything: Any = model  # types of torch know no memory format for models
    return anything.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)


def in_half(model: nn.Sequential, x: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    for layer in model:
        if not isinstance(layer, nn.BatchNorm2d):
            layer.half()
    return model, x.half()


def attention(self: Any, x: torch.Tensor) -> torch.Tensor:
    """In float32, where the efficient kernel leaves the seed of its mask on the CPU."""
    q, k, v = self.project(x).unflatten(-1, (3, 2, 16)).movedim(-3, 0).transpose(-2, -3)
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


ON_A_GPU: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    **{kind: lambda make=make: (make(), X) for kind, (make, _, _) in NETWORKS.items()},
    "channels last": lambda: in_last(network(), X),
    "half": lambda: in_half(network(), X),
    "attention": lambda: (Made(attention, project=nn.Linear(32, 96)), torch.randn(2, 24, 32)),
}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("kind", ON_A_GPU)
def test_on_a_gpu_a_profiled_plan_has_the_gradients_of_plain_pytorch(kind):
    model, x = ON_A_GPU[kind]()
    model, x = model.cuda(), x.cuda()
    graph = rx.profile(rx.capture(model, (x,), loss=mean_of_squares), model, (x,), loss=mean_of_squares)
    solution = rx.solve(graph, "smallest", time_limit=3)
    measured = rx.measure(solution, model, (x,), loss=mean_of_squares, repeats=1)
    assert measured.within_budget
    assert measured.equal is not False, str(measured)
