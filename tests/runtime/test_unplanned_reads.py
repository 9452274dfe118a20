"""What forward reads anew in each pass, such as clocks, iterators and generators of random numbers: refused."""

from __future__ import annotations

import contextvars
import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import CaptureError
from tests.runtime.kinds_of_models import Made, linear, x


def planned(model: nn.Module) -> Any:
    return rx.rematerialize(model, (x(),), budget="100%", strategy="checkpoint-all")


def ticking() -> Generator[float, None, None]:
    yield from (0.5 * n for n in range(1_000))


class Ticks:
    __slots__ = ("ticks",)

    def __init__(self) -> None:
        self.ticks = 0

    def __call__(self) -> int:
        self.ticks += 1
        return self.ticks


TICKS, LONG_LIST, IN_THREAD = Ticks(), [0] * 20_000, threading.local()
TICKING, COUNT, ITERATOR, SIGNS = ticking(), itertools.count(), iter(range(1_000)), itertools.cycle([1.0, -1.0])
RANDOM, NUMPY = random.Random(0), np.random.default_rng(0)


def counts_in_a_long_list() -> int:
    LONG_LIST[0] += 1
    return LONG_LIST[0]


def counts_in_a_context_variable() -> int:
    COUNTED.set(COUNTED.get() + 1)
    return COUNTED.get()


def counts_in_a_thread() -> int:
    IN_THREAD.n = getattr(IN_THREAD, "n", 0) + 1
    return IN_THREAD.n


COUNTED: contextvars.ContextVar[int] = contextvars.ContextVar("counted", default=0)
BANK = [torch.full((8,), float(n)) for n in range(100)]
READ: dict[str, Callable[[torch.Tensor], Any]] = {
    "a clock": lambda y: y * time.perf_counter(),
    "a count": lambda y: y * next(COUNT),
    "an iterator": lambda y: y * next(ITERATOR),
    "a cycle": lambda y: y * next(SIGNS),
    "a Python generator": lambda y: y * next(TICKING),
    "a random generator": lambda y: y * RANDOM.random(),
    "a NumPy generator": lambda y: y * NUMPY.random(),
    "an array of random numbers": lambda y: y + torch.from_numpy(NUMPY.random(8)).float(),
    "a new random generator": lambda y: y * np.random.default_rng().random(),
    "the system's randomness": lambda y: y * random.SystemRandom().random(),
    "an object with slots": lambda y: y * TICKS(),
    "a long list": lambda y: y * counts_in_a_long_list(),
    "a context variable": lambda y: y * counts_in_a_context_variable(),
    "a thread's local storage": lambda y: y * counts_in_a_thread(),
    "which tensor is read": lambda y: y + BANK[next(COUNT) % 100],
    "an index": lambda y: y[:, next(COUNT) % 8 : 8],
    "which function is called": lambda y: y.sin() if next(COUNT) % 2 else y.cos(),
    "how many functions are called": lambda y: y.sin().cos() if next(COUNT) % 2 else y.sin(),
}


@pytest.mark.parametrize("name", READ)
def test_what_differs_between_passes_that_begin_alike_is_refused(name):
    model = Made(lambda self, x: READ[name](self.layer(x)), layer=linear())
    with pytest.raises(CaptureError, match=r"forward (computes|calls) .* in one pass and .* (of|in) the next, alt"):
        planned(model)


def test_the_line_that_reads_a_clock_is_named():
    model = nn.Sequential(Made(lambda self, x: self.layer(x) * time.perf_counter(), layer=linear()))
    with pytest.raises(CaptureError, match=r"test_unplanned_reads.py:\d+ `.*time.perf_counter"):
        planned(model)


def test_a_model_that_catches_the_refusal_is_refused_all_the_same():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        try:
            return y * next(COUNT)
        except CaptureError:
            return y

    with pytest.raises(CaptureError, match="although they begin alike"):
        planned(Made(forward, layer=linear()))


def test_constants_that_are_made_anew_in_each_pass_are_no_obstacle():
    table = np.linspace(0, 1, 8, dtype=np.float32)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x) + torch.from_numpy(table * 2) + torch.tensor([1.0, float("nan")])[0]
        return y + torch.from_numpy(np.array([np.nan], dtype=np.float32)).nan_to_num() * math.nan**0

    model, data = Made(forward, layer=linear()), x()
    assert torch.equal(planned(model)(data), model(data))
