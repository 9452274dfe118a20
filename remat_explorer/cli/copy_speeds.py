"""How fast this machine copies to the host and back: each way alone, and both ways while it computes.

A plan copies beside computing, so what to pass to `--offload` is what is reached there: a copy that is faster at times
makes no plan slower. On the CPU two threads copy into memory that is new each time, as the execution of a plan does; on
CUDA two streams copy from and to pinned memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from remat_explorer.offload import Transfers

SIZE = 32 << 20  # bytes of one copy
CHUNK = 8 << 20
SECONDS = 0.08  # of each measurement
WAYS = ("out", "back")
Rates = dict[str, float]


def measure_copies(device: str) -> dict[str, Any]:
    """Bytes per second of each way on "cpu" or "cuda:0", in about half a second, and what to pass to `--offload`."""
    rates_of = _on_cpu if device == "cpu" else _Streams(torch.device(device)).rates
    rates_of(("out",), True)  # the first copies and computations take longer
    alone = {way: rates_of((way,), False)[way] for way in WAYS}
    once, beside = rates_of((), True)["computing"], rates_of(WAYS, True)
    named = Transfers(beside["out"], beside["back"]).describe()
    return {
        **{f"{way}_per_second": alone[way] for way in WAYS},
        **{f"{way}_beside_computing_per_second": beside[way] for way in WAYS},
        "computing_slower_by": f"{max(0.0, 1 - beside['computing'] / once):.0%}",
        "option": f'--offload "{named}"',
    }


def _on_cpu(ways: tuple[str, ...], computes: bool) -> Rates:
    """Bytes per second of each way, and products of matrices per second, all at once."""
    there, stop = np.ones(SIZE, dtype=np.uint8), threading.Event()
    rates: Rates = {}

    def copy() -> None:
        target = np.empty(SIZE, dtype=np.uint8)
        for begin in range(0, SIZE, CHUNK):
            target[begin : begin + CHUNK] = there[begin : begin + CHUNK]

    def repeat(way: str) -> None:
        rates[way] = SIZE * _repeats(copy, stop.is_set)

    threads = [threading.Thread(target=repeat, args=(way,), daemon=True) for way in ways]
    for thread in threads:
        thread.start()
    try:
        if computes:
            matrix, ends = torch.ones(256, 256), time.monotonic() + SECONDS
            rates["computing"] = _repeats(lambda: matrix @ matrix, lambda: time.monotonic() > ends)
        else:
            time.sleep(SECONDS)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return rates


def _repeats(work: Callable[[], object], over: Callable[[], bool]) -> float:
    """How often a second it is done, until it is over."""
    begun, count = time.monotonic(), 0
    while not over() or not count:
        work()
        count += 1
    return count / (time.monotonic() - begun)


class _Streams:
    """Copies and computations of one CUDA device, timed by its own events."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.host = {way: torch.empty(SIZE, dtype=torch.uint8, pin_memory=True) for way in WAYS}
        self.there = {way: torch.empty(SIZE, dtype=torch.uint8, device=device) for way in WAYS}
        self.matrix = torch.ones(2048, 2048, device=device)
        self.streams = {name: torch.cuda.Stream(device) for name in (*WAYS, "computing")}

    def rates(self, ways: tuple[str, ...], computes: bool) -> Rates:
        """Bytes per second of each way, and products of matrices per second, all at once."""
        names = (*ways, "computing") if computes else ways
        once = {name: self._repeats({name: 1})[name] for name in names}
        found = self._repeats({name: max(1, min(1000, int(SECONDS * once[name]))) for name in names})
        return {name: rate * (1 if name == "computing" else SIZE) for name, rate in found.items()}

    def _repeats(self, counts: dict[str, int]) -> Rates:
        """How often a second each is done, all of them at once, so many times."""
        events = {name: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for name in counts}
        torch.cuda.synchronize(self.device)
        for name, count in counts.items():
            stream = self.streams[name]
            with torch.cuda.stream(stream):
                events[name][0].record(stream)
                for _ in range(count):
                    self._work(name)
                events[name][1].record(stream)
        torch.cuda.synchronize(self.device)
        seconds = {name: begin.elapsed_time(end) / 1000 for name, (begin, end) in events.items()}
        return {name: count / max(seconds[name], 1e-9) for name, count in counts.items()}

    def _work(self, name: str) -> None:
        if name == "out":
            self.host[name].copy_(self.there[name], non_blocking=True)
        elif name == "back":
            self.there[name].copy_(self.host[name], non_blocking=True)
        else:
            torch.mm(self.matrix, self.matrix)
