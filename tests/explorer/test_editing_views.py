"""The panel Edit and the matrix S while a schedule is edited by hand, without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explorer.export import require_kind, write_export
from remat_explorer.explorer.matrices import MatrixView
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.driver import Driver
from remat_explorer.explorer.work.model_sources import ModelSources
from tests.explorer.driven import driver_of, settled
from tests.explorer.panel_tools import html, message, plain

CHAIN = rx.linear(8)


@pytest.fixture
def driver() -> Any:
    return driver_of(CHAIN, 8)


def test_the_panel_begins_takes_steps_back_judges_reveals_and_stops(driver: Any) -> None:
    panels, state = Panels(driver.state), driver.state
    assert "Take the solver" in html(panels, "edit")
    message(panels, "edit", action="everything")
    assert "2 B above the budget of 8 B" in plain(html(panels, "edit"))
    driver.drop(9, "v2")
    driver.drop(9, "v5")
    shown = plain(html(panels, "edit"))
    assert "peak 8 B within the budget of 8 B" in shown
    assert "recomputed 2 cost 2 more" in shown
    assert "best known" not in shown.partition("overhead")[0]  # until it is asked for
    message(panels, "edit", action="undo")
    assert driver.solution.cost == 18
    message(panels, "edit", action="redo")
    message(panels, "edit", action="judge")
    assert state.status.startswith("Right: cost 19, peak 8 B.")
    message(panels, "edit", action="reveal")
    assert (state.panel, state.other.cost) == ("compare", 19)
    assert "yours best known" in plain(html(panels, "edit"))
    message(panels, "edit", action="stop")
    assert state.editing is None
    assert "Edit what is shown" in html(panels, "edit")


def test_the_panel_names_what_is_in_memory_at_the_peak_for_later_stages_and_a_click_selects_it_there(
    driver: Any,
) -> None:
    panels, state = Panels(driver.state), driver.state
    driver.edit("everything")
    shown = plain(html(panels, "edit"))
    assert "In memory at the peak for later stages only: v0 (1 B) , v1 (1 B) , v2 (1 B) , v3 (1 B) and 3 more" in shown
    message(panels, "edit", value=2, stage=10)
    assert (state.value, state.stage) == (2, 10)


def test_the_panel_leads_back_to_the_edited_schedule(driver: Any) -> None:
    panels = Panels(driver.state)
    driver.edit("everything")
    mine = driver.state.schedule
    driver.solve()
    settled(driver)
    assert "Another schedule is on the screen" in html(panels, "edit")
    message(panels, "edit", action="go-on")
    assert driver.state.schedule is mine


def test_what_is_refused_stands_in_the_status_line_until_the_next_step(driver: Any) -> None:
    view = MatrixView(driver.state)
    driver.edit("everything")
    view._asked(None, {"cells": {"stage": 2, "value": 5}}, [])
    assert driver.state.status == "'v5' is computed in stage 5 first, and can be kept from stage 6 on."
    assert driver.state.tone == "error"
    view._asked(None, {"cells": {"stage": 9, "value": 5}}, [])
    assert driver.state.status.startswith("By hand: overhead +5.9 %")


def test_the_matrices_flip_paint_undo_and_say_what_is_kept_in_vain(driver: Any) -> None:
    view, state = MatrixView(driver.state), driver.state
    widget = view.widget
    assert (widget.editing, widget.no_editing, widget.fixed) == (False, "", [16])
    view._asked(None, {"edit": True}, [])
    assert (widget.editing, state.panel) == (True, "edit")
    driver.edit("everything")
    view._asked(None, {"cells": {"stages": [12, 8], "values": [2, 3], "keep": False}}, [])
    assert not state.editing.kept[8:13, 2:4].any()
    view._asked(None, {"step": "undo"}, [])
    assert state.editing.kept[8:13, 2:4].all()
    assert widget.in_vain == b""
    view._asked(None, {"cells": {"stage": 15, "value": 3}}, [])
    bits = np.unpackbits(np.frombuffer(widget.in_vain, np.uint8).reshape(17, -1), axis=1)[:, :17]
    assert (bits == state.editing.in_vain).all()
    assert bits[15, 3]
    view._asked(None, {"edit": False}, [])
    assert (widget.editing, widget.in_vain, state.editing) == (False, b"", None)


def test_the_page_holds_no_curve_while_a_schedule_is_edited_so_that_a_drag_gives_nothing_away(driver: Any) -> None:
    widget = MatrixView(driver.state).widget
    driver.load()
    settled(driver)
    assert widget.frames
    driver.edit("everything")
    assert widget.frames == []
    driver.stop_editing()
    assert widget.frames


def test_what_was_edited_is_executed_and_exported_like_any_other(tmp_path: Path) -> None:
    driver = settled(
        Driver(State(improve=False, sweep=False, measured_costs=False, batch=16), ModelSources("mlp"), "100%")
    )
    driver.edit("everything")
    schedule = driver.state.schedule
    fixed = driver.state.editing.refusal
    stage, value = next((int(t), int(v)) for t, v in np.argwhere(schedule.S) if not fixed(t, v) and t > 4)
    driver.drop(stage, value)
    assert driver.solution.schedule.recomputations > 0
    driver.execute()
    settled(driver)
    assert driver.measurement.plan.graph is driver.solution.graph
    assert driver.measurement.eager.comparison.gradients_text.startswith("equal")
    for kind in ("report", "page"):
        path = tmp_path / f"{kind}.html"
        write_export(driver.state, require_kind(driver.state, kind), path)
        assert path.stat().st_size > 0
    assert "by hand" in (tmp_path / "report.html").read_text()
