"""The sections of a report: what was asked and found, the schedule and all that is drawn of it, and how it was made.

Of machine and software it tells versions and names of devices, but neither host nor paths.
"""

from __future__ import annotations

import importlib.metadata
import platform
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

from remat_explorer.allocator import predict_allocator
from remat_explorer.documents import to_json
from remat_explorer.explanations import EXPLAINED, alive_at, cost_text, label_of
from remat_explorer.figures import (
    Use,
    compare,
    implementations_used,
    journeys_of,
    memory_breakdown,
    memory_map,
    memory_timeline,
    model_graph,
    solver_progress,
    tradeoff,
)
from remat_explorer.figures.implementation_images import implementation_images
from remat_explorer.figures.schedule_images import schedule_images
from remat_explorer.graph import dump_graph
from remat_explorer.offload import TransferSolution
from remat_explorer.offsets import predict_pool
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import exact_bytes, format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.report.contents import ReportContents, drawing
from remat_explorer.report.html import code, data, facts, packed, paragraph, table
from remat_explorer.solvers import Solution, Status

if TYPE_CHECKING:
    from remat_explorer.runtime import Measurement


def setup(contents: ReportContents) -> str:
    """Model, sizes, graph, capture, versions and devices."""
    origin, summary, options = contents.origin, contents.graph.summary(), contents.graph.options
    image = origin.image if not isinstance(origin.image, int) else (origin.image, origin.image)
    parts = [
        ("model", origin.model or contents.name),
        ("batch", str(origin.batch or "")),
        ("image", " × ".join(map(str, image)) if image else ""),
        ("sequence", str(origin.sequence or "")),
        ("device", origin.device),
        ("costs", origin.costs),
        ("operations", f"{summary.forward} forward, {summary.backward} backward"),
        ("values", str(summary.values)),
        ("resident (parameters, inputs, buffers)", format_bytes(summary.resident_bytes)),
        ("features", format_bytes(summary.feature_bytes)),
        ("parameter gradients", format_bytes(summary.gradient_bytes)),
        ("largest workspace", format_bytes(summary.workspace_bytes)),
        ("optimizer counted as resident", (options.optimizer or "none") if options else ""),
    ]
    return f'<div class="columns">{facts(parts)}{facts([*versions(), *devices()])}</div>'


def versions() -> list[tuple[str, str]]:
    """Versions of what a result depends on.

    >>> [name for name, _ in versions()]
    ['python', 'torch', 'plotly', 'remat_explorer']
    """
    packages = [(name, importlib.metadata.version(name)) for name in ("torch", "plotly", "remat_explorer")]
    return [("python", platform.python_version()), *packages]


def devices() -> list[tuple[str, str]]:
    """Names of the CPU, of the GPU where there is one, and of the operating system."""
    import torch

    from remat_explorer.capture import processor_name

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return [("CPU", processor_name()), ("GPU", gpu), ("system", f"{platform.system()}, {platform.machine()}")]


HEADS = ("kind", "what it does", "implementation", " operations", " runs", "results")


def implementations(contents: ReportContents) -> str:
    """R in the colours of kinds, and a table of what runs in another way than PyTorch's own."""
    schedule = contents.solution.schedule
    if schedule is None or not contents.graph.has_choices:
        return ""
    used = implementations_used(schedule)
    if not used:
        return paragraph("Every operation runs with PyTorch's own implementation, though others could be chosen.")
    words = "The solver also chose how to compute: what is not grey is not PyTorch's own implementation."
    picture = drawing(
        "ways", partial(implementation_images, schedule), "R in the colours of implementations", broad=True
    )
    under = '<p id="way" class="under" aria-live="polite">&nbsp;</p>'
    return paragraph(words) + picture + under + table(HEADS, map(_row, used))


def _row(use: Use) -> tuple[str, ...]:
    said = EXPLAINED[use.kind][1] if use.kind in EXPLAINED else ""
    results = "equal bit for bit" if use.tolerance == 0 else f"differ by at most {use.tolerance:.0e} of their size"
    return label_of(use.kind), said, use.name, str(use.operations), str(use.runs), results


SHOWN = 30  # rows; the rest is counted


def peak(contents: ReportContents) -> str:
    """What is alive at the peak, largest first, and why."""
    plan = contents.solution.plan
    if plan is None:
        return ""
    memory = alive_at(plan)
    values = sum(row.kind == "value" for row in memory.rows)
    words = (
        f"The plan needs most memory, {format_bytes(memory.total)}, at statement {memory.statement}, {memory.text!r} "
        f"in stage {memory.stage}, with {values} value{'' if values == 1 else 's'} in memory."
    )
    rows = [
        (row.name, format_bytes(row.bytes), format_share(row.bytes / max(memory.total, 1)), row.reason)
        for row in memory.rows
    ]
    left = paragraph(f"… and {len(rows) - SHOWN} more, none of them larger.") if len(rows) > SHOWN else ""
    return paragraph(words) + table(["in memory", " bytes", " share", "why"], rows[:SHOWN]) + left


FREE, COMPUTE, RECOMPUTE = range(3)


def statements(contents: ReportContents) -> str:
    """A closed list; the page's script fills it from numbers and the names of the graph."""
    plan = contents.solution.plan
    if plan is None:
        return ""
    words = f"{len(plan.statements)} statements, with the predicted memory while each one runs."
    return (
        paragraph(words)
        + '<details id="plan"><summary>Show the statements</summary><label>Search <input type="search" '
        'placeholder="recompute, a name, stage 12"></label> <span class="under"></span>'
        '<div class="wide tall" tabindex="0" role="region" aria-label="Statements">'
        '<table><thead><tr><th class="number">#</th><th class="number">stage</th><th>statement</th>'
        '<th class="number">memory</th></tr></thead><tbody></tbody></table></div></details>'
        + data("plan-data", rows(plan))
    )


def rows(plan: Plan) -> list[tuple[int, ...]]:
    """The statements as numbers: stage, kind, operation or value, and bytes.

    Behind them, where they are not the default, the number of the implementation and the value that is overwritten.

    >>> from remat_explorer.instances import linear
    >>> rows(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))[:2]
    [(0, 1, 0, 1), (1, 1, 1, 2)]
    """
    table: list[tuple[int, ...]] = []
    for statement, during in zip(plan.statements, plan.timeline.during.tolist(), strict=True):
        if isinstance(statement, Compute):
            kind = COMPUTE if statement.first else RECOMPUTE
            code, over = statement.implementation, statement.overwrites
            more = (code,) if over is None else (code, over)
            table.append((statement.stage, kind, statement.operation, during, *(more if more != (1,) else ())))
        else:
            table.append((statement.stage, FREE, statement.value, during))
    return table


def usage(contents: ReportContents) -> str:
    """Links to the graph and the solution, and a program that uses them."""
    graph, solution = contents.file_name("graph"), contents.file_name("solution")
    words = (
        "This page holds both files: the training graph, and the solution with its matrices. Save them with these "
        "links, next to the program below."
    )
    links = "".join(
        f'<a class="file" href="#" data-file="{identity}" download="{name}">{name}</a> '
        for identity, name in (("graph-file", graph), ("solution-file", solution))
    )
    document = to_json(contents.solution.to_document())
    return (
        paragraph(words)
        + f"<p>{links}</p>"
        + code(program(contents))
        + packed("graph-file", dump_graph(contents.graph) + "\n", graph)
        + packed("solution-file", document + "\n", solution)
    )


def program(contents: ReportContents) -> str:
    """Python that loads the files, and trains the model with the schedule where there are both."""
    graph, solution = contents.file_name("graph"), contents.file_name("solution")
    lines = [
        "import remat_explorer as rx",
        "",
        f'graph = rx.Graph.load("{graph}")',
        f'solution = rx.Solution.load("{solution}", graph)',
        "print(solution)",
    ]
    if contents.solution.schedule is not None and contents.origin.kind != "graph":
        lines += ["", *_training(contents, solution)]
    return "\n".join(lines)


def _training(contents: ReportContents, solution: str) -> list[str]:
    """How to train with the schedule, for each kind of origin."""
    origin = contents.origin
    if origin.kind == "zoo":
        sizes = [(name, getattr(origin, name)) for name in ("batch", "image", "sequence")]
        given = "".join(f", {name}={size!r}" for name, size in sizes if size)
        return [
            f'net = rx.models.load("{origin.model}"{given})',
            f'trained = rx.rematerialize(net.module, net.args, solution="{solution}")',
            "trained(*net.args).backward()  # the model returns its loss; the rest of the loop stays as it is",
        ]
    if origin.kind == "file":
        file, _, function = origin.model.rpartition(":")
        made = [f"from {PurePath(file).stem} import {function}", "", f"made = {function}()"]
        call = "made[0], made[1], made[2] if len(made) > 2 else None, loss=made[3] if len(made) > 3 else None"
        return [
            *made,
            f'trained = rx.rematerialize({call}, solution="{solution}")',
        ]
    return [
        "model, args = ...  # the module and inputs of this report, with its loss as loss=..., if it has one",
        f'trained = rx.rematerialize(model, args, solution="{solution}")',
    ]


def sending(solution: TransferSolution, measurement: Measurement | None = None) -> list[tuple[str, str]]:
    """The titles and sections of a report on a plan that sends values to the host."""
    plan, graph = solution.plan, solution.graph
    asked = [
        ("budget", exact_bytes(solution.budget)),
        ("copies", solution.transfers.describe()),
        ("strategy", solution.strategy),
        ("status", str(solution.status)),
        ("gap", "not proven" if solution.gap is None else format_share(solution.gap)),
        ("search", f"{format_seconds(solution.seconds)}{', ended by ' if solution.limit else ''}{solution.limit}"),
    ]
    versions_and_devices = f'<div class="columns">{facts([*versions(), *devices()])}</div>'
    if plan is None:
        return [("Summary", paragraph(str(solution)) + facts(asked)), ("Set-up", versions_and_devices)]
    found = [
        ("overhead", f"{format_overhead(solution.overhead or 1.0)}, predicted"),
        ("peak on the device", format_bytes(plan.peak)),
        ("most on the host", format_bytes(plan.host_peak)),
        ("sent in all", format_bytes(plan.sent_bytes)),
        ("computing waits", cost_text(graph, plan.makespan - plan.computing)),
    ]
    sizes, transfers = graph.value_bytes.tolist(), plan.transfers
    rows = [
        (
            graph.values[way.value].name,
            format_bytes(sizes[way.value]),
            str(way.sent),
            str(way.fetched),
            cost_text(graph, transfers.out_seconds(sizes[way.value]) + transfers.back_seconds(sizes[way.value])),
            cost_text(graph, float(graph.costs[int(graph.producer[way.value])])),
        )
        for way in journeys_of(plan)
    ]
    heads = ["value", " bytes", " sent in stage", " back in stage", " copies take", " its operation takes"]
    line = drawing(
        "timeline",
        lambda theme: memory_timeline(plan, solution.budget, measurement, theme=theme),
        "Memory along the plan",
    )
    placed = drawing("map", lambda theme: memory_map(plan, theme=theme), "Where every value lies", broad=True)
    travels = table(heads, rows) if rows else paragraph("No value is sent.")
    times = paragraph("Times are predicted from the graph's costs and the bandwidth, not measured.")
    run = paragraph(NOT_EXECUTED) if measurement is None else code(str(measurement))
    file_name = "solution.json"
    kept = packed("solution-file", to_json(solution.to_document()) + "\n", file_name)
    link = f'<p><a class="file" href="#" data-file="solution-file" download="{file_name}">{file_name}</a></p>'
    summary_text = paragraph(str(solution)) + times + f'<div class="columns">{facts(asked)}{facts(found)}</div>'
    return [
        ("Summary", summary_text),
        ("Memory", line + placed),
        ("What travels", travels),
        ("Validation", run),
        ("Set-up", versions_and_devices),
        ("Use it", link + kept),
    ]


NOT_EXECUTED = "This schedule was not executed: peaks and costs in this report are predictions."


def validation(contents: ReportContents) -> str:
    """What was promised beside what came of it."""
    measured = contents.measurement
    if measured is None:
        return paragraph(NOT_EXECUTED) if contents.solution.schedule else ""
    overhead = measured.overhead_text
    rows = [
        ("peak", format_bytes(measured.predicted_peak), format_bytes(measured.peak), f"{100 * measured.error:+.3f} %"),
        (
            "peak without resident bytes",
            format_bytes(measured.predicted_peak - measured.resident_bytes),
            format_bytes(measured.peak - measured.resident_bytes),
            f"{100 * measured.dynamic_error:+.3f} %",
        ),
        ("peak of the generated code", "", format_bytes(measured.generated_peak), ""),
        *_reserved(measured),
        ("overhead", format_overhead(measured.predicted_overhead), overhead, ""),
    ]
    verdict = "kept to" if measured.within_budget else "EXCEEDED"
    times = [
        ("device", measured.device),
        ("budget", f"{format_bytes(measured.budget)}: {verdict}"),
        ("time of a step", format_seconds(measured.seconds)),
        ("time of keeping everything", _time(measured.checkpoint_all_seconds)),
    ]
    return table(["", " predicted", " measured", " error"], rows) + facts([*times, *_against(measured)])


def _reserved(measured: Measurement) -> list[tuple[str, str, str, str]]:
    """Reserved bytes: predicted for a GPU, and measured where there was one."""
    found = measured.allocator
    predicted = format_bytes(measured.predicted_allocator.peak_reserved)
    return [
        ("reserved by PyTorch's allocator on a GPU", predicted, format_bytes(found.plan.reserved) if found else "", "")
    ]


def _against(measured) -> list[tuple[str, str]]:
    """Plain PyTorch beside it, and CUDA's own counts."""
    rows = []
    if measured.eager:
        compared = measured.eager.comparison
        rows = [
            ("plain PyTorch", f"{format_bytes(measured.eager.peak)}, {format_seconds(measured.eager.seconds)}"),
            ("gradients", _gradients(compared)),
            ("loss", compared.loss_text),
            ("buffers", compared.buffers_text),
            ("random state", compared.random_state_text),
            ("where it differs", compared.begins_text),
        ]
    if measured.allocator:
        found = measured.allocator
        rows += [("CUDA, beside the budget", str(found.plan)), ("CUDA, the whole process", str(found.process))]
    return [*rows, ("not compared", measured.missing)]


def _gradients(compared) -> str:
    equal = compared.gradients_equal
    return f"equal bit for bit: max difference {compared.gradient_difference:g}" if equal else compared.gradients_text


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else format_seconds(seconds)


def matrices(contents: ReportContents) -> str:
    """R, S and U, with a line that says what is under the pointer."""
    schedule = contents.solution.schedule
    if schedule is None:
        return ""
    words = (
        "Row t is stage t, in which operation t runs for the first time. R says what else runs in the stage, S which "
        "values are in memory when it begins, and U how much memory is in use while each operation runs."
    )
    picture = drawing(
        "matrices", partial(schedule_images, schedule), "The matrices R, S and U of the schedule", broad=True
    )
    return paragraph(words) + picture + '<p id="cell" class="under" aria-live="polite">&nbsp;</p>'


def timeline(contents: ReportContents) -> str:
    """Memory along the plan, predicted and measured, under the budget."""
    plan, solution = contents.solution.plan, contents.solution
    if plan is None:
        return ""
    words = "What is in memory while each computation of the plan runs. Parameters, inputs and buffers are resident."

    def draw(theme):
        return memory_timeline(plan, solution.budget, contents.measurement, theme=theme)

    return paragraph(words) + drawing("timeline", draw, "Memory along the plan")


def curve(contents: ReportContents) -> str:
    """The trade-off curve, where one is known."""
    frontier, solution, measurement = contents.curve, contents.solution, contents.measurement
    if frontier is None:
        return ""
    words = "Memory against overhead: filled points are proven to be optimal, open ones have a gap."

    def draw(theme):
        return tradeoff(frontier, solution.budget, solution, measurement, theme)

    return paragraph(words) + drawing("curve", draw, "Overhead against memory")


def model(contents: ReportContents) -> str:
    """The operations of the model, and what its memory is made of."""
    graph, schedule, plan = contents.graph, contents.solution.schedule, contents.solution.plan
    stage = None if plan is None else int(plan.timeline.stage[plan.timeline.peak_statement])
    words = "The forward pass runs along one rail and the backward pass along the other; larger boxes have more bytes."
    if stage is not None:
        words += f" Colours show what stage {stage}, which has the peak, computes and keeps."
    picture = drawing(
        "network", lambda theme: model_graph(graph, schedule, stage, theme), "The graph of the model", broad=True
    )
    return paragraph(words) + picture + drawing("breakdown", partial(memory_breakdown, [graph]), "Parts of the memory")


def comparison(contents: ReportContents) -> str:
    """The schedule beside another one, where there is one."""
    solution, other = contents.solution, contents.other
    if other is None or other.schedule is None or solution.schedule is None:
        return ""
    return drawing("two-schedules", lambda theme: compare(solution, other, theme), "Two schedules", broad=True)


def search(contents: ReportContents) -> str:
    """How the solver went, where that is known."""
    history = contents.history
    if not history:
        return ""
    cost = contents.graph.total_cost
    return drawing("progress", lambda theme: solver_progress(history, cost, theme), "Cost and bound over time")


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
