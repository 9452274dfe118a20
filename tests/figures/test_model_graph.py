"""The model's picture shows every operation once, and what a stage does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remat_explorer.errors import ScheduleError
from remat_explorer.figures import model_graph
from remat_explorer.figures.palette import DARK, LIGHT
from remat_explorer.figures.schedule_heatmap import RECOMPUTE, computation_kinds
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import solve


@pytest.fixture(scope="module")
def tight() -> Any:
    """The eight-layer chain within 4 units: nine recomputations."""
    return solve(linear(8), budget=4)


def bars(figure: Any) -> dict[str, int]:
    return {trace.name: len(trace.x) for trace in figure.data if trace.type == "bar"}


def test_without_a_schedule_every_operation_is_a_box_of_its_pass() -> None:
    assert bars(model_graph(linear(8))) == {"forward": 8, "backward": 9}


def test_with_a_stage_what_runs_and_what_is_kept_stands_out(tight: Any) -> None:
    schedule, kinds = tight.schedule, computation_kinds(tight.schedule)
    t = int(np.argmax((kinds == RECOMPUTE).sum(axis=1)))
    found = bars(model_graph(schedule.graph, schedule, t))
    assert found["not in this stage"] == schedule.graph.n
    assert found["recompute"] == (kinds[t] == RECOMPUTE).sum() > 0
    assert found["forward"] + found["backward"] + found["recompute"] == (schedule.R[t] > 0).sum()
    assert found["kept into the stage"] == schedule.S[t].sum() > 0


def test_hover_tells_name_bytes_and_cost_and_escapes_names() -> None:
    graph = Graph("one", (Value("x", 2048),), (operation("a<b", "forward", [], [0], 3.0),))
    figure: Any = model_graph(graph)
    text = next(trace.text[0] for trace in figure.data if trace.name == "forward")
    assert "a&lt;b" in text
    assert "2.00 KiB" in text
    assert "costs 3" in text


def test_stages_that_do_not_exist_are_refused(tight: Any) -> None:
    with pytest.raises(ScheduleError, match=r"no stage 17; the schedule has stages 0 to 16"):
        model_graph(tight.schedule.graph, tight.schedule, 17)
    with pytest.raises(ScheduleError, match="stage 3 was given without a schedule"):
        model_graph(tight.schedule.graph, stage=3)


def test_dark_figures_have_a_dark_ground() -> None:
    assert model_graph(linear(3), theme="dark").layout.paper_bgcolor == DARK.ground != LIGHT.ground
