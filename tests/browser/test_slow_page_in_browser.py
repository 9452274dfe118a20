"""The explorer on a page that is so slow that anywidget gives its widgets up."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest

from remat_explorer.explorer.page_widget import with_late_connection
from remat_explorer.explorer.plots_view import LATER, PlotsPage
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


# plotly is read when the test says so.
HELD = """const held = new Promise((go) => (window.release = go));
const read = Response.prototype.arrayBuffer;
Response.prototype.arrayBuffer = async function () { await held; return read.call(this); };"""
DRAWN = """() => {
    const plot = document.querySelector('.remat-plots .js-plotly-plot');
    return plot?.data && plot.data.some(({name}) => name === 'optimal') && !plot.layout.annotations[0].visible;
}"""
# A kernel's model, and in plotly's place a widget that notes what it hears.
MODEL_ALONE = """async (module) => {
    const [values, heard] = [{ _last_layout_edit_id: 3, probed: false }, {}];
    const whole = {
        get: (name) => values[name],
        on: (name, then) => (heard[name] ??= []).push(then),
        off: (name, then) => (heard[name] = (heard[name] ?? []).filter((other) => other !== then)),
        trigger: (name) => (heard[name] ?? []).forEach((then) => then(whole)),
        set(name, value) { values[name] = value; this.trigger(`change:${name}`); },
        _handle_comm_msg: async () => {},
    };
    window.say = (name, message) => {
        whole.set(`_py2js_${name}`, message);
        whole.set(`_py2js_${name}`, null);
    };
    window.give = (state) => {
        Object.assign(values, state);
        for (const name in state) whole.trigger(`change:${name}`);
    };
    window.noted = [];
    const address = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
    const widget = await (await import(address)).default();
    widget.initialize({ model: { ...whole, set: whole.set.bind(whole) } });
    window.show = async () => (await widget.render({}));
}"""
NOTING = """export default () => ({
    initialize({ model }) {
        for (const name of ["addTraces", "update"])
            model.on(`change:_py2js_${name}`, () => {
                const said = model.get(`_py2js_${name}`);
                window.noted.push(said.layout_edit_id);
                if (said.fails) throw new Error("no such trace");
            });
    },
    render() {},
})"""


@pytest.fixture
def noting(page: Any) -> Any:
    """A page with the module of the figure's widget, which has not been shown yet."""
    code = base64.b64encode(zlib.compress(NOTING.encode())).decode("ascii")
    page.goto("about:blank")
    page.evaluate(MODEL_ALONE, with_late_connection(LATER.read_text("utf-8")).replace('CODE"', f'{code}"'))
    return page


def test_what_is_said_before_plotly_is_there_is_told_to_it_in_its_order(noting: Any) -> None:
    noting.evaluate("say('addTraces', {layout_edit_id: 4}); say('update', {layout_edit_id: 5})")
    noting.evaluate("show()")
    noting.evaluate("say('update', {layout_edit_id: 6})")
    assert noting.evaluate("noted") == [4, 5, 6]


def test_a_whole_state_takes_the_place_of_what_was_said_before_it(noting: Any) -> None:
    noting.evaluate("say('addTraces', {layout_edit_id: 4}); give({_widget_data: [], _last_layout_edit_id: 7})")
    noting.evaluate("say('update', {layout_edit_id: 8})")
    noting.evaluate("show()")
    assert noting.evaluate("noted") == [8]


def test_what_follows_a_message_that_was_missed_is_not_drawn(noting: Any) -> None:
    noting.evaluate("show()")
    noting.evaluate("say('update', {layout_edit_id: 4}); say('update', {layout_edit_id: 6})")
    noting.evaluate("say('update', {layout_edit_id: 7})")
    assert noting.evaluate("noted") == [4]


def test_what_follows_a_message_that_plotly_refused_is_not_drawn(noting: Any) -> None:
    noting.evaluate("show()")
    noting.evaluate("try { say('update', {layout_edit_id: 4, fails: true}) } catch {}")
    noting.evaluate("say('update', {layout_edit_id: 5})")
    assert noting.evaluate("noted") == [4]


def test_the_curve_that_is_drawn_while_the_page_loads_plotly_is_on_the_screen(lab: tuple[str, Path], page: Any) -> None:
    address, root = lab
    made = "explorer = rx.Explorer(graph=rx.linear(8), budget=10, improve=False, sweep=False)\nexplorer.wait()"
    filled = "explorer.state.sweep = True\nexplorer.wait_for_sweep()"
    changing = "import time\nfor i in range(80):\n    explorer.state.dragged = 5 + i % 2\n    time.sleep(0.1)"
    write_notebook(root / "held.ipynb", [f"import remat_explorer as rx\n{made}\nexplorer", f"{filled}\n{changing}"])
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if "Error setting state" in message.text else None)
    page.add_init_script(HELD)
    open_notebook(page, address, "held.ipynb")
    run_cell(page, 0)
    page.wait_for_selector(".remat-plots", timeout=60_000)
    page.evaluate("() => void setTimeout(release, 3000)")  # while changes follow each other, none is asked for again
    run_cell(page, 1)
    page.wait_for_function(DRAWN, timeout=20_000)
    assert errors == []


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
