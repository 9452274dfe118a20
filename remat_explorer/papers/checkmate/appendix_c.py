"""Checkmate's appendix C: registers without recomputation, and memory at a cost of one run of each operation.

Sethi asks whether k registers evaluate a program without recomputation: a game of stones on its graph, whose decision
problem is NP-complete. RP-DEC (Definition C.1) asks whether a budget of b bytes does at a cost of |V|, where every
operation takes a unit of time and its result a byte. The appendix reduces the first to the second by b = k + 1. Here
both are found for every program of a few operations, and RP-DEC by the integer program as well, whose order of
operations is free.

Source: Jain et al., Checkmate (MLSys 2020), appendix C; Sethi, Complete register allocation problems (1973).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph, Value, operation
from remat_explorer.papers.drawing import bars
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import checkpoint_all_peak, solve

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Program = tuple[tuple[int, ...], ...]  # what each operation reads, by number
OPERATIONS: dict[Settings, tuple[int, ...]] = {"small": (2, 3, 4, 5), "full": (2, 3, 4, 5, 6)}
DECIDED: dict[Settings, int] = {"small": 4, "full": 5}  # operations of the programs that the integer program decides
SECONDS = 60.0  # of each decision
FREE_ORDER = "checkmate-unpartitioned"


def appendix_c(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Registers and bytes of every program, and the integer program's decisions for the smaller ones."""
    rows: list[dict[str, Any]] = []
    for count in OPERATIONS[settings]:
        if cancelled():
            break
        progress(f"every program of {count} operations")
        found = list(programs(count))
        row = comparison(found) | {"operations": count}
        if count <= DECIDED[settings]:
            right = [decided_rightly(one, progress, cancelled) for one in found if not cancelled()]
            row |= {"decided": len(right), "decided rightly": sum(right)}
        rows.append(row)
    complete = len(rows) == len(OPERATIONS[settings]) and not cancelled()
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(rows), complete)


def programs(count: int) -> Iterator[Program]:
    """Every program of that many operations with one result: the last, which needs all others.

    >>> list(programs(3))
    [((), (0,), (1,)), ((), (), (0, 1)), ((), (0,), (0, 1))]
    """
    later = [range(k + 1, count) for k in range(count - 1)]
    choices = [[some for size in range(1, len(r) + 1) for some in combinations(r, size)] for r in later]
    for readers in product(*choices):
        yield tuple(tuple(i for i in range(k) if k in readers[i]) for k in range(count))


def registers(program: Program) -> int:
    """The fewest stones with which the game reaches the result, each operation once.

    The moves: (1) a stone on an operation that reads nothing, (2) a stone taken away, (3) a stone on an operation
    whose operands all have one, (4) a stone moved there from one of the operands.

    >>> [registers(program) for program in programs(3)]
    [1, 2, 2]
    """
    return next(stones for stones in range(1, len(program) + 1) if _reaches(program, stones))


def _reaches(program: Program, most: int) -> bool:
    """Whether the result is reached with at most that many stones."""
    start: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())  # computed so far, and under a stone
    known, waiting = {start}, [start]
    while waiting:
        computed, stones = waiting.pop()
        if len(program) - 1 in stones:
            return True
        moves = [(computed, stones - {k}) for k in stones]
        for k, reads in enumerate(program):
            if k not in computed and stones.issuperset(reads):
                placed = [stones | {k}, *(stones - {i} | {k} for i in reads)]
                moves += [(computed | {k}, after) for after in placed if len(after) <= most]
        for state in moves:
            if state not in known:
                known.add(state)
                waiting.append(state)
    return False


def least_memory(program: Program) -> int:
    """The fewest bytes in which each operation runs once, in the best order: a result stays until its last reader ran.

    >>> [least_memory(program) for program in programs(3)]
    [2, 3, 3]
    """
    count = len(program)
    readers = [{k for k in range(count) if i in program[k]} for i in range(count)]
    best: dict[frozenset[int], int] = {frozenset(): 0}  # the least peak by which these operations can have run
    for _ in range(count):
        longer: dict[frozenset[int], int] = {}
        for done, peak in best.items():
            held = sum(1 for i in done if not readers[i] <= done)
            for k in range(count):
                if k not in done and done.issuperset(program[k]):
                    after = done | {k}
                    longer[after] = min(longer.get(after, count + 1), max(peak, held + 1))
        best = longer
    return best[frozenset(range(count))]


def graph_of(program: Program) -> Graph:
    """The program with unit costs and bytes, in the order that it is given in."""
    values = tuple(Value(f"v{k}", 1) for k in range(len(program)))
    nodes = tuple(operation(f"v{k}", "forward", reads, [k], 1) for k, reads in enumerate(program))
    return Graph(f"a program of {len(program)} operations", values, nodes)


def comparison(found: Sequence[Program]) -> dict[str, Any]:
    """How many programs take as many bytes as registers and one, and how many need more in the order given."""
    best = [least_memory(program) for program in found]
    given = [checkpoint_all_peak(graph_of(program)) for program in found]
    plus_one = sum(bytes_ == registers(program) + 1 for program, bytes_ in zip(found, best, strict=True))
    excess = [there - least for there, least in zip(given, best, strict=True)]
    row = {"programs": len(found), "bytes are registers + 1": plus_one}
    return row | {"more in the given order": sum(map(bool, excess)), "bytes more at most": max(excess)}


def decided_rightly(program: Program, progress: Tell, cancelled: Cancelled) -> bool:
    """Whether the integer program without stages says yes to RP-DEC at the least memory, and no a byte below."""
    graph, least = graph_of(program), least_memory(program)
    hear = heard(progress, graph.name)
    for budget, expected in ((least, True), (least - 1, False)):
        solution = solve(graph, budget, FREE_ORDER, SECONDS, on_progress=hear, cancelled=cancelled)
        proven = solution.status in ("optimal", "infeasible")
        if not proven or (solution.cost is not None and solution.cost <= graph.n) != expected:
            return False
    return True


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The reduction in numbers, what the order costs, and the integer program's decisions; see `Item.words`."""
    if not rows:
        return "Nothing was counted before the run was cancelled."
    total, plus_one = (sum(row[name] for row in rows) for name in ("programs", "bytes are registers + 1"))
    last = rows[-1]
    told = (
        f"Of all {total} programs of {rows[0]['operations']} to {last['operations']} operations, {plus_one} take one "
        f"byte more than registers. Of those of {last['operations']}, {last['more in the given order']} of "
        f"{last['programs']} need more in the order that they are given in than in the best one, up to "
        f"{format_bytes(last['bytes more at most'])}."
    )
    decided, right = (sum(row.get(name, 0) for row in rows) for name in ("decided", "decided rightly"))
    if not decided:
        return told
    return f"{told} The integer program with a free order decides RP-DEC as that says for {right} of {decided}."


def _draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    columns = {
        "programs": "all",
        "bytes are registers + 1": "take one byte more than registers",
        "more in the given order": "need more in the given order than in the best",
    }
    figure = bars(rows, "operations", columns, "programs", logarithmic=True)
    return figure.update_xaxes(title_text="operations")


ITEM = Item(
    key="checkmate-appendix-c",
    paper="Checkmate",
    place="appendix C",
    title="register allocation as rematerialization, on every small program",
    notebook="04_the_integer_program.ipynb",
    function="remat_explorer.papers.checkmate.appendix_c.registers",
    test="tests/papers/test_items.py",
    published="where k registers suffice without recomputation, k + 1 bytes do at a cost of one run of each operation "
    "(appendix C); whether fewer than k registers suffice without recomputation is NP-complete, and so that "
    "decision is as hard (appendix C)",
    remark="A demonstration, no proof: the reduction is checked on all programs of a few operations. What is hard is "
    "the order of the operations. (9) has that given, and then the memory without recomputation is read off, not "
    "searched; what (9) searches is what to compute again.",
    compute=appendix_c,
    words=words,
)
