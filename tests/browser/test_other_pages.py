"""The explorer elsewhere: in Notebook 7, alone as `remat-explorer app`, and on a page too slow for anywidget."""

import base64
import re
import socket
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from remat_explorer.explorer.page_widget import with_late_connection
from remat_explorer.explorer.plots_view import LATER, PlotsPage
from tests.browser.explorer_page import (
    ON_SCREEN,
    PAINTED,
    PREDICTED,
    await_idle,
    await_status,
    choose_picture,
    choose_tab,
    click,
    flawless,
    status,
)
from tests.browser.lab import open_notebook, own_environment, run, run_cell, running, serve, write_notebook

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def seven(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("notebook")
    with serve(folder, program="notebook") as address:
        yield address, folder / "root"


def test_the_explorer_works_in_notebook_7(seven: tuple[str, Path], page: Any) -> None:
    address, root = seven
    write_notebook(root / "explorer.ipynb", [MADE])
    open_notebook(page, address, "explorer.ipynb", "notebooks")
    own_failures = list(page.failures)  # Notebook's, while it starts
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN)
    await_idle(page)
    choose_picture(page, "Plots")
    page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot .scatterlayer path').length > 3")
    choose_picture(page, "Overview")
    page.get_by_role("button", name="Find the best").click()
    await_status(page, "Proven best")
    stage = int(page.locator(".remat-matrices").get_attribute("data-stage"))
    page.locator(".remat-matrices").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(f'.remat-matrices[data-stage="{stage + 1}"]')
    slider = page.locator(".remat-curve input")
    drawn = page.locator(".remat-matrices").get_attribute("data-drawn")
    slider.evaluate("s => { s.value = s.max; s.dispatchEvent(new Event('input', {bubbles: true})); }")
    page.wait_for_selector(f'.remat-matrices:not([data-drawn="{drawn}"])')
    assert [failure for failure in page.failures if failure not in own_failures] == []
    assert page.leaks == []


MADE = """import remat_explorer as rx
explorer = rx.Explorer(graph=rx.linear(8), budget=10, improve=False, sweep=False)
explorer.wait()
explorer"""
PLOTS = MADE.replace("explorer.wait()", "explorer.wait()\nexplorer.state.picture = 'plots'")
KERNEL = "JSON.parse(document.getElementById('jupyter-config-data').textContent).kernelId"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app")


@pytest.fixture(scope="module")
def address(chromium: str, folder: Path) -> Iterator[str]:
    """The address that the app prints, with its token; its favourite port is taken."""
    environment = {**own_environment(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "remat_explorer.cli", "app", "--no-browser", f"--port={port}", "--theme=dark"]
        log = folder / "app.log"
        with running(command, log, cwd=folder, env=environment) as server:
            deadline = time.monotonic() + 90
            while not (found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\w{20,}", log.read_text())):
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                assert server.poll() is None, log.read_text()[-2000:]
                time.sleep(0.2)
            assert urlsplit(found[0]).port != port
            yield found[0]


def _asked(address: str, path: str, method: str = "GET") -> int:
    place, _, token = address.partition("?token=")
    request = urllib.request.Request(f"{place}{path}", method=method, headers={"Authorization": f"token {token}"})
    try:
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def test_without_the_token_nothing_is_served(address: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    bare = address.partition("?")[0]
    answer = opener.open(bare, timeout=30)
    assert urlsplit(answer.url).path == "/login"
    assert b"REMAT_EXPLORER_FOLDER" not in answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(f"{bare}api/kernels/00000000-0000-0000-0000-000000000000", timeout=30)
    assert refused.value.code == 403


def opened(page: Any, go: Any) -> str:
    go()
    page.wait_for_selector(".remat-explorer")
    return page.evaluate(KERNEL)


def test_the_app_solves_hands_files_over_and_ends(address: str, page: Any, folder: Path, tmp_path: Path) -> None:
    kernel = opened(page, lambda: page.goto(address))
    page.wait_for_function(ON_SCREEN)
    await_idle(page, 300)
    page.wait_for_function(PAINTED)
    page.wait_for_selector('.remat-matrices[data-theme="dark"]')
    assert page.locator(".jp-InputArea:visible, .jp-CodeMirrorEditor:visible").count() == 0  # no code
    box = page.locator(".remat-explorer").bounding_box()
    assert box["width"] > 0.95 * page.viewport_size["width"]

    page.set_viewport_size({"width": 1920, "height": 1080})
    page.wait_for_function("() => document.querySelector('.remat-map canvas').clientWidth > 900")
    box = page.locator(".remat-explorer").bounding_box()
    assert box["width"] > 0.95 * 1920
    assert 0.95 * 1080 < box["height"] <= 1080

    click(page, "Find the best")
    await_status(page, "overhead +", 300)
    await_idle(page, 300)

    page.get_by_role("button", name="⋯").click()
    page.locator(".remat-export > button").click()
    with page.expect_download() as download:
        page.locator(".remat-export-menu").get_by_role("button", name="Solution (JSON)", exact=True).click()
    solution = tmp_path / "mine.json"
    download.value.save_as(solution)
    assert list(folder.glob("*.json")) == []  # where the app was started

    choose_tab(page, "Compare")
    page.wait_for_selector(".remat-compare")
    with page.expect_file_chooser() as chooser:
        page.locator(".remat-compare").get_by_role("button", name="Open as B").click()
    chooser.value.set_files(solution)
    await_status(page, "from mine.json", 120)
    assert flawless(page)

    another = opened(page, page.reload)
    assert another != kernel
    deadline = time.monotonic() + 60
    while _asked(address, f"api/kernels/{kernel}") != 404:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    page.wait_for_load_state("load")
    assert _asked(address, f"voila/api/shutdown/{another}", "POST") == 204
    page.wait_for_selector(".remat-ended:has-text('Load the page again')")


# anywidget waits two seconds for a module; here it gives up at once.
IMPATIENT = "const wait = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = () => wait(0);"
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
    window.say = (name, layout_edit_id, fails) => {
        whole.set(`_py2js_${name}`, { layout_edit_id, fails });
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


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ("say('addTraces', 4); say('update', 5); show(); say('update', 6)", [4, 5, 6]),
        ("say('addTraces', 4); give({_widget_data: [], _last_layout_edit_id: 7}); say('update', 8); show()", [8]),
        ("show(); say('update', 4); say('update', 6); say('update', 7)", [4]),
        ("show(); try { say('update', 4, true) } catch {}; say('update', 5)", [4]),
    ],
    ids=["before plotly is there", "a whole state comes", "a message is missed", "plotly refuses a message"],
)
def test_plotly_is_told_in_order_and_nothing_after_a_gap(file_page: Any, said: str, noted: list[int]) -> None:
    code = base64.b64encode(zlib.compress(NOTING.encode())).decode("ascii")
    module = with_late_connection(LATER.read_text("utf-8")).replace('CODE"', f'{code}"')
    file_page.evaluate(MODEL_ALONE, module)
    for words in said.split("; "):
        file_page.evaluate(words)
    assert file_page.evaluate("noted") == noted


def test_the_curve_that_is_drawn_while_the_page_loads_plotly_is_on_the_screen(lab: tuple[str, Path], page: Any) -> None:
    address, root = lab
    filled = "explorer.state.sweep = True\nexplorer.wait_for_sweep()"
    changing = "import time\nfor i in range(40):\n    explorer.state.dragged = 5 + i % 2\n    time.sleep(0.1)"
    write_notebook(root / "held.ipynb", [PLOTS])
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if "Error setting state" in message.text else None)
    page.add_init_script(HELD)
    open_notebook(page, address, "held.ipynb")
    run_cell(page, 0)
    page.wait_for_selector(".remat-plots")
    page.evaluate("() => void setTimeout(release, 1500)")  # while changes follow each other, none is asked for again
    run(page, f"{filled}\n{changing}")
    page.wait_for_function(DRAWN)
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
    told = "explorer.state.more = True\nexplorer.state.stage = 7\nexplorer.state.budget = 4"
    write_notebook(root / "slow.ipynb", [MADE])
    page.add_init_script(IMPATIENT)
    open_notebook(page, address, "slow.ipynb")
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN)
    page.wait_for_selector(".remat-more option:disabled", state="attached")
    await_idle(page)
    run(page, f"explorer.state.picture = 'plots'\n{told}\nexplorer.solve()\nexplorer.wait()")
    page.wait_for_selector(".remat-more", state="visible")
    page.wait_for_function(PREDICTED, arg=4)
    assert "4 B" in status(page)
    run(page, "explorer.present()")
    page.wait_for_selector('.remat-presenter[data-scene="0"]')
