"""Policies of modules that draw random numbers, change their state, or run other operators than were traced."""

from __future__ import annotations

import copy
import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path
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
from remat_explorer.runtime.peers import policy_loader

X = torch.randn(4, 16, 16, generator=torch.Generator().manual_seed(0))


class Function(nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


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
    "rrelu": nn.RReLU,
    "rrelu in place": lambda: nn.RReLU(inplace=True),
    "dropout": lambda: nn.Dropout(0.3),
    "dropout in place": lambda: nn.Dropout(0.3, inplace=True),
    "dropout1d": lambda: nn.Dropout1d(0.3),
    "alpha dropout": lambda: nn.AlphaDropout(0.3),
    "feature alpha dropout": lambda: nn.FeatureAlphaDropout(0.3),
    "attention": lambda: Function(attention),
    "gumbel": lambda: Function(functional.gumbel_softmax),
    "normal": lambda: Function(lambda x: torch.normal(x, 0.1)),
    "normal of a size": lambda: Function(lambda x: x * torch.normal(1.0, 0.1, x.shape)),
    "randn_like": lambda: Function(lambda x: x + torch.randn_like(x)),
    "uniform": lambda: Function(lambda x: x * torch.empty_like(x).uniform_()),
    "exponential": lambda: Function(lambda x: x * torch.empty_like(x).exponential_()),
    "geometric": lambda: Function(lambda x: x * torch.empty_like(x).geometric_(0.5)),
    "cauchy": lambda: Function(lambda x: x + 1e-3 * torch.empty_like(x).cauchy_()),
    "log normal": lambda: Function(lambda x: x * torch.empty_like(x).log_normal_()),
    "random": lambda: Function(lambda x: x * torch.empty_like(x).random_(3)),
    "poisson": lambda: Function(lambda x: x * torch.poisson(torch.ones_like(x))),
    "bernoulli": lambda: Function(lambda x: x * torch.bernoulli(torch.sigmoid(x))),
    "multinomial": lambda: Function(
        lambda x: x * torch.multinomial(x.flatten(0, 1).softmax(-1), x.shape[-1], replacement=True).view(x.shape)
    ),
    "randperm": lambda: Function(lambda x: x[..., torch.randperm(x.shape[-1])]),
    "randint": lambda: Function(lambda x: x * torch.randint(0, 3, x.shape)),
    "gamma": lambda: Function(lambda x: x * torch.distributions.Gamma(x.exp(), 1.0, validate_args=False).rsample()),
    "dirichlet": lambda: Function(lambda x: torch.distributions.Dirichlet(x.exp(), validate_args=False).rsample()),
}


def model_of(between: Callable[[], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), Block(between()), Block(between()), nn.Linear(16, 1))


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def captured(model: nn.Module) -> Graph:
    return rx.capture(model, (X,), loss=loss_of, contract=False)


def with_checkpoints(graph: Graph, every: int) -> Policy:
    """Around each block, of which every n-th operation that can be is saved, or none."""
    known = {module.module: module for module in module_regions(graph)}
    blocks = [known[path] for path in ("1", "2") if path in known]
    saved = [set(sorted(block.savable)[::every]) if every else set[int]() for block in blocks]
    return Policy(graph, 2**40, tuple((b.module, region_of(graph, b, s)) for b, s in zip(blocks, saved, strict=True)))


def results(model: nn.Module, seed: int = 1) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    loss = loss_of(model(X))
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters())), torch.get_rng_state()]


@pytest.mark.parametrize("kind", RANDOM)
def test_a_region_with_any_random_operator_has_the_gradients_of_plain_pytorch(kind: str, tmp_path: Path) -> None:
    model = model_of(RANDOM[kind])
    graph = captured(model)
    for every in (0, 1):
        policy = with_checkpoints(graph, every)
        assert [path for path, _ in policy.modules] == ["1", "2"]
        assert all(entry["random"] for entry in policy.to_document()["regions"])
        changed = copy.deepcopy(model)
        policy_loader.apply_policy(changed, policy.save(tmp_path / "policy.json"))
        assert all(map(torch.equal, results(model), results(changed)))
    assert not torch.equal(results(model, 1)[0], results(model, 2)[0])


def test_every_operator_that_pytorch_marks_as_random_is_so_by_its_name_too() -> None:
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
    """Counts its calls and keeps a moving mean, as modules with a state do."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("mean", torch.zeros(32))
        self.count: int = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "in place":
            self.mean.mul_(0.9).add_(x.detach().mean((0, 1)), alpha=0.1)
        else:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        return x.sin() - self.mean


STATE = {
    "in place": lambda: Counting("in place"),
    "anew": lambda: Counting("anew"),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(32, 32)),
    "instance norm": lambda: nn.InstanceNorm1d(16, track_running_stats=True),
}


@pytest.mark.parametrize("kind", STATE)
def test_a_module_that_changes_a_buffer_is_no_region(kind: str) -> None:
    """Its second run would change the buffer again."""
    graph = captured(model_of(STATE[kind]))
    assert not {"1", "2", "1.between", "2.between"} & {module.module for module in module_regions(graph)}
    assert {"1", "2"} <= {module.module for module in module_regions(captured(model_of(nn.Identity)))}


def test_the_printed_loader_refuses_a_module_that_changes_a_buffer(tmp_path: Path) -> None:
    graph = captured(model_of(nn.Identity))
    file = with_checkpoints(graph, 0).save(tmp_path / "policy.json")
    other = model_of(STATE["in place"])
    policy_loader.apply_policy(other, file)
    with pytest.raises(ValueError, match=r"module '1' changes its buffer 'between\.mean' when it runs"):
        other(X)


def test_an_operator_that_runs_in_place_or_is_written_over_is_not_saved() -> None:
    class Over(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            y.mul_(2.0)
            return y.cos()

    graph = captured(model_of(Over))
    (block,) = (module for module in module_regions(graph) if module.module == "1")
    names = [calls_of(graph, k)[0] for k in sorted(block.savable)]
    assert "aten.cos.default" in names
    assert not {"aten.sin.default", "aten.mul.Tensor"} & set(names)


def shared(kept: bool) -> tuple[nn.Sequential, Policy]:
    torch.manual_seed(0)
    part = nn.Linear(32, 32)
    model = nn.Sequential(nn.Linear(16, 16), *(Block(part) for _ in range(3)), nn.Linear(16, 1))
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=kept):
        graph = rx.capture(model, (X,), loss=lambda y: loss_of(y.float()), contract=False)
    known = {module.module: module for module in module_regions(graph)}
    blocks = [known[path] for path in ("2", "3")]  # in the first one is the cast that the others read
    every_other = [set(sorted(block.savable)[::2]) for block in blocks]
    regions = tuple((b.module, region_of(graph, b, s)) for b, s in zip(blocks, every_other, strict=True))
    return model, Policy(graph, 2**40, regions)


@pytest.mark.parametrize("kept", [True, False])
def test_a_weight_that_regions_share_is_cast_as_autocast_does(kept: bool, tmp_path: Path) -> None:
    model, policy = shared(kept)
    assert any(region.saved for _, region in policy.modules)
    listed = [call for entry in policy.to_document()["regions"] for call in entry["operators"]]
    assert "aten._to_copy.default" not in listed
    assert listed.count("aten.addmm.default") == 6  # the layer that is shared belongs to each of its callers
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, policy.save(tmp_path / "policy.json"))
    gradients = []
    for one in (model, changed):
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=kept):
            loss = loss_of(one(X).float())
        gradients.append(torch.autograd.grad(loss, list(one.parameters())))
    assert all(map(torch.equal, *gradients))


def test_a_policy_that_differs_from_plain_pytorch_is_not_written(tmp_path: Path) -> None:
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


def test_a_policy_is_tried_on_the_model_as_it_was_captured_and_leaves_it_as_it_is(tmp_path: Path) -> None:
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


def test_a_step_that_takes_more_than_the_budget_is_said(tmp_path: Path) -> None:
    policy = with_checkpoints(captured(model_of(nn.Identity)), 0)
    with warnings.catch_warnings(action="error"):
        dataclasses.replace(policy, budget=policy.peak + 2**16).save(tmp_path / "policy.json")
    with pytest.warns(
        RuntimeWarning, match=r"a step with the policy took .* here, more than the budget of .*Take a sm"
    ):
        dataclasses.replace(policy, budget=policy.peak // 2).save(tmp_path / "policy.json")


class Keeping(nn.Module):
    """Puts its inputs into a cache, if its settings say so, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(use_cache=True)
        self.blocks = nn.Sequential(nn.Linear(16, 16), Block(Function(self.keep)), nn.Linear(16, 1))

    def keep(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.cos(), x.cos()[:0]]).sin() if self.config.use_cache else x.cos().sin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


def test_what_runs_only_with_a_cache_that_a_policy_switches_off_is_not_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Keeping()
    graph = captured(model)
    (block,) = (module for module in module_regions(graph) if module.module.endswith("1"))
    names = [calls_of(graph, k)[0] for k in block.savable]
    assert "aten.sin.default" in names
    assert not {"aten.cat.default", "aten.cos.default"} & set(names)
    policy = Policy(graph, 2**40, ((block.module, region_of(graph, block, block.savable)),))
    file = policy.save(tmp_path / "policy.json")
    assert model.config.use_cache
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, file)
    assert not changed.config.use_cache
    assert all(map(torch.equal, results(model), results(changed)))


def test_a_model_without_content_is_said_not_to_have_been_tried(tmp_path: Path) -> None:
    model = model_of(lambda: nn.AlphaDropout(0.3)).to("meta")
    graph = rx.capture(model, (X.to("meta"),), loss=loss_of, contract=False)
    policy = with_checkpoints(graph, 1)
    with pytest.warns(RuntimeWarning, match="not tried on the model before it was written: .* shapes, but no content"):
        file = policy.save(tmp_path / "policy.json")
    real = model_of(lambda: nn.AlphaDropout(0.3))
    changed = copy.deepcopy(real)
    policy_loader.apply_policy(changed, file)
    assert json.loads(file.read_text())["regions"][0]["saved"]
    assert all(map(torch.equal, results(real), results(changed)))
