"""What forward asks the system for, such as clocks, files and the environment: a plan would repeat each answer.

`SystemQuestions` sees by Python's profiler which functions forward calls, however it has got hold of them. What is
random is refused, what can be asked again is compared at each step (`Answer`), and of everything else it is warned.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import random
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils.data import get_worker_info

from remat_explorer.capture.source_locations import SourceLine, file_name, place_of
from remat_explorer.capture.variables import UNSET, Variable
from remat_explorer.errors import CaptureError

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(__file__) + os.sep
_OWN_ENDS = "importlib logging warnings linecache inspect traceback tokenize pkgutil"  # parts of Python
_STANDARD = os.path.dirname(inspect.__file__)
_BESIDE = (_TORCH, _OWN, *(os.path.join(_STANDARD, name) for name in _OWN_ENDS.split()), "<frozen importlib")
_IS_SLOW_TO_SWITCH = sys.version_info >= (3, 12)  # where a profiler is instrumentation of all code
_RANDOM = (
    "forward draws random numbers of the system ({name}), and a plan would repeat in every step what was drawn during "
    "the capture. Draw with torch.rand; or give the generator a seed, make it before forward, and draw there"
)


@dataclass(frozen=True)
class _Question:
    """What forward may ask for: ``direct`` if it counts only where Python's own libraries are not between."""

    kind: Literal["random", "compared", "told"]
    words: str
    ask: Callable[[], Any] = lambda: None
    direct: bool = True


_Functions = dict[str, _Question]


def _all(names: str, question: _Question) -> _Functions:
    return dict.fromkeys(names.split(), question)


_FILES = _Question("told", "files", direct=False)
_CLOCK, _INTERPRETER = _Question("told", "the time"), _Question("told", "the state of the machine")
_IDENT = _Question("compared", "the identifier of the thread", threading.get_ident)
_DRAWN = _Question("random", "random numbers", direct=False)
_GROUP = torch.distributed.is_available() and torch.distributed.is_initialized
_COMPILED: _Functions = {  # by module or class, and name
    **_all("posix.urandom nt.urandom posix.getrandom _uuid.generate_time_safe Generator.seed", _DRAWN),
    **_all("posix.stat posix.lstat posix.listdir posix.scandir posix.access posix.statvfs posix.readlink", _FILES),
    **_all("nt.stat nt.lstat nt.listdir nt.scandir nt.access io.open _io.open posix.open nt.open", _FILES),
    **_all("posix.mkdir posix.remove posix.unlink posix.rename posix.replace posix.rmdir posix.utime", _FILES),
    **_all("posix.system _posixsubprocess.fork_exec", _Question("told", "other programs", direct=False)),
    **_all("datetime.now datetime.utcnow datetime.today date.today time.localtime time.gmtime time.ctime", _CLOCK),
    **_all("time.strftime time.clock_gettime time.clock_gettime_ns time.thread_time posix.times", _CLOCK),
    **_all("time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter", _CLOCK),
    **_all("time.perf_counter_ns time.process_time time.process_time_ns", _CLOCK),
    **_all("sys.getrefcount sys.getallocatedblocks gc.get_count gc.get_objects gc.get_stats", _INTERPRETER),
    **_all("posix.getloadavg resource.getrusage _tracemalloc.get_traced_memory", _INTERPRETER),
    **_all("_thread.get_ident _thread.get_native_id", _IDENT),
    **_all("posix.getcwd posix.getcwdb nt.getcwd", _Question("compared", "the working directory", os.getcwd, False)),
    **_all("posix.getpid nt.getpid posix.getppid", _Question("compared", "the number of the process", os.getpid)),
    "torch._C.get_num_threads": _Question("compared", "torch.get_num_threads()", torch.get_num_threads),
    "torch._C.get_num_interop_threads": _Question(
        "compared", "torch.get_num_interop_threads()", torch.get_num_interop_threads
    ),
    "torch._C.is_anomaly_enabled": _Question("compared", "torch.is_anomaly_enabled()", torch.is_anomaly_enabled),
}
_BY_NAME = {key.rpartition(".")[2] for key in _COMPILED}
_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "mem_get_info")
_IN_PYTHON: dict[int, tuple[Any, _Question]] = {  # by their code
    id(function.__code__): (function, question)
    for function, question in [
        (random.Random.seed, _DRAWN),
        (type(os.environ).__getitem__, _Question("compared", "the environment", direct=False)),
        (threading.current_thread, _IDENT),
        (threading.active_count, _INTERPRETER),
        (threading.enumerate, _INTERPRETER),
        (torch.random.initial_seed, _Question("compared", "torch.initial_seed()", torch.initial_seed)),
        (multiprocessing.current_process, _Question("compared", "the number of the process", os.getpid)),
        (get_worker_info, _Question("compared", "torch.utils.data.get_worker_info()", get_worker_info)),
        *((getattr(torch.cuda.memory, name), _INTERPRETER) for name in _MEMORY),
        *([(_GROUP, _Question("compared", "torch.distributed.is_initialized()", _GROUP))] if _GROUP else []),
    ]
}


class Answer(Variable):
    """What the system answers, as a variable that nobody writes.

    >>> Answer("the working directory", os.getcwd).get() == os.getcwd()
    True
    """

    def __init__(self, words: str, ask: Callable[[], Any]) -> None:
        super().__init__(words, ask)
        self._ask, self._last = ask, UNSET

    def get(self) -> Any:
        """What it answers now; the same object as long as it answers the same."""
        now = self._ask()
        if type(now) is not type(self._last) or now != self._last:
            self._last = now
        return self._last

    def put(self, value: Any) -> None:
        """Nothing: it is not there to be written."""


class SystemQuestions:
    """While entered, notes what the calls below `TrainingStep.results_of` in this thread ask the system for."""

    def __init__(self) -> None:
        self._found: dict[tuple[_Question, str], SourceLine] = {}
        self._is_blind = False
        self._watch: Any = self._see

    def __enter__(self) -> SystemQuestions:
        self._is_blind = sys.getprofile() is not None
        if not self._is_blind:
            sys.setprofile(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        if sys.getprofile() is self._watch:
            sys.setprofile(None)
        else:
            self._is_blind = True

    def unwatched(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """What ``func`` of PyTorch gives; what it asks for itself is not looked at, which saves most of the time."""
        if _IS_SLOW_TO_SWITCH or sys.getprofile() is not self._watch:
            return func(*args, **kwargs)
        sys.setprofile(None)
        try:
            return func(*args, **kwargs)
        finally:
            sys.setprofile(self._watch)

    def _see(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            if arg.__name__ in _BY_NAME and (question := _COMPILED.get(_full_name(arg))):
                self._note(question, frame, _full_name(arg))
        elif event == "call" and (known := _IN_PYTHON.get(id(frame.f_code))):
            function, question = known
            if function is random.Random.seed and frame.f_locals.get("a") is not None:
                return
            name = f"{function.__module__}.{function.__qualname__}"
            if question.words == "the environment":
                name = str(frame.f_locals.get("key"))
            self._note(question, frame.f_back, name)

    def _note(self, question: _Question, frame: types.FrameType | None, name: str) -> None:
        while frame is not None and not file_name(path := frame.f_code.co_filename):
            if question.direct or path.startswith(_BESIDE):
                return
            frame = frame.f_back
        if frame is not None and (place := place_of(frame)):
            self._found.setdefault((question, name.removeprefix("posix.").replace("torch._C", "torch")), place)

    def refuse(self) -> None:
        """Raise an error if forward has drawn random numbers of the system."""
        for (question, name), place in self._found.items():
            if question.kind == "random":
                raise CaptureError(f"at {_line(place)}, {_RANDOM.format(name=name)}")

    def answers(self) -> Iterable[Variable]:
        """What can be asked again, to compare it at each step."""
        for question, name in self._found:
            if question.words == "the environment":
                yield Variable(f"the environment variable {name!r}", os.environ, name)
            elif question.kind == "compared":
                yield Answer(question.words, question.ask)

    def warn(self) -> None:
        """Warn of what cannot be compared, and where a profiler prevents that anything is seen."""
        if self._is_blind:
            warnings.warn(
                "a profiler is in use (sys.setprofile, as cProfile has it), which sees in place of the capture whether "
                "forward asks for the time, for files or for random numbers of the system: a plan would repeat the "
                "answers. Capture once without the profiler",
                stacklevel=2,
            )
        told = [(q.words, name, place) for (q, name), place in self._found.items() if q.kind == "told"]
        for words, name, place in told[:1]:
            more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
            warnings.warn(
                f"at {_line(place)}, forward asks for {words} ({name}){more}. A plan does not run forward: in its "
                "steps what was answered now stays, and nothing is asked or done there. Ask outside of forward, and "
                "pass the answer as an input",
                stacklevel=2,
            )


def _full_name(function: Any) -> str:
    owner = function.__self__
    return f"{owner.__name__}.{function.__name__}" if isinstance(owner, types.ModuleType) else function.__qualname__


def _line(place: SourceLine) -> str:
    return f"{file_name(place[0])}:{place[1]}"
