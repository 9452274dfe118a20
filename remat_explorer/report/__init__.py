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

from remat_explorer.callable_module import make_callable
from remat_explorer.report.contents import Origin, ReportContents, differences, drawing
from remat_explorer.report.html import facts, packed, paragraph, table, whole_page
from remat_explorer.report.page import write_report

report = write_report  # as `remat_explorer.report`


make_callable(__name__, write_report)
