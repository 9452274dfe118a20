"""Where results are not plain PyTorch's, a measurement says by how much, and at which operation that begins."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.captured_program import Body, Call, Program
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Plan
from remat_explorer.runtime import plan_runner
from remat_explorer.runtime.comparison import Comparison, FinalState, compare
from remat_explorer.runtime.first_difference import FingerprintRecorder
from remat_explorer.runtime.interpreter import StepOutcome
from remat_explorer.schedule import Schedule
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.thorough import thorough_but

Tamper = Callable[[torch.Tensor], torch.Tensor]


def swish(self: Any, x: torch.Tensor) -> torch.Tensor:
    """As libraries do that take another way while they are traced."""
    return nn.functional.silu(x) if type(x) is torch.Tensor else x * torch.sigmoid(x)


library: Any = torch.utils
library.counted = itertools.count(1)  # where no capture looks: elsewhere it is refused


class Wobbly(torch.autograd.Function):
    """A backward pass that gives something else each time."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * (1 + next(library.counted) / 64)


def network(middle: nn.Module) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    start = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3)]
    return nn.Sequential(*start, middle, nn.Conv2d(4, 4, 3), nn.GELU()), (torch.randn(2, 2, 6, 6),)


@pytest.fixture(scope="module")
def net() -> tuple[nn.Module, tuple[torch.Tensor], rx.Graph]:
    model, args = network(nn.Identity())
    return model, args, rx.capture(model, args)


def measured(schedule: Schedule, model: nn.Module, args: tuple[Any, ...], **options: Any) -> rx.runtime.Measurement:
    return rx.measure(solution_of(schedule), model, args, device="cpu", repeats=1, **options)


def comparison_of(measurement: rx.runtime.Measurement) -> Any:
    assert measurement.eager is not None
    return measurement.eager.comparison


@pytest.fixture
def tampered(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Tamper], None]:
    """What tampers with the result of an operation, wherever a program is traced to be measured."""

    def change(operation: int, tamper: Tamper) -> None:
        def tampering(*args: Any, **kwargs: Any) -> Program:
            program = trace(*args, **kwargs)
            body = program.bodies[operation]
            carriers = {*body.outputs.values()}
            made = next(call.node for call in reversed(body.calls) if call.node in carriers)

            def renewed(call: Call) -> Call:
                target = call.target
                return replace(call, target=lambda *args, **named: tamper(target(*args, **named)))

            def changed(k: int, body: Body) -> Body:
                calls = (renewed(call) if call.node is made else call for call in body.calls)
                return replace(body, calls=tuple(calls)) if k == operation else body

            bodies = tuple(changed(k, body) for k, body in enumerate(program.bodies))
            in_place = {k: changed(k, body) for k, body in program.in_place.items()}
            return replace(program, bodies=bodies, in_place=in_place)

        monkeypatch.setattr(plan_runner, "trace", tampering)

    return change


def test_another_formula_while_traced_is_named_with_its_line_and_the_size_of_a_rounding():
    model, args = network(Made(swish))
    found = comparison_of(measured(checkpoint_all(rx.capture(model, args)), model, args))
    assert not found.equal
    assert (found.begins.module, found.begins.operator, found.begins.phase) == ("4", "sigmoid", "forward")
    assert "the difference begins at '4 sigmoid' (forward, test_first_difference.py:" in str(found)
    (loss,) = [difference for difference in found.differences if difference.kind == "output"]
    assert 0 < loss.units < 8
    assert "units of float32's rounding)" in found.loss_text  # not far more


@pytest.mark.parametrize("seed", thorough_but([None, 1, 2], 1))
def test_whichever_operation_is_tampered_with_is_named(net, tampered, seed):
    model, args, graph = net
    single = [k for k in range(graph.n) if len(graph.outputs(k)) == 1 and "dropout" not in graph.operations[k].name]
    chosen = single if seed is None else np.random.default_rng(seed).choice(single, 4, replace=False)
    for operation in map(int, chosen):
        tampered(operation, lambda result: result * 1.001)
        schedule = checkpoint_all(graph) if seed is None else random_schedule(graph, seed, 0.6, 0.05)
        found = comparison_of(measured(schedule, model, args))
        assert found.begins.name == graph.operations[operation].name, found.begins
        assert (found.begins.others, found.begins.again, found.begins.repeats) == (0, False, True)
        assert "far more than a rounding" in str(found) or found.gradient_difference < 1e-6


def test_a_repetition_that_gives_something_else_is_named_as_one(net, tampered):
    model, args, graph = net
    schedule = random_schedule(graph, 0, 0.9)
    runs = schedule.R.astype(bool).sum(axis=0)
    forward = [k for k in range(graph.n) if graph.operations[k].phase == "forward" and len(graph.outputs(k)) == 1]
    operation = max(forward, key=lambda k: int(runs[k]))
    assert runs[operation] > 1

    calls = itertools.count()
    tampered(operation, lambda result: result * (2 if next(calls) % int(runs[operation]) else 1))
    found = comparison_of(measured(schedule, model, args))
    assert found.begins.again
    assert found.begins.operation == operation
    again = Plan.of(schedule).statements[found.begins.statement]
    assert Plan.of(schedule).text(again).startswith("recompute")
    assert f"is computed again (statement {found.begins.statement})" in str(found)


def test_an_implementation_with_a_tolerance_is_named_with_it():
    net = rx.models.load("residual_net", batch=2, image=16)
    graph = rx.capture(net.module, net.args, implementations="all")
    names = [[way.name for way in operation.implementations] for operation in graph.operations]
    codes = [1 + ("native" in ways and ways.index("native")) for ways in names]  # 1 is the default
    R = np.diag([0 if node.optional else code for node, code in zip(graph.operations, codes, strict=True)])
    found = comparison_of(measured(Schedule(graph, R, checkpoint_all(graph).S), net.module, net.args))
    way = graph.operations[found.begins.operation].implementations[codes[found.begins.operation] - 1]
    assert (found.begins.implementation, found.begins.tolerance) == ("native", way.tolerance)
    assert f"it ran as 'native', which may differ by {way.tolerance:.0e} of the largest entry" in str(found)


def test_results_that_plain_pytorch_does_not_repeat_are_told_apart_and_not_called_different(tampered):
    model, args = network(Made(lambda s, x: Wobbly.apply(x)))
    peers = rx.compare_peers(model, args, repeats=1, budgets=[1.0])
    (budget,) = [peer for peer in peers if peer.name == "pytorch-budget"]
    assert (budget.gradients_equal, budget.as_plain_varies) == (False, True)
    assert "gradients vary as eager's do, by up to" in str(budget)
    assert "DIFFER" not in str(budget)
    graph = rx.capture(model, args)
    measurement = measured(checkpoint_all(graph), model, args)
    found = comparison_of(measurement)
    assert (found.begins.repeats, found.begins.phase) == (False, "backward")
    assert found.begins_text.startswith("plain PyTorch gives other results when it runs again; the difference begins")
    assert "use_deterministic_algorithms" in found.begins_text
    assert (found.gradients_equal, found.as_plain_varies) == (False, True)
    assert found.gradients_text.startswith("vary as plain PyTorch's do, which differs from itself in 4 of 6, by at")
    assert "; the plan from it in 4 of 6, by at most" in found.gradients_text
    assert "DIFFER" not in str(measurement)
    assert (measurement.equal, measurement.sound) == (None, True)
    assert measurement.to_document()["as_plain_varies"]
    assert {entry["kind"] for entry in measurement.to_document()["varying"]} == {"gradient"}
    # a plan that is wrong is told beside results that vary
    tampered(graph.n - 1, lambda result: result + 1000)
    measurement = measured(checkpoint_all(graph), model, args)
    found = comparison_of(measurement)
    assert found.varying
    assert found.gradients_text.startswith("DIFFER in 1 of 6, by at most 1e+03")
    assert found.gradients_text.endswith("; 3 more vary in plain PyTorch, too")
    assert (measurement.equal, measurement.sound) == (False, False)


def test_without_memory_for_the_search_the_measurement_says_so(net, tampered, monkeypatch):
    model, args, graph = net
    tampered(0, lambda result: result * 1.001)

    def short(recorder: FingerprintRecorder, tensors: list[torch.Tensor]) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(FingerprintRecorder, "_look_at", short)  # of plain PyTorch's run
    found = comparison_of(measured(checkpoint_all(graph), model, args))
    assert not found.gradients_equal
    assert found.begins_text == "where the difference begins could not be found out: memory ran out"


def test_the_search_can_be_cancelled(net, tampered, monkeypatch):
    model, args, graph = net
    tampered(0, lambda result: result * 1.001)
    searching, observed = [], plan_runner.ObservedPlan
    monkeypatch.setattr(plan_runner, "ObservedPlan", lambda *given: searching.append(1) or observed(*given))
    with pytest.raises(ExecutionError, match="cancelled before 'compute 0 conv2d'"):
        measured(checkpoint_all(graph), model, args, cancelled=lambda: bool(searching))


def compared(mine: dict[str, Any], theirs: dict[str, Any], states: tuple[int, int] = (0, 0)) -> Comparison:
    """Of two runs with these gradients and states of the generator."""
    one, other = (
        FinalState(StepOutcome((torch.ones(()),), gradients, {}), [np.array([state])])
        for gradients, state in zip((mine, theirs), states, strict=True)
    )
    return compare(one, other, {})


def test_the_largest_difference_comes_first_beside_the_rounding_of_its_dtype():
    weight, bias, fine = torch.full((2,), 4.0), torch.ones(3), torch.ones(2, dtype=torch.float16)
    off = {"weight": weight + 4 * 2**-23, "bias": bias + 0.5, "fine": fine + 2**-10, "same": weight}
    found = compared(off, {"weight": weight, "bias": bias, "fine": fine, "same": weight})
    assert [difference.name for difference in found.differences] == ["bias", "fine", "weight"]
    assert [difference.units for difference in found.differences] == pytest.approx([0.5 / 1.5 / 2**-23, 1.0, 1.0], 1e-2)
    assert found.gradients_text == (
        "DIFFER in 3 of 4, by at most 0.5 (2.8e+06 units of float32's rounding: far more than a rounding) in 'bias', "
        "0.000977 in 'fine', 4.77e-07 in 'weight'"
    )
    small = torch.full((2,), 1e-7)
    found = compared({"weight": weight, "bias": -small}, {"weight": weight, "bias": small})
    words = "0.42 units of float32's rounding beside the largest gradient, 1.7e+07 beside its own"
    assert words in found.gradients_text
    found = compared({"weight": weight, "bias": small}, {"weight": weight, "fine": fine})
    assert found.gradients_text == (
        "DIFFER in 2 of 3, only the plan has one for 'bias', only plain PyTorch has one for 'fine'"
    )
    assert found.gradient_difference == float("inf")


def test_neither_a_gradient_that_plain_pytorch_repeats_nor_other_random_numbers_are_excused():
    one = torch.ones(2)
    found = compared({"a": one, "b": one + 0.1}, {"a": one, "b": one})
    own = compared({"a": one + 0.1, "b": one}, {"a": one, "b": one}).differences
    assert not replace(found, varying=own).as_plain_varies
    found = compared({"a": one}, {"a": 2 * one}, (1, 2))
    assert not replace(found, varying=found.differences).as_plain_varies
    assert not compared({}, {}, (1, 2)).equal
    assert str(found).endswith("random state DIFFERS")
