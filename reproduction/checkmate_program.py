"""Checkmate's integer program: stages (section 4.6), its integrality gap (appendix A), and its hardness (appendix C).

Section 4.6: the same optimum with stages and without, and what either takes to prove it.

Appendix C: Sethi asks whether k registers evaluate a program without recomputation: a game of stones on its graph,
whose decision problem is NP-complete. RP-DEC (Definition C.1) asks whether a budget of b bytes does at a cost of |V|,
where every operation takes a unit of time and its result a byte. The appendix reduces the first to the second by
b = k + 1. Here both are found for every program of a few operations, and RP-DEC by the integer program as well, whose
order of operations is free.

Source: Jain et al., Checkmate (MLSys 2020), appendix C; Sethi, Complete register allocation problems (1973).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.quantities import format_bytes, format_seconds, format_share
from remat_explorer.solvers import STRATEGIES, Status, checkpoint_all_peak, relax, solve
from reproduction.drawing import bars
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, progress_listener

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


FORMS = {"checkmate-ilp": "with stages", "checkmate-unpartitioned": "without stages"}
CHAINS: dict[Settings, tuple[tuple[int, int], ...]] = {  # layers and budget
    "small": ((2, 4), (3, 4), (8, 4)),
    "full": ((2, 4), (3, 4), (4, 4), (4, 3), (8, 4)),
}
SECTION_4_6_SECONDS = {"small": 4.0, "full": 3600.0}  # of the form without stages, on eight layers
ENOUGH = 600.0  # of everything else, which ends with a proof
PUBLISHED = (8, 4)


def section_4_6(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Both forms on chains of growing length; the last is the paper's: 17 operations, budget 4."""
    rows: list[dict[str, Any]] = []
    for layers, budget in CHAINS[settings]:
        for strategy, form in FORMS.items():
            if cancelled():
                break
            hard = (layers, budget) == PUBLISHED and not STRATEGIES[strategy].stages
            limit = SECTION_4_6_SECONDS[settings] if hard else ENOUGH
            begun = time.process_time()
            hear = progress_listener(progress, f"{layers} layers {form}")
            solution = solve(linear(layers), budget, strategy, limit, on_progress=hear, cancelled=cancelled)
            row = {"layers": layers, "operations": 2 * layers + 1, "budget": budget, "form": form}
            row |= {"status": str(solution.status), "cost": solution.cost, "lower bound": solution.lower_bound}
            row |= {"gap": solution.gap, "seconds": solution.seconds, "processor seconds": time.process_time() - begun}
            rows.append(row)
    complete = len(rows) == len(FORMS) * len(CHAINS[settings])
    return Outcome(section_4_6_words(rows, settings), tuple(rows), lambda: _draw_section_4_6(rows), complete)


def section_4_6_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The times of both forms; see `Item.words`."""
    last = [row for row in rows if (row["layers"], row["budget"]) == PUBLISHED]
    smaller: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        if row["layers"] < PUBLISHED[0] and row["status"] == Status.OPTIMAL:
            smaller.setdefault((row["layers"], row["budget"]), []).append(row["processor seconds"])
    ratios = [times[1] / times[0] for times in smaller.values() if len(times) == len(FORMS)]
    result = f"Eight layers, budget 4: {'; '.join(map(_told, last))}.{_ratio(last)}"
    if not ratios:
        return result
    return f"{result} Smaller chains are proven in both forms, without stages in up to {max(ratios):.0f} times as long."


def _ratio(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many times as long the form without stages takes, at least."""
    if len(rows) < len(FORMS):
        return ""
    staged, free = (row["processor seconds"] for row in rows)
    if rows[1]["status"] == Status.OPTIMAL:
        return f" That is {free / staged:.0f} times as long."
    return f" That is more than {math.floor(free / staged)} times as long."


def _told(row: Mapping[str, Any]) -> str:
    if row["status"] == Status.OPTIMAL:
        return f"{row['form']} the optimum {row['cost']:g} is proven in {format_seconds(row['processor seconds'])}"
    best = "no schedule" if row["cost"] is None else f"a schedule of {row['cost']:g}"
    gap = "" if row["gap"] is None else f", gap {format_share(row['gap'])}"
    spent = format_seconds(row["processor seconds"])
    return f"{row['form']} {best} and a bound of {row['lower bound']:g}{gap} after {spent}"


def _draw_section_4_6(rows: list[dict[str, Any]]) -> Figure:
    by_chain: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = f"{row['layers']} layers, budget {row['budget']}"
        by_chain.setdefault(name, {"chain": name})[row["form"]] = row["processor seconds"]
        if row["status"] != Status.OPTIMAL:
            by_chain[name]["chain"] = f"{name} (without stages not proven)"
    columns = {form: form for form in FORMS.values()}
    return bars(list(by_chain.values()), "chain", columns, "processor seconds", logarithmic=True)


SECTION_4_6 = Item(
    key="checkmate-section-4-6",
    paper="Checkmate",
    place="section 4.6",
    title="solving with stages and without",
    notebook="04_the_integer_program.ipynb",
    function="rx.solve",
    test="tests/reproduction/test_exact_items.py",
    published="eight layers, budget 4: 9.4 hours without stages, 0.23 seconds with them, to the same objective "
    "(section 4.6)",
    remark="The paper's times are Gurobi's, and their ratio is about 147,000; these are HiGHS's on one thread, in "
    "seconds of the processor. Proven without stages are chains of up to 9 operations. The 17 of the paper ended "
    "unproven after an hour of a shared machine: the gap is named, and the ratio is a lower bound. The paper does not "
    "print the objective.",
    compute=section_4_6,
    words=section_4_6_words,
)


LAYERS = 8
BUDGETS: dict[Settings, tuple[int, ...]] = {"small": (4, 5, 6), "full": tuple(range(3, 11))}


def appendix_a(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Optimum over linear programming bound, for the chain of eight layers at several budgets."""
    rows: list[dict[str, Any]] = []
    for budget in BUDGETS[settings]:
        if cancelled():
            break
        progress(f"eight layers, budget {budget}")
        rows.append(gaps(budget))
    complete = len(rows) == len(BUDGETS[settings])
    return Outcome(appendix_a_words(rows, settings), tuple(rows), lambda: _draw_appendix_a(rows), complete)


def appendix_a_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """Both gaps at the paper's budget; see `Item.words`."""
    first = next((row for row in rows if row["budget"] == 4), None)
    if first is None:
        return "Nothing was solved before the run was cancelled."
    return (
        f"Eight layers, budget 4: the optimum {first['optimum']:g} over the linear programs' {first['bound']:.6g} with "
        f"stages and {first['bound without stages']:.7g} without is {first['gap']:.2f} and "
        f"{first['gap without stages']:.2f}."
    )


def gaps(budget: int) -> dict[str, Any]:
    """Optimum, both bounds, and both integrality gaps of the chain at a budget.

    >>> found = gaps(4)
    >>> round(found["gap"], 2), round(found["gap without stages"], 2)
    (1.18, 21.56)
    """
    chain = linear(LAYERS)
    optimum = solve(chain, budget).cost
    assert optimum is not None
    bound, loose = relax(chain, budget), relax(chain, budget, "checkmate-unpartitioned")
    row = {"budget": budget, "optimum": optimum, "bound": bound, "bound without stages": loose}
    return row | {"gap": optimum / bound, "gap without stages": optimum / loose}


def _draw_appendix_a(rows: list[dict[str, Any]]) -> Figure:
    columns = {"gap": "with stages", "gap without stages": "without stages"}
    figure = bars(rows, "budget", columns, "optimum over linear programming bound", logarithmic=True)
    return figure.update_xaxes(title_text="budget (values of the chain)")


APPENDIX_A = Item(
    key="checkmate-appendix-a",
    paper="Checkmate",
    place="appendix A",
    title="the integrality gap",
    notebook="04_the_integer_program.ipynb",
    function="rx.relax",
    test="tests/reproduction/test_exact_items.py",
    published="1.18 with stages, 21.56 without (appendix A)",
    remark="The same to every published digit: 26 / 22 and 26 / 1.206107.",
    compute=appendix_a,
    words=appendix_a_words,
)


Program = tuple[tuple[int, ...], ...]  # what each operation reads, by number
OPERATIONS: dict[Settings, tuple[int, ...]] = {"small": (2, 3, 4, 5), "full": (2, 3, 4, 5, 6)}
DECIDED: dict[Settings, int] = {"small": 4, "full": 5}  # operations of the programs that the integer program decides
APPENDIX_C_SECONDS = 60.0  # of each decision
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
    return Outcome(appendix_c_words(rows, settings), tuple(rows), lambda: _draw_appendix_c(rows), complete)


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
    hear = progress_listener(progress, graph.name)
    for budget, expected in ((least, True), (least - 1, False)):
        solution = solve(graph, budget, FREE_ORDER, APPENDIX_C_SECONDS, on_progress=hear, cancelled=cancelled)
        proven = solution.status in ("optimal", "infeasible")
        if not proven or (solution.cost is not None and solution.cost <= graph.n) != expected:
            return False
    return True


def appendix_c_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
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


def _draw_appendix_c(rows: Sequence[Mapping[str, Any]]) -> Figure:
    columns = {
        "programs": "all",
        "bytes are registers + 1": "take one byte more than registers",
        "more in the given order": "need more in the given order than in the best",
    }
    figure = bars(rows, "operations", columns, "programs", logarithmic=True)
    return figure.update_xaxes(title_text="operations")


APPENDIX_C = Item(
    key="checkmate-appendix-c",
    paper="Checkmate",
    place="appendix C",
    title="register allocation as rematerialization, on every small program",
    notebook="04_the_integer_program.ipynb",
    function="reproduction.checkmate_program.registers",
    test="tests/reproduction/test_items.py",
    published="where k registers suffice without recomputation, k + 1 bytes do at a cost of one run of each operation "
    "(appendix C); whether fewer than k registers suffice without recomputation is NP-complete, and so that "
    "decision is as hard (appendix C)",
    remark="A demonstration, no proof: the reduction is checked on all programs of a few operations. What is hard is "
    "the order of the operations. (9) has that given, and then the memory without recomputation is read off, not "
    "searched; what (9) searches is what to compute again.",
    compute=appendix_c,
    words=appendix_c_words,
)
