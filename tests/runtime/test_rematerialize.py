"""What a rematerialized model is, what it refuses, and what it says then."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import tracing
from remat_explorer.errors import CaptureError, ExecutionError, SolutionError
from tests.runtime.kinds_of_models import Made
from tests.runtime.language_model import batch, llama
from tests.runtime.step_outcomes import assert_same, equal, step_of

X = torch.randn(64, 16)


def model() -> Any:
    layers = [part for _ in range(4) for part in (nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(16, 4))


def trained(one: nn.Module, **options: Any) -> Any:
    return rx.rematerialize(one, (X,), **({"budget": "90%", "time_limit": 5} | options))


def gradients(one: Any, x: torch.Tensor = X) -> list[torch.Tensor]:
    torch.manual_seed(5)
    return list(torch.autograd.grad(one(x).square().mean(), [p for p in one.parameters() if p.requires_grad]))


@pytest.fixture(scope="module")
def shared() -> Any:
    made = trained(model())
    made(X)  # what differs in the first step is planned anew
    return made


def test_it_is_of_the_models_own_class_shares_its_tensors_and_keeps_to_its_budget(shared):
    own, solution = shared.rematerialization.model, shared.rematerialization.solution
    assert isinstance(shared, nn.Sequential)
    assert (type(shared).__name__, type(shared).__module__) == ("Sequential", nn.Sequential.__module__)
    assert all(mine is theirs for mine, theirs in zip(shared.parameters(), own.parameters(), strict=True))
    assert [name for name, _ in shared.named_modules()] == [name for name, _ in own.named_modules()]
    shared.load_state_dict(own.state_dict())
    assert solution.schedule.recomputations > 0
    assert solution.peak <= solution.budget


def test_the_model_is_traced_once_and_a_kept_schedule_spares_the_search(tmp_path, monkeypatch):
    traced, heard, trace_joint = [], [], tracing.trace_joint
    monkeypatch.setattr(tracing, "trace_joint", lambda *given: traced.append(given) or trace_joint(*given))
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    one = model()
    for count in (1, 2):
        heard.clear()
        again = trained(one, cache=True, on_progress=lambda progress: heard.append(progress.doing))
        assert len(traced) == count
    assert heard == ["found in the cache"]
    assert again.rematerialization.solution.plan.peak <= again.rematerialization.solution.budget


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


@pytest.mark.parametrize("keeps_casts", [True, False])
def test_a_weight_that_is_used_twice_under_autocast_is_cast_as_often_as_in_plain_training(keeps_casts):
    """By default autocast keeps its cast of a weight, and the two gradients are added in bfloat16."""
    shared = nn.Linear(16, 16)
    one = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(16, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=keeps_casts):
        mine = trained(one, budget="100%")
        assert equal(gradients(mine), gradients(one))
    with pytest.raises(ExecutionError, match="autocast is off, but the plan was made with it on for cpu"):
        mine(X)
    words = ", without its cache, but" if keeps_casts else ", but .*, without its cache"
    other = torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=not keeps_casts)
    with other, pytest.raises(ExecutionError, match=rf"autocast is on for cpu in torch\.bfloat16{words}"):
        mine(X)


def test_casts_that_autocast_keeps_inside_of_forward_go_when_it_is_left():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = self.layer(self.layer(x).relu()) + self.layer.weight.bfloat16().sum()
        return x.float()

    one = Made(forward, layer=nn.Linear(16, 16))
    assert equal(gradients(trained(one, budget="100%")), gradients(one))


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


@pytest.mark.parametrize("device", ["cpu", "A100"])
def test_a_solution_file_is_enough_whatever_its_costs_were(device, tmp_path):
    one = model()
    graph = rx.capture(one, (X,), optimizer="adam", device=device)
    if device == "cpu":
        graph = rx.profile(graph, one, (X,), device="cpu", repeats=1)
    mine: Any = rx.rematerialize(one, (X,), solution=rx.solve(graph, "90%", time_limit=5).save(tmp_path / "s.json"))
    solution = mine.rematerialization.solution
    assert solution.schedule.recomputations > 0
    assert solution.graph.options.optimizer == "adam"
    assert device == "cpu" or solution.lower_bound is None
    assert equal(gradients(mine), gradients(one))


def test_a_solution_that_does_not_fit_to_the_model_or_to_this_machine_is_refused(tmp_path):
    solution = rx.solve(rx.capture(nn.Linear(16, 4), (X,)), "100%")
    for given in (solution, solution.save(tmp_path / "schedule.json")):
        with pytest.raises(SolutionError, match="another graph, 'Linear', than the one given, 'Sequential'"):
            rx.rematerialize(model(), (X,), solution=given)
    net = rx.models.load("vgg16", batch=2, image=32)
    solution = rx.solve(net.graph, "100%", strategy="checkpoint-all")  # estimates know of no workspace
    with pytest.raises(SolutionError, match=r"measured here, the schedule is refused: .* above the budget"):
        rx.rematerialize(net.module, net.args, solution=solution)


def test_what_is_given_wrongly_is_refused_with_what_to_give():
    labels = torch.randint(0, 4, (64,))
    with pytest.raises(ExecutionError, match=r"goes stage by stage fits into .* The smallest budget worth trying is"):
        rx.rematerialize(model(), (X,), budget=1000)
    with pytest.raises(ExecutionError, match=r"give budget=\.\.\., such as"):
        rx.rematerialize(model(), (X,))
    with pytest.raises(CaptureError, match=r"the inputs are a Tensor; pass a tuple of them, such as \(x,\)"):
        rx.rematerialize(model(), X, budget="90%")  # type: ignore[arg-type]
    with pytest.raises(ExecutionError, match=r"the loss reads the tensor 'labels' of shape \[64\] from around it"):
        trained(model(), loss=lambda output: functional.cross_entropy(output, labels))
    with pytest.raises(ExecutionError, match=r"DataParallel\(rematerialize\(model, \.\.\.\)\)"):
        rx.rematerialize(nn.DataParallel(model()), (X,), budget="90%")


def test_the_output_of_a_transformer_has_its_loss():
    one: Any = llama()
    given: dict[str, Any] = batch()
    mine: Any = rx.rematerialize(one, (), given, budget="100%", strategy="checkpoint-all")
    output = mine(**given)
    assert type(output).__name__ == "CausalLMOutputWithPast"
    assert output.logits is None
    assert mine.config is one.config
    assert_same(step_of(mine, **given), step_of(one, **given))


def test_with_a_loss_the_model_returns_it():
    other = model()
    mine = trained(other, loss=lambda output: output.square().mean())
    torch.manual_seed(5)
    assert equal(list(torch.autograd.grad(mine(X), list(mine.parameters()))), gradients(other))
    mine.eval()
    assert mine(X[:2]).dim() == 0


def test_what_backward_reads_must_not_be_written_to():
    x = X.clone()
    mine: Any = rx.rematerialize(model(), (x,), budget="90%", time_limit=5)
    for write, words in (
        (lambda: mine[9].weight.detach().zero_(), "parameter '9.weight' was written to between"),
        (x.zero_, "input tensor 0 was written to between"),
    ):
        loss = mine(x).sum()
        write()
        with pytest.raises(ExecutionError, match=words):
            loss.backward()
