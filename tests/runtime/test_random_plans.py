"""Random models, schedules and programs of training give plain PyTorch's numbers bit for bit, by every road."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.exactness import Exactness
from tests.runtime.kinds_of_models import KINDS
from tests.runtime.playing import differs, play, reduced
from tests.runtime.random_kinds import RANDOM_KINDS, random_case
from tests.runtime.random_models import random_network
from tests.runtime.random_programs import random_spec
from tests.thorough import thorough_but

NETWORKS = 40
PROGRAMS = range(400)
QUICKLY = [seed for seed in range(100) if "recurrent" not in random_spec(seed).features][:8]  # those are slow


@cache
def bench(seed: int) -> Exactness:
    return Exactness(*random_network(seed))


@pytest.mark.parametrize("schedules", thorough_but([25, 200], 25))
def test_random_schedules_of_a_random_network_are_exact_by_every_road(schedules):
    @settings(max_examples=schedules, deadline=None, derandomize=True, database=None)
    @given(
        network=st.integers(0, NETWORKS - 1 if schedules > 100 else 7),
        seed=st.integers(0, 2**31),
        dropped=st.floats(0, 0.9),
        flipped=st.floats(0, 0.3),
    )
    def gives_them(network: int, seed: int, dropped: float, flipped: float) -> None:
        exactness = bench(network)
        schedule = exactness.schedule(seed, dropped, flipped)
        counts = (schedule.R > 0).sum(axis=0)
        again.update(exactness.graph.operations[k].phase for k in range(exactness.graph.n) if counts[k] > 1)
        for road, comparison in exactness.compare(schedule).items():
            assert comparison.equal, (road, comparison)

    again: set[str] = set()
    gives_them()
    assert again == {"forward", "backward"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_trains_by_every_road(kind):
    torch.manual_seed(0)
    case = KINDS[kind]()
    exactness = Exactness(case.model, case.args, case.kwargs, case.loss)
    for road, comparison in exactness.compare(exactness.schedule(1, 0.8, 0.01)).items():
        assert comparison.equal, (road, comparison)


@pytest.mark.parametrize("seed", thorough_but(range(3), 0))  # benchmarks/exactness.py runs many more
@pytest.mark.parametrize("kind", RANDOM_KINDS)
def test_random_models_of_every_kind_train_by_every_road(kind, seed):
    case = random_case(kind, seed)
    exactness = Exactness(case.model, case.args, case.kwargs, case.loss, case.outside)
    for place in range(2):
        found = exactness.compare(exactness.schedule(place, 0.3 + 0.4 * place, 0.05))
        assert ("loss outside" in found) == (case.outside is not None)
        for road, comparison in found.items():
            assert comparison.equal, (road, comparison)


@pytest.mark.parametrize("seed", thorough_but(PROGRAMS, *QUICKLY))
def test_nothing_of_a_random_program_differs_in_silence(seed):
    """It is equal to plain PyTorch in all that can be seen, or refused, or warned of."""
    spec = random_spec(seed)
    verdict = play(spec)
    if verdict.outcome == "wrong":
        pytest.skip(f"plain PyTorch does not run it: {verdict.words}")
    if verdict.outcome not in ("equal", "refused", "warned"):
        smaller, found = reduced(spec, verdict)
        pytest.fail(f"{verdict.outcome}: {verdict.words}\n{spec}\nreduced: {found.words}\n{smaller}")


def test_a_comparison_of_programs_sees_one_bit():
    zero, nan = torch.zeros(2), torch.full((2,), torch.nan)
    assert differs({"a": [zero]}, {"a": [zero.clone()]}) is None
    assert differs({"a": [zero]}, {"a": [-zero]}) == "a.0: by 0"
    assert differs(nan, -nan)
    assert differs(zero, zero.double())
    assert differs({"a": 1}, {}) == ".a: only in the plan"
