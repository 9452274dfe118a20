"""Policies of `torch.utils.checkpoint`: what is predicted is what PyTorch does, in code that does not know us."""

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.model_placement import exact_kernels, place
from remat_explorer.checker import replay
from remat_explorer.errors import SolutionError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute
from remat_explorer.runtime.autograd_order import region_plan
from remat_explorer.runtime.checkpoint_policy import Policy
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.module_regions import calls_of, is_savable, module_regions, region_of
from remat_explorer.runtime.peers import policy_loader
from remat_explorer.runtime.peers.peer_comparison import Autograd, PeerBench
from remat_explorer.solution_summary import Status
from remat_explorer.solvers.methods.regions import Region, layers_of
from remat_explorer.solvers.solution import Solution
from tests.runtime.kinds_of_models import Made
from tests.runtime.policies import small_transformer
from tests.runtime.policies.small_transformer import SmallTransformer, example
from tests.runtime.step_outcomes import Operators

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


def measured(model: nn.Module, graph: Graph) -> int:
    placed = place(model, ARGS, None, "cpu")
    with exact_kernels():
        training = Eager(placed, None)
        return PeerBench(placed, training, graph.resident_bytes).run(Autograd(training)).peak


def by_hand(graph: Graph, saved: dict[str, list[int]]) -> Policy:
    """A policy with these modules, of which those operations are saved whose places are given and that can be."""
    known = {module.module: module for module in module_regions(graph)}
    regions = []
    for path, places in saved.items():
        operations = known[path].operations
        chosen = {operations[place] for place in places if is_savable(graph, operations[place])}
        regions.append((path, region_of(graph, known[path], chosen)))
    return Policy(graph, 2**40, tuple(regions))


def with_policy(model: nn.Module, policy: Policy | Path, folder: Path) -> Any:
    """A copy of the model under a policy, or under the policy of a file."""
    changed = copy.deepcopy(model)
    policy_loader.apply_policy(changed, policy if isinstance(policy, Path) else policy.save(folder / "policy.json"))
    return changed


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return list(torch.autograd.grad(model(*ARGS).sum(), parameters))


def test_a_policy_costs_no_more_than_every_nth_layer_and_no_less_than_is_proven(graph, policy):
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


def test_gradients_are_equal_and_memory_and_what_runs_again_are_those_predicted(model, graph, policy, tmp_path):
    changed = with_policy(model, policy, tmp_path)
    assert any(region.saved for _, region in policy.modules)
    assert policy.peak <= policy.budget
    assert measured(changed, graph) == pytest.approx(policy.peak, rel=0.01)
    assert measured(model, graph) == pytest.approx(replay(region_plan(graph, []))[1], rel=0.01)
    results, counts = [], []
    for one in (model, changed):
        with Operators() as calls:
            results.append(gradients_of(one))
        counts.append(calls.counts())
    assert all(map(torch.equal, *results))
    assert all(map(torch.equal, results[0], gradients_of(copy.deepcopy(changed))))
    products = [name for name in counts[0] if "addmm" in name or "attention" in name]
    counted = {name: counts[1][name] - counts[0][name] for name in products}
    expected = [call for k in again(policy) for call in calls_of(graph, k)]
    assert sum(counted.values()) > 0
    assert counted == {name: expected.count(name) for name in products}


def changed_file(policy: Policy, path: Path, change: dict[str, Any]) -> Path:
    """With changed entries of the policy, or of its first region."""
    document = policy.to_document()
    for key, entry in change.items():
        (document["regions"][0] if key in policy_loader.REGION_KEYS else document)[key] = entry
    path.write_text(json.dumps(document))
    return path


LIST = b"[" * 100_000 + b"]" * 100_000
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"random": 0}, "the entry 'random' of"),
    ({"saved": [1, 0]}, "what is saved of"),
    ({"saved": [True]}, "what is saved of"),
    ({"operators": "aten.addmm.default"}, "the list of operators of"),
    ({"constants": ["aten.tril.default"]}, "the list of constants of"),
    ({"module": ""}, "the module of a region"),
    ({"module": "blocks.9"}, "'blocks.9', which SmallTransformer does not have"),
    ({"regions": ["blocks.0"]}, "a region is none: 'blocks.0'"),
    ({"regions": [{}]}, "a region lacks the key"),
    ({"more": 1}, "the policy has the unknown key 'more'"),
    ({"version": 2}, "version 2; this program reads version 1"),
    ({"version": True}, "has version True"),
    ({"format": "other"}, "is no file of the format"),
    ({"budget": -1}, "the budget is none"),
    ({"budget": 1}, "is larger than the budget 1"),
    ({"cost": float("nan")}, "the cost is none"),
    ({"optimum": "best"}, "the optimum is none"),
]


@pytest.mark.parametrize(("change", "said"), WRONG)
def test_a_wrong_policy_file_is_a_value_error_and_changes_no_module(change, said, model, policy, tmp_path):
    changed = copy.deepcopy(model)
    with pytest.raises(ValueError, match=re.escape(said)):
        policy_loader.apply_policy(changed, changed_file(policy, tmp_path / "policy.json", change))
    assert not any("forward" in vars(module) for module in changed.modules())


TEXTS = {
    "empty": (b"", "is not a JSON file of a policy"),
    "list": (b"[]", "is no file of the format"),
    "nested list": (LIST, "nested too deep"),
    "nested object": (b'{"format": ' + LIST + b"}", "nested too deep"),
    "digits": (
        b'{"format": "remat-explorer/policy", "version": ' + b"9" * 5000 + b"}",
        "is not a JSON file of a policy",
    ),
    "a key twice": (b'{"format": "remat-explorer/policy", "format": "remat-explorer/policy"}', "a key stands twice"),
    "mark": (b"\xff\xfe{}", "is not a JSON file of a policy"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_json_object_of_a_policy_is_a_value_error(name, tmp_path):
    file, (text, said) = tmp_path / "policy.json", TEXTS[name]
    file.write_bytes(text)
    with pytest.raises(ValueError, match=re.escape(said)):
        policy_loader.apply_policy(SmallTransformer(), file)


def regions_of(policy: Policy, *paths: str) -> list[dict[str, Any]]:
    (entry, *_) = policy.to_document()["regions"]
    return [entry | {"module": path} for path in paths]


def test_a_module_that_is_named_twice_or_within_another_one_is_refused(model, graph, policy, tmp_path):
    """Under another name, too: the name of a model's only part may be left out of a path."""
    file, wrapped = tmp_path / "policy.json", nn.Sequential(copy.deepcopy(model))
    for one, paths in (
        (model, ("blocks.0", "blocks.0")),
        (model, ("blocks.0", "blocks.0.inner")),
        (model, ("blocks.0.inner", "blocks.0")),
        (wrapped, ("blocks.0", "0.blocks.0")),
    ):
        changed_file(policy, file, {"regions": regions_of(policy, *paths)})
        with pytest.raises(ValueError, match="is named twice, or lies within"):
            policy_loader.apply_policy(one, file)
        assert not any("forward" in vars(module) for module in one.modules())
    nested = [by_hand(graph, {path: []}).to_document()["regions"][0] for path in ("blocks.0", "blocks.0.inner")]
    with pytest.raises(SolutionError, match=r"the region \"blocks.0.inner\" is there twice, or lies within"):
        Policy.load(changed_file(policy, file, {"regions": nested}), graph)


def test_what_no_checkpoint_can_be_put_around_is_refused(model, policy, tmp_path):
    scripted = nn.Sequential(torch.jit.script(nn.ReLU()), nn.Linear(2, 2))
    taken = with_policy(model, policy, tmp_path)
    for one, paths, said in (
        (model, ("blocks",), r"'blocks' \(ModuleList\) never runs by itself; name its parts"),
        (scripted, ("1", "0"), "'0' is TorchScript"),
        (taken, (policy.modules[0][0],), "has a policy already"),
    ):
        file = changed_file(policy, tmp_path / "policy.json", {"regions": regions_of(policy, *paths)})
        with pytest.raises(ValueError, match=said):
            policy_loader.apply_policy(one, file)
    assert "forward" not in vars(scripted[1])


class Noisy(nn.Module):
    generator: torch.Generator | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(torch.bernoulli(x.sigmoid(), generator=self.generator) + x)


def test_what_a_file_says_wrongly_of_random_operators_is_refused(tmp_path):
    """What is drawn after an operator that did not run again would be other numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Noisy(), nn.Linear(8, 8))
    graph = rx.capture(model, ARGS, contract=False)
    made, file = by_hand(graph, {"1": []}), tmp_path / "policy.json"
    saved = {"operators": ["aten.bernoulli.default"], "saved": [0]}
    for generator, change, said in (
        (None, {"random": False}, r"of the module '1' draws random numbers, and the policy says .* none"),
        (None, saved, "which draws random numbers: if it did not run again"),
        (torch.Generator(), {}, r"draws from a torch\.Generator of its own"),
    ):
        changed = with_policy(model, changed_file(made, file, change), tmp_path)
        changed[1].generator = generator
        with pytest.raises(ValueError, match=said):
            changed(*ARGS)
        with torch.no_grad():
            changed(*ARGS)
    with pytest.raises(SolutionError, match=r"cannot be saved|are not those of the file"):
        Policy.load(changed_file(made, file, saved), graph)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"budget": 1}, "the budget of the file is 1 B, but its regions take"),
        ({"budget": "1 GiB"}, "budget is not a number of bytes"),
        ({"optimum": 0}, "the optimum of the file is 0, but computing everything once costs"),
        ({"lower_bound": "high"}, "lower_bound is not a number of at least 0"),
        ({"lower_bound": float("inf")}, "which is no number in JSON"),
        ({"lower_bound": 1e30}, ", but its regions cost"),
        ({"cost": 0.0}, "the cost of the file"),
        ({"regions": {}}, "regions is not a list"),
        ({"module": "blocks.9"}, 'checkpoint can be put around a module "blocks.9"'),
        ({"saved": [99]}, "no places among its operators"),
    ],
)
def test_what_a_policy_file_says_is_held_against_the_graph(change, said, policy, graph, tmp_path):
    with pytest.raises(SolutionError, match=re.escape(said)):
        Policy.load(changed_file(policy, tmp_path / "policy.json", change), graph)


def test_a_policy_is_read_as_it_was_and_a_bound_above_its_optimum_is_none(policy, graph, tmp_path):
    file = tmp_path / "policy.json"
    assert Policy.load(policy.save(file), graph).to_document() == policy.to_document()
    between = (policy.optimum + policy.cost) / 2
    assert policy.optimum < between < policy.cost
    with pytest.raises(SolutionError, match=r"the lower_bound of the file is .*, but its optimum is"):
        Policy.load(changed_file(policy, file, {"lower_bound": between}), graph)


def test_other_operators_are_refused_when_a_module_first_runs(model, policy, tmp_path):
    other = copy.deepcopy(model)
    first = next(other.get_submodule(policy.modules[0][0]).children())
    more = nn.Linear(32, 32)
    first.register_forward_pre_hook(lambda module, args: (more(args[0]),))
    with pytest.raises(ValueError, match=r"are not those of the policy: number .* make a policy for this model"):
        with_policy(other, policy, tmp_path)(*ARGS)


def test_a_policy_needs_a_graph_with_calls_and_a_budget_that_it_fits(model, solution, graph):
    with pytest.raises(SolverError, match="captured in this process"):
        rx.policy(rx.solve(rx.linear(4), 5))
    with pytest.raises(SolverError, match="contract=False"):
        rx.policy(Solution(rx.capture(model, ARGS), "by hand", Status.UNKNOWN, 2**40, None, None, 0.0))
    small = Solution(graph, "by hand", solution.status, 1, solution.schedule, None, 0.0)
    with pytest.raises(SolverError, match=r"the smallest one takes .*; give as much or more"):
        rx.policy(small)


def test_lists_of_modules_and_modules_that_are_called_twice_are_no_regions(graph):
    paths = {module.module for module in module_regions(graph)}
    assert {"blocks.0", "blocks.0.inner"} <= paths
    assert "blocks" not in paths
    layer, other = (nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(2))
    twice = rx.capture(nn.Sequential(layer, layer, other), (torch.ones(4, 8),), contract=False)
    assert {module.module.split(".")[0] for module in module_regions(twice)} == {"2"}


def masked(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Attention to what came before, without a kernel for it."""
    return ((x @ x.mT) * torch.ones(32, 32).tril()).softmax(-1) @ x


def test_a_mask_that_a_module_makes_itself_can_be_saved_and_is_not_made_again(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), Made(masked), nn.Linear(8, 8))
    graph = rx.capture(model, ARGS, contract=False)
    operations = {module.module: module for module in module_regions(graph)}["1"].operations
    (tril,) = (place for place, k in enumerate(operations) if "tril" in graph.operations[k].name)
    made = by_hand(graph, {"1": [tril]})
    assert made.to_document()["regions"][0]["constants"] == ["aten.tril.default"]
    changed = with_policy(model, made, tmp_path)
    with Operators() as calls:
        gradients = gradients_of(changed)
    assert (calls.counts()["aten.ones.default"], calls.counts()["aten.tril.default"]) == (2, 1)
    assert all(map(torch.equal, gradients, gradients_of(model)))


def test_products_without_a_gradient_are_not_told_apart(tmp_path):
    torch.manual_seed(0)
    part = nn.Sequential(nn.Linear(8, 64).requires_grad_(False), nn.Linear(64, 64), nn.GELU())
    model = nn.Sequential(part, nn.Linear(64, 8))
    made = by_hand(rx.capture(model, ARGS, contract=False), {"0": []})
    assert made.to_document()["regions"][0]["operators"] == ["aten.addmm.default"]
    assert all(map(torch.equal, gradients_of(with_policy(model, made, tmp_path)), gradients_of(model)))


def swish(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x) * torch.tanh(x)


def test_an_activation_that_all_layers_share_is_named_and_one_for_each_has_a_policy():
    def policy(shared: bool) -> Any:
        one = Made(swish)
        layers = [part for _ in range(4) for part in (nn.Linear(64, 64), one if shared else Made(swish))]
        graph = rx.capture(nn.Sequential(*layers), (torch.ones(512, 64),), contract=False)
        return rx.policy(rx.solve(graph, budget="90%", strategy="checkmate-approx"))

    with pytest.raises(SolverError, match=r"such as an activation that all blocks share \(make one") as caught:
        policy(shared=True)
    assert "files" not in str(caught.value)
    assert policy(shared=False).modules


PROCESS = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
sys.modules["remat_explorer"] = None  # importing it fails
from policy_loader import apply_policy
from small_transformer import SmallTransformer, example

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
runs = []
for policy in (None, "policy.json"):
    torch.manual_seed(0)
    net = SmallTransformer(dropout=0.1)
    if policy:
        apply_policy(net, policy)
    for part in (*net.blocks, net):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(2):
        torch.manual_seed(10 * step + rank)
        optimizer.zero_grad()
        loss = net(example(rank))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    runs.append((losses, [p.full_tensor() for p in net.parameters()]))
(plain, weights), (checkpointed, others) = runs
print(json.dumps([plain, checkpointed, all(map(torch.equal, weights, others))]), flush=True)
dist.barrier()
os._exit(0)
"""


@pytest.mark.thorough  # test_fully_sharded has two processes, too
def test_two_processes_with_fully_shard_train_as_without_it_by_the_printed_loader(tmp_path):
    torch.manual_seed(0)
    graph = rx.capture(SmallTransformer(dropout=0.1), ARGS, contract=False)
    policy = by_hand(graph, {"blocks.0": [1, 2, 8], "blocks.1": [], "blocks.2.inner": [1]})
    assert any(region.saved for _, region in policy.modules)
    policy.save(tmp_path / "policy.json")
    for module in (policy_loader, small_transformer):
        source = Path(str(module.__file__))
        (tmp_path / source.name).write_text(source.read_text())
    options: dict[str, Any] = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen([sys.executable, "-c", PROCESS, str(rank)], **options) for rank in range(2)]
    try:
        outputs = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    firsts = []
    for rank, (printed, problems) in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0, problems
        plain, checkpointed, equal = json.loads(printed)
        assert plain == checkpointed
        assert plain[0] != plain[1]
        assert equal
        firsts.append(plain[0])
    assert firsts[0] != firsts[1]  # each rank has its own batch
