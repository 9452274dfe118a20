"""Local search over sets of renewals: change some at random, and where bytes are then short, renew more; compiled.

Each move takes away renewals, adds one, or exchanges runs for fetches. Where the result exceeds the budget, `repair`
looks at the worst moment: a group that is not used there can leave in the gap around it, and then needs a renewal at its
next read. The price of a run is its cost; that of a fetch is a share of the time of its copies, drawn anew for each
move, since how much of them is hidden depends on everything else. What is no worse, or little so while the temperature
is high, is accepted.
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.machine_code import counting_nothing, entry
from remat_explorer.solvers.offload.renewals import (
    AGAIN,
    FETCHED,
    LENGTH,
    LOGGED,
    NEVER,
    VERSIONS,
    WORST,
    change,
    clock,
    lay_out,
    take_back,
    tidy,
)
from remat_explorer.solvers.search.annealing import below, uniform

REPAIRS = 400  # renewals that one repair adds, at most, where there is no plan yet
FEW_REPAIRS = 24  # after a move
WINDOW = 12  # renewals that one move takes away, at most


@counting_nothing
def repair(graph, copies, state, random, budget, may_run, may_fetch, most, limit):
    """Add renewals until the budget is kept; False if none helps, or computing alone takes more than ``limit``."""
    n, numbers = len(graph.costs), state.numbers
    share = uniform(random)
    share = share * share
    for _ in range(most):
        over = lay_out(graph, copies, state, budget)
        if over < 0 or state.when[numbers[LENGTH]] > limit:
            return False
        if over == 0:
            return True
        worst = numbers[WORST]
        length, stage, now = numbers[LENGTH], state.stage[worst], state.operation[worst]
        best, best_what, best_stage = -1.0, -1, -1
        for version in range(numbers[VERSIONS]):
            if state.begin[version] >= worst or state.end[version] <= worst:
                continue
            v = state.group[version]
            used = False
            for j in range(graph.input_start[now], graph.input_start[now + 1]):
                used = used or graph.inputs[j] == v
            if used:
                continue
            t, in_stage = next_read(graph, state, v, worst, state.end[version])
            if t < 0:
                continue
            freed = float(min(graph.bytes[v], over)) + 1e-9
            k = graph.producer[v]
            if may_run and not state.runs[t, k] and k < t and not (t == stage and k < now):
                price = graph.costs[k] + 1e-12
                score = freed / price * (0.3 + uniform(random))
                if score > best:
                    best, best_what, best_stage = score, k, t
            if may_fetch and not state.fetches[t, v] and k < t and not in_stage:
                price = share * (copies.back[v] + copies.out[v]) + 1e-12
                score = freed / price * (0.3 + uniform(random))
                if score > best:
                    best, best_what, best_stage = score, n + v, t
        if best_what < 0:
            return False
        change(state, best_stage, best_what)
    return False


@counting_nothing
def next_read(graph, state, v, after, last):
    """The stage of the first read of group v behind a run, and whether that stage reads it before that run, too."""
    for i in range(after + 1, last + 1):
        k = state.operation[i]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            if graph.inputs[j] == v:
                t = state.stage[i]
                i = after
                while i >= 0 and state.stage[i] == t:
                    k = state.operation[i]
                    for j in range(graph.input_start[k], graph.input_start[k + 1]):
                        if graph.inputs[j] == v:
                            return t, True
                    i -= 1
                return t, False
    return -1, False


@counting_nothing
def remove_run(graph, state, place, instead):
    """Run no more what runs again at a place of the sequence; its outputs are fetched if ``instead`` says so."""
    n = len(graph.costs)
    k, t = state.operation[place], state.stage[place]
    if not state.runs[t, k]:
        return
    change(state, t, k)
    if not instead:
        return
    for version in range(state.numbers[VERSIONS]):
        v = state.group[version]
        if state.begin[version] == place and state.kind[version] == 1 and graph.producer[v] == k:
            if state.read[version] >= 0:
                at = state.stage[state.read[version]]
                if not state.fetches[at, v] and k < at:
                    change(state, at, n + v)


@counting_nothing
def remove_fetch(graph, state, version, instead):
    """Fetch a version no more; its producer runs again if ``instead`` says so."""
    n = len(graph.costs)
    v, t = state.group[version], state.stage[state.begin[version]]
    if not state.fetches[t, v]:
        return
    change(state, t, n + v)
    k = graph.producer[v]
    if instead and k < t and not state.runs[t, k]:
        change(state, t, k)


@counting_nothing
def move(graph, state, random, may_run, may_fetch):
    """Change some renewals at random; what comes of it is for `repair` to say."""
    n, numbers = len(graph.costs), state.numbers
    runs, fetches = numbers[AGAIN], numbers[FETCHED]
    kind = uniform(random)
    many = 1
    if uniform(random) < 0.5:
        many = 1 + below(random, 1 + below(random, WINDOW))
    if kind < 0.3 and runs and may_fetch:
        i = below(random, runs)
        for j in range(i, min(i + many, runs)):
            remove_run(graph, state, state.again[j], True)
    elif kind < 0.45 and fetches and may_run:
        i = below(random, fetches)
        for j in range(i, min(i + many, fetches)):
            remove_fetch(graph, state, state.fetched[j], True)
    elif kind < 0.65 and runs:
        i = below(random, runs)
        for j in range(i, min(i + many, runs)):
            remove_run(graph, state, state.again[j], False)
    elif kind < 0.8 and fetches:
        i = below(random, fetches)
        for j in range(i, min(i + many, fetches)):
            remove_fetch(graph, state, state.fetched[j], False)
    elif kind < 0.85 and runs and may_run:
        shift(graph, state, random)
    else:
        for _ in range(min(many, 4)):
            version = below(random, numbers[VERSIONS])
            v = state.group[version]
            if state.end[version] <= state.begin[version]:
                continue
            after = state.begin[version] + below(random, state.end[version] - state.begin[version])
            t, in_stage = next_read(graph, state, v, after, state.end[version])
            k = graph.producer[v]
            if t < 0 or k >= t:
                continue
            if may_fetch and not in_stage and not state.fetches[t, v] and (not may_run or uniform(random) < 0.6):
                change(state, t, n + v)
            elif may_run and not state.runs[t, k]:
                change(state, t, k)


@counting_nothing
def shift(graph, state, random):
    """Run something again in another stage nearby."""
    n = len(graph.costs)
    place = state.again[below(random, state.numbers[AGAIN])]
    k, t = state.operation[place], state.stage[place]
    reach = 1 + int(2.0 ** (5 * uniform(random)))
    other = t - reach + below(random, 2 * reach + 1)
    if other > k and other < n and not state.runs[other, k]:
        change(state, t, k)
        change(state, other, k)


@entry
def begin_search(graph, copies, state, random, budget, may_run, may_fetch):
    """Renew until the budget is kept; the makespan, or a larger number than any."""
    state.numbers[LOGGED] = 0
    if repair(graph, copies, state, random, budget, may_run, may_fetch, REPAIRS + 4 * len(graph.costs), NEVER):
        tidy(state)
        state.numbers[LOGGED] = 0
        lay_out(graph, copies, state, budget)
        return clock(graph, copies, state, budget)
    take_back(state)
    return NEVER


@entry
def search(graph, copies, state, random, budget, may_run, may_fetch, moves, temperature, costs, best_runs, best_fetches):
    """Make moves; ``costs`` is the present makespan and the best, whose renewals are in ``best_runs`` and so on."""
    state.numbers[LOGGED] = 0
    lay_out(graph, copies, state, budget)
    for _ in range(moves):
        move(graph, state, random, may_run, may_fetch)
        if state.numbers[LOGGED] == 0:
            continue
        most = costs[0] - temperature * math.log(uniform(random) + 1e-300)
        makespan = NEVER
        if repair(graph, copies, state, random, budget, may_run, may_fetch, FEW_REPAIRS, most):
            tidy(state)
            makespan = clock(graph, copies, state, budget)
        if makespan <= most and state.numbers[LOGGED] < len(state.log):
            costs[0] = makespan
            state.numbers[LOGGED] = 0
            if makespan < costs[1] * (1 - 1e-12):
                costs[1] = makespan
                for t in range(len(graph.costs)):
                    for k in range(len(graph.costs)):
                        best_runs[t, k] = state.runs[t, k]
                    for v in range(len(graph.bytes)):
                        best_fetches[t, v] = state.fetches[t, v]
        else:
            take_back(state)
            lay_out(graph, copies, state, budget)
    return costs[1]


@entry
def measure(graph, copies, state, budget):
    """The makespan of the renewals as they are, with the places of copies left in ``state``; NEVER if over budget."""
    if lay_out(graph, copies, state, budget) != 0:
        return NEVER
    return clock(graph, copies, state, budget)


def random_state(seed: int) -> np.ndarray:
    """Where `uniform` begins."""
    return np.array([seed], dtype=np.uint64)
