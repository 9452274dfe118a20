"""`Order`: what kernels take in memory, against a simulation, and the order in which they may run."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from remat_explorer.runtime.compiled.inductor_fusion import Buffer, KernelOrder


def some_buffers(operations: int, draw: random.Random) -> list[Buffer]:
    """One buffer for each operation, read by some of the later ones, and a few that are there from the beginning."""
    buffers = []
    for maker in [None, None, *range(operations)]:
        later = range(0 if maker is None else maker + 1, operations)
        readers = tuple(sorted(draw.sample(later, min(len(later), draw.choice((1, 1, 2, 3))))))
        if maker is None and not readers:
            continue
        over = frozenset(reader for reader in readers if draw.random() < 0.5)
        buffers.append(Buffer(draw.choice((1, 2, 2, 4)), maker, readers, (), draw.random() < 0.1, over))
    return buffers


def simulated_peak(order: KernelOrder, operations: int, buffers: Sequence[Buffer]) -> int:
    """The most bytes at a time, kernel by kernel: what is there, what is made, and what is read for the last time."""
    kernels: dict[int, list[int]] = {}
    for k in range(operations):
        kernels.setdefault(order.place_of(k), []).append(k)
    in_memory = {k for k, buffer in enumerate(buffers) if buffer.maker is None}
    left = {k: set(buffer.readers) for k, buffer in enumerate(buffers)}
    peak = 0
    for place in sorted(kernels):
        running = set(kernels[place])
        made = {k for k, buffer in enumerate(buffers) if buffer.maker in running}
        inside = {k for k in made if left[k] and left[k] <= running and not buffers[k].held}
        taken = {}  # of results by the inputs whose place they take
        for k in sorted(in_memory):
            reader = next(iter(left[k] & running), None)
            if buffers[k].held or left[k] - running or len(left[k] & running) != 1 or reader not in buffers[k].over:
                continue
            heirs = [m for m in made - inside if buffers[m].maker == reader and buffers[m].size == buffers[k].size]
            if heirs and heirs[0] not in taken.values():
                taken[k] = heirs[0]
        peak = max(peak, sum(buffers[k].size for k in (in_memory | made) - inside - set(taken)))
        in_memory |= made - inside
        for k in list(in_memory):
            left[k] -= running
            if not left[k] and not buffers[k].held:
                in_memory.remove(k)
    return peak


@pytest.mark.parametrize("seed", range(40))
def test_the_peak_is_that_of_a_simulation_and_inputs_are_made_before_they_are_read(seed: int) -> None:
    draw = random.Random(seed)
    operations = draw.randint(3, 12)
    buffers = some_buffers(operations, draw)
    order = KernelOrder(operations, buffers)
    assert order.peak == simulated_peak(order, operations, buffers)
    for _ in range(2 * operations):
        joined = order.fuse(*draw.sample(range(operations), 2))
        if joined is None:
            continue
        order = joined
        assert order.peak == simulated_peak(order, operations, buffers)
        for buffer in buffers:
            if buffer.maker is not None:
                assert all(order.place_of(buffer.maker) <= order.place_of(reader) for reader in buffer.readers)


def test_kernels_do_not_move_past_what_lies_between_them() -> None:
    """0 makes what 1 reads, and 1 makes what 2 reads: 0 and 2 cannot be one kernel unless 1 is in it."""
    chain = [Buffer(1, k, (k + 1,)) for k in range(2)]
    order = KernelOrder(3, chain)
    assert order.fuse(0, 2) is None
    first = order.fuse(0, 1)
    assert first is not None
    both = first.fuse(0, 2)
    assert both is not None
    assert len({both.place_of(k) for k in range(3)}) == 1


def test_what_must_come_later_is_not_overtaken() -> None:
    """2 has to follow 1, without reading it: in one kernel with 3, 1 stays before 2, although 3 alone would not."""
    joined = KernelOrder(4, [Buffer(1, 0, (3,)), Buffer(0, 1, (), (2,))]).fuse(1, 3)
    assert joined is not None
    assert joined.place_of(1) == joined.place_of(3) < joined.place_of(2)
