"""`remat-explorer doctor`: what is installed here and what of it works, for whoever asks for help.

Every question is asked by itself: one that fails is answered with the reason, and the others are answered all the same.
Nothing is compiled, installed or written.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import remat_explorer as rx
from remat_explorer.cache_folder import cache_folder, entries
from remat_explorer.cli.output import DONE, MISSING, put, table
from remat_explorer.cli.shell.chromium import REMEDY, find_chromium
from remat_explorer.errors import RematError
from remat_explorer.free_memory import free_bytes
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers.base import cores
from remat_explorer.solvers.milp import BACKENDS

PACKAGES = ("torch", "numba", "numpy", "mip", "highspy", "networkx", "plotly", "jupyterlab", "ipywidgets", "anywidget")
OTHER_PACKAGES = (
    "cbcbox",
    "ortools",
    "pulp",
    "transformers",
    "accelerate",
    "lightning",
    "peft",
    "triton",
    "nvidia-cudnn-frontend",
    "playwright",
)
VARIABLES = ("REMAT_EXPLORER_CACHE", "NUMBA_CACHE_DIR", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")

NEEDED = (*(f"versions {name}" for name in PACKAGES), "devices cpu", "solvers highs", "search compiled")
"""Rows without which nothing can be solved, executed or shown; the others are for a part of it, or for tests."""

Facts = dict[str, Any]


def doctor(options: argparse.Namespace) -> int:
    """Print what is here; returns `MISSING` where a row of `NEEDED` says why it is not."""
    answers = {name: ask(question) for name, question in QUESTIONS.items()}
    missing = [row for row in NEEDED if _failed(answers, *row.split(maxsplit=1))]
    verdict = f"missing: {', '.join(missing)}" if missing else "everything that is needed is here"
    rows = [
        (group, name.replace("_", " "), _words(facts))
        for group, answer in answers.items()
        for name, facts in answer.items()
    ]
    put(options, {**answers, "missing": missing}, f"{table(rows, '<<<')}\n\n{verdict}")
    return MISSING if missing else DONE


def ask(question: Callable[..., Facts], *about: Any) -> Facts:
    """The answer to a question, or why there is none.

    >>> ask(dict, [("cores", 2)]), ask(int, "two")
    ({'cores': 2}, {'error': "ValueError: invalid literal for int() with base 10: 'two'"})
    """
    try:
        return question(*about)
    except Exception as error:  # whatever a broken installation raises
        said = next(iter(str(error).splitlines()), "")
        return {"error": said if isinstance(error, RematError) else f"{type(error).__name__}: {said}"}


def _versions() -> Facts:
    own = {"python": platform.python_version(), "remat-explorer": rx.__version__}
    return own | {name: _version(name) for name in (*PACKAGES, *OTHER_PACKAGES)}


def _version(package: str) -> str | Facts:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return {"error": "not installed"}


def _machine() -> Facts:
    return {
        "system": platform.platform(),
        "processors": {"there": os.cpu_count(), "for_this_process": cores()},
        "threads_of_torch": ask(_threads),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _threads() -> Facts:
    import torch

    return {"within_operations": torch.get_num_threads(), "between_operations": torch.get_num_interop_threads()}


def _devices() -> Facts:
    return {"cpu": ask(_processor), **ask(_graphics)}


def _processor() -> Facts:
    from remat_explorer.capture.profiling.profile_key import processor_name

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"name": processor_name(), "free_bytes": min(free_bytes("cpu"), total), "total_bytes": total}


def _graphics() -> Facts:
    import torch

    if not torch.cuda.is_available():
        return {"cuda": {"none": _why_no_cuda()}}
    return {f"cuda:{k}": ask(_gpu, k) for k in range(torch.cuda.device_count())}


def _why_no_cuda() -> str:
    import torch

    if not torch.backends.cuda.is_built():
        return f"PyTorch {torch.__version__} is built without CUDA"
    return ask(_start_cuda).get("error", "no device is visible")


def _start_cuda() -> Facts:
    import torch

    torch.cuda.init()
    return {}


def _gpu(index: int) -> Facts:
    import torch

    free, total = torch.cuda.mem_get_info(index)
    return {
        "name": torch.cuda.get_device_name(index),
        "free_bytes": free,
        "total_bytes": total,
        "capability": ".".join(map(str, torch.cuda.get_device_capability(index))),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def _solvers() -> Facts:
    return {name: ask(_solver, name) for name in BACKENDS}


def _solver(name: str) -> Facts:
    from remat_explorer.solvers.milp import Milp

    Milp(name)
    return {"loads": True}


def _cache() -> Facts:
    files = entries()
    about = {"path": str(cache_folder()), "writable": _is_writable(cache_folder())}
    return {"folder": {**about, "files": len(files), "size_bytes": sum(entry.bytes for entry in files)}}


def _is_writable(folder: Path) -> bool:
    """Whether files can be written into a folder, or it can be made."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _search() -> Facts:
    return {"compiled": ask(_compiled)}


def _compiled() -> Facts:
    from remat_explorer.solvers.search.compilation import folder, is_compiled

    return {"ahead": is_compiled(), "path": str(folder()), "writable": _is_writable(folder())}


def _notebooks() -> Facts:
    return {"kernel": ask(_kernel), "chromium": ask(_browser)}


def _kernel() -> Facts:
    from jupyter_client.kernelspec import KernelSpecManager

    command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    python = sys.executable if command in ("python", "python3") else command  # Jupyter puts its own Python there
    return {
        "name": "python3",
        "python": python,
        "this_one": Path(python).exists() and Path(python).samefile(sys.executable),
    }


def _browser() -> Facts:
    path = find_chromium()
    return {"path": path} if path else {"error": f"not found, and only tests need it; {REMEDY}"}


QUESTIONS: Mapping[str, Callable[[], Facts]] = {
    "versions": _versions,
    "machine": _machine,
    "devices": _devices,
    "solvers": _solvers,
    "cache": _cache,
    "search": _search,
    "notebooks": _notebooks,
}


def _failed(answers: Mapping[str, Facts], group: str, name: str) -> bool:
    facts = answers[group].get(name, {"error": "not asked"})
    return isinstance(facts, dict) and "error" in facts


def _words(facts: Any) -> str:
    """Facts in a line.

    >>> _words({"name": "H200", "free_bytes": 1024, "loads": True, "error": "no driver"})
    'name: H200, free: 1.00 KiB, loads: yes, no driver'
    """
    if not isinstance(facts, dict):
        return str(facts)
    parts = []
    for key, fact in facts.items():
        name = key.replace("_", " ")
        if key.endswith("_bytes"):
            parts.append(f"{name.removesuffix(' bytes')}: {format_bytes(fact)}")
        elif isinstance(fact, bool):
            parts.append(f"{name}: {'yes' if fact else 'no'}")
        else:
            parts.append(str(fact) if key == "error" else f"{name}: {fact}")
    return ", ".join(parts) or "nothing set"
