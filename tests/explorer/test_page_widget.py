"""A message of the page that changes several traits is taken whole: nobody is sent the old values of the others."""

from __future__ import annotations

from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.explorer.matrices import MatrixView
from remat_explorer.explorer.memory_view import MemoryView
from remat_explorer.explorer.model_view import ModelView
from remat_explorer.explorer.state.state import State


@pytest.mark.parametrize(("make", "picture"), [(MatrixView, "matrices"), (MemoryView, "memory"), (ModelView, "model")])
def test_a_click_that_moves_stage_and_value_is_answered_with_both(make: Any, picture: str) -> None:
    solution: Any = rx.solve(rx.linear(4), budget="100%", strategy="checkpoint-all")
    state = State(graph=solution.graph, schedule=solution.schedule, picture=picture)
    widget = make(state).widget
    heard: list[tuple[str, Any]] = []
    state.observe(lambda change: heard.append(("value then", state.value)), "stage")
    widget.observe(lambda change: heard.append((change["name"], change["new"])), ["stage", "value"])
    moved = {"stage": 5, "value": 3} | ({"computation": 5} if picture == "model" else {})
    widget.set_state(moved)
    assert (state.stage, state.value, widget.stage, widget.value) == (5, 3, 5, 3)
    assert sorted(heard) == [("stage", 5), ("value", 3), ("value then", 3)]


def test_what_the_state_does_not_take_is_given_back() -> None:
    solution: Any = rx.solve(rx.linear(4), budget="100%", strategy="checkpoint-all")
    state = State(graph=solution.graph, schedule=solution.schedule)
    widget = MatrixView(state).widget
    widget.set_state({"stage": 99, "value": 3})
    assert (state.stage, widget.stage, widget.value) == (8, 8, 3)
