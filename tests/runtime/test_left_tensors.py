"""Tensors that forward or a backward pass leaves where no name leads: refused with the line that made them."""

from __future__ import annotations

import contextvars
import copy
import functools
import queue
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import remat_explorer as rx
from remat_explorer.errors import CaptureError
from tests.runtime.kinds_of_models import Made, linear, x


def planned(model: nn.Module) -> Any:
    return rx.rematerialize(model, (x(),), budget="100%", strategy="checkpoint-all")


def term(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.layer(x).square().mean()


ELSEWHERE = nn.ReLU()


def collecting() -> Generator[None, Any, None]:
    terms = []
    while True:
        terms.append((yield))


class Slotted:
    __slots__ = ("term",)


THREAD, CONTEXT, QUEUE, SLOTTED = threading.local(), contextvars.ContextVar("context"), queue.SimpleQueue(), Slotted()
COLLECTING, BY_KEY, APPEND = collecting(), weakref.WeakKeyDictionary(), [].append
next(COLLECTING)
HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a thread's local storage": lambda term: setattr(THREAD, "term", term),
    "a context variable": lambda term: CONTEXT.set(term),
    "a queue": lambda term: QUEUE.put(term),
    "a generator": lambda term: COLLECTING.send(term),
    "an object with slots": lambda term: setattr(SLOTTED, "term", term),
    "a dictionary with weak keys": lambda term: BY_KEY.update({ELSEWHERE: term}),
    "a method of a list": lambda term: APPEND(term.expand(2).chunk(2)[0]),
    "a name that is computed": lambda term: globals().update({"".join(["TE", "RM"]): term}),
    "an attribute of a class by a computed name": lambda term: setattr(type(ELSEWHERE), "".join(["te", "rm"]), term),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_tensor_that_stays_alive_where_no_name_leads_is_refused(name):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        HOLDERS[name](term(self, x))
        self.last = self.layer(x)  # is marked, and computed from the same layer
        return self.last.sin()

    words = r"leaves a tensor of shape \[1?\], made at test_left_tensors.py:\d+, in an object outside of the model"
    with pytest.raises(CaptureError, match=words):
        planned(Made(forward, layer=linear()))


class Keeps(torch.autograd.Function):
    """Puts its result, and the gradient, into a queue."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, keeps: bool) -> torch.Tensor:
        ctx.keeps = keeps
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if ctx.keeps:
            QUEUE.put(gradient * 2)
        return gradient, None


def within_vmap(y: torch.Tensor) -> None:
    torch.func.vmap(lambda row: (QUEUE.put(row.sin()), row)[1])(y)


def jvp(y: torch.Tensor) -> torch.Tensor:
    return torch.func.jvp(torch.sin, (y,), (y,))[1]


def as_checkpoint(y: torch.Tensor) -> Any:
    return checkpoint(torch.sin, y, use_reentrant=False)


@torch.library.custom_op("test_left_tensors::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


sine.register_fake(torch.empty_like)
MADE: dict[str, Callable[[torch.Tensor], Any]] = {
    "of a custom function that gives its input": lambda y: QUEUE.put(Keeps.apply(y, False)),
    "of a checkpoint": lambda y: QUEUE.put(as_checkpoint(y)),
    "of vmap": lambda y: QUEUE.put(torch.func.vmap(torch.sin)(y)),
    "within vmap": within_vmap,
    "of jvp": lambda y: QUEUE.put(jvp(y)),
    "of grad": lambda y: QUEUE.put(torch.func.grad(lambda y: y.sin().sum())(y)),
    "of a compiled function": lambda y: QUEUE.put(torch.compile(torch.sin, backend="eager")(y)),
    "of a custom operator": lambda y: QUEUE.put(sine(y)),
    "of torch.ops": lambda y: QUEUE.put(torch.ops.aten.sin(y)),
    "detached": lambda y: QUEUE.put(y.detach()),
    "a view": lambda y: QUEUE.put(y.T),
    "a constant": lambda y: QUEUE.put(torch.tensor([1.0])),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_left_may_be_made_in_any_way(name):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        MADE[name](y)
        return y.tanh()

    with pytest.raises(
        CaptureError, match=r"forward or the loss leaves a tensor of shape \S+( 4\]| 8\])?, made at test_le"
    ):
        planned(Made(forward, layer=linear()))
    while not QUEUE.empty():
        QUEUE.get()


def test_a_parameter_and_an_input_that_are_left_are_refused():
    for choose in (lambda self, x: self.layer.weight, lambda self, x: x):

        def forward(self: Any, x: torch.Tensor, choose: Any = choose) -> torch.Tensor:
            QUEUE.put(choose(self, x))
            return self.layer(x)

        with pytest.raises(CaptureError, match=r"leaves a tensor of shape \[\d, 8\] in an object outside"):
            planned(Made(forward, layer=linear()))


def within_a_hook(register: str) -> nn.Module:
    model = nn.Sequential(linear(), nn.Tanh(), linear())
    getattr(model[1], register)(lambda module, *gradients: QUEUE.put(gradients[-1]))
    return model


def in_backward(leave: Callable[[torch.Tensor], Any]) -> Callable[[], nn.Module]:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        z = leave(y)
        return (z if isinstance(z, torch.Tensor) else y).tanh()

    return lambda: Made(forward, layer=linear())


LEFT_IN_BACKWARD: dict[str, Callable[[], nn.Module]] = {
    "a gradient, by a hook": in_backward(lambda y: y.register_hook(QUEUE.put)),
    "computed by a hook": in_backward(lambda y: y.register_hook(lambda g: QUEUE.put(g * 2))),
    "by a custom function": in_backward(lambda y: Keeps.apply(y, True)),
    "into a generator": in_backward(lambda y: y.register_hook(lambda g: COLLECTING.send(g))),
    "into a context variable": in_backward(lambda y: y.register_hook(lambda g: CONTEXT.set(g) and None)),
    "by a hook of a module": lambda: within_a_hook("register_full_backward_hook"),
    "by a hook before a module": lambda: within_a_hook("register_full_backward_pre_hook"),
}


@pytest.mark.parametrize("name", LEFT_IN_BACKWARD)
def test_a_tensor_that_a_backward_pass_leaves_where_no_name_leads_is_refused(name):
    words = (
        r"a gradient hook or the backward of a custom Function leaves a tensor of shape \[4, 8\], made in the backward"
    )
    with pytest.raises(CaptureError, match=rf"{words} pass of what is computed (at test_left_tensors.py:|in '2')"):
        planned(LEFT_IN_BACKWARD[name]())
    CONTEXT.set(None)
    while not QUEUE.empty():
        QUEUE.get()


@pytest.mark.parametrize("value", [lambda g: g, lambda g: True])
def test_what_a_backward_pass_writes_on_a_parameter_is_refused(value):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y.register_hook(lambda g: setattr(self.layer.weight, "seen", value(g)))
        return y.sin()

    with pytest.raises(CaptureError, match=r"gradient hook writes the attribute 'seen' .* by a hook on the parameter"):
        planned(Made(forward, layer=linear()))


def test_gradients_that_a_hook_on_a_parameter_keeps_are_those_of_plain_pytorch():
    model, kept = linear(), []
    model.weight.register_hook(kept.append)
    trained = planned(model)
    assert kept == []
    for one in (trained, model):
        one(torch.ones(4, 8)).sum().backward()
    assert torch.equal(*kept)


def test_gradient_hooks_that_hold_tensors_are_no_obstacle():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y, scale = self.layer(x), x.abs().mean()
        y.register_hook(lambda gradient: gradient * scale * y.detach().sign())
        y.register_hook(functools.partial(torch.mul, scale.exp()))
        return y.sin()

    model: Any = Made(forward, layer=linear())
    plain: Any = copy.deepcopy(model)
    trained, given = planned(model), x()
    for one in (trained, plain):
        one(given).square().mean().backward()
    assert torch.equal(model.layer.weight.grad, plain.layer.weight.grad)
