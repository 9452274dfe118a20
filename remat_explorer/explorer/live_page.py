"""The live page: the recorded curve, the widgets' modules, and what moves them, in one file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remat_explorer.documents import write_text
from remat_explorer.entry_checks import require_arguments
from remat_explorer.explorer.controllers.scenes import Scene
from remat_explorer.explorer.curve import CurveSlider
from remat_explorer.explorer.matrices import Matrices
from remat_explorer.explorer.memory_view import MemoryMap
from remat_explorer.explorer.model_view import ModelGraph
from remat_explorer.explorer.recording import NOWHERE, Begin, Recording
from remat_explorer.explorer.scrubber import StageBar
from remat_explorer.offload import TransferSolution
from remat_explorer.permissions import Permissions
from remat_explorer.quantities import format_bytes
from remat_explorer.report import packed, whole_page
from remat_explorer.solvers import Frontier, Solution, extend_frontier, minimum_budget, solve

if TYPE_CHECKING:
    from remat_explorer.runtime import Measurement


HERE = Path(__file__).parent
EXPORT = re.compile(r"^export default (\{[^}]*\});$", re.MULTILINE)
OWN = ("drawing_tools.js", "matrix_frames.js", "live_page.js")
HEIGHT = 800  # pixels of the page's frame in a notebook
STYLES = (
    "app.css",
    "curve.css",
    "scrubber.css",
    "matrices.css",
    "memory_view.css",
    "model_view.css",
    "panels/side_panel.css",
    "presenter.css",
    "live_page.css",
)


class LivePage:
    """The live page of a curve, for a notebook whose readers may have no kernel, or for a file.

    Args:
        title: the model's name.
        text: the page as HTML.
    """

    def __init__(self, title: str, text: str) -> None:
        self.title, self.text = title, text

    def __repr__(self) -> str:
        return f"the live page of {self.title}, {format_bytes(len(self.text))}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The page in a frame of its own, and a line for places that show no frames."""
        said = f"The live page of {escape(self.title)}: it needs no kernel, but scripts must be allowed to run."
        frame = f'<iframe title="{escape(self.title)}, explored" sandbox="allow-scripts" srcdoc="{escape(self.text)}"'
        style = f"width:100%;height:{HEIGHT}px;border:0"
        return {"text/html": f'<p>{said}</p>{frame} style="{style}"></iframe>', "text/plain": repr(self)}

    def save(self, path: str | Path) -> Path:
        """Write the page, atomically; what is there is replaced.

        Raises:
            FileError: if the folder does not exist or cannot be written.
        """
        return write_text(path, self.text)


def page(
    found: Frontier | Solution | TransferSolution, *, measurement: Measurement | None = None, source: bool = True
) -> LivePage:
    """A page in which a schedule, or a whole trade-off curve, can be explored without Python and without a network.

    Shown in a notebook, it stays there for readers without a kernel; `save_page` writes it into a file.

    Args:
        found: a solution, which is shown beside keeping everything, or the curve of `remat_explorer.sweep`. One that
            sends values is shown with its copies.
        measurement: what `remat_explorer.measure` gave for a schedule of it, to be shown with it, or None.
        source: whether it has the lines of code that operations come from, and those around them.

    >>> import remat_explorer as rx
    >>> rx.page(rx.solve(rx.linear(8), budget=4)).title
    'linear8'
    """
    require_arguments(page, locals())
    return live_page(found, permissions=Permissions() if source else None, measurement=measurement)


def save_page(
    found: Frontier | Solution | TransferSolution,
    path: str | Path,
    measurement: Measurement | None = None,
    *,
    source: bool = True,
) -> Path:
    """Write the `page` of a schedule or of a trade-off curve into one HTML file.

    Args:
        found, measurement, source: as for `page`.
        path: where to write it; what is there is replaced.

    Raises:
        FileError: if the file cannot be written.
    """
    require_arguments(save_page, locals())
    return page(found, measurement=measurement, source=source).save(path)


def live_page(
    shown: Frontier | Solution | TransferSolution,
    *,
    sending: TransferSolution | None = None,
    permissions: Permissions | None = None,
    measurement: Measurement | None = None,
    scenes: Sequence[Scene] | None = None,
    begin: Begin | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> LivePage:
    """A page in which a trade-off curve is explored without Python and without a network.

    The story, the curve, the pictures, what runs twice and the explanations work as in the explorer, on the schedules
    that were computed.

    Args:
        shown: the curve, as `remat_explorer.sweep` gives it; of a solution, it and the schedule that keeps everything.
        sending: a solution that may send values, which is one more point, or None.
        permissions: of whose files the lines that the model was captured from are in the page; None for none.
        measurement: a `remat_explorer.runtime.Measurement` of one of these schedules, which is shown with it.
        scenes: what the button Present shows; None for usual ones. Panels other than the explanation are not on the
            page, and what a scene executes is what was measured.
        begin: budget in bytes, stage and value that it opens at, unless its address names others; None for a part that
            it chooses. Of a solution it is by default the budget.
        on_progress: called with how many of its parts are there, and how many there will be.
    """
    require_arguments(live_page, locals())
    keep_all = solve(shown.graph, "100%", "checkpoint-all")
    assert keep_all.peak is not None
    if isinstance(shown, TransferSolution):
        shown, sending, begin = Frontier(shown.graph, (keep_all,)), shown, begin or (shown.budget, None, None)
    frontier = extend_frontier(shown.graph, None, [keep_all, shown]) if isinstance(shown, Solution) else shown
    if not frontier.points:
        frontier = extend_frontier(frontier.graph, frontier, [keep_all])
    smallest, peak = minimum_budget(frontier.graph), keep_all.peak
    if begin is None:
        begin = (shown.budget, None, None) if isinstance(shown, Solution) else NOWHERE
    more: dict[str, Any] = {"permissions": permissions, "measurement": measurement, "begin": begin, "sending": sending}
    recording = Recording(frontier, smallest, peak, **more)
    documents: dict[str, Any] = {"overview": recording.overview() | {"scenes": recording.presented.scenes(scenes)}}
    total = 2 * len(recording.shown) + recording.chunks
    parts = chain(
        ((f"point-{i}", point) for i, point in enumerate(recording.points())),
        ((f"map-{i}", placed) for i, placed in enumerate(recording.maps())),
        ((f"values-{i}", values) for i, values in enumerate(recording.values())),
    )
    for number, (name, part) in enumerate(parts):
        documents[name] = part
        if on_progress is not None:
            on_progress(number + 1, total)
    return LivePage(recording.title, _page_text(recording.title, documents))


def _page_text(title: str, documents: dict[str, Any]) -> str:
    """The page as HTML; nothing else may run than its own script and plotly's, which it runs when it needs it.

    Args:
        title: the model's name.
        documents: what its script opens, by their identities.
    """
    from plotly.offline import get_plotlyjs

    kept = [packed(name, json.dumps(document, separators=(",", ":"))) for name, document in documents.items()]
    body = _read("live_page.html").replace("TITLE", escape(title))
    return whole_page(
        f"{title}: rematerialization",
        "".join(map(_read, STYLES)),
        "".join([body, *kept]),
        {"script": page_script(), "plotly": get_plotlyjs()},
        ["script"],
    )


def page_script() -> str:
    """The widgets' modules, each in a room of its own, and the page's own script, which has the last room."""
    modules = {
        "curve": CurveSlider.module,
        "bar": StageBar.module,
        "matrices": Matrices.module,
        "memory": MemoryMap.module,
        "model": ModelGraph.module,
        "panel": _read("panels/side_panel.js"),
        "band": _read("plots_view.js"),
        "run": _read("measured_run.js"),
        "presenter": _read("presenter.js"),
    }
    rooms = []
    for name, source in modules.items():
        inside = EXPORT.sub(r"return \1;", source)
        rooms.append(f"MODULES.{name} = (() => {{\n{inside}\n}})();")
    own = "".join(map(_read, OWN))
    return "\n".join(['"use strict";', "const MODULES = {};", *rooms, f"(() => {{\n{own}\n}})();"])


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
