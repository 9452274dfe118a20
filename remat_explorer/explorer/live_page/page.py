"""The live page: the recorded curve, the widgets' modules, and what moves them, in one file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from remat_explorer.documents import write_text
from remat_explorer.explorer.controls.budget_view import BudgetSlider
from remat_explorer.explorer.live_page.recording import Recording
from remat_explorer.explorer.matrices.matrices import Matrices
from remat_explorer.explorer.model_graph.model_view import ModelGraph
from remat_explorer.explorer.state.scenes import Scene
from remat_explorer.report.html import packed, whole_page
from remat_explorer.solution import Solution
from remat_explorer.solvers import Frontier, minimum_budget, solve
from remat_explorer.solvers.sweeps.joining import joined

EXPLORER = Path(__file__).parents[1]
EXPORT = re.compile(r"^export default \{ render \};$", re.MULTILINE)
OWN = ("quantities.js", "matrices/matrix_frames.js", "../report/unpacking.js", "live_page/live_page.js")
STYLES = (
    "explorer.css",
    "controls/budget.css",
    "controls/stage_bar.css",
    "matrices/matrix.css",
    "model_graph/model_graph.css",
    "model_graph/step.css",
    "panels/panels.css",
    "presenter/presenter.css",
    "live_page/live_page.css",
)


def write_live_page(
    shown: Frontier | Solution,
    path: str | Path,
    *,
    measurement: Any = None,
    scenes: Sequence[Scene] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write one HTML file, atomically, in which a trade-off curve is explored without Python and without a network.

    The budget slider, the matrices, the timeline, the curve, the model and the explanations work as in the explorer,
    on the schedules that were computed.

    Args:
        shown: the curve, as `remat_explorer.sweep` gives it; of a solution, it and the schedule that keeps everything.
        path: where to write it; what is there is replaced.
        measurement: a `remat_explorer.runtime.Measurement` of one of these schedules, which is shown with it.
        scenes: what the button Present shows; None for usual ones. Panels other than the explanation are not on the
            page, and what a scene executes is what was measured.
        on_progress: called with how many points of the curve are written, and how many there are.

    Returns:
        ``path``.

    Raises:
        OSError: if the folder does not exist or cannot be written.
    """
    keep_all = solve(shown.graph, "100%", "checkpoint-all")
    assert keep_all.peak is not None
    frontier = joined(shown.graph, None, [keep_all, shown]) if isinstance(shown, Solution) else shown
    if not frontier.points:
        frontier = joined(frontier.graph, frontier, [keep_all])
    recording = Recording(frontier, minimum_budget(frontier.graph), keep_all.peak, measurement=measurement)
    overview = recording.overview()
    documents = {"overview": overview | {"scenes": recording.scenes(scenes)}}
    count = len(recording.shown)
    for i, point in enumerate(recording.points()):
        documents[f"point-{i}"] = point
        if on_progress is not None:
            on_progress(i + 1, count)
    documents |= {f"values-{i}": values for i, values in enumerate(recording.values())}
    return write_text(path, page(recording.title, documents))


def page(title: str, documents: dict[str, Any]) -> str:
    """The page as HTML; nothing else may run than its own script and plotly's, and nothing is fetched.

    Args:
        title: the model's name.
        documents: what its script opens, by their identities.
    """
    from plotly.offline import get_plotlyjs

    plotly = get_plotlyjs()
    kept = [packed(name, json.dumps(document, separators=(",", ":"))) for name, document in documents.items()]
    body = _read("live_page/live_page.html").replace("TITLE", escape(title))
    return whole_page(
        f"{title}: rematerialization",
        "".join(map(_read, STYLES)),
        "".join([body, *kept, packed("plotly", plotly)]),
        [page_script()],
        [plotly],
    )


def page_script() -> str:
    """The widgets' modules, each in a room of its own, and the page's own script, which has the last room."""
    modules = {
        "budget": BudgetSlider._esm,
        "bar": _read("controls/stage_bar.js"),
        "matrices": Matrices._esm,
        "model": ModelGraph._esm,
        "panel": _read("panels/clickable.js"),
        "band": _read("plots/plots_page.js"),
        "run": _read("plots/measured_run.js"),
        "presenter": _read("presenter/presenter.js"),
    }
    rooms = []
    for name, source in modules.items():
        inside = EXPORT.sub("return { render };", str(source))
        rooms.append(f"MODULES.{name} = (() => {{\n{inside}\n}})();")
    own = "".join(map(_read, OWN))
    return "\n".join(['"use strict";', "const MODULES = {};", *rooms, f"(() => {{\n{own}\n}})();"])


def _read(name: str) -> str:
    return (EXPLORER / name).read_text(encoding="utf-8")
