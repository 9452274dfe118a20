"""Random valid schedules of random networks give the numbers of plain PyTorch, bit for bit, by every road."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.exactness import Exactness
from tests.runtime.kinds_of_models import KINDS
from tests.runtime.random_models import random_network
from tests.thorough import thorough_but

NETWORKS = 40


@cache
def bench(seed: int) -> Exactness:
    return Exactness(*random_network(seed))


@pytest.mark.parametrize("schedules", thorough_but([70, 200], 70))
def test_every_road_gives_the_numbers_of_plain_pytorch(schedules):
    @settings(max_examples=schedules, deadline=None, derandomize=True, database=None)
    @given(
        network=st.integers(0, NETWORKS - 1),
        seed=st.integers(0, 2**31),
        dropped=st.floats(0, 0.9),
        flipped=st.floats(0, 0.3),
    )
    def gives_them(network: int, seed: int, dropped: float, flipped: float) -> None:
        exactness = bench(network)
        for road, comparison in exactness.compare(exactness.schedule(seed, dropped, flipped)).items():
            assert comparison.equal, (road, comparison)

    gives_them()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_trains_by_every_road(kind):
    torch.manual_seed(0)
    case = KINDS[kind]()
    exactness = Exactness(case.model, case.args, case.kwargs, case.loss)
    for road, comparison in exactness.compare(exactness.schedule(1, 0.8, 0.01)).items():
        assert comparison.equal, (road, comparison)


def test_the_schedules_recompute_forward_operations_and_gradients():
    again = set()
    for network in range(NETWORKS):
        exactness = bench(network)
        schedule = exactness.schedule(network, 0.6, 0.1)
        counts = (schedule.R > 0).sum(axis=0)
        again |= {exactness.graph.operations[k].phase for k in range(exactness.graph.n) if counts[k] > 1}
    assert again == {"forward", "backward"}
