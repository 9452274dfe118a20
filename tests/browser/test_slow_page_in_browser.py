"""The explorer on a page that is so slow that anywidget gives its widgets up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remat_explorer.explorer.plots.plots_page import PlotsPage
from tests.browser.explorer_page import ON_SCREEN, await_idle, status
from tests.browser.lab import open_notebook, run_cell, write_notebook

pytestmark = pytest.mark.browser

# anywidget waits two seconds for a module; here it gives up at once.
IMPATIENT = "const wait = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = () => wait(0);"
PREDICTED = """(height) => {
    const line = document.querySelector('.js-plotly-plot')?._fullData?.find(({name}) => name === 'predicted');
    return line && Math.max(...line.y) === height
}"""

PAGE_ALONE = """(module) => {
    document.body.innerHTML = '<div class="remat-plots"><p id="page">.</p></div>';
    const at = document.querySelector('#page');
    window.told = [];
    const known = { start: 0, end: 1, colour: 'red', revision: 1 };
    const model = { get: (name) => known[name], on() {}, send: (message) => told.push(Object.keys(message)[0]) };
    window.arrive = (meta) => {
        document.querySelector('.js-plotly-plot')?.remove();
        const plot = Object.assign(document.createElement('div'), { className: 'js-plotly-plot', layout: { meta } });
        plot.on = () => {};
        at.before(plot);
    };
    new Function(module.replace('export default', 'return'))().render({ model, el: at });
}"""


def test_a_figure_that_came_late_and_is_not_the_one_to_be_shown_is_asked_for_again_at_once(page: Any) -> None:
    page.clock.install()
    page.goto("about:blank")
    page.evaluate(PAGE_ALONE, PlotsPage.module)
    page.clock.run_for(16_000)
    assert page.evaluate("told") == ["missed", "missed"]  # after 5 and 10 seconds: plotly loads slowly here
    page.evaluate("arrive(0)")
    page.clock.run_for(1_100)
    assert page.evaluate("told.slice(2)") == ["arrived", "missed"]
    page.evaluate("arrive(1)")
    page.clock.run_for(60_000)
    assert page.evaluate("told.slice(4)") == ["arrived"]


def test_every_widget_hears_the_kernel_though_anywidget_has_given_up(lab: tuple[str, Path], page: Any) -> None:
    address, root = lab
    made = "explorer = rx.Explorer(graph=rx.linear(8), budget=10, improve=False, sweep=False)\nexplorer.wait()"
    told = "explorer.state.more = True\nexplorer.state.stage = 7\nexplorer.state.budget = 4\nexplorer.solve()\n"
    told += "explorer.wait()"
    write_notebook(root / "slow.ipynb", [f"import remat_explorer as rx\n{made}\nexplorer", told, "explorer.present()"])
    page.add_init_script(IMPATIENT)
    open_notebook(page, address, "slow.ipynb")
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN, timeout=90_000)
    page.wait_for_selector(".remat-more option:disabled", state="attached", timeout=20_000)
    await_idle(page)
    run_cell(page, 1)
    page.wait_for_selector(".remat-more", state="visible", timeout=20_000)
    page.wait_for_function(PREDICTED, arg=4, timeout=20_000)
    assert "4 B" in status(page)
    run_cell(page, 2)
    page.wait_for_selector('.remat-presenter[data-scene="0"]', timeout=20_000)
