"""PyTorch's own programs for what to keep: the partitioner's min-cut under a budget, sac_milp, and checkpoints."""

import operator
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.captured_program import Program
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.checker import check_schedule, replay
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.min_cut_partitioner import partition
from remat_explorer.runtime.peers import pytorch_budget_plan, schedule_of
from remat_explorer.runtime.peers.activation_budget_plan import first_equal_calls
from remat_explorer.runtime.peers.torch_checkpoints import blocks_of, replace_forwards
from remat_explorer.runtime.sac_milp import modules_of
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.methods.checkpoint_sequential import checkpoint_sequential_candidates
from tests.runtime.kinds_of_models import KINDS, Case, Made, linear, x
from tests.runtime.policies.small_transformer import SmallTransformer, example
from tests.runtime.step_outcomes import Operators
from tests.solvers.candidates import candidates_of
from tests.thorough import thorough_but

WHOLE = CaptureOptions(contract=False, split_convolution_backward=False)
BUDGETS = (1.0, 0.5, 0.1, 0.0)


def program_of(case: Case, options: CaptureOptions = WHOLE) -> Program:
    return trace(case.model, case.args, case.kwargs, case.loss, options=options)


def residual_net(options: CaptureOptions = WHOLE) -> Program:
    loaded = rx.models.load("residual_net", batch=4, image=16)
    return program_of(Case(loaded.module, loaded.args), options)


@pytest.fixture(scope="module")
def residual() -> Program:
    return residual_net()


def runs(plan: Plan) -> list[int]:
    return [statement.operation for statement in plan.statements if isinstance(statement, Compute)]


@pytest.mark.parametrize("budget", thorough_but(BUDGETS, 1.0, 0.1))
def test_the_plan_runs_what_the_partitioner_lists_in_its_order_and_is_a_schedule_with_the_same_peak(budget, residual):
    calls = [[call.node for call in body.calls if call.target is not operator.getitem] for body in residual.bodies]
    operation_of = {own[-1].name: k for k, own in enumerate(calls)}  # views of its inputs come before it
    listed = [name for part in partition(residual.module, budget) for name in part]
    before = str(residual.module.graph)
    plan = pytorch_budget_plan(residual, budget)
    assert str(residual.module.graph) == before
    assert runs(plan) == [operation_of[name] for name in listed if name in operation_of]
    replay(plan)
    schedule = schedule_of(plan)
    assert schedule is not None
    assert rx.check(residual.graph, schedule.R, schedule.S).peak == plan.peak
    assert (schedule.recomputations > 0) == (budget < 1)


@pytest.mark.parametrize(("options", "solver"), [(CaptureOptions(), "dp"), (CaptureOptions(contract=False), "greedy")])
def test_contracted_graphs_are_planned_too(options, solver):
    plan = pytorch_budget_plan(residual_net(options), 0.25, solver)
    replay(plan)
    assert len(runs(plan)) > plan.graph.n


@pytest.mark.parametrize("kind", ["tied weights and padding", "bfloat16 with dropout", "in-place operations", "norms"])
def test_every_kind_of_model_is_planned(kind):
    program = program_of(KINDS[kind]())
    for budget in (0.5, 0.0):
        replay(pytorch_budget_plan(program, budget))


def test_a_call_that_the_partitioner_merged_runs_again_where_its_twin_does():
    def forward(self, x):
        y = self.layer(x)
        return self.last(torch.exp(y) * torch.sin(y)) + torch.exp(y).square().mean()  # exp(y), twice

    program = program_of(Case(Made(forward, layer=linear(), last=linear()), (x(64, 8),)))
    merged = {name for name, first in first_equal_calls(program.module).items() if name != first}
    assert merged
    assert merged.isdisjoint(name for part in partition(program.module, 0.0) for name in part)
    plan = pytorch_budget_plan(program, 0.0)
    names = Counter(program.graph.operations[k].name for k in runs(plan))
    assert (names["exp"], names["exp (2)"]) == (2, 2)
    replay(plan)


def test_a_profiled_graph_gives_the_same_plan_with_workspace(residual):
    ways = [(replace(one.default, workspace=10**9),) for one in residual.graph.operations]
    operations = tuple(map(lambda one, way: replace(one, implementations=way), residual.graph.operations, ways))
    other = replace(residual, graph=replace(residual.graph, operations=operations))
    plan, profiled = pytorch_budget_plan(residual, 0.5), pytorch_budget_plan(other, 0.5)
    assert runs(plan) == runs(profiled)
    assert profiled.peak > 10**9 > plan.peak


@pytest.fixture(scope="module")
def transformer() -> Graph:
    return rx.capture(SmallTransformer(4, 16, dropout=0.1), (example(),))


def test_a_transformer_of_four_layers_keeps_its_budget_if_the_program_can(transformer):
    everything = checkpoint_all_peak(transformer)
    solution = solve(transformer, int(0.45 * everything), "sac-milp", time_limit=4)
    assert solution.schedule is not None
    assert check_schedule(solution.schedule, int(0.45 * everything)).cost > transformer.total_cost
    again = {k for t, k, _ in solution.schedule.sequence if t != k}
    assert not any(transformer.is_backward[k] for k in again)
    impossible = solve(transformer, int(0.2 * everything), "sac-milp", time_limit=4)
    assert impossible.schedule is None
    assert impossible.limit


def test_modules_are_those_of_the_code_without_lists(transformer):
    is_leaf = {module.name: module.is_leaf for module in modules_of(transformer)}
    assert "model.blocks" not in is_leaf
    assert (is_leaf["model.blocks.2"], is_leaf["model.blocks.2.before"]) == (False, True)


def test_without_pulp_it_says_what_to_install(transformer, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed._tools.sac_ilp", None)
    with pytest.raises(SolverError, match="pip install 'pulp<4'"):
        solve(transformer, "80%", "sac-milp")


@pytest.mark.parametrize("share", [0, 1.5, "half"])
def test_a_wrong_share_is_quoted(transformer, share):
    with pytest.raises(SolverError, match=f"memory_budget is .*{share}"):
        solve(transformer, "80%", "sac-milp", memory_budget=share)


def test_a_block_inside_a_block_of_its_class_is_none():
    inner = [nn.Sequential(linear(), nn.ReLU()) for _ in range(2)]
    outer = nn.Sequential(nn.Sequential(*inner), nn.Sequential(linear(), nn.ReLU()))
    assert blocks_of(outer) == tuple(outer)


def test_a_forward_of_the_persons_own_comes_back_even_after_an_error():
    layer: Any = linear()
    layer.forward = mine = lambda x: x
    with pytest.raises(ZeroDivisionError), replace_forwards({layer: lambda x: 1 / 0}):
        layer(0)
    assert layer.forward is mine


class Sine(nn.Module):
    """Keeps its input for the backward pass, so that a segment's last output is not needed again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def block(width: int) -> nn.Module:
    return nn.Sequential(*(part for w in ((width, 24), (24, 20), (20, width + 1)) for part in (nn.Linear(*w), Sine())))


def run_blocks(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A checkpoint around those that ``wrapped`` names."""
    for i, one in enumerate(self.blocks):
        x = checkpoint(one, x, use_reentrant=False, **self.options) if i in self.wrapped else one(x)
    return x.sum()


def every_second() -> Any:
    """The contexts of one checkpoint, with torchtitan's rule in torch's own words."""
    counts: Counter[bool] = Counter()

    def policy(context, operator, *args, **kwargs):
        if operator == torch.ops.aten.addmm.default:
            counts[context.is_recompute] += 1
            if counts[context.is_recompute] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def run_again(schedule: rx.Schedule) -> Counter[str]:
    return Counter(schedule.graph.operations[k].name.split(" ")[1] for t, k, _ in schedule.sequence if t != k)


@pytest.mark.parametrize(
    ("strategy", "wrapped", "torchs", "ours"),
    [
        ("checkpoint-full", (0, 1, 2, 3), {}, {}),
        ("checkpoint-every-n", (0, 2), {}, {"every_n_layers": 2}),
        ("megatron-block", (0, 1, 2), {}, {"recompute_num_layers": 3}),
        ("save-second-matmul", (0, 1, 2, 3), {"context_fn": every_second}, {}),
    ],
)
def test_as_many_products_and_sines_run_again(strategy, wrapped, torchs, ours):
    blocks, x = nn.ModuleList(block(8 + k) for k in range(4)), torch.ones(4, 8, requires_grad=True)
    net = Made(run_blocks, blocks=blocks, wrapped=(), options={})
    graph = rx.capture(net, (x.detach(),), contract=False)
    net.wrapped, net.options = wrapped, torchs
    with Operators() as calls:
        net(x).backward()
    *_, candidate = candidates_of(strategy, graph, **ours)
    again = run_again(candidate.schedule)
    assert calls.counts()["aten.addmm.default"] == 12 + again["linear"]
    assert calls.counts()["aten.sin.default"] == 12 + again["sin"]


@pytest.mark.parametrize("segments", [1, 3, 4])
def test_as_many_layers_of_segments_run_again(segments):
    members = [layer for k in range(6) for layer in (nn.Linear(8 + k, 9 + k), Sine())]
    x = torch.ones(4, 8, requires_grad=True)
    with Operators() as calls:
        checkpoint_sequential(members, segments, x, use_reentrant=False).sum().backward()
    graph = rx.capture(nn.Sequential(*members), (x.detach(),), loss=torch.sum, contract=False)
    (candidate,) = checkpoint_sequential_candidates(graph, segments)
    assert calls.counts()["aten.addmm.default"] == 6 + run_again(candidate.schedule)["linear"]
