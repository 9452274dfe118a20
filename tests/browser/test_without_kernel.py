"""A notebook that is opened without a kernel: the reader sees how the explorer stood, and nothing that looks broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.explorer_page import ON_SCREEN, await_idle, show
from tests.browser.lab import open_notebook, run_cell, save, write_notebook

pytestmark = pytest.mark.browser

EXPLORER = "rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)"
END = "async () => await window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"


def test_a_saved_notebook_shows_how_the_explorer_stood(lab: tuple[str, Path], page: Any, tmp_path: Path) -> None:
    show(page, lab, "standing.ipynb", EXPLORER)
    assert page.locator(".remat-standing").count() == 1
    assert not page.locator(".remat-standing").is_visible()  # the explorer itself is there
    saved = lab[1] / "standing.ipynb"
    save(page, saved, "optimal (proven)")
    page.evaluate(END)
    open_notebook(page, lab[0], saved.name)
    page.locator(".remat-standing").wait_for(state="visible")
    assert "Best known within 4 B: overhead +52.9 %, optimal (proven)." in page.inner_text(".remat-standing")
    assert page.locator(".remat-standing img").count() == 3
    page.wait_for_timeout(1000)
    assert not page.get_by_text("model not found").is_visible()
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN, timeout=90_000)
    await_idle(page)
    page.locator(".remat-standing").wait_for(state="hidden")

    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path), str(saved)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    page.context.set_offline(True)
    page.goto((tmp_path / "standing.html").as_uri())
    page.locator(".remat-standing").wait_for(state="visible")
    words = page.inner_text("body")
    assert "Best known within 4 B" in words
    assert "model not found" not in words
    assert "Traceback" not in words
    page.context.set_offline(False)


def test_the_live_page_of_a_notebook_works_in_what_nbconvert_makes_of_it(page: Any, tmp_path: Path) -> None:
    notebook = tmp_path / "curve.ipynb"
    write_notebook(notebook, ["import remat_explorer as rx\nrx.page(rx.sweep(rx.linear(8), [3, 5, 10], time_limit=9))"])
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", str(notebook)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    page.context.set_offline(True)
    page.goto(notebook.with_suffix(".html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready][data-shown]").wait_for(timeout=60_000)
    frame.locator("#budget input").evaluate(
        "s => { s.value = s.min; s.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    frame.locator('#said:has-text("Best known within 3 B: overhead +164.7 %, optimal (proven)")').wait_for()
    stage = int(frame.locator(".remat-matrices").get_attribute("data-stage") or 0)
    frame.locator(".remat-matrices").focus()
    page.keyboard.press("ArrowUp")
    frame.locator(f'.remat-matrices[data-stage="{stage - 1}"]').wait_for()
    assert not frame.locator("#copy").is_visible()  # a frame has no address
    assert "it needs no kernel" in page.inner_text("body")
    assert page.failures == []
    page.context.set_offline(False)
