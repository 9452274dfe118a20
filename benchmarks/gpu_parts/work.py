"""What a part sees of its surroundings: options, the time that is left, and the file of what is done."""

from __future__ import annotations

import contextlib
import datetime
import gc
import importlib
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from report import machine

from gpu_parts.record import PROBLEM, STOPPED, Record, asked
from gpu_parts.supervising import RESTART

UNUSABLE = ("CUDA error", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "device-side assert")


class Work:
    """The work of one process on one part.

    Args:
        record: where results go.
        seconds: that it may take.
        device: "cuda" or "cpu".
        tiny: whether small models and few of them are to show that everything runs.
        bundle: folder of what was solved before, or None.
    """

    def __init__(self, record: Record, seconds: float, device: str, tiny: bool, bundle: Path | None) -> None:
        self.record, self.device, self.tiny, self.bundle = record, device, tiny, bundle
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.end - time.monotonic()

    def waiting(self, names: Sequence[str]) -> Iterator[str]:
        """The units that are yet to do, until the time is over; ``names`` is also what there is to do in all."""
        self.record.names = list(names)
        self.record.write()
        for name in names:
            if self.left <= 0:
                return
            if not self.record.is_done(name):
                yield name

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Work on a unit; an error becomes its ``problem``, and one that ruins the device ends the process."""
        self.record.running = name
        self.record.write()
        try:
            yield
        except Exception as error:
            words = f"{type(error).__name__}: {error}".strip()
            traceback.print_exc()
            self.keep(name, {PROBLEM: words[:2000]})
            if any(text in words for text in UNUSABLE):
                print(f"{name}: the device is unusable in this process now", flush=True)
                sys.stdout.flush()
                os._exit(RESTART)
        finally:
            self.record.running = ""
            self.record.write()
            gc.collect()
            gc.freeze()  # modules that were loaded meanwhile: the collections before each step need not visit them

    def keep(self, name: str, entry: dict[str, Any], running: str = "") -> None:
        """Write what was found of a unit, beside what it has already; ``running`` is what goes on."""
        known = {key: value for key, value in self.record.units.get(name, {}).items() if key != STOPPED}
        self.record.units[name] = known | entry
        self.record.running = running
        self.record.write()
        if PROBLEM in entry:
            print(f"{name}: {entry[PROBLEM]}", flush=True)

    def each(self, names: Sequence[str], measure: Callable[[str], dict[str, Any]]) -> None:
        """Do every unit that is yet to do."""
        for name in self.waiting(names):
            with self.attempt(name):
                begun = time.monotonic()
                entry = measure(name)
                self.keep(name, entry | {"wall_seconds": round(time.monotonic() - begun, 2)})
                print(f"{name}: {self.record.units[name]['wall_seconds']} s", flush=True)


def work_on(part: str, folder: str, seconds: float, device: str, tiny: bool, bundle: str) -> None:
    """The process of a part: its module's ``run`` with its `Work`."""
    import torch

    record = Record.of(Path(folder), part)
    record.machine = {"asked": asked(device, tiny)} | machine() | device_facts(device)
    torch.manual_seed(0)
    if tiny:
        torch.set_num_threads(1)  # the other processor compiles and solves
    module = importlib.import_module(f"gpu_parts.{part}")
    module.run(Work(record, seconds, device, tiny, Path(bundle) if bundle else None))


def device_facts(device: str) -> dict[str, Any]:
    """What the numbers depend on beside the versions of packages."""
    import torch

    date = datetime.date.today().isoformat()
    if not device.startswith("cuda"):
        return {"device": "CPU", "threads": torch.get_num_threads(), "date": date}
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": torch.cuda.get_device_name(0),
        "date": date,
        "driver": driver(),
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF", os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")),
    }


def driver() -> str:
    """The version of NVIDIA's driver, "" where nvidia-smi does not tell."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return ""
