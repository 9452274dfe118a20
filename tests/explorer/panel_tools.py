"""What tests of the panels read and send, and a measurement that none was made for."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np

from remat_explorer.allocator import AllocatorSettings, predict_allocator
from remat_explorer.capture.memory_meter import AllocatorBytes
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.state.state import State
from remat_explorer.runtime.comparison import Comparison
from remat_explorer.runtime.measurement import Allocator


def html(panels: Panels, name: str) -> str:
    panels._state.panel = name
    return panels.views[name].content.html


def plain(content: str) -> str:
    """What a person reads."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", content))


def message(panels: Panels, name: str, **content: Any) -> None:
    """What a click in the browser sends."""
    panels.views[name].content._custom({"value": None, "stage": None, "action": "", **content}, [])


class Measurement(SimpleNamespace):
    """Called what arguments are asked for, where nothing but the name of the type is loaded."""


EQUAL = Comparison(0.0, 0.0, True, True, True)


def measurement(state: State, more: int = 0, compared: Comparison = EQUAL) -> Any:
    """A measurement of the solution on the screen, with ``more`` bytes of workspace at statement 3."""
    plan = state.plan
    assert plan is not None
    during = plan.timeline.during.copy()
    during[3] += more
    return Measurement(
        plan=plan,
        during=during,
        after=np.asarray(plan.timeline.after),
        statement_seconds=np.full(len(during), 0.05 / len(during)),
        peak=int(during.max()),
        predicted_peak=plan.peak,
        resident_bytes=0,
        generated_peak=int(during.max()),
        error=(int(during.max()) - plan.peak) / plan.peak,
        dynamic_error=0.0,
        budget=4,
        within_budget=int(during.max()) <= 4,
        predicted_overhead=1.5,
        overhead=1.6,
        overhead_range=None,
        overhead_text="+60.0 %",
        seconds=0.2,
        checkpoint_all_seconds=0.125,
        eager=SimpleNamespace(peak=10, seconds=0.1, comparison=compared),
        predicted_allocator=predict_allocator(plan, AllocatorSettings()),
        allocator=Allocator(AllocatorBytes(100, 200, 300), AllocatorBytes(10, 20, 30)),
        device="cuda",
        missing="",
        times={},
    )
