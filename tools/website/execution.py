"""Executes notebooks for the site, and keeps what they gave until code, package or versions change."""

from __future__ import annotations

import copy
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat.notebooknode import NotebookNode

ROOT = Path(__file__).parents[2]
CELL_SECONDS = 900  # of wall time for one cell
WIDGET = "application/vnd.jupyter.widget-view+json"
# After the last cell: the live page of every explorer, as a file that is named by its widget.
LIVE_PAGES = """
import gc
from pathlib import Path
import remat_explorer as rx
from remat_explorer.explorer.live_page import live_page
for found in [thing for thing in gc.get_objects() if type(thing) is rx.Explorer]:
    found.wait()
    shown = found.state.frontier or found.state.solution
    if shown is not None:
        state = found.state
        begin = (state.budget or None, state.stage, state.value)
        page = live_page(shown, permissions=state.permissions, measurement=state.measurement, begin=begin)
        page.save(Path(FOLDER) / f"{found.model_id}.html")
"""


class SamePython(AsyncKernelManager):
    """Runs the kernel with the Python that builds the site, whatever kernels this machine has registered."""

    @property
    def kernel_spec(self) -> KernelSpec:
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name="Python", language="python")


def sources_digest() -> str:
    """SHA-256 of what every notebook depends on: the packages, the versions of packages, and Python's."""
    digest = hashlib.sha256(sys.version.encode())
    paths = (path for name in ("remat_explorer", "reproduction") for path in (ROOT / name).rglob("*"))
    files = [path for path in paths if path.suffix in {".py", ".js", ".css", ".html"}]
    for path in [ROOT / "constraints.txt", Path(__file__), *sorted(files)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def key_of(notebook: NotebookNode, sources: str) -> str:
    """A name for the outputs of a notebook: changed text keeps them, changed code does not."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join([sources, *code]).encode()).hexdigest()[:24]


def executed(notebook: NotebookNode, cache: Path, sources: str) -> tuple[NotebookNode, dict[str, str]]:
    """The notebook with its outputs, and the live pages of its explorers as HTML by the identity of their widget.

    Args:
        notebook: without outputs; it is not changed.
        cache: folder of what was executed before.
        sources: as `sources_digest` gives them.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    kept = cache / f"{key_of(notebook, sources)}.ipynb"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _execute(notebook, kept)
    found = nbformat.read(kept, as_version=4)
    answer, outputs = copy.deepcopy(notebook), [c.outputs for c in found.cells if c.cell_type == "code"]
    for cell, shown in zip([c for c in answer.cells if c.cell_type == "code"], outputs, strict=True):
        cell.outputs = shown
    return answer, dict(found.metadata["live_pages"])


def _execute(notebook: NotebookNode, kept: Path) -> None:
    run = copy.deepcopy(notebook)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as pages:
        last = nbformat.v4.new_code_cell(f"FOLDER = {pages!r}\n{LIVE_PAGES}")
        run.cells.append(last)
        places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(run, timeout=CELL_SECONDS, kernel_manager_class=SamePython, resources=resources)
        # What libraries say beside the outputs is for nobody; an error of a cell is raised here.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        client.execute(env={**os.environ, "PYTHONPATH": places}, **quiet)
        run.cells.remove(last)
        run.metadata["live_pages"] = {page.stem: page.read_text("utf-8") for page in Path(pages).glob("*.html")}
        _say_no_folder(run, folder)
    run.metadata.pop("widgets", None)
    nbformat.write(run, kept)


def _say_no_folder(run: NotebookNode, folder: str) -> None:
    """The working directory of the build is nobody's business: printed paths in it become relative."""
    for cell in run.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                output.text = re.sub(re.escape(folder) + "/?", "", output.text)
