"""One notebook in JupyterLab for many tests: its cells are replaced, its kernel forgets, nothing is loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser.lab import code_cells, open_notebook, write_notebook

NAME = "lasting.ipynb"
HAS_KERNEL = """() => {
    const kernel = window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel;
    return kernel?.connectionStatus === 'connected';
}"""
# Explorers end their work, widgets leave the page, and names are forgotten.
FORGET = """
import gc, sys, ipywidgets
if module := sys.modules.get("remat_explorer.explorer"):
    for explorer in [kept for kept in gc.get_objects() if isinstance(kept, module.Explorer)]:
        explorer.close()
ipywidgets.Widget.close_all()
get_ipython().reset(new_session=False)
"""
EXECUTE = """async (code) => {
    await window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'});
    const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
    if (kernel.status === 'busy') await kernel.interrupt(); // a test has ended before its cell
    const reply = await kernel.requestExecute({code, store_history: false}).done;
    return reply.content.status + ' ' + (reply.content.traceback ?? []).join('\\n');
}"""
REPLACE = """(notebook) => window.jupyterapp.shell.currentWidget.context.model.fromJSON(notebook)"""


class LastingNotebook:
    """A page of JupyterLab with an open notebook and its kernel.

    Args:
        page: of the browser.
        address: of JupyterLab.
        root: the folder that it serves, in which the kernel runs.
    """

    def __init__(self, page: Any, address: str, root: Path) -> None:
        self.page = page
        self.root = root
        self._address = address

    def begin(self, *cells: str) -> Any:
        """The page with a notebook of other cells, as if it had been opened anew: 1280 x 800, light, nothing run."""
        self.page.set_viewport_size({"width": 1280, "height": 800})
        self.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        if self.page.evaluate(HAS_KERNEL):
            self.clear()
        else:
            write_notebook(self.root / NAME, [])
            open_notebook(self.page, self._address, NAME)
        self.page.evaluate(REPLACE, code_cells(cells))
        self.page.wait_for_timeout(500)  # what widgets that are gone had still to do
        self.page.failures.clear()
        self.page.leaks.clear()
        return self.page

    def clear(self) -> None:
        """No widgets, no cells, no names, and no work in the background."""
        if self.page.evaluate(HAS_KERNEL):
            said = self.page.evaluate(EXECUTE, FORGET)
            assert said.startswith("ok"), said
            self.page.evaluate(REPLACE, code_cells([""]))
