"""Hours of use: whether memory stays flat, whether a thread, a process or an open file is left, whether anything fails.

    python benchmarks/soak.py
    python benchmarks/soak.py --parts measures cycles --measures 30 --cycles 100    (these again; others are kept)
    python benchmarks/soak.py --parts app --minutes 120

- solves: `rx.solve` of graphs drawn in turn, with strategies and budgets in turn, and a sweep with two processes each
  hundredth time.
- measures: `rx.measure` of plans at budgets in turn, beside plain PyTorch.
- cycles: in two explorers by turns: solve, cancel at a random time, solve again, at another budget each time.
- app: `remat-explorer app` in headless Chromium, driven as a person would: models, budgets, solve, cancel, stages,
  execution, a page loaded anew every few minutes.

Each part is a process of its own. Memory is what belongs to the process alone, in the first row of the app to the
server with its kernels, in the second to the page's JavaScript heap. Targets: after the last repetition at most 10 %
above that after the first tenth (but 20 MB are always allowed: an allocator's arenas), and no thread, child process
or open file more than before. What misses its target is marked with *.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
from report import RESULTS, publish

sys.path.insert(0, str(Path(__file__).parents[1]))
KEPT = RESULTS / "soak.json"
PARTS = ("solves", "measures", "cycles", "app")
COLUMNS = ("part", "repetitions", "minutes", "memory, first tenth", "at the end", "growth", "left over", "failures")
ALLOWED = 20e6  # bytes
SHARES = ("95%", "80%", "65%", "50%")
IDLE = '.remat-status[data-busy=""]'
BUSY = '.remat-status:not([data-busy=""])'
FOUND = r"http://127\.0\.0\.1:\d+/\?token=\w{20,}"


def own_memory(process: psutil.Process) -> int:
    """Bytes that belong to a process and its children alone; those that ended meanwhile count nothing."""
    total = 0
    for member in (process, *process.children(recursive=True)):
        try:
            total += member.memory_full_info().uss
        except psutil.Error:
            continue
    return total


def left() -> dict[str, int]:
    """What a process may leave behind: threads, child processes, open files."""
    me = psutil.Process()
    return {"threads": me.num_threads(), "children": len(me.children(recursive=True)), "files": me.num_fds()}


def repeated(count: int, one: Callable[[int], None]) -> dict[str, Any]:
    """Do ``one`` that often; memory after each twentieth, and what is left in the end beside what there was early."""
    failures: list[str] = []
    memory, early = [], {}
    begun = time.monotonic()
    for number in range(count):
        try:
            one(number)
        except Exception as error:  # counted, and the next one goes on
            failures.append(f"{number}: {type(error).__name__}: {error}")
        if number + 1 in {count * part // 20 for part in range(1, 21)}:
            gc.collect()
            memory.append(own_memory(psutil.Process()))
        if number + 1 == max(1, count // 10):
            early = left()
    gc.collect()
    time.sleep(1.0)
    late = left()
    more = {kind: late[kind] - early[kind] for kind in late if late[kind] > early[kind]}
    return {
        "repetitions": count,
        "seconds": time.monotonic() - begun,
        "memory": memory,
        "left": more,
        "failures": failures,
    }


def solves(options: argparse.Namespace) -> dict[str, Any]:
    """`rx.solve` in turn over graphs, strategies and budgets."""
    import remat_explorer as rx
    from remat_explorer.errors import SolverError

    captured = [rx.models.load(name, batch=8).graph for name in ("mlp", "chain", "residual_net")]
    graphs = [*captured, *(rx.linear(layers) for layers in range(4, 9))]
    strategies = ("optimal", "monet", "checkmate-approx", "checkmate-ilp", "dtr", "chen-sqrt-n", "rotor")

    def one(number: int) -> None:
        graph = graphs[number % len(graphs)]
        if number % 100 == 50:
            rx.sweep(graph, budgets=4, time_limit=1, workers=2)
        strategy = strategies[number % len(strategies)]
        with suppress(SolverError):  # a strategy for chains that got another graph
            rx.solve(graph, SHARES[number % len(SHARES)], strategy, time_limit=0.5)

    return repeated(options.solves, one)


def measures(options: argparse.Namespace) -> dict[str, Any]:
    """`rx.measure` of plans of one network at budgets in turn."""
    import remat_explorer as rx

    net = rx.models.load("residual_net", batch=8)
    graph = rx.profile(net.graph, net.module, net.args)
    solutions = [rx.solve(graph, share, time_limit=2) for share in ("100%", "85%", "70%", "60%")]

    def one(number: int) -> None:
        measured = rx.measure(solutions[number % len(solutions)], net.module, net.args, repeats=1)
        assert measured.sound, str(measured)

    return repeated(options.measures, one)


def cycles(options: argparse.Namespace) -> dict[str, Any]:
    """Solve, cancel and solve in two explorers, each at another budget."""
    import remat_explorer as rx

    draw = random.Random(1)
    models = (("residual_net", 8), ("mlp", 64))
    explorers = [rx.Explorer(name, batch=batch, improve=False, sweep=False) for name, batch in models]
    for explorer in explorers:
        assert explorer.wait(120)
        explorer.state.time_limit = 2.0

    def one(number: int) -> None:
        explorer = explorers[number % 2]
        explorer.state.set_budget(f"{draw.randrange(60, 100)}%")
        explorer.solve()
        time.sleep(0.3 * draw.random())
        explorer.cancel()
        assert explorer.wait(5), "a cancelled search did not end"
        explorer.solve()
        assert explorer.wait(30), "a search did not end"
        assert explorer.solution is not None, explorer.state.status

    result = repeated(options.cycles, one)
    for explorer in explorers:
        explorer.close()
    return result


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The app with settings of its own; its address and its process."""
    environment = dict(os.environ)
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        environment[f"JUPYTER_{name}"] = str(folder / name)
    environment["IPYTHONDIR"] = str(folder / "ipython")
    log = folder / "app.log"
    with log.open("w") as stream:
        command = [sys.executable, "-m", "remat_explorer.cli", "app", "--no-browser"]
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=stream, stderr=stream)
    deadline = time.monotonic() + 90
    while not (address := re.search(FOUND, log.read_text())):
        if time.monotonic() > deadline or server.poll() is not None:
            raise SystemExit(f"the app printed no address: {log.read_text()[-2000:]}")
        time.sleep(0.2)
    family = psutil.Process(server.pid)
    members = [family]
    try:
        yield address[0], family
    finally:
        members += family.children(recursive=True)
        server.send_signal(signal.SIGTERM)
        psutil.wait_procs(members, timeout=30)
        orphans = [member for member in members if member.is_running()]
        for orphan in orphans:
            orphan.kill()
        if orphans:
            raise SystemExit(f"{len(orphans)} processes of the app outlived it")


def press(page: Any, name: str, needed: bool = True) -> None:
    """Click a button of the controls once it is enabled; one that is not needed is left alone after half a second."""
    from playwright.sync_api import TimeoutError as TimedOut

    with nullcontext() if needed else suppress(TimedOut):
        page.locator(".remat-explorer").get_by_role("button", name=name).first.click(timeout=60_000 if needed else 500)


def settle(page: Any) -> None:
    """Wait until the page says that it is busy, which may be over before it was seen, and then that it no longer is."""
    from playwright.sync_api import TimeoutError as TimedOut

    with suppress(TimedOut):
        page.wait_for_selector(BUSY, timeout=2_000)
    page.wait_for_selector(IDLE, timeout=120_000)


def visit(page: Any, draw: random.Random) -> None:
    """A person's minute: another model, budgets, a search that is cancelled, one that is not, stages."""
    page.locator(".remat-controls select").first.select_option(draw.choice(["mlp", "residual_net", "chain"]))
    page.wait_for_selector(IDLE, timeout=120_000)
    slider = page.locator(".remat-curve").first.bounding_box()
    height = slider["y"] + 0.25 * slider["height"]
    for _ in range(3):
        page.mouse.move(slider["x"] + draw.uniform(0.3, 0.9) * slider["width"], height)
        page.mouse.down()
        page.mouse.move(slider["x"] + draw.uniform(0.3, 0.9) * slider["width"], height, steps=8)
        page.mouse.up()
        page.wait_for_timeout(500)
    press(page, "Find the best")
    page.wait_for_timeout(int(1000 * draw.random()))
    press(page, "Cancel", needed=False)  # the search may have ended
    page.wait_for_selector(IDLE, timeout=60_000)
    press(page, "Find the best")
    settle(page)
    press(page, "Run it", needed=False)  # no schedule may fit
    settle(page)
    page.locator(".remat-matrices").first.focus()
    for key in ("ArrowDown", "PageDown", "ArrowRight", "ArrowUp", "PageUp"):
        page.keyboard.press(key)
        page.wait_for_timeout(100)


def app(options: argparse.Namespace) -> dict[str, Any]:
    """The app under a scripted browser."""
    from playwright.sync_api import sync_playwright

    from remat_explorer.cli.terminal import find_chromium
    from tests.browser.lab import browse

    chromium = find_chromium() or sys.exit("no browser was found")
    draw, failures, memory, heaps, visits, early = random.Random(2), [], [], [], 0, 0
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as place,
        served(Path(place)) as (address, family),
        sync_playwright() as driver,
        browse(driver, Path(place) / "profile", chromium) as page,
    ):
        session = page.context.new_cdp_session(page)
        while (minutes := (time.monotonic() - begun) / 60) < options.minutes or not memory:
            if visits % 10 == 0:
                page.goto(address)
                page.wait_for_selector(IDLE, timeout=120_000)
            try:
                visit(page, draw)
            except Exception as error:  # counted, and the page is loaded anew
                failures.append(f"{minutes:.0f} min: {type(error).__name__}: {str(error)[:300]}")
                page.goto(address)
            visits += 1
            early = early or len(family.children(recursive=True))  # a kernel, and its process that waits for a solve
            if len(memory) <= 20 * minutes / options.minutes:
                session.send("HeapProfiler.collectGarbage")
                memory.append(own_memory(family))
                heaps.append(session.send("Runtime.getHeapUsage")["usedSize"])
        failures += page.failures + [f"asked the outside for {leak}" for leak in page.leaks]
        more = len(family.children(recursive=True)) - early
    return {
        "repetitions": visits,
        "seconds": time.monotonic() - begun,
        "memory": memory,
        "heap": heaps,
        "left": {"children": more} if more > 0 else {},
        "failures": failures,
    }


def row(part: str, result: dict[str, Any], memory: str = "memory") -> list[str]:
    """The table's row."""
    early, late = result[memory][min(1, len(result[memory]) - 1)], result[memory][-1]
    flat = late <= max(1.1 * early, early + ALLOWED)
    more = ", ".join(f"{count} {kind}*" for kind, count in result["left"].items()) or "none"
    return [
        part,
        str(result["repetitions"]),
        f"{result['seconds'] / 60:.1f}",
        f"{early / 1e6:.0f} MB",
        f"{late / 1e6:.0f} MB",
        f"{late / early - 1:+.1%}{'' if flat else '*'}",
        more,
        f"{len(result['failures'])}{'*' if result['failures'] else ''}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="others stay as they were")
    parser.add_argument("--solves", type=int, default=1000)
    parser.add_argument("--measures", type=int, default=300)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=120.0, help="of the app (default: 120)")
    parser.add_argument("--alone", choices=PARTS, help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    if options.alone:
        result = {"solves": solves, "measures": measures, "cycles": cycles, "app": app}[options.alone](options)
        print("RESULT" + json.dumps(result))
        return
    details = json.loads(KEPT.read_text())["details"] if KEPT.exists() else {}
    for part in options.parts:
        command = [sys.executable, __file__, *sys.argv[1:], "--alone", part]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        details[part] = json.loads(printed[printed.rindex("RESULT") + len("RESULT") :])
        print(part, details[part]["left"], details[part]["failures"][:3], flush=True)
    rows = [row(part, details[part]) for part in PARTS if part in details]
    if "app" in details:
        rows.append(row("app, page", details["app"], "heap"))
    publish("soak", COLUMNS, rows, details)


if __name__ == "__main__":
    main()
