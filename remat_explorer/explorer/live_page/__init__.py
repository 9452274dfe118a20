"""The explorer without a kernel: one page in which a curve that was computed can be explored."""

from __future__ import annotations

from remat_explorer.explorer.live_page.page import LivePage, live_page, page, save_page

__all__ = ["LivePage", "live_page", "page", "save_page"]
