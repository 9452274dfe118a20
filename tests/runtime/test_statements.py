"""Statements of a plan: in place where the operand dies, with the same numbers, and as Python that people can read."""

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.captured_program import Program
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.generated_step import generate
from tests.runtime.exactness import CPU, Exactness
from tests.runtime.heads import recomputing
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.runtime.step_outcomes import assert_same, step_of
from tests.thorough import thorough_but


@pytest.fixture(scope="module")
def net() -> tuple[rx.models.LoadedModel, Program]:
    model = rx.models.load("residual_net", batch=2, image=16)
    return model, trace(model.module, model.args)


def in_place(plan: Plan) -> list[str]:
    statements = [s for s in plan.statements if isinstance(s, Compute) and s.overwrites is not None]
    return [plan.graph.operations[s.operation].name for s in statements]


def assert_storages_are_as_planned(program: Program, plan: Plan, net: rx.models.LoadedModel) -> None:
    """An output has the storage of the input that its statement overwrites, and else of none."""
    registers = program.bind(net.module, TrainingStep(net.module, net.args).tensors(net.args))
    with torch.no_grad():
        for statement in plan.statements:
            if not isinstance(statement, Compute):
                del registers[program.carriers[statement.value]]
                continue
            inputs = [program.carriers[v] for v in plan.graph.inputs(statement.operation)]
            before = {registers[node].untyped_storage().data_ptr(): node for node in inputs}
            program.body(statement).run(registers, statement.drops)
            for v in plan.graph.outputs(statement.operation):
                taken = before.get(registers[program.carriers[v]].untyped_storage().data_ptr())
                assert taken is (None if statement.overwrites is None else program.carriers[statement.overwrites])
                assert taken is None or taken not in registers


def test_sums_and_gradients_of_activations_run_in_place(net):
    model, program = net
    plan, again = (Plan.of(s) for s in (checkpoint_all(program.graph), random_schedule(program.graph, 0, dropped=0.6)))
    names = in_place(plan)
    assert len([name for name in names if "relu_backward" in name]) == 7
    assert len([name for name in names if "add" in name]) == 6
    assert len(in_place(again)) > 13
    for one in (plan, again):
        assert_storages_are_as_planned(program, one, model)


def test_an_operand_that_lives_on_is_not_overwritten():
    """GELU's backward pass reads GELU's input; once that is computed again, GELU may overwrite it."""
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), torch.randn(256, 64)
    graph = rx.capture(model, (x,))
    gelu = next(k for k, node in enumerate(graph.operations) if node.name == "1 gelu")
    assert graph.operations[gelu].default.overwrites is not None
    assert "1 gelu" not in in_place(Plan.of(checkpoint_all(graph)))
    dropped = random_schedule(graph, 0, dropped=1.0, flipped=0.0)
    assert "1 gelu" in in_place(Plan.of(dropped))
    for schedule in (checkpoint_all(graph), dropped):
        found = rx.measure(solution_of(schedule), model, (x,), device="cpu", repeats=1)
        np.testing.assert_array_equal(found.after, found.predicted.after)
        assert found.equal


def test_half_precision_is_exact_where_a_kernel_in_place_would_round_otherwise():
    torch.manual_seed(0)
    model = Made(lambda s, x: s.layer(x).abs().pow(2.3).sum(), layer=nn.Linear(16, 16).bfloat16())
    x = torch.randn(32, 16).bfloat16()
    found = rx.measure(rx.solve(rx.capture(model, (x,)), "100%"), model, (x,), device="cpu", repeats=1)
    assert found.equal


def test_every_computation_stands_above_its_calls_in_order(net):
    plan = Plan.of(random_schedule(net[1].graph, 0, 0.5))
    source = generate(plan, net[1], CPU).source
    shown = [line.split(": ", 1)[1] for line in source.splitlines() if line.strip().startswith("# stage")]
    expected = [plan.text(statement) for statement in plan.statements if isinstance(statement, Compute)]
    assert [line.rpartition(" (")[0] for line in shown] == expected
    ast.parse(source)


def test_a_plan_that_begins_the_backward_pass_too_early_cannot_train():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    program = trace(model, (torch.ones(2, 4),))
    graph = program.graph
    early = next(k for k in range(graph.n) if graph.operations[k].phase == "backward" and not graph.inputs(k))
    plan = Plan.from_sequence(graph, [(k, k, 1) for k in [early, *(k for k in range(graph.n) if k != early)]])
    with pytest.raises(ExecutionError, match=r"begins the backward pass with 'compute .*' before it has run 'compute"):
        ForwardBackward.of(plan, program, CPU)


def test_a_name_with_the_end_of_a_line_stays_in_its_comment():
    model = nn.Sequential()
    for name in ("first\nimport os", "second\r\u2028#\x0c"):
        model.add_module(name, nn.Linear(4, 4))
    source = rx.rematerialize(model, (torch.ones(2, 4),), budget="100%").rematerialization.source
    assert not any(isinstance(node, ast.Import) for node in ast.walk(ast.parse(source)))
    assert r"first\nimport os" in source


def test_an_overload_that_is_named_as_a_keyword_of_python_is_written():
    model = Made(lambda s, x: s.layer(x) * torch.empty_like(x).random_(0, 3), layer=nn.Linear(4, 4))
    exactness = Exactness(model, (torch.randn(3, 4),), loss=torch.sum)
    schedule = exactness.schedule(0, 0.8, 0.1)
    assert all(comparison.equal for comparison in exactness.compare(schedule).values())
    source = generate(Plan.of(schedule), exactness.program, CPU).source
    assert "getattr(torch.ops.aten.random, 'from')" in source


HEIGHT, WIDTH = 13, 17  # rows of 17 entries are no whole number of vectors
Write = Callable[[torch.Tensor], torch.Tensor]
WRITES: dict[str, Write] = {
    "sigmoid": lambda z: z.sigmoid_(),
    "gelu": torch.ops.aten.gelu_.default,
    "silu": lambda z: functional.silu(z, inplace=True),
    "power": lambda z: z.abs_().pow_(1.7),
    "sum with a factor": lambda z: z.add_(z.detach().cos(), alpha=0.37),
    "running product": lambda z: z.cumprod_(0),
    "masked": lambda z: z.masked_fill_(torch.ones(z.shape, dtype=torch.bool).triu(), 0.5),
    "rows added": lambda z: z.index_add_(0, torch.tensor([0, 1, 0]), torch.ones(3, z.shape[1])),
    "norms": lambda z: z.renorm_(2, 0, 1.0),
    "normal": lambda z: z.normal_(),
    "uniform": lambda z: z.uniform_(),
    "bernoulli": lambda z: z.bernoulli_(0.3),
    "dropout": lambda z: functional.dropout(z, 0.3, True, True),
    "random slopes": lambda z: functional.rrelu(z, 0.1, 0.3, True, True),
}
TAKEN: dict[str, Write] = {
    "part of rows": lambda y: y.clone()[:, 5 : 5 + WIDTH],
    "chunk": lambda y: torch.unsafe_chunk(y, 3, 1)[1],
    "transposed": lambda y: y.t().clone(),
}


def writing(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Writes to a part of what a layer gives, and computes with it what differs between whole vectors and entries."""
    z = self.take(torch.sigmoid(self.layer(x)) * 0.8 + 0.05)
    self.write(z)
    return torch.exp(z).sum() + (functional.gelu(z) * functional.silu(z)).sum() + functional.softplus(z).square().sum()


PAIRS = [(taken, write) for taken in TAKEN for write in WRITES]
QUICK = [("part of rows", "normal"), ("chunk", "silu"), ("chunk", "uniform"), ("chunk", "random slopes")]
QUICK += [("chunk", "sum with a factor"), ("transposed", "running product"), ("transposed", "dropout")]


@pytest.mark.parametrize(("taken", "write"), thorough_but(PAIRS, *QUICK))
def test_what_is_written_in_place_keeps_the_numbers_of_its_strides(taken, write):
    torch.manual_seed(1)
    model = Made(writing, layer=nn.Linear(6, 3 * WIDTH), take=TAKEN[taken], write=WRITES[write])
    x = torch.randn(HEIGHT, 6)
    assert_same(step_of(rx.rematerialize(model, (x,), budget="100%"), x), step_of(model, x))


def test_random_numbers_written_to_a_part_of_rows_are_drawn_again_the_same():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            noise = torch.zeros(64, 24)
            noise[:, :17].normal_()
            x = torch.tanh(layer(x)) * noise.exp()
        return x

    torch.manual_seed(0)
    model, x = Made(forward, layers=nn.ModuleList(nn.Linear(24, 24) for _ in range(4))), torch.randn(64, 24)
    assert_same(step_of(recomputing(model, x), x), step_of(model, x))
