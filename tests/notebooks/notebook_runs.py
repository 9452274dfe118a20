"""Executes a notebook with the Python of the tests, and says what its outputs lack."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbformat.notebooknode import NotebookNode

from remat_explorer.course import EXERCISES
from tests.browser.lab import FORGET
from tools.website.pictures import PRINTED, told

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CELL_SECONDS = 600  # of wall time for one cell, generous since machines are shared

PLOTLY = re.escape("application/vnd.plotly.v1+json")
WIDGET = re.escape("application/vnd.jupyter.widget-view+json")
FIGURE = f"{PLOTLY}|{WIDGET}"  # what every notebook must show
TIME = re.compile(r"[\d.,e-]+ (?:\u00b5s|ms|s|min|h)\b")

# What the outputs of a notebook must show beside that, as regular expressions: an entry for each.
SHOWS: dict[str, tuple[str, ...]] = {
    "01_explorer.ipynb": (WIDGET, "gradients equal"),
    "02_why_memory_runs_out.ipynb": (
        PLOTLY,
        r"checkpoint-all needs 28\.1 GiB",
        "strategy optimal: proven optimal, overhead",
    ),
    "03_a_schedule_by_hand.ipynb": (PLOTLY, WIDGET, "the same U .*: True", "the same as the plan .*: True"),
    "04_the_integer_program.ipynb": (
        PLOTLY,
        r"gap 1\.18\b",
        r"gap 21\.56\b",
        r"linear programs for .* cost 10\.0 proven 10\.0",
        "optimal - cost 26",
        "the checker says: cost 26",
    ),
    "04b_faster_formulations.ipynb": (PLOTLY, "the same memory .*: True", "with cuts"),
    "05_heuristics_and_rounding.ipynb": (PLOTLY, "0 of 1000 draws fit", r"\| checkmate-ilp \|", "at 8 of 8 budgets"),
    "06_trade_off_curves.ipynb": (PLOTLY, "proven optimal at 6 of 6 budgets", "with implementations"),
    "07_larger_inputs.ipynb": (
        PLOTLY,
        "181 with parameters counted once",
        "213 with parameters counted once",
        "289 at most|at most: 289",
        "Checkmate: batch 289",
    ),
    "08_operator_implementations.ipynb": (
        PLOTLY,
        "monet: .*overhead",
        "gradients equal",
        "smallest budget",
        "with implementations .* and Checkmate",
        "less memory suffices at 10 % overhead on 5 of 5 networks",
        "no dearer than Checkmate at 22 of 22 budgets",
        "5 % from the best known schedule: 5 of 5 networks",
    ),
    "09_your_own_model.ipynb": (
        PLOTLY,
        "TakesTurns cannot be captured",
        "gradients equal",
        "for another graph",
        r"in any step: 0\.0\n",
        "weights and buffers equal: True",
        r"report\.html: \d",
    ),
    "10_beside_pytorch.ipynb": (
        PLOTLY,
        "buffers DIFFER",
        r"pytorch-budget \(budget 0, dp\): peak",
        r"rematerialized: gradients differ by 0\.0\n",
        "optimal  .*optimal",
    ),
    "11_is_the_optimum_worth_it.ipynb": (PLOTLY, r"pytorch-budget \(budget 0, dp\): peak", "checkpoint-full  .* %"),
    "12_send_it_away.ipynb": (
        PLOTLY,
        "takes 11, at least 11: optimal",
        "offload-only .* at least",
        "both together are best",
    ),
}

# What stands in cells, and what is run instead: fewer budgets, smaller models, less time for what uses up its time.
SHORTER: dict[str, dict[str, str]] = {
    "01_explorer.ipynb": {'rx.Explorer("mlp", batch=2048)': 'rx.Explorer("mlp", batch=1024)', '"75%")  #': '"85%")  #'},
    "04_the_integer_program.ipynb": {
        "(4, 60) if small": "(3, 60) if small",
        '"40%", time_limit=60': '"60%", time_limit=2',
    },
    "06_trade_off_curves.ipynb": {'("small", 8)': '("small", 1)', "6 if small": "3 if small"},
    "08_operator_implementations.ipynb": {
        "(32, 4) if small": "(32, 2) if small",
        '["45%", "65%"] if small': '["65%"] if small',
        "time_limit=2 if small": "time_limit=0.5 if small",
    },
    "10_beside_pytorch.ipynb": {"(1.0, 0.75, 0.5, 0.25, 0.1, 0.0)": "(1.0, 0.5, 0.0)", "(5, 1.5)": "(1, 0.4)"},
    "11_is_the_optimum_worth_it.ipynb": {"(2, 512)": "(2, 64)", "(0.1, 0.35, 0.7)": "(0.35, 0.7)"},
}


def every_other(first: int) -> list[Any]:
    """Half of the notebooks, as cases of a test."""
    return NOTEBOOKS[first::2]


class SamePython(AsyncKernelManager):
    """Runs the kernel with the Python of the tests, whatever kernels this machine has registered."""

    @property
    def kernel_spec(self) -> KernelSpec:
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name="Python", language="python")


def answered(cells: list[NotebookNode]) -> list[NotebookNode]:
    """The exercises, which are code cells that end with their check by name, once more, each with its solution."""
    exercises = []
    for cell in cells:
        named = re.search(r'\ncheck\("([\d.]+)"', cell.source)
        if cell.cell_type == "code" and named:
            setting, check = cell.source[: named.start()], cell.source[named.start() + 1 :]
            source = f"{setting}\n{EXERCISES[named.group(1)].solution}\n{check}"
            exercises.append(nbformat.v4.new_code_cell(source, metadata={"exercise": True}))
    return exercises


@contextmanager
def lasting_kernel() -> Iterator[SamePython]:
    """A kernel for several notebooks, which loads PyTorch and the search once."""
    manager = SamePython()
    places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run_sync(manager.start_kernel)(env={**os.environ, "PYTHONPATH": places})
    yield manager
    run_sync(manager.shutdown_kernel)(now=True)


def execute(path: Path, folder: Path, kernel: SamePython) -> NotebookNode:
    """The notebook with its outputs, and its exercises answered at its end; what it saves goes into the folder.

    Its kernel has neither names nor widgets of another notebook.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for text, instead in SHORTER.get(path.name, {}).items():
            cell.source = cell.source.replace(text, instead)
    begin = nbformat.v4.new_code_cell(f"{FORGET}import os\nos.chdir({str(folder)!r})\ndel os")
    notebook.cells = [begin, *notebook.cells, *answered(notebook.cells)]
    client = NotebookClient(notebook, kernel, timeout=CELL_SECONDS)
    try:
        return client.execute()
    finally:
        if client.kc is not None:  # as where the kernel has died
            client.kc.stop_channels()


def lacking(notebook: NotebookNode, shows: tuple[str, ...]) -> list[str]:
    """What an executed notebook was to show and does not, and exercises whose own answer is called wrong."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = "\n".join(printed(cell) + str(cell.outputs) for cell in cells)
    lacks = [what for what in (FIGURE, *shows) if not re.search(what, shown)]
    told = [f"{of} prints something else than the cell below it says" for of in outdated(notebook.cells)]
    wrong = [cell for cell in cells if cell.metadata.get("exercise") and not printed(cell).startswith("Right")]
    return lacks + told + [f"{cell.source}\nprinted: {printed(cell)}" for cell in wrong]


def outdated(cells: list[NotebookNode]) -> list[str]:
    """The code cells whose printed lines are not told in the cell below them, but for times and cells "measured"."""
    below = {cell.metadata["picture"]["of"]: cell.source for cell in cells if "picture" in cell.metadata}
    found = []
    for cell in cells:
        tags = cell.metadata.get("tags", ())
        if PRINTED not in tags:
            continue
        now, kept = told(cell.outputs), below.get(cell.id, "")
        same = TIME.sub("", kept).startswith(TIME.sub("", now))
        if not (now and kept) or not (same or "measured" in tags):
            found.append(cell.id)
    return found


def printed(cell: NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")
