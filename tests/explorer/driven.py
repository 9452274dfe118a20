"""What tests of the explorer without a browser share: explorers, what panels say, and a measurement."""

import base64
import gzip
import json
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import remat_explorer as rx
from remat_explorer.allocator import AllocatorSettings, predict_allocator
from remat_explorer.capture import AllocatorBytes
from remat_explorer.explorer import Scene, State
from remat_explorer.explorer.controllers.driver import Driver
from remat_explorer.explorer.controllers.model_sources import ModelSources
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.plan import Compute
from remat_explorer.runtime.comparison import Comparison
from remat_explorer.runtime.measurement import Allocator

QUIET: Any = {"improve": False, "sweep": False}  # nothing works beside what is asked for


@cache
def captured(name: str) -> rx.Graph:
    return rx.Graph.load(str(Path(__file__).parents[1] / "data" / "captured" / f"{name}.json"))


def driver_of(graph: rx.Graph, budget: Any = None, **settings: Any) -> Any:
    """A driver with a loaded graph; there are no widgets. Nothing works by itself unless ``settings`` say so."""
    return settled(Driver(State(**QUIET | settings), ModelSources(graph=graph), budget))


def explorer_of(*model: Any, **settings: Any) -> Any:
    """An explorer that has loaded its model. Nothing works by itself unless ``settings`` say so."""
    return settled(rx.Explorer(*model, **QUIET | settings))


def settled(explorer: Any) -> Any:
    assert explorer.wait(120)
    return explorer


def solved(explorer: Any) -> Any:
    explorer.solve()
    return settled(explorer)


def until(condition: Callable[[], Any], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def view_of(explorer: Any, kind: type) -> Any:
    """The one view of a kind, of those that an explorer shows."""
    return next(view for view in explorer._views if isinstance(view, kind))


SCRIPT = [
    Scene("Everything kept: {keep_all}", "100%", "model", at="peak"),
    Scene("{peak} within {budget}: {saved} less, {overhead}", "4", "matrices", "explain", "recomputation"),
    Scene("Stage 3", panel="plan", at=3),
    Scene("It plays", picture="model", play=True),
]


def html(panels: Panels, name: str) -> str:
    panels._state.panel = name
    return panels.views[name].content.html


def plain(content: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", content))


def message(panels: Panels, name: str, **content: Any) -> None:
    panels.views[name].content._custom({"value": None, "stage": None, "action": "", **content}, [])


def opened(path: Path) -> dict[str, Any]:
    found = re.findall(r'<script type="application/gzip" id="([\w-]+)">([^<]*)</script>', path.read_text("utf-8"))
    return {
        name: json.loads(gzip.decompress(base64.b64decode(content)))
        for name, content in found
        if name not in ("plotly", "script")
    }


def runs_of(plan: rx.Plan) -> list[int]:
    """The statements that compute."""
    return [i for i, statement in enumerate(plan.statements) if isinstance(statement, Compute)]


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
        is_timed=True,
        sound=compared.equal and int(during.max()) <= 4,
        missing="",
        times={},
    )
