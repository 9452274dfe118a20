"""`remat-explorer fit` of models with billions of parameters: seconds, and the memory that the answer takes.

    python benchmarks/fit.py
    python benchmarks/fit.py --cases llama3_8b:"24 GB"

Each is asked in a process of its own, without weights and without a GPU; the compiled search is loaded from its cache.
The target is 30 s and 2 GB for up to 8 billion parameters; what misses it is marked with *.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

from large import apart
from report import publish

import remat_explorer as rx
from remat_explorer.solvers import load_search

CASES = ["llama3_8b:24 GB", "llama3_8b:80 GB", "llama3_70b:640 GB"]
COLUMNS = ("model", "memory", "parameters", "operations", "verdict", "seconds", "processor s", "GB")
SECONDS, GIGABYTES, PARAMETERS = 30.0, 2.0, 8.1e9  # the target, and up to how many it is one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="MODEL:MEMORY")
    load_search()
    details = []
    for case in parser.parse_args().cases:
        details.append(apart(asked, *case.split(":")))
        print(*cells(details[-1]), flush=True)
    publish("fit", COLUMNS, [cells(entry) for entry in details], details)


def asked(model: str, memory: str) -> dict[str, Any]:
    begun, used = time.monotonic(), time.process_time()
    found = rx.fit(model, memory)
    return {
        "model": model,
        "memory": memory,
        "parameters": found.parameters,
        "operations": found.solution.graph.n,
        "verdict": found.verdict,
        "seconds": time.monotonic() - begun,
        "processor_seconds": time.process_time() - used,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def cells(entry: dict[str, Any]) -> list[str]:
    has_target = entry["parameters"] <= PARAMETERS
    late = has_target and entry["seconds"] > SECONDS
    large = has_target and entry["gigabytes"] > GIGABYTES
    return [
        entry["model"],
        entry["memory"],
        f"{entry['parameters'] / 1e9:.1f} billion",
        f"{entry['operations']:,}",
        entry["verdict"],
        f"{entry['seconds']:.1f}{'*' if late else ''}",
        f"{entry['processor_seconds']:.1f}",
        f"{entry['gigabytes']:.2f}{'*' if large else ''}",
    ]


if __name__ == "__main__":
    main()
