"""What forward asks the system for: refused, compared at each step, or warned of; never repeated in silence."""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import glob
import operator
import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from os import getpid, listdir
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made, linear, x

Read = Callable[[], float]


def planned(read: Callable[[], Any], **settings: Any) -> Any:
    model = Made(lambda self, x: self.layer(x) * read(), layer=linear())
    return rx.rematerialize(model, (x(),), budget="110%", strategy="checkpoint-all", **settings)


def generator() -> torch.Generator:
    made = torch.Generator()
    made.seed()
    return made


RANDOM: list[Callable[[], Any]] = [
    lambda: os.urandom(1)[0] / 255,
    lambda: secrets.randbelow(10),
    lambda: 1.0 if secrets.choice(["keep", "drop"]) == "keep" else 0.5,
    lambda: int(secrets.token_hex(2), 16),
    lambda: uuid.uuid4().int % 3,
    lambda: 1.0 if str(uuid.uuid1()) > "8" else 0.5,
    lambda: random.Random().random(),
    lambda: random.Random(None).gauss(0, 1),
    lambda: random.SystemRandom().random(),
    lambda: np.random.default_rng().random(),
    lambda: default_rng().normal(),
    lambda: np.random.RandomState().rand(),
    lambda: np.random.Generator(np.random.PCG64()).random(),
    lambda: generator().initial_seed() % 7,
    lambda: bool(os.urandom(1)[0] > 300) + 1.0,  # of which no number shows
]


@pytest.mark.parametrize("read", RANDOM)
def test_random_numbers_of_the_system_are_refused_with_the_line(read: Read) -> None:
    here = rf"at {Path(__file__).name}:\d+, forward draws random numbers of the system .*Draw with torch\.rand"
    with pytest.raises(CaptureError, match=here):
        planned(read)


def test_generators_with_a_seed_and_numbers_of_torch_are_taken_as_advised() -> None:
    made = random.Random(3)
    assert planned(lambda: random.Random(3).random() + np.random.default_rng(3).random()) is not None
    assert planned(lambda: torch.rand(())) is not None
    assert made.random() == random.Random(3).random()


def names(folder: str) -> Iterator[Any]:
    return os.scandir(folder)


TOLD: list[tuple[Callable[[], Any], str]] = [
    (lambda: datetime.datetime.now().hour + 1, r"the time \(datetime\.now\)"),
    (lambda: datetime.datetime.now(datetime.UTC).second, r"the time \(datetime\.now\)"),
    (lambda: date.today().year > 0, r"the time \(date\.today\)"),
    (lambda: time.localtime().tm_hour + 1, r"the time \(time\.localtime\)"),
    (lambda: 1.0 if time.strftime("%A") == "Sunday" else 0.5, r"the time \(time\.strftime\)"),
    (lambda: 1.0 if monotonic() > 0 else 0.5, r"the time \(time\.monotonic\)"),  # imported by its name
    (lambda: float(os.path.exists("/tmp/stop_training")), r"files \(stat\)"),
    (lambda: float(Path("/tmp/lr.txt").is_file()), r"files \(stat\)"),
    (lambda: os.path.getmtime(__file__) % 2, r"files \(stat\)"),
    (lambda: len(os.listdir(".")), r"files \(listdir\)"),
    (lambda: len(listdir(".")), r"files \(listdir\)"),
    (lambda: len(glob.glob("*.flag")) + 1, r"files \((stat|scandir|lstat)\)"),
    (lambda: len(list(Path(".").iterdir())), r"files \((listdir|scandir)\)"),
    (lambda: len(list(names("."))), r"files \(scandir\)"),
    (lambda: len(Path(__file__).read_text()) / 1e4, r"files \(io\.open\)"),
    (lambda: float(os.access("/tmp", os.W_OK)), r"files \(access\)"),
    (lambda: sys.getrefcount(nn), r"the state of the machine \(sys\.getrefcount\)"),
    (lambda: os.getloadavg()[0], r"the state of the machine \(getloadavg\)"),
    (lambda: gc.get_count()[0] >= 0, r"the state of the machine \(gc\.get_count\)"),
    (lambda: threading.active_count(), r"the state of the machine \(threading\.active_count\)"),
    (lambda: len(threading.enumerate()), r"the state of the machine \(threading\.enumerate\)"),
    (lambda: torch.cuda.memory_allocated() + 1, r"the state of the machine \(torch\.cuda\.memory\.memory_allocated\)"),
    (lambda: subprocess.call(["true"]) + 1, r"other programs"),
    (lambda: functools.partial(os.path.getsize, __file__)(), r"files \(stat\)"),
    (lambda: operator.attrgetter("getloadavg")(os)()[0], r"the state of the machine \(getloadavg\)"),
]


@pytest.mark.parametrize(("read", "words"), TOLD)
def test_what_cannot_be_compared_is_warned_of_with_the_line(read: Read, words: str) -> None:
    here = rf"at {Path(__file__).name}:\d+, forward asks for {words}.*A plan does not run forward"
    with pytest.warns(UserWarning, match=here):
        planned(read)


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@contextlib.contextmanager
def threads(number: int = 1) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def variable() -> Iterator[None]:
    os.environ["ITS_" + "SCALE"] = "3"
    try:
        yield
    finally:
        del os.environ["ITS_SCALE"]


@contextlib.contextmanager
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def another_seed() -> Iterator[None]:
    state = torch.get_rng_state()
    torch.manual_seed(12345)
    try:
        yield
    finally:
        torch.set_rng_state(state)


COMPARED: list[tuple[Callable[[], Any], Callable[[], Any], str]] = [
    (lambda: len(os.getcwd()), elsewhere, "working directory"),
    (lambda: len(str(Path.cwd())), elsewhere, "working directory"),
    (lambda: len(os.path.abspath("x")), elsewhere, "working directory"),
    (lambda: torch.get_num_threads(), threads, r"torch\.get_num_threads\(\)"),
    (lambda: 2.0 if torch.is_anomaly_enabled() else 1.0, torch.autograd.detect_anomaly, r"is_anomaly_enabled\(\)"),
    (lambda: float(os.environ.get("its_scale".upper(), "1")), variable, "environment variable 'ITS_SCALE'"),
    (lambda: 3.0 if "_".join(["ITS", "SCALE"]) in os.environ else 1.0, variable, "environment variable 'ITS_SCALE'"),
    (lambda: float(os.getenv("ITS" + "_SCALE", "1")), variable, "environment variable 'ITS_SCALE'"),
    (lambda: 2.0 if torch.get_default_dtype() is torch.float64 else 1.0, double, r"get_default_dtype\(\)"),
    (lambda: 2.0 if str(torch.get_default_device()) == "meta" else 1.0, lambda: torch.device("meta"), "default_device"),
    (lambda: torch.initial_seed() % 5 + 1, another_seed, r"torch\.initial_seed\(\)"),
]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize(("read", "change", "words"), COMPARED)
def test_what_can_be_asked_again_is_compared_at_each_step(read: Read, change: Callable[[], Any], words: str) -> None:
    data = x()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained, anew = planned(read), planned(read, resolve=True)
    first = trained(data)
    with change():
        with pytest.raises(ExecutionError, match=rf"{words}.* but the plan was made (for|with)"):
            trained(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert anew(data).device.type in ("cpu", "meta")
    assert torch.equal(trained(data), first)


def in_a_thread(act: Callable[[], Any]) -> BaseException | None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize(
    "read",
    [
        lambda: threading.get_ident() % 7 + 1,
        lambda: threading.current_thread().name.count("n"),
        lambda: threading.get_native_id() % 7 + 1,
    ],
)
def test_a_step_in_another_thread_is_refused_where_forward_asks_which_it_is(read: Read) -> None:
    trained, data = planned(read), x()
    trained(data)
    assert "the identifier of the thread" in str(in_a_thread(lambda: trained(data)))
    assert in_a_thread(lambda: planned(lambda: 1.0)(data)) is None


def test_a_step_in_another_process_is_refused_where_forward_asks_which_it_is() -> None:
    trained, data = planned(lambda: getpid() % 5 + 1), x()
    trained(data)
    if (child := os.fork()) == 0:
        try:
            trained(data)
        except ExecutionError as error:
            os._exit(7 if "the number of the process" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def then(act: Callable[[], Any]) -> Callable[[], float]:
    return lambda: (act(), 1.0)[1]


LEFT: list[tuple[Callable[[], Any], str]] = [
    (lambda: torch.set_default_dtype(torch.float64), r"leaves torch\.set_default_dtype at torch\.float64"),
    (lambda: torch.set_default_device("meta"), r"leaves torch\.set_default_device at meta"),
    (
        lambda: torch.set_grad_enabled(False),
        r"leaves torch\.set_grad_enabled at False|no output depends on a parameter",
    ),
    (lambda: torch.set_num_threads(7), r"torch\.set_num_threads (at|to) 7"),
    (lambda: torch.set_flush_denormal(True), r"torch\.set_flush_denormal (at|to) True"),
    (lambda: torch.use_deterministic_algorithms(True), r"sets torch\.are_deterministic_algorithms_enabled\(\) to True"),
    (lambda: setattr(torch.backends.mkldnn, "enabled", False), r"sets torch\.backends\.mkldnn\.enabled to False"),
]


@pytest.mark.parametrize(("act", "words"), LEFT)
@pytest.mark.parametrize("last", [True, False])
def test_settings_that_forward_leaves_changed_are_refused_and_put_back(act, words: str, last: bool) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        if not last:
            act()
        y = self.layer(x)
        if last:
            act()
        return y

    before = torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads(), torch.is_grad_enabled()
    try:
        with pytest.raises(CaptureError, match=words):
            rx.capture(Made(forward, layer=linear()), (x(),))
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
    after = torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads(), torch.is_grad_enabled()
    assert before == after
    assert torch.tensor(1e-310, dtype=torch.float64) * 1 > 0


def test_a_setting_that_forward_puts_back_is_no_obstacle() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.device("cpu"):
            torch.set_default_dtype(torch.float64)
            by = torch.ones(())
            torch.set_default_dtype(torch.float32)
        return self.layer(x) * by

    model, data = Made(forward, layer=linear()), x()
    assert torch.equal(rx.rematerialize(model, (data,), budget="100%")(data), model(data))


def test_where_a_profiler_is_in_use_somebody_says_that_nothing_is_seen() -> None:
    read, seen = functools.partial(os.path.exists, "/tmp/stop_training"), []
    sys.setprofile(lambda frame, event, arg: seen.append(event))
    try:
        with pytest.warns(UserWarning, match=r"a profiler is in use \(sys\.setprofile.*Capture once without the prof"):
            planned(lambda: float(read()))
    finally:
        profiler = sys.getprofile()
        sys.setprofile(None)
    assert profiler is not None
    assert seen


class Configuration:
    """Plain attributes, which forward reads under names that it computes."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


def nested(levels: int) -> Configuration:
    return Configuration(scale_1=1.0) if not levels else Configuration(inner=nested(levels - 1))


ASKED: list[Callable[[Any], float]] = [
    lambda c: getattr(c, f"scale_{len('a')}"),
    operator.attrgetter("scale_" + str(1)),
    lambda c: sum(vars(c).values()),
    lambda c: sum(c.__dict__.values()),
    lambda c: 1.0 + len([name for name in dir(c) if name.startswith("scale")]),
    lambda c: 2.0 if hasattr(c, "scale_" + str(2)) else 1.0,
    operator.methodcaller("__getattribute__", "scale_1"),
    lambda c: Configuration(**vars(c)).scale_1,  # type: ignore[attr-defined]
]


@pytest.mark.parametrize("read", ASKED)
def test_what_objects_are_asked_for_under_computed_names_is_compared_at_each_step(read: Callable[[Any], Any]) -> None:
    held, data = Configuration(scale_1=1.0), x()
    trained = planned(lambda: read(held))
    first = trained(data)
    assert torch.equal(trained(data), first)
    held.scale_1, held.scale_2 = 3.0, 1.0  # type: ignore[attr-defined]
    with pytest.raises(ExecutionError, match=r"(of|what) a Configuration( holds)?.* but the plan was made|held"):
        trained(data)
    assert "__getattribute__" not in vars(Configuration)


def test_objects_within_objects_are_compared_and_those_that_forward_makes_are_not() -> None:
    held, data = nested(5), x()
    trained = planned(lambda: held.inner.inner.inner.inner.inner.scale_1 * Configuration(by=2.0).by)  # type: ignore
    trained(data)
    trained(data)
    held.inner.inner.inner.inner.inner.scale_1 = 3.0  # type: ignore[attr-defined]
    with pytest.raises(ExecutionError, match=r"of a Configuration.*scale_1.* is 3\.0, but the plan was"):
        trained(data)


class Tree:
    """Attributes that a table has, of which it says what is missing in its own way."""

    def __getattr__(self, name: str) -> Any:
        return {"scale": 2.0}[name]


def test_an_object_that_answers_for_missing_attributes_in_its_own_way_is_no_obstacle() -> None:
    held, data = Tree(), x()
    trained = planned(lambda: held.scale)
    assert torch.equal(trained(data), trained(data))
