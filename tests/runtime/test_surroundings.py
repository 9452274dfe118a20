"""What surrounds a step belongs to its plan or is refused: modes, hooks, transforms, weights, settings of kernels."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import remat_explorer as rx
from remat_explorer.capture import profiling
from remat_explorer.capture.profile_cache import machine_of
from remat_explorer.errors import ExecutionError
from tests.runtime.kinds_of_models import Made
from tests.runtime.step_outcomes import Operators, assert_same, step_of

X = torch.linspace(-1, 1, 20).reshape(5, 4)


class Doubling(TorchFunctionMode):
    """Doubles what every linear layer gives."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return 2 * result if func is nn.functional.linear else result


class Noise(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + torch.randn_like(weight)


def twice(parametrization: nn.Module | None = None) -> nn.Module:
    """One parametrized layer that forward uses twice."""
    torch.manual_seed(0)
    model: Any = Made(lambda s, x: s.layer(torch.tanh(s.layer(x))), layer=nn.Linear(4, 4))
    parametrize.register_parametrization(model.layer, "weight", parametrization or Noise())
    return model


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def trained(model: nn.Module, **options: Any) -> nn.Module:
    return rx.rematerialize(model, (X,), budget="110%", **options)


def test_cached_weights_of_another_call_are_refused():
    one = twice()
    model = trained(one)
    with parametrize.cached():
        model(X)
        with pytest.raises(ExecutionError, match=r"enter cached\(\) anew for each call"):
            model(X)
        with torch.no_grad(), pytest.raises(ExecutionError, match="keeps parametrized weights for all calls in it"):
            model(X)
    with parametrize.cached():
        one(X)
        with pytest.raises(ExecutionError, match="was called before"):
            model(X)


@pytest.mark.parametrize("parametrization", [Noise, parametrizations._SpectralNorm])
def test_one_call_has_one_weight_as_in_plain_pytorch(parametrization):
    """The advice: `cached` entered for each call, in which forward uses a layer twice."""
    model = twice(parametrization(torch.randn(4, 4)) if parametrization is not Noise else Noise())
    planned = trained(model)  # outside of it; the first step plans for what is around it
    for _ in range(2):
        before = [buffer.clone() for buffer in model.buffers()]
        expected = step_of(model, X, around=parametrize.cached)
        for buffer, content in zip(model.buffers(), before, strict=True):
            buffer.copy_(content)
        assert_same(step_of(planned, X, around=parametrize.cached), expected)
    with pytest.raises(ExecutionError, match=r"parametrize.cached\(\) is off, but the plan was made with on"):
        planned(X)


def test_planning_leaves_no_tensor_among_cached_weights_and_other_models_are_called_as_often_as_wanted():
    model, other = twice(), plain()
    planned = trained(other)
    with parametrize.cached():
        trained(model)
        rx.capture(model, (X,))
        assert not parametrize._cache
        for _ in range(2):
            assert torch.equal(planned(X), other(X))


@pytest.fixture(scope="module")
def planned() -> Any:
    made: Any = trained(plain())
    made(X)  # what differs in the first step is planned anew
    return made


def test_a_function_mode_around_a_step_is_refused_and_one_in_forward_is_not(planned):
    with Doubling(), pytest.raises(ExecutionError, match=r"the TorchFunctionMode 'Doubling' is on around the step"):
        planned(X)
    with Doubling(), pytest.raises(ExecutionError, match="enter it in forward"):
        trained(plain())

    def within(self: Any, x: torch.Tensor) -> torch.Tensor:
        with Doubling():
            return self.net(x)

    model = Made(within, net=plain())
    assert_same(step_of(trained(model), X), step_of(model, X))


def test_hooks_on_saved_tensors_are_refused_and_those_of_pytorch_are_not(planned):
    model = planned.rematerialization.model
    with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.half, torch.Tensor.float):
        with pytest.raises(ExecutionError, match="'half' would not be called for what forward saves"):
            planned(X)
        model(X).sum().backward()  # the advice
    model.zero_grad()
    around = torch.autograd.graph.save_on_cpu
    assert_same(step_of(planned, X, around=around), step_of(model, X, around=around))


def test_transforms_of_functions_are_refused(planned):
    for transformed in (torch.func.grad(lambda x: planned(x).sum()), torch.func.vmap(planned)):
        with pytest.raises(ExecutionError, match=r"a transform of torch.func \(grad, vmap, jvp\) is around the step"):
            transformed(X)


def test_forward_mode_derivatives_are_refused_where_there_are_any(planned):
    model = planned.rematerialization.model
    with forward_ad.dual_level():
        assert torch.equal(planned(X), model(X))
        with pytest.raises(ExecutionError, match=r"a tangent of torch.autograd.forward_ad, which a plan would lose"):
            planned(forward_ad.make_dual(X, X))
        assert forward_ad.unpack_dual(model(forward_ad.make_dual(X, X))).tangent is not None  # the advice


def test_a_dispatch_mode_around_a_step_is_told_that_it_sees_the_plan(planned):
    with (
        Operators(),
        pytest.warns(UserWarning, match="'Operators' is on around the step: it sees the operations of") as told,
    ):
        output = planned(X)
    assert told[0].filename == __file__
    assert torch.equal(output, planned.rematerialization.model(X))
    with warnings.catch_warnings(action="error"), torch.device("cpu"):
        planned(X)


def test_a_precision_set_for_one_backend_is_no_error():
    model = plain()
    backends: Any = torch.backends
    before = backends.mkldnn.matmul.fp32_precision
    planned = trained(model)
    try:
        backends.mkldnn.matmul.fp32_precision = "bf16"
        assert_same(step_of(planned, X), step_of(model, X))  # the first step plans for what is around it
    finally:
        backends.mkldnn.matmul.fp32_precision = before
    with pytest.raises(ExecutionError, match="precision"):
        planned(X)


CUDNN: Any = torch.backends.cudnn
Settings = tuple[bool, bool, bool]


def settings() -> Settings:
    return CUDNN.benchmark, CUDNN.deterministic, CUDNN.allow_tf32


@pytest.fixture(params=[(True, False, False), (False, False, True)])
def chosen(request) -> Iterator[Settings]:
    before = settings()
    CUDNN.benchmark, CUDNN.deterministic, CUDNN.allow_tf32 = request.param
    yield request.param
    found = settings()
    CUDNN.benchmark, CUDNN.deterministic, CUDNN.allow_tf32 = before
    assert found == request.param  # whatever runs puts them back


class Watch(TorchDispatchMode):
    """The settings at each sine and at each of its gradients, by whatever road they run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Settings] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.sin.default, torch.ops.aten.cos.default):
            self.seen.append(settings())
        return func(*args, **(kwargs or {}))


def sine() -> tuple[nn.Module, torch.Tensor]:
    return Made(lambda self, x: self.layer(x).sin().mean(), layer=nn.Linear(8, 8)), torch.ones(4, 8)


def test_training_and_its_profile_run_with_what_the_person_has_set_for_cudnn(chosen, monkeypatch):
    monkeypatch.setattr(profiling, "load_profile", lambda key, implementations, values: None)
    run, profiled = profiling.ProfilingRun.timed, []
    monkeypatch.setattr(
        profiling.ProfilingRun, "timed", lambda self, registers: profiled.append(settings()) or run(self, registers)
    )
    model, x = sine()
    planned: Any = rx.rematerialize(model, (x,), budget="100%")
    assert set(profiled) == {chosen}
    with Watch() as watch:
        planned(x).backward()
    assert watch.seen == [chosen, chosen]  # forward and backward


def test_a_comparison_sets_exact_kernels_on_both_sides_and_puts_the_settings_back(chosen):
    model, x = sine()
    graph = rx.profile(rx.capture(model, (x,)), model, (x,), device="cpu", refresh=True)
    solution = rx.solve(graph, "100%", strategy="checkpoint-all")
    with Watch() as watch:
        rx.measure(solution, model, (x,), device="cpu", repeats=1)
    assert len(watch.seen) > 4
    assert set(watch.seen) == {(False, True, chosen[2])}


@pytest.mark.parametrize("name", ["benchmark", "deterministic", "allow_tf32"])
def test_each_setting_is_in_the_key_of_a_profile_on_cuda(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GPU")
    here = machine_of(torch.device("cuda"))
    monkeypatch.setattr(CUDNN, name, not getattr(CUDNN, name))
    assert machine_of(torch.device("cuda")) != here
