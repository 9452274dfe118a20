"""`rx.compile`: our schedule, plain PyTorch's numbers, within the budget."""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.exc import BackendCompilerFailed, Unsupported
from torch._inductor import config as inductor_config
from torch._inductor.choices import InductorChoices
from torch._inductor.decomposition import select_decomp_table
from torch.utils.checkpoint import checkpoint

import remat_explorer as rx
from remat_explorer.errors import UnknownNameError
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.compiled.inductor_fusion import FusionWithinBudget
from remat_explorer.runtime.compiled.partitioner import PlannedGraph

needs_a_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "cl"))), reason="Inductor needs a C++ compiler"
)


class Block(nn.Module):
    """A transformer block of four heads."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.inputs, self.output = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down, self.dropout = nn.Linear(size, 4 * size), nn.Linear(4 * size, size), nn.Dropout(0.15)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.inputs(self.norms[0](x)).unflatten(-1, (3, 4, -1)).transpose(1, 3)
        seen = nn.functional.scaled_dot_product_attention(*heads.unbind(2))
        x = x + self.dropout(self.output(seen.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norms[1](x)))))


def mlp() -> nn.Module:
    return nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.3))))


def convolutions() -> nn.Module:
    parts = (part for _ in range(3) for part in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()))
    return nn.Sequential(*parts)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def step(model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of a step, and the random state after it."""
    torch.manual_seed(1)
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach(), torch.get_rng_state()


def repeated(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [plan.graph.operations[s.operation].name for s in plan.statements if isinstance(s, Compute) and not s.first]


@pytest.mark.filterwarnings("ignore:compiled code takes")  # convolutions, by their workspace
@pytest.mark.parametrize(
    ("model", "shape", "budget", "again"),
    [
        (mlp(), (256, 32), "75%", "dropout"),
        (nn.Sequential(Block(32), Block(32)), (2, 64, 32), "75%", ""),
        (convolutions(), (4, 4, 16, 16), "smallest", "batch_norm"),
    ],
    ids=["mlp", "transformer", "convolutions"],
)
def test_gradients_buffers_and_random_state_are_plain_pytorchs(
    model: nn.Module, shape: tuple[int, ...], budget: str, again: str
) -> None:
    plain, x = copy.deepcopy(model), torch.randn(shape)
    compiled = rx.compile(model, budget, time_limit=0.5)
    for _ in range(2):
        for ours, theirs in zip(step(compiled, x), step(plain, x), strict=True):
            assert torch.equal(ours, theirs)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.equal(ours, theirs)
    (graph,) = compiled.backend.graphs
    assert any(again in name for name in repeated(graph.solution.plan))
    assert graph.predicted_peak <= graph.solution.budget
    assert graph.measured_peak is not None


def test_less_is_kept_within_a_smaller_budget() -> None:
    peaks, costs = [], []
    for budget in ("100%", "70%"):
        torch._dynamo.reset()
        model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(64, 64), nn.Tanh())))
        compiled = rx.compile(model, budget, time_limit=2)
        step(compiled, torch.randn(512, 64))
        (graph,) = compiled.backend.graphs
        assert graph.within_budget, str(graph)
        peaks.append(graph.measured_peak)
        costs.append(graph.solution.cost)
    assert peaks[1] < peaks[0]
    assert costs[1] > costs[0]


def test_what_kernels_take_beside_the_plan_is_measured_and_planned_for() -> None:
    compiled = rx.compile(mlp(), "80%", time_limit=0.5)  # the kernel of dropout takes a temporary
    step(compiled, torch.randn(256, 32))
    (graph,) = compiled.backend.graphs
    assert graph.turns > 1
    assert any(operation.implementations[0].workspace for operation in graph.solution.graph.operations)
    assert graph.moved == pytest.approx(0, abs=0.02)
    assert graph.within_budget, str(graph)


def test_where_the_code_cannot_keep_to_the_budget_the_smallest_plan_is_tried_and_it_is_said() -> None:
    compiled = rx.compile(convolutions(), "80%", time_limit=0.5)  # a convolution's workspace is larger
    with pytest.warns(UserWarning, match="above the budget of"):
        compiled(torch.randn(4, 4, 16, 16))
    (graph,) = compiled.backend.graphs
    assert graph.within_budget is False
    assert graph.solution.budget == rx.minimum_budget(graph.solution.graph).known_feasible > graph.budget
    assert graph.moved == pytest.approx(0, abs=0.02)
    assert graph.gap is None


def test_the_bound_that_is_shown_is_for_the_budget_that_was_asked_for() -> None:
    chain = rx.linear(8)
    asked, smaller = (rx.solve(chain, budget, time_limit=2) for budget in (6, 4))
    graph = PlannedGraph(smaller, 6, measured_peak=6, at_budget=asked)
    assert graph.lower_bound == asked.lower_bound == asked.cost
    assert smaller.gap == 0
    assert graph.gap is not None
    assert graph.gap > 0
    assert str(graph).endswith(f"planned for 4 B; for the budget asked for, gap {graph.gap * 100:.1f} %")


@needs_a_compiler
@inductor_config.patch(fallback_random=True)  # random numbers as without a compiler
def test_inductor_keeps_to_the_budget_with_equal_gradients() -> None:
    class Classes(nn.Sequential):
        """With its loss, in whose backward pass Inductor makes constants."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(super().forward(x), torch.zeros(len(x), dtype=torch.long))

    model = Classes(*(part for _ in range(6) for part in (nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.2))))
    plain, x = copy.deepcopy(model), torch.randn(512, 32)
    compiled = rx.compile(model, "85%", backend="inductor", time_limit=0.5)
    assert torch.allclose(step(compiled, x)[0], step(plain, x)[0])
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-8)  # type: ignore[arg-type]
    (graph,) = compiled.backend.graphs
    assert graph.within_budget, str(graph)
    assert any("dropout" in name for name in repeated(graph.solution.plan))
    assert graph.fused_peak == pytest.approx(graph.measured_peak, rel=0.01)
    with torch.no_grad():
        for each in (model, plain):
            each.eval()
        assert torch.allclose(compiled(x), plain(x))
    assert len(compiled.backend.graphs) == 1


@needs_a_compiler
def test_what_inductor_joins_unasked_is_still_made_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FusionWithinBudget, "can_fuse", staticmethod(InductorChoices.can_fuse))
    model, x = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.LayerNorm(32), nn.Linear(32, 32)), torch.randn(64, 32)
    plain = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the budget may be exceeded
        step(rx.compile(model, "90%", backend="inductor", time_limit=0.5), x)
    step(plain, x)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)  # type: ignore[arg-type]


def test_what_a_compiler_runs_in_one_kernel_is_one_operation() -> None:
    """SiLU's gradient is five calls, and the input and the gradient that it reads are all that it takes."""
    parts = rx.partitioner("95%", time_limit=0.5)
    model = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))
    backend = aot_autograd(
        fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=parts, decompositions=select_decomp_table()
    )
    step(torch.compile(model, backend=backend, fullgraph=True), torch.randn(256, 32))
    ((gradient,),) = (
        [o for o in planned.solution.graph.operations if "sigmoid" in o.name] for planned in parts.planned
    )
    (way,) = gradient.implementations
    assert len(way.inputs) == 2
    assert way.overwrites in way.inputs
    assert gradient.phase == "backward"


def test_the_partitioner_serves_aot_autograd_and_needs_no_gradients_in_evaluation() -> None:
    parts, model = rx.partitioner("80%", time_limit=0.5), mlp()
    backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=parts)
    compiled, x = torch.compile(model, backend=backend, fullgraph=True), torch.randn(256, 32)
    with torch.no_grad():
        compiled(x)
    assert parts.planned == []
    plain = copy.deepcopy(model)
    assert torch.equal(step(compiled, x)[0], step(plain, x)[0])
    assert len(parts.planned) == 1
    assert parts.planned[0].measured_peak is None


@needs_a_compiler
def test_inductor_itself_takes_the_partitioner() -> None:
    parts, model, x = rx.partitioner("80%", time_limit=0.5), mlp().eval(), torch.randn(256, 32)
    plain = copy.deepcopy(model)
    with inductor_config.patch(custom_partitioner_fn=parts, fx_graph_cache=False):
        gradients = step(torch.compile(model, fullgraph=True), x)[0]
    assert len(parts.planned) == 1
    torch.testing.assert_close(gradients, step(plain, x)[0])


def test_checkpoints_of_the_model_are_taken_apart_by_the_trace() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)

    model, x = Checkpointed(), torch.randn(256, 32)
    plain = copy.deepcopy(model)
    compiled = rx.compile(model, "80%", time_limit=0.5)
    assert torch.equal(step(compiled, x)[0], step(plain, x)[0])


def test_what_has_no_plan_is_refused_in_words() -> None:
    with pytest.raises(UnknownNameError, match="aot_egaer"):
        rx.compile(mlp(), "80%", backend="aot_egaer")
    with pytest.raises(BackendCompilerFailed, match="budget"):
        rx.compile(mlp(), 1000, time_limit=0.5)(torch.randn(256, 32))

    class Branching(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,))

    with pytest.raises(BackendCompilerFailed, match="control flow and flex_attention"):
        rx.compile(Branching(4, 4), "80%")(torch.randn(2, 4))

    class Broken(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return super().forward(x)

    with pytest.raises(Unsupported, match="graph_break"):
        rx.compile(Broken(4, 4), "80%")(torch.randn(2, 4))
