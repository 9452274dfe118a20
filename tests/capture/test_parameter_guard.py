"""Parameters exchanged in forward, and gradients within backward: refused with advice, or those of plain PyTorch."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import remat_explorer as rx
from remat_explorer.errors import CaptureError, RematError
from tests.runtime.kinds_of_models import Made

Backward = Callable[[Any, torch.Tensor], tuple[Any, ...]]
x = torch.linspace(-1, 1, 8).view(2, 4)


class Scaled(nn.Module):
    """A layer with a trained and a frozen scale and a buffer, which ``change`` changes in each forward pass."""

    def __init__(self, change: Callable[[Scaled], object]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.tensor(5.0))
        self.frozen = nn.Parameter(torch.tensor(5.0), requires_grad=False)
        self.register_buffer("mean", torch.full((4,), 5.0))
        self.register_buffer("unused", torch.ones(4))
        self.mean: torch.Tensor
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.change(self)
        return (self.layer(x) * self.scale * self.frozen + self.mean).mean()


def clamped(t: torch.Tensor) -> torch.Tensor:
    return t.detach().clamp(0, 4.6)


def quantized_for_one_product(model: Scaled) -> None:
    kept = model.layer.weight.data
    model.layer.weight.data = torch.sign(kept)
    model.layer(x)
    model.layer.weight.data = kept


def exchanged_where_an_error_is_caught(model: Scaled) -> None:
    with contextlib.suppress(Exception):
        model.scale.data = clamped(model.scale)


def a_moving_average_of_all(model: Scaled) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 0.9


CHANGES: list[tuple[Callable[[Scaled], object], str]] = [
    (lambda s: setattr(s.scale, "data", clamped(s.scale)), r"gives other data to the parameter 'scale'.*between steps"),
    (lambda s: setattr(s.mean, "data", s.mean * 0.9), r"gives other data to the buffer 'mean'.*self\.buffer\.copy_"),
    (lambda s: setattr(s, "scale", nn.Parameter(clamped(s.scale))), r"assigns another tensor to the parameter 'scale'"),
    (lambda s: setattr(s, "layer", nn.Linear(4, 4)), r"assigns another tensor to the parameter 'layer\.weight'"),
    (lambda s: torch.utils.swap_tensors(s.scale, nn.Parameter(clamped(s.scale))), r"exchanges the storage of the para"),
    (lambda s: s.frozen.set_(torch.tensor(1.0).untyped_storage()), r"storage of a parameter"),
    (lambda s: s.mean.resize_(5), r"calls resize_ on the buffer 'mean'"),
    (lambda s: s.mean.untyped_storage().copy_(torch.ones(4).untyped_storage()), r"writes to the storage"),
    (lambda s: delattr(s, "unused"), r"removes the buffer 'unused'"),
    (lambda s: setattr(s, "late", nn.Parameter(torch.ones(()))), r"makes the parameter 'late'.*run the model once"),
    (lambda s: s.frozen.requires_grad_(), r"lets a gradient be computed for the parameter 'frozen'"),
    (lambda s: setattr(s.scale, "requires_grad", False), r"freezes the parameter 'scale'"),
    (lambda s: s.zero_grad(), r"reads the gradient of the parameter 'scale'"),
    (lambda s: setattr(s.scale, "grad", torch.ones(())), r"assigns the gradient of the parameter 'scale'"),
    (quantized_for_one_product, r"gives other data to the parameter 'layer\.weight'"),
    (exchanged_where_an_error_is_caught, r"gives other data to the parameter 'scale'"),
    (a_moving_average_of_all, r"'scale'.*test_parameter_guard\.py:\d+ `parameter\.data = parameter\.data \* 0\.9`"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_what_exchanges_parameters_or_buffers_in_forward_is_refused(change: Callable[[Scaled], object], words: str):
    with pytest.raises(CaptureError, match=words):
        rx.capture(Scaled(change), (x,))


def test_data_that_is_given_to_a_result_is_refused():
    def quantized(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).clone()
        y.data = y.data.round()
        return y.mean()

    with pytest.raises(CaptureError, match=r"other data to a tensor of shape \[2, 4\].*`y\.data = y\.data\.round\(\)`"):
        rx.capture(Made(quantized, layer=nn.Linear(4, 4)), (x,))


def require_equal_steps(model: nn.Module, between: Callable[[Any], object] = id) -> None:
    """Three steps by a plan, whose gradients add up, leave what plain PyTorch leaves."""
    plain, losses = copy.deepcopy(model), []
    planned = rx.rematerialize(model, (x,), budget="100%", strategy="checkpoint-all")
    for one, step in ((model, planned), (plain, plain)):
        for seed in range(3):
            between(one)
            torch.manual_seed(seed)
            losses.append(step(x))
            losses[-1].backward()
    assert losses[:3] == losses[3:]
    for (name, mine), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        ours, expected = mine.grad, theirs.grad
        assert ours is expected if ours is None or expected is None else torch.equal(ours, expected), name
    for (name, mine), theirs in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, theirs), name


def moved_where_it_is(model: Scaled) -> None:
    model.layer.to(x.device).float()
    model.scale.data = model.scale.data.contiguous()


@pytest.mark.parametrize(
    "change",
    [
        moved_where_it_is,
        lambda s: setattr(s, "mean", s.mean * 0.9),
        lambda s: s.mean.copy_(s.mean * 0.9),
        lambda s: s.scale.requires_grad_(),
    ],
)
def test_what_leaves_parameters_as_they_are_or_writes_into_buffers_trains_as_in_plain_pytorch(change):
    require_equal_steps(Scaled(change))


def test_parameters_that_change_between_steps_train_as_in_plain_pytorch():
    def clamp(model: Scaled) -> None:
        with torch.no_grad():
            model.scale.clamp_(0, 4.6)
            model.frozen.mul_(0.9)

    require_equal_steps(Scaled(lambda s: None), between=clamp)


def with_buffer(read: Callable[[torch.Tensor], torch.Tensor], requires: bool, moves: bool = False) -> nn.Module:
    """A layer, a product with codes, which may require a gradient, and which may move with each step."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x) @ read(self.codes)
        if moves:
            with torch.no_grad():
                self.codes.data.copy_(self.codes + 0.1 * y.t() @ y)
        return y.square().mean()

    model = Made(forward, layer=nn.Linear(4, 4))
    model.register_buffer("codes", torch.randn(4, 4).requires_grad_(requires))
    return model


@pytest.mark.parametrize(
    ("read", "requires"), [(lambda codes: codes, True), (lambda codes: codes.requires_grad_(), False)]
)
def test_a_buffer_that_requires_a_gradient_is_refused_by_name_and_detached_it_is_none(read, requires):
    with pytest.raises(CaptureError, match=r"the buffer 'codes'.* gradients of parameters and inputs alone.*detach"):
        rx.capture(with_buffer(read, requires), (x,))
    require_equal_steps(with_buffer(lambda codes: codes.detach(), requires))
    unread = with_buffer(lambda codes: codes if codes.grad is None else -codes, False)
    assert rx.capture(unread, (x,)).n  # asking for a gradient that there is not is no obstacle


def test_codes_that_require_a_gradient_and_move_are_refused_and_train_as_advised_as_in_plain_pytorch():
    model = with_buffer(lambda codes: codes.detach(), True, moves=True)
    with pytest.raises(CaptureError, match="'codes' requires a gradient, and forward writes into it") as refused:
        rx.capture(model, (x,))
    assert str(refused.value).endswith("Freeze it before: model.get_buffer('codes').requires_grad_(False)")
    model.get_buffer("codes").requires_grad_(False)
    require_equal_steps(model)
    with pytest.raises(CaptureError, match=r"compute with self\.buffer\.detach\(\), which may require a gradient"):
        rx.capture(with_buffer(lambda codes: codes.requires_grad_(), False, moves=True), (x,))
    require_equal_steps(with_buffer(lambda codes: codes.detach().requires_grad_(), False, moves=True))


def function(backward: Backward) -> type[torch.autograd.Function]:
    def forward(ctx: Any, x: torch.Tensor, f: nn.Module, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.f, ctx.parameters = f, parameters
        ctx.save_for_backward(x)
        with torch.no_grad():
            return f(x)

    return type(
        "Reversible", (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
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


def hooked(hook: Callable[[nn.Module, torch.Tensor, torch.Tensor], Any]) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.part(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: hook(self.part, y, gradient))
        return self.last(y).square().mean()

    return Made(forward, part=nn.Linear(4, 4), last=nn.Linear(4, 1))


def again(ctx: Any) -> tuple[torch.Tensor, torch.Tensor]:
    (x,) = ctx.saved_tensors
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return x, ctx.f(x)


def with_parameters(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, y = again(ctx)
    first, *others = torch.autograd.grad(y, (x, *ctx.parameters), gradient, allow_unused=True)
    return first, None, *others


def by_vjp(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    pull = torch.func.vjp(ctx.f, ctx.saved_tensors[0])[1]
    return *pull(gradient), None, *[None] * len(ctx.parameters)


def backward_into_the_input(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, y = again(ctx)
    torch.autograd.backward(y, gradient, inputs=[x])
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


def reading_in_hook(part: Any, y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return gradient if part.bias.grad is None else 2 * gradient


def gradient_in_hook(part: nn.Module, y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        inner = y.detach().requires_grad_()
        return gradient + torch.autograd.grad(part(inner).sum(), inner)[0]


@pytest.mark.parametrize(
    "model",
    [
        Reversible(with_parameters),
        Reversible(by_vjp),
        Reversible(backward_into_the_input),
        Reversible(with_parameters, nn.BatchNorm1d(4), nn.Dropout(0.3)),  # draws and updates buffers again
        hooked(gradient_in_hook),
    ],
)
def test_functions_and_hooks_that_differentiate_their_own_tensors_are_equal_to_plain_pytorch(model: nn.Module) -> None:
    require_equal_steps(model)


def test_frozen_parameters_may_be_met_by_backward_in_a_function() -> None:
    model = Reversible(by_method)
    model.part.requires_grad_(False)
    require_equal_steps(model)


def test_blocks_with_checkpoints_that_change_attributes_again_in_backward_are_equal() -> None:
    class Block(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.map = super().forward(x)
            return self.map.tanh()

    def blocks(self: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.last, self.first(x), use_reentrant=False).mean()

    with pytest.warns(UserWarning, match="map"):
        require_equal_steps(Made(blocks, first=Block(4, 4), last=Block(4, 4)))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Reversible(by_method), r"backward\(\) within the step adds to \.grad of parameters"),
        (hooked(backward_in_hook), r"backward\(\) within the step adds to \.grad of parameters"),
        (Reversible(by_hand), r"function or gradient hook assigns the gradient of the parameter 'part\.0\.weight'"),
        (hooked(reading_in_hook), r"function or gradient hook reads the gradient of the parameter 'part\.bias'"),
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
