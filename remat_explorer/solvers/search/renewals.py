"""A plan as the set of its renewals, and what follows from it: sequence, bytes, and makespan; compiled.

Each operation runs once in the order of the graph, so every value is there from then on, and any set of *renewals* is a
plan: "run operation k again in stage t", or "fetch group v in stage t, before it is first read there". A group is freed
after its last read before its next renewal. So a renewal takes nothing but the group's bytes in the gap before it, and
only bytes can be wrong with a set: `lay_out` finds the sequence without what serves nothing, and its bytes.

`clock` places the copies. A send follows a computation of its group as soon as the host has room for it; the group
stays until its copy is out, as far as there are bytes. A fetch begins as late as delays nothing, and as early as there
are bytes. The times are those of `remat_explorer.offload`, where a group of several values is one copy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_explorer.machine_code import counting_nothing
from remat_explorer.offload import Transfers
from remat_explorer.solvers.condensed_graph import CondensedGraph

LOGGED, LENGTH, VERSIONS, AGAIN, FETCHED, WORST = 0, 1, 2, 3, 4, 5  # entries of TransferState.numbers
HELD, WAITING, SPENT, DROPPED, SPENT_BYTES = 6, 7, 8, 9, 10  # the same of the host, while the engines run
COMPUTE, OUT, BACK, FREE, HOST = 0, 1, 2, 3, 4  # entries of TransferState.ends
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
    send_before: np.ndarray  # of each run, the first of the groups that are sent between its fetches and it
    send_head: np.ndarray  # and behind it
    send_link: np.ndarray
    current: np.ndarray  # of each group, scratch space as the rest
    needed: np.ndarray
    stamp: np.ndarray
    sent: np.ndarray
    arrival: np.ndarray
    host: np.ndarray
    busy: np.ndarray
    ahead: np.ndarray
    source: np.ndarray  # the version that a group is sent from
    ends: np.ndarray  # of the last jobs of the engines, and when what was freed and dropped is free
    returned: np.ndarray  # the end of a group's last fetch
    waiting: np.ndarray  # groups that are not sent yet
    spent: np.ndarray  # groups whose copies nobody fetches again

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
            numbers=whole(11, np.int64),
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
            send_before=whole(most),
            send_head=whole(most),
            send_link=whole(groups),
            current=whole(groups),
            needed=whole(groups, np.bool_),
            stamp=whole(groups),
            sent=whole(groups, np.bool_),
            arrival=np.zeros(groups),
            host=np.zeros(groups),
            busy=np.zeros(groups),
            ahead=whole(groups),
            source=whole(groups),
            ends=np.zeros(5),
            returned=np.zeros(groups),
            waiting=whole(groups),
            spent=whole(groups),
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
    """Place the copies of a sequence that fits, and give its makespan; NEVER if the host has no room for them.

    Each group is sent from its first version, or if that is faster, from the last one before its first fetch.
    """
    for v in range(len(graph.bytes)):
        state.sent[v] = False
    for f in range(state.numbers[FETCHED]):
        state.sent[state.group[state.fetched[f]]] = True
    again = choose_sources(graph, state, False)
    makespan = place_copies(graph, copies, state, budget)
    if again:
        choose_sources(graph, state, True)
        weigh(graph, copies, state, budget)
        later = place_copies(graph, copies, state, budget)
        if later < makespan:
            return later
        choose_sources(graph, state, False)
        weigh(graph, copies, state, budget)
        place_copies(graph, copies, state, budget)
    return makespan


@counting_nothing
def choose_sources(graph, state, late):
    """The version from which each group is sent; whether there is another before its first fetch."""
    again = False
    for v in range(len(graph.bytes)):
        state.source[v] = -1
    for version in range(state.numbers[VERSIONS]):
        v = state.group[version]
        if state.kind[version] == FIRST:
            state.stamp[v] = -1
            state.source[v] = version
        elif state.kind[version] == FETCH:
            state.stamp[v] = version  # the last fetch
        elif state.sent[v] and state.stamp[v] < 0:
            again = True
            if late:
                state.source[v] = version
    return again


@counting_nothing
def place_copies(graph, copies, state, budget):
    """Place sends, then fetches; the makespan."""
    for i in range(state.numbers[LENGTH]):
        state.head[i] = state.free_head[i] = state.send_before[i] = state.send_head[i] = -1
    place_sends(graph, copies, state, budget)
    place_fetches(graph, copies, state, budget)
    return run_engines(graph, copies, state, budget)


@counting_nothing
def place_sends(graph, copies, state, budget):
    """Keep each sent group until its copy is out, as far as there are bytes."""
    length, out = state.numbers[LENGTH], 0.0
    for version in range(state.numbers[VERSIONS]):
        state.until[version] = state.end[version]
        v = state.group[version]
        if not state.sent[v] or state.source[v] != version:
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
def run_engines(graph, copies, state, budget):
    """The makespan, by the clock of the three engines; NEVER if the host has no room for a copy while there is time."""
    numbers, ends = state.numbers, state.ends
    ends[:] = 0.0
    state.host[:] = 0.0
    state.busy[:] = 0.0
    numbers[HELD] = numbers[WAITING] = numbers[SPENT] = numbers[DROPPED] = numbers[SPENT_BYTES] = 0
    for i in range(numbers[LENGTH]):
        k = state.operation[i]
        version = state.head[i]
        while version >= 0:
            v = state.group[version]
            begin = max(max(ends[BACK], ends[FREE]), max(state.host[v], ends[COMPUTE]))
            state.arrival[v] = ends[BACK] = begin + copies.back[v]
            if not copies.duplex:
                ends[OUT] = ends[BACK]
            if state.stamp[v] == version:
                state.returned[v] = ends[BACK]
                state.spent[numbers[SPENT]] = v
                numbers[SPENT] += 1
                numbers[SPENT_BYTES] += graph.bytes[v]
            version = state.link[version]
        if numbers[WAITING] > 0 and not send_before(graph, copies, state, budget, i):
            return NEVER
        start = max(ends[COMPUTE], ends[FREE])
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            start = max(start, state.arrival[graph.inputs[j]])
        taken = graph.overwritten[k]
        if taken >= 0 and state.sent[taken] and dies_at(state, taken, i):
            if state.host[taken] == NEVER:
                return NEVER
            start = max(start, state.busy[taken])
        ends[COMPUTE] = start + graph.costs[k]
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            state.arrival[v] = ends[COMPUTE]
            if state.sent[v] and state.begin[state.source[v]] == i:
                state.host[v] = NEVER
                state.waiting[numbers[WAITING]] = v
                numbers[WAITING] += 1
        if numbers[WAITING] > 0:
            send_waiting(graph, copies, state, i, state.send_head)
        version = state.free_head[i]
        while version >= 0:
            if state.host[state.group[version]] < NEVER:
                ends[FREE] = max(ends[FREE], state.busy[state.group[version]])
            version = state.free_link[version]
    return ends[COMPUTE]


@counting_nothing
def send_before(graph, copies, state, budget, i):
    """Send what waits for the host's room between the fetches before a run and the run; False if that is too late."""
    waiting = state.numbers[WAITING]
    k, late = state.operation[i], 0
    for j in range(waiting):
        v = state.waiting[j]
        if state.until[state.source[v]] < i:  # it is here for its copy alone
            late += graph.bytes[v]
    if late > 0 and state.bytes[i] - graph.needed[k] + late > budget:
        return False
    send_waiting(graph, copies, state, i, state.send_before)
    for j in range(state.numbers[WAITING]):
        if state.until[state.source[state.waiting[j]]] < i:
            return False
    v = state.send_before[i]
    while v >= 0:
        if state.until[state.source[v]] < i:
            state.ends[FREE] = max(state.ends[FREE], state.busy[v])
        v = state.send_link[v]
    return True


@counting_nothing
def send_waiting(graph, copies, state, i, heads):
    """Send those of the waiting groups that the host has room for, once it has dropped what nobody fetches again."""
    numbers, ends = state.numbers, state.ends
    left, last, room = 0, -1, copies.host_bytes
    for j in range(numbers[WAITING]):
        v = state.waiting[j]
        if room >= 0 and numbers[HELD] - numbers[SPENT_BYTES] + graph.bytes[v] > room:
            state.waiting[left] = v
            left += 1
            continue
        while room >= 0 and numbers[HELD] + graph.bytes[v] > room:
            gone = state.spent[numbers[DROPPED]]
            numbers[DROPPED] += 1
            numbers[HELD] -= graph.bytes[gone]
            numbers[SPENT_BYTES] -= graph.bytes[gone]
            ends[HOST] = max(ends[HOST], state.returned[gone])
        ends[OUT] = max(max(ends[OUT], state.arrival[v]), ends[HOST]) + copies.out[v]
        state.host[v] = state.busy[v] = ends[OUT]
        numbers[HELD] += graph.bytes[v]
        if not copies.duplex:
            ends[BACK] = ends[OUT]
        if last < 0:
            heads[i] = v
        else:
            state.send_link[last] = v
        state.send_link[v] = -1
        last = v
    numbers[WAITING] = left


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
