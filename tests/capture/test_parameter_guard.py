"""Parameters and buffers that forward exchanges are refused, with advice that gives plain PyTorch's results."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import CaptureError
from tests.runtime.kinds_of_models import Made

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


def removed_and_registered_again(model: Scaled) -> None:
    value = clamped(model.scale)
    del model.scale
    model.register_parameter("scale", nn.Parameter(value))


def a_moving_average_of_all(model: Scaled) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 0.9


CHANGES: list[tuple[Callable[[Scaled], object], str]] = [
    (lambda s: setattr(s.scale, "data", clamped(s.scale)), r"gives other data to the parameter 'scale'.*between steps"),
    (lambda s: setattr(s.frozen, "data", clamped(s.frozen)), r"gives other data to the parameter 'frozen'"),
    (lambda s: setattr(s.mean, "data", s.mean * 0.9), r"gives other data to the buffer 'mean'.*self\.buffer\.copy_"),
    (lambda s: setattr(s, "scale", nn.Parameter(clamped(s.scale))), r"assigns another tensor to the parameter 'scale'"),
    (lambda s: s._parameters.update(frozen=nn.Parameter(clamped(s.frozen), False)), r"assigns another.*'frozen'"),
    (lambda s: setattr(s, "layer", nn.Linear(4, 4)), r"assigns another tensor to the parameter 'layer\.weight'"),
    (removed_and_registered_again, r"assigns another tensor to the parameter 'scale'"),
    (lambda s: torch.utils.swap_tensors(s.scale, nn.Parameter(clamped(s.scale))), r"exchanges the storage of the para"),
    (lambda s: s.frozen.set_(torch.tensor(1.0).untyped_storage()), r"storage of a parameter"),
    (lambda s: s.mean.resize_(5), r"calls resize_ on the buffer 'mean'"),
    (lambda s: s.mean.data.resize_(5), r"calls resize_ on the buffer 'mean'"),
    (lambda s: s.mean.untyped_storage().copy_(torch.ones(4).untyped_storage()), r"writes to the storage"),
    (lambda s: s.layer._apply(lambda t: t * 0.5), r"gives other data to the parameter 'layer\.weight'"),
    (lambda s: delattr(s, "unused"), r"removes the buffer 'unused'"),
    (lambda s: setattr(s, "late", nn.Parameter(torch.ones(()))), r"makes the parameter 'late'.*run the model once"),
    (lambda s: s.register_buffer("late", s.layer.weight.detach().mean()), r"makes the buffer 'late'.*run the model"),
    (lambda s: s.frozen.requires_grad_(), r"lets a gradient be computed for the parameter 'frozen'"),
    (lambda s: setattr(s.scale, "requires_grad", False), r"freezes the parameter 'scale'"),
    (lambda s: s.zero_grad(), r"reads the gradient of the parameter 'scale'"),
    (lambda s: setattr(s.scale, "grad", torch.ones(())), r"assigns the gradient of the parameter 'scale'"),
    (quantized_for_one_product, r"gives other data to the parameter 'layer\.weight'"),
    (exchanged_where_an_error_is_caught, r"gives other data to the parameter 'scale'"),
    (a_moving_average_of_all, r"gives other data to the parameter 'scale'"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_what_exchanges_parameters_or_buffers_in_forward_is_refused(change: Callable[[Scaled], object], words: str):
    with pytest.raises(CaptureError, match=words):
        rx.capture(Scaled(change), (x,))


def test_data_that_is_given_to_a_result_is_refused():
    class Quantized(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            y = super().forward(input).clone()
            y.data = y.data.round()
            return y.mean()

    with pytest.raises(CaptureError, match=r"other data to a tensor of shape \[2, 4\].*`y\.data = y\.data\.round\(\)`"):
        rx.capture(Quantized(4, 4), (x,))


def test_the_refusal_names_the_line():
    with pytest.raises(CaptureError, match=r"test_parameter_guard\.py:\d+ `parameter\.data = parameter\.data \* 0\.9`"):
        rx.capture(Scaled(a_moving_average_of_all), (x,))


def trained(model: nn.Module, between: Callable[[], object] = lambda: None) -> list[Any]:
    results: list[Any] = []
    for _ in range(3):
        between()
        model.zero_grad()
        loss = model(x)
        loss.backward()
        results += [loss.detach(), *(parameter.grad for parameter in model.parameters())]
    return [None if result is None else result.clone() for result in (*results, *model.buffers())]


def require_plain_results(change: Callable[[Scaled], object], between: Callable[[Scaled], object] = lambda s: None):
    plain = Scaled(change)
    other = copy.deepcopy(plain)
    expected = trained(plain, lambda: between(plain))
    found = trained(rx.rematerialize(other, (x,), budget="100%"), lambda: between(other))
    for one, two in zip(expected, found, strict=True):
        assert one is None is two or torch.equal(one, two)


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
def test_what_leaves_parameters_as_they_are_or_writes_into_buffers_trains_as_in_plain_pytorch(
    change: Callable[[Scaled], object],
):
    require_plain_results(change)


def test_parameters_that_change_between_steps_train_as_in_plain_pytorch():
    def clamp(model: Scaled) -> None:
        with torch.no_grad():
            model.scale.clamp_(0, 4.6)
            model.frozen.mul_(0.9)

    require_plain_results(lambda s: None, clamp)


def with_buffer(forward: Callable[..., torch.Tensor], requires: bool = False) -> nn.Module:
    model = Made(forward, layer=nn.Linear(2, 2))
    model.register_buffer("codes", torch.ones(2, 2, requires_grad=requires))
    return model


def requires_in_forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.codes.requires_grad_()
    return self.layer(x) @ self.codes


@pytest.mark.parametrize("requires", [True, False], ids=["before", "in forward"])
def test_a_buffer_that_requires_a_gradient_is_refused_by_name_and_detached_it_is_none(requires):
    reading = with_buffer(lambda self, x: self.layer(x) @ self.codes, True)
    with pytest.raises(CaptureError, match=r"the buffer 'codes'.* gradients of parameters and inputs alone.*detach"):
        rx.capture(reading if requires else with_buffer(requires_in_forward), (torch.ones(1, 2),))
    detached = with_buffer(lambda self, x: self.layer(x) @ self.codes.detach(), requires)
    assert rx.capture(detached, (torch.ones(1, 2),)).n


def test_asking_for_the_gradient_of_a_buffer_that_has_none_is_no_obstacle():
    model = with_buffer(lambda self, x: self.layer(x) @ self.codes if self.codes.grad is None else x)
    assert rx.capture(model, (torch.ones(1, 2),)).n


class Quantizes(nn.Module):
    """Vector quantization: the nearest code, a straight-through gradient, and codes that move with what is near."""

    codes: torch.Tensor
    sums: torch.Tensor

    def __init__(self, read: Callable[[torch.Tensor], torch.Tensor], requires: bool) -> None:
        super().__init__()
        self.encode, self.decode, self._read = nn.Linear(4, 4), nn.Linear(4, 4), read
        self.register_buffer("codes", torch.randn(8, 4).requires_grad_(requires))
        self.register_buffer("sums", torch.zeros(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.encode(x)
        codes = self._read(self.codes)
        near = nn.functional.one_hot(torch.cdist(y, codes).argmin(-1), 8).to(x.dtype)
        coded = near @ codes
        with torch.no_grad():
            self.sums.lerp_(near.t() @ y, 0.1)
            self.codes.data.copy_(self.codes + 0.1 * self.sums)
        return self.decode(y + (coded - y).detach()).square().mean() + (coded - y).square().mean()


def require_equal_steps(model: nn.Module) -> None:
    plain, data = copy.deepcopy(model), torch.randn(16, 4)
    trained = rx.rematerialize(model, (data,), budget="100%", strategy="checkpoint-all")
    for _ in range(3):
        losses = [one(data) for one in (trained, plain)]
        for loss in losses:
            loss.backward()
        assert torch.equal(*losses)
    assert all(map(torch.equal, model.buffers(), plain.buffers()))
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)


@pytest.mark.parametrize("read", [lambda codes: codes, lambda codes: codes.detach()], ids=["as it is", "detached"])
def test_codes_that_require_a_gradient_and_move_are_refused_and_frozen_as_advised_train_as_in_plain_pytorch(read):
    model = Quantizes(read, requires=True)
    with pytest.raises(CaptureError, match="'codes' requires a gradient, and forward writes into it") as refused:
        rx.capture(model, (torch.randn(16, 4),))
    advice = str(refused.value).partition("Freeze it before: ")[2]
    assert advice == "model.get_buffer('codes').requires_grad_(False)"
    model.get_buffer("codes").requires_grad_(False)
    require_equal_steps(model)


def test_codes_that_forward_lets_require_a_gradient_are_refused_and_detached_as_advised_train_as_in_plain_pytorch():
    with pytest.raises(CaptureError, match=r"compute with self\.buffer\.detach\(\), which may require a gradient"):
        rx.capture(Quantizes(lambda codes: codes.requires_grad_(), requires=False), (torch.randn(16, 4),))
    require_equal_steps(Quantizes(lambda codes: codes.detach().requires_grad_(), requires=False))
