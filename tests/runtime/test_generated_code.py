"""Generated code: the interpreter's results and peak, in Python that people can read."""

from __future__ import annotations

import ast

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.emitter import split_point
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter
from tests.runtime.exactness import CPU, Exactness
from tests.runtime.random_schedules import random_schedule


@pytest.fixture(scope="module")
def net() -> Exactness:
    loaded = rx.models.load("residual_net", batch=4, image=16)
    return Exactness(loaded.module, loaded.args)


@pytest.mark.parametrize("seed", range(3))
def test_its_peak_is_the_interpreters_to_the_byte(net, seed):
    plan = Plan.of(random_schedule(net.graph, seed, 0.5))
    interpreter, generated = Interpreter(plan, net.program, CPU), generate(plan, net.program, CPU)
    peaks = []
    for run in (interpreter.run, generated.run):
        run(net.program.bind(net.model, net.tensors))
        registers = net.program.bind(net.model, net.tensors)
        with CpuMeter() as meter, meter.section():
            run(registers)
        peaks.append(meter.readings[0].highest)
    assert peaks[0] == peaks[1]


def test_every_computation_stands_above_its_calls_in_order(net):
    plan = Plan.of(random_schedule(net.graph, 0, 0.5))
    source = generate(plan, net.program, CPU).source
    shown = [line.split(": ", 1)[1] for line in source.splitlines() if line.strip().startswith("# stage")]
    expected = [plan.text(statement) for statement in plan.statements if isinstance(statement, Compute)]
    assert [line.rpartition(" (")[0] for line in shown] == expected
    ast.parse(source)


def test_it_is_written_atomically_and_never_half(net, tmp_path):
    step = generate(Plan.of(random_schedule(net.graph, 0)), net.program, CPU)
    path = step.save(tmp_path / "step.py")
    assert path.read_text() == step.source
    assert [entry.name for entry in tmp_path.iterdir()] == ["step.py"]


def test_the_forward_half_ends_with_the_last_first_run_of_the_forward_pass(net):
    plan = Plan.of(random_schedule(net.graph, 0, 0.6))
    cut = split_point(plan)
    first = [s for s in plan.statements[cut:] if isinstance(s, Compute) and s.first]
    assert all(net.graph.operations[s.operation].phase == "backward" for s in first)
    before = [s for s in plan.statements[:cut] if isinstance(s, Compute)]
    assert net.graph.operations[before[-1].operation].phase == "forward"
    assert before[-1].first


def test_a_plan_that_begins_the_backward_pass_too_early_cannot_train():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    exactness = Exactness(model, (torch.ones(2, 4),))
    graph = exactness.graph
    early = next(k for k in range(graph.n) if graph.operations[k].phase == "backward" and not graph.inputs(k))
    plan = Plan.from_sequence(graph, [(k, k, 1) for k in [early, *(k for k in range(graph.n) if k != early)]])
    with pytest.raises(ExecutionError, match=r"begins the backward pass with 'compute .*' before it has run 'compute"):
        ForwardBackward.of(plan, exactness.program, CPU)


class Tree(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.imports = 0
        self.visit(ast.parse(source))

    def visit_Import(self, node: ast.Import) -> None:
        self.imports += 1


def test_a_name_with_the_end_of_a_line_stays_in_its_comment():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("first\nimport os", nn.Linear(4, 4))
            self.add_module("second\r\u2028#\x0c", nn.Linear(4, 4))

        def forward(self, x):
            for layer in self.children():
                x = layer(x).relu()
            return x

    model, x = Named(), torch.ones(2, 4)
    source = rx.rematerialize(model, (x,), budget="100%").rematerialization.source
    assert Tree(source).imports == 0
    assert r"first\nimport os" in source


class RandomWholeNumbers(nn.Linear):
    def forward(self, x):
        return super().forward(x) * torch.empty_like(x).random_(0, 3)


def test_an_overload_that_is_named_as_a_keyword_of_python_is_written():
    x = torch.randn(3, 4)
    exactness = Exactness(RandomWholeNumbers(4, 4), (x,), loss=torch.sum)
    for road, comparison in exactness.compare(exactness.schedule(0, 0.8, 0.1)).items():
        assert comparison.equal, (road, comparison)
    source = generate(Plan.of(exactness.schedule(0, 0.8, 0.1)), exactness.program, CPU).source
    assert "getattr(torch.ops.aten.random, 'from')" in source
