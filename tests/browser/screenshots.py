"""Screenshots of the explorer in JupyterLab at 1280 x 800, light and dark, of whatever the cells show.

python tests/browser/screenshots.py FOLDER 'rx.Explorer("vgg16", batch=4, image=64)' ...
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from lab import MEND, browse, find_chromium, open_notebook, run_cell, serve, write_notebook
from playwright.sync_api import sync_playwright

IDLE = "() => document.querySelector('.remat-status[data-busy=\"\"]') !== null"


def photograph(folder: Path, expressions: list[str], dark: bool) -> None:
    """Two pictures per expression: after Solve, and after Execute where that is possible."""
    theme = "dark" if dark else "light"
    chromium = find_chromium() or sys.exit(f"no browser was found; mend it with: {MEND}")
    with tempfile.TemporaryDirectory() as place, serve(Path(place), dark) as address, sync_playwright() as playwright:
        for number, expression in enumerate(expressions):
            name = f"picture{number}.ipynb"
            write_notebook(
                Path(place) / "root" / name, [f"import remat_explorer as rx\nexplorer = {expression}\nexplorer"]
            )
            with browse(playwright, Path(place) / f"profile{number}", chromium) as page:
                open_notebook(page, address, name)
                run_cell(page, 0)
                page.wait_for_selector(".js-plotly-plot .main-svg", timeout=60_000)
                page.wait_for_function(IDLE, timeout=60_000)
                page.keyboard.press("Escape")
                for step in ("Solve", "Execute"):
                    button = page.locator(".remat-controls").get_by_role("button", name=step)
                    if button.is_disabled():
                        continue
                    button.click()
                    page.wait_for_timeout(700)
                    page.wait_for_function(IDLE, timeout=60_000)
                    page.locator(".remat-matrices").evaluate("root => root.focus()")
                    page.keyboard.press("Home")
                    for _ in range(4):
                        page.keyboard.press("PageDown")
                    page.locator(".remat-explorer").evaluate("root => root.scrollIntoView({block: 'end'})")
                    page.wait_for_timeout(800)
                    path = folder / f"{number}-{step.lower()}-{theme}.png"
                    page.screenshot(path=path)
                    print(path, page.locator(".remat-explorer").bounding_box(), page.leaks, page.failures)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for dark in (False, True):
        photograph(target, sys.argv[2:] or ['rx.Explorer("mlp")'], dark)
