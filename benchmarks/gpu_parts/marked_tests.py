"""The tests marked gpu, one unit each: their outcome, and what a failure says."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpu_parts.record import PROBLEM
from gpu_parts.supervising import FOLDER
from gpu_parts.work import RESTART, UNUSABLE, Work

ROOT = FOLDER.parent
MARK = re.compile(r"mark\.gpu\b|numerics import DEVICES")


def marked_files() -> list[Path]:
    """The files that have such tests."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in files if MARK.search(path.read_text(encoding="utf-8"))]


def run(work: Work) -> None:
    """Run pytest over the files that have such tests, without those that are done."""
    os.chdir(ROOT)
    marked = [str(path.relative_to(ROOT)) for path in marked_files()]
    done = [argument for name in work.record.units if work.record.is_done(name) for argument in ("--deselect", name)]
    command = ["-q", "-m", "gpu", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", *done, *marked]
    pytest.main([str(argument) for argument in command], plugins=[Reporter(work)])


class Reporter:
    """Writes the outcome of each test when it is there, and ends the run when the time is over."""

    def __init__(self, work: Work) -> None:
        self.work, self.session = work, None

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Files with few tests come first: of one kind of test a part will do when the time is over."""
        tests_of = Counter(item.path for item in items)
        items.sort(key=lambda item: tests_of[item.path])

    def pytest_collection_finish(self, session: Any) -> None:
        """What there is to do."""
        self.session = session
        done = [name for name in self.work.record.names if self.work.record.is_done(name)]
        self.work.record.names = [*done, *(item.nodeid for item in session.items if item.nodeid not in done)]
        self.work.record.write()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self.work.record.running = nodeid
        self.work.record.write()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A phase of a test has ended."""
        if report.when == "call" or not report.passed:
            entry = {"outcome": report.outcome, "seconds": round(report.duration, 2)}
            if report.skipped and isinstance(report.longrepr, tuple):
                entry["why"] = str(report.longrepr[-1])
            if report.failed:
                entry[PROBLEM] = str(report.longreprtext)[-3000:]
            self.work.keep(report.nodeid, entry, running=report.nodeid)
            if report.failed and any(text in report.longreprtext for text in UNUSABLE):
                self.work.keep(report.nodeid, {})
                os._exit(RESTART)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended."""
        self.work.record.running = ""
        self.work.record.write()
        if self.work.left <= 0 and self.session is not None:
            self.session.shouldstop = "the time is over"
