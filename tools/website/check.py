"""Opens pages of the built site in Chromium without a network, and says what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remat_explorer.cli.terminal import REMEDY, find_chromium

WIDTHS = {"computer": 1280, "phone": 390}
UNDRAWN = """() => [...document.querySelectorAll('.site-figure')]
    .filter((figure) => !figure.querySelector('.main-svg')).length"""
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def faults(site: Path, pages: Sequence[Path] | None = None, wait: int = 60_000) -> list[str]:
    """What is wrong, a line each: errors of scripts, requests to other hosts, figures undrawn, pages too wide.

    Args:
        site: folder of the built pages.
        pages: those to open; None for all.
        wait: milliseconds for the figures of a page.

    Raises:
        RuntimeError: if there is no browser.
    """
    from playwright.sync_api import sync_playwright

    chromium = find_chromium()
    if chromium is None:
        raise RuntimeError(f"neither Chromium nor Chrome was found; mend it with: {REMEDY}")
    found: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTHS["phone"], "height": 800})
        for path in sorted(site.rglob("*.html")) if pages is None else pages:
            if "_static" not in path.parts:
                found += [f"{path.relative_to(site)}: {fault}" for fault in _faults_of(page, path, wait)]
        browser.close()
    return found


def _faults_of(page: Any, path: Path, wait: int) -> list[str]:
    found: list[str] = []
    listeners = {
        "pageerror": lambda error: found.append(f"error {error}"),
        "requestfailed": lambda request: found.append(f"not found {request.url[:200]}"),
        "request": lambda request: found.append(f"request {request.url[:200]}") if _outside(request.url) else None,
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    page.goto(path.as_uri())
    try:
        page.wait_for_function(f"() => ({UNDRAWN})() === 0", timeout=wait)
    except Exception as error:
        found.append(f"{page.evaluate(UNDRAWN)} figures are not drawn: {str(error).splitlines()[0]}")
    if (wider := page.evaluate(TOO_WIDE)) > 0:
        found.append(f"{wider} pixels wider than a phone")
    page.goto("about:blank")
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    return found


def _outside(address: str) -> bool:
    return not address.startswith(("file:", "data:", "blob:", "about:"))
