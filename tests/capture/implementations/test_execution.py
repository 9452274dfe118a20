"""Plans that choose implementations, executed: exact ones bit for bit, others within their tolerance, peak as said."""

from functools import cache

import pytest
import torch

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.checker import replay
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.comparison import compare
from tests.capture.implementations import nets
from tests.capture.implementations.nets import ROADS, Runner, measured, plan_by, preferring, used
from tests.runtime.exactness import SEED
from tests.thorough import thorough_but

# By all roads on one net, and in a training step on all.
BY_ROADS = [(name, road) for name in nets.NETS for road in ROADS]
QUICK = [(name, road) for name, road in BY_ROADS if name == "pooled" or road == "trained"]
EXPECTED = {
    "pooled": {
        *("from bits", "with places", "maxima alone", "from places", "from places apart", "packed_places"),
        *("with state", "drawn again", "indices recomputed", "from the gradient"),
    },
    "residual": {"from bits", "with places", "from places", "from the gradient"},
    "attentive": {"from bits", "recomputed", "packed_mask", "relu_bits"},
}

runner_of = cache(Runner)


@pytest.mark.parametrize(("name", "road"), thorough_but(BY_ROADS, *QUICK))
def test_exact_implementations_have_the_results_of_plain_pytorch_bit_for_bit(name, road):
    runner = runner_of(name, "exact")
    seen: set[str] = set()
    for plan in runner.plans():
        replay(plan)
        seen |= used(plan)
        comparison = compare(runner.by(plan, road), runner.reference, runner.initial)
        assert comparison.equal, (comparison, used(plan))
    assert seen >= EXPECTED[name]


@pytest.mark.parametrize(("name", "road"), thorough_but(BY_ROADS, *QUICK))
def test_all_implementations_have_gradients_within_the_tolerance(name, road):
    runner, seen = runner_of(name, "all"), set()
    for plan in runner.plans():
        replay(plan)
        seen |= used(plan)
        found = runner.by(plan, road)
        assert compare(found, runner.reference, runner.initial).random_state_equal
        for key, gradient in runner.reference.outcome.gradients.items():
            size = gradient.abs().max().item()
            torch.testing.assert_close(found.outcome.gradients[key], gradient, rtol=0, atol=1e-4 * size + 1e-6)
    assert seen >= {"from the output", "from log sum exp"} or name == "residual"


def test_a_recomputation_with_saved_statistics_gives_the_same_gradients():
    runner = runner_of("pooled", "exact")
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
def test_channels_last_in_memory_and_half_precision_have_their_results_too(kinds):
    def last() -> nets.Net:
        model, (x, y) = nets.NETS["pooled"]()
        form = torch.channels_last
        return model.to(memory_format=form), (x.contiguous(memory_format=form), y)  # type: ignore[call-overload]

    for net, half, largest in ((last, False, 1e-6), ("residual", True, 1e-2)):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            runner = Runner(net, kinds)
            for plan in runner.plans(count=1)[1:5]:
                comparison = compare(runner.by(plan, "generated"), runner.reference, runner.initial)
                assert comparison.gradient_difference <= (0 if kinds == "exact" else largest), used(plan)
                assert comparison.random_state_equal


SIZES = {"pooled": (48, 10), "residual": (48, 10), "attentive": (12, 3)}


@pytest.mark.parametrize("name", thorough_but(nets.NETS, "pooled", "attentive"))
def test_the_peak_of_every_choice_is_the_predicted_one(name):
    model, args = nets.NETS[name](*SIZES[name])
    program = trace(model, args, options=rx.capture(model, args, implementations="all").options)
    graph = rx.profile(program.graph, model, args, repeats=1)
    names = sorted({way.name for node in graph.operations for way in node.implementations} - {"default"})
    peaks: dict[str, int] = {}
    groups = [("default",), *nets.TOGETHER, *((name,) for name in names), ("with places", "from places", "from bits")]
    for group in groups:
        plan = plan_by(graph, preferring(graph, *group))
        peaks[group[0]] = measured(plan, program, model, args)
        assert abs(peaks[group[0]] - plan.peak) <= 0.001 * plan.peak, group
    if name != "attentive":
        assert min(peaks.values()) < 0.95 * peaks["default"]


def test_a_profile_has_numbers_of_every_implementation_and_is_kept():
    model, args = nets.NETS["pooled"]()
    graph = rx.capture(model, args, implementations="all")
    steps: list[tuple[int, int]] = []
    first = rx.profile(graph, model, args, repeats=1, on_progress=lambda done, total: steps.append((done, total)))
    ways = [way for node in first.operations for way in node.implementations]
    assert all(way.cost > 0 for way in ways)
    assert steps[-1][0] == steps[-1][1]
    assert rx.profile(graph, model, args, repeats=1) == first


def test_chunks_need_less_workspace_and_lean_overwrites_an_input_as_its_plan_says():
    model, args = nets.NETS["pooled"](64, 16)
    graph = rx.profile(rx.capture(model, args, implementations=["lean", "chunks"]), model, args, repeats=1)
    ways = [(way, node.default) for node in graph.operations for way in node.implementations[1:]]
    for name in ("lean", "in chunks of 1"):
        assert any(way.workspace < default.workspace / 4 for way, default in ways if way.name == name)
    lean = {k for k, node in enumerate(graph.operations) for way in node.implementations if way.name == "lean"}
    plan = plan_by(graph, preferring(graph, "lean"))
    replay(plan)
    taken = [s.overwrites for s in plan.statements if isinstance(s, Compute) and s.operation in lean]
    assert len(taken) == 2
    assert None not in taken
    program = trace(model, args, options=graph.options)
    assert abs(measured(plan, program, model, args) - plan.peak) <= 0.001 * plan.peak


@pytest.fixture(scope="module")
def half():
    """A net, and a joint schedule of it within 0.55 of the default peak, from all kinds of implementations."""
    model, args = nets.NETS["pooled"](128, 16)
    graph = rx.profile(rx.capture(model, args, implementations="all"), model, args, repeats=1)
    return model, args, nets.first_of_monet(graph, int(0.55 * plan_by(graph, lambda k, n: 1).peak))


def test_all_kinds_together_halve_the_peak_and_it_is_measured_as_predicted(half):
    model, args, solution = half
    measurement = rx.measure(solution, model, args, repeats=1)
    assert abs(int(measurement.during.max()) - solution.plan.peak) <= 0.001 * solution.plan.peak
    assert measurement.eager is not None
    assert measurement.eager.comparison.gradient_difference < 1e-5
    assert measurement.eager.comparison.loss_difference < 1e-6  # a convolution by another kernel rounds differently


def test_a_solution_with_implementations_trains_a_model_and_comes_back_from_its_file(half, tmp_path):
    model, args, solution = half
    path = tmp_path / "solution.json"
    solution.save(str(path))
    torch.manual_seed(SEED)  # for dropout
    model(*args).backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    trained = rx.rematerialize(model, args, solution=str(path), budget="60%")
    torch.manual_seed(SEED)
    trained(*args).backward()
    for name, parameter in model.named_parameters():
        atol = 1e-4 * expected[name].abs().max().item() + 1e-6  # of a bias before a normalization it is 0
        torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=atol)
