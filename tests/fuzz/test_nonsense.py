"""Nonsense for an option and mutants of a file are refused by name, or mean something: no traceback, no odd code."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat_explorer as rx
from remat_explorer.graph.file import dump_graph
from tests.fuzz.commands import command_lines, parsers, settings_of_strategies
from tests.fuzz.file_kinds import file_kinds, plain
from tests.fuzz.mutants import mutants, texts
from tests.fuzz.outcomes import ALL_CHECKS, in_process, of_call, of_command
from tests.search_fixtures import compiled_search  # noqa: F401
from tests.thorough import thorough_but

DRAWN: dict[str, Any] = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": ALL_CHECKS}


CASES = {"graph": 260, "graph with choices": 140, "solution": 250, "sweep": 200, "ablation": 150}
KINDS = [*CASES, "kept solution", "kept profile", "kept algorithms"]


@pytest.fixture(autouse=True, scope="module")
def few_entries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache that no other test has filled: it is listed for every mutant."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("share", thorough_but([0.25, 1.0], 0.25))
@pytest.mark.parametrize("kind", KINDS)
def test_a_mutant_of_a_file_is_read_or_refused_by_name(kind: str, share: float) -> None:
    chosen = file_kinds()[kind]

    @settings(max_examples=int(share * CASES.get(kind, 100)), **DRAWN)
    @given(mutants(chosen.document) | st.just(""))
    def read(text: str) -> None:
        chosen.use(text)

    read()


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """What GRAPH, PIPE, FOLDER and OUTPUT stand for in a command line."""
    paths = {name: str(tmp_path / f"{name.lower()}.json") for name in ("GRAPH", "PIPE", "FOLDER", "OUTPUT")}
    Path(paths["GRAPH"]).write_text(dump_graph(plain()))
    os.mkfifo(paths["PIPE"])
    Path(paths["FOLDER"]).mkdir()
    return paths


@pytest.mark.parametrize("cases", thorough_but([6, 40], 6))
@pytest.mark.parametrize("command", sorted(parsers()))
def test_nonsense_on_a_command_line_is_refused_or_means_something(
    command: str, cases: int, places: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # where files of drawn names are written

    @settings(max_examples=4 if command == "doctor" else cases, **DRAWN)
    @given(command_lines(command))
    def call(line: list[str]) -> None:
        of_command([places.get(part, part) for part in line])

    with in_process():
        call()


@settings(max_examples=150, **DRAWN)
@given(settings_of_strategies())
def test_an_option_of_a_strategy_is_refused_or_means_something(drawn: tuple[str, dict[str, Any]]) -> None:
    strategy, options = drawn
    of_call(lambda: rx.solve(plain(), "80%", strategy, time_limit=0.2, cache=True, **options))


@settings(max_examples=150, **DRAWN)
@given(texts)
def test_a_budget_is_refused_or_means_something(text: str) -> None:
    of_call(lambda: rx.solve(plain(), text, "checkpoint-all"))
