"""The button Export: what can be saved in the working directory, where that is allowed, or downloaded.

Files in the working directory get names that are still free. Pictures are made by the browser (`export.js`).
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import traitlets as t

from remat_explorer.errors import RematError, UnknownNameError
from remat_explorer.explorer.controllers.model_sources import DEFAULT_SIZES
from remat_explorer.explorer.live_page import live_page
from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.state import WITH_MAP, WITH_MATRICES, State
from remat_explorer.quantities import format_bytes
from remat_explorer.report import Origin, write_report
from remat_explorer.solvers import extend_frontier

NOT_SOLVED = "There is no schedule yet: find one first."
NOT_EXECUTED = "This needs a run whose times were measured: press Run it first."
HERE = Path(__file__).parent
DEPENDS = ["graph", "schedule", "solution", "answer", "frontier", "measurement", "device", "no_execution", "picture"]
CHUNK = 500_000  # bytes of a message: a notebook server holds back what comes in larger ones


class ExportView:
    """Keeps the menu up to date, and does what is chosen in it."""

    def __init__(self, state: State, start: Callable[[str, Callable[[threading.Event], None]], object]) -> None:
        self._state, self._start = state, start
        self._waiting: list[Path] = []  # where the browser's next pictures go
        self.widget = ExportMenu(saving=state.permissions.saving)
        self.widget.on_msg(self._heard)
        state.observe(self._draw, DEPENDS)
        self._draw()

    def export(self, name: str, path: str | Path | None = None) -> Path:
        """Write one kind of file, and return where; what takes long is written in the background.

        Raises:
            RematError: if there is no such kind, something is missing for it, or the file cannot be written.
        """
        kind = require_kind(self._state, name)
        target = free_path(Path(path) if path is not None else Path(file_name(self._state, kind)))
        if kind.write is None:
            self._waiting.append(target)
            self.widget.send({"do": "picture", "kind": name, "name": target.name, "download": False})
        elif kind.slow:
            self._start("exporting", partial(write_export, self._state, kind, target))
        else:
            write_export(self._state, kind, target)
        return target

    def download(self, name: str) -> None:
        """Hand one kind of file to the browser, which saves it where it saves downloads.

        Raises:
            RematError: as `export`.
        """
        kind = require_kind(self._state, name)
        if kind.write is None:
            shown = file_name(self._state, kind)
            self.widget.send({"do": "picture", "kind": name, "name": shown, "download": True})
        elif kind.slow:
            self._start("exporting", lambda cancelled: self._hand_over(kind))
        else:
            self._hand_over(kind)

    def _hand_over(self, kind: Export) -> None:
        assert kind.write is not None
        name = file_name(self._state, kind)
        with tempfile.TemporaryDirectory() as folder:
            kind.write(self._state, Path(folder) / name)
            content = (Path(folder) / name).read_bytes()
        parts = [content[i : i + CHUNK] for i in range(0, len(content), CHUNK)] or [b""]
        for i, part in enumerate(parts):
            self.widget.send({"do": "download", "name": name, "part": i, "parts": len(parts)}, [part])
        self._state.say(f"Handed {name} to the browser.", "good")

    def _draw(self, change: Any = None) -> None:
        self.widget.entries = [[name, kind.label, kind.missing(self._state)] for name, kind in EXPORTS.items()]

    def _heard(self, widget: Any, message: dict[str, Any], buffers: list[bytes]) -> None:
        try:
            if message["did"] == "choose":
                saved = self._state.permissions.saving and not message["download"]  # whatever the page has sent
                (self.export if saved else self.download)(message["kind"])
            elif message["did"] == "picture" and self._waiting:
                self._save(self._waiting.pop(0), bytes(buffers[0]))
            elif message["did"] == "fail":
                self._waiting.clear()
                self._state.say(f"The picture could not be made: {message['why']}", "error")
        except RematError as error:
            self._state.say(str(error), "error")

    def _save(self, target: Path, content: bytes) -> None:
        from remat_explorer.documents import write_bytes

        try:
            write_bytes(target, content)
        except OSError as error:
            raise RematError(f"{target.name!r} cannot be written: {error.strerror or error}") from None
        say_written(self._state, target)


@dataclass(frozen=True)
class Export:
    """Something that can be exported.

    Attributes:
        label: what the menu calls it.
        ending: of the file's name, after the model's.
        missing: why it cannot be had from a state, or "".
        write: writes it to a path; None for pictures, which the browser makes.
        slow: whether it takes seconds, so that it is done in the background.
    """

    label: str
    ending: str
    missing: Callable[[State], str]
    write: Callable[[State, Path], object] | None = None
    slow: bool = False


def _no_graph(state: State) -> str:
    return "" if state.graph else "There is no model yet."


def _no_answer(state: State) -> str:
    return "" if state.sending or state.solution or state.answer else NOT_SOLVED


def _no_frontier(state: State) -> str:
    return "" if state.frontier else "There is no trade-off curve yet."


def _timed(state: State) -> Any:
    """The measurement, once its times are there; until then, and without one, None."""
    return state.measurement if state.measurement is not None and state.measurement.is_timed else None


def _no_measurement(state: State) -> str:
    return "" if _timed(state) else NOT_EXECUTED


def _no_snapshot(state: State) -> str:
    if not state.device.startswith("cuda"):
        return "PyTorch records memory snapshots on CUDA only: choose that device."
    return state.no_execution or ("" if state.solution else NOT_SOLVED)


def _no_schedule(state: State) -> str:
    return "" if state.schedule else "There is nothing on the screen yet."


def _no_matrices(state: State) -> str:
    return _no_schedule(state) or ("" if state.picture in WITH_MATRICES else "Show the matrices first.")


def _no_map(state: State) -> str:
    return _no_schedule(state) or ("" if state.picture in WITH_MAP else "Show the memory map first.")


def _no_model(state: State) -> str:
    return _no_schedule(state) or ("" if state.picture == "model" else "Show the model first.")


def _write_graph(state: State, path: Path) -> None:
    if state.graph is not None:
        state.graph.save(str(path))


def _write_solution(state: State, path: Path) -> None:
    shown = state.sending or state.solution or state.answer
    if shown is not None:
        shown.save(path)


def _write_sweep(state: State, path: Path) -> None:
    if state.frontier is not None:
        state.frontier.save(path)


def _write_page(state: State, path: Path) -> None:
    frontier = state.frontier
    if frontier is not None and state.solution is not None and _timed(state) is not None:
        frontier = extend_frontier(frontier.graph, frontier, [state.solution])  # what was measured is on the page
    if frontier is not None:
        shown = (state.budget or None, state.stage, state.value)
        measured = _timed(state)
        own = {"permissions": state.permissions, "measurement": measured, "begin": shown, "sending": state.sending}
        made = live_page(frontier, **own)
        made.save(path)


def _write_trace(state: State, path: Path) -> None:
    if (measured := _timed(state)) is not None:
        measured.save_trace(path)


def _write_report(state: State, path: Path) -> None:
    shown = state.sending or state.solution or state.answer
    if shown is None:
        return
    measured = None if shown is state.answer is not state.solution else _timed(state)
    write_report(
        shown,
        path,
        measurement=measured,
        frontier=state.frontier,
        history=state.history,
        other=state.other,
        source=report_origin(state),
    )


def _write_snapshot(state: State, path: Path) -> None:
    """Run the schedule again, with PyTorch's record of it."""
    from remat_explorer.runtime import measure

    solution, inputs = state.solution, state.inputs
    if solution is not None and inputs is not None:
        run = inputs.arguments
        measure(solution, *run, device=state.device, repeats=1, snapshot=path)


EXPORTS: dict[str, Export] = {
    "report": Export("Report (HTML)", "report.html", _no_answer, _write_report, slow=True),
    "page": Export("Live page (HTML)", "explorer.html", _no_frontier, _write_page, slow=True),
    "solution": Export("Solution (JSON)", "solution.json", _no_answer, _write_solution),
    "graph": Export("Graph (JSON)", "graph.json", _no_graph, _write_graph),
    "sweep": Export("Trade-off curve (JSON)", "sweep.json", _no_frontier, _write_sweep),
    "trace": Export("Execution for Perfetto (JSON)", "trace.json", _no_measurement, _write_trace),
    "snapshot": Export("PyTorch memory snapshot", "snapshot.pickle", _no_snapshot, _write_snapshot, slow=True),
    "matrices-png": Export("Matrices (PNG)", "matrices.png", _no_matrices),
    "memory-png": Export("Memory map (PNG)", "memory.png", _no_map),
    "model-png": Export("Model (PNG)", "model.png", _no_model),
    "plots-png": Export("Plots (PNG)", "plots.png", _no_schedule),
    "plots-svg": Export("Plots (SVG)", "plots.svg", _no_schedule),
}


def require_kind(state: State, name: str) -> Export:
    """The kind of that name, if the state has what it takes.

    Raises:
        UnknownNameError: if there is no such kind; near ones are listed.
        RematError: that says what is missing.

    >>> require_kind(State(), "solution")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.RematError: There is no schedule yet: find one first.
    """
    if name not in EXPORTS:
        raise UnknownNameError("kind of export", name, EXPORTS)
    kind = EXPORTS[name]
    if missing := kind.missing(state):
        raise RematError(missing)
    return kind


def file_name(state: State, kind: Export) -> str:
    """A name for the file: the model's, as far as file systems take it, and what it is.

    >>> file_name(State(model="nets/big.py:make_model"), EXPORTS["report"])
    'nets_big.py_make_model-report.html'
    """
    plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in state.model).strip(".")
    return f"{plain or 'model'}-{kind.ending}"


def free_path(path: Path) -> Path:
    """``path``, or the first numbered name beside it under which nothing is kept.

    >>> free_path(Path("no-such-file.json"))
    PosixPath('no-such-file.json')
    """
    number, free = 2, path
    while free.exists():
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return free


def write_export(state: State, kind: Export, path: Path, cancelled: threading.Event | None = None) -> None:
    """Write a file and say so; one that is in the way meanwhile is never replaced.

    Raises:
        RematError: if the file cannot be written.
    """
    assert kind.write is not None
    try:
        kind.write(state, path)
    except OSError as error:
        raise RematError(f"{display_path(path)!r} cannot be written: {error.strerror or error}") from None
    say_written(state, path)


def say_written(state: State, path: Path) -> None:
    """Name the file in the status line, with its size, relative to the working directory."""
    state.say(f"Saved {display_path(path)} ({format_bytes(path.stat().st_size)}) in the working directory.", "good")


def display_path(path: Path) -> str:
    """A path as people look for it: relative to the working directory, where it is inside."""
    absolute = path.resolve()
    here = Path.cwd().resolve()
    return os.fspath(absolute.relative_to(here)) if absolute.is_relative_to(here) else os.fspath(absolute)


def report_origin(state: State) -> Origin:
    """Where the graph on the screen comes from, as far as the state knows."""
    costs = f"measured on {state.device}" if state.costs_are_measured else "estimated"
    if state.inputs is None:
        return Origin("graph", state.model)
    if ".py" in state.model:
        return Origin("file", Path(state.model).name, device=state.device, costs=costs)
    if state.model not in DEFAULT_SIZES:  # the models of the zoo
        return Origin("module", state.model, device=state.device, costs=costs)
    sequence = DEFAULT_SIZES[state.model].get("sequence")
    return Origin("zoo", state.model, state.batch or None, state.image, sequence, state.device, costs)


class ExportMenu(PageWidget):
    """A button with a menu; pictures are made where they are seen, so this widget makes them.

    Attributes:
        entries: kind, label, and why it cannot be had, or "", of each thing to export.
        saving: whether it can be saved in the working directory, besides being downloaded.
    """

    _esm = HERE / "export.js"
    _css = HERE / "export.css"
    entries = t.List([]).tag(sync=True)
    saving = t.Bool(True).tag(sync=True)
