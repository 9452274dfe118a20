"""Losses of some outputs, of several calls, or with strided gradients: they leave what plain PyTorch leaves."""

import collections
import copy
import dataclasses
import itertools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import remat_explorer as rx
from remat_explorer.capture.inputs_and_outputs import tensors_in
from remat_explorer.capture.memory_meter import CpuMeter
from tests.runtime.heads import NAMES, Heads, X, differing, gradients, keeping, recomputing
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import checkpoint_all, solution_of
from tests.runtime.step_outcomes import planned


@pytest.fixture(scope="module", params=[keeping, recomputing], ids=["keeping", "recomputing"])
def heads(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    return request.param(Heads(), X)


def test_gradients_are_those_of_plain_pytorch_and_none_where_it_leaves_none(heads):
    for used in (subset for size in (1, 2, 3) for subset in itertools.combinations(NAMES, size)):

        def loss(output: Any, used: tuple[str, ...] = used) -> torch.Tensor:
            return torch.stack([output[name].square().mean() for name in used]).sum()

        plain = gradients(heads.rematerialization.model, (X,), loss)
        assert (None in plain.values()) is not ({"first", "second", "third"} <= set(used))
        assert differing(gradients(heads, (X,), loss), plain) == [], used


def test_heads_used_in_turn_end_with_the_weights_of_plain_training(heads):
    """AdamW decays a weight whose gradient is zero, and moves it by its momentum; where it is None, it does neither."""
    ends = []
    for one in (copy.deepcopy(heads.rematerialization.model), copy.deepcopy(heads)):
        optimizer = torch.optim.AdamW(one.parameters(), lr=0.01, weight_decay=0.1)
        torch.manual_seed(3)
        for step in range(7):
            optimizer.zero_grad()
            one(X)[NAMES[step % 3]].square().mean().backward()
            optimizer.step()
        ends.append(one.state_dict())
    assert all(torch.equal(content, ends[1][name]) for name, content in ends[0].items())


@pytest.mark.parametrize(
    ("forward", "data"),
    [
        (lambda s, x: ((s.w * x).sum(), (s.w * x * 0).sqrt()), [1.0, 2.0, 3.0]),  # zero times infinity is no number
        (lambda s, x: ((s.w * x).sum(), (s.w * 2).sum()), [-0.0, 0.0, -0.0]),  # minus zero and zero are zero
    ],
)
def test_what_an_unused_head_would_compute_does_not_reach_the_others(forward, data):
    model, x = Made(forward, w=nn.Parameter(torch.ones(3))), torch.tensor(data)
    found = gradients(keeping(model, x), (x,), lambda output: output[0])
    assert differing(found, gradients(model, (x,), lambda output: output[0])) == []
    assert found["w"] is not None
    assert found["w"].isfinite().all()


def test_gradients_in_the_memory_of_one_another_are_not_given_out():
    """The gradient of a sum is one tensor for all of its terms, and the caller's own where nothing is added to it."""
    parts = {name: nn.Parameter(torch.randn(4, 8)) for name in ("a", "b")}
    model, x, gradient = Made(lambda s, x: (x + s.a + s.b, (s.a * 2 + s.b).sin()), **parts), *torch.randn(2, 4, 8)
    mine: Any = keeping(model, x)
    mine(x)[0].backward(gradient)
    assert len({tensor.data_ptr() for tensor in (gradient, mine.a.grad, mine.b.grad)}) == 3
    assert torch.equal(mine.a.grad, gradient)


LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda y: y.sum(),
    "mean": lambda y: y.mean(),
    "sum of rows": lambda y: y.sum(-1).sin().sum(),
    "transposed": lambda y: (y.transpose(0, -1) @ torch.linspace(-1, 1, 3 * y.shape[0]).view(-1, 3)).sin().sum(),
    "permuted": lambda y: y.permute(*reversed(range(y.dim()))).contiguous().sin().sum(),
    "a slice": lambda y: y[:, :3].sum(),
    "every other": lambda y: (y[..., ::2] * 2).sum(),
    "used twice": lambda y: y.sum() + y.sin().sum(),
}


def attention(self: Any, x: torch.Tensor) -> torch.Tensor:
    parts = self.into(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(*parts)
    return x + self.out(mixed.transpose(1, 2).reshape(2, 6, 16))


def convolutions() -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.MaxPool2d(2))


ROWS, PICTURES, WORDS = torch.randn(32, 16), torch.randn(2, 3, 12, 12), torch.randn(2, 6, 16)
CHANNELS_LAST: Any = {"memory_format": torch.channels_last}
CASES: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "batch norm": lambda: (nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)), ROWS),
    "batch norm in evaluation": lambda: (nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16).eval()), ROWS),
    "layer norm": lambda: (nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8)), WORDS),
    "group norm": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), PICTURES),
    "channels last": lambda: (convolutions().to(**CHANNELS_LAST), PICTURES.to(**CHANNELS_LAST)),
    "attention": lambda: (Made(attention, into=nn.Linear(16, 48), out=nn.Linear(16, 16)), WORDS),
    "transposed convolution": lambda: (Made(lambda s, x: s.c(x.mT).mT, c=nn.Conv1d(16, 6, 3)), WORDS),
    "in place": lambda: (nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True), nn.Dropout(0.2)), ROWS),
}


def assert_exact(
    mine: Any, x: torch.Tensor, choose: Callable[[Any], tuple[torch.Tensor, ...]] = lambda y: (y,)
) -> None:
    """Each loss, for the output or for those that are chosen, has plain PyTorch's gradients to the last bit."""
    for name, one in LOSSES.items():

        def loss(output: Any, one: Any = one) -> torch.Tensor:
            return torch.stack([one(y) for y in choose(output)]).sum()

        assert differing(gradients(mine, (x,), loss), gradients(mine.rematerialization.model, (x,), loss)) == [], name


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_plain_pytorch_to_the_last_bit(case):
    torch.manual_seed(0)
    model, x = CASES[case]()
    assert_exact(keeping(model, x), x)


def test_they_are_where_values_and_gradients_are_computed_again():
    torch.manual_seed(0)
    mine = recomputing(Heads(), X)
    assert_exact(mine, X, lambda output: (output["first"], output["features"]))
    assert_exact(mine, X, lambda output: (output["third"],))


def test_other_implementations_get_the_strides_that_they_were_made_for():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5))
    graph = rx.capture(model, (PICTURES,), implementations="exact")
    solution = rx.solve(graph, "80%", strategy="monet", time_limit=5)
    assert solution.plan is not None
    assert any(getattr(statement, "implementation", 1) > 1 for statement in solution.plan.statements)
    solution = dataclasses.replace(solution, budget=2**62)  # workspace is not measured here
    assert_exact(rx.rematerialize(model, (PICTURES,), solution=solution), PICTURES)


def test_the_callers_gradient_is_never_written_to():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(inplace=True))
    mine: Any = keeping(model, ROWS)
    for given in (torch.randn(16, 32).t(), torch.randn(32, 1).expand(32, 16), torch.randn(32, 32)[:, ::2]):
        before = given.clone()
        mine(ROWS).backward(given)
        assert torch.equal(given, before)


def test_with_an_unused_output_or_an_expanded_gradient_a_step_takes_no_more_memory_than_predicted():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64)), torch.randn(256, 64)
    graph = rx.profile(rx.capture(net, (x,)), net, (x,), device="cpu", repeats=1)
    whole: Any = rx.rematerialize(net, (x,), solution=solution_of(checkpoint_all(graph)))
    parts: Any = rx.rematerialize(Heads(), (torch.randn(512, 16),), budget="smallest")
    for mine, data, name in ((whole, x, None), *((parts, torch.randn(512, 16), name) for name in NAMES)):
        for _ in range(2):
            mine.zero_grad()
            with CpuMeter() as meter, meter.section():
                (mine(data) if name is None else mine(data)[name]).sum().backward()
        solution = mine.rematerialization.solution
        assert solution.graph.resident_bytes + meter.readings[0].highest <= solution.peak


class Named(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Fields:
    first: Any
    second: Any = None


def in_containers(self: Any, x: torch.Tensor) -> list[Any]:
    a, b = self.a(x), self.b(x)
    gaps = (None, a, [None, {"b": b, "c": None}])
    several = [a, a, a[:2], collections.deque([a, b]), collections.defaultdict(list, a=[a], b=[b])]
    return [Fields(a, {"b": (b, 3, "text")}), Named(a, b), gaps, several, torch.return_types.topk((a, b.argsort()))]


def test_outputs_lie_in_the_containers_that_the_model_returns():
    def loss(output: Any) -> torch.Tensor:
        return torch.stack([t.square().mean() for t in tensors_in(output) if t.requires_grad]).sum()

    model = Made(in_containers, a=nn.Linear(16, 4), b=nn.Linear(16, 4))
    mine: Any = keeping(model, X)
    plain, found = model(X), mine(X)
    assert pytree.tree_structure(found) == pytree.tree_structure(plain)  # in which a dataclass is a leaf
    assert (type(found[0]), found[0].second["b"][1:]) == (Fields, (3, "text"))
    assert all(map(torch.equal, tensors_in(found), tensors_in(plain)))
    assert differing(gradients(mine, (X,), loss), gradients(model, (X,), loss)) == []


def test_a_second_loss_is_not_left_out_without_a_word():
    def both(output: dict[str, torch.Tensor]) -> torch.Tensor:
        return output["loss"] + output["other"]

    parts = {"a": nn.Linear(16, 4), "b": nn.Linear(16, 4)}
    model = Made(lambda s, x: {"loss": s.a(x).mean(), "other": s.b(x).square().mean()}, **parts)
    with pytest.warns(UserWarning, match="1 more that could be a loss, .* None in a training step; loss=lambda"):
        assert planned(model, X)(X)["other"] is None
    mine = planned(model, X, loss=both)
    assert differing(gradients(mine, (X,), lambda loss: loss), gradients(model, (X,), both)) == []


def once() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def reused() -> nn.Module:
    """A layer that one pass uses three times."""
    layer = nn.Linear(32, 32)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(32, 8))


low: Any = partial(torch.autocast, "cpu", torch.bfloat16)
Pass = Callable[[torch.Tensor], torch.Tensor]
Inputs = tuple[torch.Tensor, torch.Tensor]


def summed(*outputs: torch.Tensor) -> torch.Tensor:
    return torch.stack([output.float().square().sum() for output in outputs]).sum()


def together(run: Pass, inputs: Inputs, around: Callable[[], Any] = nullcontext) -> None:
    with around():
        outputs = [run(x) for x in inputs]
    summed(*outputs).backward()


def each_in_autocast(run: Pass, inputs: Inputs) -> None:
    def lowered(x: torch.Tensor) -> torch.Tensor:
        with low():
            return run(x)

    together(lowered, inputs)


def backward_for_each(run: Pass, inputs: Inputs) -> None:
    for output in [run(x) for x in inputs]:
        summed(output).backward()


def one_after_the_other(run: Pass, inputs: Inputs) -> None:
    for x in inputs:
        with low():
            output = run(x)
        summed(output).backward()


ADVICE = "plain PyTorch adds the gradients of a weight in bfloat16", "one pass uses '0.weight' several times"


@pytest.mark.parametrize(
    ("kind", "steps", "autocast", "words"),
    [
        (once, together, False, None),
        (once, one_after_the_other, True, None),
        (reused, one_after_the_other, True, None),
        (once, partial(together, around=low), True, ADVICE[0]),
        (reused, together, False, ADVICE[1]),
        # what is advised
        (reused, each_in_autocast, True, ""),
        (reused, backward_for_each, False, ""),
        (once, partial(together, around=partial(low, cache_enabled=False)), False, ""),
    ],
)
def test_several_calls_have_the_gradients_of_plain_pytorch_or_it_is_said_once_what_would(kind, steps, autocast, words):
    torch.manual_seed(0)
    model, inputs = kind(), (torch.randn(16, 32), torch.randn(16, 32))
    steps(model, inputs)
    expected = [parameter.grad for parameter in model.parameters()]
    with low(enabled=autocast):
        planned = rx.rematerialize(model, inputs[:1], budget="100%")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            model.zero_grad()
            steps(planned, inputs)
    pairs = zip(expected, [parameter.grad for parameter in model.parameters()], strict=True)
    assert all(torch.equal(*pair) for pair in pairs) is (words not in ADVICE)
    assert all(warning.filename == __file__ for warning in caught)
    if words is None:
        assert not caught
    elif words:
        (warning,) = caught
        assert words in str(warning.message)


def test_a_copy_does_not_wait_for_the_passes_of_the_model():
    torch.manual_seed(0)
    planned = rx.rematerialize(reused(), (torch.randn(16, 32),), budget="100%")
    output = planned(torch.randn(16, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy.deepcopy(planned)(torch.randn(16, 32)).sum().backward()
    output.sum().backward()
