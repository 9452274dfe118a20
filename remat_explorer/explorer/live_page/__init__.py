"""The explorer without a kernel: one file in which a curve that was computed can be explored."""

from __future__ import annotations

from remat_explorer.explorer.live_page.page import write_live_page

__all__ = ["write_live_page"]
