"""`remat-explorer lab`: JupyterLab, opened on the explorer."""

from __future__ import annotations

import argparse
from typing import NoReturn

from remat_explorer.lab import open_lab


def lab(options: argparse.Namespace) -> NoReturn:
    """Serve JupyterLab until it is stopped."""
    open_lab(options.notebook, options.port, browser=not options.no_browser)
