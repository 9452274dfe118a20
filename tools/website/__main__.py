"""Builds the site: python -m tools.website build/site. Every warning is an error.

Notebooks and papers are executed where their code, the package or a version has changed, two at a time.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from tools.website.check import faults
from tools.website.execution import ROOT, executed, sources_digest
from tools.website.pages import write_pages
from tools.website.papers import paper_notebooks
from tools.website.sphinx_site import make_html

WORKERS = 2


def main() -> int:
    """Build, then open every page; what is wrong with one is printed and makes the command fail."""
    parser = argparse.ArgumentParser(prog="python -m tools.website", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the site; pages go to its folder html")
    parser.add_argument("--only", default="", help="execute only notebooks whose name contains this")
    parser.add_argument("--unchecked", action="store_true", help="open no page in a browser")
    arguments = parser.parse_args()
    folder, sources, papers = arguments.folder.resolve(), sources_digest(), paper_notebooks()

    def run(notebook: NotebookNode) -> tuple[NotebookNode, dict[str, str]]:
        return executed(notebook, folder / "executed", sources)

    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    work = {path.stem: nbformat.read(path, as_version=4) for path in paths} | papers
    chosen = {name: notebook for name, notebook in work.items() if arguments.only in name}

    def timed(name: str) -> None:
        begin = time.monotonic()
        run(chosen[name])
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(timed, sorted(chosen, key=lambda name: name not in papers)))

    code = {tuple(c.source for c in notebook.cells if c.cell_type == "code") for notebook in chosen.values()}

    def run_chosen(notebook: NotebookNode) -> tuple[NotebookNode, dict[str, str]]:
        mine = tuple(c.source for c in notebook.cells if c.cell_type == "code")
        return run(notebook) if mine in code else (notebook, {})

    write_pages(folder / "source", run_chosen, papers)
    make_html(folder / "source", folder / "html")
    found = [] if arguments.unchecked else faults(folder / "html")
    print(*found, sep="\n")
    print(f"{folder / 'html' / 'index.html'}: {len(found)} faults")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
