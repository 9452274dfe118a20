"""What was asked, what was found, and how good that is: the first section in words, a later one in numbers."""

from __future__ import annotations

from remat_explorer.allocator import predict_allocator
from remat_explorer.offsets import predict_pool
from remat_explorer.quantities import exact_bytes, format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.report.contents import ReportContents
from remat_explorer.report.html import facts, paragraph
from remat_explorer.solution import Solution, Status


def summary(contents: ReportContents) -> str:
    """A few sentences."""
    if contents.solution.schedule is None:
        return paragraph(without_schedule(contents))
    return "".join(map(paragraph, sentences(contents)))


def sentences(contents: ReportContents) -> list[str]:
    """What was found, how good it is, and what came of executing it.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> for sentence in sentences(ReportContents(solve(linear(8), 4))):
    ...     print(sentence)
    A training step of linear8 fits into 4 B: its predicted peak is 4 B instead of 10 B with everything kept (-60.0 %).
    That costs +52.9 % over computing everything once: 6 of 17 operations run again, 9 recomputations in all.
    The schedule is proven optimal: no schedule of this graph within the budget costs less.
    """
    solution, schedule = contents.solution, contents.solution.schedule
    assert schedule is not None
    assert solution.peak is not None
    saved = format_overhead(solution.peak / contents.keep_all) if contents.keep_all else "0 %"
    again = int((schedule.computations.counts(schedule.graph.n) > 1).sum())
    count = schedule.recomputations
    words = [
        f"A training step of {contents.name} fits into {format_bytes(solution.budget)}: its predicted peak is "
        f"{format_bytes(solution.peak)} instead of {format_bytes(contents.keep_all)} with everything kept ({saved}).",
        f"That costs {format_overhead(schedule.overhead)} over computing everything once: {again} of "
        f"{contents.graph.n} operations run again, {count} recomputation{'' if count == 1 else 's'} in all.",
        _quality(contents),
    ]
    if contents.measurement is not None:
        words.append(_executed(contents))
    return words


def _quality(contents: ReportContents) -> str:
    solution = contents.solution
    if solution.status is Status.OPTIMAL:
        return "The schedule is proven optimal: no schedule of this graph within the budget costs less."
    if solution.gap is None:
        return f"It is the best that {solution.strategy!r} found; nothing is proven about how far from optimal it is."
    return (
        f"It is the best that was found; it is proven that none is cheaper by more than {format_share(solution.gap)}."
    )


def _executed(contents: ReportContents) -> str:
    measured = contents.measurement
    assert measured is not None
    verdict = "within" if measured.within_budget else "ABOVE"
    words = (
        f"Executed on {measured.device}, it needed {format_bytes(measured.peak)}, {verdict} the budget and "
        f"{100 * measured.error:+.2f} % from the prediction"
    )
    equal = {
        True: ", with the gradients of plain PyTorch bit for bit",
        False: ", with OTHER results",
        None: ", with results that vary as those of plain PyTorch do" if measured.eager else "",
    }
    return words + equal[measured.equal] + "."


def without_schedule(contents: ReportContents) -> str:
    """Why there is no schedule, and the smallest budget worth trying."""
    solution, budget = contents.solution, format_bytes(contents.solution.budget)
    if solution.status is Status.INFEASIBLE:
        text = contents.smallest.explain_infeasible(solution.strategy, solution.budget)
        return f"There is no schedule of {contents.name} within {budget}: {text}."
    return (
        f"{solution.strategy!r} found no schedule of {contents.name} within {budget} in "
        f"{format_seconds(solution.seconds)}. The smallest budget with a known schedule is "
        f"{format_bytes(contents.smallest.known_feasible)}: give it more time, or more memory."
    )


def _allocator(solution: Solution) -> str:
    assert solution.plan is not None
    found = predict_allocator(solution.plan)
    return (
        f"predicted: {exact_bytes(found.peak_reserved)} reserved, {exact_bytes(found.peak_allocated)} allocated, "
        f"fragmentation {format_share(found.fragmentation)}"
    )


def _pool(solution: Solution) -> str:
    assert solution.plan is not None
    found = predict_pool(solution.plan)
    bound = "no offsets need less" if found.optimal else f"none needs less than {exact_bytes(found.bound)}"
    return f"predicted: {exact_bytes(found.size)}, proven that {bound}"


def numbers(contents: ReportContents) -> str:
    """The numbers behind the sentences; nothing where there is no schedule."""
    solution, schedule = contents.solution, contents.solution.schedule
    if schedule is None:
        return ""
    assert solution.peak is not None
    bound = solution.lower_bound
    # a graph of which no more is known may count costs in anything; what was captured has seconds
    written = "{:.6g} in the graph's unit".format if contents.origin.kind == "graph" else format_seconds
    return facts(
        [
            ("status", str(solution.status)),
            ("strategy", solution.strategy + (f", with {solution.solver}" if solution.solver else "")),
            ("budget", exact_bytes(solution.budget)),
            ("predicted peak", exact_bytes(solution.peak)),
            ("PyTorch's allocator on a GPU", _allocator(solution)),
            ("a pool of one block on a GPU", _pool(solution)),
            ("keeping everything", exact_bytes(contents.keep_all)),
            ("cost", f"{written(schedule.cost)} ({format_overhead(schedule.overhead)})"),
            ("lower bound of the cost", "none proven" if bound is None else written(bound)),
            ("gap", "unknown" if solution.gap is None else format_share(solution.gap)),
            ("recomputations", str(schedule.recomputations)),
            ("solved in", format_seconds(solution.seconds)),
        ]
    )
