"""Notebooks that regenerate the items of each paper with small settings, and the page of each item on the site."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat.notebooknode import NotebookNode

from tools.website.execution import ROOT

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
RUN = """from IPython.display import HTML, display

from reproduction import ITEMS
from reproduction.item import table_of

outcome = ITEMS["{key}"].run("small")
print(outcome.result)
display(outcome.figure)
rows = f"<details><summary>The data</summary>{{table_of(outcome.rows)}}</details>"
display(HTML(rows))"""
ITEM = "item"  # in the metadata of a code cell: the item that it regenerates
RUNS = """# MONeT's runs, one by one

Every problem whose costs the authors published, solved here within 60 s beside the cheapest published schedule. What
differs says [the page of both papers](../docs/papers.md#monets-runs).

A row is called by network and mode, and after @ by the budget in GiB. Modes: i is in place, c convolution algorithms
with ReLU's backward pass from its output, m output-activated, n intermediate-activated; "checkmate" is Checkmate's
problem, without workspace. "!" marks a row that costs more here than there, "?" one in which a choice costs more than
the default implementations, and "~" one whose published run is of another problem.

Their bound is the highest of their logs, unless it is above their schedule, which would be of another problem. Five
schedules have no log. That the logs of `resnet50_icmn`, `googlenet_icmn`, `googlenet_ic` and `googlenet_checkmate`
belong to the published costs is likely, but was not checked: the copy of the repository that was read has no contents
of their schedules.

"""


def paper_notebooks() -> dict[str, NotebookNode]:
    """A notebook for each paper, by its name, with a cell for each item."""
    from reproduction import ITEMS

    found: dict[str, NotebookNode] = {}
    for key, item in ITEMS.items():
        name = re.sub(r"\W+", "-", item.paper.lower())
        if name not in found:
            found[name] = nbformat.v4.new_notebook(metadata=METADATA)
        metadata = {"tags": ["hide-input"], ITEM: key}
        found[name].cells.append(nbformat.v4.new_code_cell(RUN.format(key=key), metadata=metadata))
    return found


def item_pages(name: str, notebook: NotebookNode) -> dict[str, NotebookNode]:
    """The pages of a paper's notebook, by name: one for each item, or the notebook as it is where it has none."""
    from reproduction import ITEMS
    from reproduction.overview import item_text

    known = results("papers")
    pages = {}
    for cell in notebook.cells:
        if (key := cell.metadata.get(ITEM)) is not None:
            text = nbformat.v4.new_markdown_cell(item_text(ITEMS[key], known.get(key)))
            pages[key] = nbformat.v4.new_notebook(metadata=METADATA, cells=[text, cell])
    return pages or {name: notebook}


def runs_page() -> str:
    """The page of MONeT's published runs, of the table of its results file."""
    return RUNS + "\n".join(results("monet_p100")["table"]) + "\n"


def linked_keys(text: str, folder: Path) -> str:
    """The page of both papers with a link from each item to its page, where it has one, and the list of all pages."""

    def linked(match: re.Match[str]) -> str:
        before, key = match.groups()
        page = f"papers/{key}.ipynb"
        return f"{before}[`{key}`](../{page})" if (folder / page).exists() else match[0]

    pages = "\n## The pages\n\n```{toctree}\n:glob:\n\n../papers/*\n```\n"
    return re.sub(r"^(\| [^|`]+, )`([\w-]+)`(?= \|)", linked, text, flags=re.MULTILINE) + pages


def results(name: str) -> Mapping[str, Any]:
    """What a file of results holds."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
