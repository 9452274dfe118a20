"""The file of a part: one entry for each unit that is done, written as soon as it is. Loads no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from remat_explorer.documents import read_json, write_text
from remat_explorer.errors import FileError, RematError

PROBLEM, STOPPED = "problem", "stopped"  # keys of a unit that failed, and of one that its time was too short for


class Record:
    """What a part has measured so far.

    Args:
        path: of its JSON file, which is read if it is there.

    Attributes:
        units: by name: what was measured, or a ``problem``, or that it was ``stopped`` and is to be tried again.
        seconds: that all runs together have taken.
        running: the unit at work, or "".
        words: how the part ended, such as that its time was over; "" while it runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        document: dict[str, Any] = read_json(path, FileError) if path.exists() else {}
        if not isinstance(document.get("units", {}), dict):
            raise FileError(f"{str(path)!r} is not a file of benchmarks/gpu.py: its key 'units' is no JSON object")
        self.machine: dict[str, Any] = document.get("machine", {})
        self.units: dict[str, dict[str, Any]] = document.get("units", {})
        self.names: list[str] = document.get("names", [])
        self.seconds: float = document.get("seconds", 0.0)
        self.running: str = document.get("running", "")
        self.words: str = document.get("words", "")

    @classmethod
    def of(cls, folder: Path, part: str) -> Record:
        """The record of a part in the folder of results."""
        return cls(folder / f"{part}.json")

    def is_done(self, name: str) -> bool:
        """Whether a unit was measured or failed; one that was stopped is not done."""
        return name in self.units and STOPPED not in self.units[name]

    @property
    def missing(self) -> list[str]:
        """Units that are not done, in their order."""
        return [name for name in self.names if not self.is_done(name)]

    def write(self) -> None:
        """Write the file, atomically."""
        document = {
            "part": self.path.stem,
            "machine": self.machine,
            "names": self.names,
            "seconds": round(self.seconds, 1),
            "running": self.running,
            "words": self.words,
            "units": self.units,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(document, indent=1, default=str) + "\n")


def asked(device: str, tiny: bool) -> str:
    """What a record is of, in words; one of anything else is not resumed."""
    return f"{device}, tiny" if tiny else device


def records(folder: Path) -> dict[str, Record]:
    """Every record in a folder of results, by part.

    Raises:
        RematError: if there is none.
    """
    from gpu_parts.catalogue import PARTS

    found = {name: Record.of(folder, name) for name in PARTS if (folder / f"{name}.json").exists()}
    if not found:
        raise RematError(f"{str(folder)!r} holds no result of benchmarks/gpu.py; name the folder that --out named")
    return found
