"""How long each notebook takes: reading at 200 words per minute, and execution.

Target: at most the minutes that the notebook states in its first cell. Exercises are thought about on top of that.
With --execute each notebook runs, too; without it only reading is counted.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[1]
WORDS_PER_MINUTE = 200


def words(notebook: nbformat.NotebookNode) -> int:
    """Words of all cells, of text and of code, without punctuation."""
    return sum(len(re.findall(r"\w+", cell.source)) for cell in notebook.cells)


def stated(notebook: nbformat.NotebookNode) -> int:
    """Minutes that the first cell states."""
    found = re.search(r"\*\*It takes\*\* about (\d+) minutes", notebook.cells[0].source)
    if not found:
        raise ValueError(f"no minutes in {notebook.cells[0].source[:60]!r}")
    return int(found.group(1))


def execution_seconds(path: Path) -> float:
    """Seconds to run a notebook with its small settings."""
    sys.path.insert(0, str(ROOT))
    from tests.notebooks.notebook_runs import execute

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        execute(path, Path(folder))
    return time.perf_counter() - begin


def main() -> None:
    """Print a row for each notebook; exit with 1 if one takes longer than it states."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--execute", action="store_true", help="run each notebook, too")
    execute = parser.parse_args().execute
    late = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        minutes = words(notebook) / WORDS_PER_MINUTE + (execution_seconds(path) / 60 if execute else 0)
        print(f"{path.name:40} {words(notebook):5} words {minutes:5.1f} of {stated(notebook)} minutes", flush=True)
        late += [path.name] if minutes > stated(notebook) else []
    if late:
        sys.exit(f"longer than stated: {', '.join(late)}")


if __name__ == "__main__":
    main()
