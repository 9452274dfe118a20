"""Files called like modules that the package uses: each notes that it was run."""

from __future__ import annotations

from pathlib import Path

NAMES = ("json", "numpy", "torch", "mip", "highspy", "numba", "logging")


def plant(folder: Path, *more: str) -> None:
    """Put them into a folder, with some of other names."""
    for name in (*NAMES, *more):
        (folder / f"{name}.py").write_text(f"open({str(folder / f'ran-{name}')!r}, 'w').close()\n")


def planted(folder: Path) -> list[str]:
    """The names of those that have been run."""
    return sorted(path.name.removeprefix("ran-") for path in folder.glob("ran-*"))
