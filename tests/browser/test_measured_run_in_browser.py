"""The measured line that draws itself over the prediction, in JupyterLab."""

from __future__ import annotations

import pytest

from tests.browser.lab import run_cell
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

CELLS = [
    "import remat_explorer as rx, torch\n"
    "net = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())])\n"
    "loss = lambda out: out.square().mean()\n"
    "explorer = rx.Explorer(net, (torch.randn(512, 64),), loss=loss, improve=False, sweep=False)\n"
    "explorer.wait(120)\nexplorer",
    "explorer.solve()\nexplorer.wait(60)\nexplorer.execute()",
    "explorer.wait(120)\nexplorer.state.drawings += 1",
]
RUN = "() => document.querySelector('.js-plotly-plot')?.dataset.run"
LINE = """() => {
    const plot = document.querySelector('.js-plotly-plot');
    const {index} = plot._fullData.find((trace) => trace.name === 'measured');
    const node = [...plot.querySelectorAll('g.trace')].find((group) => group.__data__?.[0]?.trace?.index === index);
    const pen = plot.querySelector('.remat-pen');
    return [node.style.clipPath !== '', plot.querySelectorAll('clipPath[id^=remat-measured-run]').length,
        pen && Number(pen.getAttribute('cx'))];
}"""


def test_the_measured_line_is_uncovered_from_left_to_right_and_then_stands(notebook: LastingNotebook) -> None:
    page = notebook.begin(*CELLS)
    run_cell(page, 0)
    run_cell(page, 1)
    page.wait_for_function(f"{RUN} === 'drawing'", timeout=90_000)
    places = []
    while page.evaluate(RUN) == "drawing":
        covered, clips, place = page.evaluate(LINE)
        if place is not None:
            assert (covered, clips) == (True, 1)
            places.append(place)
        page.wait_for_timeout(50)
    assert len(places) > 4
    assert places == sorted(places)
    assert places[-1] > places[0]
    assert page.evaluate(LINE) == [False, 0, None]
    proof = page.locator(".remat-panel.execution .proof").inner_text()
    assert "gradients equal bit for bit" in proof
    assert "predicted" in proof
    page.get_by_role("button", name="Draw it again").click()
    page.wait_for_function(f"{RUN} === 'drawing'", timeout=10_000)
    page.wait_for_function(f"{RUN} === 'drawn'", timeout=20_000)
    page.emulate_media(reduced_motion="reduce")
    page.evaluate("() => { document.querySelector('.js-plotly-plot').dataset.run = ''; }")
    run_cell(page, 2)
    page.wait_for_timeout(500)
    assert page.evaluate(RUN) != "drawing"
    assert page.evaluate(LINE) == [False, 0, None]
    assert page.leaks == []
    assert page.failures == []
