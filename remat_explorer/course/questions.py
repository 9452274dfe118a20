"""Exercises of notebooks 01 to 11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from remat_explorer.course.exercise import Exercise, least_cost
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES, relax, solve, table_one_row
from remat_explorer.verdicts import schedule_verdict

# graph, budget in bytes, and the cost that is enough
BY_HAND: dict[str, Callable[[], tuple[Graph, int, float]]] = {
    "03.1": lambda: (linear(8), 8, 19),
    "03.2": lambda: (linear(8), 5, 22),
}


def tables_of(mine: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """R and S of an answer: two tables, a schedule, or what is on the screen of an explorer; None for anything else."""
    shown = getattr(getattr(mine, "state", mine), "schedule", mine)
    if isinstance(shown, Schedule):
        return shown.R, shown.S
    made = isinstance(mine, tuple) and len(mine) == 2 and all(isinstance(table, np.ndarray) for table in mine)
    return mine if made else None


def _by_hand(name: str) -> Callable[[Any], str]:
    def judged(mine: Any) -> str:
        tables = tables_of(mine)
        if tables is None:
            return "Not yet: hand over the explorer in which you clicked, or both tables, such as (R, S)."
        graph, budget, cost = BY_HAND[name]()
        if tables[0].shape != (graph.n, graph.n):
            return "Not yet: this is a schedule of another graph than the chain of eight layers."
        return schedule_verdict(graph, *tables, budget, cost)

    return judged


def _of_griewank() -> tuple[np.ndarray, np.ndarray]:
    schedule = solve(linear(8), budget=4, strategy="griewank").schedule
    assert schedule is not None  # the budget is enough for it
    return schedule.R, schedule.U


TABLE_1 = ("checkpoint-all", "griewank", "chen-sqrt-n", "chen-greedy", "ap-sqrt-n", "ap-greedy")  # in Table 1's order
TABLE_1 += ("linearized-sqrt-n", "linearized-greedy", "checkmate-ilp", "checkmate-approx")


def _aware_of_everything() -> list[str]:
    facts = {name: table_one_row(STRATEGIES[name]) for name in TABLE_1}
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
            "Which value waits longest after v0? In row 9 of S, drop both",
            "Stage 15 needs v1 again, and v1 needs v0: look at its orange cells",
            "Stage 16 needs v0, which is there in stage 15: keep it in row 16 of S",
        ),
        'mine.drop(9, "v0")\nmine.drop(9, "v1")\nmine.keep(16, "v0")',
        "In S, click v0 and v1 in row 9, and v0 in row 16. Stage 15 gets v1 by operations 0 and 1, and v0 stays for "
        "stage 16. (Dropping one of v2 to v6 instead of v1 does as well.)",
        judged=_by_hand("03.1"),
    ),
    Exercise(
        "03.2",
        lambda: None,
        (
            "Keep three layers, one of them v7, until their gradients need them",
            "The longest stretch without a kept layer belongs at the beginning: most others are gone by then",
            "Drop v0, v1, v2, v4 and v6 in row 9; what comes back together in stage 14 may stay",
        ),
        'for value in ("v0", "v1", "v2", "v4", "v6"):\n    mine.drop(9, value)\n'
        'mine.keep(15, "v1")\nmine.keep(16, "v0")',
        "In S, click v0, v1, v2, v4 and v6 in row 9, then v1 in row 15 and v0 in row 16. v6 and v4 come back one at a "
        "time; v0, v1 and v2 come back together in stage 14, when most others are gone.",
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
            "Both begin with the paper's integer program",
        ),
        'mine = ["checkmate-ilp", "checkmate-approx"]',
        "The integer program, and its linear program with rounding.",
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


def _bytes_for_a_quarter_more() -> int:
    chain = linear(8)
    return min(budget for budget in range(3, 11) if least_cost(chain, budget) <= 1.25 * chain.total_cost)


def _helps_most(mine: Any, found: Any, kinds: list[str]) -> str:
    overheads = {kind: found.curve([kind])[0].overhead for kind in kinds}
    if mine not in overheads:
        return f"Not {mine}. Choose one of {', '.join(kinds)}."
    return f"Right: {mine}." if overheads[mine] == min(overheads.values()) else f"Not {mine}."


def _takes_two_batches(mine: Any, images: Any, labels: Any) -> str:
    from torch.nn import functional

    if not hasattr(mine, "rematerialization"):
        return "Not yet: hand over what rx.rematerialize returns."
    said = []
    for size in (len(images), len(images) - 1):
        try:
            functional.cross_entropy(mine(images[:size]), labels[:size]).backward()
        except (RuntimeError, TypeError, ValueError, RematError) as error:
            return f"Not yet: {error}"
        made = mine.rematerialization.solution
        said.append(f"batch {size} takes {format_bytes(made.peak)} of {format_bytes(made.budget)}")
    return f"Right: {', '.join(said)}."


def _cured(mine: Any, takes_turns: Any, width: int, images: Any) -> str:
    import torch

    from remat_explorer.capture import capture

    if not isinstance(mine, type):
        return "Not yet: hand over the class."
    try:
        theirs, cured = takes_turns(width, 1).eval(), mine(width, 1).eval()
        cured.load_state_dict(theirs.state_dict())
        with torch.no_grad():
            for sign in (1.0, -1.0):  # the last layer turned round takes the other branch
                for model in (theirs, cured):
                    model.head.weight.mul_(sign)
                    model.head.bias.mul_(sign)
                if not torch.equal(theirs(images), cured(images)):
                    return "Not yet: it computes something else than TakesTurns."
        graph = capture(mine(width, 1), (images,))
    except (RuntimeError, TypeError, ValueError, AttributeError, RematError) as error:
        return f"Not yet: {error}"
    return f"Right: {graph.n} operations, and the same results."


def _points_saved(mine: Any, curve: Any, checkpoints: Any) -> str:
    ours = curve.best(checkpoints.peak)
    saved = 100 * (checkpoints.overhead - ours.overhead)
    if not isinstance(mine, int | float) or abs(mine - saved) > 0.5:
        return f"Not {mine}."
    least = 100 * (ours.lower_bound / curve.graph.total_cost - 1)
    return f"Right: {saved:.1f}. No schedule can cost less than {least:+.1f} %."


SECOND_HALF = (
    Exercise(
        "06.1",
        _bytes_for_a_quarter_more,
        ("25 % of 17 is 4.25", "Look for the smallest budget with a cost of at most 21.25"),
        "mine = 6",
        "With 6 bytes the optimum is 21, an overhead of 23.5 %; with 5 bytes it is 22, which is 29.4 %.",
    ),
    Exercise(
        "06.2",
        lambda: 8 * 138_357_544,
        ("What is there whatever is scheduled?", "Parameters and their gradients: look at graph.resident_bytes"),
        "mine = 8 * 138_357_544",
        "138 million parameters of four bytes, and as many gradients: 1.1 GB, whatever the batch.",
    ),
    Exercise(
        "07.1",
        lambda: 10**9 // 81_723_296,
        ("How many bytes does one example take?", "How many examples of `peak` bytes are there in 10 ** 9?"),
        "mine = 10**9 // 81_723_296",
        "12 examples: a gigabyte over 81.7 MB.",
    ),
    Exercise(
        "07.2",
        lambda: 100 - 98,
        (
            "Divide the bytes of the parameters by those of one example",
            "Mind the rounding: batches are whole",
        ),
        "mine = 100 - 98",
        "205 MB of parameters and gradients over 157.5 MB of one example: 1.3, which rounding makes 2, from 98 to 100.",
    ),
    Exercise(
        "08.1",
        lambda: 8 * 2**20 // 4 // 8,
        ("How many elements are there?", "One bit for each element of four bytes"),
        "mine = 256 * 1024",
        "8 MiB are 2 Mi elements; one bit for each makes 256 KiB.",
    ),
    Exercise(
        "08.2",
        lambda: None,
        ("Compare the first column of budgets", "found.curve([kind])[0].overhead is the overhead of a kind alone"),
        "mine = min(tried, key=lambda kind: found.curve([kind])[0].overhead)",
        "The column of the smallest budget says it.",
        judged=_helps_most,
    ),
    Exercise(
        "09.1",
        lambda: None,
        (
            "Begin with rx.rematerialize(copy.deepcopy(model), (images,), ...)",
            'The budget is budget="90%"',
        ),
        'mine = rx.rematerialize(copy.deepcopy(model), (images,), budget="90%", time_limit=time_limit)',
        "A budget is a number of bytes, made for the whole batch; the smaller one has it, too, and its peak is lower.",
        judged=_takes_two_batches,
    ),
    Exercise(
        "09.2",
        lambda: None,
        (
            "Compute both results, and choose between them without an if",
            "torch.where(condition, first, second) chooses by a tensor",
        ),
        "class Cured(Net):\n"
        "    def forward(self, x):\n"
        "        y = super().forward(x)\n"
        "        return torch.where(y.mean() > 0, y, -y)\n"
        "\n\n"
        "mine = Cured",
        "Which operations run no longer depends on a number that is known only during the step.",
        judged=_cured,
    ),
    Exercise(
        "10.1",
        lambda: None,
        (
            "checkpoints.overhead is a ratio, and curve.best(budget) the cheapest schedule of the sweep",
            "Subtract curve.best(checkpoints.peak).overhead, and multiply by 100",
        ),
        "mine = 100 * (checkpoints.overhead - curve.best(checkpoints.peak).overhead)",
        "The first number is a time and varies from run to run; the second is a sum of costs that were measured once.",
        judged=_points_saved,
    ),
    Exercise(
        "10.2",
        lambda: 12 * 10 + 100,
        (
            "What is kept of each block, when the forward pass has ended?",
            "Twelve inputs are kept; the backward pass then fills one block at a time",
        ),
        "mine = 12 * 10 + 100",
        "Twelve inputs of 10 MB and the inside of one block make 220 MB; without checkpoints it is 1,320 MB.",
    ),
    Exercise(
        "11.1",
        lambda there: max(there, key=lambda verdict: verdict.at_least).method,
        ("Look at the rows of the largest budget", 'It is the largest number of the column "above ours" among them'),
        "mine = max(there, key=lambda verdict: verdict.at_least).method",
        "A checkpoint around every layer has no setting: it computes everything again, however much memory there is.",
    ),
    Exercise(
        "11.2",
        lambda rows: 100 * max(row.at_least for row in rows),
        ("`rows` has the verdicts on that rule", "row.at_least is a share, and 100 times that are per cent"),
        "mine = 100 * max(row.at_least for row in rows)",
        "At its worst budget of those it keeps; the other budgets it does not keep at all.",
        tolerance=0.01,
    ),
    Exercise(
        "12.1",
        lambda: 4.0,
        ("A copy takes bytes divided by bytes per second", "There are two copies, one out and one back"),
        "mine = 2 * 64e6 / 32e9 * 1e3",
        "Each way takes 64 MB / (32 GB/s), 2 ms.",
        tolerance=0.01,
    ),
    Exercise(
        "12.2",
        lambda: 1,
        ("Computing everything once takes 11", "It is the first line of the print that says 11"),
        "mine = 1",
        "At a bandwidth of 1 the plan takes 11, the cost of computing everything once; at one half it takes 12.",
    ),
    Exercise(
        "12.3",
        lambda here: sum(cell.choice == "both" and cell.proven for cell in here),
        ("`here` has a cell for each network, with `choice` and `proven`", 'Count those whose choice is "both"'),
        'mine = sum(cell.choice == "both" and cell.proven for cell in here)',
        "For these, the bounds of each choice alone lie above the plan that does both.",
    ),
)
