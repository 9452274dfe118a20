"""How a rematerialized model may be called, and what it says about calls that its plan was not made for."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import distribute_module

import remat_explorer as rx
from remat_explorer.errors import ExecutionError
from tests.runtime.kinds_of_models import Made
from tests.runtime.step_outcomes import planned

X, MASK = torch.randn(2, 4), torch.ones(2, 4)


@dataclass(eq=False)
class Batch:
    x: torch.Tensor
    weights: Any = None


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: Any = None, *, scale: float = 1.0, extra: Any = None) -> torch.Tensor:
        y = self.layer(x) * scale
        y = y if mask is None else y * mask
        return y if extra is None else y + extra["a"][0] + extra["b"]


@pytest.fixture(scope="module")
def masked() -> Any:
    return planned(Masked(), X, MASK)


def test_inputs_by_position_and_by_name_are_the_same_inputs(masked):
    plain = masked.rematerialization.model(X, MASK)
    assert torch.equal(masked(X, MASK), plain)
    assert torch.equal(masked(mask=MASK, x=X), plain)
    assert torch.equal(masked(X, mask=MASK, extra=None, scale=1.0), plain)
    assert len(masked.rematerialization.plans) == 1
    assert list(inspect.signature(masked.forward).parameters) == ["x", "mask", "scale", "extra"]
    assert torch.equal(masked.forward(X, MASK), plain)


def by_name(model: nn.Module, **kwargs: Any) -> Any:
    return rx.rematerialize(model, (), {"x": X} | kwargs, budget="100%", strategy="checkpoint-all")


def test_what_takes_any_inputs_is_called_as_it_was_planned():
    mine = by_name(Made(lambda s, *args, **kwargs: s.inner(*args, **kwargs), inner=Masked()), mask=MASK)
    assert torch.equal(mine(x=X, mask=MASK), mine.rematerialization.model(X, mask=MASK))
    with pytest.raises(ExecutionError, match=r"input '(x|mask)' is missing, with which the plan was made"):
        mine(X)


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "none at all": (lambda model: model(), r"forward takes \(.*mask.*\), which does not fit .* required argument: 'x'"),
    "an unknown name": (lambda model: model(X, MASK, foo=1), r"unexpected keyword argument 'foo'"),
    "one less": (lambda model: model(X), r"input 1 is None, but the plan was made for float32"),
    "a number more": (lambda model: model(X, MASK, scale=2.0), r"input 'scale' is given, but .* made without it"),
    "a list": (lambda model: model([X], MASK), r"input 0 is a container now, but the plan was made for one value"),
    "another type": (lambda model: model(X.double(), MASK), r"input 0 is float64 .* with \.to\(torch.float32\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_call_that_the_plan_is_not_for_names_the_input(name, masked):
    call, words = WRONG[name]
    with pytest.raises(ExecutionError, match=words) as caught:
        call(masked)
    assert "TreeSpec" not in str(caught.value)
    assert "drop_last" not in str(caught.value)


def test_a_plan_that_was_made_for_names_serves_positions_and_names_entries_of_containers():
    extra = {"a": [MASK], "b": 2}
    with_extra = by_name(Masked(), extra=extra)
    assert torch.equal(with_extra(X, extra=extra), with_extra.rematerialization.model(X, extra=extra))
    assert len(with_extra.rematerialization.plans) == 1
    with pytest.raises(ExecutionError, match=r"input 'extra'\['a'\]\[1\] is given, but the plan was made without it"):
        with_extra(X, extra={"a": [MASK, MASK], "b": 2})
    with pytest.raises(ExecutionError, match=r"input 'extra'\['b'\] is missing"):
        with_extra(X, extra={"a": [MASK]})


def test_another_number_is_answered_with_advice_about_numbers_and_fields_of_a_dataclass_are_compared_one_by_one():
    mine = by_name(Masked(), scale=2.0)
    with pytest.raises(ExecutionError, match=r"input 'scale' is 3.0, .* for 2.0. .* pass it as a tensor, or .*resolve"):
        mine(X, scale=3.0)
    mine = planned(Made(lambda s, batch: s.layer(batch.x), layer=nn.Linear(4, 4)), Batch(X, 3))
    assert mine(Batch(X, 3)).shape == (2, 4)
    with pytest.raises(ExecutionError, match=r"input 0\.weights is 4, but the plan was made for 3"):
        mine(Batch(X, 4))
    with pytest.raises(ExecutionError, match=r"input 0\.x is float32 of shape \[4\]"):
        mine(Batch(X[0], 3))
    assert mine(Batch(X[:1], 3)).shape == (1, 4)


def test_functional_call_with_other_tensors_says_what_to_call_instead(masked):
    others = {name: torch.zeros_like(tensor) for name, tensor in masked.named_parameters()}
    with pytest.raises(ExecutionError, match=r"place of the parameter 'layer.weight' .*Call the rematerialized model"):
        torch.func.functional_call(masked, others, (X, MASK))
    plain = torch.func.functional_call(masked.rematerialization.model, others, (X, MASK))
    assert torch.equal(plain, torch.zeros(2, 4))
    with torch.no_grad():
        assert torch.equal(torch.func.functional_call(masked, others, (X, MASK)), plain)
    assert not torch.equal(masked(X, MASK), plain)


def test_a_model_that_is_to_be_compiled_is_refused_before_and_after():
    model, words = Masked(), r"replaces what torch\.compile would run"
    with pytest.raises(ExecutionError, match=words):
        planned(model, X).compile()
    model.compile()
    with pytest.raises(ExecutionError, match=f"{words}; rematerialize the model without"):
        planned(model, X)


def test_inside_of_what_is_compiled_a_plan_runs_as_it_is_and_a_parametrization_of_it_is_refused():
    mine = planned(nn.Linear(4, 4), X)
    loss = torch.compile(lambda x: (2 * mine(x)).sum(), backend="eager")
    assert torch.equal(loss(X), (2 * mine(X)).sum())
    assert "PlannedStep" in type(torch.compile(mine, backend="eager")(X).grad_fn).__name__
    assert mine.rematerialization.calls == 3
    with pytest.raises(ExecutionError, match=r"cannot become a ParametrizedLinear: do that to the model before"):
        nn.utils.parametrizations.weight_norm(mine)


@pytest.fixture
def one_process(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_a_part_that_is_sharded_in_one_process_trains_and_is_noticed_later_on(one_process):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model(X).square().sum().backward()
    plain: list[Any] = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    fully_shard(model[0], mesh=one_process)
    mine = planned(model, X)
    mine(X).square().sum().backward()
    for expected, parameter in zip(plain, mine.parameters(), strict=True):
        found: Any = parameter.grad
        assert torch.equal(found.to_local() if hasattr(found, "to_local") else found, expected)
    with pytest.raises(ExecutionError, match=r"is sharded \(fully_shard\).*measure the model before it is sharded"):
        rx.measure(mine.rematerialization.solution, model, (X,))
    with pytest.raises(ExecutionError, match=r"is sharded \(fully_shard\).*rx.rematerialize takes such a model"):
        rx.compile(model, budget="90%")
    fully_shard(model[2], mesh=one_process)
    with pytest.raises(ExecutionError, match=r"'2' \(Linear\) is now a FSDPLinear. Do that before rematerialize"):
        mine(X)


def test_a_loss_that_reaches_part_of_what_is_sharded_together_and_other_ways_of_sharding_are_refused(one_process):
    model = Made(lambda s, x: (s.first(x), s.second(x)), first=nn.Linear(4, 4), second=nn.Linear(4, 4))
    fully_shard(model, mesh=one_process)
    mine = planned(model, X)
    with pytest.raises(ExecutionError, match=r"reaches some of the parameters that are sharded together"):
        mine(X)[0].sum().backward()
    around = FullyShardedDataParallel(planned(nn.Linear(4, 4), X), device_id=torch.device("cpu"))
    words = r"the model is sharded by FullyShardedDataParallel.*with torch.distributed.fsdp.fully_shard"
    with pytest.raises(ExecutionError, match=words):
        around(X)
    model = distribute_module(nn.Sequential(nn.Linear(4, 4)), one_process)
    with pytest.raises(ExecutionError, match=r"the parameter '0.weight' is a DTensor that fully_shard has not made"):
        planned(model, X)
