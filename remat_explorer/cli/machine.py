"""`remat-explorer app`, `lab`, `cache` and `doctor`: the explorer served, what is kept, and what works here.

Every question of doctor is asked by itself: one that fails is answered with the reason, and the others are answered all
the same. Nothing is compiled, installed or written.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import remat_explorer as rx
from remat_explorer.cache_folder import CacheEntry, cache_folder, clear, entries
from remat_explorer.cli.output import DONE, MISSING, put, table
from remat_explorer.cli.terminal import REMEDY, find_chromium
from remat_explorer.documents import read_json
from remat_explorer.errors import ModelError, RematError, SolutionError
from remat_explorer.free_memory import free_bytes
from remat_explorer.lab import open_lab
from remat_explorer.model_source import is_model_file
from remat_explorer.permissions import Permissions
from remat_explorer.quantities import format_bytes, format_rate, format_seconds
from remat_explorer.solvers import BACKENDS, cores


def app(options: argparse.Namespace) -> NoReturn:
    """Serve the explorer until it is stopped."""
    from remat_explorer.app import Serving, open_app  # Jupyter's server: no other command needs it

    serving = Serving(
        options.port,
        options.theme,
        browser=not options.no_browser,
        token=not options.without_token,
        hosts=tuple(options.allow_host),
        kernels=options.max_kernels,
        idle_minutes=options.idle_minutes,
    )
    models = None if options.allow_model_files else tuple(map(_function_of, options.files))
    permissions = Permissions(models, saving=options.allow_saving, paths=options.allow_paths)
    open_app(serving, permissions)


def _function_of(name: str) -> str:
    if not is_model_file(name):
        raise ModelError(f"{name!r} is no model file: write path/to/file.py:function; models of the zoo need no file")
    return f"{name}:make_model" if name.endswith(".py") else name


def lab(options: argparse.Namespace) -> NoReturn:
    """Serve JupyterLab until it is stopped."""
    open_lab(options.notebook, options.port, browser=not options.no_browser)


_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def cache(options: argparse.Namespace) -> int:
    """List or clear the cache folder, all of it or one of `CACHED`."""
    kinds = [options.kind] if options.kind else list(CACHED)
    return _clear(options, kinds) if options.action == "clear" else _list(options, kinds)


def _list(options: argparse.Namespace, kinds: list[str]) -> int:
    document: dict[str, Any] = {"folder": str(cache_folder())}
    parts, total = [], 0
    for kind in kinds:
        stored = entries(CACHED[kind].name)
        described = [_described(CACHED[kind], entry) for entry in stored]
        document[kind] = described
        total += sum(entry.bytes for entry in stored)
        if described:
            parts.append(_table(CACHED[kind], described))
    counted = _listing([_count(len(document[kind]), kind) for kind in kinds])
    parts.append(f"{counted}, {format_bytes(total)} in {cache_folder()}")
    put(options, document, "\n\n".join(parts))
    return DONE


def _clear(options: argparse.Namespace, kinds: list[str]) -> int:
    removed = {kind: clear(CACHED[kind].name) for kind in kinds}
    size = sum(entry.bytes for gone in removed.values() for entry in gone)
    counted = _listing([_count(len(gone), kind) for kind, gone in removed.items()])
    left = sum(len(entries(CACHED[kind].name)) for kind in kinds)
    stayed = f"; {left} could not be removed" if left else ""
    document = {"folder": str(cache_folder()), "bytes": size, **{kind: len(gone) for kind, gone in removed.items()}}
    put(options, document, f"removed {counted}, {format_bytes(size)}, from {cache_folder()}{stayed}")
    return DONE


def _described(kind: Cached, entry: CacheEntry) -> dict[str, Any]:
    about: dict[str, Any] = {"path": str(entry.path), "bytes": entry.bytes, "used": entry.used}
    try:
        return about | kind.read(entry)
    except (RematError, AttributeError, KeyError, TypeError, ValueError):
        return about | {"unreadable": True}


def _of_solution(entry: CacheEntry) -> dict[str, Any]:
    from remat_explorer.solvers import describe_entry

    return describe_entry(entry.path)


def _of_profile(entry: CacheEntry) -> dict[str, Any]:
    document = read_json(entry.path, SolutionError)
    key = document["key"]
    device = f"{key['device']}, {key.get('gpu') or key['processor']}"
    return {"graph": str(key["graph"]), "device": device, "operations": len(document["seconds"])}


def _of_convolution(entry: CacheEntry) -> dict[str, Any]:
    document = read_json(entry.path, SolutionError)
    problem = document["key"]["problem"]
    source, weight, _ = ("x".join(map(str, sizes)) for sizes in problem["sizes"])
    about = f"{problem['part']} of {source} by {weight}, {problem['dtype']}"
    return {"convolution": about, "device": str(document["key"]["device"]), "algorithms": len(document["plans"])}


def _of_look(entry: CacheEntry) -> dict[str, Any]:
    document = read_json(entry.path, SolutionError)
    key, points = document["key"], document["curve"]["points"]
    return {"model": str(key["model"]), "batch": key["batch"], "schedules": len(points)}


def _table(kind: Cached, described: list[dict[str, Any]]) -> str:
    nothing = ("(unreadable)", *[""] * (len(kind.heads) - 1))
    rows: list[tuple[str, ...]] = [(*kind.heads, "size", "used")]
    for about in described:
        cells = nothing if "unreadable" in about else kind.cells(about)
        rows.append((*cells, format_bytes(about["bytes"]), _age(about["used"])))
    return table(rows, f"{kind.alignment}><")


def _cells_of_solution(about: dict[str, Any]) -> tuple[str, ...]:
    limit, budget = format_seconds(about["time_limit"]), format_bytes(about["budget"])
    return about["graph"], about["strategy"], budget, about["status"], limit


def _cells_of_profile(about: dict[str, Any]) -> tuple[str, ...]:
    return f"{about['graph'][:12]}…", str(about["operations"]), about["device"]


def _cells_of_look(about: dict[str, Any]) -> tuple[str, ...]:
    return about["model"], str(about["batch"]), str(about["schedules"])


def _cells_of_convolution(about: dict[str, Any]) -> tuple[str, ...]:
    return about["convolution"], str(about["algorithms"]), about["device"]


@dataclass(frozen=True)
class Cached:
    """What is kept of one kind, and how it is listed.

    Attributes:
        name: in the cache folder.
        heads: of the table's own columns, which come before size and age.
        alignment: of the same.
        read: what a file says, or an error that says it is unreadable.
        cells: the own columns of a row.
    """

    name: str
    heads: tuple[str, ...]
    alignment: str
    read: Callable[[CacheEntry], dict[str, Any]]
    cells: Callable[[dict[str, Any]], tuple[str, ...]]


CACHED = {
    "solutions": Cached(
        "solution",
        ("solutions of", "strategy", "budget", "status", "time limit"),
        "<<><>",
        _of_solution,
        _cells_of_solution,
    ),
    "profiles": Cached("profile", ("profiles of graph", "operations", "device"), "<><", _of_profile, _cells_of_profile),
    "convolutions": Cached(
        "cudnn", ("algorithms of cuDNN for", "number", "device"), "<><", _of_convolution, _cells_of_convolution
    ),
    "looks": Cached("look", ("explorer's looks at", "batch", "schedules"), "<>>", _of_look, _cells_of_look),
}


def _listing(counts: list[str]) -> str:
    """Counts in a row.

    >>> _listing(["1 solution"]), _listing(["1 solution", "2 profiles", "0 convolutions"])
    ('1 solution', '1 solution, 2 profiles and 0 convolutions')
    """
    return " and ".join(filter(None, [", ".join(counts[:-1]), counts[-1]]))


def _age(since: float) -> str:
    seconds = max(0.0, time.time() - since)
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{_count(int(seconds // size), f'{unit}s')} ago"
    return "now"


def _count(number: int, things: str) -> str:
    """A number of things, in the singular where there is one.

    >>> _count(1, "profiles"), _count(0, "profiles")
    ('1 profile', '0 profiles')
    """
    return f"{number} {things[:-1] if number == 1 else things}"


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
    from remat_explorer.capture import processor_name

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


def _copies() -> Facts:
    import torch

    gpus = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return {device: ask(_copy_speeds, device) for device in ("cpu", *gpus)}


def _copy_speeds(device: str) -> Facts:
    from remat_explorer.cli.copy_speeds import measure_copies

    return measure_copies(device)


def _solvers() -> Facts:
    return {name: ask(_solver, name) for name in BACKENDS}


def _solver(name: str) -> Facts:
    from remat_explorer.solvers import Milp

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
    "copies": _copies,
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
        elif key.endswith("_per_second"):
            parts.append(f"{name.removesuffix(' per second')}: {format_rate(fact)}")
        elif isinstance(fact, bool):
            parts.append(f"{name}: {'yes' if fact else 'no'}")
        else:
            parts.append(str(fact) if key == "error" else f"{name}: {fact}")
    return ", ".join(parts) or "nothing set"
