"""The button Export: a menu of what can be saved in the working directory, where that is allowed, or downloaded."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import traitlets as t

from remat_explorer.errors import RematError
from remat_explorer.explorer.export.exporting import (
    EXPORTS,
    Export,
    file_name,
    free_path,
    require_kind,
    say_written,
    write,
)
from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.state import State

HERE = Path(__file__).parent
DEPENDS = ["graph", "schedule", "solution", "answer", "frontier", "measurement", "device", "no_execution", "picture"]
CHUNK = 500_000  # bytes of a message: a notebook server holds back what comes in larger ones


class Starter(Protocol):
    """What does slow work."""

    def start(self, busy: str, work: Any) -> None: ...


class ExportMenu(PageWidget):
    """A button with a menu; pictures are made where they are seen, so this widget makes them.

    Attributes:
        entries: kind, label, and why it cannot be had, or "", of each thing to export.
        saving: whether it can be saved in the working directory, besides being downloaded.
    """

    _esm = (HERE / "export_pictures.js").read_text() + (HERE / "export.js").read_text()
    _css = HERE / "export.css"
    entries = t.List([]).tag(sync=True)
    saving = t.Bool(True).tag(sync=True)


class ExportView:
    """Keeps the menu up to date, and does what is chosen in it."""

    def __init__(self, state: State, background: Starter) -> None:
        self._state, self._background = state, background
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
            self._background.start("exporting", partial(write, self._state, kind, target))
        else:
            write(self._state, kind, target)
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
            self._background.start("exporting", lambda cancelled: self._hand_over(kind))
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
