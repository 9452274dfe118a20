"""Where results are not plain PyTorch's, a measurement says by how much, and at which operation that begins."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
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
from remat_explorer.runtime import plan_bench
from remat_explorer.runtime.comparison import Comparison, FinalState, compare
from remat_explorer.runtime.first_difference import FingerprintRecorder, fingerprint
from remat_explorer.runtime.interpreter import StepOutcome
from remat_explorer.schedule import Schedule
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.thorough import thorough_but

Tamper = Callable[[Callable[..., Any]], Callable[..., Any]]


class Swish(nn.Module):
    """As libraries do that take another way while they are traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if type(x) is not torch.Tensor:
            return x * torch.sigmoid(x)
        return nn.functional.silu(x)


class Wobbly(torch.autograd.Function):
    """A backward pass that gives something else each time."""

    calls = itertools.count(1)  # a number that is counted in backward would be refused

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * (1 + next(Wobbly.calls) / 64)


class Wobble(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Wobbly.apply(x)  # type: ignore[no-any-return]


def network(middle: nn.Module) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    start = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3)]
    return nn.Sequential(*start, middle, nn.Conv2d(4, 4, 3), nn.GELU()), (torch.randn(2, 2, 6, 6),)


def measured(schedule: Schedule, model: nn.Module, args: tuple[Any, ...], **options: Any) -> rx.runtime.Measurement:
    return rx.measure(solution_of(schedule), model, args, device="cpu", repeats=1, **options)


def comparison_of(measurement: rx.runtime.Measurement) -> Comparison:
    assert measurement.eager is not None
    return measurement.eager.comparison


@pytest.fixture
def tampered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, Tamper], None]]:
    """What makes the last call of an operation another one, wherever a program is traced to be measured."""

    def change(operation: int, tamper: Tamper) -> None:
        def tampering(*args: Any, **kwargs: Any) -> Program:
            program = trace(*args, **kwargs)
            body = program.bodies[operation]
            carriers = {*body.outputs.values()}
            made = next(call.node for call in reversed(body.calls) if call.node in carriers)

            def changed(body: Body) -> Body:
                def renewed(call: Call) -> Call:
                    return dataclasses.replace(call, target=tamper(call.target)) if call.node is made else call

                return dataclasses.replace(body, calls=tuple(renewed(call) for call in body.calls))

            bodies = [changed(body) if k == operation else body for k, body in enumerate(program.bodies)]
            in_place = {k: changed(body) if k == operation else body for k, body in program.in_place.items()}
            return dataclasses.replace(program, bodies=tuple(bodies), in_place=in_place)

        monkeypatch.setattr(plan_bench, "trace", tampering)

    return change  # type: ignore[return-value]


def enlarged(target: Callable[..., Any]) -> Callable[..., Any]:
    """Gives one thousandth too much."""
    return lambda *args, **kwargs: target(*args, **kwargs) * 1.001


def test_another_formula_while_traced_is_named_with_its_line_and_the_size_of_a_rounding():
    model, args = network(Swish())
    found = comparison_of(measured(checkpoint_all(rx.capture(model, args)), model, args))
    assert not found.equal
    assert found.begins is not None
    assert (found.begins.module, found.begins.operator, found.begins.phase) == ("4", "sigmoid", "forward")
    assert "the difference begins at '4 sigmoid' (forward, test_first_difference.py:" in str(found)
    (loss,) = [difference for difference in found.differences if difference.kind == "output"]
    assert loss.units is not None
    assert 0 < loss.units < 8
    assert "units of float32's rounding)" in found.loss_text
    assert "far more" not in found.loss_text


@pytest.mark.parametrize("seed", thorough_but([None, 1, 2], 1))
def test_whichever_operation_is_tampered_with_is_named(tampered, seed):
    model, args = network(nn.Identity())
    graph = rx.capture(model, args)
    single = [k for k in range(graph.n) if len(graph.outputs(k)) == 1 and "dropout" not in graph.operations[k].name]
    chosen = single if seed is None else np.random.default_rng(seed).choice(single, 4, replace=False)
    for operation in map(int, chosen):
        tampered(operation, enlarged)
        schedule = checkpoint_all(graph) if seed is None else random_schedule(graph, seed, 0.6, 0.05)
        found = comparison_of(measured(schedule, model, args))
        assert found.begins is not None
        assert found.begins.name == graph.operations[operation].name, found.begins
        assert found.begins.others == 0
        assert not found.begins.again
        assert found.begins.repeats
        assert "far more than a rounding" in str(found) or found.gradient_difference < 1e-6


def test_a_repetition_that_gives_something_else_is_named_as_one(tampered):
    model, args = network(nn.Identity())
    graph = rx.capture(model, args)
    schedule = random_schedule(graph, 0, 0.9)
    runs = schedule.R.astype(bool).sum(axis=0)
    forward = [k for k in range(graph.n) if graph.operations[k].phase == "forward" and len(graph.outputs(k)) == 1]
    operation = max(forward, key=lambda k: int(runs[k]))
    assert runs[operation] > 1

    def spoiled_later(target: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return target(*args, **kwargs) * (1 if calls % int(runs[operation]) == 1 else 2)

        return call

    tampered(operation, spoiled_later)
    found = comparison_of(measured(schedule, model, args))
    assert found.begins is not None
    assert found.begins.again
    assert found.begins.operation == operation
    assert found.begins.statement is not None
    again = Plan.of(schedule).statements[found.begins.statement]
    assert Plan.of(schedule).text(again).startswith("recompute")
    assert f"is computed again (statement {found.begins.statement})" in str(found)


def test_an_implementation_with_a_tolerance_is_named_with_it():
    net = rx.models.load("residual_net", batch=4, image=32)
    graph = rx.capture(net.module, net.args, implementations="all")
    names = [[way.name for way in operation.implementations] for operation in graph.operations]
    codes = [1 + ("native" in ways and ways.index("native")) for ways in names]  # 1 is the default
    R = np.diag([0 if node.optional else code for node, code in zip(graph.operations, codes, strict=True)])
    found = comparison_of(measured(Schedule(graph, R, checkpoint_all(graph).S), net.module, net.args))
    assert found.begins is not None
    assert found.begins.operation is not None
    way = graph.operations[found.begins.operation].implementations[codes[found.begins.operation] - 1]
    assert (found.begins.implementation, found.begins.tolerance) == ("native", way.tolerance)
    assert f"it ran as 'native', which may differ by {way.tolerance:.0e} of the largest entry" in str(found)


def test_plain_pytorch_that_does_not_repeat_itself_is_told_apart():
    model, args = network(Wobble())
    found = comparison_of(measured(checkpoint_all(rx.capture(model, args)), model, args))
    assert found.begins is not None
    assert found.begins.repeats is False
    assert found.begins_text.startswith(
        "plain PyTorch gives other results when it runs again; the difference begins at"
    )
    assert found.begins.phase == "backward"


def test_results_that_plain_pytorch_does_not_repeat_are_not_called_different():
    model, args = network(Wobble())
    measurement = measured(checkpoint_all(rx.capture(model, args)), model, args)
    found = comparison_of(measurement)
    assert not found.gradients_equal
    assert found.as_plain_varies
    assert found.gradients_text.startswith(
        "vary as plain PyTorch's do, which differs from itself in 4 of 6, by at most"
    )
    assert "; the plan from it in 4 of 6, by at most" in found.gradients_text
    assert "use_deterministic_algorithms" in found.begins_text
    assert "DIFFER" not in str(measurement)
    assert (measurement.equal, measurement.sound) == (None, True)
    assert measurement.to_document()["as_plain_varies"]
    assert {entry["kind"] for entry in measurement.to_document()["varying"]} == {"gradient"}


def test_a_plan_that_is_wrong_is_told_beside_results_that_vary(tampered):
    model, args = network(Wobble())
    graph = rx.capture(model, args)
    tampered(graph.n - 1, lambda target: lambda *given, **named: target(*given, **named) + 1000)
    measurement = measured(checkpoint_all(graph), model, args)
    found = comparison_of(measurement)
    assert found.varying
    assert found.gradients_text.startswith("DIFFER in 1 of 6, by at most 1e+03")
    assert found.gradients_text.endswith("; 3 more vary in plain PyTorch, too")
    assert (measurement.equal, measurement.sound) == (False, False)


def test_a_gradient_that_plain_pytorch_repeats_is_not_excused_by_another_that_varies():
    one = torch.ones(2)
    found = compare(final({"a": one, "b": one + 0.1}), final({"a": one, "b": one}), {})
    own = compare(final({"a": one + 0.1, "b": one}), final({"a": one, "b": one}), {}).differences
    assert not dataclasses.replace(found, varying=own).as_plain_varies
    assert dataclasses.replace(found, varying=found.differences).as_plain_varies


def test_other_random_numbers_are_not_excused():
    one = torch.ones(2)
    found = compare(final({"a": one}, 1), final({"a": 2 * one}, 2), {})
    assert not dataclasses.replace(found, varying=found.differences).as_plain_varies


def test_peers_are_told_that_eager_does_not_repeat_itself():
    model, args = network(Wobble())
    peers = rx.compare_peers(model, args, repeats=1, budgets=[1.0])
    (budget,) = [peer for peer in peers if peer.name == "pytorch-budget"]
    assert (budget.gradients_equal, budget.as_plain_varies) == (False, True)
    assert "gradients vary as eager's do, by up to" in str(budget)
    assert "DIFFER" not in str(budget)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_a_gpu_sums_in_any_order_are_no_difference():
    torch.manual_seed(0)
    model, words = nn.Sequential(nn.Embedding(4, 64), nn.Linear(64, 64)).cuda(), torch.randint(4, (65536,)).cuda()
    places = torch.randint(16, (65536, 64)).cuda()

    def loss(y: torch.Tensor) -> torch.Tensor:  # added up atomically
        return torch.zeros(16, 64, device="cuda").scatter_add(0, places, y).square().mean()

    graph = rx.capture(model, (words,), loss=loss)
    measurement = rx.measure(solution_of(checkpoint_all(graph)), model, (words,), loss=loss, repeats=1)
    assert measurement.equal is not False
    assert "DIFFER" not in str(measurement)


def test_without_memory_for_the_search_the_measurement_says_so(tampered, monkeypatch):
    model, args = network(nn.Identity())
    graph = rx.capture(model, args)
    tampered(0, enlarged)

    def short(recorder: FingerprintRecorder, tensors: list[torch.Tensor]) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(FingerprintRecorder, "_look_at", short)  # of plain PyTorch's run
    found = comparison_of(measured(checkpoint_all(graph), model, args))
    assert not found.gradients_equal
    assert found.begins_text == "where the difference begins could not be found out: memory ran out"


def test_the_search_can_be_cancelled(tampered, monkeypatch):
    model, args = network(nn.Identity())
    graph = rx.capture(model, args)
    tampered(0, enlarged)
    searching = []
    observed = plan_bench.ObservedPlan
    monkeypatch.setattr(plan_bench, "ObservedPlan", lambda *given: searching.append(1) or observed(*given))
    with pytest.raises(ExecutionError, match="cancelled before 'compute 0 conv2d'"):
        measured(checkpoint_all(graph), model, args, cancelled=lambda: bool(searching))


def test_memory_that_nobody_wrote_to_is_not_taken_for_a_result():
    with FingerprintRecorder({(torch.float32, torch.Size([64]))}) as seen:
        memory = torch.empty(64)
        assert memory.view(8, 8).view(64) is not memory
        assert seen.fingerprints == set()
        memory.fill_(2)
    assert seen.fingerprints == {fingerprint(torch.full((64,), 2.0))}


def test_nobody_searches_where_results_are_equal(monkeypatch):
    model, args = network(nn.Identity())
    monkeypatch.delattr(plan_bench, "ObservedPlan")
    found = comparison_of(measured(checkpoint_all(rx.capture(model, args)), model, args))
    assert found.equal
    assert found.begins is None
    assert found.differences == ()


def final(gradients: dict[str, torch.Tensor], state: int = 0) -> FinalState:
    return FinalState(StepOutcome((torch.ones(()),), gradients, {}), [np.array([state])])


def test_the_largest_difference_comes_first_beside_the_rounding_of_its_dtype():
    weight, bias, fine = torch.full((2,), 4.0), torch.ones(3), torch.ones(2, dtype=torch.float16)
    off = {"weight": weight + 4 * 2**-23, "bias": bias + 0.5, "fine": fine + 2**-10, "same": weight}
    found = compare(final(off), final({"weight": weight, "bias": bias, "fine": fine, "same": weight}), {})
    assert [difference.name for difference in found.differences] == ["bias", "fine", "weight"]
    assert [difference.units for difference in found.differences] == pytest.approx([0.5 / 1.5 / 2**-23, 1.0, 1.0], 1e-2)
    assert found.gradients_text == (
        "DIFFER in 3 of 4, by at most 0.5 (2.8e+06 units of float32's rounding: far more than a rounding) in 'bias', "
        "0.000977 in 'fine', 4.77e-07 in 'weight'"
    )


def test_what_rounding_left_of_larger_gradients_is_not_called_far_more_than_a_rounding():
    weight, bias = torch.full((2,), 4.0), torch.full((2,), 1e-7)
    found = compare(final({"weight": weight, "bias": -bias}), final({"weight": weight, "bias": bias}), {})
    assert (
        "0.42 units of float32's rounding beside the largest gradient, 1.7e+07 beside its own" in found.gradients_text
    )


def test_gradients_that_only_one_run_has_are_named():
    one = torch.ones(2)
    found = compare(final({"a": one, "b": one}), final({"a": one, "c": one}), {})
    assert found.gradients_text == "DIFFER in 2 of 3, only the plan has one for 'b', only plain PyTorch has one for 'c'"
    assert found.gradient_difference == float("inf")


def test_random_numbers_alone_can_differ():
    found = compare(final({}, 1), final({}, 2), {})
    assert not found.equal
    assert str(found).endswith("random state DIFFERS")


def test_the_document_of_a_difference_is_json_and_says_all(tampered):
    model, args = network(nn.Identity())
    graph = rx.capture(model, args)
    tampered(graph.n - 1, lambda target: lambda *args, **kwargs: target(*args, **kwargs) / 0)
    measurement = measured(checkpoint_all(graph), model, args)
    document = json.loads(json.dumps(measurement.to_document(), allow_nan=False))
    assert document["gradient_difference"] is None  # infinite
    assert document["difference_begins"]["operation"] == graph.n - 1
    assert document["difference_begins"]["text"] in str(measurement)
    (difference,) = document["differences"]
    assert difference["kind"] == "gradient"
    assert (len(document["differences"]), document["gradients_compared"]) == (1, 6)
