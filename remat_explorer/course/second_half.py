"""Exercises of notebooks 06 to 11."""

from __future__ import annotations

from typing import Any

from remat_explorer.course.exercise import Exercise, least_cost
from remat_explorer.errors import RematError
from remat_explorer.instances import linear
from remat_explorer.quantities import format_bytes


def _bytes_for_a_quarter_more() -> int:
    chain = linear(8)
    return min(budget for budget in range(3, 11) if least_cost(chain, budget) <= 1.25 * chain.total_cost)


def _resident_bytes(name: str, batch: int) -> int:
    from remat_explorer.papers.networks import layer_graph

    return layer_graph(name, batch).resident_bytes


def _examples_for_a_gigabyte() -> int:
    from remat_explorer.papers.checkmate.accounting import kept_for_good_peak
    from remat_explorer.papers.networks import layer_graph

    return 10**9 // kept_for_good_peak(layer_graph("VGG19"))


def _examples_lost_by_counting_twice() -> int:
    from remat_explorer.papers.checkmate.accounting import kept_for_good_peak, largest_batch
    from remat_explorer.papers.networks import layer_graph

    graph = layer_graph("ResNet50")
    peak, fixed = kept_for_good_peak(graph), graph.resident_bytes
    return largest_batch(16 * 10**9, fixed, peak) - largest_batch(16 * 10**9, fixed, peak, times=2)


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
        lambda: _resident_bytes("VGG16", 256),
        ("What is there whatever is scheduled?", "Parameters and their gradients: look at graph.resident_bytes"),
        "mine = 8 * 138_357_544",
        "138 million parameters of four bytes, and as many gradients: 1.1 GB, whatever the batch.",
    ),
    Exercise(
        "07.1",
        _examples_for_a_gigabyte,
        ("How many bytes does one example take?", "How many examples of `peak` bytes are there in 10 ** 9?"),
        "mine = 10**9 // 81_723_296",
        "12 examples: a gigabyte over 81.7 MB.",
    ),
    Exercise(
        "07.2",
        _examples_lost_by_counting_twice,
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
)
