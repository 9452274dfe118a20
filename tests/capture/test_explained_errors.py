"""What cannot be captured is refused in words: what was met, where, and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import remat_explorer as rx
from remat_explorer.errors import CaptureError
from tests.runtime.kinds_of_models import linear, x

Forward = Callable[..., Any]


class Part(nn.Module):
    """The part at fault, inside of another module."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.layer = linear()
        self.function = forward
        self.constant = torch.ones(8)
        self.generator = torch.Generator()

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, self.layer(x))


class ThroughNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() * 2)


def test_every_error_says_where_it_was_met():
    model = nn.Sequential(linear(), nn.Sequential(nn.ReLU(), Part(lambda s, y: y if y.sum() > 0 else -y)))
    with pytest.raises(
        CaptureError, match=r"in '1\.1' \(Part\), at test_explained_errors\.py:\d+ `.*if y\.sum\(\) > 0"
    ):
        rx.capture(model, (x(),))


def test_the_original_error_is_the_cause():
    with pytest.raises(CaptureError) as caught:
        rx.capture(nn.Sequential(linear(), nn.Linear(9, 8)), (x(),))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "in '1' (Linear), RuntimeError: a and b must have same reduction dim" in str(caught.value)


def test_nothing_else_is_printed():
    code = (
        "import torch, remat_explorer as rx\n"
        "class M(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) if x.sum() > 0 else x\n"
        "try:\n"
        "    rx.capture(M(8, 8), (torch.ones(2, 8),))\n"
        "except rx.errors.CaptureError:\n"
        "    pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda s, y: y * y.max().item(), "reads a number out of a tensor.*torch.where instead of `if`"),
        (lambda s, y: y[: int(y[0, 0])], "reads a number out of a tensor"),
        (lambda s, y: y[y > 0], "size of what nonzero gives depends on the data.*padding instead of lengths"),
        (lambda s, y: y[:, 0].nonzero() * y[0, 0], "size of what nonzero gives depends"),
        (lambda s, y: y[torch.unique(y.argmax(1))], "size of what _unique2 gives depends"),
        (lambda s, y: ThroughNumpy.apply(y), "a tensor leaves torch, for NumPy.*pass it as an input"),
        (lambda s, y: torch.sparse.mm(y.T.to_sparse(), y), "works on sparse tensors.*Use dense tensors"),
        (lambda s, y: y * s.constant.add_(1), "neither a parameter nor a buffer.*register_buffer"),
        (lambda s, y: y + torch.rand(8, generator=s.generator), "torch.Generator of its own.*torch.manual_seed"),
        (lambda s, y: checkpoint(torch.sin, y, use_reentrant=True), "reentrant form.*use_reentrant=False"),
        (
            lambda s, y: y.sigmoid().exp_().mul_(y),
            "overwritten in place; plain PyTorch refuses",
        ),
        (lambda s, y: torch.linalg.solve(y.T @ y, y.T), "does more than compute its outputs.*solve_ex"),
        (lambda s, y: s.layer(y, 3), r"TypeError: Linear.forward\(\) takes 2 positional arguments but 3 were given"),
    ],
)
def test_what_has_no_static_graph_is_explained(forward, words):
    with pytest.raises(CaptureError, match=words):
        rx.capture(nn.Sequential(Part(forward)), (x(),))


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda s, y: y.argmax(1), "gives a tensor of torch.int64 without a floating-point tensor; pass loss="),
        (lambda s, y: None, "gives None without a floating-point tensor"),
        (lambda s, y: (y > 0).all(), "the loss is torch.bool, which has no gradient"),
        (lambda s, y: y.detach(), "no output depends on a parameter that requires a gradient"),
        (lambda s, y: torch.no_grad()(torch.sin)(y), "no output depends on a parameter that requires a gradient"),
        (lambda s, y: torch.fft.rfft(y).sum(), r"the loss is torch.complex64.*\.abs\(\) or \.real"),
    ],
)
def test_an_output_that_cannot_be_trained_is_explained(forward, words):
    with pytest.raises(CaptureError, match=words):
        rx.capture(Part(forward), (x(),))


def quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(linear()), {nn.Linear}, dtype=torch.qint8)


def made_for_inference() -> nn.Module:
    with torch.inference_mode():
        return nn.Sequential(linear())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: (nn.Sequential(nn.LazyLinear(8)), x()), r"'weight' of '0' \(LazyLinear\) has no shape yet; call"),
        (lambda: (torch.jit.script(nn.Sequential(linear())), x()), "the model itself is compiled by TorchScript"),
        (lambda: (nn.Sequential(torch.jit.script(linear())), x()), r"'0' \(RecursiveScriptModule\) is compiled by"),
        (lambda: (quantized(), x()), r"'0' \(Linear\) is quantized and has no gradients; train the model before"),
        (lambda: (linear().requires_grad_(False), x()), "no parameter that requires a gradient: .* requires_grad_"),
        (lambda: (made_for_inference(), x()), r"'weight' of '0' \(Linear\) was made under torch.inference_mode"),
        (lambda: (nn.Sequential(nn.Embedding(9, 8, sparse=True)), x()), r"'0' \(Embedding\) gives sparse gradients"),
        (lambda: (linear(), x().to_sparse()), "input 0 is a sparse_coo tensor.*pass it dense"),
        (lambda: (linear(), torch.nested.nested_tensor([x(), x()], layout=torch.jagged)), "input 0 is a nested tensor"),
        (
            lambda: (linear(), x(), x()),
            r"its forward takes \(input.*\), which does not fit the inputs: too many positional",
        ),
        (lambda: (linear().forward, x()), "a method cannot be captured; pass a torch.nn.M"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_succeed_is_refused_before_it_is_traced(make, words):
    model, *args = make()
    with pytest.raises(CaptureError, match=words):
        rx.capture(model, tuple(args))


def test_inputs_that_are_no_tuple_are_refused():
    with pytest.raises(CaptureError, match=r"the inputs are a Tensor; pass a tuple of them, such as \(x,\)"):
        rx.capture(linear(), x())  # type: ignore[arg-type]


def test_an_unknown_keyword_is_refused_with_the_signature():
    with pytest.raises(CaptureError, match=r"forward takes \(input.*got an unexpected keyword argument 'mask'"):
        rx.capture(linear(), (x(),), {"mask": x()})


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_cuda_tensor_without_cuda_is_refused():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode() as mode:
        elsewhere = FakeTensor(mode, torch.empty(4, 8, device="meta"), torch.device("cuda:0"))
    with pytest.raises(CaptureError, match="input 0 is on cuda:0, but torch finds no CUDA device here"):
        rx.capture(linear(), (elsewhere,))


def test_what_writes_to_its_inputs_or_parameters_is_refused():
    with pytest.raises(CaptureError, match=r"in place to input tensor 0.*ReLU\(inplace=False\)"):
        rx.capture(nn.Sequential(nn.ReLU(inplace=True), linear()), (x(),))
    with pytest.raises(CaptureError, match=r"in place to the parameter '0\.weight'.*max_norm"):
        rx.capture(nn.Sequential(nn.Embedding(9, 8, max_norm=0.5)), (torch.tensor([1, 2]),))


def test_inputs_of_another_shape_than_those_captured_are_refused():
    from remat_explorer.capture.step.training_step import TrainingStep

    step = TrainingStep(linear(), (x(),))
    with pytest.raises(CaptureError, match=r"input tensor 0 is torch.float32 of shape \[2, 8\], .* \[4, 8\]"):
        step.tensors((x(2, 8),))
    with pytest.raises(CaptureError, match="nested as"):
        step.tensors(([x()],))
