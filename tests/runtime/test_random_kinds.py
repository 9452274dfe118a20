"""Random models of every kind give plain PyTorch's numbers by every road; benchmarks/exactness.py runs many more."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.exactness import Exactness
from tests.runtime.random_kinds import RANDOM_KINDS, random_case
from tests.thorough import thorough_but

MODELS, SCHEDULES = 3, 2  # of each kind, of each model


@pytest.mark.parametrize("seed", thorough_but(range(MODELS), 0))
@pytest.mark.parametrize("kind", RANDOM_KINDS)
def test_random_schedules_of_a_random_model_give_the_numbers_of_plain_pytorch(kind, seed):
    case = random_case(kind, seed)
    exactness = Exactness(case.model, case.args, case.kwargs, case.loss, case.outside)
    for place in range(SCHEDULES):
        for road, comparison in exactness.compare(exactness.schedule(place, 0.3 + 0.4 * place, 0.05)).items():
            assert comparison.equal, (road, comparison)


@pytest.mark.parametrize("kind", RANDOM_KINDS)
def test_a_seed_gives_the_same_model_every_time(kind):
    first, second = random_case(kind, 5), random_case(kind, 5)
    assert str(first.model) == str(second.model)
    pairs = zip(first.model.state_dict().items(), second.model.state_dict().items(), strict=True)
    assert all(mine[0] == other[0] and torch.equal(mine[1], other[1]) for mine, other in pairs)
    assert all(torch.equal(mine, other) for mine, other in zip(first.args, second.args, strict=True))
    assert all(parameter.grad is None for parameter in first.model.parameters())


def test_a_loss_outside_is_one_more_road():
    cases = (random_case("incoming gradients", seed) for seed in range(20))
    case = next(case for case in cases if case.outside is not None)
    exactness = Exactness(case.model, case.args, outside=case.outside)
    roads = exactness.compare(exactness.schedule(0, 0.5, 0.05))
    assert list(roads) == ["interpreter", "generated code", "training step", "loss outside"]
