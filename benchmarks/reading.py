"""How long each notebook takes: reading at 200 words per minute, outputs that are told included, and execution.

Target: at most the minutes that the notebook states in its first cell. Exercises are thought about on top of that.
With --execute each notebook runs, too, exercises answered, and what it took is written to results/reading.json; without
it only reading is counted.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from report import publish

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
    from tests.notebooks.notebook_runs import execute, lasting_kernel

    with lasting_kernel() as kernel, tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        execute(path, Path(folder), kernel)
        return time.perf_counter() - begin


def main() -> None:
    """Print a row for each notebook; exit with 1 if one takes longer than it states."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--execute", action="store_true", help="run each notebook, too")
    options = parser.parse_args()
    taken = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        seconds = execution_seconds(path) if options.execute else 0.0
        minutes = words(notebook) / WORDS_PER_MINUTE + seconds / 60
        entry = {"words": words(notebook), "execution_seconds": round(seconds, 1), "minutes": round(minutes, 1)}
        taken.append({"notebook": path.name, **entry, "stated_minutes": stated(notebook)})
        print(taken[-1], flush=True)
    if options.execute:
        publish("reading", list(taken[0]), [[str(value) for value in entry.values()] for entry in taken], taken)
    late = [entry["notebook"] for entry in taken if entry["minutes"] > entry["stated_minutes"]]
    if late:
        sys.exit(f"longer than stated: {', '.join(late)}")


if __name__ == "__main__":
    main()
