"""`remat-explorer app`: the explorer alone, as a page, for who has the token."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.browser

PACKAGE = Path(__file__).parents[2]
KERNEL = "JSON.parse(document.getElementById('jupyter-config-data').textContent).kernelId"
PAINTED = """() => {
    const canvases = [...document.querySelectorAll('.remat-matrices .remat-canvas canvas:first-child')];
    return canvases.length > 0 && canvases.every((canvas) => {
        if (canvas.width * canvas.height === 0) return false;
        const context = canvas.getContext('2d');
        const image = context.getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(image.data.buffer)).size >= 3;
    });
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the app is started."""
    return tmp_path_factory.mktemp("app")


@pytest.fixture(scope="module")
def address(chromium: str, folder: Path) -> Iterator[str]:
    """The address that the app prints, with its token; its favourite port is taken."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        environment[f"JUPYTER_{name}"] = str(folder / name)
    environment["IPYTHONDIR"] = str(folder / "ipython")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "remat_explorer.cli", "app", "--no-browser", f"--port={port}", "--theme=dark"]
        log = folder / "app.log"
        with log.open("w") as stream:
            server = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=stream, stderr=stream, start_new_session=True
            )
        try:
            found = _printed(log, server)
            assert urlsplit(found).port != port
            yield found
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


def _printed(log: Path, server: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\w{20,}", log.read_text()):
            return found[0]
        time.sleep(0.2)
    raise RuntimeError(f"the app printed no address: {log.read_text()[-2000:]}")


def _asked(address: str, path: str, method: str = "GET") -> int:
    """The status of an answer to who has the token."""
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


def test_the_page_paints_solves_and_hands_files_over_without_a_request_to_the_outside(
    address: str, page: Any, folder: Path, tmp_path: Path
) -> None:
    page.goto(address)
    page.wait_for_selector(".js-plotly-plot .main-svg", timeout=120_000)
    page.wait_for_selector('.remat-status[data-busy=""]', timeout=120_000)
    page.wait_for_function(PAINTED)
    page.wait_for_selector('.remat-matrices[data-theme="dark"]')
    assert page.locator(".jp-InputArea:visible, .jp-CodeMirrorEditor:visible").count() == 0  # no code
    box = page.locator(".remat-explorer").bounding_box()
    assert box["width"] > 0.95 * page.viewport_size["width"]

    page.set_viewport_size({"width": 1920, "height": 1080})
    page.wait_for_function("() => document.querySelector('.remat-figure .main-svg')?.clientWidth > 900")
    box = page.locator(".remat-explorer").bounding_box()
    assert box["width"] > 0.95 * 1920
    assert 0.95 * 1080 < box["height"] <= 1080
    assert page.locator(".remat-plots").bounding_box()["width"] > 0.5 * 1920

    page.locator(".remat-controls").get_by_role("button", name="Solve").click()
    page.wait_for_selector(".remat-status:has-text('overhead +')", timeout=120_000)
    page.wait_for_selector('.remat-status[data-busy=""]', timeout=120_000)

    page.locator(".remat-export > button").click()
    with page.expect_download(timeout=60_000) as download:
        page.locator(".remat-export-menu").get_by_role("button", name="Solution (JSON)", exact=True).click()
    solution = tmp_path / "mine.json"
    download.value.save_as(solution)
    assert list(folder.glob("*.json")) == []  # where the app was started

    page.get_by_role("tab", name="Compare", exact=True).click()
    page.wait_for_selector(".remat-compare")
    with page.expect_file_chooser() as chooser:
        page.locator(".remat-compare").get_by_role("button", name="Open as B").click()
    chooser.value.set_files(solution)
    page.wait_for_selector(".remat-status:has-text('from mine.json')", timeout=60_000)

    assert page.leaks == []
    assert page.failures == []


def test_a_page_that_is_loaded_anew_ends_the_kernel_that_it_had(address: str, page: Any) -> None:
    page.goto(address)
    page.wait_for_selector(".remat-explorer", timeout=120_000)
    kernel = page.evaluate(KERNEL)
    page.reload()
    page.wait_for_selector(".remat-explorer", timeout=120_000)
    assert page.evaluate(KERNEL) != kernel
    deadline = time.monotonic() + 30
    while _asked(address, f"api/kernels/{kernel}") != 404:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_page_says_that_its_kernel_has_ended(address: str, page: Any) -> None:
    page.goto(address)
    page.wait_for_selector(".remat-explorer", timeout=120_000)
    page.wait_for_load_state("load")
    assert _asked(address, f"voila/api/shutdown/{page.evaluate(KERNEL)}", "POST") == 204
    page.wait_for_selector(".remat-ended:has-text('Load the page again')", timeout=120_000)
