"""Reports: one self-contained HTML file that shows a solution, opens with no network, and holds what it is about.

The module itself can be called, as `remat_explorer.capture` can.

>>> import tempfile
>>> import remat_explorer as rx
>>> solution = rx.solve(rx.linear(8), budget=4)
>>> with tempfile.TemporaryDirectory() as folder:
...     report(solution, f"{folder}/report.html").read_text(encoding="utf-8")[:15]
'<!doctype html>'
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from remat_explorer.report.contents import Origin
from remat_explorer.report.page import write_report

report = write_report  # as `remat_explorer.report`

__all__ = ["Origin", "report", "write_report"]


class _CallableModule(ModuleType):
    """Importing a subpackage binds its name in the parent, over the function of the same name; so it is callable."""

    __signature__ = inspect.signature(write_report)

    def __call__(self, *args: Any, **kwargs: Any) -> Path:
        return write_report(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
