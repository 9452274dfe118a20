"""Profiles of implementations, and that plans which choose among them need the memory that they say."""

from __future__ import annotations

import pytest
import torch

import remat_explorer as rx
from remat_explorer.capture import trace
from tests.capture.implementations.nets import NETS, TOGETHER, plan_by, preferring
from tests.capture.implementations.runner import measured
from tests.runtime.exactness import SEED
from tests.thorough import thorough_but

SIZES = {"pooled": (48, 10), "residual": (48, 10), "attentive": (12, 3)}


@pytest.mark.parametrize("name", thorough_but(NETS, "pooled", "attentive"))
def test_the_peak_of_every_choice_is_the_predicted_one(name):
    model, args = NETS[name](*SIZES[name])
    program = trace(model, args, options=rx.capture(model, args, implementations="all").options)
    graph = rx.profile(program.graph, model, args, repeats=1)
    names = sorted({way.name for node in graph.operations for way in node.implementations} - {"default"})
    peaks: dict[str, int] = {}
    for group in (("default",), *TOGETHER, *((name,) for name in names), ("with places", "from places", "from bits")):
        plan = plan_by(graph, preferring(graph, *group))
        peaks[group[0]] = measured(plan, program, model, args)
        assert abs(peaks[group[0]] - plan.peak) <= 0.001 * plan.peak, group
    if name != "attentive":
        assert min(peaks.values()) < 0.95 * peaks["default"]


def test_a_profile_has_numbers_of_every_implementation_and_is_kept():
    model, args = NETS["pooled"]()
    graph = rx.capture(model, args, implementations="all")
    steps: list[tuple[int, int]] = []
    first = rx.profile(graph, model, args, repeats=1, on_progress=lambda done, total: steps.append((done, total)))
    ways = [way for node in first.operations for way in node.implementations]
    assert all(way.cost > 0 for way in ways)
    assert steps[-1][0] == steps[-1][1]
    assert [way.name for way in ways] == [way.name for node in graph.operations for way in node.implementations]
    assert rx.profile(graph, model, args, repeats=1) == first
    plain = rx.profile(rx.capture(model, args), model, args, repeats=1)
    assert not plain.has_choices


def test_lean_and_chunks_need_less_workspace_than_the_default():
    model, args = NETS["pooled"](64, 16)
    graph = rx.profile(rx.capture(model, args, implementations=["lean", "chunks"]), model, args, repeats=1)
    by_name = {}
    for node in graph.operations:
        for way in node.implementations[1:]:
            by_name.setdefault(way.name, []).append((way.workspace, node.default.workspace))
    assert any(mine < theirs / 4 for mine, theirs in by_name["lean"])
    assert any(mine < theirs / 4 for mine, theirs in by_name["in chunks of 1"])


def test_measuring_a_solution_says_what_its_implementations_need():
    model, args = NETS["residual"](32, 6)
    graph = rx.profile(rx.capture(model, args, implementations="exact"), model, args, repeats=1)
    solution = rx.solve(graph, 2**40, "checkpoint-all")
    measurement = rx.measure(solution, model, args, repeats=1)
    assert measurement.eager is not None
    assert measurement.eager.comparison.equal


@pytest.fixture(scope="module")
def half():
    """A net, and a joint schedule of it within 0.55 of the default peak, from all kinds of implementations."""
    model, args = NETS["pooled"](128, 16)
    graph = rx.profile(rx.capture(model, args, implementations="all"), model, args, repeats=1)
    budget, heard = int(0.55 * plan_by(graph, lambda k, n: 1).peak), []
    solution = rx.solve(
        graph,
        budget,
        "monet",
        time_limit=20,
        on_progress=lambda progress: heard.append(progress.schedule),
        cancelled=lambda: any(schedule is not None for schedule in heard),  # the first schedule is enough
    )
    return model, args, solution


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
        scale = expected[name].abs().max().item()
        assert (parameter.grad - expected[name]).abs().max().item() <= 1e-4 * scale + 1e-6, (
            name
        )  # of a bias before a normalization it is 0
    model.zero_grad()
