"""Plans that send values run: plain PyTorch's numbers, predicted bytes, and every wait is needed."""

from collections import Counter
from functools import cache

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import ArgumentError, QuantityError
from remat_explorer.offload import TransferSolution
from remat_explorer.runtime.copies import Tier
from remat_explorer.runtime.measurement import TransferMeasurement
from tests.offload.transfer_runs import (
    Late,
    LyingInWait,
    Opening,
    outcome,
    random_plan,
    readings,
    trained,
    waits_left_out,
)
from tests.runtime.exactness import Exactness
from tests.runtime.random_models import random_network
from tests.thorough import thorough_but
from tests.torch_fixtures import one_thread, quick_collection, settings_of_torch  # noqa: F401

FLOATS = (1, 3, 5)  # networks without indices, which NaN would lead astray


@cache
def bench(seed: int) -> Exactness:
    return Exactness(*random_network(seed))


@pytest.mark.parametrize("seed", thorough_but(range(6), 1, 4))
def test_random_plans_give_the_numbers_of_plain_pytorch_by_every_road(seed: int) -> None:
    for number in range(3):
        plan = random_plan(bench(seed).graph, number)
        for tier in (Opening(make=LyingInWait), Opening(make=lambda p, t: Late(p, t, seed)), Tier("disk")):
            assert outcome(bench(seed), plan, tier).equal
            assert outcome(bench(seed), plan, tier, generated=True).equal
            assert trained(bench(seed), plan, tier).equal


@pytest.mark.parametrize("tier", [Tier(), Tier("disk")], ids=lambda tier: tier.name)
def test_measured_bytes_are_those_of_the_list(tier: Tier) -> None:
    for seed in range(3):
        plan = random_plan(bench(seed).graph, seed)
        during, after, host = readings(bench(seed), plan, tier)
        assert (after == plan.timeline.after).all()
        assert (host == plan.timeline.host).all()
        assert during.max() >= after.max()


def test_every_wait_that_is_left_out_is_caught() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for seed in FLOATS:
        for number in range(2):
            found += waits_left_out(bench(seed), random_plan(bench(seed).graph, seed * 100 + number))
    assert {fate for _, fate in found} <= {"caught", "covered"}
    assert all(found[what, "caught"] for what in ("fetch", "send", "order"))


def test_a_wait_for_a_copy_whose_memory_is_overwritten_by_the_same_bytes_is_caught() -> None:
    exactness = Exactness(*random_network(15))
    found = waits_left_out(exactness, random_plan(exactness.graph, 760, late=False))  # a loss in place of its only term
    assert {fate for _, fate in found} == {"caught"}


@pytest.fixture(scope="module")
def net() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    parts = (part for _ in range(5) for part in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.1)))
    return nn.Sequential(*parts), torch.randn(256, 32)


@pytest.fixture(scope="module")
def solution(net: tuple[nn.Module, torch.Tensor]) -> TransferSolution:
    model, x = net
    graph = rx.profile(rx.capture(model, (x,), loss=torch.sum), model, (x,), loss=torch.sum)
    found = rx.solve(graph, "60%", "offload-only", 2, transfers=rx.Transfers.of("1000 GB/s"))
    assert found.plan is not None
    assert found.plan.sent_bytes
    return found


def test_a_measurement_is_equal_and_exact_on_both_sides(net, solution) -> None:
    model, x = net
    found = rx.measure(solution, model, (x,), loss=torch.sum, repeats=1, tier="disk")
    assert isinstance(found, TransferMeasurement)
    assert found.sound
    assert found.equal
    assert (found.peak, found.host_peak) == (solution.peak, solution.host_peak)
    assert "predicted" in str(found)


@pytest.mark.parametrize("wrong", ["fast", True, [1], -1, "3 GB"])
def test_what_is_no_bandwidth_is_quoted(net, wrong) -> None:
    with pytest.raises(QuantityError, match="offload="):
        rx.rematerialize(net[0], (net[1],), budget="60%", offload=wrong)


@pytest.mark.parametrize(
    "wrong", [{"tier": "tape"}, {"folder": "there"}, {"retain_graph": True}, {"strategy": "dtr"}], ids=str
)
def test_what_does_not_go_with_sending_is_refused(net, wrong) -> None:
    with pytest.raises(ArgumentError):
        rx.rematerialize(net[0], (net[1],), **({"budget": "60%", "offload": "1 GB/s"} | wrong))
