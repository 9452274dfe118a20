"""Training steps that send values: whole loops are those of plain PyTorch, and a step that fails leaves no trace."""

import contextlib
import copy
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.errors import ArgumentError, ExecutionError, SolutionError
from remat_explorer.offload import TransferSolution
from remat_explorer.runtime.copies import POLL, CopyThreads
from remat_explorer.runtime.interpreter import Interpreter
from remat_explorer.solution_summary import Status
from tests.offload.transfer_runs import Opening, random_plan
from tests.runtime.exactness import CPU, Exactness
from tests.torch_fixtures import one_thread, quick_collection, settings_of_torch  # noqa: F401


def make_net() -> nn.Module:
    torch.manual_seed(0)
    parts = (part for _ in range(4) for part in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.1)))
    return nn.Sequential(*parts)


X = torch.randn(256, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def solution() -> TransferSolution:
    """A plan that sends in the forward pass and fetches in the backward pass, without a search."""
    graph = rx.capture(make_net(), (X,), loss=torch.sum)
    plan = random_plan(graph, 3, odd=False, late=False)
    assert plan.sent_bytes
    return TransferSolution(plan.graph, plan.transfers, "offload", Status.FEASIBLE, 1 << 26, plan, None, 0.0)


Made = tuple[nn.Module, Any]


def made_with(solution: TransferSolution | Path, **options: Any) -> Made:
    model = make_net()
    return model, rx.rematerialize(model, (X,), solution=solution, loss=torch.sum, **options)


def step(run: Callable[[torch.Tensor], torch.Tensor], seed: int, x: torch.Tensor = X) -> None:
    torch.manual_seed(seed)
    run(x).backward()


def state_of(model: nn.Module) -> dict[str, Any]:
    gradients = {f"gradient of {name}": parameter.grad for name, parameter in model.named_parameters()}
    return copy.deepcopy({**model.state_dict(), **gradients})


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(a, b) if a is not None and b is not None else a is b
        for a, b in zip(one.values(), other.values(), strict=True)
    )


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """The system refuses to write more than so many bytes to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def copy_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "remat_explorer copy"]


def no_memory(size: int, dtype: Any) -> Any:
    raise MemoryError(f"{size} bytes")


BEGIN = CopyThreads._begin


def wait_for_the_end(copies: CopyThreads) -> None:
    with copies._changed:
        while not copies._stopping:
            copies._changed.wait()


def interrupted(self: CopyThreads, lane: Any, job: Any) -> Any:
    """Ctrl-C while a copy is under way that never ends by itself."""
    self._run = lambda job: wait_for_the_end(self)
    begun = BEGIN(self, lane, job)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
    signal.raise_signal(signal.SIGINT)
    return begun


def cut_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 1)


def take_away(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path)


SENT = r"'send .*' \(statement \d+ of \d+\) could not copy .*{}.*the step has ended there, and its copies are removed"
LATER = SENT.replace("send", "(send|fetch)")


@pytest.mark.parametrize(
    ("tier", "forward", "between", "backward", "error", "words"),
    [
        ("disk", small_files, None, None, ExecutionError, SENT.format("File too large")),
        ("disk", None, take_away, None, ExecutionError, LATER.format("No such file")),
        ("disk", None, cut_files, None, ExecutionError, LATER.format("shorter than what was written")),
        ("host", (np, "empty", no_memory), None, None, ExecutionError, SENT.format("bytes")),
        ("host", (CopyThreads, "_begin", interrupted), None, None, KeyboardInterrupt, None),
        ("disk", None, None, (CopyThreads, "_begin", interrupted), KeyboardInterrupt, None),
    ],
    ids=["full disk", "folder gone", "files cut", "no memory", "Ctrl-C forward", "Ctrl-C backward"],
)
def test_a_step_that_fails_names_its_statement_leaves_no_trace_and_the_next_one_works(
    solution, tmp_path, monkeypatch, tier, forward, between, backward, error, words
) -> None:
    """Parameters, buffers and gradients that were there before are as before, and no file or thread is left."""
    model, made = made_with(solution, tier=tier, **({"folder": tmp_path} if tier == "disk" else {}))
    plain = make_net()
    step(made, 1)
    step(lambda x: plain(x).sum(), 1)
    before = state_of(model)
    assert same(before, state_of(plain))

    @contextlib.contextmanager
    def fault(what: Any) -> Iterator[None]:
        with monkeypatch.context() as patch:
            if isinstance(what, tuple):
                patch.setattr(*what)
            entered: Any = what() if callable(what) else contextlib.nullcontext()
            with entered:
                yield

    def failing() -> None:
        with fault(forward):
            loss = made(X)
            for thread in copy_threads():
                thread.join()
        if between is not None:
            between(tmp_path)
        with fault(backward):
            loss.backward()

    with pytest.raises(error, match=words):
        failing()
    assert same(state_of(model), before)
    assert not copy_threads()
    assert not [*tmp_path.iterdir()]
    step(made, 2)
    step(lambda x: plain(x).sum(), 2)
    assert same(state_of(model), state_of(plain))
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_none_is_named(solution, tmp_path) -> None:
    with pytest.raises(ArgumentError, match="none' is no folder that can be written"):
        made_with(solution, tier="disk", folder=tmp_path / "none")


def test_a_folder_that_goes_while_a_copy_is_dropped_ends_the_step() -> None:
    """The thread that drops it may be that of the copies: then nobody may wait for it for ever."""
    exactness = Exactness(make_net(), (X,), loss=torch.sum)
    plan = random_plan(exactness.graph, 3)

    class Gone(CopyThreads):
        def _give_back(self, copy: Any) -> None:
            if isinstance(copy.buffer, Path) and copy.dropped is not None:
                shutil.rmtree(copy.buffer.parent, ignore_errors=True)
            super()._give_back(copy)

    run = Interpreter(plan, exactness.program, CPU, Opening("disk", make=Gone))
    with pytest.raises(ExecutionError, match=r"could not copy .*No such file"):
        run.run(exactness.program.bind(exactness.model, exactness.tensors))


def test_a_run_is_cancelled_at_the_first_question_though_its_copy_never_ends(solution) -> None:
    stop, asked_since = threading.Event(), []

    class Stuck(CopyThreads):
        def _run(self, job: Any) -> None:
            stop.set()
            wait_for_the_end(self)

    def cancelled() -> bool:
        asked_since.extend([1] * stop.is_set())
        return stop.is_set()

    exactness = Exactness(make_net(), (X,), loss=torch.sum)
    run = Interpreter(solution.plan, exactness.program, CPU, Opening(make=Stuck))
    with pytest.raises(ExecutionError, match="cancelled"):
        run.run(exactness.program.bind(exactness.model, exactness.tensors), cancelled=cancelled)
    assert len(asked_since) == 1
    assert POLL < 0.5
    assert not copy_threads()


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_a_loop_that_accumulates_evaluates_and_goes_on_from_a_checkpoint_is_that_of_plain_pytorch(
    solution, tmp_path, tier
) -> None:
    """The plan comes from its file; the last batch of each epoch is smaller."""
    path = solution.save(tmp_path / "plan.json")

    def loop(make: Callable[[], Made]) -> dict[str, Any]:
        model, run = make()
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(2):
            for number, x in enumerate((X, X + 1, X[:77])):
                step(run, 10 * epoch + number, x)
                if number:  # of two batches together
                    optimizer.step()
                    optimizer.zero_grad()
            run.eval()
            run(X)
            run.train()
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            model, run = make()
            model.load_state_dict(kept[0])
            optimizer = torch.optim.Adam(model.parameters())
            optimizer.load_state_dict(kept[1])
        return model.state_dict()

    def plain() -> Made:
        model = make_net()
        return model, _Summed(model)

    assert same(loop(lambda: made_with(path, tier=tier)), loop(plain))


class _Summed(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).sum()


def test_the_file_of_another_model_s_plan_is_refused(solution, tmp_path) -> None:
    path = solution.save(tmp_path / "plan.json")
    other = nn.Sequential(nn.Linear(32, 32), nn.Tanh())
    for given in (path, solution):
        with pytest.raises(SolutionError, match="another graph"):
            rx.rematerialize(other, (X,), solution=given, loss=torch.sum)


def test_between_the_passes_a_step_that_sends_holds_what_the_plan_says(solution) -> None:
    """Old contents of buffers, which come back if the step fails, lie where the new ones were; counts are no values."""
    model, made = made_with(solution)
    code = made.rematerialization.plans[-1].code
    made(X).backward()
    with memory_meter(CPU) as meter, meter.section():
        loss = made(X)
    held = int(code.plan.timeline.after[code.split - 1]) - code.plan.graph.resident_bytes
    counts = sum(buffer.nbytes for name, buffer in model.named_buffers() if name.endswith("tracked"))
    assert meter.readings[0].after == held + counts == held + 4 * 8
    del loss


def test_what_the_allocator_takes_is_predicted_for_a_plan_that_sends(solution) -> None:
    found = rx.measure(solution, make_net(), (X,), loss=torch.sum, repeats=1)
    assert found.predicted_allocator.peak_requested == solution.peak
    assert found.to_document()["predicted_reserved_on_gpu"] >= solution.peak
