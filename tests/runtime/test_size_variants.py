"""Smaller batches and shorter sequences run by the schedule of larger ones; larger ones are planned anew."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import rematerialization, size_variants, step_planner
from remat_explorer.runtime.size_variants import carry_over_schedule, require_same_operations
from tests.runtime.kinds_of_models import Made, linear
from tests.thorough import thorough_but

X = torch.randn(64, 16)


def layers(count: int = 4) -> Any:
    parts = [part for _ in range(count) for part in (nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1))]
    return nn.Sequential(*parts, nn.Linear(16, 4))


def trained(model: nn.Module, *args: Any, **options: Any) -> Any:
    return rx.rematerialize(model, args or (X,), **({"budget": "90%", "time_limit": 1} | options))


def gradients(model: Any, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    torch.manual_seed(5)
    output = model(*args, **kwargs)
    loss = output.loss if hasattr(output, "loss") else output.square().mean()
    return list(torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True))


def assert_like_plain(planned: Any, *args: Any, **kwargs: Any) -> None:
    mine, plain = (gradients(model, *args, **kwargs) for model in (planned, planned.rematerialization.model))
    for first, second in zip(mine, plain, strict=True):
        assert first is second is None or torch.equal(first, second)
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
    monkeypatch.setattr(rematerialization, "MAX_SIZE_VARIANTS", 2)
    planned = trained(layers())
    for batch in (40, 30, 40, 20):
        assert_like_plain(planned, X[:batch])
    assert [plan.signature.leaves[0].shape[0] for plan in planned.rematerialization.plans] == [64, 40, 20]


def test_a_copy_takes_smaller_batches_too():
    twin = copy.deepcopy(trained(layers()))
    assert_like_plain(twin, X[:40])


WORDS = torch.randint(3, 80, (4, 24))
PADDED = (torch.arange(24) < torch.tensor([[24], [18], [20], [5]])).long()
PARTS: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def llama() -> tuple[Any, dict[str, Any]]:
    transformers = pytest.importorskip("transformers", reason="transformers is an optional extra")
    config = transformers.LlamaConfig(**PARTS, vocab_size=90, max_position_embeddings=32)
    return transformers.LlamaForCausalLM(config), {"labels": WORDS}


def bert() -> tuple[Any, dict[str, Any]]:
    transformers = pytest.importorskip("transformers", reason="transformers is an optional extra")
    config = transformers.BertConfig(**PARTS, vocab_size=90, max_position_embeddings=32)
    return transformers.BertForTokenClassification(config), {"labels": WORDS % 2, "token_type_ids": WORDS % 2}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", thorough_but([llama, bert], bert))
def test_shorter_sequences_and_smaller_batches_of_transformers(make):
    model, others = make()
    inputs = {"input_ids": WORDS, "attention_mask": PADDED} | others
    planned = rx.rematerialize(model, (), inputs, budget="90%", time_limit=1)
    for count, length in ((4, 20), (3, 24), (1, 21)):  # of one sequence some operators are others
        assert_like_plain(planned, **{name: tensor[:count, :length].contiguous() for name, tensor in inputs.items()})
    plans = planned.rematerialization.plans
    assert len(plans) == 4
    assert plans[0].code.program.graph.n == plans[1].code.program.graph.n == plans[2].code.program.graph.n
    assert not plans[1].measured
    assert not plans[2].measured


def test_a_larger_batch_is_planned_anew_within_the_same_bytes():
    planned = trained(layers(), X[:40])
    budget = planned.rematerialization.solution.budget
    with pytest.warns(
        UserWarning, match=r"input 0 is .* \[48, 16\] .* made for .* \[40, 16\] .* planned anew, in .*largest inputs"
    ) as told:
        assert_like_plain(planned, X[:48])
    assert told[0].filename == __file__
    assert planned.rematerialization.solution.budget == budget
    assert_like_plain(planned, X[:44])
    assert [plan.measured for plan in planned.rematerialization.plans] == [True, True, False]


def test_a_larger_batch_than_that_of_a_given_solution_is_an_error():
    model = layers()
    planned = trained(model, X[:40])
    given = rx.rematerialize(model, (X[:40],), solution=planned.rematerialization.solution)
    assert_like_plain(given, X[:39])
    with pytest.raises(ExecutionError, match=r"\[64, 16\] .* larger\. Rematerialize with the largest .*give budget="):
        given(X)


class Deeper(nn.Module):
    """Does more for a few examples than for many."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = layers(2), nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(9)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        return y if len(x) > 60 else self.deep(y.repeat(1, 10).reshape(-1, 4)) if len(x) > 9 else self.deep(y)


def test_where_fewer_examples_have_other_operations_everything_is_kept_or_it_is_planned_anew():
    model = Deeper()
    planned, resolving = trained(model), trained(model, resolve=True)
    given = rx.rematerialize(model, (X,), solution=planned.rematerialization.solution)
    words = r"\[30, 16\] .* made for .* \[64, 16\] .* since the model computes 'repeat' where it computed .* there"
    with pytest.raises(ExecutionError, match=words + r", and keeping everything does not fit .*resolve=True"):
        given(X[:30])
    with pytest.warns(UserWarning, match=words + r"\. It is planned anew$") as noted:
        assert_like_plain(planned, X[:30])
    assert [warning.filename for warning in noted] == [__file__]
    assert_like_plain(resolving, X[:30])
    assert resolving.rematerialization.solution.budget == planned.rematerialization.solution.budget
    assert planned.rematerialization.solution.schedule.recomputations > 0
    assert_like_plain(planned, X[:9])
    assert planned.rematerialization.solution.overhead == 1.0
    assert planned.rematerialization.plans[-1].measured


def cut(model: Any, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return model.layer(x[:, : int(lengths.max())]).tanh().sum(dim=1)


def test_everything_is_kept_for_fewer_examples_only_where_what_is_retained_fits_too(monkeypatch):
    planned = trained(Deeper(), budget="95%", retain_graph=True)
    with monkeypatch.context() as larger:
        larger.setattr(size_variants, "retaining_peak", lambda plan: plan.peak + 10**9)
        with pytest.warns(UserWarning, match=r"\[9, 16\] .*planned anew"):
            assert_like_plain(planned, X[:9])
    assert_like_plain(planned, X[:8])
    assert planned.rematerialization.solution.overhead == 1.0


def test_what_is_read_out_of_smaller_inputs_is_what_their_plan_is_for():
    planned = trained(Made(cut, layer=linear()), torch.randn(6, 7, 8), torch.tensor([3, 7, 5, 6, 2, 1]), budget="100%")
    inputs = torch.randn(5, 6, 8), torch.tensor([3, 4, 5, 1, 2])
    assert_like_plain(planned, *inputs)
    assert_like_plain(planned, inputs[0], torch.tensor([1, 5, 1, 1, 1]))
    with pytest.raises(ExecutionError, match=r"^4 is read out of input 1 at .*, but the plan was made for 5"):
        planned(inputs[0], torch.tensor([4, 1, 1, 1, 1]))


def test_smaller_inputs_out_of_which_another_truth_value_is_read_are_planned_anew_and_lead_to_smaller_ones():
    def masked(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x if mask.all() else x * mask[:, None].cos()).tanh()
        return x

    model = Made(masked, layers=nn.ModuleList(nn.Linear(16, 16) for _ in range(6)))
    x, padded, whole = torch.randn(64, 16), torch.arange(64) % 3, torch.ones(64, dtype=torch.long)
    planned = trained(model, x, padded, budget="smallest")
    with pytest.warns(UserWarning, match=r"for the first time, a step reads True at .* planned anew") as noted:
        assert_like_plain(planned, x[:63], whole[:63])
    assert [warning.filename for warning in noted] == [__file__]
    assert_like_plain(planned, x[:62], whole[:62])
    assert_like_plain(planned, x[:61], padded[:61])
    assert [plan.measured for plan in planned.rematerialization.plans] == [True, True, False, False]


def test_plans_that_were_carried_over_to_other_sizes_do_not_use_up_those_for_truth_values():
    def masked(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.layer(x if mask.all() else x * mask[:, None])

    model = Made(masked, layer=nn.Linear(16, 16))
    x, padded = torch.randn(64, 16), torch.arange(64) % 3
    planned = trained(model, x, padded, budget="100%")
    for size in range(64, 63 - rematerialization.MAX_BRANCH_PLANS, -1):
        planned(x[:size], padded[:size])
    with pytest.warns(UserWarning, match=r"True is read out of input 1 .* planned anew"):
        planned(x, torch.ones(64, dtype=torch.long))


def test_where_the_model_has_changed_too_the_error_names_that():
    model = layers()
    planned = trained(model)
    planned(X)
    model[2].p = 0.5
    with pytest.raises(ExecutionError, match=r"attribute p of '2' \(Dropout\) is 0\.5, but the plan was made for 0\.1"):
        planned(X[:7])


def test_a_schedule_is_not_carried_over_to_larger_values():
    few, many = (trace(layers(), (x,)) for x in (X[:7], X))
    require_same_operations(many, few)
    with pytest.raises(ExecutionError, match=r"'0 linear \+ tanh.*' takes .* where it took .* there"):
        require_same_operations(few, many)


def test_smaller_random_operations_leave_less_room_for_the_state_of_the_generator():
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1), nn.Linear(16, 4))
    planned = trained(model, torch.randn(128, 16), budget="100%", strategy="checkpoint-all")
    assert_like_plain(planned, X[:8])
    _, small = (
        next(node.implementations[0].workspace for node, body in pairs if body.random)
        for plan in planned.rematerialization.plans
        if (pairs := zip(plan.solution.graph.operations, plan.code.program.bodies, strict=True))
    )
    assert small >= torch.get_rng_state().nbytes - 8 * 16 * 5  # outputs: floats, and a mask of bytes


def test_a_schedule_that_is_carried_over_is_checked_at_the_new_sizes():
    few, many = (trace(layers(), (x,)) for x in (X[:62], X))
    solution = rx.solve(many.graph, "smallest", time_limit=1)
    with pytest.raises(ExecutionError, match=r"is refused for these inputs: stage .* needs .*, above the budget of"):
        carry_over_schedule(solution, many, few, many.graph.resident_bytes + 2**20, "requested")
