"""What a rematerialized model is, what it refuses, and what it says then."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import tracing
from remat_explorer.errors import CaptureError, ExecutionError, SolutionError
from tests.runtime.kinds_of_models import KINDS, Made, linear

X = torch.randn(64, 16)


def model() -> Any:
    layers = [part for _ in range(4) for part in (nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(16, 4))


def trained(one: nn.Module, **options: Any) -> Any:
    return rx.rematerialize(one, (X,), **({"budget": "90%", "time_limit": 5} | options))


def gradients(one: Any, x: torch.Tensor = X) -> list[torch.Tensor]:
    torch.manual_seed(5)
    return list(torch.autograd.grad(one(x).square().mean(), list(one.parameters())))


def equal(first: list[Any], second: list[Any]) -> bool:
    return all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@pytest.fixture(scope="module")
def shared() -> Any:
    made = trained(model())
    made(X)  # what differs in the first step is planned anew
    return made


def test_it_is_of_the_models_own_class_and_shares_its_tensors(shared):
    own = shared.rematerialization.model
    assert isinstance(shared, nn.Sequential)
    assert (type(shared).__name__, type(shared).__module__) == ("Sequential", nn.Sequential.__module__)
    assert all(mine is theirs for mine, theirs in zip(shared.parameters(), own.parameters(), strict=True))
    assert [name for name, _ in shared.named_modules()] == [name for name, _ in own.named_modules()]
    shared.load_state_dict({name: torch.zeros_like(t) for name, t in own.state_dict().items()} | own.state_dict())


def test_the_model_is_traced_once(monkeypatch):
    traced, trace_joint = [], tracing.trace_joint
    monkeypatch.setattr(tracing, "trace_joint", lambda *given: traced.append(given) or trace_joint(*given))
    trained(model(), strategy="checkpoint-all", budget="100%")
    assert len(traced) == 1


def test_its_schedule_recomputes_and_keeps_to_its_budget(shared):
    solution = shared.rematerialization.solution
    assert solution.schedule.recomputations > 0
    assert solution.peak <= solution.budget


def test_evaluation_runs_the_model_as_it_is(shared):
    shared.eval()
    assert not shared.rematerialization.model[2].training
    assert torch.equal(shared(X[:3]), shared.rematerialization.model(X[:3]))
    shared.train()
    with torch.no_grad():
        assert shared(X[:5]).grad_fn is None


def test_its_source_can_be_read_and_saved(shared, tmp_path):
    source = shared.rematerialization.source
    assert shared.rematerialization.save_source(tmp_path / "step.py").read_text() == source
    for words in ("def forward(", "def backward(", ": recompute ", "= None", "results: output"):
        assert words in source
    compile(source, "step.py", "exec")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one[0].weight.requires_grad_(False), "the parameter '0.weight' is frozen, but"),
        (lambda one: one[2].eval(), "'2' is in evaluation mode, but the plan was made for training"),
    ],
)
def test_a_change_of_the_model_is_an_error_or_planned_anew(change, words):
    one = model()
    strict, resolving = trained(one), trained(one, resolve=True)
    strict(X)
    change(one)
    with pytest.raises(ExecutionError, match=words):
        strict(X)
    torch.manual_seed(5)
    resolving(X).square().mean().backward()
    found = [parameter.grad for parameter in one.parameters() if parameter.grad is not None]
    trainable = [parameter for parameter in one.parameters() if parameter.requires_grad]
    torch.manual_seed(5)
    assert equal(found, list(torch.autograd.grad(one(X).square().mean(), trainable)))


def test_autocast_that_was_off_must_stay_off(shared):
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ExecutionError, match="autocast is on for cpu in"):
        shared(X)


def test_under_autocast_it_is_as_exact_as_without():
    one = model()
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        assert equal(gradients(trained(one)), gradients(one))


@pytest.mark.parametrize("keeps_casts", [True, False])
def test_a_weight_that_is_used_twice_under_autocast_is_cast_as_often_as_in_plain_training(keeps_casts):
    """By default autocast keeps its cast of a weight, and the two gradients are added in bfloat16."""
    shared = nn.Linear(16, 16)
    one = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(16, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=keeps_casts):
        mine = trained(one, budget="100%")
        assert equal(gradients(mine), gradients(one))


def test_casts_that_autocast_keeps_inside_of_forward_go_when_it_is_left():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = self.layer(self.layer(x).relu()) + self.layer.weight.bfloat16().sum()
        return x.float()

    one = Made(forward, layer=nn.Linear(16, 16))
    assert equal(gradients(trained(one, budget="100%")), gradients(one))


def test_a_plan_with_autocasts_cache_is_none_without_it():
    one = model()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mine = trained(one, budget="100%")
        mine(X)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
        pytest.raises(ExecutionError, match=r"autocast is on for cpu in torch\.bfloat16, without its cache, but"),
    ):
        mine(X)


def test_moving_it_plans_anew():
    one = model()
    mine = trained(one).to(torch.float64)
    assert equal(gradients(mine, X.double()), gradients(one, X.double()))
    assert len(mine.rematerialization.plans) == 2


def test_a_copy_trains_by_itself(shared):
    twin = copy.deepcopy(shared)
    before = copy.deepcopy(shared.state_dict())
    assert equal(gradients(twin), gradients(shared))
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    assert not equal(gradients(twin), gradients(shared))
    assert equal(list(before.values()), list(shared.state_dict().values()))


def test_pickled_is_the_model_as_it_was_and_a_warning_says_so(shared, tmp_path):
    with pytest.warns(UserWarning, match="a rematerialized Sequential is pickled as the Sequential that it was"):
        torch.save(shared, tmp_path / "model.pt")
    assert b"remat_explorer" not in (tmp_path / "model.pt").read_bytes()
    with pytest.warns(UserWarning, match="is pickled as"):
        read = copy.copy(shared)  # in the way of pickle
    assert type(read) is nn.Sequential
    assert equal(list(read.state_dict().values()), list(shared.state_dict().values()))
    assert equal(gradients(read), gradients(shared))


def test_a_solution_file_is_enough(tmp_path):
    one = model()
    graph = rx.profile(rx.capture(one, (X,), optimizer="adam"), one, (X,), device="cpu", repeats=1)
    path = rx.solve(graph, "90%", time_limit=5).save(tmp_path / "schedule.json")
    mine: Any = rx.rematerialize(one, (X,), solution=path)
    assert mine.rematerialization.solution.schedule.recomputations > 0
    assert mine.rematerialization.solution.graph.options.optimizer == "adam"
    assert equal(gradients(mine), gradients(one))


def test_a_solution_file_whose_costs_were_other_ones_serves_all_the_same(tmp_path):
    one = model()
    path = rx.solve(rx.capture(one, (X,), device="A100"), "90%", time_limit=5).save(tmp_path / "schedule.json")
    mine: Any = rx.rematerialize(one, (X,), solution=path)
    assert mine.rematerialization.solution.lower_bound is None
    assert equal(gradients(mine), gradients(one))


def test_a_solution_of_another_model_is_refused(tmp_path):
    solution = rx.solve(rx.capture(nn.Linear(16, 4), (X,)), "100%")
    for given in (solution, solution.save(tmp_path / "schedule.json")):
        with pytest.raises(SolutionError, match="another graph, 'Linear', than the one given, 'Sequential'"):
            rx.rematerialize(model(), (X,), solution=given)


def test_a_schedule_that_exceeds_its_budget_with_the_workspace_of_this_machine_is_refused():
    net = rx.models.load("vgg16", batch=2, image=32)
    solution = rx.solve(net.graph, "100%", strategy="checkpoint-all")  # estimates know of no workspace
    with pytest.raises(SolutionError, match=r"measured here, the schedule is refused: .* above the budget"):
        rx.rematerialize(net.module, net.args, solution=solution)


def test_an_infeasible_budget_says_what_would_be_feasible():
    with pytest.raises(ExecutionError, match=r"goes stage by stage fits into .* The smallest budget worth trying is"):
        rx.rematerialize(model(), (X,), budget=1000)


def test_a_budget_or_a_solution_is_needed():
    with pytest.raises(ExecutionError, match=r"give budget=\.\.\., such as"):
        rx.rematerialize(model(), (X,))


def test_inputs_without_a_tuple_around_them_are_refused():
    with pytest.raises(CaptureError, match=r"the inputs are a Tensor; pass a tuple of them, such as \(x,\)"):
        rx.rematerialize(model(), X, budget="90%")  # type: ignore[arg-type]


def test_a_loss_that_reads_labels_from_around_it_is_refused():
    labels = torch.randint(0, 4, (64,))
    with pytest.raises(ExecutionError, match=r"the loss reads the tensor 'labels' of shape \[64\] from around it"):
        trained(model(), loss=lambda output: functional.cross_entropy(output, labels))


def test_with_a_loss_the_model_returns_it():
    one = model()
    mine = trained(one, loss=lambda output: output.square().mean())
    torch.manual_seed(5)
    found = torch.autograd.grad(mine(X), list(mine.parameters()))
    assert equal(list(found), gradients(one))
    mine.eval()
    assert mine(X[:2]).dim() == 0


def test_outputs_come_in_the_containers_of_the_model():
    case = KINDS["several outputs"]()
    one: Any = case.model
    mine: Any = rx.rematerialize(one, case.args, budget="100%")
    found, expected = mine(*case.args), one(*case.args)
    assert found.keys() == expected.keys()
    assert torch.equal(found["place"], expected["place"])
    assert found["place"].grad_fn is None
    assert found["again"] is found["a"]
    assert found["b"][1] == 3
    (mine_gradient,) = torch.autograd.grad(found["view"].sum(), [one.layer.weight])
    (own_gradient,) = torch.autograd.grad(expected["view"].sum(), [one.layer.weight])
    assert torch.equal(mine_gradient, own_gradient)


def test_the_output_of_a_transformer_has_its_loss():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=8, vocab_size=50)
    one = transformers.GPT2LMHeadModel(config).train()
    words = torch.randint(0, 50, (4, 8))
    given = {"input_ids": words, "labels": words}
    mine: Any = rx.rematerialize(one, (), given, budget="95%", time_limit=5)
    torch.manual_seed(5)
    output = mine(**given)
    assert type(output).__name__ == "CausalLMOutputWithCrossAttentions"
    assert output.logits is None
    found = torch.autograd.grad(output.loss, list(mine.parameters()))
    torch.manual_seed(5)
    assert equal(list(found), list(torch.autograd.grad(one(**given).loss, list(one.parameters()))))
    assert mine.config is one.config


def test_hooks_of_the_model_run_once():
    one = Made(lambda s, x: s.layer(x).sin(), layer=linear())
    one.register_forward_hook(lambda module, args, output: output.mul(2))
    x = torch.randn(4, 8)
    mine: Any = rx.rematerialize(one, (x,), budget="100%")
    assert torch.equal(mine(x), one(x))


def test_what_goes_around_a_model_goes_around_the_rematerialized_one():
    with pytest.raises(ExecutionError, match=r"DataParallel\(rematerialize\(model, \.\.\.\)\)"):
        rx.rematerialize(nn.DataParallel(model()), (X,), budget="90%")


def test_a_backward_pass_runs_once(shared):
    loss = shared(X).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(ExecutionError, match="this backward pass ran already"):
        loss.backward()


def test_a_backward_pass_that_needs_nothing_of_the_forward_pass_runs():
    one = Made(lambda s, x: s.weight.sum() + x.sum(), weight=nn.Parameter(torch.ones(3)))
    mine: Any = rx.rematerialize(one, (X,), budget="100%")
    mine(X).backward()
    assert torch.equal(mine.weight.grad, torch.ones(3))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda one, x, y: one[9].weight.detach().zero_(), "parameter '9.weight' was written to between"),
        (lambda one, x, y: x.zero_(), "input tensor 0 was written to between"),
    ],
)
def test_what_backward_reads_must_not_be_written_to(write, words):
    one, x = model(), X.clone()
    mine: Any = rx.rematerialize(one, (x,), budget="90%", time_limit=5)
    y = mine(x)
    loss = y.sum()
    write(one, x, y)
    with pytest.raises(ExecutionError, match=words):
        loss.backward()
    mine(X).sum().backward()


def test_a_kept_schedule_spares_the_search_and_is_still_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    one, heard = model(), []
    for _ in range(2):
        heard.clear()
        again = trained(one, cache=True, on_progress=lambda progress: heard.append(progress.doing))
    assert heard == ["found in the cache"]
    assert again.rematerialization.solution.plan.peak <= again.rematerialization.solution.budget
