"""What a loop does around a plan: it differentiates inputs, changes outputs in place, and hooks on to gradients."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Plan
from remat_explorer.runtime import gradient_handover
from tests.runtime import heads
from tests.runtime.heads import Loss, differing, gradients, keeping, recomputing
from tests.runtime.kinds_of_models import Made, linear
from tests.runtime.random_schedules import random_schedule, solution_of
from tests.runtime.step_outcomes import Operators, equal, planned

X = torch.randn(32, 8)


@pytest.fixture(autouse=True)
def _every_gradient_at_once(monkeypatch):
    monkeypatch.setattr(gradient_handover, "MIN_SECONDS", 0.0)


def backbone() -> nn.Module:
    torch.manual_seed(0)
    middle = nn.Sequential(linear(), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2))
    return nn.Sequential(linear(), nn.Tanh(), middle, linear(), nn.Tanh())


def needs() -> torch.Tensor:
    return X.clone().requires_grad_()


def ends(*models: nn.Module) -> list[torch.Tensor]:
    return [content.clone() for model in models for content in model.state_dict().values()]


@pytest.mark.parametrize(("road", "frozen"), [(keeping, True), (recomputing, False)])
def test_a_stem_before_it_is_trained_as_in_plain_pytorch(road, frozen):
    """Frozen, nothing but what comes before it learns, as in prompt tuning."""
    found = []
    for by_plan in (False, True):
        model, stem = backbone().requires_grad_(not frozen), linear()
        one: Any = road(model, needs()) if by_plan else model
        optimizer = torch.optim.SGD([*stem.parameters(), *one.parameters()], lr=0.1)
        torch.manual_seed(3)
        for _ in range(3):
            optimizer.zero_grad()
            one(stem(X).relu()).square().mean().backward()
            optimizer.step()
        found.append(ends(stem, model))
    assert equal(*found)


def test_an_adversarial_example_gets_its_gradient():
    model = backbone().eval()
    found = []
    for one in (model, recomputing(model, needs())):
        x = needs()
        functional.mse_loss(one(x), X).backward()
        (alone,) = torch.autograd.grad(functional.mse_loss(one(x), X), x)
        assert x.grad is not None
        found.append([x.grad, alone, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        model.zero_grad()
    assert equal(*found)


@pytest.mark.parametrize("resolve", [False, True])
def test_a_discriminator_sees_real_and_generated_examples_in_one_step(resolve):
    """One plan serves both; where plans may be made anew, there is one without the gradient, too."""
    found, plans = [], 0
    for by_plan in (False, True):
        torch.manual_seed(0)
        critic, generator = nn.Sequential(linear(), nn.Tanh(), linear()), nn.Sequential(linear(), nn.Tanh())
        one: Any = planned(critic, needs(), resolve=resolve) if by_plan else critic
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (critic, generator)]
        for _ in range(2):
            optimizers[0].zero_grad()
            made = generator(X)
            (one(made.detach()).mean() - one(X.sin()).mean()).backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            (-one(made).mean() + one(made).square().mean()).backward()
            optimizers[1].step()
        plans = len(one.rematerialization.plans) if by_plan else 0
        found.append(ends(critic, generator))
    assert equal(*found)
    assert plans == 1 + resolve


def test_gradients_that_lie_in_the_memory_of_one_another_are_plain_pytorchs():
    """The gradient of a sum is one tensor for all of its terms, and that of an output where nothing else is added."""
    p = nn.Parameter(X[:4].clone())
    model = Made(lambda s, x, y: (x + y + s.p, (x[:2].expand(2, 2, 8) * s.p[:2]).sin()), p=p)
    given = [torch.randn(4, 8), torch.randn(2, 2, 8)]
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    for road in (keeping, recomputing):
        found: list[list[Any]] = [[], []]
        for one, kept in zip((model, road(model, x.requires_grad_(), y.requires_grad_())), found, strict=True):
            for used in (slice(0, 2), slice(0, 1), slice(1, 2)):
                starts = one(x.sin(), y.sin())[used]  # what is not leaf of autograd takes gradients as they are
                model.zero_grad()
                pairs = torch.autograd.grad(starts, [x, y, p], given[used], allow_unused=True)
                kept += [t if t is None else t.clone() for t in pairs]
        for mine, theirs in zip(*found, strict=True):
            assert mine is theirs or torch.equal(mine, theirs)


WIDE = torch.randn(256, 32)


def layers(count: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(count) for part in (nn.Linear(32, 32), nn.Tanh())))


def highest(step: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that were made at most, and those that are left."""
    with CpuMeter() as meter, meter.section():
        step()
    return meter.readings[0].highest, meter.readings[0].after


def test_prediction_and_measurement_count_the_gradient():
    model, x = layers(4), WIDE.clone().requires_grad_()
    graph = rx.profile(rx.capture(model, (x,)), model, (x,), device="cpu", repeats=1)
    without = rx.capture(model, (x.detach(),))
    persistent = {value.name for value in graph.values if value.persistent}
    assert persistent - {value.name for value in without.values} == {"input tensor 0.grad"}
    solution = solution_of(random_schedule(graph, 0, dropped=0.7))
    measurement = rx.measure(solution, model, (x,), device="cpu", repeats=1)
    assert measurement.equal
    assert measurement.peak == solution.peak
    trained: Any = rx.rematerialize(model, (x,), solution=solution)
    ones, used = torch.ones_like(trained(x)), 0
    for _ in range(2):
        x.grad = None
        trained.zero_grad()
        used, _ = highest(lambda: trained(x).backward(ones))
    assert solution.peak is not None
    assert 0.99 * solution.peak <= graph.resident_bytes + used <= solution.peak


def test_a_further_call_takes_what_its_forward_pass_leaves():
    model = layers(4)
    trained: Any = rx.rematerialize(model, (WIDE,), budget="90%", time_limit=5)
    ones, mine = torch.ones_like(trained(WIDE)), trained.rematerialization
    gradients = sum(parameter.nbytes for parameter in model.parameters())
    for count in (1, 2, 3):
        trained.zero_grad()
        calls = (trained(WIDE) for _ in range(count))
        used, _ = highest(lambda: torch.autograd.backward([*calls], [ones] * count))  # noqa: B023
        over = mine.solution.graph.resident_bytes + used - mine.solution.peak
        assert over <= (count - 1) * mine.waiting_bytes + (gradients if count > 1 else 0)
        assert over >= (count - 1) * mine.waiting_bytes - gradients - WIDE.nbytes


def test_a_plan_without_the_gradient_is_refused_in_words():
    trained: Any = keeping(backbone(), X)
    with pytest.raises(ExecutionError, match=r"input 0 is .*, which requires a gradient, but the plan .*\.detach\(\)"):
        trained(needs())
    with torch.no_grad():
        assert not trained(needs()).requires_grad


def rectified(output: dict[str, torch.Tensor]) -> torch.Tensor:
    output["first"].relu_()
    output["second"] *= 3
    return output["first"].sum() + output["second"].square().mean() + output["third"].mean()


def one_unused(output: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    output[1].mul_(2)
    return output[0].sum()


def with_loss() -> nn.Module:
    return Made(lambda s, x: s.net(x).square().mean(), net=backbone())


def two_heads() -> nn.Module:  # the backward pass of one reads its output
    return Made(lambda s, x: (s.a(x), s.b(x).tanh()), a=linear(), b=linear())


WRITES: dict[str, tuple[Callable[[], nn.Module], torch.Tensor, Callable[[Any], torch.Tensor]]] = {
    "a loss is divided": (with_loss, X, lambda loss: loss.div_(4)),
    "one of several outputs": (heads.Heads, heads.X, rectified),
    "the unused one of two heads": (two_heads, X, one_unused),
}


@pytest.mark.parametrize("name", WRITES)
def test_an_output_may_be_changed_in_place_where_plain_pytorch_allows_it(name):
    torch.manual_seed(0)
    make, x, change = WRITES[name]
    model = make()
    assert differing(gradients(keeping(model, x), (x,), change), gradients(model, (x,), change)) == []


def test_what_plain_pytorch_reads_must_not_be_changed():
    model = nn.Sequential(linear(), nn.Tanh())
    mine: Any = keeping(model, X)
    for one, error, words in ((model, RuntimeError, "inplace"), (mine, ExecutionError, "here as in plain PyTorch")):
        loss = one(X).mul_(2).sum()
        with pytest.raises(error, match=words):
            loss.backward()


def test_what_only_the_plan_reads_is_copied_where_there_is_room_for_it_and_else_refused():
    """The plan computes an activation again from an output, which no backward pass reads."""

    def forward(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.a(x)
        return h, self.c(self.b((h + 1).relu()).relu())

    def changed(output: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        output[0].mul_(2)
        return output[0].sum() + output[1].sum()

    model = Made(forward, a=linear(), b=linear(), c=linear())
    for rows in (8, 1024):
        x = torch.randn(rows, 8)
        schedule = random_schedule(rx.capture(model, (x,)), 0, dropped=1.0)
        assert schedule.recomputations > 0
        mine = rx.rematerialize(model, (x,), solution=solution_of(schedule))
        plain = gradients(model, (x,), changed)
        if rows == 8:
            assert differing(gradients(mine, (x,), changed), plain) == []
        else:
            with pytest.raises(ExecutionError, match=r"output 0 was written to in place .* computes again from it"):
                gradients(mine, (x,), changed)


@pytest.fixture(scope="module")
def recomputed() -> rx.Solution:
    model = layers()
    graph = rx.profile(rx.capture(model, (WIDE,)), model, (WIDE,), device="cpu", repeats=1)
    schedule = rx.solve(graph, "100%", "linearized-sqrt-n").schedule
    assert schedule is not None
    assert schedule.recomputations > 0
    return solution_of(schedule, Plan.of(schedule).peak)


@pytest.fixture
def trained(recomputed: rx.Solution) -> Any:
    return rx.rematerialize(layers(), (WIDE,), solution=recomputed)


def mean_square(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def shares(model: nn.Module, x: torch.Tensor, loss: Loss = mean_square) -> dict[str, float]:
    """For each parameter, in order, the share of the backward pass's operations that ran before its gradient came."""
    calls, seen = Operators(), {}

    def noting(name: str) -> Any:
        return lambda p: None if p.grad is None else seen.update({name: len(calls.ran)})

    handles = [p.register_post_accumulate_grad_hook(noting(name)) for name, p in model.named_parameters()]
    value = loss(model(x))
    with calls:
        value.backward()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    return {name: count / len(calls.ran) for name, count in seen.items()}


def test_hooks_run_in_order_while_the_plan_goes_on_but_together_where_they_take_no_time(recomputed, monkeypatch):
    trained: Any = rx.rematerialize(layers(), (WIDE,), solution=recomputed)
    mine, plain = shares(trained, WIDE), shares(layers(), WIDE)
    assert [name.partition(".")[0] for name in mine] == [name.partition(".")[0] for name in plain]
    found = list(mine.values())
    assert found == sorted(found)
    assert found[0] < 0.25
    assert found[len(found) // 2] < 0.7
    monkeypatch.setattr(gradient_handover, "MIN_SECONDS", 1.0)
    trained = rx.rematerialize(layers(), (WIDE,), solution=recomputed)
    (handover,) = trained.rematerialization.plans[0].code.handovers
    assert len(handover) == 16


def test_a_gradient_is_in_memory_once_and_gone_when_a_hook_drops_it(trained):
    solution = trained.rematerialization.solution
    peaks, ones, after = [], torch.ones_like(WIDE), 0
    for drop in (False, True):
        if drop:
            for parameter in trained.parameters():
                parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
        for _ in range(2):
            trained.zero_grad()
            used, after = highest(lambda: trained(WIDE).backward(ones))
        peaks.append(solution.graph.resident_bytes + used)
    assert 0.99 * solution.peak <= peaks[0] <= solution.budget
    assert peaks[1] <= peaks[0]
    assert after < sum(parameter.nbytes for parameter in trained.parameters())


@torch.no_grad()
def descend(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.sub_(parameter.grad.mul_(0.1))
    parameter.grad = None


def test_a_hook_may_step_and_change_gradients_though_the_plan_goes_on():
    """The gradient of `p` is also that of the activation before it; each weight is read after its gradient is made."""
    p = nn.Parameter(torch.ones(4, 8))
    model = Made(lambda s, x: (s.b(torch.tanh(s.a(x) + s.p)) + s.p).sin(), a=linear(), b=linear(), p=p)
    x = torch.randn(4, 8)
    ends = []
    for one in (copy.deepcopy(model), keeping(copy.deepcopy(model), x), recomputing(copy.deepcopy(model), x)):
        for parameter in one.parameters():
            parameter.register_post_accumulate_grad_hook(descend)
        for _ in range(2):
            one(x).square().mean().backward()
        ends.append(list(one.parameters()))
    assert all(equal(ends[0], found) for found in ends[1:])


def test_after_an_error_in_a_hook_that_also_must_not_write_to_another_parameter_the_next_pass_is_exact(trained):
    model = trained.rematerialization.model

    @torch.no_grad()
    def write(_: torch.Tensor) -> None:
        model.get_parameter("0.weight").mul_(2.0)
        model.get_parameter("2.weight").mul_(2.0)

    handle = model.get_parameter("14.weight").register_post_accumulate_grad_hook(write)
    with pytest.raises(ExecutionError, match=r"parameter '2\.weight' was written to in the backward pass, before its"):
        trained(WIDE).sum().backward()
    handle.remove()

    def fail(_: torch.Tensor) -> None:
        raise RuntimeError("the hook")

    handle = model.get_parameter("8.bias").register_post_accumulate_grad_hook(fail)
    output = trained(WIDE)
    with pytest.raises(RuntimeError, match="the hook"):
        output.sum().backward()
    handle.remove()
    with pytest.raises(ExecutionError, match="ran already"):
        output.sum().backward()
    model.zero_grad()
    assert differing(*(gradients(one, (WIDE,), mean_square) for one in (trained, model))) == []


def test_gradients_of_the_last_layer_alone_end_the_plan_early_and_those_of_gradients_are_refused(trained):
    model = trained.rematerialization.model
    last = [model.get_parameter("14.weight"), model.get_parameter("14.bias")]
    counts, found = [], []
    for wanted in (last, list(model.parameters())):
        loss = trained(WIDE).square().mean()
        with Operators() as calls:
            found.append(torch.autograd.grad(loss, wanted))
        counts.append(len(calls.ran))
    assert counts[0] < 0.4 * counts[1]
    expected = torch.autograd.grad(model(WIDE).square().mean(), list(model.parameters()))
    assert equal(found[1], expected)
    assert equal(found[0], expected[-2:])
    with pytest.raises(ExecutionError, match="create_graph=True asks for gradients of gradients"):
        torch.autograd.grad(trained(WIDE).square().mean(), list(trained.parameters()), create_graph=True)


@pytest.mark.parametrize(("used", "make"), [("first", recomputing), ("features", keeping)])
def test_with_an_unused_output_gradients_come_one_by_one_too(make, used):
    torch.manual_seed(0)
    trained: Any = make(heads.Heads(), heads.X)
    assert len(trained.rematerialization.plans[0].code.handovers) > 5
    seen = shares(trained, heads.X, lambda output: output[used].sum())
    assert len(set(seen.values())) > 3
    model = trained.rematerialization.model
    assert differing(*(gradients(one, (heads.X,), lambda output: output[used].sum()) for one in (trained, model))) == []
