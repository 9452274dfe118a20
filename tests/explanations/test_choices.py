"""Implementations in words: which one runs, what it reads instead, and which kinds a schedule uses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.capture_options import KINDS
from remat_explorer.explanations.choices import (
    EXPLAINED,
    explain_choice,
    is_exact,
    kinds_in,
    kinds_used,
    statement_text,
)
from remat_explorer.graph import Graph
from tests.figures.choices import chain_with_choices


@pytest.fixture(scope="module")
def schedule() -> Any:
    return rx.solve(chain_with_choices(), 3600, "monet", time_limit=20, implementations=["masks"]).schedule


def test_the_choice_says_what_is_read_and_what_it_costs(schedule: Any) -> None:
    choice = explain_choice(schedule, 5, 4)
    assert choice is not None
    assert (choice.name, choice.kind, choice.cost, choice.reads, choice.spares) == (
        "from bits",
        "masks",
        1.0,
        (2,),
        (1,),
    )
    assert choice.sentence == (
        "reads mask (100 B) instead of relu (800 B), costs 1 more than the default, results equal bit for bit"
    )


def test_the_default_is_called_what_it_is(schedule: Any) -> None:
    choice = explain_choice(schedule, 0, 0)
    assert choice is not None
    assert choice.sentence == "PyTorch's own, of 2 implementations"


def test_statements_name_an_implementation_that_is_not_the_default(schedule: Any) -> None:
    plan = rx.Plan.of(schedule)
    texts = [statement_text(plan, statement) for statement in plan.statements]
    assert "compute relu backward · from bits" in texts
    assert "compute conv" in texts


def test_kinds_of_a_schedule_are_those_that_it_runs(schedule: Any) -> None:
    assert kinds_used(schedule) == {"masks"}
    assert kinds_in(schedule.graph) == ("masks", "chunks", "algorithms")
    assert is_exact(schedule.graph, "masks")
    assert not is_exact(schedule.graph, "chunks")


def test_implementations_without_a_kind_are_of_one_called_like_them(schedule: Any) -> None:
    graph = schedule.graph
    operations = tuple(
        dataclasses.replace(
            node, implementations=tuple(dataclasses.replace(way, kinds=()) for way in node.implementations)
        )
        for node in graph.operations
    )
    assert kinds_in(Graph("bare", graph.values, operations)) == ("from bits", "in chunks of 1", "native")


def test_every_kind_that_can_be_captured_is_explained() -> None:
    assert set(EXPLAINED) >= set(KINDS)
