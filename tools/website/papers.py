"""Notebooks that regenerate the items of each paper with small settings, for the site."""

from __future__ import annotations

import re

import nbformat
from nbformat.notebooknode import NotebookNode

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


def paper_notebooks() -> dict[str, NotebookNode]:
    """A notebook for each paper, by the name of its page, with a section for each item."""
    from reproduction import ITEMS

    found: dict[str, NotebookNode] = {}
    for key, item in ITEMS.items():
        name = re.sub(r"\W+", "-", item.paper.lower())
        if name not in found:
            head = f"# {item.paper}, item by item\n\nWith small settings; [all results](../docs/papers.md)."
            found[name] = nbformat.v4.new_notebook(metadata=METADATA, cells=[nbformat.v4.new_markdown_cell(head)])
        published = f"\n\nPublished: {item.published}" if item.published else ""
        text = f"## {item.name}: {item.title}\n\n`{key}`.{published}"
        code = nbformat.v4.new_code_cell(RUN.format(key=key), metadata={"tags": ["hide-input"]})
        found[name].cells += [nbformat.v4.new_markdown_cell(text), code]
    return found
