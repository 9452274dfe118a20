"""What a call may differ in from the one that was planned, such as smaller sizes: with the numbers of plain PyTorch."""

import copy
import itertools
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import plan_dispatcher, step_planner
from remat_explorer.runtime.size_variants import carry_over_schedule
from tests.runtime.kinds_of_models import Made, linear
from tests.runtime.step_outcomes import Left, assert_same, step_of
from tests.thorough import thorough_but

LATER = ("smaller", "larger", "no gradient", "by name", "other truth", "strided", "other cache", "double")
BEFORE_THE_FIRST_STEP = ("autocast", "frozen", "counted")
PAIRS = [pair for pair in itertools.combinations((*LATER, *BEFORE_THE_FIRST_STEP), 2) if pair != ("smaller", "larger")]
QUICK = [("smaller", "other truth"), ("larger", "no gradient"), ("no gradient", "by name"), ("no gradient", "frozen")]
QUICK += [("strided", "autocast"), ("other cache", "counted"), ("no gradient", "double")]


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


def step(model: Any, differences: Any = ()) -> Left:
    args, kwargs = called(differences)
    low = partial(torch.autocast, "cpu", torch.bfloat16) if "autocast" in differences else nullcontext
    return step_of(model, *args, around=low, **kwargs)


def changed(model: Model, differences: Any) -> None:
    if "frozen" in differences:
        model.first.requires_grad_(False)
    if "other cache" in differences:
        model.scale = torch.full((1,), 0.5)
    if "double" in differences:
        model.double().scale = model.scale.double()


def kept(model: nn.Module, differences: Any = ()) -> Any:
    args, kwargs = called(differences)
    return rx.rematerialize(model, args, kwargs, budget="200%", strategy="checkpoint-all")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("one", "other"), thorough_but(PAIRS, *QUICK))
def test_two_permitted_differences_at_once_are_permitted(one, other):
    torch.manual_seed(0)
    pair = {one, other}
    plain = Model()
    model = copy.deepcopy(plain)
    planned = kept(model)
    if pair.isdisjoint(BEFORE_THE_FIRST_STEP):
        assert_same(step(planned), step(plain))
    changed(model, pair)
    changed(plain, pair)
    lasting = {*BEFORE_THE_FIRST_STEP, "other cache", "double", "by name"} & pair
    for differences in (pair, lasting, pair):
        assert_same(step(planned, differences), step(plain, differences))


def test_what_a_call_is_refused_for_is_named_and_not_the_gradient_that_it_may_do_without():
    planned = kept(Model())
    step(planned)
    planned.first.requires_grad_(False)
    with pytest.raises(ExecutionError, match=r"the parameter 'first.weight' is frozen.*resolve=True"):
        step(planned, ("no gradient", "smaller"))
    planned.double().scale = planned.scale.double()
    with pytest.raises(ExecutionError, match=r"the parameter 'first.weight' is frozen.*resolve=True"):
        step(planned, ("double",))


def test_a_count_of_labels_may_be_another_one_in_every_step_and_what_the_first_step_leaves_out_is_planned_without():
    model = Model()
    planned = kept(model, ("counted",))
    (x, y), _ = called(())
    for count in (20, torch.tensor(23), 7):
        found = [step_of(one, x, y, num_items_in_batch=count) for one in (planned, model)]
        assert_same(*found)
    assert len(planned.rematerialization.plans) == 1
    with pytest.raises(ExecutionError, match="input 'num_items_in_batch' is None, but the plan was made for int64"):
        planned(x, y)
    assert_same(step(kept(model, ("counted",))), step(model))


def is_by_plan(output: torch.Tensor) -> bool:
    return "PlannedStep" in type(output.grad_fn).__name__


@pytest.mark.parametrize("resolve", [False, True])
def test_a_network_that_is_frozen_while_another_is_trained_runs_as_it_is(resolve):
    found = []
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
                assert is_by_plan(made) is (planned and model is generator)
                (sign * critic(made).mean()).backward()
                optimizer.step()
        found.append([tensor.clone() for model in (generator, critic) for tensor in model.state_dict().values()])
    assert all(map(torch.equal, *found))


def test_a_model_that_is_frozen_before_its_first_step_is_planned_when_it_is_trained():
    planned = kept(Model(), ("no gradient",)).requires_grad_(False)
    args, _ = called(("no gradient",))
    assert not planned(*args).requires_grad
    output = planned.requires_grad_(True)(*args)
    assert is_by_plan(output)
    output.backward()


X = torch.randn(64, 16)


def layers(count: int = 4) -> Any:
    parts = [part for _ in range(count) for part in (nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1))]
    return nn.Sequential(*parts, nn.Linear(16, 4))


def trained(model: nn.Module, *args: Any, **options: Any) -> Any:
    return rx.rematerialize(model, args or (X,), **({"budget": "90%", "time_limit": 1} | options))


def assert_like_plain(planned: Any, *args: Any, **kwargs: Any) -> None:
    assert_same(step_of(planned, *args, **kwargs), step_of(planned.rematerialization.model, *args, **kwargs))
    assert planned.rematerialization.solution.peak <= planned.rematerialization.solution.budget


def test_a_smaller_batch_takes_the_schedule_and_its_plan_is_kept(monkeypatch):
    planned = trained(layers())
    first = planned.rematerialization.solution
    monkeypatch.setattr(step_planner, "profile", None)
    monkeypatch.setattr(step_planner, "solve", None)
    for x in (X[:62], X, X[:62], X[:3], X[::2]):  # one that is not contiguous, too
        assert_like_plain(planned, x)
    plans = planned.rematerialization.plans
    assert [plan.signature.leaves[0].shape[0] for plan in plans] == [64, 62, 3, 32]
    assert all(plan.solution.budget == first.budget for plan in plans)
    assert plans[1].solution.schedule.sequence == first.schedule.sequence
    assert plans[2].solution.overhead == 1.0  # everything can be kept
    assert [plan.measured for plan in plans] == [True, False, False, False]


def test_of_the_plans_for_other_sizes_the_last_used_are_kept(monkeypatch):
    monkeypatch.setattr(plan_dispatcher, "MAX_SIZE_VARIANTS", 2)
    planned = trained(layers())
    for batch in (40, 30, 40, 20):
        assert_like_plain(planned, X[:batch])
    assert [plan.signature.leaves[0].shape[0] for plan in planned.rematerialization.plans] == [64, 40, 20]


@pytest.mark.filterwarnings("ignore")
def test_shorter_sequences_and_smaller_batches_of_a_transformer():
    transformers = pytest.importorskip("transformers", reason="transformers is an optional extra")
    parts = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.BertForTokenClassification(transformers.BertConfig(**parts, vocab_size=90)).train()
    words, lengths = torch.randint(3, 80, (4, 24)), torch.tensor([[24], [18], [20], [5]])
    mask = (torch.arange(24) < lengths).long()
    inputs = {"input_ids": words, "attention_mask": mask, "labels": words % 2, "token_type_ids": words % 2}
    planned = rx.rematerialize(model, (), inputs, budget="90%", time_limit=1)
    for count, length in ((4, 20), (3, 24), (1, 21)):  # of one sequence some operators are others
        assert_like_plain(planned, **{name: tensor[:count, :length].contiguous() for name, tensor in inputs.items()})
    plans = planned.rematerialization.plans
    assert len(plans) == 4
    assert plans[0].code.program.graph.n == plans[1].code.program.graph.n == plans[2].code.program.graph.n
    assert [plan.measured for plan in plans[1:3]] == [False, False]


def test_a_larger_batch_is_planned_anew_within_the_same_bytes_and_is_an_error_for_a_given_solution():
    planned = trained(layers(), X[:40])
    given = rx.rematerialize(planned.rematerialization.model, (X[:40],), solution=planned.rematerialization.solution)
    budget = planned.rematerialization.solution.budget
    with pytest.warns(
        UserWarning, match=r"input 0 is .* \[48, 16\] .* made for .* \[40, 16\] .* planned anew, in .*largest inputs"
    ) as told:
        planned(X[:48])
    assert told[0].filename == __file__
    assert_like_plain(planned, X[:48])
    assert planned.rematerialization.solution.budget == budget
    assert_like_plain(planned, X[:44])
    assert [plan.measured for plan in planned.rematerialization.plans] == [True, True, False]
    assert_like_plain(given, X[:39])
    with pytest.raises(ExecutionError, match=r"\[64, 16\] .* larger\. Rematerialize with the largest .*give budget="):
        given(X)


def deeper(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Does more for a few examples than for many."""
    y = self.stem(x)
    return y if len(x) > 60 else self.deep(y.repeat(1, 10).reshape(-1, 4)) if len(x) > 9 else self.deep(y)


def test_where_fewer_examples_have_other_operations_everything_is_kept_or_it_is_planned_anew():
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(9)))
    model = Made(deeper, stem=layers(2), deep=deep)
    planned, resolving = trained(model), trained(model, resolve=True)
    given = rx.rematerialize(model, (X,), solution=planned.rematerialization.solution)
    words = r"\[30, 16\] .* made for .* \[64, 16\] .* since the model computes 'repeat' where it computed .* there"
    with pytest.raises(ExecutionError, match=words + r", and keeping everything does not fit .*resolve=True"):
        given(X[:30])
    with pytest.warns(UserWarning, match=words + r"\. It is planned anew$") as noted:
        planned(X[:30])
    assert [warning.filename for warning in noted] == [__file__]
    assert_like_plain(planned, X[:30])
    assert_like_plain(resolving, X[:30])
    assert resolving.rematerialization.solution.budget == planned.rematerialization.solution.budget
    assert planned.rematerialization.solution.schedule.recomputations > 0
    assert_like_plain(planned, X[:9])
    assert planned.rematerialization.solution.overhead == 1.0
    assert planned.rematerialization.plans[-1].measured


def test_what_is_read_out_of_smaller_inputs_is_what_their_plan_is_for():
    model = Made(lambda s, x, lengths: s.layer(x[:, : int(lengths.max())]).tanh().sum(dim=1), layer=linear())
    planned = trained(model, torch.randn(6, 7, 8), torch.tensor([3, 7, 5, 6, 2, 1]), budget="100%")
    inputs = torch.randn(5, 6, 8), torch.tensor([3, 4, 5, 1, 2])
    assert_like_plain(planned, *inputs)
    assert_like_plain(planned, inputs[0], torch.tensor([1, 5, 1, 1, 1]))
    with pytest.raises(ExecutionError, match=r"^4 is read out of input 1 at .*, but the plan was made for 5"):
        planned(inputs[0], torch.tensor([4, 1, 1, 1, 1]))


def masked(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    for layer in self.layers:
        x = layer(x if mask.all() else x * mask[:, None].cos()).tanh()
    return x


PADDED, WHOLE = torch.arange(64) % 3, torch.ones(64, dtype=torch.long)


def trained_with_mask(layers: int, budget: str) -> Any:
    model = Made(masked, layers=nn.ModuleList(nn.Linear(16, 16) for _ in range(layers)))
    return trained(model, X, PADDED, budget=budget)


def test_smaller_inputs_out_of_which_another_truth_value_is_read_are_planned_anew_and_lead_to_smaller_ones():
    planned = trained_with_mask(6, "smallest")
    with pytest.warns(UserWarning, match=r"for the first time, a step reads True at .* planned anew"):
        planned(X[:63], WHOLE[:63])
    for count, mask in ((63, WHOLE), (62, WHOLE), (61, PADDED)):
        assert_like_plain(planned, X[:count], mask[:count])
    assert [plan.measured for plan in planned.rematerialization.plans] == [True, True, False, False]


def test_plans_that_were_carried_over_to_other_sizes_do_not_use_up_those_for_truth_values():
    planned = trained_with_mask(1, "100%")
    for size in range(64, 63 - plan_dispatcher.MAX_BRANCH_PLANS, -1):
        planned(X[:size], PADDED[:size])
    with pytest.warns(UserWarning, match=r"True is read out of input 1 .* planned anew"):
        planned(X, WHOLE)


def test_a_schedule_that_is_carried_over_is_checked_at_the_new_sizes():
    few, many = (trace(layers(), (x,)) for x in (X[:62], X))
    solution = rx.solve(many.graph, "smallest", time_limit=1)
    with pytest.raises(ExecutionError, match=r"is refused for these inputs: stage .* needs .*, above the budget of"):
        carry_over_schedule(solution, many, few, many.graph.resident_bytes + 2**20, "requested")
