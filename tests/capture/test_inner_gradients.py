"""Functions and hooks that differentiate in the backward pass: equal to plain PyTorch, or refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import remat_explorer as rx
from remat_explorer.errors import CaptureError, RematError

Backward = Callable[[Any, torch.Tensor], tuple[Any, ...]]
x = torch.linspace(-1, 1, 12).view(3, 4)


def function(backward: Backward) -> type[torch.autograd.Function]:
    def forward(ctx: Any, x: torch.Tensor, f: nn.Module, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.f, ctx.parameters = f, parameters
        ctx.save_for_backward(x)
        with torch.no_grad():
            return f(x)

    return type(
        "Reversible",
        (torch.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )


class Reversible(nn.Module):
    """A part that runs again in the backward pass of a function of its own."""

    def __init__(self, backward: Backward, *parts: nn.Module) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)
        self.part = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), *parts)
        self.function = function(backward)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.function.apply(self.first(x), self.part, *self.part.parameters())
        return self.last(y).square().mean()


class Hooked(nn.Module):
    """A hook on a result."""

    def __init__(self, hook: Callable[[nn.Module, torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.part, self.last = nn.Linear(4, 4), nn.Linear(4, 1)
        self.hook = hook

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.part(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: self.hook(self.part, y, gradient))
        return self.last(y).square().mean()


def again(ctx: Any) -> tuple[torch.Tensor, torch.Tensor]:
    (x,) = ctx.saved_tensors
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return x, ctx.f(x)


def with_parameters(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, y = again(ctx)
    first, *others = torch.autograd.grad(y, (x, *ctx.parameters), gradient, allow_unused=True)
    return first, None, *others


def in_two_calls(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, y = again(ctx)
    (first,) = torch.autograd.grad(y, x, gradient, retain_graph=True)
    return first, None, *torch.autograd.grad(y, ctx.parameters, gradient)


def of_input_alone(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, y = again(ctx)
    return *torch.autograd.grad(y, x, gradient), None, *[None] * len(ctx.parameters)


def by_vjp(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    pull = torch.func.vjp(ctx.f, ctx.saved_tensors[0])[1]
    return *pull(gradient), None, *[None] * len(ctx.parameters)


def backward_into_the_input(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, y = again(ctx)
    torch.autograd.backward(y, gradient, inputs=[x])
    return x.grad, None, *[None] * len(ctx.parameters)


def by_backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, y = again(ctx)
    torch.autograd.backward(y, gradient)
    return x.grad, None, *[None] * len(ctx.parameters)


def by_method(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, y = again(ctx)
    y.backward(gradient)
    return x.grad, None, *[None] * len(ctx.parameters)


def by_hand(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    result = with_parameters(ctx, gradient)
    for parameter, own in zip(ctx.f.parameters(), result[2:], strict=True):
        parameter.grad = own
    return result[0], None, *[None] * len(ctx.parameters)


def counting(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    ctx.f.calls = getattr(ctx.f, "calls", 0) + 1
    return with_parameters(ctx, gradient)


def exchanging(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    result = with_parameters(ctx, gradient)
    ctx.f[0].weight.data = ctx.f[0].weight.data * 0.9
    return result


def backward_in_hook(part: nn.Module, y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        inner = y.detach().requires_grad_()
        part(inner).sum().backward()
    assert inner.grad is not None
    return gradient + inner.grad


def setting_in_hook(part: Any, y: torch.Tensor, gradient: torch.Tensor) -> None:
    part.bias.grad = gradient.sum(0)


def reading_in_hook(part: Any, y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return gradient if part.bias.grad is None else 2 * gradient


def gradient_in_hook(part: nn.Module, y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        inner = y.detach().requires_grad_()
        return gradient + torch.autograd.grad(part(inner).sum(), inner)[0]


def require_equal(model: nn.Module) -> None:
    plain = copy.deepcopy(model)
    planned = rx.rematerialize(model, (x,), budget="100%")
    for _ in range(2):  # the gradients of two steps add up
        torch.manual_seed(0)
        loss = plain(x)
        loss.backward()
        torch.manual_seed(0)
        ours = planned(x)
        assert torch.equal(loss, ours)
        ours.backward()
    for (name, ours), theirs in zip(planned.named_parameters(), plain.parameters(), strict=True):
        mine, other = ours.grad, theirs.grad
        assert mine is other if mine is None or other is None else torch.equal(mine, other), name
    for (name, ours), theirs in zip(planned.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize(
    "backward",
    [with_parameters, in_two_calls, of_input_alone, by_vjp, backward_into_the_input],
    ids=lambda f: f.__name__,
)
def test_a_function_that_differentiates_in_its_backward_is_equal_to_plain_pytorch(backward: Backward) -> None:
    require_equal(Reversible(backward))


def test_a_part_that_runs_again_in_backward_may_draw_and_update_buffers() -> None:
    require_equal(Reversible(with_parameters, nn.BatchNorm1d(4), nn.Dropout(0.3)))


def test_frozen_parameters_may_be_met_by_backward_in_a_function() -> None:
    model = Reversible(by_method)
    model.part.requires_grad_(False)
    require_equal(model)


def test_a_hook_may_differentiate_with_respect_to_its_own_tensors() -> None:
    require_equal(Hooked(gradient_in_hook))


def test_blocks_with_checkpoints_that_change_attributes_again_in_backward_are_equal() -> None:
    class Block(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.map = super().forward(x)
            return self.map.tanh()

    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = Block(4, 4), Block(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.last, self.first(x), use_reentrant=False).mean()

    with pytest.warns(UserWarning, match="map"):
        require_equal(Blocks())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Reversible(by_backward), r"backward\(\) within the step adds to \.grad of parameters"),
        (Reversible(by_method), r"backward\(\) within the step adds to \.grad of parameters"),
        (Hooked(backward_in_hook), r"backward\(\) within the step adds to \.grad of parameters"),
        (Reversible(by_hand), r"function or gradient hook assigns the gradient of the parameter 'part\.0\.weight'"),
        (Hooked(setting_in_hook), r"function or gradient hook assigns the gradient of the parameter 'part\.bias'"),
        (Hooked(reading_in_hook), r"function or gradient hook reads the gradient of the parameter 'part\.bias'"),
        (Reversible(counting), "function or gradient hook changes the attribute 'calls' of 'part'"),
        (Reversible(exchanging), r"function or gradient hook exchanges the storage of the parameter 'part\.0\.weight'"),
    ],
    ids=lambda given: "" if isinstance(given, str) else type(given).__name__,
)
def test_what_a_backward_pass_does_beside_its_gradients_is_refused(model: nn.Module, words: str) -> None:
    kept = model.part.weight if isinstance(model.part, nn.Linear) else model.part[0].weight  # type: ignore[index]
    kept.grad = before = torch.ones(4, 4)
    with pytest.raises(CaptureError, match=words):
        rx.capture(model, (x,))
    assert kept.grad is before
    assert torch.equal(before, torch.ones(4, 4))
    assert all(parameter.grad is None for parameter in model.parameters() if parameter is not kept)


def test_a_trace_leaves_no_gradient_of_its_own_with_parameters_that_a_function_keeps() -> None:
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = nn.functional.linear(x, *kept).tanh()
        torch.autograd.backward(y, gradient)
        return x.grad, None, *[None] * len(ctx.parameters)

    model = Reversible(backward)
    kept = list(model.part.parameters())
    with pytest.raises(RematError, match="second place"):
        rx.rematerialize(model, (x,), budget="100%")
    assert all(parameter.grad is None for parameter in model.parameters())
