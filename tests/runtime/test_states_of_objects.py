"""Objects of Python that forward uses and that are no containers: queues, iterators, clocks, threads and files."""

import array
import contextvars
import copy
import ctypes
import functools
import io
import itertools
import os
import queue
import random
import threading
import time
import types
import weakref
from collections import ChainMap, UserDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made, linear, x


def planned(model: nn.Module) -> Any:
    return rx.rematerialize(model, (x(),), budget="110%", strategy="checkpoint-all")


def using(use: Callable[[Any, torch.Tensor], Any], held: Any) -> nn.Module:
    return Made(lambda self, x: (y := self.layer(x), use(held, y))[0], layer=linear())


class Slots:
    __slots__ = ("number",)

    def __init__(self, number: Any) -> None:
        self.number = number


MOVED: list[tuple[Any, Callable[[Any, torch.Tensor], Any], Callable[[Any], Any]]] = [
    (queue.Queue(), lambda held, y: held.put(y.grad_fn), queue.Queue.qsize),
    (queue.SimpleQueue(), lambda held, y: held.put(y.shape), queue.SimpleQueue.qsize),
    (array.array("d"), lambda held, y: held.append(1.0), len),
    (bytearray(), lambda held, y: held.append(1), len),
    (io.StringIO(), lambda held, y: held.write("a step"), io.StringIO.getvalue),
    (random.Random(0), lambda held, y: held.random(), random.Random.getstate),
    (np.random.default_rng(0), lambda held, y: held.random(), lambda held: str(held.bit_generator.state)),
    (np.random.RandomState(0), lambda held, y: held.rand(), lambda held: str(held.get_state())),
    (contextvars.ContextVar("steps", default=0), lambda held, y: held.set(held.get() + 1), lambda held: held.get()),
    (threading.local(), lambda held, y: vars(held).update(n=vars(held).get("n", 0) + 1), vars),
    (Slots(0), lambda held, y: setattr(held, "number", held.number + 1), lambda held: held.number),
    (weakref.WeakValueDictionary(), lambda held, y: held.update(y=y), len),
    (weakref.WeakSet(), lambda held, y: held.add(y), len),
]


RANDOM = (random.Random, np.random.Generator, np.random.RandomState)


@pytest.mark.parametrize(("held", "use", "look"), MOVED, ids=lambda held: type(held).__name__)
def test_objects_without_a_content_are_compared_by_their_state_and_put_back(held, use, look):
    before = copy.copy(look(held))
    with pytest.raises(ExecutionError, match=r"changes the variable 'held' around .*in every pass anew") as refused:
        planned(using(use, held))
    assert ("draw with torch.rand" in str(refused.value)) == isinstance(held, RANDOM)
    assert look(held) == before


def zeros() -> Any:
    for _number in range(99):
        yield 0


@pytest.mark.parametrize(
    "held",
    [itertools.count(), itertools.cycle([0] * 9), iter([0] * 99), zeros(), enumerate([0] * 99), map(abs, [0] * 99)],
)
def test_an_iterator_of_which_what_is_read_never_shows_is_refused_with_advice_to_make_it_anew(held):
    with pytest.raises(ExecutionError, match=r"changes the variable 'held' .*has moved it on, too: make it anew"):
        planned(using(lambda held, y: next(held), held))


SCALES, ITS_NAME = {"scale": 1.0}, "ITS_OTHER_SCALE"
SCALED: list[tuple[Any, Callable[[Any], float], Callable[[Any], Any]]] = [
    (contextvars.ContextVar("scale", default=1.0), lambda held: held.get(), lambda held: held.set(3.0)),
    (threading.local(), lambda held: getattr(held, "scale", 1.0), lambda held: setattr(held, "scale", 3.0)),
    (Slots(1.0), lambda held: held.number, lambda held: setattr(held, "number", 3.0)),
    (types.MappingProxyType(SCALES), lambda held: held["scale"], lambda held: SCALES.update(scale=3.0)),
    (UserDict(scale=1.0), lambda held: held["scale"], lambda held: held.update(scale=3.0)),
    (ChainMap({}, {"scale": 1.0}), lambda held: held["scale"], lambda held: held.update(scale=3.0)),
    (array.array("d", [1.0]), lambda held: held[0], lambda held: held.__setitem__(0, 3.0)),
    (ctypes.c_double(1.0), lambda held: held.value, lambda held: setattr(held, "value", 3.0)),
    (threading.Event(), lambda held: 3.0 if held.is_set() else 1.0, threading.Event.set),
    (types.SimpleNamespace(), lambda held: getattr(held, "scale", 1.0), lambda held: setattr(held, "scale", 3.0)),
    (os.environ, lambda held: float(os.environ.get("ITS_SCALE", "1")), lambda held: held.update(ITS_SCALE="3")),
    (os.environ, lambda held: float(os.getenv(ITS_NAME, "1")), lambda held: held.update({ITS_NAME: "3"})),
]


@pytest.mark.parametrize(("held", "read", "change"), SCALED, ids=lambda held: type(held).__name__)
def test_what_forward_reads_there_is_compared_at_each_step(held, read, change, monkeypatch):
    for name in ("ITS_SCALE", ITS_NAME):
        monkeypatch.setenv(name, "1")
    model, data = Made(lambda self, x: self.layer(x) * read(held), layer=linear()), x()
    trained = planned(model)
    assert torch.equal(trained(data), model(data))
    change(held)
    with pytest.raises(ExecutionError, match=r"(held|environment variable).* but the plan was made for|is another"):
        trained(data)


def test_what_waits_for_a_clock_is_refused():
    begin = time.monotonic()
    model = Made(lambda self, x: self.layer(x) * (2 if time.monotonic() > begin + 3600 else 1), layer=linear())
    with pytest.raises(CaptureError, match="although they begin alike: it reads a clock"):
        planned(model)


def test_a_thread_that_computes_is_refused_with_its_line_and_one_that_does_not_is_no_obstacle():
    def pooled(self: Any, x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(torch.sin if self.computes else torch.is_tensor, self.layer(x))
        return self.layer(x) + (0 if waiting.exception() else 1)

    with pytest.raises(CaptureError, match=rf"at {Path(__file__).name}:\d+, forward starts a thread that computes"):
        planned(Made(pooled, layer=linear(), computes=True))
    model, data = Made(pooled, layer=linear(), computes=False), x()
    assert torch.equal(planned(model)(data), model(data))


def forked(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng():
        y = nn.functional.dropout(self.layer(x))
    return nn.functional.dropout(y)


def seeded(self: Any, x: torch.Tensor) -> torch.Tensor:
    torch.default_generator.manual_seed(3)
    return nn.functional.dropout(self.layer(x))


def without_mkldnn(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.backends.mkldnn.flags(enabled=False):
        return self.layer(x)


def then_layer(act: Callable[[torch.Tensor], Any]) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    return lambda self, x: (act(self.layer.weight), self.layer(x))[1]


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (without_mkldnn, r"forward sets torch.backends.mkldnn.enabled to False .* Set it around the call"),
        (
            then_layer(lambda w: w.register_hook(torch.sin)),
            "registers a hook on the parameter 'layer.w",
        ),
        (then_layer(lambda w: w.register_post_accumulate_grad_hook(print)), "registers a hook on the parameter"),
        (forked, "forward sets the seed or the state of torch's generator, as torch.random.fork_rng"),
        (seeded, "forward sets the seed or the state of torch's generator"),
        (lambda self, x: self.layer(x) * (1 + self.layer.weight._version), r"reads the count of writes .*\._version"),
    ],
)
def test_what_is_another_in_a_trace_is_refused(forward, words):
    with pytest.raises(CaptureError, match=words):
        planned(Made(forward, layer=linear()))


class Doubling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = cast(Any, super().__torch_function__(func, types, args, kwargs or {}))
        return result.as_subclass(torch.Tensor) * 2 if func is nn.functional.linear else result


def test_a_parameter_of_a_class_that_decides_what_operators_do_is_refused_and_a_plain_subclass_is_not():
    class Own(nn.Parameter):
        pass

    layer, data = linear(), x()
    layer.weight = nn.Parameter(layer.weight.data.as_subclass(Doubling))
    with pytest.raises(CaptureError, match=r"'weight' of .*is a Doubling, a class that decides itself"):
        rx.capture(nn.Sequential(layer), (data,))
    layer.weight = Own(torch.randn(8, 8))
    model = nn.Sequential(layer)
    assert torch.equal(planned(model)(data), model(data))


def test_several_backward_passes_at_once_are_refused():
    layer = linear()
    y = planned(nn.Sequential(layer, nn.Tanh(), linear()))(x())
    with pytest.raises(ExecutionError, match="is_grads_batched=True asks for several"):
        torch.autograd.grad(y, layer.weight, torch.eye(32).view(32, 4, 8), is_grads_batched=True)


@pytest.mark.parametrize("size", [None, 8])
def test_a_cache_that_the_first_pass_fills_is_left_without_tensors_of_the_try_and_is_planned_once_it_is_full(size):
    @functools.lru_cache(size)
    def positions(number: int) -> tuple[torch.Tensor]:
        return (torch.linspace(0, 1, number),)

    model, data = Made(lambda self, x: self.layer(x) + positions(x.shape[1])[0], layer=linear()), x()
    with pytest.raises(CaptureError, match=r"as functools.lru_cache does, run the model once before"):
        planned(model)
    expected = model(data)
    assert torch.equal(planned(model)(data), expected)
