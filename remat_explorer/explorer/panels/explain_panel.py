"""Why the selected value is in memory in the selected stage or is not, what writes it, and the person's code for it.

The code is in blocks that are written once for a graph; their margins, which say what a schedule keeps and repeats, are
places in them.
"""

from __future__ import annotations

import re

from remat_explorer.explanations import (
    Explanation,
    Lifetime,
    Mention,
    cost_text,
    explain_choice,
    explain_operation,
    explain_value,
    line_of,
    lines_of,
    summarize_stage,
    uses_of_lines,
)
from remat_explorer.explorer.panels.side_panel import (
    SidePanel,
    fill_places,
    link,
    note,
    place,
    sentence,
    shown_stage,
    table_rows,
    text,
)
from remat_explorer.figures import journeys_of, waits_of
from remat_explorer.graph import Graph
from remat_explorer.offload import TransferPlan
from remat_explorer.permissions import Permissions
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.schedule import Schedule

READS = 24  # reads that are marked
CONTEXT = 3  # lines before and after
SHOWN = 8  # names in a list
OF_SCHEDULE = ("strip", "writer", "runs")  # places of `value_template` that depend on the schedule
OF_REASON = ("reason", "choice")  # and on how the value stands in a stage


class ExplainPanel(SidePanel):
    """The selected value in words."""

    name, title = "explain", "The selected value, in words"
    traits = ("schedule", "solution", "sending", "stage", "value")

    def html(self) -> str:
        state = self.state
        schedule, plan = state.schedule, state.plan
        if state.sending is not None and state.sending.plan is not None and schedule is not None:
            return sending_html(state.sending.plan, schedule, state.value, shown_stage(state))
        if schedule is None or plan is None:
            return note("Load a model, and this explains the selected value in the selected stage.")
        value = min(state.value, len(schedule.graph.values) - 1)
        budget = state.solution.budget if state.solution is not None else state.budget
        explanation = explain_value(schedule, plan, shown_stage(state), value, budget or None)
        return explanation_html(schedule, plan, explanation, state.permissions)

    def scroll(self) -> str:
        return f"{self.name} {self.state.value}"


def sending_html(plan: TransferPlan, schedule: Schedule, value: int, stage: int) -> str:
    """What is said of a value of a plan that sends: why, and what writes it.

    >>> from remat_explorer.figures import schedule_of
    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> plan = TransferPlan.from_events(linear(1), Transfers(1, 1), events)
    >>> "Sent to the host in stage 0, back in stage 2" in sending_html(plan, schedule_of(plan), 0, 1)
    True
    """
    graph = plan.graph
    value = min(value, len(graph.values) - 1)
    written = Mention(graph.operations[int(graph.producer[value])].name, value)
    rows = [
        ["together", text(sending_cost(plan))],
        ["written by", link(written)],
        ["times", "predicted from costs and bandwidth, not measured"],
    ]
    name, size = text(graph.values[value].name), format_bytes(graph.values[value].bytes)
    head = f'<p class="head"><b>{name}</b> <span class="quiet">{size} · in stage {stage}</span></p>'
    return f'{head}{sending_reason(plan, schedule, value, stage)}<table class="facts">{table_rows(rows)}</table>'


def sending_cost(plan: TransferPlan) -> str:
    """What all that a plan sends costs: what computing waits for copies.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> sending_cost(TransferPlan.from_events(linear(1), Transfers(1, 1), events))
    '+33.3 % for all values that travel (1): computing waits that long for copies'
    """
    travel = len({journey.value for journey in journeys_of(plan)})
    waiting = sum(wait for _, wait in waits_of(plan)) / (plan.graph.total_cost or 1.0)
    why = "computing waits that long for copies" if waiting else "computing waits for no copy"
    return f"{format_overhead(1 + waiting)} for all values that travel ({travel}): {why}"


def sending_reason(plan: TransferPlan, schedule: Schedule, value: int, stage: int) -> str:
    """Why a value travels, is computed again or stays: its bytes over the bandwidth, beside its cost; as HTML."""
    graph, transfers = plan.graph, plan.transfers
    size, producer = graph.values[value].bytes, int(graph.producer[value])
    copies = transfers.out_seconds(size) + transfers.back_seconds(size)
    cost = float(graph.costs[producer])
    again = [int(t) for t in schedule.implementations_of(producer).nonzero()[0]][1:]
    ways = [journey for journey in journeys_of(plan) if journey.value == value]
    time = cost_text(graph, copies)
    travel = f"sending and fetching its {format_bytes(size)} takes {time}, while other operations are computed"
    compute = f"its operation takes {cost_text(graph, cost)}, during which nothing else is computed"
    if ways:
        trips = "; ".join(f"in stage {way.sent}, back in stage {way.fetched}" for way in ways)
        waits = "It costs only what computing waits for it."
        reason = f"Sent to the host {trips}: {travel}. {waits} To compute it again, {compute}."
    elif again:
        stages = ", ".join(map(str, again[:SHOWN]))
        reason = f"Computed again in stage {stages}: {compute}. Instead, {travel}."
    else:
        reason = f"It stays on the device until its last use. To make room, {compute}; {travel}."
    away = any(way.freed < stage <= way.fetched for way in ways)
    here = "on the host" if away else "in memory" if schedule.S[stage, value] else "not in memory"
    return f'<p class="reason">{text(reason)} When stage {stage} begins, it is {here}.</p>'


class StatementNumbers:
    """How the statements of a plan are written: by their numbers, from 0."""

    def __init__(self, plan: Plan) -> None:
        self.total = str(len(plan.statements))

    def number(self, statement: int) -> str:
        """A statement's number."""
        return str(statement)

    def count(self, first: int, last: int) -> str:
        """How many there are from one to another, both included."""
        return str(last - first + 1)


def life_strip(lives: tuple[Lifetime, ...], statements: StatementNumbers) -> str:
    """A drawing of the versions of a value, with a place for the cursor.

    Args:
        lives: of the value, in order.
        statements: how those of the plan are written.

    >>> from remat_explorer.explanations.values import lives_of
    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> 'aria-label="In memory: stages 1 to 2"' in life_strip(lives_of(plan).of_value[1], StatementNumbers(plan))
    True
    """
    if not lives:
        return ""
    bars = [f'<rect class="cursor" x="{place("begin")}" y="0" width="{place("width")}" height="16"/>']
    for life in lives:
        x, name = statements.number(life.first), text(_span(life, statements))
        bars.append(
            f'<g class="life" data-stage="{life.first_stage}"><title>{name}</title>'
            f'<rect x="{x}" y="4" width="{statements.count(life.first, life.last)}" height="8"/>'
            f'<path d="M{x} 4v8"/></g>'  # what is shorter than a pixel is seen, too
        )
    reads = [statements.number(read) for life in lives for read in life.readers][:READS]
    bars.append(f'<path class="read" d="{"".join(f"M{read} 2v12" for read in reads)}"/>')
    return (
        f'<svg class="strip" viewBox="0 0 {statements.total} 16" preserveAspectRatio="none" role="img" '
        f'aria-label="In memory: {"; ".join(map(_stages, lives))}">{"".join(bars)}</svg>'
    )


def _stages(life: Lifetime) -> str:
    only = life.first_stage == life.last_stage
    return f"stage {life.first_stage}" if only else f"stages {life.first_stage} to {life.last_stage}"


def _span(life: Lifetime, statements: StatementNumbers) -> str:
    return f"{_stages(life)} (statements {statements.number(life.first)} to {statements.number(life.last)})"


def source_place(graph: Graph, operation: int) -> str:
    """The place of the block of an operation's line; nothing where it comes from no line."""
    line = line_of(graph, operation)
    return "" if line is None else place(f"source{lines_of(graph)[line]}")


def source_part(graph: Graph, operation: int, permissions: Permissions | None) -> dict[str, str]:
    """What fills that place.

    Args:
        graph: the graph.
        operation: its number.
        permissions: which files may be shown; None for none.
    """
    line = line_of(graph, operation)
    return {} if line is None else {f"source{lines_of(graph)[line]}": _block(graph, operation, permissions)}


def source_parts(graph: Graph, permissions: Permissions | None) -> dict[str, str]:
    """The blocks of all lines of a graph."""
    parts: dict[str, str] = {}
    for k in range(graph.n):
        line = line_of(graph, k)
        if line is not None and f"source{lines_of(graph)[line]}" not in parts:
            parts |= source_part(graph, k, permissions)
    return parts


def margins(schedule: Schedule) -> dict[str, str]:
    """What fills the places of the margins: bytes kept for the backward pass, and how often a line is repeated."""
    parts = {}
    for i, use in enumerate(uses_of_lines(schedule)):
        parts[f"kept{i}"] = format_bytes(use.kept) if use.kept else ""
        parts[f"again{i}"] = f"{use.again:,}×" if use.again else ""
    return parts


def _block(graph: Graph, operation: int, permissions: Permissions | None) -> str:
    details = graph.operations[operation].details
    assert details is not None
    source, (name, _, digits) = details.source, details.line.rpartition(":")
    if source is None:
        return _missing(f"The source of {details.line} is not known: a graph file has only the number of the line.")
    if permissions is None or not permissions.shows_source_of(source.path):
        return _missing(f"The source of {details.line} is not shown here.")
    number = int(digits)
    if not source.lines:
        return _missing(f"The source of {details.line} could not be read when the model was captured.")
    numbers = lines_of(graph)
    rows = []
    for n, written in source.around(number, CONTEXT):
        at = numbers.get((source.path, f"{source.name}:{n}"))
        kept, again = ("", "") if at is None else (place(f"kept{at}"), place(f"again{at}"))
        here = ' class="here" aria-current="true"' if n == number else ""
        rows.append(
            f'<tr{here}><td class="kept">{kept}</td><td class="again">{again}</td><td class="number">{n}</td>'
            f"<td><code>{text(written)}</code></td></tr>"
        )
    head = (
        '<tr><th title="Bytes of the values of a line that are kept for the backward pass">kept</th>'
        '<th title="How many computations of a line repeat an earlier one">again</th><th></th>'
        f"<th>{text(name)}, as it was captured</th></tr>"
    )
    return (
        f'<div class="source" tabindex="0" role="region" aria-label="Source"><table>{head}{"".join(rows)}</table></div>'
    )


def _missing(words: str) -> str:
    return f'<p class="quiet small">{text(words)}</p>'


def explanation_html(
    schedule: Schedule, plan: Plan, explanation: Explanation, permissions: Permissions | None = None
) -> str:
    """A value in a stage: why, when it is in memory, the operation that writes it, and the line that it comes from.

    Args:
        schedule, plan: of the graph.
        explanation: of the value in the stage.
        permissions: whose files may be shown; None for none.
    """
    value, stage = explanation.value, explanation.stage
    strip = life_strip(explanation.lives, StatementNumbers(plan))
    texts = (strip, *schedule_parts(schedule, value), *reason_parts(schedule, explanation))
    parts = dict(zip(OF_SCHEDULE + OF_REASON, texts, strict=True))
    source = source_part(schedule.graph, int(schedule.graph.producer[value]), permissions) | margins(schedule)
    return fill_places(value_template(schedule, value), parts | stage_parts(schedule, plan, stage) | source)


def value_template(schedule: Schedule, value: int) -> str:
    """What is said of a value in any schedule of a graph, with places for the rest.

    Args:
        schedule: any one.
        value: the value.
    """
    graph = schedule.graph
    writer = explain_operation(schedule, int(graph.producer[value]))
    shapes = dict(zip(writer.outputs, writer.shapes, strict=False))  # of what the default implementation writes
    shape = shapes.get(value, "")
    size = format_bytes(graph.values[value].bytes)
    name, stage = text(re.sub(r" \[\d+\]$", "", graph.values[value].name)), place("stage")  # of several outputs
    origin = [writer.module, writer.operator, f"{writer.phase} pass", writer.line, f"writes {shape}" if shape else ""]
    inputs = [Mention(graph.values[v].name, v) for v in writer.inputs]
    readers = [Mention(graph.operations[k].name, _first(graph.outputs(k))) for k in graph.readers[value]]
    written = [
        ["written by", place("writer")],
        ["", text(" · ".join(part for part in origin if part))],
        ["", place("runs")],
    ]
    read = [
        ["it reads", _names(inputs, "parameters and inputs only")],
        ["read by", _names(readers, "no operation")],
    ]
    return (
        f'<p class="head"><b>{name}</b> <span class="quiet">{size} · in stage {stage}</span></p>{place("reason")}'
        f"{place('strip')}<details><summary>Details</summary>"
        f'<table class="facts">{table_rows(written)}{place("choice")}{table_rows(read)}</table>'
        f'<p class="quiet">Stage {stage} {place("sentence")}.</p>'
        f"{source_place(graph, writer.operation)}{_calls(writer.calls)}</details>"
    )


def _calls(calls: tuple[str, ...]) -> str:
    """The statements of the plan's code that write the value."""
    if not calls:
        return ""
    lines = text("\n".join(calls))
    return f'<p class="quiet small">In the code of the plan, without views:</p><pre class="calls">{lines}</pre>'


def stage_parts(schedule: Schedule, plan: Plan, stage: int) -> dict[str, str]:
    """What depends on the stage alone: its number, what it does, and where the cursor of a life's strip is."""
    stages, total = plan.timeline.stage, len(plan.statements)
    begin, end = (int(statement) for statement in stages.searchsorted((stage, stage + 1)))
    said = text(summarize_stage(schedule, plan, stage).sentence)
    return {"stage": str(stage), "sentence": said, "begin": str(begin), "width": f"{max(end - begin, total / 200):g}"}


def schedule_parts(schedule: Schedule, value: int) -> tuple[str, ...]:
    """What depends on the schedule, not on the stage, in the order of `OF_SCHEDULE` behind the strip of its lives."""
    writer = explain_operation(schedule, int(schedule.graph.producer[value]))
    return _name(writer.name, _first(writer.outputs), writer.stages), text(writer.sentence)


def reason_parts(schedule: Schedule, explanation: Explanation) -> tuple[str, ...]:
    """What depends on how the value stands in a stage, in the order of `OF_REASON`."""
    reason = f'<p class="reason {explanation.kind.name.lower()}">{sentence(explanation.words)}</p>'
    producer = int(schedule.graph.producer[explanation.value])
    return reason, table_rows(_choice(schedule, producer, explanation.stage))


def _choice(schedule: Schedule, operation: int, stage: int) -> list[list[str]]:
    """Which implementation makes the value, and why that one."""
    choice = explain_choice(schedule, operation, stage)
    if choice is None:
        return []
    return [[f"by, in stage {choice.stage}", f"<b>{text(choice.name)}</b>: {text(choice.sentence)}"]]


def _name(name: str, value: int | None, stages: tuple[int, ...]) -> str:
    return link(Mention(name, value, stages[0] if stages else None))


def _names(mentions: list[Mention], none: str) -> str:
    if not mentions:
        return f'<span class="quiet">{text(none)}</span>'
    more = f" and {len(mentions) - SHOWN} more" if len(mentions) > SHOWN else ""
    return ", ".join(link(mention) for mention in mentions[:SHOWN]) + more


def _first(outputs: tuple[int, ...]) -> int | None:
    return outputs[0] if outputs else None
