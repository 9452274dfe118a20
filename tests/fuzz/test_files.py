"""A mutant of a file is read or refused by name: no traceback, no result that is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.file_kinds import file_kinds
from tests.fuzz.mutants import mutants
from tests.fuzz.outcomes import ALL_CHECKS
from tests.search_fixtures import compiled_search  # noqa: F401
from tests.thorough import thorough_but

CASES = {"graph": 260, "graph with choices": 140, "solution": 250, "sweep": 200, "ablation": 150}
KINDS = [*CASES, "kept solution", "kept profile", "kept algorithms"]


@pytest.fixture(autouse=True, scope="module")
def few_entries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache that no other file of tests has filled: it is listed for every mutant."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("share", thorough_but([0.25, 1.0], 0.25))
@pytest.mark.parametrize("kind", KINDS)
def test_a_mutant_of_a_file_is_read_or_refused_by_name(kind: str, share: float) -> None:
    chosen = file_kinds()[kind]

    @settings(
        max_examples=int(share * CASES.get(kind, 100)),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=ALL_CHECKS,
    )
    @given(mutants(chosen.document) | st.just(""))
    def read(text: str) -> None:
        chosen.use(text)

    read()
