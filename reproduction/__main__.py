"""`python -m reproduction`: the items of both papers, listed or regenerated.

    python -m reproduction                                           # lists the items
    python -m reproduction checkmate-figure-6 --full -o figure.html  # one of them

Exit codes are those of `remat-explorer`.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from remat_explorer.cli import main as run_command
from remat_explorer.cli.output import DONE, INTERRUPTED, NOT_IN_TIME, put, require_outputs, say, table, written_to
from remat_explorer.errors import QuantityError
from remat_explorer.quantities import format_seconds
from reproduction.item import Item, Outcome, Settings, require_format
from reproduction.items import ITEMS, find_item

TICK = 0.1  # seconds between two looks at the run
WHAT = "List the papers' figures, tables and numbers, or regenerate one."
EXAMPLES = """examples:
  python -m reproduction
  python -m reproduction checkmate-figure-6 --full -o figure.html

Ctrl-C ends an item with what there is by then. Exit codes: 0 done, 3 not everything was found in time or interrupted
(what there is is still written), 64 bad input, 69 memory or a package is missing, 130 interrupted before anything was
found."""


def main(arguments: Sequence[str] | None = None) -> int:
    """List the items or regenerate one, and return the exit code."""
    return run_command(arguments, make_parser)


def make_parser() -> argparse.ArgumentParser:
    """The parser; what it parsed has `regenerate` as ``command``.

    >>> make_parser().parse_args(["checkmate-figure-6"]).item
    'checkmate-figure-6'
    """
    from remat_explorer.cli.parser import CommandParser

    layout = argparse.RawDescriptionHelpFormatter
    parser = CommandParser("python -m reproduction", description=WHAT, epilog=EXAMPLES, formatter_class=layout)
    parser.add_argument("item", nargs="?", metavar="ITEM", help="such as checkmate-figure-6 (default: list them)")
    full = "the papers' settings, for minutes to hours (default: seconds)"
    parser.add_argument("--full", action="store_true", help=full)
    parser.add_argument("-o", "--output", metavar="FIGURE.html|.json", help="write figure and data")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=regenerate)
    return parser


def regenerate(options: argparse.Namespace) -> int:
    """List the items, or regenerate one and write it where that was asked for.

    An interrupt ends the item, not the command: what there is by then is printed and written.
    """
    if options.item is None:
        if options.output is not None or options.full:
            raise QuantityError(f"--full and -o apply to one item; name it: {', '.join(ITEMS)}")
        rows = [("item", "shows", "notebook"), *((key, item.title, item.notebook) for key, item in ITEMS.items())]
        put(options, {"items": [_described(item) for item in ITEMS.values()]}, table(rows, "<<<"))
        return DONE
    item = find_item(options.item)
    if options.output is not None:
        require_format(options.output)
    require_outputs(options)
    running = Running(item, "full" if options.full else "small")
    interrupted = running.watch(options)
    if running.outcome is None:
        return INTERRUPTED
    return _report(options, item, running.outcome, interrupted)


@dataclass
class Running:
    """An item that is regenerated in a thread, so that an interrupt is heard while a back end is at work.

    Attributes:
        item: what runs.
        settings: "small" or "full".
        outcome: what it gave, once it has ended.
    """

    item: Item
    settings: Settings
    outcome: Outcome | None = None
    _error: BaseException | None = None
    _doing: str = "starting"
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self, options: argparse.Namespace) -> bool:
        """Run to the end, saying on one line what is done; whether it was interrupted.

        A second interrupt does not wait for the step that is running.

        Raises:
            RematError: what the run raised.
            KeyboardInterrupt: on a second interrupt.
        """
        started = time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()
        while not self._ended.is_set():  # an interrupted join would take the thread for ended
            try:
                self._ended.wait(TICK)
                waiting = "ending after this step" if self._cancelled.is_set() else self._doing
                say(options, f"{format_seconds(max(time.monotonic() - started, TICK))} · {waiting}")
            except KeyboardInterrupt:
                if self._cancelled.is_set():
                    raise
                self._cancelled.set()
        say(options, "")
        if self._error is not None:
            raise self._error
        return self._cancelled.is_set()

    def _run(self) -> None:
        try:
            self.outcome = self.item.run(self.settings, self._hear, self._cancelled.is_set)
        except BaseException as error:  # of another thread, where nobody would see it
            self._error = error
        finally:
            self._ended.set()

    def _hear(self, doing: str) -> None:
        self._doing = doing


def _described(item: Item) -> dict[str, str]:
    names = ("key", "paper", "place", "title", "notebook", "function", "test", "published", "remark")
    return {name: getattr(item, name) for name in names}


def _report(options: argparse.Namespace, item: Item, outcome: Outcome, interrupted: bool) -> int:
    lines = [f"{item.name}: {item.title}", outcome.result, f"published: {item.published}", f"remark: {item.remark}"]
    if options.output and outcome.rows:
        lines.append(written_to(outcome.save(options.output, f"{item.name}: {item.title}")))
    if not outcome.complete:
        lines.append(
            "interrupted: this is what was found by then" if interrupted else "not everything was found in time"
        )
    put(options, _described(item) | outcome.to_document() | {"interrupted": interrupted}, "\n".join(lines))
    if interrupted and not outcome.rows:
        return INTERRUPTED
    return DONE if outcome.complete else NOT_IN_TIME


if __name__ == "__main__":
    code = main()
    exec("")  # as in remat_explorer/cli/__main__.py: after an interrupt, Python ends by itself and not by the signal
    sys.exit(code)
