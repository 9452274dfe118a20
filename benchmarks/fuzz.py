"""Mutants of every kind of file, and nonsense for every option, for as long as there is time.

    python benchmarks/fuzz.py --minutes 60

What tests/fuzz does with the same two thousand cases each time, this does with new ones: each kind of file and each
command in turn, until the time is up. A case ends with a result, a RematError or an exit code that is documented, with
at most 10 s of processor time and 2 GB of memory. The target is that none ends otherwise; one that does is printed as
small as hypothesis can make it, and the benchmark leaves with 1.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, seed, settings
from hypothesis import strategies as st
from report import publish

import remat_explorer as rx
from remat_explorer.graph import dump_graph
from remat_explorer.solvers.search.compilation import warm_up

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fuzz.commands import command_lines, parsers, settings_of_strategies
from tests.fuzz.file_kinds import file_kinds, plain
from tests.fuzz.mutants import mutants, texts
from tests.fuzz.outcomes import ALL_CHECKS, in_process, of_call, of_command

COLUMNS = ("what", "cases", "seconds", "outcomes", "failures")
TURN = 60  # cases of a kind before the next one has its turn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first turn (default: another one each time)")
    options = parser.parse_args()
    warm_up()
    first = random.randrange(2**32) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory() as folder, in_process():
        os.environ["REMAT_EXPLORER_CACHE"] = str(Path(folder, "cache"))
        os.chdir(folder)  # where files of drawn names are written
        subjects = [Subject(name, drawn, use) for name, drawn, use in _subjects(Path(folder))]
        ends, turn = time.monotonic() + 60 * options.minutes, 0
        while time.monotonic() < ends:
            subjects[turn % len(subjects)].run(TURN, first + turn, ends)
            turn += 1
    failed = sum(len(subject.failures) for subject in subjects)
    print(f"{sum(subject.cases for subject in subjects)} cases, {failed} failures, seed {first}")
    rows = [subject.row() for subject in subjects]
    details = [subject.details() for subject in subjects]
    publish("fuzz", COLUMNS, rows, details, minutes=options.minutes, seed=first, failures=failed)
    return 1 if failed else 0


class Subject:
    """One kind of file or one command, with what became of its cases."""

    def __init__(self, name: str, drawn: st.SearchStrategy[Any], use: Callable[[Any], str]) -> None:
        self.name, self.seconds = name, 0.0
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self._drawn, self._use = drawn, use

    @property
    def cases(self) -> int:
        """How many were tried."""
        return sum(self.outcomes.values())

    def run(self, most: int, number: int, ends: float) -> None:
        """A turn of at most so many cases, which ends with the time or with a failure that was made small."""

        @seed(number)
        @settings(max_examples=most, deadline=None, database=None, suppress_health_check=ALL_CHECKS)
        @given(self._drawn)
        def turn(case: Any) -> None:
            if time.monotonic() < ends:
                self.outcomes[self._use(case)] += 1

        begun = time.monotonic()
        try:
            turn()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            notes = "\n".join(getattr(error, "__notes__", []))
            self.failures.append(f"{type(error).__name__}: {error}\n{notes}")
            print(f"{self.name}: {self.failures[-1]}", flush=True)
        self.seconds += time.monotonic() - begun

    def row(self) -> list[str]:
        """Its row of the table."""
        outcomes = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        return [self.name, str(self.cases), f"{self.seconds:.0f}", outcomes, str(len(self.failures))]

    def details(self) -> dict[str, Any]:
        """The same for programs."""
        numbers = {"cases": self.cases, "seconds": self.seconds, "outcomes": dict(self.outcomes)}
        return {"what": self.name} | numbers | {"failures": self.failures}


def _subjects(folder: Path) -> Iterator[tuple[str, st.SearchStrategy[Any], Callable[[Any], str]]]:
    places = {name: str(folder / f"{name.lower()}.json") for name in ("GRAPH", "PIPE", "FOLDER", "OUTPUT")}
    Path(places["GRAPH"]).write_text(dump_graph(plain()))
    os.mkfifo(places["PIPE"])
    Path(places["FOLDER"]).mkdir()
    for name, kind in file_kinds().items():
        yield f"file: {name}", mutants(kind.document), kind.use

    def of_line(line: list[str]) -> str:
        return of_command([places.get(part, part) for part in line])

    for command in sorted(parsers().keys() - {"doctor"}):
        yield f"command: {command}", command_lines(command), of_line
    yield "option of a strategy", settings_of_strategies(), _option
    yield "budget", texts, lambda text: of_call(lambda: rx.solve(plain(), text, "checkpoint-all"))


def _option(drawn: tuple[str, dict[str, Any]]) -> str:
    strategy, options = drawn
    return of_call(lambda: rx.solve(plain(), "80%", strategy, time_limit=0.2, **options))


if __name__ == "__main__":
    sys.exit(main())
