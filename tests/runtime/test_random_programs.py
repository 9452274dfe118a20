"""Random programs of training are equal to plain PyTorch in all that can be seen, or refused, or warned of."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.playing import differs, play, reduced
from tests.runtime.random_programs import random_spec
from tests.thorough import thorough_but

PROGRAMS = range(400)
QUICKLY = [seed for seed in PROGRAMS if "recurrent" not in random_spec(seed).features][:32]  # those are slow


@pytest.mark.parametrize("seed", thorough_but(PROGRAMS, *QUICKLY))
def test_nothing_of_a_random_program_differs_in_silence(seed):
    spec = random_spec(seed)
    verdict = play(spec)
    if verdict.outcome == "wrong":
        pytest.skip(f"plain PyTorch does not run it: {verdict.words}")
    if verdict.outcome not in ("equal", "refused", "warned"):
        smaller, found = reduced(spec, verdict)
        pytest.fail(f"{verdict.outcome}: {verdict.words}\n{spec}\nreduced: {found.words}\n{smaller}")


def test_a_comparison_sees_one_bit():
    zero, nan = torch.zeros(2), torch.full((2,), torch.nan)
    assert differs({"a": [zero]}, {"a": [zero.clone()]}) is None
    assert differs({"a": [zero]}, {"a": [-zero]}) == "a.0: by 0"
    assert differs(nan, -nan)
    assert differs(zero, zero.double())
    assert differs({"a": 1}, {}) == ".a: only in the plan"
