"""What surrounds a step belongs to its plan, or is refused: modes, hooks, transforms, and shared parametrizations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import remat_explorer as rx
from remat_explorer.errors import ExecutionError

X = torch.linspace(-1, 1, 20).reshape(5, 4)


class Doubling(TorchFunctionMode):
    """Doubles what every linear layer gives."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return 2 * result if func is nn.functional.linear else result


class Seeing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Noise(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + torch.randn_like(weight)


class Twice(nn.Module):
    """One parametrized layer that forward uses twice."""

    def __init__(self, parametrization: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        parametrize.register_parametrization(self.layer, "weight", parametrization or Noise())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.layer(x)))


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def trained(model: nn.Module, **options: Any) -> nn.Module:
    return rx.rematerialize(model, (X,), budget="110%", **options)


def step_of(
    model: nn.Module, run: Callable[..., torch.Tensor], around: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> list[torch.Tensor]:
    """Output, gradients and random state of a step."""
    torch.manual_seed(3)
    with around():
        output = run(X)
    output.square().sum().backward()
    found = [output.detach(), *(p.grad for p in model.parameters() if p.grad is not None), torch.get_rng_state()]
    model.zero_grad()
    return found


def assert_equal(plain: list[torch.Tensor], found: list[torch.Tensor]) -> None:
    assert all(torch.equal(*pair) for pair in zip(plain, found, strict=True))


def test_weights_that_a_person_shares_between_calls_are_refused_at_the_second_call():
    model = trained(Twice())
    with parametrize.cached():
        model(X)
        with pytest.raises(ExecutionError, match=r"enter cached\(\) anew for each call"):
            model(X)
        with torch.no_grad(), pytest.raises(ExecutionError, match="keeps parametrized weights for all calls in it"):
            model(X)


def test_weights_that_another_call_has_made_before_are_refused():
    plain_model = Twice()
    model = trained(plain_model)
    with parametrize.cached():
        plain_model(X)
        with pytest.raises(ExecutionError, match="was called before"):
            model(X)


@pytest.mark.parametrize("parametrization", [Noise, parametrizations._SpectralNorm, None])
def test_one_call_has_one_weight_as_in_plain_pytorch(parametrization):
    """The advice: `cached` entered for each call, in which forward uses a layer twice."""
    model = Twice(parametrization(torch.randn(4, 4)) if parametrization is parametrizations._SpectralNorm else None)
    planned = trained(model)  # outside of it; the first step plans for what is around it
    for _ in range(2):
        before = [buffer.clone() for buffer in model.buffers()]
        expected = step_of(model, model, parametrize.cached)
        for buffer, content in zip(model.buffers(), before, strict=True):
            buffer.copy_(content)
        assert_equal(expected, step_of(model, planned, parametrize.cached))
    with pytest.raises(ExecutionError, match=r"parametrize.cached\(\) is off, but the plan was made with on"):
        planned(X)


def test_planning_leaves_no_tensor_in_the_weights_that_a_person_shares():
    model = Twice()
    with parametrize.cached():
        trained(model)
        assert not parametrize._cache
        rx.capture(model, (X,))
        assert not parametrize._cache


def test_a_model_without_parametrizations_may_be_called_twice():
    model = plain()
    planned = trained(model)
    with parametrize.cached():
        assert torch.equal(planned(X), model(X))
        assert torch.equal(planned(X), model(X))


def test_a_function_mode_around_a_step_is_refused_and_one_in_forward_is_not():
    planned = trained(plain())
    with Doubling(), pytest.raises(ExecutionError, match=r"the TorchFunctionMode 'Doubling' is on around the step"):
        planned(X)
    with Doubling(), pytest.raises(ExecutionError, match="enter it in forward"):
        trained(plain())

    class Within(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with Doubling():
                return self.net(x)

    model = Within()
    assert_equal(step_of(model, model), step_of(model, trained(model)))


def test_hooks_on_saved_tensors_are_refused_and_those_of_pytorch_are_not():
    model = plain()
    planned = trained(model)
    with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.half, torch.Tensor.float):
        with pytest.raises(ExecutionError, match="'half' would not be called for what forward saves"):
            planned(X)
        lossy = model(X).sum()  # the advice
    lossy.backward()
    model.zero_grad()
    around = torch.autograd.graph.save_on_cpu
    assert_equal(step_of(model, model, around), step_of(model, planned, around))


def test_transforms_of_functions_are_refused():
    planned = trained(plain())
    for transformed in (torch.func.grad(lambda x: planned(x).sum()), torch.func.vmap(planned)):
        with pytest.raises(ExecutionError, match=r"a transform of torch.func \(grad, vmap, jvp\) is around the step"):
            transformed(X)


def test_forward_mode_derivatives_are_refused_where_there_are_any():
    model = plain()
    planned = trained(model)
    with forward_ad.dual_level():
        assert torch.equal(planned(X), model(X))
        with pytest.raises(ExecutionError, match=r"a tangent of torch.autograd.forward_ad, which a plan would lose"):
            planned(forward_ad.make_dual(X, X))
        assert forward_ad.unpack_dual(model(forward_ad.make_dual(X, X))).tangent is not None  # the advice


def test_a_dispatch_mode_around_a_step_is_told_that_it_sees_the_plan():
    model = plain()
    planned = trained(model)
    planned(X)
    with Seeing(), pytest.warns(UserWarning, match="'Seeing' is on around the step: it sees the operations of") as told:
        output = planned(X)
    assert told[0].filename == __file__
    assert torch.equal(output, model(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.device("cpu"):
            planned(X)


def test_a_precision_set_for_one_backend_is_no_error():
    model = plain()
    backends: Any = torch.backends
    before = backends.mkldnn.matmul.fp32_precision
    planned = trained(model)
    try:
        backends.mkldnn.matmul.fp32_precision = "bf16"
        expected = step_of(model, model)
        assert_equal(expected, step_of(model, planned))  # the first step plans for what is around it
    finally:
        backends.mkldnn.matmul.fp32_precision = before
    with pytest.raises(ExecutionError, match="precision"):
        planned(X)
