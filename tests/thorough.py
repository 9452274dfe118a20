"""Cases of a parametrized test that run in `make thorough` only."""

from collections.abc import Iterable
from typing import Any

import pytest


def thorough_but(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """All cases for `pytest.mark.parametrize`, of which all but those named are marked `thorough`.

    As there, a case of a test with several arguments is a tuple.
    """
    cases = list(cases)
    unknown = [case for case in quick if case not in cases]
    if unknown:
        raise ValueError(f"{unknown} are none of the cases {cases}")
    return [case if case in quick else thorough(*(case if isinstance(case, tuple) else (case,))) for case in cases]


def thorough(*arguments: Any) -> Any:
    """A case with these arguments."""
    return pytest.param(*arguments, marks=pytest.mark.thorough)
