"""Exercises of notebooks 01 to 05."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from remat_explorer.course.exercise import Exercise, least_cost
from remat_explorer.exercises import schedule_verdict
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import STRATEGIES, relax, solve
from remat_explorer.solvers.table_one import row

# graph, budget in bytes, and the cost that is enough
BY_HAND: dict[str, Callable[[], tuple[Graph, int, float]]] = {
    "03.1": lambda: (linear(8), 8, 19),
    "03.2": lambda: (linear(8), 5, 22),
}


def _by_hand(name: str) -> Callable[[Any], str]:
    def judged(mine: Any) -> str:
        if not (isinstance(mine, tuple) and len(mine) == 2):
            return "Not yet: hand over both tables, such as (R8, S8)."
        graph, budget, cost = BY_HAND[name]()
        return schedule_verdict(graph, mine[0], mine[1], budget, cost)

    return judged


def _of_griewank() -> tuple[np.ndarray, np.ndarray]:
    schedule = solve(linear(8), budget=4, strategy="griewank").schedule
    assert schedule is not None  # the budget is enough for it
    return schedule.R, schedule.U


def _aware_of_everything() -> list[str]:
    facts = {name: row(method) for name, method in STRATEGIES.items()}
    return [name for name, f in facts.items() if {f.general_graphs, f.cost_aware, f.memory_aware} == {"yes"}]


def _widest_gap() -> int:
    chain = linear(8)
    gaps = {budget: least_cost(chain, budget) / relax(chain, budget) for budget in range(4, 10)}
    return max(gaps, key=gaps.__getitem__)


FIRST_HALF = (
    Exercise(
        "01.1",
        lambda: least_cost(linear(8), 5) - linear(8).total_cost,
        ("Count the orange cells of R", "The overhead is that number over the 17 operations"),
        "mine = 5",
        "Five layers of the forward pass run a second time.",
    ),
    Exercise(
        "01.2",
        lambda: "nothing",
        (
            "With the slider at that mark, how large is the overhead that the explorer names?",
            'Plain PyTorch keeps everything; what is left to compute again? Answer "everything" or "nothing"',
        ),
        'mine = "nothing"',
        "Where everything fits, nothing has to be computed a second time.",
    ),
    Exercise(
        "02.1",
        lambda: solve(linear(32), "100%", "checkpoint-all").peak,
        (
            "What waits in memory when the backward pass begins?",
            "Every layer waits, and the loss; what comes next?",
        ),
        "mine = 32 + 1 + 1",
        "32 layers, the loss, and the first gradient.",
    ),
    Exercise(
        "02.2",
        lambda again: sum(operation.phase == "backward" for operation in again),
        (
            "Print [operation.phase for operation in again]",
            "Count those that are 'backward'",
        ),
        "mine = 0",
        "It does not pay to compute a gradient twice here: only layers of the forward pass run again.",
    ),
    Exercise(
        "02.3",
        lambda fixed, features: fixed // features + 1,
        ("Compare the two printed numbers", "Divide one by the other, and round up"),
        "mine = fixed // parts.feature_bytes + 1",
        "Features grow with the batch, parameters and their gradients do not.",
    ),
    Exercise(
        "03.1",
        lambda: None,
        (
            "Which value waits longest after v0?",
            "Forget v1, too: what does computing it again need?",
            "Operation 1 reads v0, so stage 15 computes operation 0, too: may v0 then stay for stage 16?",
        ),
        "S8[3:, 1] = 0\nR8[15, [0, 1]] = 1\nS8[16, 0] = 1\nR8[16, 0] = 0",
        "Stage 15 gets v1 by operations 0 and 1, and v0 stays for stage 16. (Forgetting one of v2 to v6 does as well.)",
        judged=_by_hand("03.1"),
    ),
    Exercise(
        "03.2",
        lambda: None,
        (
            "Keep three layers, one of them v7, until their gradients need them",
            "The longest stretch without a kept layer belongs at the beginning: most others are gone by then",
            "Keep v3, v5 and v7",
        ),
        "for i in (0, 1, 2, 4, 6):\n    S5[i + 2 :, i] = 0\nR5[10, 6] = R5[12, 4] = 1\nR5[14, [0, 1, 2]] = 1\n"
        "S5[15, [0, 1]] = 1\nS5[16, 0] = 1",
        "v6 and v4 come back one at a time; v0, v1 and v2 come back together in stage 14, when most others are gone.",
        judged=_by_hand("03.2"),
    ),
    Exercise(
        "03.3",
        lambda: [int(k) for k in np.flatnonzero(_of_griewank()[0][12])],
        (
            "Operation 12 reads v4 and v11: which of them is missing?",
            "v4 needs v3, which is missing, too; go on",
        ),
        "mine = [0, 1, 2, 3, 4, 12]",
        "v4 is missing, so operation 4 runs; it reads v3, which is missing, too, and so on down to operation 0.",
    ),
    Exercise(
        "03.4",
        lambda: int(_of_griewank()[1][12, 4]),
        ("v11 waits for operation 12, and v2 for stage 13", "Add what operation 4 reads and what it writes"),
        "mine = 4",
        "v11, v2, the input v3 and the output v4.",
    ),
    Exercise(
        "03.5",
        lambda: len(linear(8).inputs(12)) + 1,
        ("A gradient reads two values: which?", "What it reads and what it writes is in memory at once"),
        "mine = 3",
        "A gradient reads two values and writes a third, and all three are in memory at once.",
    ),
    Exercise(
        "04.1",
        lambda: sum(t + 1 for t in range(100)),
        ("Which operations may stage t compute?", "Stage t may compute operations 0 to t: add up"),
        "mine = 100 * 101 // 2",
        "A triangle with its diagonal, n (n + 1) / 2.",
    ),
    Exercise(
        "04.2",
        _widest_gap,
        (
            'Compute rx.solve(chain, b).cost / rx.relax(chain, b, "checkmate-ilp") for each b from 4 to 9',
            "Where is memory shortest?",
        ),
        "mine = 4",
        "The gap is 1.18 at 4 bytes, where memory is shortest, and 1.05 or 1.06 from 5 to 9 bytes.",
    ),
    Exercise(
        "04.3",
        lambda: "1b",
        ("With m = 1 and one stage, write out both sides", "S[t, p1] is on both sides: what is left?"),
        'mine = "1b"',
        "S[t, p1] cancels, and R[t, p1] <= S[t, p0] + R[t, p0] is (1b).",
    ),
    Exercise(
        "04.4",
        lambda: 0.3,
        (
            "Add up the left side, and then the right side",
            "The left side is 0.9; the right side is what is retained along the path, and 0.3",
        ),
        "mine = 0.9 - (0.1 + 0.2 + 0.3)",
        "The left side is 0.9 and the right side 0.1 + 0.2 + 0.3 = 0.6: the row cuts these fractions off by 0.3.",
    ),
    Exercise(
        "05.1",
        _aware_of_everything,
        (
            "Look for three times yes in the table",
            "The optimal ones, their roundings, and two more",
        ),
        'mine = ["optimal", "monet", "monet-paper", "checkmate-ilp", "checkmate-unpartitioned"]\n'
        'mine += ["checkmate-approx", "checkmate-approx-random", "checkmate-approx-search", "dtr", "moccasin"]',
        "The optimal ones, the roundings of their linear program, one run-time heuristic, and a constraint program.",
    ),
    Exercise(
        "05.2",
        lambda: 0.9**100,
        ("Independent chances are multiplied", "A product of 100 factors"),
        "mine = 0.9**100",
        "About 0.000027. And that is a schedule that obeys the rules, not yet one that fits.",
        tolerance=0.05,
    ),
    Exercise(
        "05.3",
        lambda: "memory",
        ("Which part of problem (9) has nobody looked at?", "One word: what may be too little for it?"),
        'mine = "memory"',
        "What is computed again takes memory that the linear program did not count as a whole.",
    ),
)
