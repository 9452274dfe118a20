"""What is in memory while a statement of a plan runs, and for whom each value waits."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.quantities import format_bytes


@dataclass(frozen=True)
class Alive:
    """A value in memory.

    Attributes:
        value: its id.
        bytes: its size.
        since: index of the statement that computed it.
        reader: index of the next statement that reads it, from the one in question on; None where none does.
    """

    value: int
    bytes: int
    since: int
    reader: int | None


def alive_at(plan: Plan, statement: int) -> list[Alive]:
    """The values in memory while a statement runs, its outputs among them, largest first.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> [(found.value, found.since, found.reader) for found in alive_at(plan, 2)]
    [(0, 0, 2), (1, 1, 2), (2, 2, None)]
    """
    graph, since = plan.graph, {}
    for i in range(statement + 1):
        now = plan.statements[i]
        if isinstance(now, Free):
            if i < statement:
                del since[now.value]
            continue
        for v in graph.outputs(now.operation, now.implementation):
            if v not in now.drops or i == statement:
                since[v] = i
        if now.overwrites is not None:
            del since[now.overwrites]
    readers = _next_readers(plan, statement, set(since))
    found = [Alive(v, graph.values[v].bytes, i, readers.get(v)) for v, i in since.items()]
    return sorted(found, key=lambda one: (-one.bytes, one.value))


def _next_readers(plan: Plan, statement: int, waiting: set[int]) -> dict[int, int]:
    """The first statement, from ``statement`` on, that reads the version of each value that is then in memory."""
    graph, found = plan.graph, {}
    for i in range(statement, len(plan.statements)):
        now = plan.statements[i]
        if isinstance(now, Free):
            waiting.discard(now.value)
            continue
        read = waiting.intersection(graph.inputs(now.operation, now.implementation))
        found |= dict.fromkeys(read, i)
        waiting -= read
        if i > statement:  # what is written anew is another version
            waiting.difference_update(set(graph.outputs(now.operation, now.implementation)) - set(now.drops))
        if not waiting:
            break
    return found


def reason(plan: Plan, one: Alive, statement: int) -> str:
    """Why a value is in memory, in words."""
    if one.reader is not None:
        reader = plan.statements[one.reader]
        assert isinstance(reader, Compute)
        name = plan.graph.operations[reader.operation].name
        if one.reader == statement:
            return f"read now, by {name}"
        again = "" if reader.first else " (again)"
        return f"waits for {name}{again} in stage {reader.stage}"
    if plan.graph.persistent[one.value]:
        return "a result: stays to the end"
    return "written now" if one.since == statement else "about to be freed"


def described(plan: Plan, statement: int) -> list[tuple[str, str, str, str]]:
    """A row for each value in memory: name, bytes, share of what is not resident, reason."""
    found = alive_at(plan, statement)
    total = sum(one.bytes for one in found) or 1
    rows = []
    for one in found:
        share = f"{100 * one.bytes / total:.1f} %"
        rows.append((plan.graph.values[one.value].name, format_bytes(one.bytes), share, reason(plan, one, statement)))
    return rows
