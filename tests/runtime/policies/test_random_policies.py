"""Policies of modules that draw random numbers, change their state, or run other operators than were traced."""

import copy
import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, operation
from remat_explorer.graph.operator_words import is_random
from remat_explorer.runtime.checkpoint_policy import Policy
from remat_explorer.runtime.module_regions import calls_of, module_regions, region_of
from tests.runtime.kinds_of_models import Made
from tests.runtime.policies.test_policy import with_policy
from tests.runtime.step_outcomes import assert_same, step_of
from tests.thorough import thorough_but

X = torch.randn(4, 16, 16, generator=torch.Generator().manual_seed(0))


def function(one: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    return Made(lambda self, x: one(x))


class Block(nn.Module):
    """Two linear layers with something between them."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.first, self.between, self.act, self.last = nn.Linear(16, 32), between, nn.GELU(), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(self.act(self.between(self.first(x))))


def attention(x: torch.Tensor) -> torch.Tensor:
    q = x.unflatten(-1, (4, -1)).transpose(1, 2)
    return functional.scaled_dot_product_attention(q, q, q, dropout_p=0.3).transpose(1, 2).flatten(-2)


RANDOM: dict[str, Callable[[], nn.Module]] = {
    "rrelu in place": lambda: nn.RReLU(inplace=True),
    "dropout": lambda: nn.Dropout(0.3),
    "attention": lambda: function(attention),
    "randperm": lambda: function(lambda x: x[..., torch.randperm(x.shape[-1])]),
    "gamma": lambda: function(lambda x: x * torch.distributions.Gamma(x.exp(), 1.0, validate_args=False).rsample()),
    # further ones
    "alpha dropout": lambda: nn.AlphaDropout(0.3),
    "dropout1d": lambda: nn.Dropout1d(0.3, inplace=True),
    "normal of a size": lambda: function(lambda x: x * torch.normal(1.0, 0.1, x.shape)),
    "bernoulli": lambda: function(lambda x: x * torch.bernoulli(torch.sigmoid(x))),
    "uniform": lambda: function(lambda x: x * torch.empty_like(x).uniform_()),
    "multinomial": lambda: function(lambda x: x * torch.multinomial(x.softmax(-1)[0], 32, replacement=True)),
    "dirichlet": lambda: function(lambda x: torch.distributions.Dirichlet(x.exp(), validate_args=False).rsample()),
}


def model_of(between: Callable[[], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), Block(between()), Block(between()), nn.Linear(16, 1))


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def captured(model: nn.Module) -> Graph:
    return rx.capture(model, (X,), loss=loss_of, contract=False)


def with_checkpoints(graph: Graph, every: int, paths: tuple[str, ...] = ("1", "2")) -> Policy:
    """Around each block, of which every n-th operation that can be is saved, or none."""
    known = {module.module: module for module in module_regions(graph)}
    blocks = [known[path] for path in paths if path in known]
    saved = [set(sorted(block.savable)[::every]) if every else set[int]() for block in blocks]
    return Policy(graph, 2**40, tuple((b.module, region_of(graph, b, s)) for b, s in zip(blocks, saved, strict=True)))


@pytest.mark.parametrize("kind", thorough_but(RANDOM, *list(RANDOM)[:5]))
def test_a_region_with_any_random_operator_has_the_gradients_of_plain_pytorch(kind, tmp_path):
    model = model_of(RANDOM[kind])
    graph = captured(model)
    for every in (0, 1):
        policy = with_checkpoints(graph, every)
        assert [path for path, _ in policy.modules] == ["1", "2"]
        assert all(entry["random"] for entry in policy.to_document()["regions"])
        assert_same(step_of(with_policy(model, policy, tmp_path), X), step_of(model, X))
    assert not torch.equal(model(X), model(X))


def test_every_operator_that_pytorch_marks_as_random_is_so_by_its_name_too():
    """By which graphs from files are judged; but for attention and recurrent layers, which may draw nothing."""
    marked = set[str]()
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace == "aten" and hasattr(torch.ops.aten, packet):
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if operator is not None and torch.Tag.nondeterministic_seeded in operator.tags:
                marked.add(packet.removesuffix("_"))
    others = ("attention", "sdp", "rnn", "lstm", "gru", "_cudnn_init", "_fill_mem", "_nested")
    drawn = {name for name in marked if not any(word in name for word in others)}
    assert {"rrelu_with_noise", "bernoulli", "native_dropout", "normal", "multinomial"} <= drawn
    assert {name for name in drawn if not is_random(operation(name, "forward", [], [0], 1.0))} == set()
    quiet = ("native_dropout_backward", "rrelu_with_noise_backward", "layer_norm", "randomized", "normalize")
    assert not any(is_random(operation(name, "forward", [], [0], 1.0)) for name in quiet)


class Counting(nn.Module):
    """Keeps a moving mean, as modules with a state do."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("mean", torch.zeros(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        self.mean = self.mean.copy_(mean) if self.in_place else mean
        return x.sin() - self.mean


STATE = {
    "in place": lambda: Counting(True),
    "anew": lambda: Counting(False),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(32, 32)),
    "instance norm": lambda: nn.InstanceNorm1d(16, track_running_stats=True),
}


@pytest.mark.parametrize("kind", STATE)
def test_a_module_that_changes_a_buffer_is_no_region(kind):
    """Its second run would change the buffer again."""
    regions = {module.module for module in module_regions(captured(model_of(STATE[kind])))}
    assert not {"1", "2", "1.between", "2.between"} & regions


def test_the_printed_loader_refuses_a_module_that_changes_a_buffer(tmp_path):
    policy = with_checkpoints(captured(model_of(nn.Identity)), 0)
    assert {path for path, _ in policy.modules} == {"1", "2"}
    other = with_policy(model_of(STATE["in place"]), policy, tmp_path)
    with pytest.raises(ValueError, match=r"module '1' changes its buffer 'between\.mean' when it runs"):
        other(X)


def savable(graph: Graph) -> set[str]:
    """The operators that a policy for the first block may save."""
    (block,) = (module for module in module_regions(graph) if module.module == "1")
    return {calls_of(graph, k)[0] for k in block.savable}


def test_an_operator_that_runs_in_place_or_is_written_over_is_not_saved():
    names = savable(captured(model_of(lambda: function(lambda x: x.sin().mul_(2.0).cos()))))
    assert "aten.cos.default" in names
    assert not {"aten.sin.default", "aten.mul.Tensor"} & names


@pytest.mark.parametrize("kept", [True, False])
def test_a_weight_that_regions_share_is_cast_as_autocast_does(kept, tmp_path):
    torch.manual_seed(0)
    part = nn.Linear(32, 32)
    model = nn.Sequential(nn.Linear(16, 16), *(Block(part) for _ in range(3)), nn.Linear(16, 1))
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=kept):
        graph = rx.capture(model, (X,), loss=lambda y: loss_of(y.float()), contract=False)
    policy = with_checkpoints(graph, 2, ("2", "3"))  # in the first one is the cast that the others read
    assert any(region.saved for _, region in policy.modules)
    listed = [call for entry in policy.to_document()["regions"] for call in entry["operators"]]
    assert "aten._to_copy.default" not in listed
    assert listed.count("aten.addmm.default") == 6  # the layer that is shared belongs to each of its callers
    low = partial(torch.autocast, "cpu", torch.bfloat16, cache_enabled=kept)
    assert_same(step_of(with_policy(model, policy, tmp_path), X, around=low), step_of(model, X, around=low))


def test_a_policy_that_differs_from_plain_pytorch_is_not_written(tmp_path):
    model = model_of(nn.RReLU)
    policy, file = with_checkpoints(captured(model), 0), tmp_path / "policy.json"

    class Believed(Policy):
        def to_document(self) -> dict[str, Any]:
            document = super().to_document()
            return document | {"regions": [entry | {"operators": ["aten.mm.default"]} for entry in document["regions"]]}

    with pytest.raises(SolverError, match=r"not written, since a step with it fails: .*make a policy for this model"):
        Believed(policy.graph, policy.budget, policy.modules).save(file)
    runs = [0]

    def forward(x: torch.Tensor) -> torch.Tensor:
        runs[0] += 1
        return x * runs[0]

    model[0].register_forward_hook(lambda *_: runs.__setitem__(0, 0))  # in each step anew
    vars(model[1].between)["forward"] = forward  # otherwise in its second run, which no operator tells
    with pytest.raises(SolverError, match=r"differs from plain PyTorch:\ngradients DIFFER"):
        policy.save(file)
    assert not file.exists()


def test_a_policy_is_tried_on_the_model_as_it_was_captured_and_leaves_it_as_it_is(tmp_path):
    model = model_of(lambda: nn.Dropout(0.3))
    solution = rx.solve(captured(model), "130%", time_limit=2)
    model.eval()
    model[0].requires_grad_(False)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    rx.save_policy(solution, tmp_path / "policy.json", time_limit=0.5)
    assert not model.training
    assert not model[0].weight.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert "forward" not in vars(model[1])
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, before.values(), model.state_dict().values()))


def test_a_step_that_takes_more_than_the_budget_is_said(tmp_path):
    policy = with_checkpoints(captured(model_of(nn.Identity)), 0)
    with warnings.catch_warnings(action="error"):
        dataclasses.replace(policy, budget=policy.peak + 2**16).save(tmp_path / "policy.json")
    with pytest.warns(
        RuntimeWarning, match=r"a step with the policy took .* here, more than the budget of .*Take a sm"
    ):
        dataclasses.replace(policy, budget=policy.peak // 2).save(tmp_path / "policy.json")


def test_what_runs_only_with_a_cache_that_a_policy_switches_off_is_not_saved(tmp_path):
    """Language models put their inputs into a cache, if their settings say so."""
    config = SimpleNamespace(use_cache=True)

    def kept(self: Any, x: torch.Tensor) -> torch.Tensor:
        return (torch.cat([x.cos(), x.cos()[:0]]) if self.config.use_cache else x.cos()).sin()

    model: Any = model_of(lambda: Made(kept, config=config))
    model.config = config
    graph = captured(model)
    assert "aten.sin.default" in savable(graph)
    assert not {"aten.cat.default", "aten.cos.default"} & savable(graph)
    changed: Any = with_policy(model, with_checkpoints(graph, 1, ("1",)), tmp_path)
    assert model.config.use_cache
    assert not changed.config.use_cache
    assert_same(step_of(changed, X), step_of(model, X))


def test_a_model_without_content_is_said_not_to_have_been_tried(tmp_path):
    model = model_of(lambda: nn.AlphaDropout(0.3)).to("meta")
    graph = rx.capture(model, (X.to("meta"),), loss=loss_of, contract=False)
    real = model_of(lambda: nn.AlphaDropout(0.3))
    with pytest.warns(RuntimeWarning, match="not tried on the model before it was written: .* shapes, but no content"):
        changed = with_policy(real, with_checkpoints(graph, 1), tmp_path)
    assert_same(step_of(changed, X), step_of(real, X))
