"""Why the selected value is in memory in the selected stage or is not, and what writes it."""

from __future__ import annotations

from remat_explorer.explanations import Explanation, Mention, explain_operation, explain_value, summarize_stage
from remat_explorer.explanations.choices import explain_choice
from remat_explorer.explorer.panels.life_strip import StatementNumbers, life_strip
from remat_explorer.explorer.panels.markup import filled, link, note, place, sentence, table_rows, text
from remat_explorer.explorer.panels.side_panel import SidePanel, shown_stage
from remat_explorer.explorer.panels.source_block import margins, source_part, source_place
from remat_explorer.permissions import Permissions
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule

SHOWN = 8  # names in a list
OF_SCHEDULE = ("strip", "writer", "runs")  # places of `value_template` that depend on the schedule
OF_REASON = ("reason", "choice")  # and on how the value stands in a stage


class ExplainPanel(SidePanel):
    """The selected value in words."""

    name, title = "explain", "The selected value, in words"
    traits = ("schedule", "solution", "stage", "value")

    def html(self) -> str:
        state = self.state
        schedule, plan = state.schedule, state.plan
        if schedule is None or plan is None:
            return note("Load a model, and this explains the selected value in the selected stage.")
        value = min(state.value, len(schedule.graph.values) - 1)
        budget = state.solution.budget if state.solution is not None else state.budget
        explanation = explain_value(schedule, plan, shown_stage(state), value, budget or None)
        return explanation_html(schedule, plan, explanation, state.permissions)

    def scroll(self) -> str:
        return f"{self.name} {self.state.value}"


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
    return filled(value_template(schedule, value), parts | stage_parts(schedule, plan, stage) | source)


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
    size = " · ".join([format_bytes(graph.values[value].bytes), *([text(shape)] if shape else [])])
    name, stage = text(graph.values[value].name), place("stage")
    origin = [writer.module, writer.operator, f"{writer.phase} pass", writer.line]
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
        f'<p class="quiet">Stage {stage} {place("sentence")}</p>'
        f'<p class="head"><b>{name}</b> <span class="quiet">{size} · in stage {stage}</span></p>{place("reason")}'
        f'{place("strip")}<table class="facts">{table_rows(written)}{place("choice")}{table_rows(read)}</table>'
        f"{source_place(graph, writer.operation)}{_calls(writer.calls)}"
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
