"""A condensed graph as flat arrays, which is what compiled code can read.

Lists of lists become one array of entries and one of starts: the inputs of operation k are
``inputs[input_start[k]:input_start[k + 1]]``. Groups are numbered in the order of their producers, so the outputs of
operation k are the groups from ``output_start[k]`` up to ``output_start[k + 1]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from remat_explorer.solvers.condensed import Condensed


class FlatGraph(NamedTuple):
    """n operations and g groups of values; bytes are int64, indices int32.

    Attributes:
        input_start, inputs: groups that each operation reads, ascending.
        output_start: first group that each operation writes, of shape (n + 1,).
        reader_start, readers: operations that read each group, ascending.
        producer: of shape (g,).
        bytes: M, of shape (g,).
        size: natural logarithm of M, float64 of shape (g,).
        needed: bytes of the groups that an operation writes and its transient bytes, of shape (n,).
        base: bytes that are there all through a stage, of shape (n,).
        overwritten: the group that an operation may overwrite, or -1, of shape (n,).
        credit: bytes that it saves by that, of shape (n,).
        costs: C, float64 of shape (n,).
        clock: when each stage begins, as a share of the whole run, float64 of shape (n + 1,).
    """

    input_start: np.ndarray
    inputs: np.ndarray
    output_start: np.ndarray
    reader_start: np.ndarray
    readers: np.ndarray
    producer: np.ndarray
    bytes: np.ndarray
    size: np.ndarray
    needed: np.ndarray
    base: np.ndarray
    overwritten: np.ndarray
    credit: np.ndarray
    costs: np.ndarray
    clock: np.ndarray

    @staticmethod
    def of(condensed: Condensed) -> FlatGraph:
        """Flatten ``condensed``, once.

        >>> from remat_explorer.instances import linear
        >>> flat = FlatGraph.of(Condensed.of(linear(2)))
        >>> flat.input_start.tolist(), flat.inputs.tolist()
        ([0, 0, 1, 2, 4, 6], [0, 1, 1, 2, 0, 3])
        """
        if condensed not in _known:
            _known[condensed] = FlatGraph._made_of(condensed)
        return _known[condensed]

    @staticmethod
    def _made_of(condensed: Condensed) -> FlatGraph:
        n = condensed.n
        input_start, inputs = _flat(condensed.inputs)
        reader_start, readers = _flat(condensed.readers)
        # the clock mixes the number of operations and their cost, so that neither free nor dear operations dominate
        share = np.append(0.0, np.cumsum(condensed.costs) / (condensed.graph.total_cost or 1.0))
        return FlatGraph(
            input_start,
            inputs,
            _flat(condensed.outputs)[0],
            reader_start,
            readers,
            condensed.producer.astype(np.int32),
            condensed.bytes.astype(np.int64),
            np.log(np.maximum(condensed.bytes, 1).astype(np.float64)),
            (condensed.output_bytes + condensed.transient).astype(np.int64),
            condensed.base.astype(np.int64),
            condensed.overwritten.astype(np.int32),
            condensed.credit.astype(np.int64),
            condensed.costs.astype(np.float64),
            0.5 * np.arange(n + 1) / n + 0.5 * share,
        )


_known: WeakKeyDictionary[Condensed, FlatGraph] = WeakKeyDictionary()


def _flat(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and entries of a list of lists."""
    starts = np.append(0, np.cumsum([len(entries) for entries in lists], dtype=np.int64))
    return starts.astype(np.int32), np.array([entry for entries in lists for entry in entries], dtype=np.int32)
