"""What cannot be captured is refused in words: what was met, where, and what to do."""

import random
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils.checkpoint import checkpoint

import remat_explorer as rx
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made, linear, x

Forward = Callable[..., Any]
STATISTICS = torch.zeros(2, 8)


class Part(Made):
    def __init__(self, forward: Forward) -> None:
        parts = {"layer": linear(), "constant": torch.ones(8), "generator": torch.Generator()}
        super().__init__(lambda self, x: forward(self, self.layer(x)), **parts)


class ThroughNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() * 2)


def test_every_error_says_where_it_was_met():
    model = nn.Sequential(linear(), nn.Sequential(nn.ReLU(), Part(lambda s, y: y if y.sum() > 0 else -y)))
    with pytest.raises(CaptureError, match=r"in '1\.1' \(Part\), at test_trace_errors\.py:\d+ `.*if y\.sum\(\) > 0"):
        rx.capture(model, (x(),))


def test_a_buffer_that_the_first_pass_makes_larger_is_refused_with_what_to_do():
    def growing(part: Part, y: torch.Tensor) -> torch.Tensor:
        if part.get_buffer("places").shape != y.shape:
            part.register_buffer("places", torch.ones(y.shape))
        return y * part.get_buffer("places")

    part = Part(growing)
    part.register_buffer("places", torch.ones(1, 8))
    with pytest.raises(CaptureError, match=r"of shape \[4, 8\] after it.* run one pass before") as caught:
        rx.capture(part, (x(),))
    assert "contextlib" not in str(caught.value)  # which ended the pass, and is nobody's code
    part(x())
    assert rx.capture(part, (x(),)).n


def test_the_original_error_is_the_cause():
    with pytest.raises(CaptureError) as caught:
        rx.capture(nn.Sequential(linear(), nn.Linear(9, 8)), (x(),))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "in '1' (Linear), RuntimeError: a and b must have same reduction dim" in str(caught.value)


def seeded(y: torch.Tensor) -> torch.Tensor:
    """Dropout from a seed that is known, where the generator goes on as if nothing had been."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return torch.nn.functional.dropout(y)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda s, y: y * y.max().item(), "reads a number out of a tensor.*torch.where instead of `if`"),
        (lambda s, y: y[y > 0], "size of what nonzero gives depends on the data.*padding instead of lengths"),
        (lambda s, y: y[torch.unique(y.argmax(1))], "size of what _unique2 gives depends"),
        (lambda s, y: ThroughNumpy.apply(y), "a tensor leaves torch, for NumPy.*pass it as an input"),
        (lambda s, y: torch.sparse.mm(y.T.to_sparse(), y), "works on sparse tensors.*Use dense tensors"),
        (lambda s, y: y * s.constant.add_(1), "neither a parameter nor a buffer.*register_buffer"),
        (lambda s, y: y + torch.rand(8, generator=s.generator), "torch.Generator of its own.*torch.manual_seed"),
        (lambda s, y: checkpoint(torch.sin, y, use_reentrant=True), "reentrant form.*use_reentrant=False"),
        (lambda s, y: y.sigmoid().exp_().mul_(y), "overwritten in place; plain PyTorch refuses"),
        (lambda s, y: torch.linalg.solve(y.T @ y, y.T), "does more than compute its outputs.*solve_ex"),
        (
            lambda s, y: scan(lambda c, v: (c + v, c + v), torch.zeros(8), y)[1],
            "torch.scan is an operator over parts of a model.*a plain `if` or `for`",
        ),
        (
            lambda s, y: y.as_subclass(type("Own", (torch.Tensor,), {})),
            "makes a tensor of a class of its own.*as_subclass on what the model returns",
        ),
        (
            lambda s, y: torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,)),
            "torch.cond is an operator over parts of a model.*torch.where of both results",
        ),
        (lambda s, y: y * random.random(), r"in '0' \(Part\), forward draws from Python's random, and a plan would"),
        (
            lambda s, y: torch.nn.functional.batch_norm(y, STATISTICS[0], STATISTICS[1], training=True),
            "writes in place to a tensor that is neither a parameter nor a buffer of the model. Make it a buffer",
        ),
        (lambda s, y: y * float(np.random.rand()), "forward draws from Python's numpy.random"),
        (lambda s, y: seeded(y), r"at test_trace_errors.py:\d+, forward sets the seed .* before the step"),
        (lambda s, y: torch.fft.fft(y).div_(1 + 2j).abs(), "divides a complex64 tensor in place.*write `y = y / z`"),
        (lambda s, y: torch.div(z := torch.fft.fft(y.detach()), z + 1, out=z).abs() + y, "in place or with out="),
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
        (lambda s, y: (y, SimpleNamespace(y=y)), "returns a SimpleNamespace, in which a step would not find its ten"),
        (lambda s, y: None, "gives None without a floating-point tensor"),
        (lambda s, y: (y > 0).all(), "the loss is torch.bool, which has no gradient"),
        (lambda s, y: y.detach(), "no output depends on a parameter or an input that requires a gradient"),
        (lambda s, y: torch.fft.rfft(y).sum(), r"the loss is torch.complex64.*\.abs\(\) or \.real"),
    ],
)
def test_an_output_that_cannot_be_trained_is_explained(forward, words):
    with pytest.raises(CaptureError, match=words):
        rx.capture(Part(forward), (x(),))


def quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(linear()), {nn.Linear}, dtype=torch.qint8)


def quantized_in_training(backend: str = "fbgemm", version: int = 1) -> nn.Module:
    model = nn.Sequential(torch.ao.quantization.QuantStub(), linear(), nn.ReLU(), linear())
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig(backend, version=version)  # type: ignore[assignment]
    return torch.ao.quantization.prepare_qat(model.train())


def made_for_inference() -> nn.Module:
    with torch.inference_mode():
        return nn.Sequential(linear())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: (nn.Sequential(nn.LazyLinear(8)), x()), r"'weight' of '0' \(LazyLinear\) has no shape yet; call"),
        (lambda: (torch.jit.script(nn.Sequential(linear())), x()), "the model itself is compiled by TorchScript"),
        (lambda: (quantized(), x()), r"'0' \(Linear\) is quantized and has no gradients; train the model before"),
        (lambda: (linear().requires_grad_(False), x()), "no parameter that requires a gradient, .* requires_grad_"),
        (lambda: (made_for_inference(), x()), r"'weight' of '0' \(Linear\) was made under torch.inference_mode"),
        (lambda: (nn.Sequential(nn.Embedding(9, 8, sparse=True)), x()), r"'0' \(Embedding\) gives sparse gradients"),
        (lambda: (linear(), x().to_sparse()), "input 0 is a sparse_coo tensor.*pass it dense"),
        (lambda: (linear(), torch.nested.nested_tensor([x(), x()], layout=torch.jagged)), "input 0 is a nested tensor"),
        (lambda: (linear().forward, x()), "a method cannot be captured; pass a torch.nn.M"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_succeed_is_refused_before_it_is_traced(make, words):
    model, *args = make()
    with pytest.raises(CaptureError, match=words):
        rx.capture(model, tuple(args))


@pytest.mark.filterwarnings("ignore")
def test_quantization_that_is_learned_is_exact_once_its_observers_have_sizes():
    with pytest.raises(CaptureError, match=r"\(FakeQuantize\).*an observer.*the parameter .1.weight.*get_default_qat"):
        rx.capture(quantized_in_training("qnnpack", version=0), (x(),))
    model, inputs = quantized_in_training(), (x(),)
    with pytest.raises(CaptureError, match=r"'1.weight_fake_quant' \(Fused\w+\) has seen no data yet.*call the model"):
        rx.capture(model, inputs)
    model(*inputs)
    solution = rx.solve(rx.capture(model, inputs), budget="100%", time_limit=1)
    assert rx.measure(solution, model, inputs, device="cpu", repeats=1).equal


def test_the_generators_of_python_and_numpy_stay_as_they_were():
    before = random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]
    with pytest.raises(CaptureError):
        rx.capture(Part(lambda s, y: y * (random.random() + np.random.rand())), (x(),))
    assert random.getstate() == before[0]
    assert np.array_equal(np.random.get_state()[1], before[1])  # type: ignore[index]


def test_inputs_that_do_not_fit_the_signature_are_refused():
    with pytest.raises(CaptureError, match=r"the inputs are a Tensor; pass a tuple of them, such as \(x,\)"):
        rx.capture(linear(), x())  # type: ignore[arg-type]
    with pytest.raises(CaptureError, match=r"forward takes \(input.*got an unexpected keyword argument 'mask'"):
        rx.capture(linear(), (x(),), {"mask": x()})


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_cuda_tensor_without_cuda_is_refused():
    with FakeTensorMode() as mode:
        elsewhere = FakeTensor(mode, torch.empty(4, 8, device="meta"), torch.device("cuda:0"))
    with pytest.raises(CaptureError, match="input 0 is on cuda:0, but torch finds no CUDA device here"):
        rx.rematerialize(linear(), (elsewhere,), budget="100%")
    with pytest.raises(CaptureError, match="input 0 is on cuda:0, but the model is on cpu"):
        rx.capture(linear(), (elsewhere,))


def test_what_writes_to_its_inputs_or_parameters_is_refused():
    for given in (x(), x().requires_grad_().sin()):
        with pytest.raises(CaptureError, match=r"in place to input tensor 0.*ReLU\(inplace=False\)"):
            rx.capture(nn.Sequential(nn.ReLU(inplace=True), linear()), (given,))
    with pytest.raises(CaptureError, match=r"in place to the parameter '0\.weight'.*max_norm"):
        rx.capture(nn.Sequential(nn.Embedding(9, 8, max_norm=0.5)), (torch.tensor([1, 2]),))


@pytest.mark.parametrize("copied", [True, False])
def test_a_state_that_keeps_its_gradient_from_step_to_step_is_refused(copied):
    def leaky(self: Any, x: torch.Tensor) -> torch.Tensor:
        state = self.state * 0.9 + self.linear(x)
        self.state = self.state.copy_(state) if copied else state
        return state

    model = Made(leaky, linear=linear())
    model.register_buffer("state", torch.zeros(4, 8))
    model(x())
    with pytest.raises(CaptureError, match=r"the buffer 'state' what still has a gradient.*state\.detach\(\)"):
        rx.capture(model, (x(),))


def test_inputs_of_another_shape_than_those_captured_are_refused():
    step = TrainingStep(linear(), (x(),))
    with pytest.raises(CaptureError, match=r"input tensor 0 is torch.float32 of shape \[2, 8\], .* \[4, 8\]"):
        step.tensors((x(2, 8),))
    with pytest.raises(CaptureError, match="nested as"):
        step.tensors(([x()],))


@torch.jit.script
def scaled(x, by):
    if float(by.sum()) > 0.5:
        return x * by.sum()
    return x


class ByGradient(torch.autograd.Function):
    """Twice its input; its backward pass looks into the gradient, or does the same without looking."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, looks: bool) -> torch.Tensor:
        ctx.looks = looks
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:  # type: ignore[override]
        ones = torch.ones_like(g)
        if not ctx.looks:
            return torch.where((g == ones).all(), g, g * 2), None
        return (g if torch.equal(g, ones) else g * 2), None


def skipping(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Layers that are dropped at random, as torchaudio's transformers drop them."""
    for layer in self.layers:
        if not (self.training and torch.rand(1).item() <= self.layer_drop):
            x = layer(x)
    return x


def normal(y: torch.Tensor, **settings: Any) -> torch.Tensor:
    return torch.distributions.Normal(y, y.exp(), **settings).log_prob(y.sin())


@pytest.mark.parametrize(
    ("forward", "words", "advised"),
    [
        (
            lambda s, y: scaled(y, s.layer.weight),
            "function compiled by torch.jit.script reads a number .*'0.layer.weight'.* torch.where instead of `if` in",
            lambda s, y: torch.where(s.layer.weight.sum() > 0.5, y * s.layer.weight.sum(), y),
        ),
        (
            lambda s, y: normal(y.detach().round(), validate_args=True) + y,
            "a distribution looks into its parameters or samples to validate them. Pass validate_args=False",
            lambda s, y: normal(y.detach().round(), validate_args=False) + y,
        ),
        (
            lambda s, y: ByGradient.apply(y, True),
            "code of a backward pass reads a number out of a gradient .*use torch.where",
            lambda s, y: ByGradient.apply(y, False),
        ),
    ],
)
def test_what_looks_into_a_tensor_is_named_with_advice_that_works(forward, words, advised):
    with pytest.raises(CaptureError, match=words):
        rx.capture(nn.Sequential(Part(forward)), (x(),))
    assert rx.capture(nn.Sequential(Part(advised)), (x(),)).n


def test_copies_of_parameters_are_refused_and_stacks_of_them_have_gradients():
    def ensemble(self: Any, x: torch.Tensor) -> torch.Tensor:
        if self.copied:
            stacked = torch.func.stack_module_state([*self.models])[0]
        else:
            every = [dict(model.named_parameters()) for model in self.models]
            stacked = {name: torch.stack([one[name] for one in every]) for name in every[0]}
        return torch.vmap(lambda p, x: torch.func.functional_call(self.models[0], p, (x,)), (0, None))(stacked, x)

    model: Any = Made(ensemble, models=nn.ModuleList(linear() for _ in range(3)), copied=True)
    with pytest.raises(CaptureError, match=r"on no parameter of the model .*stack_module_state makes.* torch.stack"):
        rx.capture(model, (x(),))
    model.copied = False
    rx.rematerialize(model, (x(),), budget="100%")(x()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_derivatives_in_forward_mode_that_a_plan_cannot_have_are_named_with_those_that_it_can():
    def curvature(way: Callable[..., Any]) -> Any:
        return Made(lambda s, x: way(lambda z: s.layer(z).tanh().sum())(x).mean(), layer=nn.Linear(4, 4))

    given = x(4)
    with pytest.raises(ExecutionError, match=r"in forward mode.*jacrev\(jacrev\(f\)\) in place of torch\.func\.hes"):
        rx.rematerialize(curvature(torch.func.hessian), (given,), budget="100%")
    model = curvature(lambda f: torch.func.jacrev(torch.func.jacrev(f)))
    rx.rematerialize(model, (given,), budget="100%")(given).backward()
    (expected,) = torch.autograd.grad(model(given), [model.layer.weight])
    assert torch.equal(model.layer.weight.grad, expected)


def test_a_layer_drop_that_is_0_already_is_not_advised_again():
    def made(layer_drop: float) -> nn.Module:
        return Made(skipping, layers=nn.ModuleList([linear(), nn.Dropout(0.5)]), layer_drop=layer_drop)

    with pytest.raises(CaptureError, match=r"layerdrop=0\.0"):
        rx.capture(nn.Sequential(made(0.1)), (x(),))
    part: Any = made(0.0)
    for model in (part, nn.Sequential(part)):
        part.training = True
        with pytest.raises(CaptureError, match=r"although layer_drop is 0 already.*training = False on this") as caught:
            rx.capture(model, (x(),))
        assert "layerdrop=0.0" not in str(caught.value)
        part.training = False
        graph = rx.capture(model, (x(),))
        assert any("dropout" in operation.name for operation in graph.operations)  # which its parts keep


def test_seeds_and_clocks_of_other_threads_are_no_matter_of_forward() -> None:
    over, late = threading.Event(), []

    def go_on() -> None:
        begun = time.time()
        while not over.is_set():
            torch.manual_seed(len(late))
            late.append(time.time() - begun)

    other = threading.Thread(target=go_on)
    other.start()
    try:
        for _ in range(3):
            rx.capture(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), (torch.ones(2, 4),))
    finally:
        over.set()
        other.join()
    assert 0 <= max(late) < 3600
