"""CUDA's copies over streams that record who waits for whom: whatever is used in two streams is used in an order.

The stand-in computes at once, on the CPU, and keeps a vector clock for each stream, as a race detector does: an event
is a copy of a clock, and a wait takes its maximum. Memory that was freed may be anybody's: whoever takes memory must
come after all who used what was freed, and a copy back also after every kernel so far, which may have had its memory
for a moment.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import Registers
from remat_explorer.errors import ExecutionError
from remat_explorer.offload import Send, TransferPlan
from remat_explorer.plan import Compute
from remat_explorer.runtime.comparison import FinalState, compare
from remat_explorer.runtime.copies import CopyStreams, HostCopy, Tier
from remat_explorer.runtime.interpreter import Interpreter
from tests.offload.transfer_runs import NAN, Opening, outcome, random_plan, readings, trained
from tests.runtime.exactness import CPU, Exactness
from tests.runtime.random_models import random_network
from tests.torch_fixtures import one_thread, quick_collection, settings_of_torch  # noqa: F401

Clock = Counter[str]
CUDA = torch.device("cuda", 0)


class RaceError(AssertionError):
    """Two streams use the same memory, and nothing says in which order."""


@dataclass
class Waits:
    """Every wait that is not implied by the ones before, by who waits for whom; ``removed`` is left out."""

    removed: int | None = None
    made: list[str] = field(default_factory=list)
    lost: tuple[Any, Clock] | None = None
    covered: bool = True  # unless the stream goes on without it

    def leaves_out(self, stream: FakeStream, event: FakeEvent) -> bool:
        if event.clock <= stream.clock:
            return False
        self.made.append(f"{stream.name} for {event.name}")
        if len(self.made) - 1 != self.removed:
            return False
        self.lost = stream, event.clock
        return True

    def goes_on(self, stream: FakeStream) -> None:
        if self.lost is not None and self.lost[0] is stream:
            self.covered, self.lost = self.lost[1] <= stream.clock, None


@dataclass
class FakeEvent:
    name: str
    clock: Clock


@dataclass(eq=False)
class FakeStream:
    name: str
    waits: Waits
    clock: Clock = field(default_factory=Clock)

    def record_event(self) -> FakeEvent:
        return FakeEvent(self.name, Clock(self.clock))

    def wait_event(self, event: FakeEvent) -> None:
        if not self.waits.leaves_out(self, event):
            self.clock |= event.clock

    def wait_stream(self, other: FakeStream) -> None:
        self.clock |= other.clock  # where a run ends

    def run(self, after: Clock) -> Clock:
        """Something that must come after others."""
        self.waits.goes_on(self)
        if not after <= self.clock:
            raise RaceError(f"{self.name} does not wait for {after - self.clock}")
        self.clock[self.name] += 1
        return Clock({self.name: self.clock[self.name]})


class Recorded(CopyStreams):
    def __init__(self, plan: TransferPlan, tier: Tier, removed: int | None = None) -> None:
        self.waits = Waits(removed)
        self.main, self.calls = FakeStream("main", self.waits), list[Any]()
        self.written: dict[int, Clock] = {}  # by where memory begins
        self.used: dict[int, Clock] = {}
        self.freed, self.host_freed = Clock(), Clock()
        super().__init__(plan, CPU, tier._idle)

    def _copy_streams(self) -> tuple[Any, Any]:
        out = FakeStream("out", self.waits)
        return out, FakeStream("back", self.waits) if self.plan.transfers.duplex else out

    def _main(self) -> Any:
        return self.main

    def _new_buffer(self, size: int) -> torch.Tensor:
        return torch.full((size,), 255, dtype=torch.uint8)

    def _use(self, tensor: torch.Tensor, when: Clock, writes: bool = False) -> None:
        where = tensor.untyped_storage().data_ptr()
        self.used[where] = self.used.get(where, Clock()) | when
        if writes:
            self.written[where] = when

    def _fly(self, place: int, stream: Any, after: Any, copy: HostCopy, storage: Any, out: bool) -> Any:
        self._going_out = out
        self._taken = self._written_by(copy.buffer) if not out else self.host_freed
        return super()._fly(place, stream, after, copy, storage, out)

    def _written_by(self, tensor: torch.Tensor) -> Clock:
        return self.written.get(tensor.untyped_storage().data_ptr(), Clock())

    def _copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> None:
        after = self._taken | (self._written_by(source) if self._going_out else self.freed | self.main.clock)
        when = stream.run(after)
        target.copy_(source)
        self._use(source, when)
        self._use(target, when, writes=True)

    def computed(self, inputs: list[torch.Tensor], over: torch.Tensor | None, outputs: Callable[[], Any]) -> None:
        """What is called in place of a kernel's launch: ``outputs`` runs it."""
        after = Clock(self.freed)
        for tensor in inputs:
            after |= self._written_by(tensor)
        if over is not None:
            after |= self.used.get(over.untyped_storage().data_ptr(), Clock())
        when = self.main.run(after)
        for tensor in inputs:
            self._use(tensor, when)
        for tensor in outputs():
            self._use(tensor, when, writes=True)

    def free(self, value: int, tensor: torch.Tensor) -> None:
        super().free(value, tensor)
        self._forget(value, tensor)

    def _forget(self, value: int, tensor: torch.Tensor) -> None:
        where = tensor.untyped_storage().data_ptr()
        self.freed |= self.used.pop(where, Clock())
        self.written.pop(where, None)

    def drop(self, place: int, value: int) -> None:
        where = self._host[value].buffer.data_ptr()
        self.host_freed |= self.used.pop(where, Clock())
        super().drop(place, value)


class RecordedRun(Interpreter):
    def _compute(self, statement: Compute, registers: Registers, states: Any, copies: Any) -> None:
        carriers, operation = self.program.carriers, self.plan.graph.operations[statement.operation].default
        inputs = [registers[carriers[v]] for v in operation.inputs]
        over = None if statement.overwrites is None else registers[carriers[statement.overwrites]]
        for value in operation.inputs:
            copies.arrive(value)
        if statement.overwrites is not None:
            copies.settle(statement.overwrites)

        def outputs() -> list[torch.Tensor]:
            super(RecordedRun, self)._compute(statement, registers, states, copies)
            return [registers[carriers[v]] for v in operation.outputs if v not in statement.drops]

        copies.computed(inputs, over, outputs)


@cache
def bench(seed: int) -> Exactness:
    return Exactness(*random_network(seed))


def run(exactness: Exactness, plan: TransferPlan, removed: int | None = None) -> tuple[Recorded, FinalState | None]:
    """A run without one wait, and what it leaves; None if that was caught."""
    tier = Opening(make=lambda plan, tier: Recorded(plan, tier, removed))  # type: ignore[arg-type,return-value]
    step = RecordedRun(plan, exactness.program, CPU, tier)
    try:
        final = exactness._from_seed(lambda: step.run(exactness.program.bind(exactness.model, exactness.tensors)))
    except RaceError:
        final = None
    return tier.opened[0], final  # type: ignore[return-value]


def test_streams_order_all_uses_of_memory_and_no_wait_can_be_left_out() -> None:
    found: Counter[str] = Counter()
    for seed in range(3):
        plan = random_plan(bench(seed).graph, 100 * seed, late=False)
        copies, final = run(bench(seed), plan)
        assert final is not None
        assert compare(final, bench(seed).reference, bench(seed).initial).equal
        assert (copies.host_bytes == plan.timeline.host).all()
        for removed, what in list(enumerate(copies.waits.made))[seed::4]:
            without, left = run(bench(seed), plan, removed)
            found[f"{what}: {'caught' if left is None else 'covered' if without.waits.covered else 'missed'}"] += 1
    assert not [what for what in found if what.endswith("missed")], found
    for what in ("main for out", "main for back", "out for main", "back for main", "out for back"):
        assert found[f"{what}: caught"], found


def test_streams_and_buffers_go_from_run_to_run_and_two_runs_at_once_have_their_own() -> None:
    plan = random_plan(bench(0).graph, 0, late=False)
    tier = Opening(make=Recorded)  # type: ignore[arg-type]
    first, second = Recorded(plan, tier), Recorded(plan, tier)
    known = _pointers(first)
    assert known
    assert not known & _pointers(second)
    del first  # nobody ends it
    third = Recorded(plan, tier)
    assert _pointers(third) == known
    assert not tier._idle
    for copies in (third, second, second):
        copies.close()
    assert len(tier._idle) == 2


def _pointers(copies: Recorded) -> set[int]:
    return {buffer.data_ptr() for buffers in copies._buffers.values() for buffer in buffers if buffer.numel()}


def test_a_run_that_nobody_ends_makes_the_stream_that_computes_wait_for_its_copies() -> None:
    plan = random_plan(bench(0).graph, 0)
    copies = Recorded(plan, Tier())
    value = next(one.value for one in plan.statements if isinstance(one, Send))
    copies.send(0, value, tensor := torch.ones(4))
    copies.free(value, tensor)
    there = copies.fetch(1, value)
    main, storage = copies.main, weakref.ref(there.untyped_storage())
    del there, tensor
    assert storage() is not None  # the copy may still write to it
    assert not main.clock["back"]
    del copies
    gc.collect()
    assert main.clock["back"] == 1
    assert storage() is None


def test_too_little_pinned_memory_and_a_copy_that_fails_are_named() -> None:
    class Short(Recorded):
        def _new_buffer(self, size: int) -> torch.Tensor:
            raise RuntimeError("CUDA error: out of memory\nand more")

    class Broken(Recorded):
        def _copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> None:
            raise RuntimeError("CUDA error: unspecified launch failure")

    plan = random_plan(bench(0).graph, 0)
    for kind, words in (
        (Short, r"no pinned memory of .* for 'send .*' \(statement \d+ of \d+\).*no statement has run"),
        (Broken, r"'send .*' \(statement \d+ of \d+\) could not copy .*unspecified launch failure; the step has ended"),
    ):
        with pytest.raises(ExecutionError, match=words):
            trained(bench(0), plan, Opening(make=kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_late_sends_generated_code_and_training_steps_are_ordered_and_equal(seed: int) -> None:
    plan = random_plan(bench(seed).graph, seed)
    assert run(bench(seed), plan)[1] is not None
    tier = Opening(make=Recorded)  # type: ignore[arg-type]
    assert outcome(bench(seed), plan, tier, generated=True).equal
    for _ in range(3):
        assert trained(bench(seed), plan, tier).equal


class SlowStreams(CopyStreams):
    """Copies that are late by random times, beside memory that holds NaN before it is filled and after it is freed."""

    def __init__(self, plan: TransferPlan, tier: Tier) -> None:
        super().__init__(plan, CUDA, tier._idle)
        self._draw = np.random.default_rng(len(plan.statements))

    def _copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> None:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(int(self._draw.integers(1_000_000)))  # cycles
        super()._copy(stream, target, source)

    def _copy_back(self, place: int, copy: HostCopy, storage: torch.UntypedStorage) -> Any:
        _spoil(storage)
        return super()._copy_back(place, copy, storage)

    def free(self, value: int, tensor: torch.Tensor) -> None:
        super().free(value, tensor)
        _spoil(tensor.untyped_storage())


def _spoil(storage: torch.UntypedStorage) -> None:
    torch.empty(0, dtype=torch.uint8, device=CUDA).set_(storage).fill_(NAN)


@cache
def cuda_bench(seed: int) -> Exactness:
    model, args = random_network(seed)
    return Exactness(model.to(CUDA), tuple(tensor.to(CUDA) for tensor in args), device=CUDA)


on_a_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
]


class TestOnCuda:
    pytestmark = on_a_gpu

    @pytest.mark.parametrize("seed", range(6))
    def test_every_road_gives_the_numbers_of_plain_pytorch_with_late_copies(self, seed: int) -> None:
        tier = Opening(make=SlowStreams)  # type: ignore[arg-type]
        for number in range(3):
            plan = random_plan(cuda_bench(seed).graph, number)
            assert outcome(cuda_bench(seed), plan, tier).equal
            assert outcome(cuda_bench(seed), plan, tier, generated=True).equal
            with torch.cuda.stream(torch.cuda.Stream() if number else torch.cuda.current_stream()):
                assert trained(cuda_bench(seed), plan, tier).equal

    @pytest.mark.parametrize("seed", range(3))
    def test_bytes_are_those_of_the_list(self, seed: int) -> None:
        plan = random_plan(cuda_bench(seed).graph, seed)
        _, after, host = readings(cuda_bench(seed), plan, Tier())
        assert (after == plan.timeline.after).all()
        assert (host == plan.timeline.host).all()

    def test_steps_in_a_row_without_a_wait_of_the_host_end_with_the_weights_of_plain_training(self) -> None:
        parts = (part for _ in range(5) for part in (nn.Linear(256, 256), nn.BatchNorm1d(256), nn.Tanh()))
        plain = nn.Sequential(*parts).to(CUDA)
        model, x = copy.deepcopy(plain), torch.randn(4096, 256, device=CUDA)
        made = rx.rematerialize(
            model, (x,), loss=torch.sum, budget="60%", time_limit=4, strategy="offload-only", offload="1000 GB/s"
        )
        solution = made.rematerialization.solution
        assert isinstance(solution, rx.TransferSolution)
        assert solution.plan is not None
        assert solution.plan.sent_bytes
        for one, run in ((plain, lambda x: plain(x).sum()), (model, made)):
            optimizer = torch.optim.SGD(one.parameters(), lr=1e-4)
            for number in range(10):
                loss = run(x + number)
                if number != 5:  # nobody asks for that one's backward pass
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        assert all(map(torch.equal, plain.state_dict().values(), model.state_dict().values()))
