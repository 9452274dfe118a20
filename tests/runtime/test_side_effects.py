"""What forward, a hook or a backward pass leaves outside of the model: refused, or marked, and taken back."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import time
import types
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.dry_run import TensorPlaceholder
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made, linear, x

TERMS: list[torch.Tensor] = []
CALLS = 0
LAST: torch.Tensor | None = None
ELSEWHERE = nn.ReLU()
SPACE = types.SimpleNamespace(term=None)
LOGGER = logging.getLogger(__name__)


class Store:
    terms: list[torch.Tensor] = []  # noqa: RUF012 (shared on purpose)


def planned(model: nn.Module, **options: Any) -> Any:
    return rx.rematerialize(model, (x(),), budget="100%", strategy="checkpoint-all", **options)


def term(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.layer(x).square().mean()


def into_a_global_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    TERMS.append(term(self, x))
    return self.layer(x)


def through_a_helper(self: Any, x: torch.Tensor) -> torch.Tensor:
    return into_a_global_list(self, x).sin()


def into_a_class(self: Any, x: torch.Tensor) -> torch.Tensor:
    Store.terms.append(term(self, x))
    return self.layer(x)


def into_a_default(self: Any, x: torch.Tensor, terms: list[torch.Tensor] = []) -> torch.Tensor:  # noqa: B006
    terms.append(term(self, x))
    return self.layer(x)


def into_another_module(self: Any, x: torch.Tensor) -> torch.Tensor:
    ELSEWHERE.__dict__.setdefault("terms", []).append(term(self, x))
    return self.layer(x)


def into_a_namespace(self: Any, x: torch.Tensor) -> torch.Tensor:
    SPACE.term = term(self, x)
    return self.layer(x)


def counts_calls(self: Any, x: torch.Tensor) -> torch.Tensor:
    global CALLS
    CALLS += 1
    return self.layer(x) * CALLS


def counts_in_a_function(self: Any, x: torch.Tensor) -> torch.Tensor:
    counts_in_a_function.calls = getattr(counts_in_a_function, "calls", 0) + 1  # type: ignore[attr-defined]
    return self.layer(x)


def into_a_closure() -> nn.Module:
    terms: list[torch.Tensor] = []

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        terms.append(term(self, x))
        return self.layer(x)

    return Made(forward, layer=linear())


def hook_with_a_list() -> nn.Module:
    model, outputs = nn.Sequential(linear(), nn.Tanh()), []
    model[0].register_forward_hook(lambda module, args, output: outputs.append(output))
    return model


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a global list": (lambda: Made(into_a_global_list, layer=linear()), "the global variable 'TERMS'"),
    "a list that a helper fills": (lambda: Made(through_a_helper, layer=linear()), "the global variable 'TERMS'"),
    "a list of a class": (lambda: Made(into_a_class, layer=linear()), "the attribute 'terms' of the class Store"),
    "a default argument": (lambda: Made(into_a_default, layer=linear()), "a default argument of into_a_default"),
    "another module": (lambda: Made(into_another_module, layer=linear()), "a ReLU that is no part of the model"),
    "a namespace": (lambda: Made(into_a_namespace, layer=linear()), "the global variable 'SPACE', at term"),
    "a global counter": (lambda: Made(counts_calls, layer=linear()), "the global variable 'CALLS', from 0 to 1"),
    "a counter of a function": (
        lambda: Made(counts_in_a_function, layer=linear()),
        "the attributes of the function counts_in_a_function",
    ),
    "a list around a function": (into_a_closure, "the variable 'terms' around into_a_closure.forward"),
    "a list of a hook": (hook_with_a_list, "the variable 'outputs' around hook_with_a_list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_forward_changes_outside_of_the_model_in_every_pass_is_refused_by_its_name(name):
    make, words = REFUSED[name]
    with pytest.raises(ExecutionError, match=rf"forward or the loss changes .*{words}.* in every pass anew"):
        planned(make())
    assert (TERMS, CALLS, Store.terms, SPACE.term) == ([], 0, [], None)
    assert "terms" not in vars(ELSEWHERE)


def test_a_list_of_a_loss_is_refused():
    losses = []

    def loss(output: torch.Tensor) -> torch.Tensor:
        losses.append(output.mean())
        return losses[-1]

    with pytest.raises(ExecutionError, match="the variable 'losses' around"):
        planned(linear(), loss=loss)
    assert losses == []


WRITTEN: dict[str, tuple[Callable[[Any, torch.Tensor, torch.Tensor], Any], str]] = {
    "on the output": (lambda self, x, y: setattr(y, "aux", y.mean()), "writes the attribute 'aux'"),
    "on an input": (lambda self, x, y: setattr(x, "seen", True), "writes the attribute 'seen'"),
    "on a parameter": (lambda self, x, y: setattr(self.layer.weight, "used", True), "writes the attribute 'used'"),
    "its gradient": (lambda self, x, y: y.retain_grad(), r"calls retain_grad\(\) on a tensor of shape \[4, 8\]"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_forward_writes_on_tensors_that_outlive_it_is_refused(name):
    write, words = WRITTEN[name]

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        write(self, x, y)
        return y

    with pytest.raises(CaptureError, match=words):
        planned(Made(forward, layer=linear()))


def sets_a_global(self: Any, x: torch.Tensor) -> torch.Tensor:
    global LAST
    LAST = term(self, x)
    return self.layer(x)


def clears_a_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    TERMS.clear()
    TERMS.append(term(self, x))
    return self.layer(x)


def hook_with_a_dictionary() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model, features = nn.Sequential(linear(), nn.Tanh()), {}
    model[0].register_forward_hook(lambda module, args, output: features.update(feature=output))
    return model, lambda: features["feature"]


MARKED: dict[str, Callable[[], tuple[nn.Module, Callable[[], Any]]]] = {
    "a global variable": lambda: (Made(sets_a_global, layer=linear()), lambda: LAST),
    "a list that is cleared": lambda: (Made(clears_a_list, layer=linear()), lambda: TERMS[0]),
    "a dictionary that a hook fills": hook_with_a_dictionary,
}


@pytest.mark.parametrize("name", MARKED)
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

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        other.seen = term(self, x)
        return self.layer(x)

    model = Made(forward, layer=linear())
    weight, bias = other.weight, other.bias
    with pytest.warns(UserWarning, match=r"a Linear that is no part of the model, at \['seen'\]"):
        trained = planned(model)
    trained(x()).square().mean().backward()
    assert other.weight is weight
    assert other.bias is bias
    assert isinstance(other.seen, TensorPlaceholder)


def test_a_deque_that_forward_clears_and_fills_holds_a_mark_after_a_step():
    terms: deque[torch.Tensor] = deque()

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        terms.clear()
        terms.append(term(self, x))
        return self.layer(x)

    with pytest.warns(UserWarning, match="the variable 'terms'"):
        trained = planned(Made(forward, layer=linear()))
    output = trained(x())
    with pytest.raises(ExecutionError, match="is not there after a training step"):
        _ = output.mean() + sum(terms)


@dataclasses.dataclass
class Configuration:
    scale: float = 2.0
    names: list[str] = dataclasses.field(default_factory=list)


CONFIGURATION = Configuration()
KINDS = {"tanh": nn.Tanh}
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


def test_loggers_timers_registries_configurations_and_caches_are_no_obstacle():
    model, data = Made(is_ordinary, layer=linear()), x()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = planned(model)
    assert ({}, set()) == (MASKS, SAID)
    gradients = [torch.autograd.grad(one(data).sum(), list(model.parameters())) for one in (trained, model)]
    assert all(map(torch.equal, *gradients))


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    term: torch.Tensor | None = None

    @functools.cached_property
    def length(self) -> int:
        return len(self.x)


class Sink:
    def __init__(self) -> None:
        self.term: torch.Tensor | None = None


def adds_to_a_dictionary(self: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    batch["term"] = term(self, batch["x"])
    return self.layer(batch["x"])


def exchanges_in_a_dictionary(self: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    batch["x"] = batch["x"].sin()
    return self.layer(batch["x"])


def appends(self: Any, x: torch.Tensor, terms: list[torch.Tensor]) -> torch.Tensor:
    terms.append(term(self, x))
    return self.layer(x)


def sets_a_field(self: Any, batch: Batch) -> torch.Tensor:
    batch.term = term(self, batch.x)
    return self.layer(batch.x)


def sets_an_attribute(self: Any, x: torch.Tensor, sink: Sink) -> torch.Tensor:
    sink.term = term(self, x)
    return self.layer(x)


def reverses(self: Any, parts: list[torch.Tensor]) -> torch.Tensor:
    parts.reverse()
    return self.layer(parts[0]) - self.layer(parts[1]).sin()


GIVEN: dict[str, tuple[Callable[..., torch.Tensor], tuple[Any, ...], str]] = {
    "an entry": (adds_to_a_dictionary, ({"x": x()},), r"input 0\['term'\], from not there to a tensor"),
    "an exchanged entry": (exchanges_in_a_dictionary, ({"x": x()},), r"input 0\['x'\], from a tensor"),
    "an appended entry": (appends, (x(), []), r"input 1\[0\], from not there"),
    "a field": (sets_a_field, (Batch(x()),), r"input 0\.term, from None to a tensor"),
    "an attribute": (sets_an_attribute, (x(), Sink()), r"input 1\.term, from None to a tensor"),
    "an order": (reverses, ([x(), x()],), r"input 0\[0\]"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_forward_writes_into_its_inputs_is_refused_and_not_left_there(name):
    forward, args, words = GIVEN[name]
    before = copy.deepcopy([getattr(arg, "__dict__", arg) for arg in args])
    with pytest.raises(ExecutionError, match=rf"forward or the loss changes {words}.* return it from forward"):
        rx.rematerialize(Made(forward, layer=linear()), args, budget="100%", strategy="checkpoint-all")
    assert str([getattr(arg, "__dict__", arg) for arg in args]) == str(before)


def test_what_forward_takes_out_of_its_inputs_is_warned_of_and_stays_there():
    model = Made(lambda self, batch, parts: self.layer(batch.pop("x")) + parts.pop(0), layer=linear())

    def args() -> tuple[Any, ...]:
        return {"x": data, "y": data}, [data, data.sin()]

    data = x()
    with pytest.warns(UserWarning, match="A plan leaves its inputs as they are") as noted:
        trained = rx.rematerialize(model, args(), budget="100%", strategy="checkpoint-all")
    assert [str(one.message).partition(". A plan leaves its inputs")[0] for one in noted] == [
        "forward takes input 0['x'] away",
        "forward takes entries out of input 1",
    ]
    given = args()
    assert torch.equal(trained(*given), model(*args()))
    assert (list(given[0]), len(given[1])) == (["x", "y"], 2)


def test_an_object_that_is_also_far_away_in_another_is_looked_into_where_it_is_near():
    near, between, far = Sink(), Sink(), Sink()
    far.term, between.term = between, near  # type: ignore[assignment]

    def forward(self: Any, data: torch.Tensor) -> torch.Tensor:
        assert far.term is not None
        near.term = term(self, data)
        return self.layer(data)

    with pytest.raises(ExecutionError, match=r"the variable 'near' .*, at term, from None to a tensor"):
        planned(Made(forward, layer=linear()))
    assert near.term is None


def test_a_cached_property_of_an_input_is_no_obstacle():
    model, data = Made(lambda self, batch: self.layer(batch.x) * batch.length, layer=linear()), x()
    trained = rx.rematerialize(model, (Batch(data),), budget="100%", strategy="checkpoint-all")
    assert torch.equal(trained(Batch(data)), model(Batch(data)))


def test_an_input_that_forward_fills_and_returns_is_returned_by_a_plan():
    def forward(self: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        batch["y"] = self.layer(batch["x"])
        return batch

    model, data = Made(forward, layer=linear()), x()
    with pytest.warns(UserWarning, match=r"input 0\['y'\].* read this from what the model returns") as noted:
        trained = rx.rematerialize(model, ({"x": data},), budget="100%", strategy="checkpoint-all")
    assert [warning.filename for warning in noted] == [__file__]
    assert torch.equal(trained({"x": data})["y"], model({"x": data})["y"])


def test_what_an_input_has_beside_a_loss_is_returned_with_loss_elsewhere():
    def forward(self: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        batch["y"] = self.layer(batch["x"])
        batch["loss"] = batch["y"].square().mean()
        return batch

    model, data = Made(forward, layer=linear()), x()
    with pytest.warns(UserWarning, match=r"beside a loss it is there with loss=rx.loss_elsewhere"):
        rx.rematerialize(model, ({"x": data},), budget="100%", strategy="checkpoint-all")
    with pytest.warns(UserWarning, match="read this from what the model returns"):
        trained = rx.rematerialize(
            model, ({"x": data},), budget="110%", strategy="checkpoint-all", loss=rx.loss_elsewhere
        )
    assert torch.equal(trained({"x": data})["y"], model({"x": data})["y"])


class KeptFor(dict[str, Any]):
    """A mapping that PyTorch cannot take apart, so that a plan gives None for it."""


def test_an_input_that_forward_fills_and_a_plan_does_not_return_is_refused():
    def forward(self: Any, x: torch.Tensor, state: KeptFor) -> tuple[torch.Tensor, KeptFor]:
        state["steps"] = 1
        return self.layer(x), state

    with pytest.raises(ExecutionError, match=r"input 1\['steps'\], from not there to 1.* return it from forward"):
        rx.rematerialize(Made(forward, layer=linear()), (x(), KeptFor()), budget="100%", strategy="checkpoint-all")


class Pair(tuple[int, int]):
    """A tuple that says it has no length, as those of e3nn do."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Any:
        raise NotImplementedError


PAIR = Pair((2, 3))


def test_tuples_of_a_class_of_its_own_are_read_as_tuples():
    model, data = Made(lambda self, x: self.layer(x) * self.pair[0] * PAIR[1], layer=linear(), pair=Pair((4, 5))), x()
    assert torch.equal(planned(model)(data), model(data))


class Counted(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Counted.calls += 1
        return gradient * Counted.calls


def hooked(register: str) -> nn.Module:
    model, kept = nn.Sequential(linear(), nn.Tanh(), linear()), {}

    def keep(module: nn.Module, *gradients: Any) -> None:
        kept["gradient"] = gradients[-1]

    getattr(model[1], register)(keep)
    return model


def keeps_the_gradient_of_a_tensor() -> nn.Module:
    kept: list[torch.Tensor] = []

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y.register_hook(kept.append)
        return y.sin()

    return Made(forward, layer=linear())


IN_BACKWARD: dict[str, Callable[[], nn.Module]] = {
    "a backward hook": lambda: hooked("register_full_backward_hook"),
    "a hook before a backward pass": lambda: hooked("register_full_backward_pre_hook"),
    "a hook on a tensor": keeps_the_gradient_of_a_tensor,
    "a custom function": lambda: Made(lambda self, x: Counted.apply(self.layer(x)), layer=linear()),
}


@pytest.mark.parametrize("name", IN_BACKWARD)
def test_what_a_backward_pass_leaves_is_refused(name):
    with pytest.raises(CaptureError, match=r"a hook on its backward pass, or .* changes .*(kept|calls).* from \.grad"):
        planned(IN_BACKWARD[name]())
    assert Counted.calls == 0


FACTORS: dict[str, torch.Tensor] = {}


class Caches(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if "cos" not in FACTORS:
            FACTORS["cos"] = torch.arange(8.0).cos()
        return gradient * FACTORS["cos"]


def caches_in_a_hook(self: Any, x: torch.Tensor) -> torch.Tensor:
    def scale(gradient: torch.Tensor) -> torch.Tensor:
        if self.factor is None:
            self.factor = torch.arange(8.0).cos()
        return gradient * self.factor

    y = self.layer(x)
    y.register_hook(scale)
    return y.tanh()


FILLED_IN_BACKWARD: dict[str, Callable[[], nn.Module]] = {
    "by a custom function": lambda: Made(lambda self, x: Caches.apply(self.layer(x)), layer=linear()),
    "by a hook": lambda: Made(caches_in_a_hook, layer=linear(), factor=None),
}


@pytest.mark.parametrize("name", FILLED_IN_BACKWARD)
def test_a_cache_that_a_backward_pass_fills_is_refused_and_after_one_plain_step_is_no_obstacle(name):
    FACTORS.clear()
    model, data = FILLED_IN_BACKWARD[name](), x()
    with pytest.raises(CaptureError, match="can be filled before by one step in plain PyTorch"):
        planned(model)
    assert FACTORS == {}
    model(data).sum().backward()
    gradients = [torch.autograd.grad(one(data).sum(), list(model.parameters())) for one in (planned(model), model)]
    assert all(map(torch.equal, *gradients))


def test_a_hook_that_scales_gradients_is_part_of_the_plan():
    model, data = nn.Sequential(linear(), nn.Tanh(), linear()), x()
    model[1].register_full_backward_hook(lambda module, gradients, _: tuple(2 * g for g in gradients))
    gradients = [torch.autograd.grad(one(data).sum(), list(model.parameters())) for one in (planned(model), model)]
    assert all(map(torch.equal, *gradients))


class Inner(torch.autograd.Function):
    """Calls a module, of which its backward adds the gradients to ``.grad`` by itself."""

    @staticmethod
    def forward(ctx: Any, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        ctx.module = module
        ctx.save_for_backward(x)
        return module(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        data = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            torch.autograd.backward(ctx.module(data), gradient)
        return None, data.grad


def test_a_backward_pass_that_adds_to_gradients_itself_is_refused_and_leaves_none():
    model = Made(lambda self, x: Inner.apply(self.inner, self.layer(x)), layer=linear(), inner=linear())
    with pytest.raises(CaptureError, match=r"backward\(\) within the step adds to \.grad .* torch\.autograd\.grad"):
        planned(model)
    assert all(parameter.grad is None for parameter in model.parameters())


def asks(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.layer(x)
    return y * 2 if y.sum() > 0 else y


@pytest.mark.parametrize("can_be_captured", [True, False])
def test_a_capture_leaves_every_gradient_as_it_was(can_be_captured):
    model, data = Made((lambda self, x: self.layer(x)) if can_be_captured else asks, layer=linear()), x()
    data.requires_grad_().grad = torch.ones_like(data)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    held: list[tuple[torch.Tensor, Any]] = [(tensor, tensor.grad) for tensor in (data, *model.parameters())]
    if can_be_captured:
        rx.capture(model, (data,))
    else:
        with pytest.raises(CaptureError):
            rx.capture(model, (data,))
    assert all(tensor.grad is gradient and gradient.eq(1).all() for tensor, gradient in held)
