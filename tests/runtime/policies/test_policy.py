"""Policies of `torch.utils.checkpoint`: what is predicted is what PyTorch does, in code that does not know us."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import remat_explorer as rx
from remat_explorer.capture.model_placement import exact_kernels, place
from remat_explorer.checker import replay
from remat_explorer.errors import SolutionError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute
from remat_explorer.runtime.autograd_order import region_plan, second_run_of
from remat_explorer.runtime.checkpoint_policy import Policy
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.module_regions import calls_of, is_savable, module_regions, region_of
from remat_explorer.runtime.peers import policy_loader
from remat_explorer.runtime.peers.peer_comparison import Autograd, PeerBench
from remat_explorer.solvers.methods.regions import Region, layers_of
from remat_explorer.solvers.solution import Solution, Status
from tests.runtime.policies.small_transformer import SmallTransformer, example

ARGS = (example(),)


@pytest.fixture(scope="module")
def model() -> SmallTransformer:
    torch.manual_seed(0)
    return SmallTransformer()


@pytest.fixture(scope="module")
def graph(model: SmallTransformer) -> Graph:
    return rx.capture(model, ARGS, contract=False)


@pytest.fixture(scope="module")
def solution(graph: Graph) -> Solution:
    everything = replay(region_plan(graph, []))[1]
    return rx.solve(graph, int(0.5 * everything), time_limit=5.0)


@pytest.fixture(scope="module")
def policy(solution: Solution) -> Policy:
    return rx.policy(solution, time_limit=2.0)


def again(policy: Policy) -> list[int]:
    """Operations that run a second time."""
    return [s.operation for s in policy.plan.statements if isinstance(s, Compute) and not s.first]


def measured(model: torch.nn.Module, graph: Graph) -> int:
    placed = place(model, ARGS, None, "cpu")
    with exact_kernels():
        training = Eager(placed, None)
        return PeerBench(placed, training, graph.resident_bytes).run(Autograd(training)).peak


def test_a_policy_takes_the_memory_that_is_predicted(
    model: SmallTransformer, graph: Graph, policy: Policy, tmp_path: Path
) -> None:
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, policy.save(tmp_path / "policy.json"))
    assert any(region.saved for _, region in policy.modules)
    assert policy.peak <= policy.budget
    assert measured(changed, graph) == pytest.approx(policy.peak, rel=0.01)
    assert measured(model, graph) == pytest.approx(replay(region_plan(graph, []))[1], rel=0.01)


def test_a_policy_costs_no_more_than_every_nth_layer_and_no_less_than_is_proven(graph: Graph, policy: Policy) -> None:
    layers = layers_of(graph)
    fitting = [
        cost
        for n in range(1, len(layers) + 1)
        for cost, peak in [replay(region_plan(graph, [Region(layer.operations) for layer in layers[::n]]))]
        if peak <= policy.budget
    ]
    assert fitting
    assert policy.cost < min(fitting)
    assert policy.lower_bound is not None
    assert policy.cost >= policy.lower_bound


def test_operators_that_occur_twice_are_told_apart(graph: Graph, policy: Policy) -> None:
    """Four linear layers of a block are four calls of addmm, of which some are saved."""
    assert len(again(policy)) == len(set(again(policy)))
    entries = policy.to_document()["regions"]
    twice = [entry for entry in entries if len(set(entry["operators"])) < len(entry["operators"])]
    assert twice
    assert all(set(entry["saved"]) < set(range(len(entry["operators"]))) for entry in twice)


class Calls(TorchDispatchMode):
    """Counts what runs, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


def test_gradients_are_equal_and_what_runs_again_is_what_was_predicted(
    model: SmallTransformer, graph: Graph, policy: Policy, tmp_path: Path
) -> None:
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, policy.save(tmp_path / "policy.json"))
    results, counts = [], []
    for one in (model, changed):
        with Calls() as calls:
            loss = one(*ARGS)
            results.append([loss.detach(), *torch.autograd.grad(loss, list(one.parameters()))])
        counts.append(calls.seen)
    assert all(map(torch.equal, *results))
    with torch.no_grad():
        assert torch.equal(changed(*ARGS), results[0][0])
    products = [name for name in counts[0] if "addmm" in name or "attention" in name]
    counted = {name: counts[1][name] - counts[0][name] for name in products}
    expected = [call for k in again(policy) for call in calls_of(graph, k)]
    assert sum(counted.values()) > 0
    assert counted == {name: expected.count(name) for name in products}


def changed_file(policy: Policy, path: Path, change: dict[str, Any], **whole: Any) -> Path:
    document = policy.to_document()
    document["regions"][0] |= change
    path.write_text(json.dumps(document | whole))
    return path


def test_what_does_not_fit_the_model_is_refused_in_words(
    model: SmallTransformer, graph: Graph, policy: Policy, tmp_path: Path
) -> None:
    changed, file = copy.deepcopy(model), tmp_path / "policy.json"
    with pytest.raises(ValueError, match=r"'blocks\.9', which SmallTransformer does not have"):
        policy_loader.apply_policy(changed, changed_file(policy, file, {"module": "blocks.9"}))
    with pytest.raises(ValueError, match="version 2; this program reads version 1"):
        policy_loader.apply_policy(changed, changed_file(policy, file, {}, version=2))
    with pytest.raises(ValueError, match="is no file of the format"):
        policy_loader.apply_policy(changed, changed_file(policy, file, {}, format="other"))
    with pytest.raises(SolutionError, match=r"checkpoint can be put around a module \"blocks.9\""):
        Policy.load(changed_file(policy, file, {"module": "blocks.9"}), graph)
    with pytest.raises(SolutionError, match="the cost of the file"):
        Policy.load(changed_file(policy, file, {}, cost=0.0), graph)
    with pytest.raises(SolutionError, match="no places among its operators"):
        Policy.load(changed_file(policy, file, {"saved": [99]}), graph)
    assert Policy.load(policy.save(file), graph).to_document() == policy.to_document()
    policy_loader.apply_policy(changed, file)
    with pytest.raises(ValueError, match="has a policy already"):
        policy_loader.apply_policy(changed, file)


LIST = "[" * 100_000 + "]" * 100_000
WRONG: dict[
    str, tuple[dict[str, Any], dict[str, Any], str]
] = {  # of the first region, of the document, and what is said
    "random is no truth value": ({"random": 0}, {}, "the entry 'random' of"),
    "saved before the first": ({"saved": [-1]}, {}, "what is saved of"),
    "saved behind the last": ({"saved": [99]}, {}, "what is saved of"),
    "saved twice": ({"saved": [0, 0]}, {}, "what is saved of"),
    "saved out of order": ({"saved": [1, 0]}, {}, "what is saved of"),
    "saved is a truth value": ({"saved": [True]}, {}, "what is saved of"),
    "saved is a number": ({"saved": 1}, {}, "what is saved of"),
    "operators are numbers": ({"operators": [1]}, {}, "the list of operators of"),
    "operators are a text": ({"operators": "aten.addmm.default"}, {}, "the list of operators of"),
    "constants are not listed": ({"constants": ["aten.tril.default"]}, {}, "the list of constants of"),
    "module is a number": ({"module": 3}, {}, "the module of a region"),
    "module is the model": ({"module": ""}, {}, "the module of a region"),
    "unknown key of a region": ({"more": 1}, {}, "a region has the unknown key 'more'"),
    "regions are an object": ({}, {"regions": {}}, "the list of regions is none"),
    "a region is a text": ({}, {"regions": ["blocks.0"]}, "a region is none: 'blocks.0'"),
    "a region is empty": ({}, {"regions": [{}]}, "a region lacks the key"),
    "unknown key": ({}, {"more": 1}, "the policy has the unknown key 'more'"),
    "version is a truth value": ({}, {"version": True}, "has version True"),
    "graph is a text": ({}, {"graph": "net"}, "the entry 'graph' is none"),
    "budget is a text": ({}, {"budget": "1 GiB"}, "the budget is none"),
    "budget is negative": ({}, {"budget": -1}, "the budget is none"),
    "budget is too small": ({}, {"budget": 1}, "is larger than the budget 1"),
    "cost is not finite": ({}, {"cost": float("inf")}, "the cost is none"),
    "cost is no number": ({}, {"cost": float("nan")}, "the cost is none"),
    "optimum is a text": ({}, {"optimum": "best"}, "the optimum is none"),
    "bound is negative": ({}, {"lower_bound": -1.0}, "the lower_bound is none"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_policy_file_is_a_value_error_and_changes_no_module(
    wrong: str, model: SmallTransformer, policy: Policy, tmp_path: Path
) -> None:
    of_region, of_document, said = WRONG[wrong]
    changed = copy.deepcopy(model)
    with pytest.raises(ValueError, match=re.escape(said)):
        policy_loader.apply_policy(changed, changed_file(policy, tmp_path / "policy.json", of_region, **of_document))
    assert not any("forward" in vars(module) for module in changed.modules())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a JSON file of a policy"),
        ("[]", "is no file of the format"),
        ("null", "is no file of the format"),
        (LIST, "nested too deep"),
        ('{"format": ' + LIST + "}", "nested too deep"),
        ('{"format": "remat-explorer/policy", "version": ' + "9" * 5000 + "}", "is not a JSON file of a policy"),
        ('{"format": "remat-explorer/policy", "format": "remat-explorer/policy"}', "a key stands twice"),
        ("\ufeff{}", "is not a JSON file of a policy"),
    ],
    ids=["empty", "list", "null", "nested list", "nested object", "digits", "a key twice", "mark"],
)
def test_what_is_no_json_object_of_a_policy_is_a_value_error(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(said)):
        policy_loader.apply_policy(SmallTransformer(), file)
    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ValueError, match="is not a JSON file of a policy"):
        policy_loader.apply_policy(SmallTransformer(), file)


def regions_of(policy: Policy, *paths: str) -> list[dict[str, Any]]:
    (entry, *_) = policy.to_document()["regions"]
    return [entry | {"module": path} for path in paths]


def test_a_module_that_is_named_twice_or_within_another_one_is_refused(
    model: SmallTransformer, graph: Graph, policy: Policy, tmp_path: Path
) -> None:
    """Under another name, too: the name of a model's only part may be left out of a path."""
    file = tmp_path / "policy.json"
    wrapped = torch.nn.Sequential(copy.deepcopy(model))
    for one, paths in (
        (copy.deepcopy(model), ("blocks.0", "blocks.0")),
        (copy.deepcopy(model), ("blocks.0", "blocks.0.inner")),
        (copy.deepcopy(model), ("blocks.0.inner", "blocks.0")),
        (wrapped, ("blocks.0", "0.blocks.0")),
    ):
        changed_file(policy, file, {}, regions=regions_of(policy, *paths))
        with pytest.raises(ValueError, match="is named twice, or lies within"):
            policy_loader.apply_policy(one, file)
        assert not any("forward" in vars(module) for module in one.modules())
    nested = [by_hand(graph, {path: []}).to_document()["regions"][0] for path in ("blocks.0", "blocks.0.inner")]
    with pytest.raises(
        SolutionError, match=r"the region \"blocks.0.inner\" is there twice, or lies within \"blocks.0\""
    ):
        Policy.load(changed_file(policy, file, {}, regions=nested), graph)
    with pytest.raises(SolutionError, match="is there twice"):
        Policy.load(changed_file(policy, file, {}, regions=nested[:1] * 2), graph)


def test_a_module_whose_forward_never_runs_is_refused_by_the_loader(
    model: SmallTransformer, policy: Policy, tmp_path: Path
) -> None:
    file = changed_file(policy, tmp_path / "policy.json", {}, regions=regions_of(policy, "blocks"))
    with pytest.raises(ValueError, match=r"'blocks' \(ModuleList\) never runs by itself; name its parts"):
        policy_loader.apply_policy(copy.deepcopy(model), file)
    scripted = torch.nn.Sequential(torch.jit.script(torch.nn.ReLU()), torch.nn.Linear(2, 2))
    changed_file(policy, file, {}, regions=regions_of(policy, "1", "0"))
    with pytest.raises(ValueError, match="'0' is TorchScript"):
        policy_loader.apply_policy(scripted, file)
    assert "forward" not in vars(scripted[1])


def test_a_random_operator_in_a_region_that_is_marked_as_without_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = SmallTransformer(blocks=2, dropout=0.3)
    made = by_hand(rx.capture(model, ARGS, contract=False), {"blocks.0": [], "blocks.1": []})
    assert all(entry["random"] for entry in made.to_document()["regions"])
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, changed_file(made, tmp_path / "policy.json", {"random": False}))
    with pytest.raises(
        ValueError, match=r"of the module 'blocks\.0' draws random numbers, and the policy says .* none"
    ):
        changed(*ARGS)
    with torch.no_grad():
        changed(*ARGS)
    changed.eval()
    changed(*ARGS).backward()


def test_a_random_operator_is_not_saved_and_a_generator_of_its_own_is_refused(tmp_path: Path) -> None:
    """What is drawn after an operator that did not run again would be other numbers."""

    class Noisy(torch.nn.Module):
        generator: torch.Generator | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gelu(torch.bernoulli(x.sigmoid(), generator=self.generator) + x)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Noisy(), torch.nn.Linear(8, 8))
    graph = rx.capture(model, ARGS, contract=False)
    made, file = by_hand(graph, {"1": []}), tmp_path / "policy.json"
    for generator, operators, said in (
        (None, ["aten.bernoulli.default"], "which draws random numbers: if it did not run again"),
        (torch.Generator(), [], r"draws from a torch\.Generator of its own"),
    ):
        changed = copy.deepcopy(model)
        part: Any = changed[1]
        part.generator = generator
        change = {"operators": operators, "saved": list(range(len(operators)))}
        policy_loader.apply_policy(changed, changed_file(made, file, change))
        with pytest.raises(ValueError, match=said):
            changed(*ARGS)
    with pytest.raises(SolutionError, match=r"cannot be saved|are not those of the file"):
        Policy.load(changed_file(made, file, {"operators": ["aten.bernoulli.default"], "saved": [0]}), graph)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"budget": 1}, "the budget of the file is 1 bytes, but its regions take"),
        ({"budget": "1 GiB"}, "the budget is not a number of bytes"),
        ({"budget": True}, "the budget is not a number of bytes"),
        ({"optimum": 0}, "the optimum of the file is 0, but computing everything once costs"),
        ({"optimum": -1.0}, "the optimum is not a number of at least 0"),
        ({"lower_bound": "high"}, "the lower_bound is not a number of at least 0"),
        ({"lower_bound": float("inf")}, "which is no number in JSON"),
        ({"regions": {}}, "the entry 'regions' is not a list"),
    ],
)
def test_what_a_policy_file_says_of_budget_and_bound_is_held_against_its_regions(
    claim: dict[str, Any], said: str, policy: Policy, graph: Graph, tmp_path: Path
) -> None:
    with pytest.raises(SolutionError, match=re.escape(said)):
        Policy.load(changed_file(policy, tmp_path / "policy.json", {}, **claim), graph)


def test_a_bound_above_what_the_regions_cost_is_no_bound(policy: Policy, graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    with pytest.raises(SolutionError, match=r"the lower_bound of the file is .*, but its regions cost"):
        Policy.load(changed_file(policy, file, {}, lower_bound=100 * policy.cost), graph)
    assert policy.optimum is not None
    between = (policy.optimum + policy.cost) / 2
    assert policy.optimum < between < policy.cost
    with pytest.raises(SolutionError, match=r"the lower_bound of the file is .*, but its optimum is"):
        Policy.load(changed_file(policy, file, {}, lower_bound=between), graph)


def test_other_operators_are_refused_when_a_module_first_runs(
    model: SmallTransformer, policy: Policy, tmp_path: Path
) -> None:
    changed = copy.deepcopy(model)
    part = changed.get_submodule(policy.modules[0][0])
    for name, layer in list(part.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            twice = torch.nn.Sequential(layer, torch.nn.Linear(layer.out_features, layer.out_features))
            part.set_submodule(name, twice)
    policy_loader.apply_policy(changed, policy.save(tmp_path / "policy.json"))
    with pytest.raises(ValueError, match=r"are not those of the policy: number .* make a policy for this model"):
        changed(*ARGS)


def test_a_policy_needs_a_graph_with_calls_and_a_budget_that_it_fits(solution: Solution, graph: Graph) -> None:
    with pytest.raises(SolverError, match="captured in this process"):
        rx.policy(rx.solve(rx.linear(4), 5))
    small = Solution(graph, "by hand", solution.status, 1, solution.schedule, None, 0.0)
    with pytest.raises(SolverError, match=r"the smallest one takes .*, so give [0-9]+ bytes or more"):
        rx.policy(small)


def by_hand(graph: Graph, saved: dict[str, list[int]]) -> Policy:
    """A policy with these modules, of which those operations are saved whose places are given and that can be."""
    known = {module.module: module for module in module_regions(graph)}
    regions = []
    for path, places in saved.items():
        operations = known[path].operations
        chosen = {operations[place] for place in places if is_savable(graph, operations[place])}
        regions.append((path, region_of(graph, known[path], chosen)))
    return Policy(graph, 2**40, tuple(regions))


def test_dropout_in_a_region_is_drawn_again_with_the_same_numbers_and_takes_what_is_predicted(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = SmallTransformer(blocks=2, dropout=0.3)
    graph = rx.capture(model, ARGS, contract=False)
    made = by_hand(graph, {"blocks.0": [1, 2, 8], "blocks.1": []})
    assert made.modules[0][1].saved
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, made.save(tmp_path / "policy.json"))
    gradients = []
    for one in (model, changed, copy.deepcopy(changed)):
        torch.manual_seed(1)
        gradients.append(torch.autograd.grad(one(*ARGS), list(one.parameters())))
    assert all(map(torch.equal, gradients[0], gradients[1]))
    assert all(map(torch.equal, gradients[0], gradients[2]))
    everything = by_hand(graph, {})
    assert made.peak < everything.peak
    assert measured(changed, graph) == pytest.approx(made.peak, rel=0.01)
    assert measured(model, graph) == pytest.approx(everything.peak, rel=0.01)


def test_a_region_runs_again_as_a_whole_for_its_first_node_and_stops_before_its_last_product(graph: Graph) -> None:
    """Also where all that the first node reads is saved; by hand, of the last block."""
    operations = {module.module: module for module in module_regions(graph)}["blocks.2"].operations
    names = [graph.operations[k].name.removeprefix("blocks.2").lstrip(".") for k in operations]
    linear = names.index("inner.2 linear")
    saved = frozenset({operations[names.index("inner.1 gelu")]})
    run = second_run_of(graph, Region(operations, saved))
    assert run is not None
    assert graph.operations[run.before].name == "blocks.2.inner.2 mm"
    assert run.operations == tuple(k for k in operations[:linear] if k not in saved)
    assert graph.operations[run.until].name == "blocks.2.before layer_norm_backward"


def test_a_list_of_modules_is_no_region_since_its_forward_never_runs(graph: Graph) -> None:
    paths = {module.module for module in module_regions(graph)}
    assert {"blocks.0", "blocks.0.inner"} <= paths
    assert "blocks" not in paths


def test_a_module_that_is_called_twice_is_no_region() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    other = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    graph = rx.capture(torch.nn.Sequential(layer, layer, other), (torch.ones(4, 8),), contract=False)
    assert {module.module.split(".")[0] for module in module_regions(graph)} == {"2"}


class Masked(torch.nn.Module):
    """Attention to what came before, without a kernel for it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.transpose(-1, -2)
        return (scores * torch.ones(32, 32).tril()).softmax(-1) @ x


def test_a_mask_that_a_module_makes_itself_can_be_saved_and_is_not_made_again(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Masked(), torch.nn.Linear(8, 8))
    graph = rx.capture(model, ARGS, contract=False)
    operations = {module.module: module for module in module_regions(graph)}["1"].operations
    (tril,) = (place for place, k in enumerate(operations) if "tril" in graph.operations[k].name)
    made = by_hand(graph, {"1": [tril]})
    assert made.to_document()["regions"][0]["constants"] == ["aten.tril.default"]
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, made.save(tmp_path / "policy.json"))
    with Calls() as calls:
        gradients = torch.autograd.grad(changed(*ARGS).sum(), list(changed.parameters()))
    assert (calls.seen["aten.ones.default"], calls.seen["aten.tril.default"]) == (2, 1)
    assert all(map(torch.equal, gradients, torch.autograd.grad(model(*ARGS).sum(), list(model.parameters()))))


def test_products_without_a_gradient_are_not_told_apart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    part = torch.nn.Sequential(torch.nn.Linear(8, 64).requires_grad_(False), torch.nn.Linear(64, 64), torch.nn.GELU())
    model = torch.nn.Sequential(part, torch.nn.Linear(64, 8))
    made = by_hand(rx.capture(model, ARGS, contract=False), {"0": []})
    assert made.to_document()["regions"][0]["operators"] == ["aten.addmm.default"]
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, made.save(tmp_path / "policy.json"))
    trained = [[p for p in one.parameters() if p.requires_grad] for one in (model, changed)]
    gradients = [torch.autograd.grad(one(*ARGS).sum(), own) for one, own in zip((model, changed), trained, strict=True)]
    assert all(map(torch.equal, *gradients))


def test_contracted_operations_are_refused(model: SmallTransformer) -> None:
    contracted = rx.capture(model, ARGS)
    with pytest.raises(SolverError, match="contract=False"):
        rx.policy(Solution(contracted, "by hand", Status.UNKNOWN, 2**40, None, None, 0.0))


def test_an_activation_that_all_layers_share_is_named_and_one_for_each_has_a_policy():
    class Swish(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.sigmoid(x) * torch.tanh(x)

    class Layers(nn.Module):
        def __init__(self, shared: bool) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
            one = Swish()
            self.activations = nn.ModuleList(one if shared else Swish() for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer, activation in zip(self.layers, self.activations, strict=True):
                x = activation(layer(x))
            return x.square().mean()

    def policy(shared: bool) -> Any:
        graph = rx.capture(Layers(shared), (torch.ones(512, 64),), contract=False)
        return rx.policy(rx.solve(graph, budget="90%", strategy="checkmate-approx"))

    with pytest.raises(SolverError, match=r"such as an activation that all blocks share \(make one") as caught:
        policy(shared=True)
    assert "files" not in str(caught.value)
    assert policy(shared=False).modules
