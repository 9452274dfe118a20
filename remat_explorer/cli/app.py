"""`remat-explorer app`: the explorer alone, as a page."""

from __future__ import annotations

import argparse

from remat_explorer.app import open_app


def app(options: argparse.Namespace) -> int:
    """Serve the explorer until it is stopped."""
    return open_app(options.port, options.theme, browser=not options.no_browser, token=not options.without_token)
