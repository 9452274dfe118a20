"""What forward does to attributes: refused where a plan, which does not run forward, would leave them stale."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune

import remat_explorer as rx
from remat_explorer.capture.dry_run import TensorPlaceholder
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import size_variants
from tests.runtime.kinds_of_models import Made, linear, x


def planned(model: nn.Module, *args: Any, **options: Any) -> Any:
    return rx.rematerialize(model, args or (x(),), budget="100%", strategy="checkpoint-all", **options)


def counts(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.steps += 1
    y = self.layer(x)
    return y if self.steps > 3 else 2 * y


def counts_in_an_object(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.state["steps"] = self.state["steps"] + 1
    return self.layer(x).sin()


class Meter:
    def __init__(self) -> None:
        self.count = 0

    def update(self) -> None:
        self.count += 1


def counts_in_a_meter(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.meter.update()
    return self.layer(x).sin()


def keeps_features(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.features = self.layer(x)
    return self.features.sin()


def collects(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.seen.append(self.layer(x))
    return self.seen[-1].sin()


def warms_up(self: Any, x: torch.Tensor) -> torch.Tensor:
    first, self.first = self.first, False
    return self.layer(x) * 2 if first else self.layer(x).sin()


def takes_scale_of_first_batch(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.mean is None:
        self.mean = x.mean(0)
    return self.layer(x - self.mean)


def draws_once(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.mask is None:
        self.mask = torch.rand(8).round()
    return self.layer(x) * self.mask


def goes_on_from_its_state(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.memory = (self.layer(x).mean(0) + self.memory).detach()
    return self.layer(x) * self.memory


def keeps_a_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.heads[0] = self.layer(x)
    self.heads[1] = self.heads[0].tanh()
    return torch.stack(self.heads).sum(0)


def keeps_a_new_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.seen = [self.layer(x), (self.layer(x).sin(), {"cos": self.layer(x).cos()})]
    return self.seen[1][0]


class Auxiliary(nn.Module):
    """A layer that leaves a loss behind, as layers of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()
        self.l_aux: Any = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.l_aux = y.square().mean()
        return y


STALE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a counter": (
        lambda: Made(counts, layer=linear(), steps=0),
        r"forward changes the attribute steps of the model \(Made\), from 0 to 1, in every pass anew. .* loop",
    ),
    "a counter in a dictionary": (
        lambda: Made(counts_in_an_object, layer=linear(), state={"steps": 0}),
        r"forward changes the attribute state\['steps'\] of the model .*, from 0 to 1",
    ),
    "a counter in an object": (
        lambda: Made(counts_in_a_meter, layer=linear(), meter=Meter()),
        r"forward changes the attribute meter.count of the model \(Made\), from 0 to 1",
    ),
    "a state": (
        lambda: Made(goes_on_from_its_state, layer=linear(), memory=torch.zeros(8)),
        r"attribute memory of .* return it from forward, or keep",
    ),
    "a list of outputs": (lambda: Made(collects, layer=linear(), seen=[]), r"forward changes the attribute seen"),
    "another first step": (
        lambda: Made(warms_up, layer=linear(), first=True),
        r"attribute first of the model \(Made\), from True to False, in the first pass alone, .* run the model once",
    ),
    "the scale of the first batch": (
        lambda: Made(takes_scale_of_first_batch, layer=linear(), mean=None),
        r"attribute mean of the model .*in the first pass alone, which depends on its inputs",
    ),
    "a mask that is drawn once": (
        lambda: Made(draws_once, layer=linear(), mask=None),
        r"attribute mask .*the first pass alone",
    ),
}


@pytest.mark.parametrize("name", STALE)
def test_an_attribute_that_would_become_stale_is_refused_by_its_name(name):
    make, words = STALE[name]
    model = make()
    before = {path: dict(vars(module)) for path, module in model.named_modules()}
    with pytest.raises(ExecutionError, match=words):
        planned(model)
    for path, module in model.named_modules():
        assert vars(module) == before[path]
    assert getattr(model, "state", {"steps": 0}) == {"steps": 0}
    assert getattr(model, "meter", Meter()).count == 0


@pytest.mark.parametrize("name", ["another first step", "the scale of the first batch", "a mask that is drawn once"])
def test_what_only_the_first_step_does_is_planned_after_that_step(name):
    model = STALE[name][0]()
    model(x())
    trained, data = planned(model), x()
    assert torch.equal(trained(data), model(data))


def caches_positions(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.positions is None:
        self.positions = torch.arange(8.0).cos()
    return self.layer(x) * self.positions


def caches_by_length(self: Any, x: torch.Tensor) -> torch.Tensor:
    if len(x) not in self.masks:
        self.masks[len(x)] = torch.ones(len(x), len(x)).tril()
    return self.masks[len(x)] @ self.layer(x)


def notes_its_shape(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.shape = x.shape
    return functional.relu(self.layer(x)).view(self.shape)


def caches_the_last_mask(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.mask is None or len(self.mask) != len(x):
        self.mask = torch.ones(len(x), len(x)).tril()
    return functional.dropout(self.mask @ self.layer(x), 0.5, self.training)


CACHES: dict[str, Callable[[], nn.Module]] = {
    "positions": lambda: Made(caches_positions, layer=linear(), positions=None),
    "masks by length": lambda: Made(caches_by_length, layer=linear(), masks={}),
    "the shape of the input": lambda: Made(notes_its_shape, layer=linear()),
}


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_that_is_filled_once_is_no_obstacle_before_or_after_it_is_filled(name):
    model: Any = CACHES[name]()
    trained, data = planned(model), x()
    for _ in range(2):
        assert torch.equal(*(torch.autograd.grad(one(data).sum(), [model.layer.weight])[0] for one in (trained, model)))
        trained.eval()
        trained(x(3, 8))
        trained.train()


def gradient(model: Any, data: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return torch.autograd.grad(model(data).square().sum(), [model.layer.weight])[0]


def test_a_cache_that_somebody_else_fills_with_other_numbers_is_noticed():
    model, data = CACHES["positions"](), x()
    trained: Any = rx.rematerialize(model, (data,), budget="200%")
    trained(data)
    model.positions = torch.zeros(8)
    with pytest.warns(UserWarning, match=r"attribute positions of the model \(Made\) .* The step is traced again"):
        assert torch.equal(gradient(trained, data), gradient(model, data))
    given = rx.rematerialize(model, (data,), solution=trained.rematerialization.solution)
    given(data)
    model.positions = torch.ones(8)
    with pytest.raises(ExecutionError, match=r"attribute positions of the model \(Made\)"):
        given(data)


@pytest.mark.parametrize("has_run", [False, True])
def test_a_mask_that_an_evaluation_leaves_behind_is_no_obstacle(has_run):
    model: Any = Made(caches_the_last_mask, layer=linear(), mask=None)
    data = x()
    if has_run:
        model(data)
    trained = planned(model)
    trained(data)
    for _ in range(2):  # epochs, of which the second finds what was left before
        trained.eval()
        trained(data[:3])
        assert len(model.mask) == 3
        trained.train()
        assert torch.equal(gradient(trained, data), gradient(model, data))
    assert len(trained.rematerialization.plans) == 2


def test_a_tensor_that_is_another_one_in_each_step_is_refused_after_a_while():
    def weighs(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.weights

    model: Any = Made(weighs, layer=linear(), weights=torch.ones(8))
    trained, data = planned(model), x()
    trained(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(2, size_variants.MAX_CACHE_VARIANTS + 1):
            model.weights = torch.full((8,), float(number))
            trained(data)
    model.weights = torch.full((8,), 0.5)
    with pytest.raises(ExecutionError, match=r"attribute weights of the model \(Made\) .* resolve=True"):
        trained(data)


LEFT: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], torch.Tensor]]] = {
    "a kept output": (lambda: Made(keeps_features, layer=linear()), lambda model: model.features),
    "a loss": (lambda: nn.Sequential(linear(), Auxiliary()), lambda model: model[1].l_aux),
    "a list": (lambda: Made(keeps_a_list, layer=linear(), heads=[torch.ones(1)] * 2), lambda model: model.heads[1]),
    "a list that is a new one": (lambda: Made(keeps_a_new_list, layer=linear()), lambda model: model.seen[1][1]["cos"]),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_forward_leaves_behind_is_marked_as_not_there(name):
    make, look = LEFT[name]
    model: Any = make()
    data = x()
    with pytest.warns(UserWarning, match="after its steps such attributes are not there") as noted:
        trained = planned(model, data)
    assert [warning.filename for warning in noted] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        for _ in range(2):
            found = [torch.autograd.grad(one(data).sum(), [*model.parameters()]) for one in (model, trained)]
            assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
            assert isinstance(look(model), torch.Tensor)
            with pytest.raises(ExecutionError, match="is not there after a training step by a plan"):
                _ = found[0][0].sum() + look(model)
            trained(data[:2]).sum().backward()
            trained.eval()
            trained(data[:3])
            assert look(model).sum() < 1e6
            trained.train()
    assert len(trained.rematerialization.plans) == 2
    trained(data)
    assert look(copy.deepcopy(trained)) is look(trained)


def test_marks_are_told_from_other_tensors_by_everyone():
    mark = TensorPlaceholder.of("it is gone")
    assert b"remat_explorer" not in pickle.dumps(mark)  # whoever reads it need not have this package
    for use in (float, bool, torch.Tensor.detach, lambda gone: gone.shape, lambda gone: torch.stack([gone, gone])):
        with pytest.raises(ExecutionError, match="it is gone"):
            use(mark)


def test_models_that_keep_outputs_can_still_be_solved_and_measured():
    model, args = STALE["a counter"][0](), (x(),)
    graph = rx.profile(rx.capture(model, args), model, args, device="cpu", repeats=1)
    assert rx.measure(rx.solve(graph, "100%", strategy="checkpoint-all"), model, args, device="cpu", repeats=1).equal
    assert model.steps == 0


class Memory(nn.Module):
    """State behind __getattr__ and __setattr__, as spiking networks keep their potentials."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()
        self._memories: dict[str, Any] = {"v": 0.0}

    def __getattr__(self, name: str) -> Any:
        memories = self.__dict__.get("_memories", {})
        return memories[name] if name in memories else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        memories = self.__dict__.get("_memories", {})
        memories.__setitem__(name, value) if name in memories else super().__setattr__(name, value)

    def reset(self) -> None:
        self.v: Any = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            self.v = self.v + (self.layer(x) - self.v) / 2
        return torch.sigmoid(self.v)


class ResetMemory(Memory):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.reset()
        return super().forward(x)


@pytest.mark.parametrize("between", [lambda model: None, lambda model: model.reset()], ids=["kept", "reset"])
@pytest.mark.parametrize("resolve", [False, True])
def test_state_behind_getattr_that_forward_resets_is_planned_once(resolve, between):
    model = ResetMemory()
    plain = copy.deepcopy(model)
    with pytest.warns(UserWarning, match="_memories"):
        trained = planned(model, resolve=resolve)
    for data in (x(), x(), x()):
        found = [torch.autograd.grad(one(data).sum(), [*one.parameters()]) for one in (plain, trained)]
        assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
        between(plain)
        between(trained)
    assert len(trained.rematerialization.plans) == 1


def test_state_behind_getattr_that_lasts_is_refused_with_advice_to_reset_it_in_forward():
    with pytest.raises(ExecutionError, match="state that begins anew in each step is reset by forward itself"):
        planned(Memory())


HOOKED: dict[str, Callable[[nn.Module], Any]] = {
    "pruning": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    "weight norm": torch.nn.utils.weight_norm,
    "spectral norm": torch.nn.utils.spectral_norm,
}
BETWEEN: dict[str, Callable[[nn.Module], Any]] = {
    "pruning": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    "weight norm": torch.nn.utils.remove_weight_norm,
    "spectral norm": torch.nn.utils.remove_spectral_norm,
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("name", HOOKED)
def test_a_weight_that_hooks_compute_is_read_after_a_call_as_its_mark_says_and_may_be_pruned_or_removed(name):
    model = nn.Sequential(linear(), nn.Tanh())
    HOOKED[name](model[0])
    plain: Any = nn.Sequential(linear(), nn.Tanh())
    HOOKED[name](plain[0])
    plain.load_state_dict(model.state_dict())
    with pytest.warns(UserWarning, match="attribute weight"):
        trained = planned(model, resolve=True)

    def train() -> None:
        for data in (x(), x()):
            for one in (plain, trained):
                one.zero_grad()
                one(data).sum().backward()
                torch.optim.SGD(one.parameters(), 0.1).step()
        for mine, theirs in zip(trained.parameters(), plain.parameters(), strict=True):
            assert torch.equal(mine, theirs)
            assert torch.equal(mine.grad, theirs.grad)

    train()
    layer: Any = trained[0]
    with pytest.raises(ExecutionError, match=r"call the model once within torch.no_grad\(\) and in evaluation mode"):
        layer.weight.abs()
    data = x()
    for one in (plain, trained):
        one.eval()
        with torch.no_grad():
            one(data)
        one.train()
    assert torch.equal(layer.weight, plain[0].weight)
    for one in (plain, trained):
        BETWEEN[name](one[0])
    train()
