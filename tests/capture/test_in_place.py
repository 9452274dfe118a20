"""Which operations may overwrite an operand, and that the kernels that do so give the same numbers, bit for bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.in_place import (
    COMMUTATIVE,
    IN_PLACE,
    OVER_GRADIENT,
    ROUNDS_OTHERWISE,
    Overwriting,
)
from remat_explorer.capture.in_place_layouts import sigmoid_in_layout
from remat_explorer.capture.profile_cache import program_fingerprint
from remat_explorer.errors import ExecutionError

aten = torch.ops.aten
KERNELS = [*IN_PLACE, *OVER_GRADIENT]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
USED = [(kernel, dtype) for kernel in KERNELS for dtype in DTYPES if dtype not in ROUNDS_OTHERWISE.get(kernel, ())]
SCALARS = {
    aten.threshold_backward.default: (0.0,),
    aten.hardtanh_backward.default: (-0.5, 0.5),
    aten.leaky_relu_backward.default: (0.1, False),
    aten.softplus_backward.default: (1.0, 20.0),
}
PAIRS = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
NUMBERS = (aten.add.Scalar, aten.mul.Scalar, aten.div.Scalar)


def layouts(shape: tuple[int, ...]) -> list[torch.Tensor]:
    """Tensors of one shape that fill their storage: contiguous, transposed, and channels last where there are any."""
    draws = [torch.randn(shape), torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))]
    return [*draws, *([torch.randn(shape).to(memory_format=torch.channels_last)] if len(shape) == 4 else [])]


def other_arguments(kernel: Any, like: torch.Tensor) -> list[tuple[Any, ...]]:
    if kernel in OVER_GRADIENT:
        # what the formula reads, in the layout of the gradient and in the usual one
        y = torch.randn_like(like).clamp_(-1, 1)
        y.flatten()[:1] = 0
        if kernel is aten.elu_backward.default:
            return [(1.0, 1.0, 1.0, False, y), (1.0, 1.0, 1.0, False, y.contiguous())]
        return [(y, *SCALARS.get(kernel, ())), (y.contiguous(), *SCALARS.get(kernel, ()))]
    if kernel is sigmoid_in_layout:
        return [(like.stride(),), (tuple(3 * step for step in like.stride()),)]
    if kernel in PAIRS:
        whole = torch.randn_like(like)
        return [(whole,), (whole.contiguous(),), (whole[..., :1],), (torch.tensor(0.3, dtype=like.dtype),)]
    return [(0.3,)] if kernel in NUMBERS else [()]


@pytest.mark.parametrize(("kernel", "dtype"), USED, ids=lambda given: getattr(given, "__name__", None) or str(given))
def test_the_result_over_an_operand_is_the_result_beside_it(kernel, dtype):
    assert_same_result(kernel, dtype, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_cuda_the_result_over_an_operand_is_the_result_beside_it():
    for kernel, dtype in USED:
        assert_same_result(kernel, dtype, "cuda")


def assert_same_result(kernel: Any, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    for shape in ((1,), (17,), (100_003,), (33, 65), (2, 3, 5, 7), (4, 16, 8, 8)):
        for drawn in layouts(shape):
            source = drawn.to(device, dtype)
            for others in other_arguments(kernel, source):
                kept = [other.clone() if isinstance(other, torch.Tensor) else other for other in others]
                expected = kernel(source, *others)
                assert (expected.dtype, expected.shape) == (source.dtype, source.shape)
                over = source.clone()
                found = Overwriting(kernel)(over, *others)
                assert found.data_ptr() == over.data_ptr()
                assert found.stride() == source.stride()
                assert torch.equal(found, expected)
                for before, after in zip(kept, others, strict=True):
                    assert torch.equal(before, after) if isinstance(before, torch.Tensor) else before == after
                if kernel in COMMUTATIVE and others[0].shape == source.shape:
                    over = source.clone()
                    assert torch.equal(Overwriting(kernel, 1)(others[0], over), expected)
                    assert torch.equal(over, expected)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_keywords_reach_the_kernel(approximate):
    g, x = torch.randn(50), torch.randn(50)
    expected = aten.gelu_backward.default(g, x, approximate=approximate)
    assert torch.equal(Overwriting(aten.gelu_backward.default)(g, x, approximate=approximate), expected)


class Around(nn.Module):
    """Two layers around a function of both of their outputs; each layer's input is read again in the backward pass."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.first, self.second, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.function(y, self.second(y)).square().sum()


def overwritten(function: Any, name: str) -> list[str | None]:
    """Names of the values that the forward operations called ``name`` may overwrite."""
    graph = rx.capture(Around(function), (torch.ones(4, 8),))
    ways = [node.default for node in graph.operations if node.phase == "forward" and name in node.name]
    assert ways
    return [None if way.overwrites is None else graph.values[way.overwrites].name for way in ways]


def test_a_sum_may_overwrite_the_operand_that_nobody_reads_later():
    assert overwritten(lambda y, z: y + z, "add") == ["second linear"]
    assert overwritten(lambda y, z: z + y, "add") == ["second linear"]
    assert overwritten(lambda y, z: torch.relu(y + z), "add") == ["second linear"]


def test_a_difference_may_overwrite_its_first_operand_alone():
    assert overwritten(lambda y, z: y - z, "sub") == ["first linear"]
    assert overwritten(lambda y, z: torch.add(y, z, alpha=2), "add") == ["first linear"]


def test_a_view_that_fills_the_storage_may_be_overwritten():
    assert overwritten(lambda y, z: y.view(2, 16) + z.view(2, 16), "add") == ["second linear"]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda y, z: z + z, "add"),  # read twice
        (lambda y, z: z + z.view(32).view(4, 8), "add"),  # read through a view, too
        (lambda y, z: z[:, :4] + 1.0, "add"),  # a part of the storage
        (lambda y, z: z[:1].expand(4, 8) + 1.0, "add"),  # one row, several times
        (lambda y, z: z + torch.ones(2, 1, 1), "add"),  # the sum is larger
        (lambda y, z: z.double() + 1.0, "cast"),  # another type
        (lambda y, z: functional.dropout(z), "dropout"),  # random, and two outputs
        (lambda y, z: z.exp(), "exp"),  # not in the table
    ],
)
def test_what_would_not_be_safe_is_left_alone(function, name):
    assert set(overwritten(function, name)) == {None}


def test_gradients_of_activations_may_overwrite_the_gradient_they_take():
    layers = [nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.ELU(), nn.Hardswish(), nn.LeakyReLU()]
    model = nn.Sequential(*(part for layer in layers for part in (nn.Linear(8, 8), layer)), nn.Linear(8, 8))
    graph = rx.capture(model, (torch.ones(4, 8),))
    backward = [node for node in graph.operations if node.name.split()[-1].endswith("_backward")]
    assert len(backward) == len(layers)
    for node in backward:
        assert node.default.overwrites is not None
        assert "mm" in graph.values[node.default.overwrites].name  # not the activation, which is read first elsewhere


def test_the_numbers_of_operations_and_values_do_not_depend_on_it():
    model = rx.models.load("residual_net", batch=2, image=16)
    ways = [node.default for node in model.graph.operations]
    assert sum(way.overwrites is not None for way in ways) >= 10
    assert {len(way.outputs) for way in ways if way.overwrites is not None} == {1}


def test_a_profile_is_not_that_of_a_program_that_overwrites_nothing():
    program = trace(Around(lambda y, z: y + z), (torch.ones(4, 8),))
    assert program.in_place
    assert program_fingerprint(program) != program_fingerprint(dataclasses.replace(program, in_place={}))


def test_graphs_that_overwrite_nothing_can_still_be_profiled_and_run(beside):
    model, x = Around(lambda y, z: y + z), torch.ones(4, 8)
    graph = rx.profile(beside(rx.capture(model, (x,))), model, (x,), device="cpu", repeats=1)
    found = rx.measure(rx.solve(graph, "100%"), model, (x,), device="cpu", repeats=1)
    assert found.equal
    assert (found.after == found.predicted.after).all()


def test_a_graph_that_overwrites_what_the_model_does_not_is_refused():
    model, x = Around(lambda y, z: y + z), torch.ones(4, 8)
    graph = rx.capture(model, (x,))
    k = next(k for k, node in enumerate(graph.operations) if node.name == "add")
    first = next(v for v in graph.inputs(k) if graph.values[v].name == "first linear")
    way = dataclasses.replace(graph.operations[k].default, overwrites=first)
    changed = dataclasses.replace(graph.operations[k], implementations=(way,))
    graph = dataclasses.replace(graph, operations=(*graph.operations[:k], changed, *graph.operations[k + 1 :]))
    with pytest.raises(ExecutionError, match="the graph's operation 'add' differs from 'add' here"):
        rx.profile(graph, model, (x,), device="cpu")
