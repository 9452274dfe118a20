"""Notebooks run top to bottom, in two files so that two processes share them: every other notebook, from the first."""

from pathlib import Path

import pytest

from tests.notebooks.notebook_runs import SHOWS, SamePython, every_other, execute, lacking


@pytest.mark.parametrize("path", every_other(0), ids=lambda path: path.name)
def test_a_notebook_runs_top_to_bottom(path: Path, kernel: SamePython, tmp_path: Path) -> None:
    assert lacking(execute(path, tmp_path, kernel), SHOWS[path.name]) == []
