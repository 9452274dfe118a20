"""What runs in a worker process: ``python -m remat_explorer.solvers.jobs.job_worker``.

*A solve.* One JSON object comes in on the first line of standard input: the graph file's document and the parameters of
`solve`. JSON lines go out: that the search must be compiled first, where that is so; that the solve begins, and its
clock with it; progress, with a schedule whenever a better one is known; and at last a solution or an error. The process
ends when its standard input ends, that is, when its parent goes away. With the argument ``ahead`` it loads python-mip
and the compiled search while it waits for its request. A number behind that is the descriptor of a socket on which it
can be asked to fork other workers (`worker_process`) until it gets a request of its own.

*Calls*, with the argument ``calls``, for `Processes`. Each line of standard input is a JSON object with a module, a
function's name in it, and arguments; for each, one JSON line goes out with the result or the error. The process ends
when its standard input ends, in the middle of a call, too.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import socket
import sys
import threading
from typing import Any, TextIO

from remat_explorer.documents import require_keys
from remat_explorer.errors import RematError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.jobs.solve_job import pack_progress
from remat_explorer.solvers.jobs.worker_process import COMPILES, fork_until_asked
from remat_explorer.solvers.registry import STRATEGIES
from remat_explorer.solvers.search.planner import load_search
from remat_explorer.solvers.solution import unpack_runs
from remat_explorer.solvers.solve import solve_from
from remat_explorer.solvers.solver_interface import Answer, Progress

REQUEST = ("graph", "budget", "strategy", "time_limit", "solver", "threads", "options", "known", "lower_bound")


def main() -> int:
    """Read the request, solve, and write what happens; the exit code is 0 if a solution was written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what becomes of what was found
    channel = _channel()
    if "ahead" in sys.argv and _wait_ahead(channel, *(int(number) for number in sys.argv[2:])):
        channel.close()
        channel = _channel()
    line = sys.stdin.readline()
    if not line:
        return 0  # started ahead, and never asked anything
    try:
        request = require_keys(json.loads(line), REQUEST, "the request", SolverError)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        graph, options = Graph.from_document(request.pop("graph")), request.pop("options")
        runs = request.pop("known")
        known = Answer(None if runs is None else unpack_runs(runs, graph, SolverError), request.pop("lower_bound"))
        sent: list[Schedule | None] = [None]

        def report(progress: Progress) -> None:
            _write(channel, {"progress": pack_progress(progress, progress.schedule is not sent[0])})
            sent[0] = progress.schedule or sent[0]

        method = STRATEGIES.get(request["strategy"])
        if method is not None:  # what is not there is said by `solve`
            method.load()
            if method.compiled_search:
                load_search(report)
        _write(channel, {"begun": True})
        solution = solve_from(known, graph, on_progress=report, **request, **options)
        _write(channel, {"solution": solution.to_document()})
    except MemoryError:
        _write(channel, {"error": "the solver process ran out of memory"})
        return 1
    except (RematError, ValueError) as error:
        _write(channel, {"error": str(error) or type(error).__name__})
        return 1
    return 0


def _wait_ahead(channel: TextIO, descriptor: int | None = None) -> bool:
    """Load everything and wait for a request; whether this is a worker that was forked meanwhile, by that socket."""
    requests = None if descriptor is None else socket.socket(fileno=descriptor)

    def tell(progress: Progress) -> None:
        _write(channel, {"progress": pack_progress(progress, False)})
        if requests is not None:
            requests.sendall(COMPILES)

    with contextlib.suppress(Exception):  # what is wrong with it is said by the solve that needs it
        import mip.highs  # noqa: F401, half of the start-up time

        load_search(tell)
    return requests is not None and fork_until_asked(requests)


def _channel() -> TextIO:
    """Standard output for messages alone: whatever a back end prints does not reach it."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def _write(channel: TextIO, message: dict[str, Any]) -> None:
    channel.write(json.dumps(message, separators=(",", ":")) + "\n")
    channel.flush()


def _end_with_parent() -> None:
    """Wait for the end of standard input below Python's buffers, so that the interpreter can also end by itself."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def answer_calls() -> None:
    """Answer one request after the other, for ever."""
    channel = _channel()
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        channel.write(json.dumps(_answer(json.loads(requests.get()))) + "\n")
        channel.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        function: Any = importlib.import_module(request["module"])
        for name in request["name"].split("."):
            function = getattr(function, name)
        return {"result": function(*request["args"], **request["kwargs"])}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _read(requests: queue.SimpleQueue[str]) -> None:
    """Thread: pass the requests on, and end the process with its input."""
    for line in os.fdopen(os.dup(0), encoding="utf-8"):
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    if "calls" not in sys.argv:
        sys.exit(main())
    try:
        answer_calls()
    except BrokenPipeError:  # the parent is gone
        os._exit(1)
