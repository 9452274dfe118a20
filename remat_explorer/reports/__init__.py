"""Reports: one self-contained HTML file that shows a solution, opens with no network, and holds what it is about.

>>> import tempfile
>>> import remat_explorer as rx
>>> solution = rx.solve(rx.linear(8), budget=4)
>>> with tempfile.TemporaryDirectory() as folder:
...     report(solution, f"{folder}/report.html").read_text(encoding="utf-8")[:15]
'<!doctype html>'
"""

from remat_explorer.reports.contents import Origin
from remat_explorer.reports.page import write_report
from remat_explorer.reports.page import write_report as report

__all__ = ["Origin", "report", "write_report"]
