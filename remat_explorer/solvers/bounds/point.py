"""What a relaxation's point needs: less than it may hold, how much memory that takes, and what it tells to walks."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from remat_explorer.solvers.bounds.few_moments import MomentsBound
from remat_explorer.solvers.bounds.stages import Stages
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.walks import Guide

STRENGTHS = (3.0, 30.0)  # factor on the score of what the relaxation holds, and its inverse on what it does not


def guides(condensed: Condensed, relaxed: MomentsBound) -> list[Guide]:
    """Guides for walks towards what the relaxation has in memory at the next moment.

    A value that is held now and read before the next moment is kept, too; one that the relaxation computes again in
    the interval is left to the score.

    Args:
        condensed: n operations and their groups of values.
        relaxed: a bound with its solution.

    Returns:
        One guide per strength; none if the bound has no solution.
    """
    if relaxed.s is None or relaxed.x is None:
        return []
    moments, last = relaxed.moments, len(relaxed.moments)
    held = np.zeros((last + 1, condensed.groups))  # a row for the stages up to each moment, one for those after all
    neutral = np.zeros((last + 1, condensed.groups), dtype=bool)
    row = np.searchsorted(np.array(moments), np.arange(condensed.n), side="right")
    for q in range(-1, last):
        start = moments[q] if q >= 0 else 0
        end = moments[q + 1] if q + 1 < last else condensed.n
        if q + 1 < last:
            held[q + 1] = relaxed.s[q + 1]
            held[q + 1, list(condensed.inputs[end])] = 1.0  # even what it overwrites
            neutral[q + 1] |= condensed.producer >= end  # the next moment says nothing about what comes after it
        if q >= 0:
            read = condensed.read_from(start, end)
            held[q + 1] = np.maximum(held[q + 1], relaxed.s[q] * read)
            neutral[q + 1] |= (relaxed.x[q][condensed.producer] > 0.5) & (held[q + 1] < 0.5)
    held[neutral] = 0.5
    return guides_to(held, row)


def guides_to(held: np.ndarray, row: np.ndarray) -> list[Guide]:
    """Guides towards what is held, between 0 and 1, of shape (rows, groups), where each stage has its row."""
    return [Guide(np.log(strength) * (2 * held - 1), row) for strength in STRENGTHS]


class Point:
    """A point of a relaxation, fractional or integral.

    Args:
        stages: the entries.
        R: (entries, n), between 0 and 1.
        S: (entries, groups), between 0 and 1.
    """

    def __init__(self, stages: Stages, R: np.ndarray, S: np.ndarray) -> None:
        self.stages, self.R, self.S = stages, R, S

    @cached_property
    def memory(self) -> np.ndarray:
        """Estimated bytes at every first run, floats of shape (n,)."""
        return estimated_memory(self.stages, self.R, self.S)

    def held(self) -> tuple[np.ndarray, np.ndarray]:
        """What is in memory after the stages of each entry, between 0 and 1, of shape (entries, groups).

        With it, the entry of each stage, int of shape (n,): together they guide walks.
        """
        condensed = self.stages.condensed
        kept = np.vstack([self.S[1:], np.zeros((1, condensed.groups))])
        held = np.maximum(kept, self.S * self.stages.reads)
        merged = ~self.stages.single[:, None]  # when it is computed again is not known
        held[merged & (self.R[:, condensed.producer] > 0.5) & (held < 0.5)] = 0.5
        return held, np.repeat(np.arange(len(self.stages)), self.stages.last - self.stages.first + 1)


def lean_point(stages: Stages, R: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R and S without what serves nothing: where memory is left over, a linear program may hold anything.

    Args:
        stages: the entries.
        R: (entries, n), between 0 and 1.
        S: (entries, groups), between 0 and 1.

    Returns:
        R and S, nowhere larger.
    """
    condensed = stages.condensed
    needed_R, needed_S = np.zeros_like(R), np.zeros_like(S)
    need = np.zeros(condensed.groups)
    for q in range(len(stages) - 1, -1, -1):
        first, last = int(stages.first[q]), int(stages.last[q])
        need[condensed.producer >= first] = 0.0
        need[stages.reads[q]] = 1.0
        needed_R[q, first : last + 1] = 1.0
        for k in np.flatnonzero(R[q, :first] > 0)[::-1].tolist():
            outputs, inputs = list(condensed.outputs[k]), list(condensed.inputs[k])
            run = min(float(R[q, k]), float(need[outputs].max(initial=0.0)))
            needed_R[q, k] = run
            need[outputs] = np.maximum(need[outputs] - run, 0.0)
            need[inputs] = np.maximum(need[inputs], run)
        need = np.minimum(need, S[q])
        needed_S[q] = need
    return needed_R, needed_S


def estimated_memory(stages: Stages, R: np.ndarray, S: np.ndarray) -> np.ndarray:
    """A guess of the memory at every first run, from what is held around the run of stages it is in.

    In a merged run nothing is known of when a repetition happens; what it brings is counted only where it is read.

    Args:
        stages: the entries.
        R: (entries, n), between 0 and 1.
        S: (entries, groups), between 0 and 1.

    Returns:
        Bytes as floats of shape (n,).
    """
    condensed = stages.condensed
    R, S = lean_point(stages, R, S)
    estimate = (condensed.base + condensed.output_bytes + condensed.transient).astype(float)
    kept = np.vstack([S[1:], np.zeros((1, condensed.groups))])
    for q in range(len(stages)):
        first, last = int(stages.first[q]), int(stages.last[q])
        needed, old = kept[q].copy(), condensed.producer < first
        again = R[q][condensed.producer] if last > first else np.zeros(condensed.groups)
        for t in range(last, first - 1, -1):
            if condensed.credit[t]:
                estimate[t] -= condensed.credit[t] * (1 - needed[condensed.overwritten[t]])
            inputs = list(condensed.inputs[t])
            needed[inputs] = 1.0
            present = np.where(old, np.clip(needed - again, 0, 1), np.where(condensed.producer < t, needed, 0))
            present[inputs] = 1.0
            estimate[t] += present @ condensed.bytes
    return estimate
