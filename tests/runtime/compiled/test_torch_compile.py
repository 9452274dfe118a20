"""`rx.compile`: our schedule, plain PyTorch's numbers, within the budget; and the order of a compiler's kernels."""

import copy
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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
from remat_explorer.runtime.compiled.inductor_fusion import Buffer, FusionWithinBudget, KernelOrder
from remat_explorer.runtime.compiled.partitioner import PlannedGraph
from tests.runtime.kinds_of_models import Made
from tests.runtime.policies.small_transformer import Block
from tests.runtime.step_outcomes import assert_same

needs_a_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "cl"))), reason="Inductor needs a C++ compiler"
)


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


X = torch.randn(256, 32)


def step(model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor = X) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of a step, and the random state after it."""
    torch.manual_seed(1)
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach(), torch.get_rng_state()


def assert_gradients_are_close(model: nn.Module, plain: nn.Module) -> None:
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def repeated(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [plan.graph.operations[s.operation].name for s in plan.statements if isinstance(s, Compute) and not s.first]


@pytest.mark.filterwarnings("ignore:compiled code takes")  # convolutions, by their workspace
@pytest.mark.parametrize(
    ("model", "shape", "budget", "again"),
    [
        (mlp(), (256, 32), "75%", "dropout"),
        (nn.Sequential(Block(32, 0.15), Block(32, 0.15)), (2, 64, 32), "75%", ""),
        (convolutions(), (4, 4, 16, 16), "smallest", "batch_norm"),
        (Made(lambda s, x: checkpoint(s.inner, x, use_reentrant=False), inner=mlp()), (256, 32), "75%", "dropout"),
    ],
    ids=["mlp", "transformer", "convolutions", "checkpoints of the model"],
)
def test_gradients_buffers_and_random_state_are_plain_pytorchs(model, shape, budget, again):
    plain, x = copy.deepcopy(model), torch.randn(shape)
    compiled = rx.compile(model, budget, time_limit=0.5)
    for _ in range(2):
        assert_same(step(compiled, x), step(plain, x))
    assert_same([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])
    assert_same(model.buffers(), plain.buffers())
    (graph,) = compiled.backend.graphs
    assert any(again in name for name in repeated(graph.solution.plan))
    assert graph.predicted_peak <= graph.solution.budget
    assert graph.measured_peak is not None


def test_what_kernels_take_beside_the_plan_is_measured_and_planned_for():
    compiled = rx.compile(mlp(), "80%", time_limit=0.5)  # the kernel of dropout takes a temporary
    step(compiled)
    (graph,) = compiled.backend.graphs
    assert graph.turns > 1
    assert any(operation.implementations[0].workspace for operation in graph.solution.graph.operations)
    assert graph.moved == pytest.approx(0, abs=0.02)
    assert graph.within_budget, str(graph)


def test_where_the_code_cannot_keep_to_the_budget_the_smallest_plan_is_tried_and_it_is_said():
    compiled = rx.compile(convolutions(), "80%", time_limit=0.5)  # a convolution's workspace is larger
    with pytest.warns(UserWarning, match="above the budget of"):
        compiled(torch.randn(4, 4, 16, 16))
    (graph,) = compiled.backend.graphs
    assert graph.within_budget is False
    assert graph.solution.budget == rx.minimum_budget(graph.solution.graph).known_feasible > graph.budget
    assert graph.moved == pytest.approx(0, abs=0.02)
    assert graph.gap is None


def test_the_bound_that_is_shown_is_for_the_budget_that_was_asked_for():
    chain = rx.linear(8)
    asked, smaller = (rx.solve(chain, budget, time_limit=2) for budget in (6, 4))
    graph = PlannedGraph(smaller, 6, measured_peak=6, at_budget=asked)
    assert graph.lower_bound == asked.lower_bound == asked.cost
    assert smaller.gap == 0
    assert graph.gap is not None
    assert graph.gap > 0
    assert str(graph).endswith(f"planned for 4 B; for the budget asked for, gap {graph.gap * 100:.1f} %")


@needs_a_compiler
@pytest.mark.thorough  # it compiles C++; other backends show budget and gradients
@inductor_config.patch(fallback_random=True)  # random numbers as without a compiler
def test_inductor_keeps_to_the_budget_with_equal_gradients():
    def classes(self: Any, x: torch.Tensor) -> torch.Tensor:
        """A loss in whose backward pass Inductor makes constants."""
        return nn.functional.cross_entropy(self.net(x), torch.zeros(len(x), dtype=torch.long))

    net = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.2))))
    model = Made(classes, net=net)
    plain, x = copy.deepcopy(model), torch.randn(512, 32)
    compiled = rx.compile(model, "85%", backend="inductor", time_limit=0.5)
    assert torch.allclose(step(compiled, x)[0], step(plain, x)[0])
    assert_gradients_are_close(model, plain)
    (graph,) = compiled.backend.graphs
    assert graph.within_budget, str(graph)
    assert any("dropout" in name for name in repeated(graph.solution.plan))
    assert graph.fused_peak == pytest.approx(graph.measured_peak, rel=0.01)
    with torch.no_grad():
        assert torch.allclose(compiled.eval()(x), plain.eval()(x))
    assert len(compiled.backend.graphs) == 1


@needs_a_compiler
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:compiled code takes")  # the budget may be exceeded
def test_what_inductor_joins_unasked_is_still_made_before_it_is_read(monkeypatch):
    monkeypatch.setattr(FusionWithinBudget, "can_fuse", staticmethod(InductorChoices.can_fuse))
    model = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.LayerNorm(32), nn.Linear(32, 32))
    plain = copy.deepcopy(model)
    step(rx.compile(model, "90%", backend="inductor", time_limit=0.5))
    step(plain)
    assert_gradients_are_close(model, plain)


def test_what_a_compiler_runs_in_one_kernel_is_one_operation():
    """SiLU's gradient is five calls, and the input and the gradient that it reads are all that it takes."""
    parts = rx.partitioner("95%", time_limit=0.5)
    model = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))
    backend = aot_autograd(
        fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=parts, decompositions=select_decomp_table()
    )
    step(torch.compile(model, backend=backend, fullgraph=True))
    (planned,) = parts.planned
    (gradient,) = (one for one in planned.solution.graph.operations if "sigmoid" in one.name)
    (way,) = gradient.implementations
    assert len(way.inputs) == 2
    assert way.overwrites in way.inputs
    assert gradient.phase == "backward"


def test_the_partitioner_serves_aot_autograd_and_needs_no_gradients_in_evaluation():
    parts, model = rx.partitioner("80%", time_limit=0.5), mlp()
    backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=parts)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        compiled(X)
    assert parts.planned == []
    plain = copy.deepcopy(model)
    assert torch.equal(step(compiled)[0], step(plain)[0])
    assert [planned.measured_peak for planned in parts.planned] == [None]


@needs_a_compiler
@pytest.mark.thorough
def test_inductor_itself_takes_the_partitioner():
    parts, model = rx.partitioner("80%", time_limit=0.5), mlp().eval()
    plain = copy.deepcopy(model)
    with inductor_config.patch(custom_partitioner_fn=parts, fx_graph_cache=False):
        step(torch.compile(model, fullgraph=True))
    assert len(parts.planned) == 1
    step(plain)
    assert_gradients_are_close(model, plain)


def branching(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.layer(x)
    return torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,))


def broken(self: Any, x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return self.layer(x)


def test_what_has_no_plan_is_refused_in_words():
    with pytest.raises(UnknownNameError, match="aot_egaer"):
        rx.compile(mlp(), "80%", backend="aot_egaer")
    with pytest.raises(BackendCompilerFailed, match="budget"):
        rx.compile(mlp(), 1000, time_limit=0.5)(X)
    with pytest.raises(BackendCompilerFailed, match="control flow and flex_attention"):
        rx.compile(Made(branching, layer=nn.Linear(32, 4)), "80%")(X)
    with pytest.raises(Unsupported, match="graph_break"):
        rx.compile(Made(broken, layer=nn.Linear(32, 4)), "80%")(X)


def some_buffers(operations: int, draw: random.Random) -> list[Buffer]:
    """One buffer for each operation, read by some of the later ones, and a few that are there from the beginning."""
    buffers = []
    for maker in [None, None, *range(operations)]:
        later = range(0 if maker is None else maker + 1, operations)
        readers = tuple(sorted(draw.sample(later, min(len(later), draw.choice((1, 1, 2, 3))))))
        if maker is None and not readers:
            continue
        over = frozenset(reader for reader in readers if draw.random() < 0.5)
        followers = tuple(draw.sample(later, min(len(later), draw.choice((0, 0, 1)))))
        buffers.append(Buffer(draw.choice((1, 2, 2, 4)), maker, readers, followers, draw.random() < 0.1, over))
    return buffers


def simulated_peak(order: KernelOrder, operations: int, buffers: Sequence[Buffer]) -> int:
    """The most bytes at a time, kernel by kernel: what is there, what is made, and what is read for the last time."""
    kernels: dict[int, list[int]] = {}
    for k in range(operations):
        kernels.setdefault(order.place_of(k), []).append(k)
    in_memory = {k for k, buffer in enumerate(buffers) if buffer.maker is None}
    left = {k: set(buffer.readers) for k, buffer in enumerate(buffers)}
    peak = 0
    for place in sorted(kernels):
        running = set(kernels[place])
        made = {k for k, buffer in enumerate(buffers) if buffer.maker in running}
        inside = {k for k in made if left[k] and left[k] <= running and not buffers[k].held}
        taken = {}  # of results by the inputs whose place they take
        for k in sorted(in_memory):
            reader = next(iter(left[k] & running), None)
            if buffers[k].held or left[k] - running or len(left[k] & running) != 1 or reader not in buffers[k].over:
                continue
            heirs = [m for m in made - inside if buffers[m].maker == reader and buffers[m].size == buffers[k].size]
            if heirs and heirs[0] not in taken.values():
                taken[k] = heirs[0]
        peak = max(peak, sum(buffers[k].size for k in (in_memory | made) - inside - set(taken)))
        in_memory |= made - inside
        for k in list(in_memory):
            left[k] -= running
            if not left[k] and not buffers[k].held:
                in_memory.remove(k)
    return peak


def test_the_peak_is_that_of_a_simulation_and_nothing_overtakes_what_it_reads_or_follows():
    for seed in range(40):
        draw = random.Random(seed)
        operations = draw.randint(3, 12)
        buffers = some_buffers(operations, draw)
        order = KernelOrder(operations, buffers)
        pairs = [(b.maker, k) for b in buffers if b.maker is not None for k in (*b.readers, *b.followers)]
        for _ in range(2 * operations):
            assert order.peak == simulated_peak(order, operations, buffers)
            assert all(order.place_of(first) <= order.place_of(later) for first, later in pairs)
            order = order.fuse(*draw.sample(range(operations), 2)) or order
