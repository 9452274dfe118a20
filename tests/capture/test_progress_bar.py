"""A bar is shown where somebody looks, and is gone afterwards."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from remat_explorer.capture.profiling import progress_bar


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def count_to_three() -> None:
    with progress_bar("profiling", 3) as advance:
        for done in (1, 2, 3):
            advance(done, 3)


def test_nothing_is_shown_where_nobody_looks(capsys):
    count_to_three()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar_that_goes(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    count_to_three()
    assert "profiling:   0%" in terminal.getvalue()
    assert terminal.getvalue().split("\r")[-2].strip() == ""


@pytest.mark.parametrize(("config", "shown"), [({"IPKernelApp": {}}, True), ({}, False)])
def test_a_notebook_shows_a_bar_on_stdout_and_a_plain_ipython_none(capsys, monkeypatch, config, shown):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(config=config)))
    count_to_three()
    out, err = capsys.readouterr()
    assert ("profiling" in out) == shown
    assert err == ""


def test_an_error_inside_closes_the_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(ValueError, match="stop"), progress_bar("profiling", 3):
        raise ValueError("stop")
    assert terminal.getvalue().endswith("\r")
