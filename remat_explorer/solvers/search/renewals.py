"""A plan as the set of its renewals, and what follows from it: sequence, bytes, and makespan; compiled.

Each operation runs once in the order of the graph, so every value is there from then on, and any set of *renewals* is a
plan: "run operation k again in stage t", or "fetch group v in stage t, before it is first read there". A group is freed
after its last read before its next renewal. So a renewal takes nothing but the group's bytes in the gap before it, and
only bytes can be wrong with a set: `lay_out` finds the sequence without what serves nothing, and its bytes.

`clock` places the copies. A send follows the first computation of its group; the group stays until its copy is out, as
far as there are bytes. A fetch begins as late as delays nothing, and as early as there are bytes. The times are those
of `remat_explorer.offload`, where a group of several values is one copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from remat_explorer.machine_code import counting_nothing
from remat_explorer.offload import Transfers
from remat_explorer.solvers.condensed_graph import CondensedGraph

LOGGED, LENGTH, VERSIONS, AGAIN, FETCHED, WORST = 0, 1, 2, 3, 4, 5  # entries of TransferState.numbers
FIRST, RUN, FETCH = 0, 1, 2  # how a version of a group came to be
NEVER = 1e300


class Copies(NamedTuple):
    """What copies of groups take, and what they may take; times in the unit of costs."""

    out: np.ndarray  # of each group, float64
    back: np.ndarray
    host_bytes: int  # -1 for any number
    duplex: bool
    possible: bool  # whether there are any
    in_place: np.ndarray  # of each operation, whether it may run only where the group dies that it overwrites

    @staticmethod
    def of(condensed: CondensedGraph, transfers: Transfers) -> Copies:
        """The copies of a condensed graph: each value of a group is a copy of its own."""
        graph = condensed.graph
        out, back = np.zeros(condensed.groups), np.zeros(condensed.groups)
        if transfers.possible:
            for g, values in enumerate(members_of(condensed)):
                sizes = [graph.values[v].bytes for v in values]
                out[g] = sum(map(transfers.out_seconds, sizes))
                back[g] = sum(map(transfers.back_seconds, sizes))
        room = -1 if transfers.host_bytes is None else transfers.host_bytes
        alone = np.array([node.default.in_place for node in graph.operations], dtype=np.bool_)
        return Copies(out, back, room, transfers.duplex, transfers.possible, alone)


def members_of(condensed: CondensedGraph) -> list[list[int]]:
    """The values of each group."""
    graph = condensed.graph
    if condensed.groups == sum(_is_grouped(condensed)):
        return [[int(v)] for v in condensed.member]
    group_of = {(int(graph.producer[v]), graph.readers[v]): group for group, v in enumerate(condensed.member)}
    members: list[list[int]] = [[] for _ in range(condensed.groups)]
    for v in np.flatnonzero(_is_grouped(condensed)).tolist():
        members[group_of[int(graph.producer[v]), graph.readers[v]]].append(v)
    return members


def _is_grouped(condensed: CondensedGraph) -> list[bool]:
    """Which values are in groups."""
    graph = condensed.graph
    return [bool(graph.readers[v]) and not graph.persistent[v] for v in range(len(graph.values))]


def one_by_one(condensed: CondensedGraph) -> CondensedGraph:
    """The same with a group for each value: half a group may be sent, so groups do change an optimum with transfers."""
    graph = condensed.graph
    read = [v for v in range(len(graph.values)) if graph.readers[v] and not graph.persistent[v]]
    read.sort(key=lambda v: int(graph.producer[v]))
    group_of = {v: group for group, v in enumerate(read)}
    overwritten = [node.default.overwrites for node in graph.operations]
    return replace(
        condensed,
        inputs=tuple(tuple(sorted(group_of[v] for v in set(graph.inputs(k)) & set(read))) for k in range(graph.n)),
        outputs=tuple(tuple(group_of[v] for v in read if graph.producer[v] == k) for k in range(graph.n)),
        readers=tuple(graph.readers[v] for v in read),
        producer=np.array([graph.producer[v] for v in read], dtype=np.int64),
        bytes=np.array([graph.values[v].bytes for v in read], dtype=np.int64),
        member=np.array(read, dtype=np.int64),
        overwritten=np.array([-1 if v is None else group_of[v] for v in overwritten], dtype=np.int64),
    )


class TransferState(NamedTuple):
    """A set of renewals of n operations and g groups, and what was last computed of it."""

    runs: np.ndarray  # whether operation k runs again in stage t, at [t, k]
    fetches: np.ndarray  # whether group v is fetched in stage t, at [t, v]
    run_list: np.ndarray  # the operations that run again in each stage, ascending
    run_count: np.ndarray
    run_used: np.ndarray  # which of them serve something
    fetch_list: np.ndarray  # the groups that are fetched in each stage, in any order
    fetch_count: np.ndarray
    fetch_used: np.ndarray
    log: np.ndarray  # changes since the last one that was accepted, stage * (n + g) + operation, or n + group
    numbers: np.ndarray
    operation: np.ndarray  # of each run of the sequence
    stage: np.ndarray
    again: np.ndarray  # places in the sequence of runs that are no first ones
    fetched: np.ndarray  # versions that were fetched, in the order of their first reads
    group: np.ndarray  # of each version, as are the next five: the group,
    begin: np.ndarray  # the run that makes it, or that reads it first after a fetch,
    read: np.ndarray  # its first read, or -1
    end: np.ndarray  # its last use
    kind: np.ndarray  # FIRST, RUN or FETCH
    before: np.ndarray  # the group's version before it, or -1
    next: np.ndarray  # the group's version after it, or -1
    bytes: np.ndarray  # during each run, without what copies keep for longer
    when: np.ndarray  # when each run would begin if nothing waited
    place: np.ndarray  # of each version: the run before which its fetch begins
    until: np.ndarray  # of each version: the run after which it may be freed
    head: np.ndarray  # of each run, the first of the fetches before it
    link: np.ndarray  # of each version, the next fetch before the same run
    free_head: np.ndarray  # of each run, the first of the sent versions that are freed after it
    free_link: np.ndarray
    current: np.ndarray  # of each group, scratch space as the rest
    needed: np.ndarray
    stamp: np.ndarray
    sent: np.ndarray
    arrival: np.ndarray
    host: np.ndarray
    busy: np.ndarray
    ahead: np.ndarray
    host_change: np.ndarray

    @staticmethod
    def empty(n: int, groups: int) -> TransferState:
        """No renewal."""
        most = 6 * n + 512
        versions = 4 * most + groups

        def whole(count: int, dtype: type[np.generic] = np.int32) -> np.ndarray:
            return np.zeros(count, dtype=dtype)

        return TransferState(
            runs=np.zeros((n, n), dtype=np.uint8),
            fetches=np.zeros((n, groups), dtype=np.uint8),
            run_list=np.zeros((n, n), dtype=np.int32),
            run_count=whole(n),
            run_used=np.zeros((n, n), dtype=np.uint8),
            fetch_list=np.zeros((n, groups), dtype=np.int32),
            fetch_count=whole(n),
            fetch_used=np.zeros((n, groups), dtype=np.uint8),
            log=whole(1 << 16, np.int64),
            numbers=whole(8, np.int64),
            operation=whole(most),
            stage=whole(most),
            again=whole(most),
            fetched=whole(versions),
            group=whole(versions),
            begin=whole(versions),
            read=whole(versions),
            end=whole(versions),
            kind=whole(versions),
            before=whole(versions),
            next=whole(versions),
            bytes=whole(most + 1, np.int64),
            when=np.zeros(most + 1),
            place=whole(versions),
            until=whole(versions),
            head=whole(most),
            link=whole(versions),
            free_head=whole(most),
            free_link=whole(versions),
            current=whole(groups),
            needed=whole(groups, np.bool_),
            stamp=whole(groups),
            sent=whole(groups, np.bool_),
            arrival=np.zeros(groups),
            host=np.zeros(groups),
            busy=np.zeros(groups),
            ahead=whole(groups),
            host_change=whole(most + 1, np.int64),
        )


@counting_nothing
def toggle(state, t, what):
    """Add a renewal to stage t or take it away: an operation, or a group as n + v."""
    n = len(state.run_count)
    if what < n:
        count = state.run_count[t]
        if state.runs[t, what]:
            i = 0
            while state.run_list[t, i] != what:
                i += 1
            for j in range(i, count - 1):
                state.run_list[t, j] = state.run_list[t, j + 1]
            state.run_count[t] = count - 1
        else:
            i = count
            while i > 0 and state.run_list[t, i - 1] > what:
                state.run_list[t, i] = state.run_list[t, i - 1]
                i -= 1
            state.run_list[t, i] = what
            state.run_count[t] = count + 1
        state.runs[t, what] = 1 - state.runs[t, what]
    else:
        v = what - n
        count = state.fetch_count[t]
        if state.fetches[t, v]:
            i = 0
            while state.fetch_list[t, i] != v:
                i += 1
            state.fetch_list[t, i] = state.fetch_list[t, count - 1]
            state.fetch_count[t] = count - 1
        else:
            state.fetch_list[t, count] = v
            state.fetch_count[t] = count + 1
        state.fetches[t, v] = 1 - state.fetches[t, v]


@counting_nothing
def change(state, t, what):
    """`toggle`, so that `take_back` knows of it."""
    toggle(state, t, what)
    logged = state.numbers[LOGGED]
    if logged < len(state.log):
        state.log[logged] = t * (len(state.run_count) + state.fetches.shape[1]) + what
    state.numbers[LOGGED] = logged + 1


@counting_nothing
def take_back(state):
    """Undo all changes of the log."""
    width = len(state.run_count) + state.fetches.shape[1]
    while state.numbers[LOGGED] > 0:
        state.numbers[LOGGED] -= 1
        entry = state.log[state.numbers[LOGGED]]
        toggle(state, entry // width, entry % width)


@counting_nothing
def tidy(state):
    """Take away what `lay_out` found to serve nothing."""
    n = len(state.run_count)
    for t in range(n):
        for i in range(state.run_count[t] - 1, -1, -1):
            if not state.run_used[t, i]:
                change(state, t, state.run_list[t, i])
        i = state.fetch_count[t] - 1
        while i >= 0:
            if not state.fetch_used[t, i]:
                last = state.fetch_count[t] - 1
                state.fetch_used[t, i] = state.fetch_used[t, last]  # which takes its place
                change(state, t, n + state.fetch_list[t, i])
            i -= 1


@counting_nothing
def mark_used(graph, state):
    """Which renewals serve something, from the end to the beginning."""
    n = len(graph.costs)
    for v in range(len(graph.bytes)):
        state.needed[v] = False
        state.stamp[v] = -1
    for t in range(n - 1, -1, -1):
        for i in range(state.run_count[t], -1, -1):
            k = t if i == state.run_count[t] else state.run_list[t, i]
            serves = k == t
            for v in range(graph.output_start[k], graph.output_start[k + 1]):
                serves = serves or state.needed[v]
            if i < state.run_count[t]:
                state.run_used[t, i] = serves
            if not serves:
                continue
            for v in range(graph.output_start[k], graph.output_start[k + 1]):
                state.needed[v] = False
                state.stamp[v] = -1
            for j in range(graph.input_start[k], graph.input_start[k + 1]):
                state.needed[graph.inputs[j]] = True
                state.stamp[graph.inputs[j]] = t
        for i in range(state.fetch_count[t]):
            v = state.fetch_list[t, i]
            state.fetch_used[t, i] = state.needed[v] and state.stamp[v] == t
            if state.fetch_used[t, i]:
                state.needed[v] = False


@counting_nothing
def new_version(state, v, i, kind):
    """Begin a version of group v at run i; False if there is no room for one."""
    version = state.numbers[VERSIONS]
    if version >= len(state.group):
        return False
    state.group[version], state.begin[version], state.read[version] = v, i, -1
    state.end[version], state.kind[version] = i, kind
    state.before[version], state.next[version] = state.current[v], -1
    if state.current[v] >= 0:
        state.next[state.current[v]] = version
    state.current[v] = version
    state.numbers[VERSIONS] = version + 1
    if kind == FETCH:
        state.fetched[state.numbers[FETCHED]] = version
        state.numbers[FETCHED] += 1
    return True


@counting_nothing
def lay_out(graph, copies, state, budget):
    """The sequence, versions and bytes; gives the bytes above the budget, at the worst run; -1 for what cannot be."""
    n, numbers = len(graph.costs), state.numbers
    mark_used(graph, state)
    numbers[LENGTH] = numbers[VERSIONS] = numbers[AGAIN] = numbers[FETCHED] = 0
    for v in range(len(graph.bytes)):
        state.current[v] = -1
        state.stamp[v] = -1
    length = 0
    for t in range(n):
        for i in range(state.fetch_count[t]):
            if state.fetch_used[t, i]:
                state.stamp[state.fetch_list[t, i]] = t
        for i in range(state.run_count[t] + 1):
            first = i == state.run_count[t]
            if not first and not state.run_used[t, i]:
                continue
            k = t if first else state.run_list[t, i]
            if length + 1 >= len(state.operation):
                return -1
            state.operation[length], state.stage[length] = k, t
            if not first:
                state.again[numbers[AGAIN]] = length
                numbers[AGAIN] += 1
            for j in range(graph.input_start[k], graph.input_start[k + 1]):
                u = graph.inputs[j]
                if state.stamp[u] == t:
                    state.stamp[u] = -1
                    if not new_version(state, u, length, FETCH):
                        return -1
                version = state.current[u]
                state.end[version] = length
                if state.read[version] < 0:
                    state.read[version] = length
            for v in range(graph.output_start[k], graph.output_start[k + 1]):
                if not new_version(state, v, length, FIRST if first else RUN):
                    return -1
            length += 1
    numbers[LENGTH] = length
    return weigh(graph, copies, state, budget)


@counting_nothing
def weigh(graph, copies, state, budget):
    """Bytes during each run, from the versions."""
    length = state.numbers[LENGTH]
    for i in range(length + 1):
        state.bytes[i] = 0
    for version in range(state.numbers[VERSIONS]):
        size = graph.bytes[state.group[version]]
        state.bytes[state.begin[version]] += size
        state.bytes[state.end[version] + 1] -= size
    held, over, worst, now = 0, 0, -1, 0.0
    for i in range(length):
        k, t = state.operation[i], state.stage[i]
        held += state.bytes[i]
        during = held + graph.base[t] + graph.needed[k]
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            during -= graph.bytes[v]
        if graph.overwritten[k] >= 0:
            if dies_at(state, graph.overwritten[k], i):
                during -= graph.credit[k]
            elif copies.in_place[k]:
                return -1
        state.bytes[i], state.when[i] = during, now
        now += graph.costs[k]
        if during - budget > over:
            over, worst = during - budget, i
    state.when[length] = now
    state.numbers[WORST] = worst
    return over


@counting_nothing
def dies_at(state, v, i):
    """Whether the version of group v that run i reads is used there for the last time."""
    version = state.current[v]
    while version >= 0 and state.begin[version] > i:
        version = state.before[version]
    if version >= 0 and state.begin[version] == i and state.kind[version] != FETCH:
        version = state.before[version]
    return version >= 0 and state.end[version] == i


@counting_nothing
def clock(graph, copies, state, budget):
    """Place the copies of a sequence that fits, and give its makespan; NEVER if the host has no room."""
    numbers, length = state.numbers, state.numbers[LENGTH]
    for v in range(len(graph.bytes)):
        state.sent[v] = False
    for i in range(length):
        state.head[i] = -1
        state.free_head[i] = -1
    for f in range(numbers[FETCHED]):
        state.sent[state.group[state.fetched[f]]] = True
    place_sends(graph, copies, state, budget)
    place_fetches(graph, copies, state, budget)
    if copies.host_bytes >= 0 and not fits_host(graph, copies, state):
        return NEVER
    return run_engines(graph, copies, state)


@counting_nothing
def place_sends(graph, copies, state, budget):
    """Keep each sent group until its copy is out, as far as there are bytes."""
    length, out = state.numbers[LENGTH], 0.0
    for version in range(state.numbers[VERSIONS]):
        state.until[version] = state.end[version]
        v = state.group[version]
        if state.kind[version] != FIRST or not state.sent[v]:
            continue
        out = max(out, state.when[state.begin[version] + 1]) + copies.out[v]
        end = state.end[version]
        limit = state.begin[state.next[version]] if state.next[version] >= 0 else length
        while end + 1 < limit and state.when[end + 1] < out and state.bytes[end + 1] + graph.bytes[v] <= budget:
            end += 1
            state.bytes[end] += graph.bytes[v]
        state.until[version] = end
        state.free_link[version] = state.free_head[end]
        state.free_head[end] = version


@counting_nothing
def place_fetches(graph, copies, state, budget):
    """From the last fetch to the first: as late as delays nothing, but not before there are bytes."""
    following = NEVER
    for f in range(state.numbers[FETCHED] - 1, -1, -1):
        version = state.fetched[f]
        v = state.group[version]
        place = state.begin[version]
        start = min(state.when[place], following) - copies.back[v]
        least = state.until[state.before[version]] + 1
        while place - 1 >= least and state.when[place] > start and state.bytes[place - 1] + graph.bytes[v] <= budget:
            place -= 1
            state.bytes[place] += graph.bytes[v]
        state.place[version] = place
        state.link[version] = state.head[place]
        state.head[place] = version
        following = max(start, state.when[place])


@counting_nothing
def fits_host(graph, copies, state):
    """Whether all copies that are on the host at a time fit there; a copy is dropped after its last fetch."""
    length = state.numbers[LENGTH]
    for i in range(length + 1):
        state.host_change[i] = 0
    for v in range(len(graph.bytes)):
        state.stamp[v] = -1
    for version in range(state.numbers[VERSIONS]):
        v = state.group[version]
        if state.sent[v] and state.kind[version] == FIRST:
            state.host_change[state.begin[version]] += graph.bytes[v]
        if state.kind[version] == FETCH:
            state.stamp[v] = max(state.stamp[v], state.place[version])
    for v in range(len(graph.bytes)):
        if state.stamp[v] >= 0:
            state.host_change[state.stamp[v]] -= graph.bytes[v]
    held = 0
    for i in range(length):
        held += state.host_change[i]
        if held > copies.host_bytes:
            return False
    return True


@counting_nothing
def run_engines(graph, copies, state):
    """The makespan, by the clock of the three engines."""
    computing, sending, fetching, free = 0.0, 0.0, 0.0, 0.0
    for i in range(state.numbers[LENGTH]):
        k = state.operation[i]
        version = state.head[i]
        while version >= 0:
            v = state.group[version]
            fetching = max(max(fetching, free), max(state.host[v], computing)) + copies.back[v]
            state.arrival[v] = fetching
            if not copies.duplex:
                sending = fetching
            version = state.link[version]
        start = max(computing, free)
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            start = max(start, state.arrival[graph.inputs[j]])
        taken = graph.overwritten[k]
        if taken >= 0 and state.sent[taken] and dies_at(state, taken, i):
            start = max(start, state.busy[taken])
        computing = start + graph.costs[k]
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            state.arrival[v] = computing
            if state.sent[v] and k == state.stage[i]:
                sending = max(sending, computing) + copies.out[v]
                state.host[v] = state.busy[v] = sending
                if not copies.duplex:
                    fetching = sending
        version = state.free_head[i]
        while version >= 0:
            free = max(free, state.busy[state.group[version]])
            version = state.free_link[version]
    return computing


def set_renewals(state: TransferState, runs: np.ndarray | None, fetches: np.ndarray | None) -> None:
    """Make the renewals those of two matrices; None for none."""
    state.runs[:] = 0 if runs is None else runs
    state.fetches[:] = 0 if fetches is None else fetches
    for matrix, lists, counts in (
        (state.runs, state.run_list, state.run_count),
        (state.fetches, state.fetch_list, state.fetch_count),
    ):
        counts[:] = matrix.sum(axis=1)
        for t in np.flatnonzero(counts):
            lists[t, : counts[t]] = np.flatnonzero(matrix[t])
    state.numbers[LOGGED] = 0
