"""A worker of `Processes`: ``python -m remat_explorer.solvers.jobs.process_worker``.

Each line of standard input is a JSON object with a module, a function's name in it, and arguments; for each, one JSON
line goes out with the result or the error. The process ends when its standard input ends, in the middle of a call, too.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
from typing import Any


def main() -> None:
    """Answer one request after the other, for ever."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a back end prints does not reach the channel
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
    try:
        main()
    except BrokenPipeError:  # the parent is gone
        os._exit(1)
    sys.exit(0)
