"""Plans that choose implementations, executed: exact ones bit for bit, others within their tolerance, peak as said."""

from __future__ import annotations

import pytest
import torch

from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.checker import replay
from remat_explorer.plan import Plan
from remat_explorer.runtime.comparison import compare
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter
from tests.capture.implementations.nets import NETS, plan_by, preferring
from tests.capture.implementations.runner import ROADS, Runner, used
from tests.runtime.exactness import CPU
from tests.thorough import thorough_but

# By all roads on one net, and in a training step on all.
BY_ROADS = [(name, road) for name in NETS for road in ROADS]
QUICK = [(name, road) for name, road in BY_ROADS if name == "pooled" or road == "trained"]


@pytest.mark.parametrize(("name", "road"), thorough_but(BY_ROADS, *QUICK))
def test_exact_implementations_have_the_results_of_plain_pytorch_bit_for_bit(name, road):
    runner = Runner(name, "exact")
    seen: set[str] = set()
    for plan in runner.plans():
        replay(plan)
        seen |= used(plan)
        comparison = compare(runner.by(plan, road), runner.reference, runner.initial)
        assert comparison.equal, (comparison, used(plan))
    expected = {
        "pooled": {
            "from bits",
            "with places",
            "maxima alone",
            "from places",
            "from places apart",
            "packed_places",
            "with state",
            "drawn again",
            "indices recomputed",
            "from the gradient",
        },
        "residual": {"from bits", "with places", "from places", "from the gradient"},
        "attentive": {"from bits", "recomputed", "packed_mask", "relu_bits"},
    }
    assert seen >= expected[name]


@pytest.mark.parametrize(("name", "road"), thorough_but(BY_ROADS, *QUICK))
def test_all_implementations_have_gradients_within_the_tolerance(name, road):
    runner = Runner(name, "all")
    for plan in runner.plans():
        replay(plan)
        found = runner.by(plan, road)
        comparison = compare(found, runner.reference, runner.initial)
        assert comparison.buffers_equal or comparison.gradient_difference > 0
        assert comparison.random_state_equal
        for key, gradient in runner.reference.outcome.gradients.items():
            size = gradient.abs().max().item()
            torch.testing.assert_close(found.outcome.gradients[key], gradient, rtol=0, atol=1e-4 * size + 1e-6)
    assert {"from the output", "from log sum exp"} <= set().union(*map(used, runner.plans())) or name == "residual"


def test_a_recomputation_with_saved_statistics_gives_the_same_gradients():
    runner = Runner("pooled", "exact")
    graph = runner.graph
    k = next(k for k, n in enumerate(graph.operations) if n.implementations[-1].name == "with saved statistics")
    code = len(graph.operations[k].implementations)
    default = [(0, int(m), 1) for m in graph.mandatory]
    reader = max(j for v in graph.outputs(k, code) for j in graph.readers[v])
    at = next(i for i, (_, m, _) in enumerate(default) if m == reader)
    plan = Plan.from_sequence(graph, [*default[:at], (0, k, code), *default[at:]])
    replay(plan)
    for road in ROADS:
        assert compare(runner.by(plan, road), runner.reference, runner.initial).equal
    assert plan.peak <= Plan.from_sequence(graph, default).peak


@pytest.mark.parametrize("kinds", ["exact", "all"])
def test_channels_last_in_memory_and_half_precision_have_their_results_too(kinds, monkeypatch):
    def last() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        model, (x, y) = NETS["pooled"]()
        form = torch.channels_last
        return model.to(memory_format=form), (x.contiguous(memory_format=form), y)  # type: ignore[call-overload]

    monkeypatch.setitem(NETS, "last", last)
    runners = [Runner("last", kinds)]
    with torch.autocast("cpu", torch.bfloat16):
        runners.append(Runner("residual", kinds))
        for runner, largest in zip(runners, (1e-6, 1e-2), strict=True):
            with torch.autocast("cpu", enabled=runner is not runners[0]):
                for plan in runner.plans(count=1):
                    comparison = compare(runner.by(plan, "generated"), runner.reference, runner.initial)
                    assert comparison.gradient_difference <= (0 if kinds == "exact" else largest), used(plan)
                    assert comparison.random_state_equal


def test_what_generated_code_calls_is_written_in_it():
    runner = Runner("pooled", "exact")
    plan = plan_by(runner.graph, preferring(runner.graph, "with places", "from places", "from bits"))
    source = generate(plan, runner.program, CPU).source
    assert "masked_gradient" in source
    assert "max_pool_with_places" in source
    assert "relu_bits" in source


def test_generated_and_interpreted_runs_have_the_same_memory():
    runner = Runner("residual", "exact")
    plan = runner.plans()[3]
    peaks = []
    for run in (Interpreter(plan, runner.program, CPU).run, generate(plan, runner.program, CPU).run):
        registers = runner.program.bind(runner.model, runner.tensors)
        with CpuMeter() as meter, meter.section():
            result = run(registers)
        del result
        peaks.append(meter.readings[0].highest - meter.readings[0].before)
    assert peaks[0] == peaks[1]
