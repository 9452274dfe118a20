"""Which operations may overwrite an operand, and that the kernels that do so give the same numbers, bit for bit."""

import dataclasses
from itertools import product
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
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made

aten = torch.ops.aten
KERNELS = [*IN_PLACE, *OVER_GRADIENT]
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
COMPLEX = [torch.complex64, torch.complex128]
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
        before = (1.0, 1.0, 1.0, False) if kernel is aten.elu_backward.default else ()
        return [(*before, read, *SCALARS.get(kernel, ())) for read in (y, y.contiguous())]
    if kernel is sigmoid_in_layout:
        return [(like.stride(),), (tuple(3 * step for step in like.stride()),)]
    if kernel in PAIRS:
        whole = torch.randn_like(like)
        return [(whole,), (whole.contiguous(),), (whole[..., :1],), (torch.tensor(0.3, dtype=like.dtype),)]
    return [(0.3,)] if kernel in NUMBERS else [()]


NAMES = {getattr(kernel, "__name__", None) or str(kernel): kernel for kernel in KERNELS}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
@pytest.mark.parametrize("name", NAMES)
def test_the_result_over_an_operand_is_the_result_beside_it(name, device):
    torch.manual_seed(0)
    kernel: Any = NAMES[name]
    types = [dtype for dtype in (*DTYPES, *COMPLEX) if dtype not in ROUNDS_OTHERWISE.get(kernel, COMPLEX)]
    for dtype, shape in product(types, ((1,), (17,), (10_007,), (33, 65), (2, 3, 5, 7), (4, 16, 8, 8))):
        for drawn in layouts(shape):
            source = (
                torch.randn_like(drawn, device=device, dtype=dtype) if dtype.is_complex else drawn.to(device, dtype)
            )
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


def around(function: Any) -> nn.Module:
    """Two layers around a function of both of their outputs; each layer's input is read again in the backward pass."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return function(y, self.second(y)).square().sum()

    return Made(forward, first=nn.Linear(8, 8), second=nn.Linear(8, 8))


@pytest.mark.parametrize(
    ("function", "name", "expected"),
    [
        (lambda y, z: y + z, "add", "second linear"),  # which nobody reads later
        (lambda y, z: z + y, "add", "second linear"),
        (lambda y, z: y - z, "sub", "first linear"),  # the first operand alone
        (lambda y, z: torch.add(y, z, alpha=2), "add", "first linear"),
        (lambda y, z: y.view(2, 16) + z.view(2, 16), "add", "second linear"),  # views that fill the storage
        (lambda y, z: z + z, "add", None),  # read twice
        (lambda y, z: z + z.view(32).view(4, 8), "add", None),  # read through a view, too
        (lambda y, z: z[:, :4] + 1.0, "add", None),  # a part of the storage
        (lambda y, z: z[:1].expand(4, 8) + 1.0, "add", None),  # one row, several times
        (lambda y, z: z + torch.ones(2, 1, 1), "add", None),  # the sum is larger
        (lambda y, z: z.double() + 1.0, "cast", None),  # another type
        (lambda y, z: functional.dropout(z), "dropout", None),  # random, and two outputs
        (lambda y, z: z.exp(), "exp", None),  # not in the table
    ],
)
def test_what_nobody_reads_later_is_overwritten_and_what_would_not_be_safe_is_left_alone(function, name, expected):
    graph = rx.capture(around(function), (torch.ones(4, 8),))
    ways = [node.default for node in graph.operations if node.phase == "forward" and name in node.name]
    assert ways
    assert {None if way.overwrites is None else graph.values[way.overwrites].name for way in ways} == {expected}


def test_gradients_of_activations_may_overwrite_the_gradient_they_take():
    layers = [nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.ELU(), nn.Hardswish(), nn.LeakyReLU()]
    model = nn.Sequential(*(part for layer in layers for part in (nn.Linear(8, 8), layer)), nn.Linear(8, 8))
    graph = rx.capture(model, (torch.ones(4, 8),))
    backward = [node for node in graph.operations if node.name.split()[-1].endswith("_backward")]
    assert len(backward) == len(layers)
    for node in backward:
        assert node.default.overwrites is not None
        assert "mm" in graph.values[node.default.overwrites].name  # not the activation, which is read first elsewhere


def test_graphs_that_overwrite_nothing_can_be_profiled_and_run_and_their_profile_is_another(beside):
    model, x = around(lambda y, z: y + z), torch.ones(4, 8)
    graph = rx.profile(beside(rx.capture(model, (x,))), model, (x,), device="cpu", repeats=1)
    found = rx.measure(rx.solve(graph, "100%"), model, (x,), device="cpu", repeats=1)
    assert found.equal
    assert (found.after == found.predicted.after).all()
    program = trace(model, (x,))
    assert program_fingerprint(program) != program_fingerprint(dataclasses.replace(program, in_place={}))


def test_a_graph_that_overwrites_what_the_model_does_not_is_refused():
    model, x = around(lambda y, z: y + z), torch.ones(4, 8)
    graph = rx.capture(model, (x,))
    k = next(k for k, node in enumerate(graph.operations) if node.name == "add")
    first = next(v for v in graph.inputs(k) if graph.values[v].name == "first linear")
    way = dataclasses.replace(graph.operations[k].default, overwrites=first)
    changed = dataclasses.replace(graph.operations[k], implementations=(way,))
    graph = dataclasses.replace(graph, operations=(*graph.operations[:k], changed, *graph.operations[k + 1 :]))
    with pytest.raises(ExecutionError, match="the graph's operation 'add' differs from 'add' here"):
        rx.profile(graph, model, (x,), device="cpu")


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(
    "function",
    [
        lambda s, z: (z * s.first * z.conj() * s.second).abs(),
        lambda s, z: (s.first * z * s.second.conj()).real,
        lambda s, z: (z.sin() * (z.exp() * s.first) + z.exp() * z.sin()).abs(),
        lambda s, z: (z.exp() / (s.first + z.sin())).abs(),
        lambda s, z: ((z.exp().conj() * 2).conj() * s.first * (z.sin().conj() + 1)).real,
        lambda s, z: torch.view_as_real(z.sin().conj() * z.exp() * s.first).sum(-1),
        lambda s, z: torch.fft.ifft(torch.fft.fft(z) * s.first).real,
        lambda s, z: torch.fft.ifft2(torch.fft.fft2(z).conj() * s.first).imag,
        lambda s, z: torch.fft.irfft(torch.fft.rfft(z.real) * s.first[:5], n=9),
        lambda s, z: torch.einsum("bi,i,i->bi", z.conj(), s.first, s.second).imag,
    ],
)
def test_complex_gradients_are_those_of_plain_autograd_bit_for_bit(function, dtype):
    torch.manual_seed(0)
    model = Made(
        lambda s, x: function(s, torch.view_as_complex(s.layer(x).tanh().view(5, 9, 2))).square().sum(),
        layer=nn.Linear(8, 18, dtype=dtype.to_real()),
        first=nn.Parameter(torch.randn(9, dtype=dtype)),
        second=nn.Parameter(torch.randn(9, dtype=dtype)),
    )
    x = torch.randn(5, 8, dtype=dtype.to_real())
    planned = rx.rematerialize(model, (x,), budget="100%")
    gradients = []
    for step in (model, planned):
        model.zero_grad()
        step(x).backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) >= 3
    assert all(map(torch.equal, *gradients))


@pytest.mark.parametrize("divide", [torch.Tensor.div_, torch.Tensor.__itruediv__], ids=["div_", "/="])
def test_a_complex_division_in_place_rounds_otherwise_and_is_refused_with_the_one_that_is_equal(divide):
    torch.manual_seed(0)
    z, w = torch.randn(2, 1031, dtype=torch.complex64)
    assert not torch.equal(z.clone().div_(w), z / w)
    model = Made(lambda s, x: divide(x * s.w, s.w + 1).abs(), w=nn.Parameter(w))
    with pytest.raises(CaptureError, match=r"write `y = y / z` in place of `y /= z`"):
        rx.capture(model, (z,))
