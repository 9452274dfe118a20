"""What forward, a hook or a backward pass leaves outside of the model, or reads anew: refused or marked."""

import contextlib
import copy
import dataclasses
import functools
import itertools
import logging
import math
import re
import time
import types
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.dry_run import TensorPlaceholder
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made, linear, x
from tests.thorough import thorough_but

TABLE = (torch.tensor([0.5]),)  # neither a parameter nor a buffer
TERMS: list[torch.Tensor] = []
CALLS = 0
LAST: torch.Tensor | None = None
ELSEWHERE = nn.ReLU()
SPACE = types.SimpleNamespace(term=None)
LOGGER = logging.getLogger(__name__)


class Store:
    terms: list[torch.Tensor] = []  # noqa: RUF012 (shared on purpose)


def kept(model: nn.Module, *args: Any, **options: Any) -> Any:
    return rx.rematerialize(model, args, budget="110%", strategy="checkpoint-all", **options)


def planned(model: nn.Module, **options: Any) -> Any:
    return kept(model, x(), **options)


def term(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.layer(x).square().mean()


def then(_done: Any, result: Any) -> Any:
    return result


def helper(self: Any, x: torch.Tensor) -> torch.Tensor:
    TERMS.append(term(self, x))
    return self.layer(x).sin()


def into_a_default(self: Any, x: torch.Tensor, terms: list[torch.Tensor] = []) -> torch.Tensor:  # noqa: B006
    terms.append(term(self, x))
    return self.layer(x)


def counts_calls(self: Any, x: torch.Tensor) -> torch.Tensor:
    global CALLS
    CALLS += 1
    return self.layer(x) * CALLS


def counts_in_a_function(self: Any, x: torch.Tensor) -> torch.Tensor:
    counts_in_a_function.calls = getattr(counts_in_a_function, "calls", 0) + 1  # type: ignore[attr-defined]
    return self.layer(x)


def into_a_closure() -> Any:
    terms: list[torch.Tensor] = []
    return lambda self, x: then(terms.append(term(self, x)), self.layer(x))


REFUSED: dict[str, Any] = {
    "the global variable 'TERMS'": lambda s, x: helper(s, x).sin(),
    "the attribute 'terms' of the class Store": lambda s, x: then(Store.terms.append(term(s, x)), s.layer(x)),
    "a default argument of into_a_default": into_a_default,
    "a ReLU that is no part of the model": lambda s, x: then(
        vars(ELSEWHERE).setdefault("terms", []).append(term(s, x)), s.layer(x)
    ),
    "the global variable 'SPACE', at term": lambda s, x: then(setattr(SPACE, "term", term(s, x)), s.layer(x)),
    "the global variable 'CALLS', from 0 to 1": counts_calls,
    "the attributes of the function counts_in_a_function": counts_in_a_function,
    "the variable 'terms' around into_a_closure": into_a_closure(),
}


ALIKE = (
    "a default argument of into_a_default",
    "a ReLU that is no part of the model",
    "the global variable 'SPACE', at term",
)


@pytest.mark.parametrize("words", thorough_but(REFUSED, *(words for words in REFUSED if words not in ALIKE)))
def test_what_forward_changes_outside_of_the_model_in_every_pass_is_refused_by_its_name(words):
    with pytest.raises(ExecutionError, match=rf"forward or the loss changes .*{words}.* in every pass anew"):
        planned(Made(REFUSED[words], layer=linear()))
    assert (TERMS, CALLS, Store.terms, SPACE.term) == ([], 0, [], None)
    assert "terms" not in vars(ELSEWHERE)


def test_lists_of_a_hook_and_of_a_loss_are_refused():
    model, outputs, losses = layers(), [], []
    hook = model[0].register_forward_hook(lambda module, args, output: outputs.append(output))
    with pytest.raises(ExecutionError, match="the variable 'outputs' around"):
        planned(model)
    hook.remove()
    with pytest.raises(ExecutionError, match="the variable 'losses' around"):
        planned(model, loss=lambda output: then(losses.append(output.mean()), losses[-1]))
    assert outputs == losses == []


WRITTEN: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Any]] = {
    "writes the attribute 'aux'": lambda self, x, y: setattr(y, "aux", y.mean()),
    "writes the attribute 'seen'": lambda self, x, y: setattr(x, "seen", True),
    "writes the attribute 'used'": lambda self, x, y: setattr(self.layer.weight, "used", True),
    r"calls retain_grad\(\) on a tensor of shape \[4, 8\]": lambda self, x, y: y.retain_grad(),
}


@pytest.mark.parametrize("words", WRITTEN)
def test_what_forward_writes_on_tensors_that_outlive_it_is_refused(words):
    with pytest.raises(CaptureError, match=words):
        planned(Made(lambda self, x: then(WRITTEN[words](self, x, y := self.layer(x)), y), layer=linear()))


def sets_a_global(self: Any, x: torch.Tensor) -> torch.Tensor:
    global LAST
    LAST = term(self, x)
    return self.layer(x)


def hook_with_a_dictionary() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model, features = layers(), {}
    model[0].register_forward_hook(lambda module, args, output: features.update(feature=output))
    return model, lambda: features["feature"]


def cleared(kept: Any) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model = Made(lambda s, x: then((kept.clear(), kept.append(term(s, x))), s.layer(x)), layer=linear())
    return model, lambda: kept[0]


MARKED: dict[str, Callable[[], tuple[nn.Module, Callable[[], Any]]]] = {
    "a global variable": lambda: (Made(sets_a_global, layer=linear()), lambda: LAST),
    "a list that is cleared": lambda: cleared([]),
    "a deque that is cleared": lambda: cleared(deque()),
    "a dictionary that a hook fills": hook_with_a_dictionary,
}


@pytest.mark.parametrize("name", thorough_but(MARKED, *list(MARKED)[::3]))
def test_what_forward_leaves_outside_of_the_model_is_marked_as_not_there(name):
    model, look = MARKED[name]()
    data = x()
    with pytest.warns(UserWarning, match="forward or the loss changes the .* A plan does not run forward"):
        trained = planned(model)
    expected = torch.autograd.grad(model(data).sum(), list(model.parameters()))
    assert look().sum() < 1e6
    found = torch.autograd.grad(trained(data).sum(), list(model.parameters()))
    assert all(map(torch.equal, expected, found))
    with pytest.raises(ExecutionError, match=r"is not there after a training step by a plan.* Return it from forward"):
        _ = 1 + look()


def test_a_module_outside_of_the_model_keeps_its_parameters_beside_what_forward_leaves_there():
    other = nn.Linear(2, 2)
    weight, bias = other.weight, other.bias
    with pytest.warns(UserWarning, match=r"a Linear that is no part of the model, at \['seen'\]"):
        trained = planned(Made(lambda s, x: then(setattr(other, "seen", term(s, x)), s.layer(x)), layer=linear()))
    trained(x()).square().mean().backward()
    assert other.weight is weight
    assert other.bias is bias
    assert isinstance(other.seen, TensorPlaceholder)


CONFIGURATION, KINDS = types.SimpleNamespace(scale=2.0, names=[]), {"tanh": nn.Tanh}
MASKS: dict[int, torch.Tensor] = {}
SAID: set[str] = set()


@functools.cache
def scale_of(width: int) -> float:
    return width**-0.5


def is_ordinary(self: Any, x: torch.Tensor) -> torch.Tensor:
    begin = time.perf_counter()
    if "once" not in SAID:
        SAID.add("once")
    if len(x) not in MASKS:
        MASKS[len(x)] = torch.ones(len(x), len(x)).tril()
    y = KINDS["tanh"]()(MASKS[len(x)] @ self.layer(x)) * scale_of(8) * CONFIGURATION.scale
    LOGGER.info("%s in %f s", y.shape, time.perf_counter() - begin)
    return y


def assert_planned_is_exact(model: nn.Module) -> None:
    data = x()
    gradients = [torch.autograd.grad(one(data).sum(), list(model.parameters())) for one in (planned(model), model)]
    assert all(map(torch.equal, *gradients))


def test_loggers_timers_registries_configurations_and_caches_are_no_obstacle():
    model = Made(is_ordinary, layer=linear())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned(model)
    assert ({}, set()) == (MASKS, SAID)
    assert_planned_is_exact(model)


def test_a_cached_property_of_an_input_is_no_obstacle():
    model, data = Made(lambda self, batch: self.layer(batch.x) * batch.length, layer=linear()), x()
    assert torch.equal(kept(model, Batch(data))(Batch(data)), model(Batch(data)))


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    term: torch.Tensor | None = None

    @functools.cached_property
    def length(self) -> int:
        return len(self.x)


class KeptFor(dict[str, Any]):
    """A mapping that PyTorch cannot take apart, so that a plan gives None for it."""


class Sink:
    def __init__(self) -> None:
        self.term: Any = None


GIVEN: dict[str, tuple[Any, ...]] = {
    "0['term'], from not there to": (lambda s, b: then(b.update(term=term(s, b["x"])), s.layer(b["x"])), {"x": x()}),
    "0['x'], from a tensor": (lambda s, b: then(b.update(x=b["x"].sin()), s.layer(b["x"])), {"x": x()}),
    "1[0], from not there": (lambda s, x, terms: then(terms.append(term(s, x)), s.layer(x)), x(), []),
    "0.term, from None to a": (lambda s, b: then(setattr(b, "term", term(s, b.x)), s.layer(b.x)), Batch(x())),
    "1.term, from None to a": (lambda s, x, sink: then(setattr(sink, "term", term(s, x)), s.layer(x)), x(), Sink()),
    "1['steps'], from not there to 1": (lambda s, x, b: then(b.update(steps=1), (s.layer(x), b)), x(), KeptFor()),
    "0[0]": (lambda s, parts: then(parts.reverse(), s.layer(parts[1]) - s.layer(parts[0]).sin()), [x(), x()]),
}


@pytest.mark.parametrize("words", thorough_but(GIVEN, *(words for words in GIVEN if not words.startswith("1."))))
def test_what_forward_writes_into_its_inputs_is_refused_and_not_left_there(words):
    forward, *args = GIVEN[words]
    before = copy.deepcopy([getattr(arg, "__dict__", arg) for arg in args])
    given = rf"forward or the loss changes input {re.escape(words)}.* return it from forward"
    with pytest.raises(ExecutionError, match=given):
        kept(Made(forward, layer=linear()), *args)
    assert str([getattr(arg, "__dict__", arg) for arg in args]) == str(before)


def test_what_forward_takes_out_of_its_inputs_is_warned_of_and_stays_there():
    model = Made(lambda self, batch, parts: self.layer(batch.pop("x")) + parts.pop(0), layer=linear())

    def args() -> tuple[Any, ...]:
        return {"x": data, "y": data}, [data, data.sin()]

    data = x()
    with pytest.warns(UserWarning, match="A plan leaves its inputs as they are") as noted:
        trained = kept(model, *args())
    assert [str(one.message).partition(". A plan leaves its inputs")[0] for one in noted] == [
        "forward takes input 0['x'] away",
        "forward takes entries out of input 1",
    ]
    given = args()
    assert torch.equal(trained(*given), model(*args()))
    assert (list(given[0]), len(given[1])) == (["x", "y"], 2)


def test_an_object_that_is_also_far_away_in_another_is_looked_into_where_it_is_near():
    near, between, far = Sink(), Sink(), Sink()
    far.term, between.term = between, near

    def forward(self: Any, data: torch.Tensor) -> torch.Tensor:
        assert far.term is not None
        near.term = term(self, data)
        return self.layer(data)

    with pytest.raises(ExecutionError, match=r"the variable 'near' .*, at term, from None to a tensor"):
        planned(Made(forward, layer=linear()))
    assert near.term is None


def test_an_input_that_forward_fills_and_returns_is_returned_by_a_plan_and_beside_a_loss_with_loss_elsewhere():
    def forward(self: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        batch["y"] = self.layer(batch["x"])
        if self.has_loss:
            batch["loss"] = batch["y"].square().mean()
        return batch

    data = x()
    for has_loss in (False, True):
        model = Made(forward, layer=linear(), has_loss=has_loss)
        if has_loss:
            with pytest.warns(UserWarning, match=r"beside a loss it is there with loss=rx.loss_elsewhere"):
                kept(model, {"x": data})
        with pytest.warns(UserWarning, match=r"input 0\['y'\].* read this from what the model returns") as noted:
            trained = kept(model, {"x": data}, **({"loss": rx.loss_elsewhere} if has_loss else {}))
        assert {warning.filename for warning in noted} == {__file__}
        assert torch.equal(trained({"x": data})["y"], model({"x": data})["y"])


class Pair(tuple[int, int]):
    """A tuple that says it has no length, as those of e3nn do."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Any:
        raise NotImplementedError


PAIR = Pair((2, 3))


def test_tuples_of_a_class_of_its_own_are_read_as_tuples():
    model = Made(lambda self, x: self.layer(x) * self.pair[0] * PAIR[1], layer=linear(), pair=Pair((4, 5)))
    assert_planned_is_exact(model)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


class Counted(Sine):
    calls = 0

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Counted.calls += 1
        return gradient * Counted.calls


def layers() -> nn.Sequential:
    return nn.Sequential(linear(), nn.Tanh(), linear())


def hook_on_a_tensor() -> nn.Module:
    kept: list[torch.Tensor] = []
    return Made(lambda s, x: then((y := s.layer(x)).register_hook(kept.append), y.sin()), layer=linear())


def backward_hook() -> nn.Module:
    model, kept = layers(), {}
    model[1].register_full_backward_hook(lambda module, gradients, _: kept.update(gradient=gradients))
    return model


IN_BACKWARD: dict[str, Callable[[], nn.Module]] = {
    "a backward hook": backward_hook,
    "a hook on a tensor": hook_on_a_tensor,
    "a custom function": lambda: Made(lambda self, x: Counted.apply(self.layer(x)), layer=linear()),
}


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_what_a_backward_pass_leaves_is_refused(name):
    with pytest.raises(CaptureError, match=r"a hook on its backward pass, or .* changes .*(kept|calls).* from \.grad"):
        planned(IN_BACKWARD[name]())
    assert Counted.calls == 0


FACTORS: dict[str, torch.Tensor] = {}


class Caches(Sine):
    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if "cos" not in FACTORS:
            FACTORS["cos"] = torch.arange(8.0).cos()
        return gradient * FACTORS["cos"]


def test_a_cache_that_a_backward_pass_fills_is_refused_and_after_one_plain_step_is_no_obstacle():
    model = Made(lambda self, x: Caches.apply(self.layer(x)), layer=linear())
    with pytest.raises(CaptureError, match="can be filled before by one step in plain PyTorch"):
        planned(model)
    assert FACTORS == {}
    model(x()).sum().backward()
    assert_planned_is_exact(model)


def test_a_hook_that_scales_gradients_is_part_of_the_plan():
    model = layers()
    model[1].register_full_backward_hook(lambda module, gradients, _: tuple(2 * g for g in gradients))
    assert_planned_is_exact(model)


class Inner(Sine):
    """Calls a module, of which its backward adds the gradients to ``.grad`` by itself."""

    module = linear()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            Inner.module(gradient.detach()).sum().backward()
        return gradient


def test_a_backward_pass_that_adds_to_gradients_itself_is_refused_and_leaves_none():
    model = Made(lambda self, x: Inner.apply(self.inner(self.layer(x))), layer=linear(), inner=Inner.module)
    with pytest.raises(CaptureError, match=r"backward\(\) within the step adds to \.grad .* torch\.autograd\.grad"):
        planned(model)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("asks", [False, True])
def test_a_capture_leaves_every_gradient_as_it_was_also_where_it_fails(asks):
    model, data = Made(lambda self, x: (y := self.layer(x)) * (2 if asks and y.sum() > 0 else 1), layer=linear()), x()
    held = [data.requires_grad_(), *model.parameters()]
    before = [torch.ones_like(tensor) for tensor in held]
    for tensor, gradient in zip(held, before, strict=True):
        tensor.grad = gradient
    with pytest.raises(CaptureError) if asks else contextlib.nullcontext():
        rx.capture(model, (data,))
    assert all(tensor.grad is gradient and gradient.eq(1).all() for tensor, gradient in zip(held, before, strict=True))


COUNT = itertools.count()
BANK = [torch.full((8,), float(n)) for n in range(100)]
READ: dict[str, Callable[[torch.Tensor], Any]] = {
    "a number": lambda y: y * next(COUNT),
    "an array": lambda y: y + torch.from_numpy(np.array([next(COUNT) for _ in range(8)])).float(),
    "which tensor is read": lambda y: y + BANK[next(COUNT) % 100],
    "an index": lambda y: y[:, next(COUNT) % 8 : 8],
    "which function is called": lambda y: y.sin() if next(COUNT) % 2 else y.cos(),
    "how many functions are called": lambda y: y.sin().cos() if next(COUNT) % 2 else y.sin(),
}


@pytest.mark.parametrize("name", READ)
def test_what_differs_between_passes_that_begin_alike_is_refused_with_its_line(name):
    model = Made(lambda self, x: READ[name](self.layer(x)), layer=linear())
    words = r"forward (computes|calls) .* in one pass and .* (of|in) the next, alt"
    with pytest.raises(CaptureError, match=words) as caught:
        planned(model)
    assert re.search(rf"{Path(__file__).name}:\d+ `", str(caught.value))


def test_a_model_that_catches_the_refusal_is_refused_all_the_same():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        with contextlib.suppress(CaptureError):
            return y * next(COUNT)
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


@pytest.mark.parametrize("same", [torch.Tensor.contiguous, torch.Tensor.float, torch.atleast_1d, torch.Tensor.cpu])
def test_a_constant_that_an_operator_hands_back_as_it_is_is_not_left_by_the_trace(same):
    model, data = Made(lambda self, x: self.layer(x) * same(TABLE[0]), layer=linear()), x()
    assert torch.equal(planned(model)(data), model(data))
