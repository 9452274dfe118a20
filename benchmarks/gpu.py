"""Everything that waits for a GPU, in an order of value: parts that are bounded in time, and can be resumed.

    python benchmarks/gpu.py --out results                                # on a GPU
    python benchmarks/gpu.py --out results --minutes 7                    # the most valuable parts
    python benchmarks/gpu.py --out results --resume --minutes 7           # what is missing
    python benchmarks/gpu.py --out results --device cpu --tiny            # whether everything runs
    python benchmarks/gpu.py --tables results > docs/gpu.md               # tables of the files, without GPU and torch

Each part writes FOLDER/PART.json as soon as one of its units (a test, a model, a setting) is done. It has minutes of
its own, which all runs together keep to, and a process of its own, which is ended when they are over and started again
for the rest where it broke. Nothing is left out in silence: the file says what was stopped, and the tables repeat it.
`benchmarks/gpu_bundle.py` makes what a machine without a network needs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from gpu_parts.catalogue import PARTS, Part, find_part
from gpu_parts.record import Record, asked, records
from gpu_parts.supervising import python, run_part
from gpu_parts.tables import tables

from remat_explorer.errors import RematError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path("gpu_results"), help="default: gpu_results")
    parser.add_argument("--parts", metavar="PARTS", help=f"names with commas between them; default: {','.join(PARTS)}")
    parser.add_argument("--minutes", type=float, help="in all (default: 27; 1.8 with --tiny)")
    parser.add_argument("--part-minutes", type=float, help="of each part, in place of its own")
    parser.add_argument("--resume", action="store_true", help="keep what the folder has, and do what is missing")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a few small models, to see whether everything runs")
    parser.add_argument("--bundle", type=Path, metavar="FOLDER", help="of gpu_bundle.py, with schedules solved before")
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="make the tables of this folder, measure nothing")
    options = parser.parse_args()
    if options.minutes is None:
        options.minutes = 1.8 if options.tiny else 27.0
    try:
        if options.tables is not None:
            print(tables(records(options.tables)))
            return 0
        chosen = [find_part(name.strip()) for name in options.parts.split(",")] if options.parts else [*PARTS.values()]
        measure(chosen, options)
        print(tables(records(options.out)))
    except RematError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def measure(parts: list[Part], options: argparse.Namespace) -> None:
    """Run the parts; the search is compiled meanwhile, unless it is."""
    compiling = subprocess.Popen([sys.executable, "-m", "remat_explorer.solvers.search.compilation"])
    try:
        in_turn(parts, options)
    finally:
        compiling.kill()
        compiling.wait()


def in_turn(parts: list[Part], options: argparse.Namespace) -> None:
    """Run the parts in turn until all minutes are over, those that are done before excepted."""
    end = time.monotonic() + 60 * options.minutes
    for part in parts:
        record = Record.of(options.out, part.name)
        if not options.resume:
            record.path.unlink(missing_ok=True)
            record = Record.of(options.out, part.name)
        require_same(record, asked(options.device, options.tiny))
        if record.names and not record.missing:
            print(f"{part.name}: done before", flush=True)
            continue
        own = 60 * (part.minutes if options.part_minutes is None else options.part_minutes) - record.seconds
        seconds = min(own, end - time.monotonic())
        if seconds <= 0:
            whose = "the part's own minutes were over" if own <= 0 else "the minutes of the run were over"
            record.words = f"not {'ended' if record.names else 'begun'}: {whose}"
            record.write()
            print(f"{part.name}: {record.words}", flush=True)
            continue
        print(f"{part.name}: {part.title}, at most {seconds:.0f} s", flush=True)
        record = run_part(part, record, seconds, lambda part, left: command(part, left, options))
        print(f"{part.name}: {record.words or 'done'}", flush=True)


def require_same(record: Record, what: str) -> None:
    """Refuse to go on with measurements of something else."""
    known = record.machine.get("asked", what)
    if known != what:
        raise RematError(
            f"{str(record.path)!r} was measured on {known!r}, not {what!r}; name another folder with --out"
        )


def command(part: Part, seconds: float, options: argparse.Namespace) -> list[str]:
    """The process of a part."""
    arguments = part.name, str(options.out.absolute()), seconds, options.device, options.tiny
    bundle = str(options.bundle.absolute()) if options.bundle else ""
    return python("from gpu_parts.work import work_on", f"work_on(*{arguments!r}, {bundle!r})")


if __name__ == "__main__":
    sys.exit(main())
