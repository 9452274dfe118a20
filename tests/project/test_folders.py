"""Folders of the package stay small enough to be read as a list."""

from __future__ import annotations

from pathlib import Path

import remat_explorer as rx

MOST_FILES = 25


def crowded(package: Path) -> dict[str, int]:
    """How many files each folder has beside its subfolders, where they are too many."""
    folders = [package, *(path for path in package.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    counts = {str(folder.relative_to(package)): sum(path.is_file() for path in folder.iterdir()) for folder in folders}
    return {folder: count for folder, count in counts.items() if count > MOST_FILES}


def test_no_folder_of_the_package_has_more_than_25_files_of_its_own() -> None:
    assert crowded(Path(rx.__file__).parent) == {}


def test_a_folder_of_26_files_is_too_large_and_one_of_25_is_not(tmp_path: Path) -> None:
    for name, count in (("few", 25), ("many", 26), ("many/__pycache__", 30)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"{number}.py").touch()
    assert crowded(tmp_path) == {"many": 26}
