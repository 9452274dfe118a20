"""Where a step uses some of the outputs, the others have no part in it: None stays None, and no zero is added."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
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
from tests.runtime.kinds_of_models import Made, linear

SUBSETS = [subset for size in (1, 2, 3) for subset in itertools.combinations(NAMES, size)]


@pytest.fixture(scope="module", params=[keeping, recomputing], ids=["keeping", "recomputing"])
def heads(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    return request.param(Heads(), X)


@pytest.mark.parametrize("used", SUBSETS, ids="-".join)
def test_gradients_are_those_of_plain_pytorch_and_none_where_it_leaves_none(used, heads):
    def loss(output: Any) -> torch.Tensor:
        return torch.stack([output[name].square().mean() for name in used]).sum()

    plain = gradients(heads.rematerialization.model, (X,), loss)
    assert (None in plain.values()) is not ({"first", "second", "third"} <= set(used))
    assert differing(gradients(heads, (X,), loss), plain) == []


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


def test_gradients_of_two_heads_add_up_over_two_forward_passes(heads):
    found = []
    for one in (copy.deepcopy(heads.rematerialization.model), copy.deepcopy(heads)):
        torch.manual_seed(3)
        for name in ("first", "second"):
            one(X)[name].square().mean().backward()
        found.append({name: p.grad for name, p in one.named_parameters()})
    assert found[0]["third.1.weight"] is None
    assert differing(found[1], found[0]) == []


def test_what_an_unused_head_would_compute_does_not_reach_the_others():
    """Its derivative is infinite here, and zero times infinity is no number."""
    model = Made(lambda s, x: (s.a(x), (s.a(x) * 0).sqrt()), a=linear())
    x = torch.randn(4, 8)
    found = gradients(keeping(model, x), (x,), lambda output: output[0].sum())
    assert differing(found, gradients(model, (x,), lambda output: output[0].sum())) == []
    assert found["a.weight"] is not None
    assert found["a.weight"].isfinite().all()


def test_an_unused_sum_does_not_turn_minus_zero_into_zero():
    model = Made(lambda s, x: ((s.w * x).sum(), (s.w * 2).sum()), w=nn.Parameter(torch.ones(3)))
    zeros = torch.tensor([-0.0, 0.0, -0.0])
    mine: Any = keeping(model, zeros)
    plain = gradients(model, (zeros,), lambda output: output[0])
    assert differing(gradients(mine, (zeros,), lambda output: output[0]), plain) == []


def test_of_a_transformer_hidden_states_or_logits_may_be_used_alone():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, n_positions=8, vocab_size=50, output_hidden_states=True, use_cache=False
    )
    model = transformers.GPT2LMHeadModel(config).train()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())  # untied: None for hidden states alone
    words = torch.randint(0, 50, (4, 8))
    mine = keeping(model, words)
    for loss in (
        lambda output: output.hidden_states[1].square().mean(),
        lambda output: functional.cross_entropy(output.logits.flatten(0, 1), words.flatten()),
    ):
        plain = gradients(model, (words,), loss)
        assert differing(gradients(mine, (words,), loss), plain) == []
    assert gradients(mine, (words,), lambda output: output.hidden_states[1].sum())["lm_head.weight"] is None


def test_gradients_in_the_memory_of_one_another_are_not_given_out():
    """The gradient of a sum is one tensor for all of its terms, and the caller's own where nothing is added to it."""
    model = Made(
        lambda s, x: (x + s.a + s.b, (s.a * 2 + s.b).sin()),
        a=nn.Parameter(torch.randn(4, 8)),
        b=nn.Parameter(torch.randn(4, 8)),
    )
    x = torch.randn(4, 8)
    mine: Any = keeping(model, x)
    gradient = torch.randn(4, 8)
    mine(x)[0].backward(gradient)
    memory = {tensor.data_ptr() for tensor in (gradient, mine.a.grad, mine.b.grad)}
    assert len(memory) == 3
    assert torch.equal(mine.a.grad, gradient)


def test_with_an_unused_output_a_step_needs_no_more_memory_than_predicted():
    torch.manual_seed(0)
    model = Heads()
    args = (torch.randn(512, 16),)
    graph = rx.profile(rx.capture(model, args), model, args, device="cpu", repeats=1)
    smallest = rx.minimum_budget(graph)
    solution = rx.solve(graph, smallest.known_feasible, time_limit=5)
    assert solution.peak is not None
    mine: Any = rx.rematerialize(model, args, solution=solution)
    for used in NAMES:
        given = torch.randn_like(mine(*args)[used])
        model.zero_grad()
        with CpuMeter() as meter, meter.section():
            mine(*args)[used].backward(given)
        assert graph.resident_bytes + meter.readings[0].highest <= solution.peak


class Named(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Fields:
    first: Any
    second: Any = None


CONTAINERS: dict[str, Any] = {
    "a named tuple": lambda a, b: Named(a, b),
    "a frozen dataclass": lambda a, b: Fields(a, {"b": (b, 3, "text")}),
    "gaps": lambda a, b: (None, a, [None, {"b": b, "c": None}]),
    "a deque": lambda a, b: collections.deque([a, b]),
    "a dictionary with a default": lambda a, b: collections.defaultdict(list, a=[a], b=[b]),
    "one tensor twice, and a part of it": lambda a, b: [a, a, a[:2], b],
    "results of an operator": lambda a, b: torch.return_types.topk((a, b.argsort())),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_outputs_lie_in_the_containers_that_the_model_returns(name):
    make = CONTAINERS[name]
    model = Made(lambda s, x: make(s.a(x), s.b(x)), a=nn.Linear(16, 4), b=nn.Linear(16, 4))
    mine: Any = keeping(model, X)
    (plain, nesting), (found, found_nesting) = (pytree.tree_flatten(one(X)) for one in (model, mine))
    assert (nesting, type(mine(X))) == (found_nesting, type(model(X)))
    if name != "a frozen dataclass":  # which is a leaf there
        pairs = list(zip(plain, found, strict=True))
        assert all(torch.equal(*pair) if isinstance(pair[0], torch.Tensor) else pair[0] == pair[1] for pair in pairs)

    def loss(output: Any) -> torch.Tensor:
        return torch.stack([t.square().mean() for t in tensors_in(output) if t.requires_grad]).sum()

    assert differing(gradients(mine, (X,), loss), gradients(model, (X,), loss)) == []


def test_a_second_loss_is_not_left_out_without_a_word():
    def both(output: dict[str, torch.Tensor]) -> torch.Tensor:
        return output["loss"] + output["other"]

    def planned(**options: Any) -> Any:
        return rx.rematerialize(model, (X,), budget="100%", strategy="checkpoint-all", **options)

    parts = {"a": nn.Linear(16, 4), "b": nn.Linear(16, 4)}
    model = Made(lambda s, x: {"loss": s.a(x).mean(), "other": s.b(x).square().mean()}, **parts)
    with pytest.warns(UserWarning, match="1 more that could be a loss, .* None in a training step; loss=lambda"):
        assert planned()(X)["other"] is None
    assert differing(gradients(planned(loss=both), (X,), lambda loss: loss), gradients(model, (X,), both)) == []
