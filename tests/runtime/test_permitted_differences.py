"""What a call may differ in from the one that was planned, two at once: with the numbers of plain PyTorch, too."""

from __future__ import annotations

import contextlib
import copy
import itertools
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import rematerialization
from tests.thorough import thorough_but

LATER = ("smaller", "larger", "no gradient", "by name", "other truth", "strided", "other cache", "double")
BEFORE_THE_FIRST_STEP = ("autocast", "frozen", "counted")
PAIRS = list(itertools.combinations((*LATER, *BEFORE_THE_FIRST_STEP), 2))
PAIRS.remove(("smaller", "larger"))


class Model(nn.Module):
    """Reads a truth value out of an input, keeps a tensor that is no buffer, and draws numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))
        self.drop, self.scale = nn.Dropout(0.1), torch.ones(1)

    def forward(self, x: torch.Tensor, y: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        h = self.drop(self.second(self.first(x).tanh()).tanh()) * self.scale + y
        losses = self.third(h.sin() if y[0, 0] > 0 else h).float().square()
        return losses.mean() if num_items_in_batch is None else losses.sum() / num_items_in_batch


def called(differences: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    count = 6 if "smaller" in differences else 12 if "larger" in differences else 9
    x, y = torch.rand(2, 2 * count, 8, generator=torch.Generator().manual_seed(2)) + 0.1
    x, y = x[::2] if "strided" in differences else x[:count], y[:count]
    x, y = (x.double(), y.double()) if "double" in differences else (x, y)
    x, y = x.detach().requires_grad_("no gradient" not in differences), -y if "other truth" in differences else y
    counted = {"num_items_in_batch": 7} if "counted" in differences else {}
    return ((), {"y": y, "x": x, **counted}) if "by name" in differences else ((x, y), counted)


def changed(model: Model, differences: Any) -> None:
    if "frozen" in differences:
        model.first.requires_grad_(False)
    if "other cache" in differences:
        model.scale = torch.full((1,), 0.5)
    if "double" in differences:
        model.double().scale = model.scale.double()


def step(called_model: Any, differences: Any) -> list[torch.Tensor | None]:
    called_model.zero_grad()
    args, kwargs = called(differences)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16) if "autocast" in differences else contextlib.nullcontext():
        loss = called_model(*args, **kwargs)
    loss.backward()
    x = kwargs["x"] if "x" in kwargs else args[0]
    return [loss.detach(), x.grad, *(parameter.grad for parameter in called_model.parameters())]


def assert_same(mine: list[torch.Tensor | None], plain: list[torch.Tensor | None]) -> None:
    for first, second in zip(mine, plain, strict=True):
        assert (first is None) == (second is None)
        assert first is None or second is None or (first.dtype == second.dtype and torch.equal(first, second))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("one", "other"), thorough_but(PAIRS, *(pair for pair in PAIRS if "no gradient" in pair)))
def test_two_permitted_differences_at_once_are_permitted(one, other):
    torch.manual_seed(0)
    pair = {one, other}
    plain = Model()
    model = copy.deepcopy(plain)
    planned = rx.rematerialize(model, *called(()), budget="200%", strategy="checkpoint-all")
    if pair.isdisjoint(BEFORE_THE_FIRST_STEP):
        assert_same(step(planned, ()), step(plain, ()))
    changed(model, pair)
    changed(plain, pair)
    lasting = {*BEFORE_THE_FIRST_STEP, "other cache", "double", "by name"} & pair
    for differences in (pair, lasting, pair):
        assert_same(step(planned, differences), step(plain, differences))


def test_what_a_call_is_refused_for_is_named_and_not_the_gradient_that_it_may_do_without():
    planned = rx.rematerialize(Model(), *called(()), budget="200%", strategy="checkpoint-all")
    step(planned, ())
    planned.first.requires_grad_(False)
    with pytest.raises(ExecutionError, match=r"the parameter 'first.weight' is frozen.*resolve=True"):
        step(planned, ("no gradient", "smaller"))
    planned.double().scale = planned.scale.double()
    with pytest.raises(ExecutionError, match=r"the parameter 'first.weight' is frozen.*resolve=True"):
        step(planned, ("double",))


def test_what_the_first_step_leaves_out_is_planned_without():
    model = Model()
    planned: Any = rx.rematerialize(model, *called(("counted",)), budget="200%", strategy="checkpoint-all")
    assert_same(step(planned, ()), step(model, ()))


class Calls:
    """Counts forward passes by a plan."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._train = 0, rematerialization.train
        monkeypatch.setattr(rematerialization, "train", self)

    def __call__(self, *args: Any) -> Any:
        self.count += 1
        return self._train(*args)


@pytest.mark.parametrize("resolve", [False, True])
def test_a_network_that_is_frozen_while_another_is_trained_runs_as_it_is(resolve, monkeypatch):
    calls, found = Calls(monkeypatch), []
    for planned in (False, True):
        torch.manual_seed(0)
        generator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 8))
        critic = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        z, one = torch.randn(16, 4), generator
        if planned:
            one = rx.rematerialize(generator, (z,), budget="200%", strategy="checkpoint-all", resolve=resolve)
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (critic, generator)]
        for _ in range(2):
            for model, optimizer, sign in ((critic, optimizers[0], 1.0), (generator, optimizers[1], -1.0)):
                generator.requires_grad_(model is generator)
                optimizer.zero_grad()
                made = one(z)
                assert made.requires_grad is (model is generator)
                (sign * critic(made).mean()).backward()
                optimizer.step()
        found.append([tensor.clone() for model in (generator, critic) for tensor in model.state_dict().values()])
    assert all(map(torch.equal, *found))
    assert calls.count == 2


def test_a_model_that_is_frozen_before_its_first_step_is_planned_when_it_is_trained(monkeypatch):
    calls = Calls(monkeypatch)
    planned = rx.rematerialize(Model(), *called(("no gradient",)), budget="200%", strategy="checkpoint-all")
    planned.requires_grad_(False)
    (x, y), _ = called(("no gradient",))
    assert not planned(x, y).requires_grad
    assert calls.count == 0
    planned.requires_grad_(True)
    planned(x, y).backward()
    assert calls.count == 1
