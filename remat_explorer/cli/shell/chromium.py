"""Where a browser is that tests and pictures of the documentation can drive."""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
REMEDY = "apt-get install -y chromium (or, without root: playwright install chromium)"


def find_chromium() -> str | None:
    """Chromium or Chrome on the PATH, else the one that Playwright has installed, else None.

    Raises:
        ModuleNotFoundError: if none is on the PATH, and Playwright is not installed.
    """
    for name in NAMES:
        if path := shutil.which(name):
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None
