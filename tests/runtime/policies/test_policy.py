"""Policies of `torch.utils.checkpoint`: what is predicted is what PyTorch does, in code that does not know us."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer.capture.step.placement import exact_kernels, place
from remat_explorer.checker import replay
from remat_explorer.errors import SolutionError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.peers import policy_loader
from remat_explorer.runtime.peers.contenders import Autograd
from remat_explorer.runtime.peers.peer_bench import PeerBench
from remat_explorer.solution import Solution
from remat_explorer.solvers.framework_rules.autograd_order import region_plan
from remat_explorer.solvers.framework_rules.layers import layers_of
from remat_explorer.solvers.framework_rules.module_regions import calls_of
from remat_explorer.solvers.framework_rules.policy import Policy
from remat_explorer.solvers.framework_rules.regions import Region
from tests.runtime.policies.small_transformer import SmallTransformer

ARGS = (torch.randn(16, 32, 8, generator=torch.Generator().manual_seed(0)),)
LOADER = Path(policy_loader.__file__)


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
    return solution.policy(time_limit=2.0)


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


PROGRAM = """
import json, sys, torch
sys.modules["remat_explorer"] = None  # importing it fails
sys.path[:0] = sys.argv[2:]
from policy_loader import apply_policy
from small_transformer import SmallTransformer
from torch.utils._python_dispatch import TorchDispatchMode

class Calls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = {}
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.seen[str(operator)] = self.seen.get(str(operator), 0) + 1
        return operator(*args, **(kwargs or {}))

torch.manual_seed(0)
model, args = SmallTransformer(), (torch.randn(16, 32, 8, generator=torch.Generator().manual_seed(0)),)
def step():
    for p in model.parameters():
        p.grad = None
    with Calls() as calls:
        loss = model(*args)
        loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())], calls.seen
plain, before = step()
apply_policy(model, sys.argv[1])
changed, after = step()
assert all(map(torch.equal, plain, changed))
with torch.no_grad():
    assert torch.equal(model(*args), plain[0])
print(json.dumps({name: after[name] - before[name] for name in before if "addmm" in name or "attention" in name}))
"""


def test_the_printed_loader_runs_without_us_with_equal_gradients_and_counted_operations(
    graph: Graph, policy: Policy, tmp_path: Path
) -> None:
    (tmp_path / "policy_loader.py").write_text(LOADER.read_text())
    (tmp_path / "small_transformer.py").write_text(Path(__file__).with_name("small_transformer.py").read_text())
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(policy.save(tmp_path / "policy.json")), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    counted = json.loads(ran.stdout)
    calls = [call for k in again(policy) for call in calls_of(graph, k)]
    assert sum(counted.values()) > 0
    assert counted == {name: calls.count(name) for name in counted}


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
        rx.solve(rx.linear(4), 5).policy()
    small = Solution(graph, "by hand", solution.status, 1, solution.schedule, None, 0.0)
    with pytest.raises(SolverError, match=r"the smallest one takes .*, so give [0-9]+ bytes or more"):
        small.policy()


def test_dropout_in_a_region_is_drawn_again_with_the_same_numbers() -> None:
    torch.manual_seed(0)
    model = SmallTransformer(blocks=2, dropout=0.3)
    parameters = list(model.parameters())
    operators = ["aten.addmm.default"] * 8
    region = {"module": "blocks", "operators": operators, "saved": [1, 6], "random": True}
    results: list[list[torch.Tensor]] = []
    for change in (False, True):
        if change:
            model.blocks.forward = functools.partial(policy_loader.run_region, model.blocks.forward, region)
        torch.manual_seed(1)
        loss = model(*ARGS)
        results.append(list(torch.autograd.grad(loss, parameters)))
    assert all(map(torch.equal, *results))
